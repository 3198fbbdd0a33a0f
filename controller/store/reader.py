"""Reading the store back: history for people, blocks and setups for a re-judge, the last number for the puller.

Called by the evidence API and by the operator's start-up. All functions raise SQLAlchemyError when the database is
away; the caller says so to the person who asked.
"""

import json
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Engine, func
from sqlmodel import Session, col, select

from controller.store import rows
from controller.store.tables import (
    EVENT_TABLES,
    ActionRow,
    AuditRow,
    BlockRow,
    DecisionRow,
    Event,
    SetupRow,
    VerdictRow,
)
from policies.blocks import Block

_PAGE = 100
_VERDICT_PAGE = 10  # a verdict is half a megabyte once it is decoded
_ROWS_PER_ATTEMPT = 2000


class StoreReader:
    """Reads of one database; safe to use from several threads.

    `since_s` leaves out older rows: those of a deleted rollout of the same name.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def last_seq(self, rollout: str) -> int | None:
        """Highest sequence number of the newest stored block; None when there is none."""
        query = (
            select(BlockRow.seq)
            .where(BlockRow.rollout == rollout)
            .order_by(col(BlockRow.start_us).desc(), col(BlockRow.seq).desc())
        )
        with Session(self._engine) as session:
            return session.exec(query.limit(1)).first()

    def blocks(self, rollout: str, attempt: int, since_s: float = 0.0) -> Iterator[Block]:
        """Blocks of an attempt in order of time, read page by page."""
        after = (round(since_s * 1e6), -1)
        while True:
            page = self._block_page(rollout, attempt, after)
            for row in page:
                yield rows.read_block(row)
            if len(page) < _PAGE:
                return
            after = (page[-1].start_us, page[-1].seq)

    def _block_page(self, rollout: str, attempt: int, after: tuple[int, int]) -> list[BlockRow]:
        start, seq = after
        query = (
            select(BlockRow)
            .where(BlockRow.rollout == rollout, BlockRow.attempt == attempt)
            .where(
                (col(BlockRow.start_us) > start) | ((col(BlockRow.start_us) == start) & (col(BlockRow.seq) > seq)),
            )
            .order_by(col(BlockRow.start_us), col(BlockRow.seq))
            .limit(_PAGE)
        )
        with Session(self._engine) as session:
            return list(session.exec(query))

    def setup(self, rollout: str, attempt: int, since_s: float = 0.0) -> dict[str, Any] | None:
        """The judge's last setup of an attempt."""
        query = select(SetupRow).where(SetupRow.rollout == rollout, SetupRow.attempt == attempt)
        query = query.where(col(SetupRow.at_s) >= since_s)
        with Session(self._engine) as session:
            row = session.exec(query.order_by(col(SetupRow.at_s).desc()).limit(1)).first()
        return None if row is None else json.loads(row.payload)

    def attempts(self, rollout: str, since_s: float = 0.0) -> list[dict[str, Any]]:
        """Every attempt of which anything is stored, newest first: first and last time, last phase and reason."""
        query = (
            select(DecisionRow.attempt, func.min(DecisionRow.at_s), func.max(DecisionRow.at_s))
            .where(DecisionRow.rollout == rollout, col(DecisionRow.at_s) >= since_s)
            .group_by(col(DecisionRow.attempt))
        )
        with Session(self._engine) as session:
            found = sorted(session.exec(query), reverse=True)
        return [self._attempt(rollout, attempt, first, last) for attempt, first, last in found]

    def _attempt(self, rollout: str, attempt: int, first_s: float, last_s: float) -> dict[str, Any]:
        query = select(DecisionRow).where(DecisionRow.rollout == rollout, DecisionRow.attempt == attempt)
        with Session(self._engine) as session:
            row = session.exec(query.order_by(col(DecisionRow.at_s).desc()).limit(1)).one()
        content = json.loads(row.payload)
        return {
            "attempt": attempt,
            "revision": content.get("candidate", ""),
            "started_at_s": first_s,
            "finished_at_s": last_s,
            "phase": row.phase,
            "reason": row.reason,
        }

    def verdicts(self, rollout: str, attempt: int, since_s: float = 0.0) -> Iterator[dict[str, Any]]:
        """Verdicts of an attempt in the order of the blocks that they had seen, read page by page."""
        order = (col(VerdictRow.last_seq), col(VerdictRow.at_s), col(VerdictRow.key))
        query = select(VerdictRow.key).where(VerdictRow.rollout == rollout, VerdictRow.attempt == attempt)
        with Session(self._engine) as session:
            keys = list(session.exec(query.where(col(VerdictRow.at_s) >= since_s).order_by(*order)))
        for start in range(0, len(keys), _VERDICT_PAGE):
            page = select(VerdictRow).where(col(VerdictRow.key).in_(keys[start : start + _VERDICT_PAGE]))
            with Session(self._engine) as session:
                found = list(session.exec(page.order_by(*order)))
            yield from map(_decode, found)

    def events(
        self,
        kind: str,
        rollout: str,
        attempt: int | None = None,
        limit: int = _ROWS_PER_ATTEMPT,
        since_s: float = 0.0,
    ) -> list[dict[str, Any]]:
        """The last `limit` rows of `verdict`, `decision`, `action` or `audit`, oldest first; payloads are decoded."""
        table = EVENT_TABLES[kind]
        query = select(table).where(col(table.rollout) == rollout, col(table.at_s) >= since_s)
        if attempt is not None:
            query = query.where(col(table.attempt) == attempt)
        with Session(self._engine) as session:
            found = list(session.exec(query.order_by(col(table.at_s).desc(), col(table.key)).limit(limit)))
        return [_decode(row) for row in reversed(found)]

    def history(self, rollout: str, attempt: int | None = None, since_s: float = 0.0) -> dict[str, Any]:
        """Everything for people: attempts, decisions, verdicts, actions, audit."""
        names = {"decisions": "decision", "verdicts": "verdict", "actions": "action", "audit": "audit"}
        return {
            "rollout": rollout,
            "attempts": self.attempts(rollout, since_s),
            **{plural: self.events(kind, rollout, attempt, since_s=since_s) for plural, kind in names.items()},
        }


def _decode(row: Event) -> dict[str, Any]:
    values = row.model_dump()
    payload = json.loads(values.pop("payload"))
    name = {DecisionRow: "decision", VerdictRow: "verdict", ActionRow: "spec", AuditRow: "content"}[type(row)]
    return {**values, name: payload}
