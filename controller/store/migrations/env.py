"""Alembic's environment: runs the revisions on the connection that `controller.store.database.migrate` hands over."""

from alembic import context
from sqlalchemy import text
from sqlmodel import SQLModel

from controller.store import tables

_ADVISORY_LOCK = 0x7765696768  # "weigh": two operators that start at once migrate one after the other


def _run() -> None:
    connection = context.config.attributes["connection"]
    assert tables.BlockRow.metadata is SQLModel.metadata
    context.configure(connection=connection, target_metadata=SQLModel.metadata, render_as_batch=True)
    with context.begin_transaction():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        context.run_migrations()


_run()
