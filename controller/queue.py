"""Which rollout to look at next: one entry per rollout, urgent ones first, back-off per rollout.

Called by reconcile.py (workers) and by everybody who notices a change. One rollout is never handled by two workers at
once; what is reported meanwhile is handled afterwards.
"""

import heapq
import threading
import time
from collections.abc import Callable

FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 60.0


class WorkQueue:
    """Rate-limited set of keys with due times."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._heap: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}
        self._busy: set[str] = set()
        self._failures: dict[str, int] = {}
        self._is_closed = False

    def add(self, key: str, after_s: float = 0.0, urgent: bool = False) -> None:
        """Look at `key` no later than in `after_s` seconds; urgent: before everything that is due."""
        due_s = 0.0 if urgent else self._clock() + max(0.0, after_s)
        with self._changed:
            if self._due.get(key, float("inf")) <= due_s:
                return
            self._due[key] = due_s
            heapq.heappush(self._heap, (due_s, key))
            self._changed.notify()

    def retry(self, key: str, least_s: float = 0.0) -> float:
        """Look again after a failure: 0.5 s, doubled each time up to a minute. Returns the pause."""
        with self._changed:
            count = self._failures[key] = self._failures.get(key, 0) + 1
        pause_s = max(least_s, min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** min(count - 1, 10)))
        self.add(key, pause_s)
        return pause_s

    def succeeded(self, key: str) -> None:
        """Forget failures."""
        with self._changed:
            self._failures.pop(key, None)

    def take(self, timeout_s: float) -> str | None:
        """The next key that is due; None after the timeout or when closed. `done` must follow."""
        deadline_s = self._clock() + timeout_s
        with self._changed:
            while not self._is_closed:
                key, wait_s = self._pop_due()
                if key is not None:
                    self._busy.add(key)
                    return key
                left_s = deadline_s - self._clock()
                if left_s <= 0:
                    return None
                self._changed.wait(min(left_s, wait_s))
            return None

    def done(self, key: str) -> None:
        """A worker has finished with a key."""
        with self._changed:
            self._busy.discard(key)
            self._changed.notify()

    def close(self) -> None:
        """Let all workers go."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _pop_due(self) -> tuple[str | None, float]:
        """(a key that is due and free, or None; seconds until the next one)."""
        now_s = self._clock()
        held: list[tuple[float, str]] = []
        found, wait_s = None, 60.0
        while self._heap:
            due_s, key = self._heap[0]
            if self._due.get(key) != due_s:
                heapq.heappop(self._heap)  # an entry that a sooner one replaced
                continue
            if due_s > now_s:
                wait_s = due_s - now_s
                break
            heapq.heappop(self._heap)
            if key in self._busy:
                held.append((due_s, key))
                continue
            del self._due[key]
            found = key
            break
        for entry in held:
            heapq.heappush(self._heap, entry)
        return found, wait_s
