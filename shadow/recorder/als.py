"""gRPC side of the recorder: Envoy's access-log service."""

import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import structlog
from envoy.service.accesslog.v3 import als_pb2, als_pb2_grpc
from google.protobuf.message import DecodeError

from shadow.identity import is_gate_of
from shadow.recorder.entry import read_entry
from shadow.recorder.recorder import Recorder

log = structlog.get_logger("weighlock.recorder")
_BROKEN_FOR_S = 60.0  # a gate that comes back later than this is taken for a new one


class AccessLogs(als_pb2_grpc.AccessLogServiceServicer):  # type: ignore[misc]  # the generated class has no types
    """Feeds every entry to the recorder; keeps account of streams that broke.

    seconds: CPU seconds spent on entries; entries, ignored, bad, foreign (of a rollout that the gate is none of): how
    many.

    Args:
        demands_identity: a gate must show a certificate of the rollout that it reports for.
    """

    def __init__(
        self, recorder: Recorder, demands_identity: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._recorder, self._demands_identity, self._clock = recorder, demands_identity, clock
        self._broken: dict[tuple[str, str], float] = {}
        self.entries = self.ignored = self.bad = self.foreign = self.streams = 0
        self.seconds = 0.0

    async def StreamAccessLogs(
        self,
        requests: AsyncIterator[als_pb2.StreamAccessLogsMessage],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> als_pb2.StreamAccessLogsResponse:
        key: tuple[str, str] | None = None
        rollout: str | None = None  # that the gate proved to be of; None: nobody asks
        self.streams += 1
        is_clean = False
        try:
            async for message in requests:
                if message.HasField("identifier"):
                    key = (message.identifier.node.id, message.identifier.log_name)
                    self._note_return(key, message.identifier.node.cluster)
                if self._demands_identity and rollout is None:
                    rollout = message.identifier.node.cluster
                    if not is_gate_of(context.auth_context(), rollout):
                        log.warning("refused: not a gate of this rollout", rollout=rollout, peer=context.peer())
                        text = f"this certificate is not that of a gate of {rollout}"
                        await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)
                self._take(message, rollout)
            is_clean = True
        finally:
            self.streams -= 1
            if key is not None and not is_clean:
                self._broken[key] = self._clock()
        return als_pb2.StreamAccessLogsResponse()

    def _note_return(self, key: tuple[str, str], rollout: str) -> None:
        broke = self._broken.pop(key, None)
        if broke is not None and self._clock() - broke < _BROKEN_FOR_S:
            self._recorder.interrupted(rollout)

    def _take(self, message: als_pb2.StreamAccessLogsMessage, rollout: str | None) -> None:
        began = time.thread_time()
        for raw in message.http_logs.log_entry:
            self.entries += 1
            try:
                entry = read_entry(raw)
                if entry is None:
                    self.ignored += 1
                elif rollout is not None and entry.plan.rollout != rollout:
                    self.foreign += 1
                    log.warning("entry of another rollout than the gate's", rollout=entry.plan.rollout, gate_of=rollout)
                else:
                    self._recorder.take(entry)
            except (ValueError, TypeError, KeyError, DecodeError) as error:
                self.bad += 1
                log.warning("access-log entry could not be read", error=str(error))
        self.seconds += time.thread_time() - began
