"""`weighlock read-stream`: what the gate's meter reads in a recorded response body."""

import argparse
import gzip
import io
import json
import re
import zlib
from typing import Any

from controller.cli.errors import BadInput
from controller.cli.input_files import read_whole
from controller.cli.output import emit
from shadow.stream import Meter, Reading

MAX_BYTES = 256 * 2**20

_GZIP = b"\x1f\x8b"
_HEAD = re.compile(rb"\s*HTTP/\d(?:\.\d)? +\d{3}")
_FIELD = re.compile(rb"^(data|event|id|retry)(:|$)|^:", re.MULTILINE)
_REMEDY = "give a recorded response: server-sent events, chunk objects as JSON lines or an array, or an HTTP dump"


def register(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("file", metavar="FILE", help="recorded response body; - is standard input")


def run(args: argparse.Namespace) -> int:
    """Read the file and print the meter's reading; 0 whatever the outcome of the stream."""
    reading = read_body(args.file, _bytes_of(args.file))
    emit(args, reading.to_dict(), lambda: _text(reading))
    return 0


def _bytes_of(name: str) -> bytes:
    data = read_whole(name, MAX_BYTES, _REMEDY)
    if not data.startswith(_GZIP):
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            unpacked = file.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(name, "", "is a damaged gzip file", _REMEDY) from error
    if len(unpacked) > MAX_BYTES:
        raise BadInput(name, "", "unpacks to more than is read", _REMEDY)
    return unpacked


def read_body(name: str, data: bytes) -> Reading:
    """Reading of one recorded response, told by its content; BadInput where there is no stream in it."""
    meter = Meter()
    if _HEAD.match(data):
        data = _body_of_dump(data)
    stripped = data.removeprefix(b"\xef\xbb\xbf").lstrip()
    if stripped[:1] in (b"{", b"["):
        _read_chunks(name, meter, stripped)
    else:
        _read_events(name, meter, data)
    return meter.reading()


def _read_events(name: str, meter: Meter, data: bytes) -> None:
    text = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if not _FIELD.search(text.removeprefix(b"\xef\xbb\xbf")):
        raise BadInput(name, "", "holds no stream", _REMEDY)
    meter.feed(data)
    meter.finish()


def _read_chunks(name: str, meter: Meter, data: bytes) -> None:
    for item in _chunk_objects(name, data):
        entry: Any = item
        event: str | None = None
        if isinstance(item, dict) and not _is_chunk(item) and "data" in item:
            entry, event = item["data"], item.get("event")
            for comment in item.get("comment") or ():
                meter.comment(str(comment).encode())
        if entry is None:
            continue
        text = entry if isinstance(entry, str) else json.dumps(entry, ensure_ascii=False)
        meter.chunk(text.encode(), event.encode() if isinstance(event, str) else None)


def _is_chunk(item: dict[str, Any]) -> bool:
    return any(key in item for key in ("choices", "object", "type", "error", "usage"))


def _chunk_objects(name: str, data: bytes) -> list[Any]:
    """Chunk objects of an array, a test case with `input_stream`, one object, or JSON lines."""
    try:
        whole = json.loads(data)
    except ValueError:
        return _lines(name, data)
    if isinstance(whole, dict) and isinstance(whole.get("input_stream"), list):
        whole = whole["input_stream"]
    found = whole if isinstance(whole, list) else [whole]
    if not found or not all(isinstance(item, dict) for item in found):
        raise BadInput(name, "", "is JSON but holds no chunk objects", _REMEDY)
    return found


def _lines(name: str, data: bytes) -> list[Any]:
    found: list[Any] = []
    lines = [line.strip() for line in data.splitlines() if line.strip()]
    for number, line in enumerate(lines, start=1):
        if line == b"[DONE]":
            found.append("[DONE]")
            continue
        try:
            found.append(json.loads(line))
        except ValueError as error:
            if number == len(lines) and found:
                break  # a stream that was cut in its last chunk
            raise BadInput(name, f"line {number}", "is no JSON object", _REMEDY) from error
    if not any(isinstance(item, dict) for item in found):
        raise BadInput(name, "", "holds no chunk objects", _REMEDY)
    return found


def _body_of_dump(data: bytes) -> bytes:
    """Body of an HTTP dump, out of its chunks where they were recorded."""
    for gap in (b"\r\n\r\n", b"\n\n"):
        head, found, body = data.lstrip().partition(gap)
        if found and b"\n" in head:
            break
    else:
        return b""
    if b"chunked" in head.lower() and re.match(rb"[0-9a-fA-F]+[ \t]*(;[^\r\n]*)?\r\n", body):
        return _unchunk(body)
    return body


def _unchunk(body: bytes) -> bytes:
    parts = []
    while found := re.match(rb"\s*([0-9a-fA-F]+)[^\r\n]*\r\n", body):
        size = int(found[1], 16)
        if size == 0:
            break
        parts.append(body[found.end() : found.end() + size])
        body = body[found.end() + size :]
    return b"".join(parts)


def _text(reading: Reading) -> str:
    rows = [(key.replace("_", " "), value) for key, value in reading.to_dict().items()]
    return "\n".join(f"{name:<20}  {'-' if value is None else value}" for name, value in rows)
