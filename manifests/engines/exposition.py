"""Prometheus exposition text -> samples; nothing about engines.

Called by :mod:`manifests.engines.metrics`. Lenient towards what real pages hold (no TYPE lines, elided lines,
timestamps, exemplars, exponents like ``e+010``), strict about what is no exposition at all (:class:`NotExposition`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_LINES = 500_000
_LINE = re.compile(
    r"^(?P<name>[a-zA-Z_:][\w:]*)\s*(?:\{(?P<labels>.*)\})?\s+(?P<value>[^\s#]+)(?:\s+-?[\d.eE+]+)?(?:\s+#.*)?$"
)
_LABEL = re.compile(r'\s*([a-zA-Z_][\w.]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_NUMBER = re.compile(r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$")


class NotExposition(ValueError):
    """A text that is no exposition; the message says why."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: name, labels in the order of the page, value (NaN where the page says so)."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


@dataclass(frozen=True, slots=True)
class Page:
    """All samples of a page and how many lines could not be read."""

    samples: tuple[Sample, ...]
    unreadable: int
    first_unreadable: str


def parse_exposition(text: str) -> Page:
    """Samples of a page.

    Raises:
        NotExposition: HTML, JSON, PromQL, or nothing that looks like a sample.
    """
    head = text.lstrip()[:1]
    if head in ("<", "{", "["):
        raise NotExposition("it is HTML" if head == "<" else "it is JSON")
    samples: list[Sample] = []
    unreadable, first = 0, ""
    for number, raw in enumerate(text.splitlines()):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        sample = _sample(line) if number < MAX_LINES else None
        if sample is None:
            unreadable += 1
            first = first or line[:60]
        else:
            samples.append(sample)
    if not samples:
        raise NotExposition("no line of it is a sample (NAME{LABELS} VALUE)")
    if unreadable > len(samples):
        raise NotExposition(f"most of its lines are no samples, the first is `{first}`")
    return Page(tuple(samples), unreadable, first)


def _sample(line: str) -> Sample | None:
    match = _LINE.match(line)
    if match is None:
        return None
    value = number(match["value"])
    if value is None:
        return None
    labels = _labels(match["labels"]) if match["labels"] is not None else ()
    return None if labels is None else Sample(match["name"], labels, value)


def _labels(text: str) -> tuple[tuple[str, str], ...] | None:
    out = []
    at = 0
    while at < len(text) and text[at:].strip():
        match = _LABEL.match(text, at)
        if match is None:
            return None
        out.append((match[1], re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], match[2])))
        at = match.end()
    return tuple(out)


def number(text: str) -> float | None:
    """A sample's value or a bucket's edge: decimal, NaN, +Inf, -Inf; None for anything else."""
    lowered = text.lower()
    if lowered in ("nan", "+inf", "inf", "-inf"):
        return float(lowered)
    return float(text) if _NUMBER.match(text) and len(text) < 60 else None
