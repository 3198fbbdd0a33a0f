"""The background thread that writes rows; the decision path only ever appends to a queue.

Called by `sink.EvidenceStore`. `submit` never blocks on the database and never raises: a database that is away costs
memory up to the bound of the queue, then the oldest blocks (the recorder's spool still has them), and never a decision.
Rows that waited while the database was away are written with `late=True`. This file knows rows, no domain type.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import structlog
from sqlalchemy import Engine, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError
from sqlmodel import SQLModel

from controller.store import metrics
from controller.store.database import migrate

_log = structlog.get_logger(__name__)
_BATCH = 200
_FIRST_BACKOFF_SECONDS = 0.25
_LONGEST_BACKOFF_SECONDS = 15.0
_TIDY_SECONDS = 3600.0


class Writer:
    """A bounded queue in front of one database.

    Args:
        engine: the database; migrated before the first write, by the thread, so that a missing one delays nobody.
        capacity: rows that may wait; beyond it the oldest block goes, or the oldest row where no block waits.
        is_expendable: whether a row may be given up first.
        on_stored: called in the thread with every batch that was written.
        tidy: called in the thread before a write, at most once an hour; may raise SQL errors.
    """

    def __init__(
        self,
        engine: Engine,
        capacity: int = 20_000,
        is_expendable: Callable[[SQLModel], bool] = lambda row: False,
        on_stored: Callable[[list[SQLModel]], None] = lambda rows: None,
        tidy: Callable[[Engine], None] = lambda engine: None,
    ) -> None:
        self._engine = engine
        self._capacity = capacity
        self._is_expendable = is_expendable
        self._on_stored = on_stored
        self._tidy = tidy
        self._tidied_s = -_TIDY_SECONDS
        self._queue: deque[SQLModel] = deque()
        self._in_flight = 0
        self._changed = threading.Condition()
        self._stopping = False
        self._migrated = False
        self._healthy = False
        self._failing = False
        self._backoff_seconds = _FIRST_BACKOFF_SECONDS
        self._thread = threading.Thread(target=self._run, name="weighlock-store", daemon=True)
        self._thread.start()

    @property
    def healthy(self) -> bool:
        """Whether the database took everything that it was given last (the schema counts as the first thing)."""
        return self._healthy

    @property
    def pending(self) -> int:
        """Rows that are not in the database yet."""
        with self._changed:
            return len(self._queue) + self._in_flight

    def submit(self, rows: Iterable[SQLModel]) -> None:
        """Queue rows; returns at once, raises nothing."""
        with self._changed:
            for row in rows:
                if self._failing:
                    row.late = True
                if len(self._queue) >= self._capacity:
                    self._give_one_up()
                self._queue.append(row)
            metrics.PENDING.set(len(self._queue) + self._in_flight)
            self._changed.notify_all()

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until everything is written; False when the time is over first."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._migrated and not self._queue and not self._in_flight, timeout_seconds
            )

    def close(self, timeout_seconds: float = 5.0) -> bool:
        """Write what can be written within the time, then stop; False when rows were left."""
        done = self.flush(timeout_seconds)
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(timeout_seconds)
        return done

    def _give_one_up(self) -> None:
        index = next((i for i, row in enumerate(self._queue) if self._is_expendable(row)), 0)
        metrics.DROPPED.labels(str(self._queue[index].__tablename__), "queue full").inc()
        del self._queue[index]

    def _run(self) -> None:
        while True:
            batch = self._take()
            if batch is None:
                return
            if self._attempt(batch):
                self._succeeded(batch)
            else:
                self._failed(batch)

    def _take(self) -> list[SQLModel] | None:
        """The next rows (none at all until the schema is there); None when it is time to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or not self._migrated or bool(self._queue))
            if self._stopping:
                return None
            batch = [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))]
            self._in_flight = len(batch)
            return batch

    def _attempt(self, batch: list[SQLModel]) -> bool:
        try:
            if not self._migrated:
                migrate(self._engine)
                self._migrated = True
            self._tidy_sometimes()
            self._write(batch)
        except (IntegrityError, DataError) as error:
            return self._write_one_by_one(batch, error)
        except (SQLAlchemyError, OSError) as error:
            metrics.FAILURES.inc()
            _log.warning(
                "store: the database did not take the rows; trying again", rows=len(batch), error=_cause(error)
            )
            return False
        return True

    def _tidy_sometimes(self) -> None:
        now = time.monotonic()
        if now - self._tidied_s >= _TIDY_SECONDS:
            self._tidied_s = now
            self._tidy(self._engine)

    def _write(self, batch: list[SQLModel]) -> None:
        by_table: dict[str, tuple[Table, list[dict[str, Any]]]] = {}
        for row in batch:
            table: Table = row.__table__  # type: ignore[attr-defined]
            by_table.setdefault(table.name, (table, []))[1].append(row.model_dump())
        insert = postgresql.insert if self._engine.dialect.name == "postgresql" else sqlite.insert
        with self._engine.begin() as connection:
            for table, values in by_table.values():
                connection.execute(insert(table).on_conflict_do_nothing(), values)

    def _write_one_by_one(self, batch: list[SQLModel], error: Exception) -> bool:
        """One row of the batch is not acceptable: give that one up, loudly, and keep the others."""
        for row in batch:
            try:
                self._write([row])
            except (IntegrityError, DataError) as refused:
                table = str(row.__tablename__)
                metrics.DROPPED.labels(table, "refused").inc()
                _log.error("store: a row was refused and is given up", table=table, error=_cause(refused))
            except (SQLAlchemyError, OSError):
                metrics.FAILURES.inc()
                return False  # writing a row twice is harmless, so the whole batch may come again
        return True

    def _succeeded(self, batch: list[SQLModel]) -> None:
        for row in batch:
            metrics.WRITTEN.labels(str(row.__tablename__)).inc()
            if row.late:  # type: ignore[attr-defined]
                metrics.LATE.labels(str(row.__tablename__)).inc()
        metrics.HEALTHY.set(1)
        self._on_stored(batch)
        with self._changed:
            self._healthy, self._failing = True, False
            self._backoff_seconds = _FIRST_BACKOFF_SECONDS
            self._in_flight = 0
            metrics.PENDING.set(len(self._queue))
            self._changed.notify_all()

    def _failed(self, batch: list[SQLModel]) -> None:
        metrics.HEALTHY.set(0)
        with self._changed:
            self._healthy, self._failing = False, True
            for row in (*batch, *self._queue):
                row.late = True
            self._queue.extendleft(reversed(batch))
            self._in_flight = 0
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._stopping, self._backoff_seconds)
            self._backoff_seconds = min(2 * self._backoff_seconds, _LONGEST_BACKOFF_SECONDS)


def _cause(error: BaseException) -> str:
    """First line of the database's own words; never the statement, its parameters or the URL."""
    original = getattr(error, "orig", None) or error
    return (str(original).splitlines() or [type(original).__name__])[0][:200]
