"""Putting in and reading back, on SQLite and on PostgreSQL; and what happens while the database is away."""

import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text
from sqlmodel import SQLModel

from controller.store.database import migrate, open_engine
from controller.store.sink import EvidenceStore
from controller.store.writer import Writer
from policies.blocks import Block, Cell, MetricCounts
from policies.verdict import Result, Rollback, Verdict
from tests.unit.controller.store.postgres import Server

ROLLOUT = "chat/llama"
NOW_S = float(round(time.time()))
WAIT_SECONDS = 20


def make_block(seq: int, attempt: int = 1) -> Block:
    counts = MetricCounts(n=3, bins={10: 2, 12: 1}, over={2_000_000: 1}, below={2_000_000: 2})
    cell = Cell("candidate", "a1b2c3d4e5", "live", "acme", "0-512", "pod-0", -1, 3, {"ok": 3}, {"ttft": counts})
    return Block(seq, ROLLOUT, attempt, 0, NOW_S + 5 * seq, NOW_S + 5 + 5 * seq, (cell,))


def make_verdict(now_s: float, result: Result = Result.INCONCLUSIVE) -> Verdict:
    return Verdict(result, now_s, 0, None, (), (), Rollback(1.0, 100.0), None, 120, 60.0, ("All is well.",))


@pytest.fixture
def store(database_url: str) -> Iterator[EvidenceStore]:
    store = EvidenceStore(database_url)
    yield store
    store.close()


def test_blocks_come_back_equal_and_in_order(store: EvidenceStore) -> None:
    blocks = [make_block(seq) for seq in range(1203)]
    store.put_blocks([*blocks[600:], *blocks[:700]])
    store.put_blocks([make_block(0, attempt=2)])
    assert store.flush(WAIT_SECONDS)
    assert list(store.reader.blocks(ROLLOUT, 1)) == blocks
    assert store.reader.last_seq(ROLLOUT) == 1202
    assert store.reader.last_seq("chat/other") is None


def test_a_recorder_that_lost_its_numbers_overwrites_nothing(store: EvidenceStore) -> None:
    old, new = make_block(0), Block(0, ROLLOUT, 1, 0, NOW_S + 9000.0, NOW_S + 9005.0)
    store.put_blocks([old, new])
    assert store.flush(WAIT_SECONDS)
    assert list(store.reader.blocks(ROLLOUT, 1)) == [old, new]


def test_history_tells_what_was_put_in(store: EvidenceStore) -> None:
    store.put_setup(ROLLOUT, 1, {"contract": {"alpha": 0.01}}, at_s=10.0)
    store.put_setup(ROLLOUT, 1, {"contract": {"alpha": 0.02}}, at_s=11.0)
    content = {"phase": "Canary", "reason": "StepStarted", "weight": 5, "candidate": "a1b2c3d4e5"}
    decision = store.put_decision(ROLLOUT, 1, 1, content, at_s=12.0)
    verdict = store.put_verdict(ROLLOUT, 1, 7, make_verdict(13.0), "sha256:ab")
    store.put_action(
        ROLLOUT, "uid-1", {"action": "approve", "user": "ann", "reason": "looks good", "attempt": 1}, "applied", 14.0
    )
    store.put_audit(ROLLOUT, "bob", "refused", {"verb": "approve"}, attempt=1)
    assert store.flush(WAIT_SECONDS)
    assert store.is_stored(decision) and store.is_stored(verdict)
    assert store.reader.setup(ROLLOUT, 1) == {"contract": {"alpha": 0.02}}
    history = store.reader.history(ROLLOUT, 1)
    assert history["attempts"][0]["revision"] == "a1b2c3d4e5"
    assert history["decisions"][0]["decision"]["weight"] == 5
    assert history["verdicts"][0]["last_seq"] == 7
    assert history["verdicts"][0]["verdict"] == {
        **make_verdict(13.0).to_dict(),
        "holds": [],
        "rows": [],
        "sentences": ["All is well."],
        "warnings": [],
        "rollback": {"e": 1.0, "threshold": 100.0, "culprits": []},
    }
    assert history["actions"][0]["spec"]["reason"] == "looks good"
    assert history["audit"][0]["who"] == "bob"
    assert not any(row["late"] for row in history["decisions"])


def test_the_same_thing_twice_is_one_row(store: EvidenceStore) -> None:
    for _ in range(2):
        store.put_decision(ROLLOUT, 1, 1, {"phase": "Canary", "reason": "Held"}, at_s=12.0)
        store.put_verdict(ROLLOUT, 1, 7, make_verdict(13.0))
    assert store.flush(WAIT_SECONDS)
    history = store.reader.history(ROLLOUT)
    assert (len(history["decisions"]), len(history["verdicts"])) == (1, 1)


def test_migrations_build_exactly_the_tables(database_url: str) -> None:
    engine = open_engine(database_url)
    migrate(engine)
    migrate(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, SQLModel.metadata) == []
    engine.dispose()


def test_two_operators_may_migrate_at_once(postgres: Server) -> None:
    code = (
        "import sys\nfrom controller.store.database import migrate, open_engine\n"
        "engine = open_engine(sys.argv[1])\ninput()\nmigrate(engine)"
    )
    operators = [
        subprocess.Popen([sys.executable, "-c", code, postgres.url], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for operator in operators:
        assert operator.stdin is not None
        operator.stdin.write(b"\n")
        operator.stdin.flush()
    for operator in operators:
        _, errors = operator.communicate(timeout=60)
        assert operator.returncode == 0, errors.decode()


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "weighlock.db"
    store = EvidenceStore(str(path))
    store.put_blocks([make_block(0)])
    assert store.flush(WAIT_SECONDS)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    store.close()
    assert modes and all(mode & 0o077 == 0 for mode in modes.values()), modes


def test_a_database_that_goes_away_delays_nothing_and_gets_it_late(postgres: Server) -> None:
    store = EvidenceStore(postgres.url)
    store.put_decision(ROLLOUT, 1, 0, {"phase": "Shadow", "reason": "StepStarted"}, at_s=1.0)
    assert store.flush(WAIT_SECONDS) and store.healthy()
    postgres.stop()
    try:
        lost = store.put_decision(ROLLOUT, 1, 0, {"phase": "Canary", "reason": "StepPassed"}, at_s=2.0)
        assert not store.flush(1.5)
        assert not store.healthy() and store.pending() == 1 and not store.is_stored(lost)
        store.put_blocks([make_block(0)])
    finally:
        postgres.start()
    assert store.flush(WAIT_SECONDS) and store.healthy() and store.is_stored(lost)
    rows = store.reader.events("decision", ROLLOUT)
    assert [(row["phase"], row["late"]) for row in rows] == [("Shadow", False), ("Canary", True)]
    assert len(list(store.reader.blocks(ROLLOUT, 1))) == 1
    store.close()


def test_a_database_that_never_was_there_does_not_stop_the_start(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    store = EvidenceStore(str(blocker / "weighlock.db"))
    store.put_decision(ROLLOUT, 1, 0, {"phase": "Shadow", "reason": "StepStarted"}, at_s=1.0)
    assert not store.flush(0.6)
    assert not store.healthy()
    blocker.unlink()
    assert store.flush(WAIT_SECONDS) and store.healthy()
    assert [row["late"] for row in store.reader.events("decision", ROLLOUT)] == [True]
    store.close()


def test_a_full_queue_gives_up_blocks_before_decisions(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    store = EvidenceStore(str(blocker / "weighlock.db"), capacity=3)
    store.put_decision(ROLLOUT, 1, 0, {"phase": "Shadow", "reason": "StepStarted"}, at_s=1.0)
    store.put_blocks([make_block(seq) for seq in range(5)])
    store.put_decision(ROLLOUT, 1, 0, {"phase": "Canary", "reason": "StepPassed"}, at_s=2.0)
    assert store.pending() == 3
    blocker.unlink()
    assert store.flush(WAIT_SECONDS)
    assert len(store.reader.events("decision", ROLLOUT)) == 2
    assert [block.seq for block in store.reader.blocks(ROLLOUT, 1)] == [4]
    store.close()


def test_one_row_that_is_refused_takes_no_other_with_it(tmp_path: Path) -> None:
    engine = open_engine(f"{tmp_path}/weighlock.db")
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(
            text(
                "CREATE TRIGGER no BEFORE INSERT ON decisions WHEN NEW.reason = 'Bad' "
                "BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
        )
    store = EvidenceStore(f"{tmp_path}/weighlock.db")
    for reason in ("Good", "Bad", "Good too"):
        store.put_decision(ROLLOUT, 1, 0, {"phase": "Shadow", "reason": reason}, at_s=1.0)
    assert store.flush(WAIT_SECONDS) and store.healthy()
    assert {row["reason"] for row in store.reader.events("decision", ROLLOUT)} == {"Good", "Good too"}
    store.close()
    engine.dispose()


def test_a_writer_that_is_closed_leaves_no_thread(tmp_path: Path) -> None:
    writer = Writer(open_engine(f"{tmp_path}/weighlock.db"))
    assert writer.close()
    assert not any(thread.name == "weighlock-store" for thread in threading.enumerate())


def test_old_blocks_go_and_decisions_stay(database_url: str) -> None:
    day = 86_400.0
    old = [
        Block(seq, ROLLOUT, attempt, 0, NOW_S - age, NOW_S - age + 5)
        for seq, attempt, age in ((0, 1, 40 * day), (1, 1, 2 * day), (2, 0, 2 * day), (3, 0, 0.5 * day))
    ]
    first = EvidenceStore(database_url)
    first.put_blocks(old)
    first.put_decision(ROLLOUT, 1, 0, {"phase": "Shadow", "reason": "StepStarted"}, at_s=NOW_S - 400 * day)
    assert first.flush(WAIT_SECONDS)
    first.close()
    second = EvidenceStore(database_url)
    second.put_blocks([make_block(9)])
    assert second.flush(WAIT_SECONDS)
    assert [block.seq for block in second.reader.blocks(ROLLOUT, 1)] == [1, 9]
    assert [block.seq for block in second.reader.blocks(ROLLOUT, 0)] == [3]
    assert len(second.reader.events("decision", ROLLOUT)) == 1
    second.close()
