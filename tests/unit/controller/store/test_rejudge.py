"""Verdicts of the real judge, stored, come out again from stored counts alone; and not when something is missing."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from controller.judging import AttemptJudge
from controller.store.database import open_engine
from controller.store.rejudge import rejudge
from controller.store.sink import EvidenceStore
from policies.history import prepare
from policies.setup import JudgeSetup
from policies.verdict import Hold, HoldReason
from tests.unit.policies.conftest import START_S, history_blocks, make_contract, to_blocks, traffic

ROLLOUT = "chat"
WAIT_SECONDS = 20
SECONDS = 120.0
GATES = (
    {"metric": "ttft", "percentile": "95", "limit": "1s", "margin": "50%"},
    {"metric": "success", "limit": "90%"},
)


@pytest.fixture(scope="module")
def attempt() -> tuple[JudgeSetup, list[Any]]:
    """A judge's setup and the blocks of an attempt in which the candidate is twelve times slower."""
    rng = np.random.default_rng(7)
    contract = make_contract(GATES)
    setup = prepare(contract, history_blocks(contract, rng, 120.0, 12.0))
    records = traffic(rng, "stable", SECONDS, 12.0) + traffic(rng, "candidate", SECONDS, 12.0, factor=12.0)
    return setup, to_blocks(contract, records, START_S + SECONDS)


@pytest.fixture
def store(tmp_path: Path, attempt: tuple[JudgeSetup, list[Any]]) -> Iterator[EvidenceStore]:
    """A store in which a leader left setup, blocks and a verdict after every fourth block."""
    setup, blocks = attempt
    store = EvidenceStore(f"{tmp_path}/weighlock.db")
    store.put_setup(ROLLOUT, 1, setup.to_dict(), at_s=START_S)
    judge = AttemptJudge(setup)
    for number, block in enumerate(blocks):
        store.put_blocks([block])
        judge.add(block)
        if number % 4 == 3:
            guards = [Hold(HoldReason.HARDWARE_DIFFERS, "one node has another driver")] if number == 7 else []
            verdict = judge.verdict(block.end_s + 0.4, guards)
            store.put_verdict(ROLLOUT, 1, judge.last_seq, verdict)
    assert store.flush(WAIT_SECONDS)
    yield store
    store.close()


def report(store: EvidenceStore) -> Mapping[str, Any]:
    return rejudge(store.reader, ROLLOUT, 1, AttemptJudge.from_stored)


def test_every_verdict_comes_out_again(store: EvidenceStore) -> None:
    found = report(store)
    assert found["same"] is True, [row["differences"] for row in found["verdicts"]]
    assert len(found["verdicts"]) == 6
    assert found["verdicts"][-1]["stored"] == found["verdicts"][-1]["rejudged"] == "FAIL"
    assert {row["stored"] for row in found["verdicts"]} >= {"FAIL", "INCONCLUSIVE"}


def test_a_lost_block_is_not_papered_over(store: EvidenceStore, tmp_path: Path) -> None:
    engine = open_engine(f"{tmp_path}/weighlock.db")
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM blocks WHERE seq = 5"))
    engine.dispose()
    found = report(store)
    assert found["same"] is False
    assert [row["same"] for row in found["verdicts"]][:1] == [True]
    assert not any(row["same"] for row in found["verdicts"][1:])


def test_a_forged_verdict_is_found(store: EvidenceStore, tmp_path: Path) -> None:
    engine = open_engine(f"{tmp_path}/weighlock.db")
    with engine.begin() as connection:
        connection.execute(text("UPDATE verdicts SET payload = replace(payload, '\"FAIL\"', '\"PASS\"')"))
    engine.dispose()
    wrong = [row for row in report(store)["verdicts"] if not row["same"]]
    assert wrong and "result: stored PASS, rejudged FAIL" in wrong[-1]["differences"]
