"""Append-only logs that survive a kill: framed lines in segments, an index in memory, retention by age and size.

A line is `crc32 SPACE payload NEWLINE`. What a crash tore off the last line is cut away when the log is opened, so a
payload is either whole or was never there. Called by rollout.py; knows nothing of blocks.
"""

import os
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO


@dataclass(slots=True)
class _Segment:
    path: Path
    first: int  # number of its first line
    size: int
    newest_s: float


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    time_s: float
    segment: Path
    offset: int
    length: int


def frame(payload: bytes) -> bytes:
    """One line of the log."""
    return b"%08x %b\n" % (zlib.crc32(payload), payload)


def unframe(line: bytes) -> bytes | None:
    """The payload of a whole line (without its newline); None where it is damaged."""
    if len(line) < 9 or line[8:9] != b" ":
        return None
    payload = line[9:]
    return payload if line[:8] == b"%08x" % zlib.crc32(payload) else None


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(offset, payload) of the whole lines of a segment, up to the first damaged one."""
    with path.open("rb") as file:
        offset = 0
        for line in file:
            payload = unframe(line[:-1]) if line.endswith(b"\n") else None
            if payload is None:
                return
            yield offset, payload
            offset += len(line)


class Log:
    """Numbered payloads in one folder.

    Args:
        folder: where segments live; made when missing.
        time_of: Unix time of a payload, for look-ups and retention.
        max_age_s, max_bytes: what is older, or beyond, goes (whole segments, never the newest).
        segment_bytes: size at which a new segment begins.
    """

    def __init__(
        self,
        folder: Path,
        time_of: Callable[[bytes], float],
        *,
        max_age_s: float = 7 * 86400.0,
        max_bytes: int = 2 * 2**30,
        segment_bytes: int = 16 * 2**20,
    ) -> None:
        self._folder = folder
        self._time_of = time_of
        self._max_age_s, self._max_bytes, self._segment_bytes = max_age_s, max_bytes, segment_bytes
        self._segments: list[_Segment] = []
        self._lines: list[_Line] = []
        self._file: BinaryIO | None = None
        self.next_number = 0
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # who sent how much is for the recorder alone
        for path in sorted(folder.glob("*.log")):
            self._load(path)

    def _load(self, path: Path) -> None:
        segment = _Segment(path, int(path.stem), 0, 0.0)
        self.next_number = max(self.next_number, segment.first)
        for offset, payload in read_lines(path):
            time_s = self._time_of(payload)
            length = len(payload) + 10
            self._lines.append(_Line(self.next_number, time_s, path, offset, length))
            segment.size, segment.newest_s = offset + length, max(segment.newest_s, time_s)
            self.next_number += 1
        if path.stat().st_size > segment.size:
            os.truncate(path, segment.size)
        self._segments.append(segment)

    def append(self, payload: bytes, *, sync: bool = True) -> int:
        """Add a payload (one line of JSON); returns its number. With `sync` it is on disk when this returns."""
        segment = self._current()
        line, number, time_s = frame(payload), self.next_number, self._time_of(payload)
        assert self._file is not None
        self._file.write(line)
        self._file.flush()
        if sync:
            os.fsync(self._file.fileno())
        self._lines.append(_Line(number, time_s, segment.path, segment.size, len(line)))
        segment.size += len(line)
        segment.newest_s = max(segment.newest_s, time_s)
        self.next_number += 1
        return number

    def _current(self) -> _Segment:
        if self._segments and self._segments[-1].size < self._segment_bytes:
            if self._file is None:
                self._file = self._segments[-1].path.open("ab")
            return self._segments[-1]
        if self._file is not None:
            self._file.close()
        path = self._folder / f"{self.next_number:012d}.log"
        self._file = path.open("ab")
        sync_folder(self._folder)
        self._segments.append(_Segment(path, self.next_number, 0, 0.0))
        return self._segments[-1]

    def after(self, number: int, limit: int) -> list[bytes]:
        """Up to `limit` payloads numbered above `number`."""
        start = bisect_left(self._lines, number + 1, key=lambda line: line.number)
        return [self._read(line) for line in self._lines[start : start + limit]]

    def between(self, since_s: float, until_s: float, limit: int) -> list[bytes]:
        """Up to `limit` payloads whose time lies in [since, until)."""
        found = [line for line in self._lines if since_s <= line.time_s < until_s]
        return [self._read(line) for line in found[:limit]]

    def last(self) -> bytes | None:
        """The newest payload."""
        return self._read(self._lines[-1]) if self._lines else None

    def first_number(self) -> int:
        """Number of the oldest payload that is still there."""
        return self._lines[0].number if self._lines else self.next_number

    def _read(self, line: _Line) -> bytes:
        with line.segment.open("rb") as file:
            file.seek(line.offset)
            return file.read(line.length)[9:-1]

    def prune(self, now_s: float) -> None:
        """Drop segments that are too old or too much."""
        total = sum(s.size for s in self._segments)
        while len(self._segments) > 1:
            oldest = self._segments[0]
            if oldest.newest_s >= now_s - self._max_age_s and total <= self._max_bytes:
                return
            total -= oldest.size
            oldest.path.unlink(missing_ok=True)
            self._lines = [line for line in self._lines if line.segment != oldest.path]
            self._segments.pop(0)

    def close(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None


def sync_folder(folder: Path) -> None:
    """Make a new file's name durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
