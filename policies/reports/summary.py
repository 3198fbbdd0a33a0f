"""A run of a benchmark tool in numbers: counts, percentiles by metric, offered load; and what is not in the report.

Absent stays absent: what a tool left out, wrote as NaN, or measures by another formula is not here but in `absent`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from policies import blocks

LOAD_TOLERANCE = 0.15


class ReportError(ValueError):
    """A document that is no report of a tool we know."""


@dataclass(frozen=True, slots=True)
class Load:
    """What was offered. kind: `rate` (requests per second, open loop), `concurrency` (closed loop), `burst` (all at
    once).
    """

    kind: str
    value: float

    def is_like(self, other: "Load") -> bool:
        """Whether two runs had the same load, within 15 %."""
        return self.kind == other.kind and abs(self.value - other.value) <= LOAD_TOLERANCE * self.value

    def __str__(self) -> str:
        if self.kind == "rate":
            return f"{self.value:.3g} req/s"
        return f"{self.value:g} at once" if self.kind == "burst" else f"concurrency {self.value:g}"


@dataclass(frozen=True, slots=True)
class Summary:
    """One run at one load.

    load: None where the report does not say; achieved_rps: sent (or, where only that is known, completed) per second;
    quantiles[metric]: ascending (fraction, seconds), 1.0 = maximum; means[metric]: seconds; output_tokens,
    prompt_tokens: means per request; prompt_range: least and most prompt tokens; absent[metric]: why a metric that one
    would look for is not here.
    """

    tool: str
    succeeded: int
    failed: int
    load: Load | None
    achieved_rps: float | None
    quantiles: Mapping[str, Sequence[tuple[float, float]]]
    means: Mapping[str, float]
    output_tokens: float | None = None
    prompt_tokens: float | None = None
    prompt_range: tuple[float, float] | None = None
    absent: Mapping[str, str] = field(default_factory=dict)

    @property
    def keeps_up(self) -> bool | None:
        """Whether the offered rate was really sent and served (within 5 %); None where the report does not say."""
        if self.load is None or self.load.kind != "rate" or self.achieved_rps is None:
            return None
        return self.achieved_rps >= 0.95 * self.load.value


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a report: always a summary, and request records (without variant and tenant) where the tool wrote
    every request with its time.
    """

    summary: Summary
    records: tuple[dict[str, Any], ...] | None = None


def number(value: Any) -> float | None:
    """A finite number that is not negative; None for anything else, also for text, booleans and NaN."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) and value >= 0 else None


def positive(value: Any) -> float | None:
    """A finite number above zero: tools write 0 for what they did not measure."""
    found = number(value)
    return found if found else None


def first(raw: Mapping[str, Any], *names: str) -> Any:
    """The first of these fields that is there and not null."""
    return next((raw[name] for name in names if raw.get(name) is not None), None)


def mapping(value: Any) -> Mapping[str, Any]:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def fraction(name: str) -> float | None:
    """0.99 of `p99`, `P99`, `p99.9`, `median`, `max`; llm-d's `p99p9`, GuideLLM's `p999` and `p001`."""
    name = name.lower()
    if name in ("median", "max"):
        return 0.5 if name == "median" else 1.0
    if name in ("p999", "p001"):
        return 0.999 if name == "p999" else 0.001
    digits = name[1:].replace("p", ".") if name.startswith("p") else ""
    try:
        percent = float(digits)
    except ValueError:
        return None
    return round(percent / 100.0, 12) if 0 < percent < 100 else None


def read_quantiles(values: Mapping[str, Any], scale: float = 1.0) -> tuple[tuple[float, float], ...]:
    """Ascending (fraction, seconds) of an object of percentiles; `scale` is seconds per unit."""
    found = {}
    for name, value in values.items():
        part, amount = fraction(str(name)), number(value)
        if part is not None and amount is not None:
            found[part] = amount * scale
    return tuple(sorted(found.items()))


def quantiles_of(values: Iterable[float]) -> tuple[tuple[float, float], ...]:
    """Every value of a list as its own percentile."""
    ordered = sorted(values)
    last = max(1, len(ordered) - 1)
    return tuple((i / last, value) for i, value in enumerate(ordered)) if len(ordered) > 1 else ()


def summary_of(tool: str, records: Sequence[Mapping[str, Any]], load: Load | None, rps: float | None = None) -> Summary:
    """The summary of request records (times not needed)."""
    ok = [r for r in records if r["outcome"] == "ok"]
    values = {blocks.TTFT: [], blocks.E2E: [], blocks.TPOT: []}  # type: dict[str, list[float]]
    for record in ok:
        ttft, e2e, tokens = (record.get(name) for name in ("ttft_s", "e2e_s", "output_tokens"))
        for metric, value in ((blocks.TTFT, ttft), (blocks.E2E, e2e)):
            if value is not None:
                values[metric].append(value)
        if ttft is not None and e2e is not None and tokens is not None and tokens >= 2:
            values[blocks.TPOT].append((e2e - ttft) / (tokens - 1))
    prompts = [r["prompt_tokens"] for r in ok if r.get("prompt_tokens") is not None]
    tokens_out = [r["output_tokens"] for r in ok if r.get("output_tokens") is not None]
    gaps = [r["max_gap_s"] for r in ok if r.get("max_gap_s") is not None]
    values |= {blocks.MAX_GAP: gaps} if gaps else {}
    known = {metric: found for metric, found in values.items() if len(found) > 0.95 * len(ok)}
    return Summary(
        tool=tool,
        succeeded=len(ok),
        failed=sum(r["outcome"] not in ("ok", "open") for r in records),
        load=load,
        achieved_rps=rps,
        quantiles={metric: quantiles_of(found) for metric, found in known.items()},
        means={metric: sum(found) / len(found) for metric, found in known.items() if found},
        output_tokens=sum(tokens_out) / len(tokens_out) if tokens_out else None,
        prompt_tokens=sum(prompts) / len(prompts) if prompts else None,
        prompt_range=(min(prompts), max(prompts)) if prompts else None,
        absent={m: "unknown for more than 5 % of the requests" for m in values.keys() - known.keys() if values[m]},
    )
