"""Turns the batcher's steps into real time on the event loop, with the engine-level faults. Used by ``service.py``.

Steps follow each other on a virtual clock: a late wake-up (timers have millisecond resolution, the host may be busy)
delays one delivery but not the next step, so the modelled throughput does not depend on the machine.
``host_lag_seconds`` says how late.
"""

import asyncio
import os
import sys

from tools.enginesim.batcher import Batcher
from tools.enginesim.faults import FaultBoard
from tools.enginesim.sequence import Sequence

RESYNC_SECONDS = 2.0  # behind by more than this, the simulator gives up catching up and says so in its lag gauge


class Engine:
    """Drives one batcher; sleeps when there is no work."""

    def __init__(self, batcher: Batcher, faults: FaultBoard, loop: asyncio.AbstractEventLoop) -> None:
        self.batcher = batcher
        self.faults = faults
        self.loop = loop
        self.host_lag_seconds = 0.0
        self.host_lag_max_seconds = 0.0
        self.resyncs = 0
        self._step_end: float | None = None
        self._stalled_until = 0.0

    @property
    def busy(self) -> bool:
        """Requests are queued or running."""
        return bool(self.batcher.running or self.batcher.waiting)

    def submit(self, sequence: Sequence) -> None:
        """Queues a request, and wakes the engine if it sleeps."""
        self.batcher.submit(sequence)
        if self._step_end is None:
            self._begin(self.loop.time())

    def abort(self, sequence: Sequence) -> None:
        """Takes a request out."""
        self.batcher.abort(sequence)

    def apply_faults(self) -> None:
        """After a change on the control port: crash or stall at once, wake up after a hang."""
        now = self.loop.time()
        self._one_off_faults(now)
        if self._step_end is None and self.busy:
            self._begin(now)

    def _one_off_faults(self, now: float) -> None:
        faults = self.faults.in_force(now)
        if faults.crash:
            print("enginesim: fault: crash", file=sys.stderr, flush=True)
            os._exit(1)
        if faults.gap_s:
            self._stalled_until = now + faults.gap_s
            self.faults.consume("gap_s")

    def _begin(self, start: float) -> None:
        self._one_off_faults(start)
        faults = self.faults.in_force(start)
        if faults.hang and not faults.filtered:
            self._step_end = None
            return
        self.batcher.slowdown = 1.0 if faults.filtered else faults.slow_at(len(self.batcher.running))
        start = max(start, self._stalled_until)
        seconds = self.batcher.begin_step(start)
        if seconds is None:
            self._step_end = None
            return
        self._step_end = start + seconds
        now = self.loop.time()
        if self._step_end > now:
            self.loop.call_at(self._step_end, self._tick)
        else:
            self.loop.call_soon(self._tick)

    def _tick(self) -> None:
        end = self._step_end
        if end is None:
            return
        now = self.loop.time()
        if end - now > 1e-3:  # a timer that fired early
            self.loop.call_at(end, self._tick)
            return
        if self._stalled_until > end:
            self._step_end = self._stalled_until
            self.loop.call_at(self._stalled_until, self._tick)
            return
        lag = max(0.0, now - end)
        self.host_lag_seconds = lag
        self.host_lag_max_seconds = max(self.host_lag_max_seconds, lag)
        self.batcher.end_step(end)
        if lag > RESYNC_SECONDS:
            self.resyncs += 1
            end = now
        self._begin(end)
