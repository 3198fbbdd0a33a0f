"""First tables: blocks, setups, verdicts, decisions, actions, audit."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "blocks",
        sa.Column("rollout", sa.String(320), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("start_us", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("end_s", sa.Float, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sa.Column("late", sa.Boolean, nullable=False),
    )
    op.create_table(
        "setups",
        sa.Column("rollout", sa.String(320), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("at_s", sa.Float, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("late", sa.Boolean, nullable=False),
    )
    _event_table(
        "verdicts",
        sa.Column("result", sa.String(20), nullable=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("evidence", sa.String(100), nullable=False),
    )
    _event_table(
        "decisions",
        sa.Column("phase", sa.String(40), nullable=False),
        sa.Column("reason", sa.String(80), nullable=False),
        sa.Column("weight", sa.Integer, nullable=False),
    )
    _event_table(
        "actions",
        sa.Column("action", sa.String(20), nullable=False),
        sa.Column("user", sa.String(320), nullable=False),
        sa.Column("outcome", sa.String(40), nullable=False),
    )
    _event_table(
        "audit",
        sa.Column("who", sa.String(320), nullable=False),
        sa.Column("what", sa.String(80), nullable=False),
    )


def downgrade() -> None:
    """Drop all tables."""
    for name in ("audit", "actions", "decisions", "verdicts", "setups", "blocks"):
        op.drop_table(name)


def _event_table(name: str, *columns: "sa.Column[Any]") -> None:
    op.create_table(
        name,
        sa.Column("key", sa.String(200), primary_key=True),
        sa.Column("rollout", sa.String(320), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("at_s", sa.Float, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("late", sa.Boolean, nullable=False),
        *columns,
    )
    op.create_index(f"ix_{name}_rollout", name, ["rollout", "attempt", "at_s"])
