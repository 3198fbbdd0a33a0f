"""The store as the operator sees it: put things in, never wait, never fail; ask whether they arrived.

Made by the operator's start-up, called by `act.py` and by the puller of blocks. Reading is in `reader.py`.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Engine, delete
from sqlmodel import SQLModel, col

from controller.store import rows
from controller.store.database import open_engine
from controller.store.reader import StoreReader
from controller.store.tables import BlockRow
from controller.store.writer import Writer
from policies.blocks import Block
from policies.verdict import Verdict

_REMEMBERED = 4096
_DAY_SECONDS = 86_400.0


class EvidenceStore:
    """Evidence, decisions and audit of all rollouts in one SQL database.

    Args:
        url: `sqlite:///PATH`, a plain path, or a PostgreSQL URL.
        capacity: rows that may wait while the database is away.
        keep_days: blocks of attempts older than this are deleted; blocks outside of attempts after a day. What was
            decided, and by whom, is never deleted.
    """

    def __init__(self, url: str, capacity: int = 20_000, keep_days: float = 30.0) -> None:
        self._engine = open_engine(url)
        self._stored: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()
        self._keep_days = keep_days
        self._writer = Writer(
            self._engine, capacity, lambda row: isinstance(row, BlockRow), self._remember, self._delete_old_blocks
        )
        self.reader = StoreReader(self._engine)

    def put_blocks(self, blocks: Iterable[Block]) -> None:
        """Keep closed blocks (again is harmless)."""
        self._writer.submit(rows.make_block(block) for block in blocks)

    def put_setup(self, rollout: str, attempt: int, setup: Mapping[str, Any], at_s: float | None = None) -> None:
        """Keep what the judge of an attempt was set up with: all that a re-judge needs beside blocks."""
        self._writer.submit([rows.make_setup(rollout, attempt, _now(at_s), setup)])

    def put_verdict(self, rollout: str, attempt: int, last_seq: int, verdict: Verdict, evidence: str = "") -> str:
        """Keep a verdict that had seen blocks up to `last_seq`; returns its key for `is_stored`."""
        row = rows.make_verdict(rollout, attempt, last_seq, verdict, evidence)
        self._writer.submit([row])
        return row.key

    def put_decision(
        self, rollout: str, attempt: int, step: int, content: Mapping[str, Any], at_s: float | None = None
    ) -> str:
        """Keep a decision (phase, reason, message, weight, ...); returns its key."""
        row = rows.make_decision(rollout, attempt, step, _now(at_s), content)
        self._writer.submit([row])
        return row.key

    def put_action(
        self, rollout: str, uid: str, spec: Mapping[str, Any], outcome: str, at_s: float | None = None
    ) -> str:
        """Keep a RolloutAction (its spec) and what became of it; returns its key."""
        row = rows.make_action(rollout, _now(at_s), outcome, uid, spec)
        self._writer.submit([row])
        return row.key

    def put_audit(
        self, rollout: str, who: str, what: str, content: Mapping[str, Any], attempt: int = 0, step: int = 0
    ) -> str:
        """Keep anything else that must be found later; returns its key."""
        row = rows.make_audit(rollout, time.time(), who, what, content, attempt, step)
        self._writer.submit([row])
        return row.key

    def is_stored(self, key: str) -> bool:
        """Whether the row of this key is known to be in the database (remembers the last few thousand)."""
        with self._lock:
            return key in self._stored

    def healthy(self) -> bool:
        """Whether the database takes what it is given; decisions go on either way and are marked."""
        return self._writer.healthy

    def pending(self) -> int:
        """Rows that wait to be written."""
        return self._writer.pending

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until everything is written; for shutdown and tests, never for the decision path."""
        return self._writer.flush(timeout_seconds)

    def close(self, timeout_seconds: float = 5.0) -> bool:
        """Write what can be written within the time and let go of the database; False when rows were left."""
        done = self._writer.close(timeout_seconds)
        self._engine.dispose()
        return done

    def _delete_old_blocks(self, engine: Engine) -> None:
        now = time.time()
        is_old = col(BlockRow.end_s) < now - self._keep_days * _DAY_SECONDS
        is_idle = (col(BlockRow.attempt) == 0) & (col(BlockRow.end_s) < now - _DAY_SECONDS)
        with engine.begin() as connection:
            connection.execute(delete(BlockRow).where(is_old | is_idle))

    def _remember(self, batch: list[SQLModel]) -> None:
        with self._lock:
            for row in batch:
                key = getattr(row, "key", None)
                if key is not None:
                    self._stored[key] = None
            while len(self._stored) > _REMEMBERED:
                self._stored.popitem(last=False)


def _now(at_s: float | None) -> float:
    return time.time() if at_s is None else at_s
