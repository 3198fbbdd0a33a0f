"""Summaries that benchmark tools leave behind: read under our names, checked for plausibility, compared with care.

A report has no requests, only counts and percentiles of one run, so nothing sequential can be said about it: a
comparison here is one look with order-statistic bounds, widened to the percentiles that the tool wrote. Takes decoded
JSON; absent stays absent, never zero. Tools' names: inference-perf `time_to_first_token`, vLLM bench `ttft`, `tpot`,
`e2el`; inter-token latency of either is *not* our tpot.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from policies import blocks
from policies.intervals import order_statistic_ranks
from policies.verdict import Result

_INFERENCE_PERF = {
    "time_to_first_token": blocks.TTFT,
    "time_per_output_token": blocks.TPOT,
    "request_latency": blocks.E2E,
}
_VLLM_BENCH = {"ttft": blocks.TTFT, "tpot": blocks.TPOT, "e2el": blocks.E2E}


class ReportError(ValueError):
    """A document that is no report of a tool we know."""


@dataclass(frozen=True, slots=True)
class Summary:
    """One run at one load: requests that succeeded and failed, rates (None = not said), percentiles in seconds by
    metric.

    quantiles[metric]: ascending (fraction, value), 1.0 = maximum; means[metric]; output_tokens: mean per request.
    """

    tool: str
    succeeded: int
    failed: int
    requested_rps: float | None
    achieved_rps: float | None
    quantiles: Mapping[str, tuple[tuple[float, float], ...]]
    means: Mapping[str, float]
    output_tokens: float | None = None

    @property
    def keeps_up(self) -> bool | None:
        """Whether the offered load was served (within 5 %); None where the report does not say."""
        if self.requested_rps is None or self.achieved_rps is None:
            return None
        return self.achieved_rps >= 0.95 * self.requested_rps


def read_report(document: Any) -> Summary:
    """The summary of a decoded report; ReportError for what no known tool writes."""
    if isinstance(document, Mapping) and "successes" in document and "load_summary" in document:
        return _inference_perf(document)
    if isinstance(document, Mapping) and "completed" in document and any(k.endswith("_ttft_ms") for k in document):
        return _vllm_bench(document)
    raise ReportError("this is no report of inference-perf or vLLM bench")


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) and value >= 0 else None


def _inference_perf(document: Mapping[str, Any]) -> Summary:
    good, load = document["successes"], document["load_summary"]
    quantiles, means = {}, {}
    for theirs, ours in _INFERENCE_PERF.items():
        values = (good.get("latency") or {}).get(theirs)
        if not values:
            continue
        found = []
        for name, value in values.items():
            fraction = 0.5 if name == "median" else 1.0 if name == "max" else _fraction(name)
            number = _number(value)
            if fraction is not None and number is not None:
                found.append((fraction, number))
        quantiles[ours] = tuple(sorted(found))
        if (mean := _number(values.get("mean"))) is not None:
            means[ours] = mean
    return Summary(
        tool="inference-perf",
        succeeded=int(good.get("count") or 0),
        failed=int((document.get("failures") or {}).get("count") or 0),
        requested_rps=_number(load.get("requested_rate")),
        achieved_rps=_number(load.get("achieved_rate")),
        quantiles=quantiles,
        means=means,
        output_tokens=_number((good.get("output_len") or {}).get("mean")),
    )


def _fraction(name: str) -> float | None:
    try:
        return float(name[1:]) / 100.0 if name.startswith("p") else None
    except ValueError:
        return None


def _vllm_bench(document: Mapping[str, Any]) -> Summary:
    quantiles: dict[str, tuple[tuple[float, float], ...]] = {}
    means: dict[str, float] = {}
    for theirs, ours in _VLLM_BENCH.items():
        found = []
        for key, value in document.items():
            if key.endswith(f"_{theirs}_ms") and (number := _number(value)) is not None:
                name = key.removesuffix(f"_{theirs}_ms")
                fraction = 0.5 if name == "median" else _fraction(name)
                if fraction is not None:
                    found.append((fraction, number / 1000.0))
                elif name == "mean":
                    means[ours] = number / 1000.0
        if found:
            quantiles[ours] = tuple(sorted(found))
    completed = int(document["completed"])
    sent = _number(document.get("num_prompts"))
    tokens = _number(document.get("total_output_tokens"))
    return Summary(
        tool="vllm-bench",
        succeeded=completed,
        failed=max(0, int(sent) - completed) if sent is not None else 0,
        requested_rps=_number(document.get("request_rate")),
        achieved_rps=_number(document.get("request_throughput")),
        quantiles=quantiles,
        means=means,
        output_tokens=tokens / completed if tokens is not None and completed else None,
    )


def implausible(summary: Summary) -> list[str]:
    """What cannot be true in a report, in words: means that do not add up, percentiles that fall."""
    found = []
    for metric, values in summary.quantiles.items():
        if any(a[1] > b[1] * (1 + 1e-9) for a, b in pairwise(values)):
            found.append(f"{metric}: percentiles fall where they must rise")
    names = (blocks.TTFT, blocks.TPOT, blocks.E2E)
    if all(name in summary.means for name in names) and summary.output_tokens and summary.output_tokens >= 2:
        ttft, tpot, e2e = (summary.means[name] for name in names)
        sum_s = ttft + tpot * (summary.output_tokens - 1)
        if not 0.8 * e2e <= sum_s <= 1.25 * e2e:
            words = f"ttft + tpot x (tokens - 1) = {sum_s:.3g} s, but e2e is {e2e:.3g} s"
            found.append(f"{words}: tokens are counted twice, or tpot is not per token")
    return found


def quantile_interval(summary: Summary, metric: str, q: float, alpha: float) -> tuple[float | None, float | None]:
    """Bounds of a percentile, `alpha` on each side, at the percentiles that the tool wrote.

    None where there is none.
    """
    knots = summary.quantiles.get(metric, ())
    n = summary.succeeded
    if not knots or n < 1:
        return None, None
    lower, upper = order_statistic_ranks(n, q, alpha)
    low = [v for p, v in knots if lower is not None and math.ceil(p * (n - 1) + 1 - 1e-9) <= lower]
    high = [v for p, v in knots if upper is not None and math.floor(p * (n - 1) + 1 + 1e-9) >= upper]
    return (max(low) if low else None), (min(high) if high else None)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One look at two runs."""

    result: Result
    reason: str


def compare(
    stable: Summary, candidate: Summary, metric: str, q: float, margin: float, alpha: float = 0.05
) -> Comparison:
    """Whether the candidate's percentile keeps the margin, from two reports of the same offered load (one look)."""
    name = f"{metric} P{q * 100:g}"
    for arm, summary in (("stable", stable), ("candidate", candidate)):
        if metric not in summary.quantiles:
            return Comparison(Result.INCONCLUSIVE, f"{arm}'s report has no {metric}: absent is not zero")
    rates = stable.requested_rps, candidate.requested_rps
    if rates[0] is None or rates[1] is None or abs(rates[0] - rates[1]) > 0.15 * rates[0]:
        return Comparison(
            Result.INCONCLUSIVE, f"offered loads differ ({rates[0]} and {rates[1]} req/s): not comparable"
        )
    s, c = (quantile_interval(run, metric, q, alpha / 2) for run in (stable, candidate))
    words = f"{name}: candidate {_span(c)}, stable {_span(s)}, limit {1 + margin:g}x"
    if c[1] is not None and s[0] is not None and c[1] <= (1 + margin) * s[0]:
        return Comparison(Result.PASS, words)
    if c[0] is not None and s[1] is not None and c[0] > (1 + margin) * s[1]:
        return Comparison(Result.FAIL, words)
    return Comparison(Result.INCONCLUSIVE, words)


def _span(bounds: tuple[float | None, float | None]) -> str:
    low, high = ("?" if b is None else f"{b * 1000:.4g}" for b in bounds)
    return f"{low} to {high} ms"
