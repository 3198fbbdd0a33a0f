"""A streaming HTTP client on asyncio protocols that meters what it reads. Used by ``runner.py``.

One ``Exchange`` per request; connections are kept alive and reused newest first. Timings are taken when bytes arrive.
"""

import asyncio
import json
import time
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

import httptools

CONTENT_KEYS = (b'"content":"', b'"reasoning_content":"', b'"reasoning":"', b'"text":"')


class Exchange:
    """One request and what was seen of its answer. ``outcome`` stays None until it is over."""

    __slots__ = (
        "chunks", "done", "e2e", "error_frame", "events", "finish", "first", "gaps", "last_content", "max_gap",
        "max_gap_at", "on_end", "outcome", "output_tokens", "pod", "prompt_tokens", "retries", "sent_at",
        "started_unix", "status", "tail", "variant", "wire",
    )  # fmt: skip

    def __init__(self, wire: bytes, on_end: Callable[["Exchange"], None]) -> None:
        self.wire = wire
        self.on_end = on_end
        self.sent_at = 0.0
        self.started_unix = 0.0
        self.status: int | None = None
        self.variant: str | None = None
        self.pod: str | None = None
        self.first: float | None = None
        self.last_content = 0.0
        self.max_gap: float | None = None
        self.max_gap_at: float | None = None
        self.gaps = 0
        self.events = 0
        self.chunks = 0
        self.finish = False
        self.done = False
        self.error_frame = False
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.e2e = 0.0
        self.outcome: str | None = None
        self.retries = 0
        self.tail = b""

    def read(self, body: bytes, now: float) -> None:
        """Some bytes of the event stream."""
        self.chunks += 1
        data = self.tail + body if self.tail else body
        start = 0
        while (end := data.find(b"\n\n", start)) >= 0:
            self._event(data[start:end], now)
            start = end + 2
        self.tail = data[start:]

    def _event(self, event: bytes, now: float) -> None:
        self.events += 1
        if event.startswith(b"data: [DONE]"):
            self.done = True
            return
        if has_content(event):
            if self.first is None:
                self.first = now
            else:
                gap = now - self.last_content
                self.gaps += 1
                if self.max_gap is None or gap > self.max_gap:
                    self.max_gap, self.max_gap_at = gap, now - self.sent_at
            self.last_content = now
        if b'"finish_reason":"' in event:
            self.finish = True
        if b'"usage":{' in event:
            usage = json.loads(event[event.index(b"{") :]).get("usage") or {}
            self.prompt_tokens, self.output_tokens = usage.get("prompt_tokens"), usage.get("completion_tokens")
        elif b'"error":{' in event:
            self.error_frame = True

    def end(self, now: float, outcome: str | None = None) -> None:
        """The answer is complete (or will not come); classifies it unless told how."""
        if self.outcome is not None:
            return
        self.e2e = now - self.sent_at
        self.outcome = outcome or self._classify()
        self.on_end(self)

    def _classify(self) -> str:
        status = self.status
        if status is None or status >= 500 or self.error_frame:
            return "server_error"
        if status == 429:
            return "rejected"
        if status >= 400:
            return "client_error"
        if not self.finish and not self.done:
            return "truncated"
        return "empty" if self.first is None else "ok"


def has_content(event: bytes) -> bool:
    """Whether an event carries a non-empty content, reasoning or text delta, or a tool call."""
    for key in CONTENT_KEYS:
        at = event.find(key)
        if at >= 0 and event[at + len(key) : at + len(key) + 1] != b'"':
            return True
    return b'"tool_calls":[{' in event


class Connection(asyncio.Protocol):
    """One keep-alive connection; carries one exchange at a time."""

    def __init__(self, pool: "Pool") -> None:
        self.pool = pool
        self.loop = pool.loop
        self.transport: asyncio.Transport | None = None
        self.exchange: Exchange | None = None
        self.parser = httptools.HttpResponseParser(self)
        self.used = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio callback."""
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        """asyncio callback. A reused connection that dies before any answer byte is a race: sent again, once."""
        self.transport = None
        self.pool.forget(self)
        exchange, self.exchange = self.exchange, None
        if exchange is None or exchange.outcome is not None:
            return
        if exchange.status is None and self.used > 1 and exchange.retries == 0:
            exchange.retries = 1
            self.pool.send(exchange)
            return
        exchange.end(time.monotonic())

    def start(self, exchange: Exchange) -> None:
        """Sends a request."""
        self.exchange = exchange
        self.used += 1
        assert self.transport is not None
        self.transport.write(exchange.wire)

    def data_received(self, data: bytes) -> None:
        """asyncio callback."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            if self.transport is not None:
                self.transport.abort()

    def on_message_begin(self) -> None:
        """httptools callback."""

    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools callback."""
        if self.exchange is not None and name[:2].lower() == b"x-":
            lowered = name.lower()
            if lowered == b"x-weighlock-variant":
                self.exchange.variant = value.decode("latin-1")
            elif lowered == b"x-weighlock-pod":
                self.exchange.pod = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """httptools callback."""
        if self.exchange is not None:
            self.exchange.status = self.parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        """httptools callback."""
        if self.exchange is not None:
            self.exchange.read(body, time.monotonic())

    def on_message_complete(self) -> None:
        """httptools callback."""
        exchange, self.exchange = self.exchange, None
        keep = self.parser.should_keep_alive()
        if exchange is not None:
            exchange.end(time.monotonic())
        if keep and not self.pool.retired and self.transport is not None and not self.transport.is_closing():
            self.pool.idle.append(self)
        elif self.transport is not None:
            self.transport.close()

    def cut(self) -> None:
        """Gives up on the exchange: the other side sees a disconnect."""
        self.exchange = None
        if self.transport is not None:
            self.transport.abort()


class Pool:
    """Connections to one target."""

    def __init__(self, url: str, loop: asyncio.AbstractEventLoop) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None:
            raise ValueError(f"not an http URL: {url!r}")
        self.url = url
        self.host, self.port = parts.hostname, parts.port or 80
        self.loop = loop
        self.idle: list[Connection] = []
        self.retired = False
        self.active: dict[Exchange, Connection] = {}
        self._connecting: set[asyncio.Task[None]] = set()

    def send(self, exchange: Exchange) -> None:
        """On an idle connection, or a new one."""
        while self.idle:
            connection = self.idle.pop()
            if connection.transport is not None and not connection.transport.is_closing():
                self.active[exchange] = connection
                connection.start(exchange)
                return
        task = self.loop.create_task(self._connect(exchange))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, exchange: Exchange) -> None:
        try:
            _, connection = await self.loop.create_connection(lambda: Connection(self), self.host, self.port)
        except OSError:
            exchange.end(time.monotonic(), "server_error")
            return
        if exchange.outcome is not None:
            self.idle.append(connection)
            return
        self.active[exchange] = connection
        connection.start(exchange)

    def cancel(self, exchange: Exchange, outcome: str) -> None:
        """Ends an exchange from our side."""
        connection = self.active.pop(exchange, None)  # before the end, which forgets it: the server must see us leave
        exchange.end(time.monotonic(), outcome)
        if connection is not None and connection.exchange is exchange:
            connection.cut()

    def forget(self, connection: Connection) -> None:
        """The connection is closed."""
        if connection in self.idle:
            self.idle.remove(connection)

    def close(self) -> None:
        """Closes idle connections now and the others when they have done their work."""
        self.retired = True
        for connection in self.idle:
            if connection.transport is not None:
                connection.transport.close()
        self.idle.clear()
