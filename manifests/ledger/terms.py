"""Terms, the finished ledger, and the book in which terms are collected while they build on each other.

Called by the modules of this package only (the ledger itself is what everybody else sees). A number without a formula
cannot be entered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from manifests.engines.profiles import Profile, profile_of
from manifests.hardware import Accelerator
from manifests.layout import Layout
from manifests.model import Manifest
from manifests.models import ModelFacts


@dataclass(frozen=True, slots=True)
class Term:
    """One number: name, formula with its inputs filled in, value, unit; ``estimate`` marks what is no exact size."""

    name: str
    formula: str
    value: float | int | None
    unit: str
    estimate: bool = False

    def to_json(self) -> dict[str, Any]:
        """The shape of one entry of ``terms``."""
        out: dict[str, Any] = {"name": self.name, "formula": self.formula, "value": self.value, "unit": self.unit}
        return out | {"estimate": True} if self.estimate else out


@dataclass(frozen=True)
class Ledger:
    """The accounts of one manifest, per accelerator."""

    weights_bytes: int | None
    kv_bytes_per_token: float | None
    kv_capacity_tokens: int | None
    max_sequences: int | None
    step_floor_s: float | None
    terms: tuple[Term, ...]
    fits: bool | None
    unknown: tuple[str, ...]
    model: str | None = None
    hardware: str | None = None
    context_tokens: int | None = None
    concurrency: int | None = None
    gpus: int = field(default=1)

    def to_json(self) -> dict[str, Any]:
        """The shape of ``weighlock ledger -o json``."""
        return {
            "weights_bytes": self.weights_bytes,
            "kv_bytes_per_token": whole(self.kv_bytes_per_token),
            "kv_capacity_tokens": self.kv_capacity_tokens,
            "max_sequences": self.max_sequences,
            "step_floor_s": self.step_floor_s,
            "terms": [term.to_json() for term in self.terms],
            "fits": self.fits,
            "unknown": list(self.unknown),
            "model": self.model,
            "hardware": self.hardware,
            "context_tokens": self.context_tokens,
            "concurrency": self.concurrency,
            "gpus": self.gpus,
        }


@dataclass(slots=True)
class Book:
    """What one ledger is made from, and its terms so far.

    ``bandwidth``: bytes per second given by the caller, before the catalogue's. ``context``: tokens of a sequence.
    """

    manifest: Manifest
    part: Accelerator | None
    facts: ModelFacts | None
    layout: Layout
    concurrency: int | None
    context: int | None
    bandwidth: float | None
    terms: list[Term] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    @property
    def profile(self) -> Profile:
        """What is known of the engine."""
        return profile_of(self.manifest.engine.family)

    def value(self, *names: str) -> Any:
        """The value of the first of these settings that is written; None when none is."""
        for name in names:
            setting = self.manifest.settings.get(name)
            if setting is not None and setting.value is not None:
                return setting.value
        return None

    def size(self, names: tuple[str, ...]) -> int | None:
        """The first of these settings that is a positive whole number."""
        for name in names:
            value = self.value(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
        return None

    def add(self, name: str, formula: str, value: float, unit: str, estimate: bool = False) -> float:
        """Records a term and returns its value."""
        recorded = whole(value) if isinstance(value, float) and unit == "bytes" else value
        self.terms.append(Term(name, formula, recorded, unit, estimate))
        return value


def whole(value: float | None) -> float | int | None:
    """A float without a fraction as an int."""
    return int(value) if value is not None and float(value).is_integer() else value
