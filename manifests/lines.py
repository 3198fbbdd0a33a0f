"""The lines of a diff: a change with all that is said of it, and what cannot be known. Values only, and their
words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from manifests.compare import Meaning
from manifests.words import CLASSES, ledger_words, mechanism_words

ROUNDING = "floating-point order may change, so near-ties may flip"


@dataclass(frozen=True, slots=True)
class Change:
    """One line: what changes, from what to what, why it is there, by which mechanism it acts and what must be
    proven."""

    setting: str
    old: Any
    new: Any
    origin: str
    mechanism: str
    ledgers: tuple[str, ...]
    correctness: str
    fp_reorder: bool
    witness: str | None
    why: str
    manifest: str | None = None
    counts: bool = True

    @property
    def is_effective(self) -> bool:
        """Whether the line can be seen in speed or answers."""
        return self.correctness != "none" or bool(self.ledgers)

    def to_json(self) -> dict[str, Any]:
        """The shape of one entry of ``changes``."""
        return {
            "setting": self.setting,
            "old": self.old,
            "new": self.new,
            "origin": self.origin,
            "mechanism": self.mechanism,
            "ledgers": list(self.ledgers),
            "class": self.correctness,
            "fp_reorder": self.fp_reorder,
            "witness": self.witness,
            "why": self.why,
            "manifest": self.manifest,
        }

    def sentence(self) -> str:
        """The line in plain words."""
        where = f"{self.manifest}: " if self.manifest else ""
        reason = f" ({self.reason()})" if self.reason() else ""
        if not self.is_effective:
            return f"{where}{self.setting} goes from {show(self.old)} to {show(self.new)} and changes nothing{reason}."
        return (
            f"{where}{self.setting} goes from {show(self.old)} to {show(self.new)}{reason}. It acts on "
            f"{mechanism_words(self.mechanism)} and moves {ledger_words(self.ledgers)}; "
            f"{self.correctness}: {CLASSES[self.correctness]}."
        )

    def reason(self) -> str:
        """``why`` without what every reader sees beside it: the class, and that a line was written."""
        parts = [part for part in self.why.split("; ") if part not in (ROUNDING, "written", "set")]
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that differs or may differ and cannot be known from the input."""

    what: str
    old: Any
    new: Any
    why: str
    manifest: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The shape of one entry of ``unresolved``."""
        return {"what": self.what, "old": self.old, "new": self.new, "why": self.why, "manifest": self.manifest}

    def sentence(self) -> str:
        """The entry in plain words."""
        where = f"{self.manifest}: " if self.manifest else ""
        return f"{where}{self.what} cannot be resolved: {self.why}."


def change(
    setting: str, old: Any, new: Any, origin: str, meaning: Meaning, why: str | None = None, counts: bool = True
) -> Change:
    """A line from what is known about the thing that changes."""
    notes = [part for part in (why, meaning.note) if part]
    if not notes:
        notes = ["set" if old is None else "no longer set" if new is None else "written"]
    if meaning.fp_reorder and meaning.correctness == "semantic-exact":
        notes.append(ROUNDING)
    ignored = bool(why and why.startswith("ignored"))
    return Change(
        setting,
        old,
        new,
        origin,
        meaning.mechanism,
        () if ignored else meaning.ledgers,
        "none" if ignored else meaning.correctness,
        meaning.fp_reorder,
        meaning.witness,
        "; ".join(notes),
        None,
        counts,
    )


def show(value: Any) -> str:
    """A value as it is read best: text bare, null as "unset", the rest as JSON."""
    if value is None:
        return "unset"
    if isinstance(value, str):
        return (
            value
            if value and len(value) < 80 and not value.isspace() and value.isprintable()
            else json.dumps(value[:77] + "..." if len(value) > 80 else value)
        )
    text = json.dumps(value, sort_keys=True, default=str)
    return text if len(text) <= 120 else text[:117] + "..."
