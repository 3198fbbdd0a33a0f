"""How far a long command is: one line on the terminal, rewritten; nothing where stderr is no terminal.

Used by `judge`. Knows no files of its own: the caller says what is being done and which part of it is done.
"""

import io
import sys
import time
from collections.abc import Callable
from typing import IO

SECONDS = 0.5
"""The line is written again at most this often."""


class Progress:
    """`doing` names the work, a call with a part (0..1) shows it, `done` clears the line."""

    def __init__(self, stream: IO[str] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_shown = self._stream.isatty()
        self._clock = clock
        self._since = clock()  # what is over within `SECONDS` is never announced
        self._words, self._width = "", 0

    def doing(self, words: str) -> "Progress":
        """What the following parts are parts of."""
        self._words = words
        return self

    def __call__(self, part: float) -> None:
        now = self._clock()
        if not self._is_shown or now - self._since < SECONDS:
            return
        self._since = now
        line = f"weighlock: {self._words} {min(part, 1.0):.0%}"
        print(f"\r{line:<{self._width}}", end="", file=self._stream, flush=True)
        self._width = len(line)

    def done(self) -> None:
        """Clear the line, so that warnings begin in an empty one."""
        if self._width:
            print(f"\r{'':<{self._width}}\r", end="", file=self._stream, flush=True)
            self._width = 0


class Watched(io.RawIOBase):
    """A binary stream of `size` bytes that tells `progress` which part of it was read."""

    def __init__(self, raw: IO[bytes], size: int, progress: Callable[[float], None]) -> None:
        self._raw, self._size, self._progress, self._read = raw, max(1, size), progress, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        content = self._raw.read(len(buffer))
        buffer[: len(content)] = content
        self._read += len(content)
        self._progress(self._read / self._size)
        return len(content)
