"""The recorder process: access-log service and HTTP API on one event loop, until it is told to end."""

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path

import grpc
import uvicorn
from envoy.service.accesslog.v3 import als_pb2_grpc

from shadow.envoy.bootstrap import TlsFiles
from shadow.grpc_end import end
from shadow.grpc_tls import server_credentials
from shadow.recorder.als import AccessLogs
from shadow.recorder.api import make_app
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
    """bind, als_bind: `host:port` (port 0: a free one); data: the spool's folder; tls: of the access-log service."""

    bind: str
    als_bind: str
    data: Path
    tls: TlsFiles | None = None


class RecorderServer:
    """A running recorder; `port` and `als_port` are known after `start`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.recorder = Recorder(options.data)
        self.logs = AccessLogs(self.recorder, demands_identity=options.tls is not None)
        self.port = self.als_port = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._grpc: grpc.aio.Server | None = None
        self._http: uvicorn.Server | None = None

    async def start(self) -> None:
        """Listen; OSError or RuntimeError where an address is taken."""
        host, _, port = self._options.bind.rpartition(":")
        app = make_app(self.recorder, make_registry(self.recorder, self.logs))
        config = uvicorn.Config(app, host=host.strip("[]"), port=int(port), log_level="warning", access_log=False)
        self._http = uvicorn.Server(config)
        socket = config.bind_socket()
        self.port = int(socket.getsockname()[1])
        self._grpc = grpc.aio.server(options=_OPTIONS)
        als_pb2_grpc.add_AccessLogServiceServicer_to_server(self.logs, self._grpc)
        credentials = server_credentials(self._options.tls)
        bind = self._options.als_bind
        if credentials is None:
            self.als_port = self._grpc.add_insecure_port(bind)
        else:
            self.als_port = self._grpc.add_secure_port(bind, credentials)
        await self._grpc.start()
        self._tasks = [
            asyncio.create_task(self._http.serve(sockets=[socket])),
            asyncio.create_task(self._tick()),
        ]

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
        if self._http is not None:
            self._http.should_exit = True
        if self._tasks:
            self._tasks[1].cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait(self._tasks, timeout=5)
        self.recorder.close()
