"""Which request is sent when, and with which text. Deterministic by seed; no network, no clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from shadow.replay.traces import Row, Trace

BYTES_PER_TOKEN = 4
BLOCK_TOKENS = 512
_WORDS = ("lock", "barge", "canal", "weir", "sluice", "basin", "rope", "mule", "bank", "level", "ton", "gate")


@dataclass(frozen=True, slots=True)
class Planned:
    """One request to send, `at_s` seconds after the start."""

    at_s: float
    row: Row
    number: int


def plan(trace: Trace, rate_rps: float | None, duration_s: float | None, seed: int) -> list[Planned]:
    """The requests of a trace at their own times, or at `rate_rps`.

    A trace with times keeps its bursts: `rate_rps` stretches or squeezes them. One without times arrives as a Poisson
    process of that rate. Nothing that is due at `duration_s` or later is sent.

    Raises:
        ValueError: a trace without times and no rate.
    """
    times = _times(trace, rate_rps, seed)
    planned = [Planned(at, row, n) for n, (at, row) in enumerate(zip(times, trace.rows, strict=True))]
    return planned if duration_s is None else [p for p in planned if p.at_s < duration_s]


def _times(trace: Trace, rate_rps: float | None, seed: int) -> Iterator[float]:
    span = trace.span_s
    if span is None:
        if rate_rps is None:
            raise ValueError("the trace has no times: give --rate")
        return _poisson(len(trace.rows), rate_rps, seed)
    factor = 1.0 if rate_rps is None or span <= 0 else (len(trace.rows) / span) / rate_rps
    return ((row.t_s or 0.0) * factor for row in trace.rows)


def _poisson(count: int, rate_rps: float, seed: int) -> Iterator[float]:
    dice = Random(seed)
    at = 0.0
    for _ in range(count):
        at += dice.expovariate(rate_rps)
        yield at


class PromptWriter:
    """Prompt text of about a wanted number of tokens, four bytes each. Blocks of the same id are the same text, so
    that prompts which shared a prefix in the trace share one here; all else is different in every prompt."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def write(self, row: Row, number: int) -> str:
        """The prompt of one request; `number` makes it different from every other one."""
        wanted = max(1, row.prompt_tokens) * BYTES_PER_TOKEN
        size = BLOCK_TOKENS * BYTES_PER_TOKEN
        parts = [self._words(f"block {block}", size) for block in row.blocks[: wanted // size]]
        rest = wanted - sum(len(part) for part in parts)
        return "".join([*parts, self._words(f"request {number}", rest)])

    def _words(self, name: str, length: int) -> str:
        dice = Random(f"{self._seed} {name}")
        text = f"[{name}] "
        return (text + " ".join(dice.choices(_WORDS, k=length // 4 + 1)))[:length]
