"""What a PromQL query measures, as far as its text says so without doubt.

Used by the readers of AnalysisTemplates and of Flagger's metrics. A query is never run. A latency must be a
`histogram_quantile` over a histogram whose name tells metric and unit; a share must divide two rates of which the upper
one is filtered by status. Everything else is `None` with a reason: a limit on an average, for example, has no
counterpart, because an average never decides here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from manifests.convert.draft import seconds_text

MIN, MAX = "min", "max"

_PLACEHOLDER = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_QUANTILE = re.compile(r"histogram_quantile\(\s*(0?\.\d+|1|0)\s*,", re.DOTALL)
_TAIL = re.compile(r"\)\s*([*/])\s*(\d+(?:\.\d+)?)\s*$")
_HISTOGRAM = re.compile(r"([A-Za-z_:][\w:.]*?)(?:_bucket)?\s*(?:\{|\[|\))")
_STATUS = re.compile(r"(?:\w*(?:code|status|class)\w*)\s*(=~|!~|!=|=)\s*\"([^\"]*)\"")
# name fragment -> our metric, in the order in which they are tried
_LATENCIES = (
    (re.compile(r"time_to_first_token|ttft"), "ttft"),
    (re.compile(r"time_per_output_token|inter_token_latency|tpot"), "tpot"),
    (re.compile(r"latency|duration|response_time|request_time|upstream_rq_time"), "e2e"),
)
_UNITS = (
    (re.compile(r"_milliseconds|_millis|_ms(_|$)|upstream_rq_time"), Decimal("0.001")),
    (re.compile(r"_microseconds|_us(_|$)"), Decimal("0.000001")),
    (re.compile(r"_seconds|_s(_|$)"), Decimal(1)),
)
_GOOD = re.compile(r"success|ok|\[?1?-?[1-4]")


@dataclass(frozen=True, slots=True)
class Measure:
    """What a number is: our metric, its percentile, what one unit of it is, and whether it counts bad requests."""

    metric: str
    percentile: str | None = None
    unit: Decimal = Decimal(1)  # seconds per unit of a latency; share per unit of a fraction
    bad: bool = False
    remark: str = ""

    def gate(self, threshold: Decimal, direction: str) -> dict[str, str] | None:
        """Our gate for `number >= threshold` (MIN) or `<= threshold` (MAX); None where that makes no sense."""
        if self.percentile is not None:
            if direction != MAX or threshold <= 0:
                return None
            return {"metric": self.metric, "percentile": self.percentile, "limit": seconds_text(threshold * self.unit)}
        share = threshold * self.unit
        if (direction == MIN) == self.bad or not 0 <= share <= 1:
            return None
        good = 1 - share if self.bad else share
        return {"metric": self.metric, "limit": f"{format((good * 100).normalize(), 'f')}%"}


BUILT_IN = {
    "request-success-rate": Measure("success", unit=Decimal("0.01")),
    "request-duration": Measure("e2e", "99", Decimal("0.001")),
}


def measure_of(query: str) -> Measure | str:
    """The measure of a PromQL query, or why it cannot be told."""
    text = _PLACEHOLDER.sub("x", query).strip()
    quantile = _QUANTILE.search(text)
    if quantile is not None:
        return _latency(text, quantile)
    upper, lower = _fraction(text)
    if lower is None:
        return "it is neither a percentile of a histogram nor a share of requests"
    if re.search(r"_sum\b", upper) and re.search(r"_count\b", lower):
        return "it is an average, and an average never decides here: gate a percentile"
    return _share(text, upper)


def _latency(text: str, quantile: re.Match[str]) -> Measure | str:
    names = [name for name in _HISTOGRAM.findall(text[quantile.end() :]) if "_" in name or ":" in name]
    name = next((n for n in names if any(p.search(n.lower()) for p, _ in _LATENCIES)), None)
    if name is None:
        return "the histogram's name does not say which latency it holds"
    metric = next(metric for pattern, metric in _LATENCIES if pattern.search(name.lower()))
    unit = next((unit for pattern, unit in _UNITS if pattern.search(name.lower())), None)
    if unit is None:
        return f"the name `{name}` does not say in which unit it counts"
    tail = _TAIL.search(text)
    if tail is not None:
        unit = unit * Decimal(tail[2]) if tail[1] == "/" else unit / Decimal(tail[2])
    percentile = format((Decimal(quantile[1]) * 100).normalize(), "f")
    if not 0 < Decimal(percentile) < 100:
        return f"the {percentile}th percentile cannot be gated"
    remark = "ours is a mean per request, theirs counts every token" if metric == "tpot" else ""
    return Measure(metric, percentile, unit, remark=remark)


def _share(text: str, upper: str) -> Measure | str:
    found = _STATUS.search(upper)
    if found is None:
        return "nothing in the query's numerator says which requests it counts"
    operator, value = found[1], found[2].lower()
    names_good = bool(_GOOD.match(value)) and not value.startswith(("4", "[45", "[4-5"))
    bad = names_good != (operator in ("=", "=~"))
    if re.match(r"\s*(?:100|1)(?:\.0+)?\s*-", text):
        bad = not bad
    percent = re.search(r"\*\s*100\b|\b100\s*[*-]", text) is not None
    remark = "a client's own errors (4xx) are not attempted here" if "4" in value and not names_good else ""
    return Measure("success", unit=Decimal("0.01") if percent else Decimal(1), bad=bad, remark=remark)


def _fraction(text: str) -> tuple[str, str | None]:
    """The text before and after the first division that is not inside a string."""
    quoted = False
    for at, letter in enumerate(text):
        if letter == '"' and text[at - 1 : at] != "\\":
            quoted = not quoted
        elif letter == "/" and not quoted:
            return text[:at], text[at + 1 :]
    return text, None
