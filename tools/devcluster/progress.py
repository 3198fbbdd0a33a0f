"""Progress of slow steps on stderr: a live line on a terminal, plain lines elsewhere. Knows nothing about the steps."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


class Step:
    """One running step; `update` replaces its detail."""

    def __init__(self, title: str, stream: TextIO) -> None:
        self.title, self.stream = title, stream
        self.started = time.monotonic()
        self.printed = self.started

    def update(self, detail: str) -> None:
        """Show `detail` at once on a terminal, elsewhere at most every 15 seconds."""
        now = time.monotonic()
        if self.stream.isatty():
            self.stream.write(f"\r\x1b[K{self.title}: {detail} ({now - self.started:.0f} s)"[:120])
            self.stream.flush()
        elif now - self.printed >= 15:
            self.printed = now
            print(f"{self.title}: {detail} ({now - self.started:.0f} s)", file=self.stream, flush=True)


@contextmanager
def step(title: str, stream: TextIO | None = None) -> Iterator[Step]:
    """Announce a step, and how long it took once it has ended without an error."""
    out = stream or sys.stderr
    current = Step(title, out)
    print(f"{title} ...", file=out, flush=True, end="" if out.isatty() else "\n")
    try:
        yield current
    except BaseException:
        print(f"{chr(13) if out.isatty() else ''}{title}: failed", file=out, flush=True)
        raise
    lead = "\r\x1b[K" if out.isatty() else ""
    print(f"{lead}{title}: done in {time.monotonic() - current.started:.1f} s", file=out, flush=True)
