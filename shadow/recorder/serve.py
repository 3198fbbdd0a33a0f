"""The recorder process: access-log service and HTTP API on one event loop, until it is told to end."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import uvicorn
from envoy.service.accesslog.v3 import als_pb2_grpc
from fastapi import FastAPI

from shadow.envoy.bootstrap import TlsFiles
from shadow.grpc_end import end
from shadow.grpc_tls import server_credentials
from shadow.http_tls import OperatorOnly, server_context
from shadow.recorder.als import AccessLogs
from shadow.recorder.api import add_health, add_rollouts, make_app
from shadow.recorder.metrics import make_registry
from shadow.recorder.recorder import Recorder

_TICK_S = 0.1
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
)


@dataclass(frozen=True, slots=True)
class Options:
    """Addresses are `host:port` (port 0: a free one).

    bind: HTTP; als_bind: access-log service; data: the spool's folder; tls: of the access-log service and of what the
    operator asks, which then is at `api_bind` and not at `bind`.
    """

    bind: str
    als_bind: str
    data: Path
    tls: TlsFiles | None = None
    api_bind: str = "127.0.0.1:0"


class _Beside(uvicorn.Server):
    """A second server of the process: signals are the first one's, which ends both."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class RecorderServer:
    """A running recorder; `port`, `api_port` (that of `port` without TLS) and `als_port` are known after `start`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.recorder = Recorder(options.data)
        self.logs = AccessLogs(self.recorder, demands_identity=options.tls is not None)
        self.port = self.api_port = self.als_port = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._grpc: grpc.aio.Server | None = None
        self._http: list[uvicorn.Server] = []

    async def start(self) -> None:
        """Listen; OSError or RuntimeError where an address is taken."""
        tls = self._options.tls
        health, api = make_app(), make_app()
        add_health(health, self.recorder, make_registry(self.recorder, self.logs))
        add_rollouts(health if tls is None else api, self.recorder)
        self.port = self.api_port = self._serve(health, self._options.bind)
        if tls is not None:
            self.api_port = self._serve(api, self._options.api_bind, tls)
        self._grpc = grpc.aio.server(options=_OPTIONS)
        als_pb2_grpc.add_AccessLogServiceServicer_to_server(self.logs, self._grpc)
        credentials = server_credentials(tls)
        bind = self._options.als_bind
        if credentials is None:
            self.als_port = self._grpc.add_insecure_port(bind)
        else:
            self.als_port = self._grpc.add_secure_port(bind, credentials)
        await self._grpc.start()
        self._tasks.append(asyncio.create_task(self._tick()))

    def _serve(self, app: FastAPI, bind: str, tls: TlsFiles | None = None) -> int:
        """Begin to serve an application; the port."""
        host, _, port = bind.rpartition(":")
        options: dict[str, Any] = {"log_level": "warning", "access_log": False}
        if tls is not None:
            options["http"] = OperatorOnly
        config = uvicorn.Config(app, host=host.strip("[]"), port=int(port), **options)
        config.load()
        config.ssl = server_context(tls) if tls is not None else None
        socket = config.bind_socket()
        server = uvicorn.Server(config) if not self._http else _Beside(config)
        self._http.append(server)
        self._tasks.append(asyncio.create_task(server.serve(sockets=[socket])))
        return int(socket.getsockname()[1])

    async def _tick(self) -> None:
        while True:
            self.recorder.tick()
            await asyncio.sleep(_TICK_S)

    async def run(self) -> None:
        """Serve until cancelled or told to stop by a signal (uvicorn handles them)."""
        await self.start()
        try:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in self._tasks:
                if task.done():
                    task.result()  # a failure of either is the process's
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Stop listening and put everything on disk."""
        if self._grpc is not None:
            await end(self._grpc, 0.2)
            self._grpc = None  # it must go while its event loop runs
        for server in self._http:
            server.should_exit = True
        if self._tasks:
            self._tasks[-1].cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait(self._tasks, timeout=5)
        self.recorder.close()
