"""The recorder's clock: Unix time that never jumps. A step of the system clock is followed slowly, so that no block
closes early or late because of it."""

import time
from collections.abc import Callable

_SLEW = 0.0005  # seconds of correction per second


class SteadyClock:
    """Monotonic time mapped to Unix time once, then slewed towards the system clock."""

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, system: Callable[[], float] = time.time
    ) -> None:
        self._monotonic, self._system = monotonic, system
        self._last = monotonic()
        self._offset = system() - self._last

    def now(self) -> float:
        """Unix seconds."""
        mono = self._monotonic()
        passed, self._last = mono - self._last, mono
        error = self._system() - (mono + self._offset)
        allowed = _SLEW * max(0.0, passed)
        self._offset += max(-allowed, min(allowed, error))
        return mono + self._offset
