"""A small HTTP/1.1 server on asyncio protocols: keep-alive, chunked answers, disconnects. Used by ``__main__.py``.

Lean on purpose: engines, load generator, proxy and control plane share two cores on a development machine.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import httptools

REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed"}
REASONS |= {413: "Content Too Large", 500: "Internal Server Error", 503: "Service Unavailable"}
JSON_TYPE = "application/json"


class Request:
    """One parsed request. ``on_disconnect`` is set by a handler that wants to know."""

    __slots__ = ("body", "connection", "headers", "method", "on_disconnect", "path")

    def __init__(self, connection: "Connection", method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.connection = connection
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
        self.on_disconnect: Callable[[], None] | None = None


Handler = Callable[[Request], None]


class Connection(asyncio.Protocol):
    """One client connection; requests are answered one after the other, in order."""

    def __init__(self, handler: Handler, open_connections: "set[Connection]") -> None:
        self.handler = handler
        self.open_connections = open_connections
        self.parser = httptools.HttpRequestParser(self)
        self.transport: asyncio.Transport | None = None
        self.current: Request | None = None
        self.pending: deque[Request] = deque()
        self.closing = False
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._keep_alive = True

    # -- transport --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio callback."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
        self.open_connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """asyncio callback: whoever is being answered is gone."""
        self.transport = None
        self.open_connections.discard(self)
        current, self.current = self.current, None
        self.pending.clear()
        if current is not None and current.on_disconnect is not None:
            current.on_disconnect()

    def data_received(self, data: bytes) -> None:
        """asyncio callback."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse()
        except httptools.HttpParserError:
            self._refuse()

    def _refuse(self) -> None:
        if self.transport is not None:
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()

    # -- parser callbacks --

    def on_message_begin(self) -> None:
        """httptools callback."""
        self._url = b""
        self._headers = {}
        self._body = []

    def on_url(self, url: bytes) -> None:
        """httptools callback."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools callback."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """httptools callback."""
        if self._headers.get("expect", "").lower() == "100-continue" and self.transport is not None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """httptools callback."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """httptools callback."""
        self._keep_alive = self.parser.should_keep_alive()
        path = self._url.partition(b"?")[0].decode("latin-1")
        method = self.parser.get_method().decode("ascii")
        self.pending.append(Request(self, method, path, self._headers, b"".join(self._body)))
        if self.current is None:
            self._next()

    def _next(self) -> None:
        if self.pending:
            self.current = self.pending.popleft()
            self.handler(self.current)

    # -- answers --

    def respond(self, status: int, body: bytes, content_type: str = JSON_TYPE, extra: str = "") -> None:
        """A whole answer."""
        if self.transport is None:
            return
        close = "" if self._keep_alive and not self.closing else "connection: close\r\n"
        head = (
            f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}\r\nserver: enginesim\r\n"
            f"content-type: {content_type}\r\ncontent-length: {len(body)}\r\n{extra}{close}\r\n"
        )
        self.transport.write(head.encode("latin-1") + body)
        self._done()

    def respond_json(self, status: int, document: object, extra: str = "") -> None:
        """A whole answer as JSON."""
        self.respond(status, json.dumps(document, separators=(",", ":")).encode(), JSON_TYPE, extra)

    def start_stream(self, extra: str = "") -> None:
        """Headers of an event stream."""
        if self.transport is None:
            return
        close = "" if self._keep_alive and not self.closing else "connection: close\r\n"
        self.transport.write(
            (
                "HTTP/1.1 200 OK\r\nserver: enginesim\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                f"transfer-encoding: chunked\r\n{extra}{close}\r\n"
            ).encode("latin-1")
        )

    def send_events(self, *events: bytes) -> None:
        """Each event in an HTTP chunk of its own, all in one write."""
        if self.transport is not None:
            self.transport.write(b"".join([b"%x\r\n%b\r\n" % (len(event), event) for event in events]))

    def end_stream(self, *events: bytes) -> None:
        """The last events and the end of the body."""
        if self.transport is None:
            return
        chunks = [b"%x\r\n%b\r\n" % (len(event), event) for event in events]
        self.transport.write(b"".join([*chunks, b"0\r\n\r\n"]))
        self._done()

    def abandon(self) -> None:
        """Cuts the connection in mid-answer."""
        if self.transport is not None:
            self.transport.abort()

    def _done(self) -> None:
        self.current = None
        if (self.closing or not self._keep_alive) and self.transport is not None:
            self.transport.close()
            return
        if self.pending:
            asyncio.get_running_loop().call_soon(self._next)

    def shut_down(self) -> None:
        """Closes now if idle, else after the answer that is being written."""
        self.closing = True
        if self.current is None and self.transport is not None:
            self.transport.close()


async def listen(
    handler: Handler, host: str, port: int, connections: set[Connection], **options: Any
) -> asyncio.Server:
    """Starts serving; ``connections`` always holds the open ones."""
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: Connection(handler, connections), host, port, backlog=2048, **options)
