"""Start one process, wait for its end, end it. Called by containers and by exec handlers; knows nothing of pods."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.devcluster.processes import Identity, signal_group, tree_rss_bytes


class StartError(Exception):
    """The command cannot be started; the message says why, as a container runtime would."""


class Process:
    """A process in a session of its own, so that its group holds all that it starts."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path | None) -> None:
        """Start it, output appended to `log` (None: dropped).

        Raises:
            StartError: there is no such program, or it cannot be executed.
        """
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if log else subprocess.DEVNULL
        try:
            self._child = subprocess.Popen(
                list(argv),
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:
            raise StartError(f'exec: "{argv[0]}": {error.strerror}') from error
        finally:
            if log:
                os.close(output)
        self.pid = self._child.pid
        self.identity = Identity.of(self.pid)
        loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[int] = loop.create_future()
        self._handle = os.pidfd_open(self.pid)
        loop.add_reader(self._handle, self._reap)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._handle)
        os.close(self._handle)
        # A container ends with its first process. Before `wait` the pid, and so the group's number, is still taken.
        signal_group(self.pid, signal.SIGKILL)
        code = self._child.wait()
        if not self._exited.done():
            self._exited.set_result(code if code >= 0 else 128 - code)

    @property
    def is_running(self) -> bool:
        return not self._exited.done()

    async def wait(self) -> int:
        """The exit code; 128 + signal for a process that a signal ended."""
        return await asyncio.shield(self._exited)

    def signal(self, number: int) -> None:
        """Signal the whole group."""
        if self.is_running:
            signal_group(self.pid, number)

    async def stop(self, grace_seconds: float) -> None:
        """SIGTERM, and SIGKILL to what is left after the grace."""
        self.signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.wait(), grace_seconds)
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await self.wait()

    def rss_bytes(self) -> int:
        return tree_rss_bytes(self.pid)
