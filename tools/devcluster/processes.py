"""Processes by identity: a pid alone may be someone else's after a while, a pid with its start time is not.

Used by the cluster (control plane) and by the node (containers). Linux only: everything is read from /proc.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Identity:
    """A process: its pid and its start time in clock ticks since boot."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """The identity of the running process `pid`, None when it is gone or a zombie."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        fields = stat[stat.rindex(")") + 2 :].split()
        return None if fields[0] in "ZX" else cls(pid, int(fields[19]))

    def is_alive(self) -> bool:
        return Identity.of(self.pid) == self

    def signal(self, number: int) -> bool:
        """Send a signal to this process, and never to a later one with the same pid. False when it is gone."""
        if not self.is_alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def signal_group(self, number: int) -> bool:
        """Send a signal to the process group that this process leads. False when the process is gone."""
        if not self.is_alive():
            return False
        return signal_group(self.pid, number)

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the end of the process, a child or not. True when it ended in time."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            if not self.is_alive():
                return True
            return bool(select.select([handle], [], [], timeout_seconds)[0])
        finally:
            os.close(handle)

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Identity | None:
        """The process that a file names, None when there is no file or the process has ended."""
        try:
            known = cls(**json.loads(path.read_text()))
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return known if known.is_alive() else None


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group; False when nobody is left in it."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def start(argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Identity:
    """Start a background process in a session of its own, its output appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=True,
        )
    identity = Identity.of(child.pid)
    if identity is None:
        raise RuntimeError(f"{argv[0]} ended at once with {child.wait()}; see {log}")
    return identity


def stop(process: Identity, grace_seconds: float) -> None:
    """SIGTERM, then SIGKILL for the process's group after the grace; returns when the process is gone."""
    process.signal(signal.SIGTERM)
    if process.wait(grace_seconds):
        signal_group(process.pid, signal.SIGKILL)  # what the leader left behind in its group
        return
    process.signal_group(signal.SIGKILL)
    process.wait(10)


def with_environment(name: str, prefix: str) -> Iterator[Identity]:
    """Own processes whose environment variable `name` starts with `prefix`: what a crashed node left behind."""
    needle = f"{name}={prefix}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if any(item.startswith(needle) for item in environment):
            identity = Identity.of(int(entry.name))
            if identity is not None:
                yield identity


def kill_with_environment(name: str, prefix: str) -> int:
    """SIGKILL every process of `with_environment` until none is left; returns how many there were."""
    killed = 0
    for _ in range(5):
        found = list(with_environment(name, prefix))
        for process in found:
            killed += process.signal(signal.SIGKILL)
        for process in found:
            process.wait(5)
        if not found:
            break
    return killed


def tree_rss_bytes(pid: int) -> int:
    """Resident bytes of a process and its descendants; pages shared between them count once for each."""
    total = 0
    pending = [pid]
    while pending:
        current = pending.pop()
        try:
            total += int(Path(f"/proc/{current}/statm").read_text().split()[1]) * PAGE_BYTES
            for task in Path(f"/proc/{current}/task").iterdir():
                pending.extend(map(int, (task / "children").read_text().split()))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total
