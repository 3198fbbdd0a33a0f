"""Faults that can be switched on: what is wrong, for whom, and from when. Read by ``engine.py`` and ``service.py``."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any


@dataclass(frozen=True)
class Faults:
    """All off by default.

    ``slow`` multiplies step times (with a filter: the work of the matching requests); ``gap_s`` is one stall of the
    whole engine, consumed when it happens; ``tenant`` and ``min_prompt_tokens`` limit request-level faults to
    matching requests; ``min_running`` keeps ``slow`` away from a lightly loaded engine; ``after_s`` /
    ``after_requests`` count from the start.
    """

    slow: float = 1.0
    hang: bool = False
    error_rate: float = 0.0
    crash: bool = False
    gap_s: float = 0.0
    empty_rate: float = 0.0
    wrong_tokens: bool = False
    tenant: str | None = None
    min_prompt_tokens: int = 0
    min_running: int = 0
    after_s: float = 0.0
    after_requests: int = 0

    @property
    def filtered(self) -> bool:
        """Only some requests are meant."""
        return self.tenant is not None or self.min_prompt_tokens > 0

    def slow_at(self, running: int) -> float:
        """The factor for an engine with this many running requests."""
        return self.slow if running >= self.min_running else 1.0

    def matches(self, tenant: str | None, prompt_tokens: int) -> bool:
        """Whether a request is meant."""
        return (self.tenant is None or self.tenant == tenant) and prompt_tokens >= self.min_prompt_tokens


NO_FAULTS = Faults()
FIELD_TYPES: dict[str, type] = {field.name: type(field.default) for field in fields(Faults)} | {"tenant": str}


def update_faults(current: Faults, changes: Mapping[str, Any]) -> Faults:
    """``current`` with ``changes``; ``null`` sets a field back. ValueError names an unknown field or a wrong type."""
    values: dict[str, Any] = {}
    for key, value in changes.items():
        if key not in FIELD_TYPES:
            raise ValueError(f"unknown fault {key!r}; known: {', '.join(FIELD_TYPES)}")
        kind = FIELD_TYPES[key]
        if value is None:
            values[key] = getattr(NO_FAULTS, key)
        elif kind is float and isinstance(value, int | float) and not isinstance(value, bool):
            values[key] = float(value)
        elif isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            values[key] = value
        else:
            raise ValueError(f"fault {key!r} wants {kind.__name__}, not {value!r}")
    return replace(current, **values)


class FaultBoard:
    """The faults as set, and those in force at a moment."""

    def __init__(self, initial: Mapping[str, Any], started: float) -> None:
        self.set = update_faults(NO_FAULTS, initial)
        self.started = started
        self.requests = 0

    def in_force(self, now: float) -> Faults:
        """The faults that apply now, or none while a delay has not passed."""
        faults = self.set
        if faults is NO_FAULTS or now - self.started < faults.after_s or self.requests < faults.after_requests:
            return NO_FAULTS
        return faults

    def change(self, changes: Mapping[str, Any]) -> None:
        """Applies what the control port was told."""
        self.set = update_faults(self.set, changes)

    def consume(self, key: str) -> None:
        """A one-off fault has happened."""
        self.set = replace(self.set, **{key: getattr(NO_FAULTS, key)})

    def as_json(self) -> dict[str, Any]:
        """For the control port."""
        return asdict(self.set)
