"""A thread that does its round every few seconds, and at once when something new is to be looked at.

Used by the readers whose answers people see (prometheus.py, witnesses.py); nobody waits for them.
"""

import threading
from collections.abc import Callable


class Rounds:
    """Starts at once and ends with the process, or when told.

    Args:
        look: one round; it handles its own errors.
        every_s: seconds between the end of a round and the next.
    """

    def __init__(self, name: str, look: Callable[[], None], every_s: float) -> None:
        self._look, self._every_s = look, every_s
        self._stop, self._wake = threading.Event(), threading.Event()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def wake(self) -> None:
        """Begin the next round now."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread after the round that it is in."""
        self._stop.set()
        self._wake.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            self._look()
            self._wake.wait(self._every_s)
