"""Opening the database and bringing its schema up to date: SQLite (default, WAL) or PostgreSQL by URL.

Called by the writer's thread and by whoever reads. Knows no domain type.
"""

import os
import threading
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, event
from sqlalchemy.engine import make_url
from sqlmodel import create_engine

MIGRATIONS = Path(__file__).with_name("migrations")
_CONNECT_TIMEOUT_SECONDS = 5
_migrating = threading.Lock()  # Alembic keeps its context in a module


def open_engine(url: str) -> Engine:
    """Engine for `sqlite:///PATH`, `postgresql://...` or a plain path; connects to nothing yet.

    A SQLite file is made readable by its owner only: it holds tenant names and reasons of people.
    """
    parsed = make_url(url if "://" in url else f"sqlite:///{url}")
    if parsed.get_backend_name() == "sqlite":
        engine = create_engine(parsed, connect_args={"timeout": _CONNECT_TIMEOUT_SECONDS})
        event.listen(engine, "do_connect", _make_private)
        event.listen(engine, "connect", _set_pragmas)
        return engine
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    return create_engine(
        parsed, pool_pre_ping=True, pool_size=4, connect_args={"connect_timeout": _CONNECT_TIMEOUT_SECONDS}
    )


def migrate(engine: Engine) -> None:
    """Bring the schema to the newest revision; one process at a time (PostgreSQL: advisory lock). Raises SQL errors."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with _migrating, engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        connection.commit()


def _make_private(dialect: Any, record: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    path = args[0] if args else kwargs.get("database", ":memory:")
    if path and path != ":memory:" and not str(path).startswith("file:"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def _set_pragmas(connection: Any, record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()
