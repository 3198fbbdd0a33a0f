"""Unix time that never jumps: wall time at the start plus a clock that also counts while the machine sleeps."""

import threading
import time

_SLEW = 0.005  # drift against the wall clock is made up at half a percent, so a jump of it never shows as one


def _steady() -> float:
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class SteadyClock:
    """Implements `controller.ports.Clock`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steady_s = _steady()
        self._now_s = time.time()

    def now(self) -> float:
        """Unix seconds; never goes back, follows the wall clock slowly."""
        with self._lock:
            steady_s = _steady()
            elapsed_s = max(0.0, steady_s - self._steady_s)
            self._steady_s = steady_s
            behind_s = time.time() - (self._now_s + elapsed_s)
            self._now_s += elapsed_s + max(-_SLEW * elapsed_s, min(_SLEW * elapsed_s, behind_s))
            return self._now_s
