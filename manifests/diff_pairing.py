"""Which manifest of one side belongs to which of the other.

Called by :mod:`manifests.diff`. Pairs by name, container, role and rank, the most exact key first; what cannot be told
is refused with the names to choose from.
"""

from __future__ import annotations

from collections.abc import Sequence

from manifests.model import ImportResult, Manifest


class PairingError(Exception):
    """Old and new cannot be paired; ``choices`` are the names that ``--select`` takes."""

    def __init__(self, message: str, choices: Sequence[str]) -> None:
        super().__init__(message)
        self.choices = tuple(choices)


Side = Manifest | ImportResult | Sequence[Manifest]


def mark_of(manifest: Manifest) -> str:
    """``NAME/CONTAINER`` of a line's manifest; the name alone where the container is called the same."""
    return (
        f"{manifest.name}/{manifest.container}"
        if manifest.container and manifest.container != manifest.name
        else manifest.name
    )


def marks_of(manifests: Sequence[Manifest]) -> dict[int, str]:
    """``id`` -> mark of every manifest of a side; with role and rank, then with its document, where several share
    one."""
    out = {id(manifest): mark_of(manifest) for manifest in manifests}
    for more in (_by_role, _by_document):
        marks = list(out.values())
        out = {id(m): f"{out[id(m)]} ({more(m)})" if marks.count(out[id(m)]) > 1 else out[id(m)] for m in manifests}
    return out


def _by_role(manifest: Manifest) -> str:
    return " ".join(filter(None, (manifest.role, manifest.rank if manifest.rank != manifest.role else None)))


def _by_document(manifest: Manifest) -> str:
    return f"document {manifest.source.index}, {manifest.source.path}"


def side_of(side: Side, select: str | None) -> list[Manifest]:
    found = (
        [side] if isinstance(side, Manifest) else list(side.manifests) if isinstance(side, ImportResult) else list(side)
    )
    if select is None:
        return main_manifests(found)
    marks = marks_of(found)
    chosen = [m for m in found if select in (m.name, f"{m.name}/{m.container}", m.container, marks[id(m)])]
    if not chosen:
        raise PairingError(f"nothing is called `{select}`", [f"{m.name}/{m.container}" for m in found])
    return chosen


def main_manifests(found: list[Manifest]) -> list[Manifest]:
    """All manifests; two containers of one pod that both look like servers must be told apart by the caller."""
    seen: dict[tuple[str, str, str], Manifest] = {}
    for manifest in found:
        if manifest.role in ("sidecar", "router", "frontend") or manifest.engine.name == "unknown":
            continue
        key = (manifest.source.file, str(manifest.source.index), manifest.source.path.rsplit(".containers", 1)[0])
        if key in seen:
            choices = [f"{m.name}/{m.container}" for m in found]
            raise PairingError(f"`{manifest.name}` has two containers that look like model servers", choices)
        seen[key] = manifest
    return found


def pair(
    old: list[Manifest], new: list[Manifest]
) -> tuple[list[tuple[Manifest, Manifest]], list[tuple[Manifest, bool]]]:
    left, right = list(old), list(new)
    if not left or not right:
        side = "old" if not left else "new"
        raise PairingError(f"the {side} side has no manifest that serves", [])
    pairs: list[tuple[Manifest, Manifest]] = []
    keys = (
        lambda m: (m.name, m.container, m.role, m.rank),
        lambda m: (m.name, m.container, m.role, m.rank, m.source.index, m.source.path),
        lambda m: (m.name, m.container),
        lambda m: (m.name, m.role, m.rank),
        lambda m: (m.name, m.rank),
        lambda m: (m.role, m.rank, m.container),
        lambda m: (m.role, m.rank),
    )
    for key in keys:
        for first in list(left):
            found = [m for m in right if key(m) == key(first)]
            if len(found) == 1 and sum(key(m) == key(first) for m in left) == 1:
                pairs.append((first, found[0]))
                left.remove(first)
                right.remove(found[0])
    if len(left) == 1 and len(right) == 1:
        pairs.append((left.pop(), right.pop()))
    engines = [m for m in left + right if m.role not in ("sidecar", "router", "frontend")]
    if not pairs or (left and right and engines):
        raise PairingError("old and new cannot be paired by name or role", [mark_of(m) for m in [*left, *right]])
    order = {id(m): index for index, m in enumerate(new)}
    pairs.sort(key=lambda pair: order.get(id(pair[1]), 0))
    return pairs, [(m, False) for m in left] + [(m, True) for m in right]
