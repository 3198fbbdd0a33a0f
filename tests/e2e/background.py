"""Threads beside a test: begun by `with`, told to stop and waited for at its end."""

import threading
from abc import ABC, abstractmethod
from typing import Self


class Background(ABC):
    """What a subclass does in `work` runs beside the block; it ends when `has_ended` waits no longer.

    Attributes:
        threads: how many do it; join_seconds: how long each may take to end.
    """

    threads = 1
    join_seconds = 10.0

    def __enter__(self) -> Self:
        self._end = threading.Event()
        self._running = [threading.Thread(target=self.work, daemon=True) for _ in range(self.threads)]
        for thread in self._running:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._running:
            thread.join(self.join_seconds)

    def has_ended(self, within_seconds: float) -> bool:
        """Wait that long, and say whether the block has ended meanwhile."""
        return self._end.wait(within_seconds)

    @abstractmethod
    def work(self) -> None:
        """The subclass's part."""
