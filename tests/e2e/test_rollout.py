"""One change after another on the whole product: what a person sees, and what serves in the end."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.e2e.chaos import OperatorKiller, WeightSampler, operator_pid
from tests.e2e.clients import Clients, failed
from tests.e2e.kube import wait_until
from tests.e2e.rollout import API, AT_ONCE, Rollout, condition, has_ended, is_true
from tests.e2e.system import System
from tools.demo import checks
from tools.demo.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]
SLOW_SECONDS = 300.0  # while the operator is away half of the time
TOO_SLOW = {"slow": 6.0}
"""The first token comes far later than the policy's margin allows (the front end alone takes 1.2 s instead of 0.2 s),
and the engine still keeps up: a backlog would outlast its clients' patience, whatever the gates do."""
COLUMNS = ["NAME", "PHASE", "STEP", "WEIGHT", "STABLE", "CANDIDATE", "WORST", "AGE"]


class Serving(World):
    """The demo's questions, asked about the tests' namespace."""

    def get(self, kind: str, name: str = "", *, selector: str = "", namespace: str = "serving") -> dict[str, Any]:
        return super().get(kind, name, selector=selector, namespace=namespace)


def kubectl_wait(system: System, kind: str) -> subprocess.Popen[str]:
    """`kubectl wait` for a condition, in the background."""
    command = [
        f"{Path(sys.executable).parent}/kubectl", f"--kubeconfig={system.cluster.kubeconfig()}",
        "wait", "iro/chat", "-n", "serving", f"--for=condition={kind}", "--timeout=400s",
    ]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_change_applied_by_kubectl_is_promoted(system: System, chat: Rollout, clients: Clients) -> None:
    spec = chat.spec()
    body = {"apiVersion": API, "kind": "InferenceRollout", "metadata": {"name": "chat"}, "spec": spec}
    done = system.run(
        "admin", "kubectl", "apply", "--server-side", "--force-conflicts", "--field-manager=user", "-n", "serving",
        "-f", "-", stdin=yaml.safe_dump(body),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    before = chat.status()["attempt"]
    attempt = before if not is_true(chat.status(), "Completed") else before + 1
    chat.wait("the attempt", lambda s: s["attempt"] >= attempt and s["candidate"])
    completed = kubectl_wait(system, "Completed")
    status = chat.wait_weight(20, 60)
    header, row = system.run("viewer", "kubectl", "get", "iro", "-n", "serving").stdout.splitlines()
    assert header.split() == COLUMNS
    assert row.split()[:1] + row.split()[1:5] == ["chat", "Canary", "canary", "20", "20"]
    assert status["stable"] in row and status["candidate"] in row
    status = chat.wait("approval to be asked for", lambda s: is_true(s, "AwaitingApproval"), 60)
    assert status["verdict"]["result"] == "PASS" and status["step"]["weight"] == 20
    chat.takes("approve")
    ended = chat.wait_ended(attempt, "Completed", 90)
    chat.take_as_stable(spec)
    out, errors = completed.communicate(timeout=30)
    assert completed.returncode == 0 and "condition met" in out, errors
    assert ended["stable"] == status["candidate"] and not is_true(ended, "RolledBack")
    assert chat.weights() and not failed(clients.take())


def test_a_worse_change_is_rolled_back_to_what_was_stored(system: System, chat: Rollout, clients: Clients) -> None:
    world = Serving(system.folder, system.cluster)
    stable = chat.status()["stable"]
    before = checks.stable_pods(world, stable)
    attempt = chat.begin(chat.spec("--max-num-seqs=1"))
    rolled_back = kubectl_wait(system, "RolledBack")
    status = chat.wait_ended(attempt, "RolledBack", 120)
    out, errors = rolled_back.communicate(timeout=30)
    assert rolled_back.returncode == 0 and "condition met" in out, errors
    assert status["reason"] == "GateFailed" and status["verdict"]["worst"]["metric"] == "ttft"
    assert condition(status, "InSync")["reason"] == "SpecRejected" and not is_true(status, "InSync")
    for holds, sentence in checks.serves_what_was_stored(world, stable, before):
        assert holds, sentence
    assert checks.live_requests_that_met(chat.blocks(attempt)) == 0 and not failed(clients.take())
    wait_until("gates to hold stable alone", lambda: set(chat.weights()) == {0}, 20)
    chat.settle()
    assert is_true(chat.status(), "InSync")
    rejudged = system.run("viewer", "weighlock", "history", "chat", "-n", "serving", "--rejudge", "-o", "json")
    assert rejudged.returncode == 0, rejudged.stderr
    assert json.loads(rejudged.stdout)


@pytest.mark.timeout(1500)
def test_thirty_kills_of_the_operator_change_no_end_and_no_weight(
    system: System, chat: Rollout, clients: Clients
) -> None:
    """A promotion, a stop in Shadow and a break in Bake; the operator is killed ten times in each, at random."""
    sampler = WeightSampler(chat.get, lambda: [p["metadata"]["name"] for p in chat.pods("weighlock.dev/gate=chat")])
    xds = str(system.values["operator"]["xdsBind"])

    def ten_kills(seed: int) -> OperatorKiller:
        return OperatorKiller(lambda: operator_pid(xds), 10, 5.0, seed)

    with sampler:
        good = chat.spec()
        with ten_kills(1) as promotion:
            attempt = chat.begin(good, SLOW_SECONDS)
            approve(chat, attempt)
            stable = chat.wait_ended(attempt, "Completed", SLOW_SECONDS)["stable"]
            promotion.finish()
        chat.take_as_stable(good)
        uids = chat.uids(stable)
        with ten_kills(2) as stop:
            worse = chat.begin(chat.spec("--max-num-seqs=1", "--max-num-batched-tokens=4096"), SLOW_SECONDS)
            stopped = chat.wait_ended(worse, "RolledBack", SLOW_SECONDS)
            stop.finish()
        with ten_kills(3) as late:
            attempt = chat.begin({**chat.spec(steps=AT_ONCE), "bake": "10m"}, SLOW_SECONDS)
            approve(chat, attempt)
            baking = chat.wait("Bake", lambda s: s["phase"] == "Bake" or has_ended(s, attempt), SLOW_SECONDS)
            chat.set_fault(baking["candidate"], **TOO_SLOW)
            broken = chat.wait_ended(attempt, "RolledBack", SLOW_SECONDS)
            late.finish()
        wait_until("gates to hold stable alone", lambda: set(chat.weights()) == {0}, 60)
    wait_until("the operator to answer", lambda: answers(system, chat), 60)
    assert len(promotion.kills + stop.kills + late.kills) == 30
    assert stopped["reason"] == broken["reason"] == "GateFailed"
    assert checks.live_requests_that_met(chat.blocks(worse)) == 0
    assert stopped["stable"] == broken["stable"] == stable and baking["candidate"] in broken["rejected"]
    assert chat.uids(stable) == uids
    assert sampler.violations == [] and sampler.samples > 500 and sampler.seen >= {0, 20, 50, 100}
    assert not failed(clients.take())
    rejudged = system.run("viewer", "weighlock", "history", "chat", "-n", "serving", "--rejudge", "-o", "json")
    assert rejudged.returncode == 0, rejudged.stderr


def answers(system: System, chat: Rollout) -> bool:
    """Whether the operator's evidence API is there."""
    try:
        return bool(system.evidence(chat))
    except httpx.HTTPError:
        return False


def approve(chat: Rollout, attempt: int) -> None:
    """Approve whenever a person is asked, until the step is entered: evidence may turn between reading and signing."""
    signed: dict[str, str] = {}

    def is_entered() -> bool:
        status = chat.status()
        assert not has_ended(status, attempt), f"{status['phase']}: {status['message']}"
        if status["step"]["weight"] >= 50:
            return True
        evidence = (status.get("verdict") or {}).get("evidence") or ""
        is_spent = signed.get(evidence) in (status.get("appliedActions") or ())
        if is_true(status, "AwaitingApproval") and evidence and (evidence not in signed or is_spent):
            signed[evidence] = chat.takes("approve", evidence=evidence)
        return False

    wait_until("the approved step", is_entered, SLOW_SECONDS)


def test_the_operator_is_killed_while_it_rolls_back(system: System, chat: Rollout, clients: Clients) -> None:
    stable = chat.status()["stable"]
    uids = chat.uids(stable)
    attempt = chat.begin(chat.spec(steps=AT_ONCE))
    status = chat.wait_weight(20)
    with WeightSampler(chat.get, lambda: [p["metadata"]["name"] for p in chat.pods("weighlock.dev/gate=chat")]) as seen:
        chat.takes("abort")
        chat.wait("the rollback", lambda s: s["phase"] in ("RollingBack", "RolledBack"))
        system.kill_part("operator")
        ended = chat.wait_ended(attempt, "RolledBack", 60)
        wait_until("gates to hold stable alone", lambda: set(chat.weights()) == {0}, 20)
    assert ended["reason"] == "Aborted" and ended["stable"] == stable and status["candidate"] in ended["rejected"]
    assert chat.uids(stable) == uids
    assert seen.violations == [] and seen.samples
    assert not failed(clients.take())
