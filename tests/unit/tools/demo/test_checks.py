"""What the demo finds out by itself: findings that hold, and such that must not."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from policies.blocks import Block
from tools.demo import checks


def block(step: int, stage: str, weight: int) -> Block:
    return Block(0, "demo/chat", 2, step, 100.0, 105.0, stage=stage, weight=weight)


class Recorder:
    """A world whose recorder has these requests: (step, variant) -> how many."""

    def __init__(self, routed: dict[tuple[int, str], int], attempt: int = 2) -> None:
        self.routed, self.attempt = routed, attempt

    def records(self, since_s: float, until_s: float) -> Iterator[dict[str, Any]]:
        assert since_s < 100.0 and until_s > 105.0
        for (step, variant), count in self.routed.items():
            for _ in range(count):
                yield {"kind": "live", "attempt": self.attempt, "step": step, "variant": variant}


@pytest.mark.parametrize(("candidate", "holds"), [(50, True), (100, False), (10, False)])
def test_a_split_outside_its_band_is_found(candidate: int, holds: bool) -> None:
    world: Any = Recorder({(1, "stable"): 1000 - candidate, (1, "candidate"): candidate})
    (finding,) = checks.split_within_band(world, 2, [block(0, "shadow", 0), block(1, "canary", 5)])
    assert finding[0] is holds and f"got {candidate} of 1,000" in finding[1]


def test_requests_of_another_attempt_are_not_counted() -> None:
    world: Any = Recorder({(1, "stable"): 950, (1, "candidate"): 50}, attempt=3)
    (finding,) = checks.split_within_band(world, 2, [block(1, "canary", 5)])
    assert "got 0 of 0" in finding[1]


def test_an_attempt_without_a_live_share_is_no_proof_of_a_split() -> None:
    world: Any = Recorder({})
    assert not checks.split_within_band(world, 2, [block(0, "shadow", 0)])[0][0]


@pytest.mark.parametrize(
    ("served", "mix", "holds"), [(0.95, 1.0, True), (0.8, 1.0, False), (1.2, 1.0, False), (1.0, 1.3, False)]
)
def test_load_parity_is_within_fifteen_percent(served: float, mix: float, holds: bool) -> None:
    live = {"acme": 1500, "globex": 1500}
    half = served * 500
    (finding,) = checks._parity("canary", 5, _counter(acme=half * mix, globex=half * (2 - mix)), _counter(**live), 1)
    assert finding[0] is holds


def test_pods_that_come_up_are_no_missing_load() -> None:
    def cell(variant: str, routed: int) -> Any:
        return SimpleNamespace(variant=variant, kind="live", tenant="acme", pod=variant, routed=routed)

    def shadow(*cells: Any) -> Any:
        return SimpleNamespace(stage="shadow", weight=0, cells=cells)

    before, first, full = (cell("stable", 400),), (cell("candidate", 50),), (cell("candidate", 100),)
    blocks = [shadow(*before), shadow(*before, *first), *(shadow(*before, *full) for _ in range(3))]
    ((holds, sentence),) = checks.load_parity(blocks)
    assert not holds and "0.60" in sentence  # 100 of 500 live requests in three replicas' worth
    assert checks.load_parity(blocks[:1]) == []


def _counter(**values: float) -> Any:
    return Counter({name: int(value) for name, value in values.items()})


def test_client_records_are_read_in_whole_lines_from_where_an_act_began(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    lines = [
        orjson.dumps({"outcome": o, "ttft_s": t}) + b"\n" for o, t in (("ok", 0.2), ("ok", 0.3), ("timeout", None))
    ]
    path.write_bytes(b"".join(lines) + b'{"outcome": "o')
    records = checks.client_records(path, len(lines[0]), path.stat().st_size)
    assert [record["outcome"] for record in records] == ["ok", "timeout"]
    felt = checks.felt(records)
    assert (felt.requests, felt.failed, felt.ttft_p50, felt.ttft_p99) == (2, 1, 0.3, 0.3)
    assert not checks.nobody_was_cut(records)[0]
    assert checks.client_records(tmp_path / "none") == [] and checks.felt([]).sentence == "none yet"
