"""Load for the gate's benchmark: an engine and its clients in one process, in step with each other.

Called by gate.py and gate_latency.py. The next frame of a stream is written once the one before has come out of the
proxy, so that the proxy reads every frame alone however busy the machine is. All streams move in steps, as those of an
engine do: one token of every sequence at a time. A copy's frames go with its original's; nobody waits for a copy.
"""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

_END = b"0\r\n\r\n"
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_ID = b"0123456789abcdef"
_STEP_S = 0.001  # of the engine: at least so long from one token to the next
_DEADLINE_S = 120.0


def make_frames(events: int) -> list[bytes]:
    """Frames of one chat stream as vLLM makes them, each as one HTTP chunk; the last one also ends the body."""
    head = {"id": f"chatcmpl-{_ID.decode()}", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    lines = [
        json.dumps({**head, "choices": [{"index": 0, "delta": {"content": f" word{i}"}, "finish_reason": None}]})
        for i in range(events)
    ]
    lines.append(json.dumps({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
    lines += [json.dumps({**head, "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": events}}), "[DONE]"]
    framed = [f"data: {line}\n\n".encode() for line in lines]
    chunks = [b"%x\r\n%b\r\n" % (len(f), f) for f in framed]
    # The client may never see the usage: it does not answer for that frame, and the terminator follows at once.
    return [*chunks[:-2], chunks[-2] + chunks[-1] + _END]


@dataclass
class Engine:
    """Serves the same stream to all, frame by frame as `run_clients` asks; own_ids: each under an id of its own."""

    frames: Sequence[bytes]
    own_ids: bool = False
    port: int = 0
    running: dict[bytes, list["_Answer"]] = field(default_factory=dict, repr=False)

    async def start(self) -> None:
        server = await asyncio.get_running_loop().create_server(lambda: _Answer(self), "127.0.0.1", 0)
        self.port = int(server.sockets[0].getsockname()[1])

    def advance(self, stream: bytes, is_copy: bool | None = None) -> None:
        """Write the next frame of a stream (False), of its copies (True) or of both: what was sent so far has come."""
        for answer in tuple(self.running.get(stream, ())):
            if is_copy is None or answer.is_copy == is_copy:
                answer.send_next()


class _Answer(asyncio.Protocol):
    """One connection of the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._received = b""
        self._stream = b""
        self._next = 0
        self._id = _ID
        self.is_copy = False
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank, body = self._received.partition(b"\r\n\r\n")
        lower = head.lower()
        if not blank or len(body) < int(_header(lower, b"content-length")):
            return
        self._received, self._stream, self._next = b"", _header(lower, b"x-stream"), 0
        self.is_copy = _header(lower, b"x-weighlock-kind") in (b"mirror", b"topup")
        self._id = random.randbytes(len(_ID) // 2).hex().encode() if self._engine.own_ids else _ID
        self._engine.running.setdefault(self._stream, []).append(self)
        self._transport.write(_ANSWER)

    def send_next(self) -> None:
        frames = self._engine.frames
        frame = frames[self._next]
        self._transport.write(frame.replace(_ID, self._id) if self._engine.own_ids else frame)
        self._next += 1
        if self._next == len(frames):
            self._leave()

    def _leave(self) -> None:
        others = [a for a in self._engine.running.get(self._stream, ()) if a is not self]
        if others:
            self._engine.running[self._stream] = others
        else:
            self._engine.running.pop(self._stream, None)


def _header(head: bytes, name: bytes) -> bytes:
    return head.partition(b"\r\n" + name + b":")[2].partition(b"\r")[0].strip()


class Client(asyncio.Protocol):
    """One connection of a client: `requests` streams, one after the other."""

    def __init__(self, name: str, requests: int) -> None:
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.stream = b""
        self.has_answer = False  # everything that was sent so far has come, and more will
        self._name, self._left, self._reads, self._is_first = name, requests, 0, True
        content = "x" * 1000
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": content}]}
        self._body = json.dumps(body).encode()
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or RuntimeError("the gate closed the connection"))

    def ask(self) -> None:
        """Send the next request."""
        self._left -= 1
        self.stream, self._is_first = f"{self._name}-{self._left}".encode(), True
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-tenant: acme\r\nx-stream: %b\r\n" % self.stream
        head += b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(self._body)
        self._transport.write(head + self._body)

    def data_received(self, data: bytes) -> None:
        self._reads += 1
        if self._is_first and not data.startswith(b"HTTP/1.1 200"):
            self.done.set_exception(RuntimeError(f"the gate answered {data[:200]!r}"))
            return
        self._is_first = False
        if not data.endswith(b"\r\n" + _END):
            self.has_answer = True
        elif self._left:
            self.ask()
        else:
            self.done.set_result(self._reads)
            self._transport.close()


async def _pump(engine: Engine, clients: Sequence[Client]) -> None:
    """Moves all streams on by one frame at a time until every client has its streams and every copy is written out."""
    waiting = list(clients)
    at_once = -(-len(clients) // len(engine.frames))
    deadline = time.monotonic() + _DEADLINE_S
    while not all(c.done.done() for c in clients) or engine.running:
        if time.monotonic() > deadline:
            raise RuntimeError("the streams do not end")
        # Clients begin one after the other, so that requests and endings are spread evenly over the frames.
        for _ in range(min(at_once, len(waiting))):
            waiting.pop().ask()
        for client in clients:
            if client.has_answer:
                client.has_answer = False
                engine.advance(client.stream)
        streams = {c.stream for c in clients if not c.done.done()}
        for stream in [s for s in engine.running if s not in streams]:
            engine.advance(stream)  # a copy that began after its original
        await asyncio.sleep(_STEP_S)


async def run_clients(engine: Engine, port: int, clients: int, requests: int) -> int:
    """`clients` connections at once, `requests` streams each; returns reads of all clients."""
    loop = asyncio.get_running_loop()
    connected = [Client(f"{port}-{n}", requests) for n in range(clients)]
    for client in connected:
        await loop.create_connection(partial(_itself, client), "127.0.0.1", port)
    await _pump(engine, connected)
    return sum([await client.done for client in connected])


def _itself(client: Client) -> Client:
    return client
