"""The kubelet's HTTPS port, as far as ``kubectl logs`` needs it. Started by the agent, one listener for each node."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from aiohttp import web

from tools.devcluster.paths import State
from tools.devcluster.settings import KUBELET_PORT

BLOCK_BYTES = 64 * 1024
FOLLOW_SECONDS = 0.3


class Logs(Protocol):
    """What the agent knows about containers' logs."""

    def find_log(self, namespace: str, pod: str, container: str, previous: bool) -> Path | None:
        """The log file of a container's current or previous run."""

    def is_being_written(self, log: Path) -> bool:
        """Whether the run that writes this file goes on."""


class KubeletServer:
    """Answers ``/containerLogs/<namespace>/<pod>/<container>`` to the API server, which shows its certificate."""

    def __init__(self, state: State, logs: Logs) -> None:
        self.logs = logs
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(state.pki / "ca.crt"))
        self.tls.verify_mode = ssl.CERT_REQUIRED
        self.tls.load_cert_chain(state.pki / "node.crt", state.pki / "node.key")
        self.runner: web.AppRunner | None = None

    async def start(self, addresses: list[str]) -> None:
        """Listen on the kubelet's port of each address.

        Raises:
            OSError: another cluster has taken the address.
        """
        application = web.Application()
        application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._container_logs)
        self.runner = web.AppRunner(application, access_log=None)
        await self.runner.setup()
        for address in addresses:
            await web.TCPSite(self.runner, address, KUBELET_PORT, ssl_context=self.tls, shutdown_timeout=1).start()

    async def stop(self) -> None:
        if self.runner:
            await self.runner.cleanup()

    async def _container_logs(self, request: web.Request) -> web.StreamResponse:
        path, query = request.match_info, request.query
        previous = query.get("previous") == "true"
        log = self.logs.find_log(path["namespace"], path["pod"], path["container"], previous)
        if log is None or not log.exists():
            which = "previous terminated container" if previous else "container"
            raise web.HTTPNotFound(text=f'{which} "{path["container"]}" in pod "{path["pod"]}" has no log')
        answer = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await answer.prepare(request)
        start = tail_offset(log, int(query["tailLines"])) if "tailLines" in query else 0
        try:
            async for block in self._read(log, start, query.get("follow") == "true"):
                await answer.write(block)
            await answer.write_eof()
        except ConnectionResetError:
            return answer  # the reader went away, the usual end of `kubectl logs -f`
        return answer

    async def _read(self, log: Path, start: int, follow: bool) -> AsyncIterator[bytes]:
        with log.open("rb") as stream:
            stream.seek(start)
            while True:
                goes_on = follow and self.logs.is_being_written(log)
                while block := stream.read(BLOCK_BYTES):
                    yield block
                if not goes_on:
                    return
                await asyncio.sleep(FOLLOW_SECONDS)


def tail_offset(log: Path, lines: int) -> int:
    """Where the last `lines` lines of a file begin."""
    size = log.stat().st_size
    if lines <= 0:
        return size
    with log.open("rb") as stream:
        position, wanted = size, lines
        while position > 0:
            start = max(0, position - BLOCK_BYTES)
            stream.seek(start)
            block = stream.read(position - start)
            if position == size and block.endswith(b"\n"):
                wanted += 1  # the last line's own end starts no line
            found = block.count(b"\n")
            if found >= wanted:
                parts = block.rsplit(b"\n", wanted)
                return start + len(parts[0]) + 1
            wanted -= found
            position = start
    return 0
