"""Both databases that the store runs on."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.controller.store.postgres import Server, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """One PostgreSQL for the session; in /tmp, because its user must be able to reach the folder."""
    folder = Path(tempfile.mkdtemp(prefix="weighlock-pg-"))
    try:
        with running_postgres(folder) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A fresh database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/weighlock.db"
        return
    server: Server = request.getfixturevalue("postgres")
    from sqlalchemy import create_engine, text

    admin = create_engine(server.url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    name = f"db_{abs(hash(request.node.nodeid))}"
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield server.url.replace("/postgres", f"/{name}")
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()
