"""Answers of pure functions, kept by content: digests, imports and diffs are made once.

Used by reads/ and live.py.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

T = TypeVar("T")
_KEPT = 512


class Memo:
    """The last few hundred answers of pure functions, by key."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The kept answer, or a new one."""
        if key not in self._kept:
            self._kept[key] = make()
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return cast(T, self._kept[key])
