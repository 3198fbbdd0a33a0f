"""Blocks from requests: attempts, restarts, lost gates, clock steps, what is asked over HTTP."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from policies.blocks import Block
from policies.records import RequestRecord
from shadow.recorder.clock import SteadyClock
from shadow.recorder.entry import Entry, PlanTag
from shadow.recorder.rollout import LOST_AFTER_S, RolloutLog
from shadow.recorder.setups import LINGER_S

NAME = "prod/chat"
START = 1_700_000_000.0


def plan(**changes: Any) -> PlanTag:
    values: dict[str, Any] = {
        "rollout": NAME, "attempt": 1, "step": 0, "stage": "canary", "weight": 5, "stable": "old", "candidate": "new",
        "arm": "stable", "kind": "live",
    }  # fmt: skip
    return PlanTag(**{**values, **changes})


def entry(number: int, at_s: float, *, final: bool = True, tag: PlanTag | None = None, **changes: Any) -> Entry:
    tag = tag or plan()
    values: dict[str, Any] = {
        "id": f"r{number}", "t_start_s": START + at_s, "variant": tag.arm, "tenant": "acme",
        "outcome": "ok" if final else "open", "rollout": NAME, "attempt": tag.attempt, "step": tag.step,
        "revision": "old", "bucket": "0-512", "pod": "old-0", "model": "m", "stream": True, "ttft_s": 0.1,
        "e2e_s": 0.5 if final else None, "output_tokens": 5, "prompt_tokens": 10, "pod_age_s": 9999.0,
    }  # fmt: skip
    return Entry(tag, RequestRecord(**{**values, **changes}), final, body_bytes=40.0)


def blocks(log: RolloutLog) -> list[Block]:
    return [Block.from_json(orjson.dumps(orjson.loads(p)["block"])) for p in log.blocks_after(-1, 10_000)]


def served(found: list[Block]) -> int:
    return sum(sum(c.outcomes.values()) for b in found for c in b.cells)


@pytest.fixture
def log(tmp_path: Path) -> RolloutLog:
    return RolloutLog(NAME, tmp_path, START)


def test_blocks_close_on_time_and_are_numbered(log: RolloutLog) -> None:
    for i in range(10):
        log.take(entry(i, i), START + i)
    assert log.tick(START + 5 + LINGER_S - 0.01) == 0
    assert log.tick(START + 5 + LINGER_S) == 1
    log.tick(START + 30)
    found = blocks(log)
    assert [b.seq for b in found] == list(range(len(found)))
    assert served(found) == 10
    assert found[0].start_s == START and found[0].end_s == START + 5


def test_same_entry_twice_counts_once(log: RolloutLog) -> None:
    log.take(entry(1, 1), START + 2)
    log.take(entry(1, 1), START + 3)
    log.tick(START + 10)
    assert served(blocks(log)) == 1


def test_step_changes_at_the_border_of_a_block(log: RolloutLog) -> None:
    log.take(entry(1, 1), START + 1)
    log.take(entry(2, 3, tag=plan(step=1, weight=25)), START + 3)
    log.take(entry(3, 7, tag=plan(step=1, weight=25)), START + 7)
    log.tick(START + 20)
    assert [b.step for b in blocks(log)][:2] == [0, 1]


def test_idle_traffic_is_attempt_zero_and_a_new_attempt_begins_anew(log: RolloutLog) -> None:
    idle = plan(stage="idle", attempt=7, candidate=None)
    log.take(replace(entry(1, 1), plan=idle, record=replace(entry(1, 1).record, attempt=0)), START + 1)
    log.take(entry(2, 6, tag=plan(attempt=8)), START + 6)
    log.tick(START + 60)
    assert {b.attempt for b in blocks(log) if b.cells} == {0, 8}
    assert blocks(log)[-1].attempt == 8


def test_restart_keeps_blocks_and_marks_the_time_between(tmp_path: Path) -> None:
    log = RolloutLog(NAME, tmp_path, START)
    log.take(entry(1, 1), START + 1)
    log.tick(START + 10)
    before = blocks(log)
    log.close()
    again = RolloutLog(NAME, tmp_path, START + 31)
    again.take(entry(2, 42), START + 43)
    again.tick(START + 60)
    after = blocks(again)
    assert after[: len(before)] == before
    assert [b.seq for b in after] == list(range(len(after)))
    assert all(b.missing == ("candidate", "stable") for b in after if before[-1].end_s <= b.start_s < START + 31)
    assert [b.missing for b in after if b.start_s >= START + 40] == [()] * len(
        [b for b in after if b.start_s >= START + 40]
    )
    assert after[-1].end_s <= START + 60


def test_long_absence_is_not_written_block_by_block(tmp_path: Path) -> None:
    log = RolloutLog(NAME, tmp_path, START)
    log.take(entry(1, 1), START + 1)
    log.tick(START + 10)
    count = len(blocks(log))
    log.close()
    again = RolloutLog(NAME, tmp_path, START + 30 * 86400)
    assert len(blocks(again)) == count


def test_unfinished_request_counts_when_it_is_slow(log: RolloutLog) -> None:
    spec = {"gates": [{"metric": "ttft", "percentile": "99", "limit": "2s"}]}
    log.put_setup({"attempt": 1, "contract": spec}, START)
    log.take(entry(1, 1, final=False, ttft_s=None, output_tokens=None), START + 2)
    log.tick(START + 12)
    over = [c.metrics["ttft"].over for b in blocks(log) for c in b.cells if "ttft" in c.metrics]
    assert over == [{2_000_000: 1}]


def test_request_of_a_dead_gate_is_lost_not_open_for_ever(log: RolloutLog) -> None:
    log.take(entry(1, 1, final=False), START + 2)
    assert log.open_count == 1
    log.tick(START + 2 + LOST_AFTER_S + 1)
    assert log.open_count == 0
    assert log.stats.lost == 1
    log.tick(START + 60)
    assert [dict(c.outcomes) for b in blocks(log) for c in b.cells if c.outcomes] == [{"cancelled": 1}]


def test_setup_is_kept_over_a_restart(tmp_path: Path) -> None:
    body = {"attempt": 4, "contract": {"gates": [{"metric": "success", "limit": "99%"}]}}
    log = RolloutLog(NAME, tmp_path, START)
    log.put_setup(body, START)
    log.close()
    again = RolloutLog(NAME, tmp_path, START + 1)
    assert again.setup(4) == {**body, "at_s": START}
    assert again.setup(5) is None


def test_setup_that_is_none_is_refused(log: RolloutLog) -> None:
    with pytest.raises(ValueError):
        log.put_setup({"attempt": 1, "setup": {"v": 99}}, START)
    assert log.setup(1) is None


def test_copies_that_were_never_sent_are_no_evidence(log: RolloutLog) -> None:
    copy = replace(entry(1, 1, tag=plan(arm="candidate", kind="topup")), dropped="overflow")
    log.take(copy, START + 1)
    log.tick(START + 10)
    assert served(blocks(log)) == 0
    assert log.stats_view(START + 10)["copies_dropped"] == {"candidate/overflow": 1}


def test_split_and_calibration(log: RolloutLog) -> None:
    for i in range(100):
        arm = "candidate" if i % 4 == 0 else "stable"
        log.take(entry(i, i / 20, tag=plan(arm=arm)), START + 5)
    view = log.stats_view(START + 9)
    assert view["split"] == {"stable": 75, "candidate": 25, "candidate_percent": 25.0}
    assert view["bytes_per_token"] == {"m": 4.0}


def test_clock_steps_are_followed_slowly() -> None:
    now = {"mono": 0.0, "wall": START}
    clock = SteadyClock(lambda: now["mono"], lambda: now["wall"])
    now["wall"] += 3600.0
    for second in range(1, 101):
        now["mono"] = float(second)
        now["wall"] += 1.0
        assert abs(clock.now() - (START + second)) <= 0.0005 * second + 1e-6
