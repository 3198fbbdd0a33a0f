"""The feed of a rollout: rebuilt from the recorder, FAIL told at once, silence seen, setups of one attempt only."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from controller.adapters.calibration import Calibrations
from controller.adapters.recorder import Judgements, kept_setup
from controller.adapters.recorder_client import OtherRelease, RecorderClient, check_protocol
from controller.judging import AttemptJudge
from controller.ports import Retryable, Terminal
from crds.v1alpha1.conditions import Reason
from policies.blocks import Block, Cell
from policies.contract import contract_from_mapping
from policies.history import prepare
from policies.verdict import Result
from shadow.protocol import PROTOCOL, UNSTATED
from shadow.recorder.api import add_rollouts, make_app
from shadow.recorder.recorder import Recorder
from tests.unit.controller.shell.fakes import FakeClock, FakeStore

POLICY = {
    "tenants": {"required": ["acme"]},
    "lengthBuckets": {"edges": [512]},
    "gates": [{"metric": "success", "limit": "99%"}],
    "evidence": {"minStep": "10s", "minBlocks": 1},
}
BEGAN = 1_800_000_000.0


def block(seq: int, attempt: int, outcome: str, step: int = 0, n: int = 200) -> Block:
    start_s = BEGAN + 5.0 * seq
    cells = tuple(
        Cell(variant, f"rev-{variant}", "live", "acme", "0-512", f"pod-{variant}", routed=n, outcomes={result: n})
        for variant, result in (("stable", "ok"), ("candidate", outcome))
    )
    return Block(seq, "ns/chat", attempt, step, start_s, start_s + 5.0, cells, stage="canary", weight=5)


class StubRecorder:
    """A recorder in memory."""

    def __init__(self) -> None:
        self.stored: list[Block] = []
        self.bodies: dict[int, dict[str, Any]] = {}
        self.is_down, self.protocol = False, PROTOCOL
        self.news = threading.Condition()

    def blocks(self, rollout: str, **query: Any) -> tuple[list[Block], int]:
        self._answer()
        with self.news:
            if query.get("wait") and not any(b.seq > query["after"] for b in self.stored):
                self.news.wait(0.05)
            if "since" in query:
                found = [b for b in self.stored if b.end_s >= query["since"]][: query["limit"]]
                return found, found[-1].seq if found else (self.stored[-1].seq if self.stored else -1)
            found = [b for b in self.stored if b.seq > query["after"]][: query["limit"]]
            return found, found[-1].seq if found else query["after"]

    def setup(self, rollout: str, attempt: int) -> dict[str, Any] | None:
        self._answer()
        return self.bodies.get(attempt)

    def put_setup(self, rollout: str, body: dict[str, Any]) -> None:
        self._answer()
        self.bodies[body["attempt"]] = body

    def open_requests(self, rollout: str) -> dict[str, Any]:
        self._answer()
        live = {"revision": "rev-candidate", "kind": "live"}
        return {"open": [{**live, "n": 2}, {**live, "n": 1}, {**live, "kind": "mirror", "n": 500}]}

    def stats(self, rollout: str) -> dict[str, Any]:
        self._answer()
        return {"bytes_per_token": {"m": 5.0}, "overhead_bytes": {"m": 90.0}}

    def close(self) -> None:
        return None

    def add(self, *blocks: Block) -> None:
        with self.news:
            self.stored += blocks
            self.news.notify_all()

    def _answer(self) -> None:
        if self.is_down:
            raise Retryable("refused")
        check_protocol(self.protocol)


class Scene:
    """A feed over the stub; `wait` looks until something is so."""

    def __init__(self) -> None:
        self.recorder, self.store, self.clock = StubRecorder(), FakeStore(), FakeClock(BEGAN + 60.0)
        self.told = threading.Condition()
        self.urgent: list[bool] = []
        self.judgements = Judgements(self.recorder, self.store, self.clock, self._on_verdict)  # type: ignore[arg-type]

    def _on_verdict(self, rollout: str, urgent: bool) -> None:
        with self.told:
            self.urgent.append(urgent)
            self.told.notify_all()

    def view(self, attempt: int = 1) -> Any:
        return self.judgements.view("ns/chat", attempt, "rev-candidate", 0, BEGAN)

    def wait(self, look: Callable[[], Any], seconds: float = 10.0) -> None:
        import time

        deadline = time.monotonic() + seconds
        pause = threading.Event()
        while not look():
            assert time.monotonic() < deadline, "not in time"
            pause.wait(0.02)


@pytest.fixture
def scene() -> Any:
    scene = Scene()
    yield scene
    scene.judgements.stop()


def keep_setup(scene: Scene, began_s: float = BEGAN) -> None:
    setup = prepare(contract_from_mapping(POLICY), [])
    scene.recorder.bodies[1] = {"attempt": 1, "setup": setup.to_dict(), "attempt_began_s": began_s}


def test_a_new_leader_rebuilds_the_judge_from_the_recorder(scene: Scene) -> None:
    keep_setup(scene)
    scene.recorder.add(block(0, 0, "ok"), *(block(n, 1, "server_error") for n in range(1, 9)))
    scene.wait(lambda: scene.view().rebuilt)
    view = scene.view()
    assert view.setup_attempt == 1 and view.verdict.result is Result.FAIL and view.evidence


def test_fail_on_a_new_block_is_told_as_urgent(scene: Scene) -> None:
    keep_setup(scene)
    scene.wait(lambda: scene.view().rebuilt)
    scene.recorder.add(*(block(n, 1, "server_error") for n in range(1, 9)))
    with scene.told:
        assert scene.told.wait_for(lambda: True in scene.urgent, timeout=10)
    assert ("verdict" in {kind for kind, _ in scene.store.rows}) and scene.view().verdict.result is Result.FAIL


def test_blocks_of_another_attempt_are_no_evidence(scene: Scene) -> None:
    keep_setup(scene)
    scene.recorder.add(*(block(n, 7, "server_error") for n in range(9)))
    scene.wait(lambda: scene.view().rebuilt)
    assert scene.view().verdict.result is Result.INCONCLUSIVE


def test_a_silent_recorder_is_neither_reachable_nor_rebuilt(scene: Scene) -> None:
    scene.recorder.is_down = True
    view = scene.view()
    assert not view.reachable and not view.rebuilt and view.verdict is None
    assert scene.judgements.open_requests("ns/chat") is None
    with pytest.raises(Retryable):
        scene.judgements.put_setup("ns/chat", 1, POLICY, "rev-stable")
    scene.recorder.is_down = False
    scene.wait(lambda: scene.view().reachable)
    scene.wait(lambda: scene.judgements.open_requests("ns/chat") == {"rev-candidate": 3})


def test_the_recorder_of_this_release_is_understood(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    app = make_app()
    add_rollouts(app, recorder)
    with TestClient(app) as http:
        assert RecorderClient("", http=http).blocks("ns/chat", after=-1, limit=1) == ([], -1)  # type: ignore[arg-type]
    recorder.close()


@pytest.mark.parametrize(("said", "older"), [(UNSTATED, "recorder"), (PROTOCOL + 1, "operator"), (None, "recorder")])
def test_another_release_is_named_with_what_to_update(said: object, older: str) -> None:
    with pytest.raises(OtherRelease, match=f"update the {older},"):
        check_protocol(said)


def test_blocks_of_another_release_are_not_used_until_the_recorder_is_updated(scene: Scene) -> None:
    keep_setup(scene)
    scene.wait(lambda: scene.view().rebuilt)
    scene.recorder.protocol = UNSTATED
    scene.recorder.add(*(block(n, 1, "server_error") for n in range(1, 9)))
    scene.wait(lambda: scene.view().other_release)
    view = scene.view()
    assert not view.reachable and view.verdict.result is Result.INCONCLUSIVE
    scene.recorder.protocol = PROTOCOL
    scene.wait(lambda: scene.view().reachable)
    scene.wait(lambda: scene.view().verdict.result is Result.FAIL)
    assert scene.view().other_release == ""


def test_a_history_spans_what_the_policy_asks_for_wherever_its_pages_end(scene: Scene) -> None:
    alone = {"stage": "idle", "weight": 0, "attempt": 0}
    idle = [replace(b, cells=b.cells[:1], **alone) for b in (block(n, 0, "ok") for n in range(45))]
    scene.recorder.add(*idle, *(block(n, 1, "ok") for n in range(45, 60)))
    scene.clock.now_s = BEGAN + 300.0
    scene.view(2)
    scene.judgements.put_setup("ns/chat", 2, {**POLICY, "evidence": {"history": "70s"}}, "rev-stable")
    setup = scene.recorder.bodies[2]["setup"]
    assert setup["history_s"] == 70.0
    assert setup["strata"][0]["n_history"] == 14 * 200


def test_a_setup_is_made_once_and_durable(scene: Scene) -> None:
    scene.view()
    scene.judgements.put_setup("ns/chat", 1, POLICY, "rev-stable")
    assert scene.view().setup_attempt == 1 and scene.view().rebuilt
    body = scene.recorder.bodies[1]
    scene.judgements.put_setup("ns/chat", 1, POLICY, "rev-stable")
    assert scene.recorder.bodies[1] is body


def test_a_setup_of_a_deleted_namesake_is_not_taken(scene: Scene) -> None:
    keep_setup(scene, began_s=BEGAN - 86_400.0)
    scene.wait(lambda: scene.view().rebuilt)
    assert scene.view().setup_attempt is None
    scene.judgements.put_setup("ns/chat", 1, POLICY, "rev-stable")
    assert scene.recorder.bodies[1]["attempt_began_s"] == BEGAN
    assert kept_setup(None, BEGAN) is None


def test_history_is_counted_by_the_policy_and_calibrated(scene: Scene) -> None:
    scene.judgements.put_history_contract("ns/chat", POLICY)
    scene.view(attempt=0)
    scene.wait(lambda: 0 in scene.recorder.bodies)
    expected = (("", 5.0), ("m", 5.0)), (("", 90.0), ("m", 90.0))
    scene.wait(lambda: scene.judgements.body_size("ns/chat") == expected)
    assert scene.recorder.bodies[0]["contract"] == POLICY
    assert Calibrations(scene.recorder).of("ns/other") == ((("", 4.0),), ())  # type: ignore[arg-type]


def test_late_blocks_of_the_step_before_are_no_evidence_of_this_one() -> None:
    judge = AttemptJudge(prepare(contract_from_mapping(POLICY), []))
    judge.add(block(0, 1, "ok", step=0))
    judge.add(block(1, 1, "ok", step=1))
    judge.add(block(2, 1, "ok", step=0))
    judge.add(block(2, 1, "ok", step=0))
    assert judge.last_seq == 2 and judge.verdict(BEGAN + 15.0).step == 1


def test_a_setup_that_the_recorder_never_takes_is_for_a_person() -> None:
    said: list[int] = []

    def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(said[-1], json={"detail": "setup: unexpected field 'thin'"})

    http = httpx.Client(transport=httpx.MockTransport(answer), base_url="http://recorder")
    client = RecorderClient("http://recorder", http=http)
    said.append(400)
    with pytest.raises(Terminal) as refused:
        client.put_setup("ns/chat", {})
    assert refused.value.reason is Reason.RECORDER_INCOMPATIBLE and "thin" in str(refused.value)
    said.append(503)
    with pytest.raises(Retryable):
        client.put_setup("ns/chat", {})
