"""A PostgreSQL server of one's own in a temporary folder, for tests; skips where the machine has none."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_USER = "postgres"


def _binaries() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    on_path = shutil.which("initdb")
    if found:
        return found[0].parent
    if on_path:
        return Path(on_path).resolve().parent
    pytest.skip("no PostgreSQL here: install postgresql, its initdb is looked for in /usr/lib/postgresql/*/bin")


def _prefix() -> list[str]:
    """initdb refuses root: run as the user that Debian's package made."""
    if os.geteuid() != 0:
        return []
    if subprocess.run(["id", _USER], capture_output=True, check=False).returncode or not shutil.which("setpriv"):
        pytest.skip(f"initdb refuses root and there is no user {_USER} (or no setpriv) to run it as")
    return ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups"]


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """A cluster in a folder; `start` and `stop` as often as a test likes."""

    def __init__(self, folder: Path) -> None:
        self._bin, self._prefix, self._data = _binaries(), _prefix(), folder / "data"
        self.port = free_port()
        if self._prefix:
            shutil.chown(folder, _USER, _USER)
        self._run("initdb", "-D", str(self._data), "-U", "weighlock", "-A", "trust", "--no-sync")

    @property
    def url(self) -> str:
        """SQLAlchemy URL."""
        return f"postgresql://weighlock@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start and wait until it answers."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        self._run("pg_ctl", "-D", str(self._data), "-w", "-o", options, "-l", str(self._data / "log"), "start")

    def stop(self) -> None:
        """Stop at once, as a crash would."""
        self._run("pg_ctl", "-D", str(self._data), "-w", "-m", "immediate", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._prefix, str(self._bin / program), *arguments]
        done = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, cwd="/"
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


@contextmanager
def running_postgres(folder: Path) -> Iterator[Server]:
    """A started server, stopped at the end."""
    server = Server(folder)
    server.start()
    try:
        yield server
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            server.stop()
