"""The lines of a diff under the thing that they act on, in the words of `weighlock diff`. Pure; called by render.py.

Knows the JSON of `weighlock diff -o json` only: an operator of another release may have written it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from manifests.words import CLASSES, MECHANISMS

_RANK = ("contract-change", "approximate", "distribution-exact", "semantic-exact", "none")
INERT = "none"


@dataclass(frozen=True, slots=True)
class Group:
    """Lines that act on one mechanism and need one kind of proof.

    words: what the mechanism is; answers: what becomes of the answers, "" where nothing changes.
    """

    mechanism: str
    correctness: str
    words: str
    answers: str
    lines: tuple[Mapping[str, Any], ...]

    @property
    def is_inert(self) -> bool:
        """Whether nothing of it reaches the engine."""
        return self.correctness == INERT


def groups(diff: Mapping[str, Any] | None) -> tuple[Group, ...]:
    """Groups, those that change answers most first; within one the order of the diff."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for line in (diff or {}).get("changes") or ():
        kind, ledgers = str(line.get("class") or INERT), line.get("ledgers") or ()
        is_inert = kind == INERT and not ledgers
        mechanism = "" if is_inert else str(line.get("mechanism") or "")
        found.setdefault((INERT if is_inert else kind, mechanism), []).append(line)
    ordered = sorted(found.items(), key=lambda item: _RANK.index(item[0][0]) if item[0][0] in _RANK else 0)
    return tuple(_group(kind, mechanism, lines) for (kind, mechanism), lines in ordered)


def _group(kind: str, mechanism: str, lines: list[Mapping[str, Any]]) -> Group:
    if kind == INERT and not mechanism:
        return Group("", kind, "Changes nothing here", "", tuple(lines))
    words = MECHANISMS.get(mechanism, mechanism.replace("_", " ") or "something that the catalogue does not know")
    return Group(mechanism, kind, words, CLASSES.get(kind, "") if kind != INERT else "", tuple(lines))
