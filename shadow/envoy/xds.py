"""The gates' xDS server: one aggregated stream per gate, state of the world, make before break.

Run by the leader. It holds the newest snapshot of each rollout and brings every connected gate there; it never invents
one: a gate of a rollout that was not published yet hears nothing and keeps what it has.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
import structlog
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from google.protobuf import json_format

from shadow.envoy import build
from shadow.envoy.bootstrap import TlsFiles
from shadow.envoy.listeners import GateTimes, make_copies_listener, make_live_listener
from shadow.envoy.node import TYPES, NodeState, names_of, nonce_of
from shadow.envoy.snapshot import Snapshot, make_snapshot
from shadow.grpc_end import end
from shadow.grpc_tls import server_credentials
from shadow.identity import is_gate_of
from shadow.plan import GateConfig

T = TypeVar("T")
log = structlog.get_logger("weighlock.xds")

_OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),
)


@dataclass(eq=False, slots=True)
class _Stream:
    """One connected gate."""

    rollout: str
    node: str
    address: str
    inbox: "asyncio.Queue[discovery_pb2.DiscoveryRequest | None]"
    state: NodeState | None = None
    port: int | None = None
    acked: str | None = None  # plan version
    refusals: dict[str, str] = field(default_factory=dict)


class XdsServer:
    """Aggregated discovery for the gates of every rollout.

    Args:
        bind: `host:port`; port 0 picks a free one (see `port` after `start`).
        tls: server certificate, key and the authority of the gates' certificates; None: plain text (tests).
        on_ack: called as `(rollout, node, plan version)` when a gate has acknowledged a whole plan, on the server's
            event loop: it must not block.
        times: times written into listeners.
        may_speak: asked before every word to a gate; False ends its stream, so that it asks whoever leads now (the gate
            keeps what it has meanwhile).
    """

    def __init__(
        self,
        bind: str,
        tls: TlsFiles | None = None,
        *,
        on_ack: Callable[[str, str, str], None] | None = None,
        times: GateTimes | None = None,
        may_speak: Callable[[], bool] = lambda: True,
    ) -> None:
        self._bind = bind
        self.may_speak = may_speak
        self._tls = tls
        self.on_ack = on_ack
        self._times = times or GateTimes()
        self._snapshots: dict[str, Snapshot] = {}
        self._streams: dict[str, list[_Stream]] = {}
        self._server: grpc.aio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.port = 0

    @property
    def demands_identity(self) -> bool:
        """Whether a gate must show a certificate of its rollout."""
        return self._tls is not None

    # --- life ---

    async def start(self) -> None:
        """Listen on the running event loop; RuntimeError where the address is taken."""
        self._loop = asyncio.get_running_loop()
        server = grpc.aio.server(options=_OPTIONS)
        ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(_Service(self), server)
        credentials = server_credentials(self._tls)
        if credentials is None:
            self.port = server.add_insecure_port(self._bind)
        else:
            self.port = server.add_secure_port(self._bind, credentials)
        await server.start()
        self._server = server

    async def stop(self, grace_s: float = 0.2) -> None:
        """Stop listening; gates keep what they have."""
        if self._server is not None:
            server, self._server = self._server, None
            await end(server, grace_s)

    def start_in_thread(self) -> None:
        """`start` on an event loop of its own, for callers without one."""
        started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="xds", daemon=True)
        self._thread.start()
        started.result(timeout=30)

    def stop_in_thread(self) -> None:
        """End what `start_in_thread` began."""
        if self._loop is None or self._thread is None:
            return
        self._submit(self.stop()).result(timeout=10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)

    def _run(self, started: "concurrent.futures.Future[None]") -> None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(self.start())
        except (RuntimeError, OSError, grpc.RpcError) as error:
            started.set_exception(error)
            return
        started.set_result(None)
        loop.run_forever()
        loop.close()

    def _submit(self, work: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        if self._loop is None:
            work.close()
            raise RuntimeError("the xDS server has not been started")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    # --- what the controller says ---

    async def publish(self, config: GateConfig) -> str:
        """Make `config` what the gates of its rollout shall have; returns its plan version. The same again is free."""
        snapshot = make_snapshot(config)
        self._snapshots[snapshot.rollout] = snapshot
        for stream in tuple(self._streams.get(snapshot.rollout, ())):
            stream.inbox.put_nowait(None)
        return snapshot.version

    def publish_threadsafe(self, config: GateConfig) -> "concurrent.futures.Future[str]":
        """`publish` from any thread."""
        return self._submit(self.publish(config))

    def remove(self, rollout: str) -> None:
        """Forget a rollout; its gates keep what they have until they are deleted."""
        self._snapshots.pop(rollout, None)

    # --- what the gates say ---

    def published(self, rollout: str) -> str | None:
        """Plan version that was published last."""
        snapshot = self._snapshots.get(rollout)
        return snapshot.version if snapshot else None

    def acks(self, rollout: str) -> dict[str, str | None]:
        """Connected gates (pod names) and the plan version that each acknowledged last."""
        return {s.node: s.acked for s in tuple(self._streams.get(rollout, ()))}

    def refusals(self, rollout: str) -> dict[str, dict[str, str]]:
        """Gates that refused what they were told, with Envoy's words by resource type."""
        return {s.node: dict(s.refusals) for s in tuple(self._streams.get(rollout, ())) if s.refusals}

    def connected(self, rollout: str) -> tuple[str, ...]:
        """Names of the connected gates."""
        return tuple(sorted({s.node for s in tuple(self._streams.get(rollout, ()))}))

    # --- one stream ---

    def attach(self, stream: _Stream) -> None:
        self._streams.setdefault(stream.rollout, []).append(stream)

    def detach(self, stream: _Stream) -> None:
        streams = self._streams.get(stream.rollout, [])
        if stream in streams:
            streams.remove(stream)
        if not streams:
            self._streams.pop(stream.rollout, None)

    def answer(
        self, stream: _Stream, request: discovery_pb2.DiscoveryRequest | None
    ) -> list[discovery_pb2.DiscoveryResponse]:
        """What to send to a gate after its `request`, or after a publication (None)."""
        snapshot = self._snapshots.get(stream.rollout)
        if stream.state is None:
            stream.state = NodeState(stream.node, {})
        state = stream.state
        if request is not None and request.type_url in TYPES:
            error = request.error_detail.message if request.HasField("error_detail") else None
            names = names_of(request.resource_names)
            state.on_request(request.type_url, names, request.version_info, request.response_nonce, error)
            stream.refusals = state.refusals
            if error is not None:
                log.error("gate refused configuration", rollout=stream.rollout, gate=stream.node, error=error)
        if snapshot is None:
            return []
        if stream.port != snapshot.port:
            live = make_live_listener(stream.address, snapshot.port, self._times)
            copies = make_copies_listener(self._times)
            state.listeners, stream.port = {live.name: live, copies.name: copies}, snapshot.port
        pushes = state.next_pushes(snapshot)
        self._note_ack(stream, state, snapshot)
        return [
            discovery_pb2.DiscoveryResponse(
                version_info=push.version,
                resources=[build.pack(r) for r in push.resources],
                type_url=push.type_url,
                nonce=nonce_of(state, push),
            )
            for push in pushes
        ]

    def _note_ack(self, stream: _Stream, state: NodeState, snapshot: Snapshot) -> None:
        if stream.acked == snapshot.version or not state.is_synced(snapshot):
            return
        stream.acked = snapshot.version
        if self.on_ack is not None:
            self.on_ack(stream.rollout, stream.node, snapshot.version)


class _Service(ads_pb2_grpc.AggregatedDiscoveryServiceServicer):  # type: ignore[misc]  # the generated class has no types
    """gRPC side: one coroutine reads a gate's requests, the handler itself answers."""

    def __init__(self, server: XdsServer) -> None:
        self._server = server

    async def StreamAggregatedResources(
        self, requests: AsyncIterator[discovery_pb2.DiscoveryRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[discovery_pb2.DiscoveryResponse]:
        first = await anext(aiter(requests), None)
        if first is None:
            return
        if self._server.demands_identity and not is_gate_of(context.auth_context(), first.node.cluster):
            log.warning("refused: not a gate of this rollout", rollout=first.node.cluster, peer=context.peer())
            text = f"this certificate is not that of a gate of {first.node.cluster}"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)
        metadata = json_format.MessageToDict(first.node.metadata)
        stream = _Stream(first.node.cluster, first.node.id, str(metadata.get("pod_ip", "127.0.0.1")), asyncio.Queue())
        stream.inbox.put_nowait(first)
        reader = asyncio.create_task(_read(requests, stream))
        self._server.attach(stream)
        try:
            while not (reader.done() and stream.inbox.empty()):
                request = await stream.inbox.get()
                for response in self._server.answer(stream, request):
                    if not self._server.may_speak():
                        await context.abort(grpc.StatusCode.UNAVAILABLE, "another operator leads, or will soon")
                    yield response
        finally:
            reader.cancel()
            self._server.detach(stream)


async def _read(requests: AsyncIterator[discovery_pb2.DiscoveryRequest], stream: _Stream) -> None:
    try:
        async for request in requests:
            stream.inbox.put_nowait(request)
    finally:
        stream.inbox.put_nowait(None)  # wakes the writer, which sees that the reader is done
