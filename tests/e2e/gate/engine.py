"""A small engine for gate tests: HTTP/1.1 on asyncio, streams chat completions, remembers what arrived."""

import asyncio
import json
from dataclasses import dataclass, field


@dataclass
class Arrival:
    path: str
    headers: dict[str, str]
    body: bytes
    ended: str = "open"  # open | served | lost


@dataclass
class FakeEngine:
    """tokens: content events per stream; delay_s: before the first token; gap_s: between tokens; status: answer of
    every request; hang: accept and never answer; cut: bytes per write (frames split anywhere)."""

    name: str = "engine"
    tokens: int = 5
    delay_s: float = 0.0
    gap_s: float = 0.0
    status: int = 200
    hang: bool = False
    cut: int = 0
    text: str = "tok"
    host: str = "127.0.0.1"
    arrivals: list[Arrival] = field(default_factory=list)

    async def start(self) -> "FakeEngine":
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = await asyncio.start_server(self._serve, self.host, getattr(self, "port", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """Die as a killed pod does: the port closes and every connection is reset."""
        self._server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:] if line)}
        body = await self._body(reader, headers)
        arrival = Arrival(lines[0].split(" ")[1], headers, body)
        self.arrivals.append(arrival)
        try:
            await self._answer(reader, writer, body)
            arrival.ended = "served"
        except (ConnectionError, asyncio.IncompleteReadError):
            arrival.ended = "lost"
            raise
        return True

    async def _body(self, reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            parts = []
            while size := int(await reader.readline(), 16):
                parts.append(await reader.readexactly(size))
                await reader.readline()
            await reader.readline()
            return b"".join(parts)
        return await reader.readexactly(int(headers.get("content-length", "0")))

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
        if self.hang and await reader.read(1) == b"":
            raise ConnectionError
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        asked = json.loads(body) if body[:1] == b"{" else {}
        if self.status != 200:
            answer = b'{"error":{"message":"no"}}'
            writer.write(self._head(self.status, "application/json", len(answer)) + answer)
        elif asked.get("stream"):
            await self._stream(writer, asked)
        else:
            usage = {"prompt_tokens": 7, "completion_tokens": self.tokens}
            choice = {"index": 0, "message": {"role": "assistant", "content": self.name}, "finish_reason": "stop"}
            answer = json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}).encode()
            writer.write(self._head(200, "application/json", len(answer)) + answer)
        await writer.drain()

    def _head(self, status: int, kind: str, length: int | None) -> bytes:
        size = f"content-length: {length}" if length is not None else "transfer-encoding: chunked"
        return f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{size}\r\n\r\n".encode()

    def frames(self, asked: dict) -> list[bytes]:
        start = {"id": "c", "object": "chat.completion.chunk", "model": "m"}
        out = [{**start, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}]
        out += [
            {**start, "choices": [{"index": 0, "delta": {"content": f"{self.text}{i}"}}]} for i in range(self.tokens)
        ]
        out.append({**start, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        if (asked.get("stream_options") or {}).get("include_usage"):
            out.append({**start, "choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": self.tokens}})
        lines = [f"data: {json.dumps(o, ensure_ascii=False)}\n\n".encode() for o in out]
        return [*lines, b"data: [DONE]\n\n"]

    async def _stream(self, writer: asyncio.StreamWriter, asked: dict) -> None:
        writer.write(self._head(200, "text/event-stream", None))
        for frame in self.frames(asked):
            cut = self.cut or len(frame)
            for at in range(0, len(frame), cut):
                part = frame[at : at + cut]
                writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
                if self.cut:
                    await writer.drain()
                    await asyncio.sleep(0)
            if self.gap_s:
                await writer.drain()
                await asyncio.sleep(self.gap_s)
        writer.write(b"0\r\n\r\n")
