"""A thread beside a test: begun by `with`, told to stop and waited for at its end."""

import threading
from typing import Self

JOIN_SECONDS = 10.0


class Background:
    """What a subclass does in `work` runs beside the block; it ends when `has_ended` waits no longer."""

    def __enter__(self) -> Self:
        self._end = threading.Event()
        self._thread = threading.Thread(target=self.work, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(JOIN_SECONDS)

    def has_ended(self, within_seconds: float) -> bool:
        """Wait that long, and say whether the block has ended meanwhile."""
        return self._end.wait(within_seconds)

    def work(self) -> None:
        """The subclass's part."""
        raise NotImplementedError
