"""The tables: blocks, setups, verdicts, decisions, actions, audit.

Written by `writer.py`, read by `reader.py`; the schema on disk comes from `migrations/` and a test keeps both equal.
`rollout` is `namespace/name`; times are Unix seconds; payloads are JSON text (blocks: zlib-compressed JSON).
`late` marks a row that could not be stored at the time it speaks of and was written when the store came back.
"""

from typing import Any

from sqlalchemy import Column, Index, LargeBinary, Text
from sqlalchemy.types import BigInteger
from sqlmodel import Field, SQLModel


class BlockRow(SQLModel, table=True):
    """One closed block. The start is part of the key: a recorder that lost its spool numbers from 0 again."""

    __tablename__ = "blocks"

    rollout: str = Field(primary_key=True, max_length=320)
    attempt: int = Field(primary_key=True)
    start_us: int = Field(primary_key=True, sa_type=BigInteger)
    seq: int = Field(primary_key=True, sa_type=BigInteger)
    step: int
    end_s: float
    payload: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    late: bool = False


class SetupRow(SQLModel, table=True):
    """What the judge of an attempt was set up with; several rows where the setup was amended, the last one counts."""

    __tablename__ = "setups"

    rollout: str = Field(primary_key=True, max_length=320)
    attempt: int = Field(primary_key=True)
    digest: str = Field(primary_key=True, max_length=64)
    at_s: float
    payload: str = Field(sa_column=Column(Text, nullable=False))
    late: bool = False


class Event(SQLModel):
    """What verdicts, decisions, actions and audit entries share. `key` makes writing twice harmless."""

    key: str = Field(primary_key=True, max_length=200)
    rollout: str = Field(max_length=320)
    attempt: int
    step: int
    at_s: float
    payload: str = Field(sa_type=Text)
    late: bool = False


class VerdictRow(Event, table=True):
    """A verdict as it was given, with the last block that it had seen."""

    __tablename__ = "verdicts"
    __table_args__ = (Index("ix_verdicts_rollout", "rollout", "attempt", "at_s"),)

    result: str = Field(max_length=20)
    last_seq: int = Field(sa_type=BigInteger)
    evidence: str = Field(default="", max_length=100)


class DecisionRow(Event, table=True):
    """A change of phase, weight or reason."""

    __tablename__ = "decisions"
    __table_args__ = (Index("ix_decisions_rollout", "rollout", "attempt", "at_s"),)

    phase: str = Field(max_length=40)
    reason: str = Field(max_length=80)
    weight: int


class ActionRow(Event, table=True):
    """What a person did: verified identity, reason, what it binds, and what became of it."""

    __tablename__ = "actions"
    __table_args__ = (Index("ix_actions_rollout", "rollout", "attempt", "at_s"),)

    action: str = Field(max_length=20)
    user: str = Field(max_length=320)
    outcome: str = Field(max_length=40)


class AuditRow(Event, table=True):
    """Anything else that must be found later: who, what."""

    __tablename__ = "audit"
    __table_args__ = (Index("ix_audit_rollout", "rollout", "attempt", "at_s"),)

    who: str = Field(max_length=320)
    what: str = Field(max_length=80)


EVENT_TABLES: dict[str, type[Any]] = {
    "verdict": VerdictRow,
    "decision": DecisionRow,
    "action": ActionRow,
    "audit": AuditRow,
}
