"""Absolute paths of a container, mapped to where its files really are. Pure.

A plain process has no mount namespace: a volume mounted at ``/etc/config`` lies below the container's root folder.
Arguments and environment values that name a mount path are rewritten; paths that a program has built in are not, they
are out of reach (see docs/development-cluster.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# What may stand before and after a path: the ends, blanks, and the punctuation of shells, flags, lists and JSON.
BEFORE = r"(?:^|(?<=[\s=:,;\"'(\[{<>|&`@]))"
AFTER = r"(?=$|[/\s=:,;\"')\]}<>|&`])"


class PathRewriter:
    """Rewrites the mount paths of one container to paths below `root`."""

    def __init__(self, root: str, mount_paths: Iterable[str]) -> None:
        cleaned = {path.rstrip("/") for path in mount_paths}
        longest_first = sorted((path for path in cleaned if path), key=len, reverse=True)
        self.root = root
        self.pattern = re.compile(BEFORE + "(" + "|".join(map(re.escape, longest_first)) + ")" + AFTER)
        self.is_empty = not longest_first

    def __call__(self, text: str) -> str:
        """`text` with every mount path in it (whole path components only) replaced."""
        if self.is_empty:
            return text
        return self.pattern.sub(lambda match: self.root + match.group(1), text)
