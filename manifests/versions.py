"""Engine versions in order: ``0.8.5.post2`` > ``0.8.5``; ``1.3.0rc1`` < ``1.3.0``; builds ``b4719`` < ``b6123``.

Only what engines really publish (PEP 440 releases, pre- and post-releases, build numbers); anything else is None, never
guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

Key = tuple[tuple[int, ...], int, int]
_VERSION = re.compile(r"^v?(\d{1,6}(?:\.\d{1,6}){0,4})(?:[.-]?(a|b|rc|dev|alpha|beta|post)\.?(\d{1,9})?)?(?:[+.-].*)?$")
_BUILD = re.compile(r"^b(\d{3,6})$")
_STAGE = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "rc": -1, "post": 1}


@lru_cache(maxsize=4096)
def version_key(text: str | None) -> Key | None:
    """A comparable key, None when the text is no version."""
    build = _BUILD.match(text.strip()) if text else None
    if build is not None:
        return (int(build[1]),), 0, 0
    match = _VERSION.match(text.strip()) if text else None
    if match is None:
        return None
    numbers = tuple(int(part) for part in match[1].split("."))
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers = numbers[:-1]
    stage = _STAGE[match[2]] if match[2] else 0
    return numbers, stage, int(match[3] or 0)


def bracket(version: str, sampled: Iterable[str]) -> tuple[str | None, str | None]:
    """The sampled versions around ``version``: (last not above, first not below); equal twice when it was sampled
    itself."""
    return _bracket(version, tuple(sampled))


@lru_cache(maxsize=1024)
def _bracket(version: str, sampled: tuple[str, ...]) -> tuple[str | None, str | None]:
    key = version_key(version)
    known = sorted((other, candidate) for candidate in sampled if (other := version_key(candidate)) is not None)
    if key is None:
        return None, None
    below = [candidate for other, candidate in known if other <= key]
    above = [candidate for other, candidate in known if other >= key]
    return below[-1] if below else None, above[0] if above else None
