"""What a metrics provider's answer is worth: empty is not zero, buckets have edges, one pod counts once. Takes
decoded values.

Used by the Prometheus adapter of the controller and for users who have no gate of ours. Whatever cannot carry a
verdict is a Hold with a reason; nothing is interpolated inside a bucket.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policies.verdict import Hold, HoldReason


@dataclass(frozen=True, slots=True)
class Sample:
    """One instant value with its labels."""

    labels: Mapping[str, str]
    value: float


def read_vector(body: Any, is_error_count: bool = False, ledger_requests: int = 0) -> list[Sample] | Hold:
    """Samples of an instant query's JSON body, or why there are none.

    An empty vector of an error counter means zero only while the recorder saw requests (`ledger_requests`).
    """
    entries = _entries(body)
    if isinstance(entries, Hold):
        return entries
    try:
        samples = [Sample(dict(entry["metric"]), float(entry["value"][1])) for entry in entries]
    except (KeyError, TypeError, ValueError, IndexError):
        return _unusable("the answer has no values in it")
    samples = [sample for sample in samples if math.isfinite(sample.value)]
    if samples:
        return samples
    if is_error_count and ledger_requests > 0:
        return [Sample({}, 0.0)]
    return Hold(HoldReason.NO_FRESH_DATA, "the query has no result: missing data is not good data")


def _entries(body: Any) -> list[Any] | Hold:
    """The entries of an instant vector, or why there are none."""
    if not isinstance(body, Mapping):
        return _unusable("the answer is no JSON object")
    if body.get("status") != "success":
        return _unusable(f"the query failed: {body.get('error') or body.get('status')}")
    if body.get("warnings"):
        return _unusable(f"the answer is partial: {'; '.join(map(str, body['warnings']))}")
    data = body.get("data")
    if not isinstance(data, Mapping) or data.get("resultType") != "vector" or not isinstance(data.get("result"), list):
        kind = data.get("resultType") if isinstance(data, Mapping) else None
        return _unusable(f"the answer is a {kind}, an instant vector is needed")
    return list(data["result"])


def _unusable(why: str) -> Hold:
    return Hold(HoldReason.PROVIDER_UNAVAILABLE, f"the metrics provider cannot be used: {why}")


def one_per_pod(
    samples: Iterable[Sample], ignored: Sequence[str] = ("job", "endpoint", "service", "container")
) -> tuple[list[Sample], list[str]]:
    """Samples without the doubles of pods that several jobs scrape, and the names of the doubled pods."""
    kept: dict[tuple[tuple[str, str], ...], Sample] = {}
    doubled = []
    for sample in samples:
        key = tuple(sorted((k, v) for k, v in sample.labels.items() if k not in ignored))
        if key in kept:
            doubled.append(sample.labels.get("pod") or sample.labels.get("instance", "?"))
            continue
        kept[key] = sample
    return list(kept.values()), sorted(set(doubled))


@dataclass(frozen=True, slots=True)
class ClassicHistogram:
    """A Prometheus classic histogram over one window: upper edges (ascending, the last one +Inf) and cumulative
    counts.
    """

    edges: tuple[float, ...]
    cumulative: tuple[float, ...]

    @property
    def total(self) -> float:
        """Number of values."""
        return self.cumulative[-1]

    def above(self, threshold: float) -> tuple[float, float]:
        """Least and largest number of values above any threshold; equal where it is an edge."""
        total = self.cumulative[-1]
        below = [c for e, c in zip(self.edges, self.cumulative, strict=True) if e <= threshold]
        at_or_over = [c for e, c in zip(self.edges, self.cumulative, strict=True) if e >= threshold]
        return total - at_or_over[0], total - (below[-1] if below else 0.0)

    def quantile_bounds(self, q: float) -> tuple[float, float] | None:
        """Edges (low, high] of the bucket with the nearest-rank quantile; high is inf in the overflow bucket.

        None when empty.
        """
        total = self.cumulative[-1]
        if total <= 0:
            return None
        rank = max(1.0, math.ceil(q * total - 1e-9))
        at = next(i for i, c in enumerate(self.cumulative) if c >= rank)
        return (self.edges[at - 1] if at else 0.0), self.edges[at]


@dataclass(frozen=True, slots=True)
class NativeHistogram:
    """A Prometheus native histogram: (low, high, count) of every bucket that holds something, in any order.

    Buckets may overlap, because pods can have different resolutions: a value is known to lie in its bucket, no more.
    """

    buckets: tuple[tuple[float, float, float], ...]

    @property
    def total(self) -> float:
        """Number of values."""
        return sum(count for _, _, count in self.buckets)

    def above(self, threshold: float) -> tuple[float, float]:
        """Least and largest number of values above any threshold; equal where no bucket straddles it."""
        least = sum(count for low, _, count in self.buckets if low >= threshold)
        return least, sum(count for _, high, count in self.buckets if high > threshold)

    def quantile_bounds(self, q: float) -> tuple[float, float] | None:
        """Edges (low, high] between which the nearest-rank quantile lies; None when empty."""
        if self.total <= 0:
            return None
        rank = max(1.0, math.ceil(q * self.total - 1e-9))
        edges = sorted({edge for low, high, _ in self.buckets for edge in (low, high)})
        high = next(e for e in edges if sum(n for _, top, n in self.buckets if top <= e) >= rank)
        low = max((e for e in edges if sum(n for bottom, _, n in self.buckets if bottom < e) < rank), default=0.0)
        return max(0.0, low), high

    def since(self, before: "NativeHistogram") -> "NativeHistogram | None":
        """What came after `before`; all of it after a reset; None where the buckets became finer in between."""
        left = {(low, high): count for low, high, count in self.buckets}
        for low, high, count in before.buckets:
            home = next(((a, b) for a, b in left if a <= low and high <= b), None)
            if home is None:
                overlaps = any(a < high and low < b for a, b in left)
                return None if overlaps and self.total >= before.total else self
            left[home] -= count
        if any(count < 0 for count in left.values()):
            return self
        return NativeHistogram(tuple((low, high, count) for (low, high), count in left.items() if count > 0))


Histogram = ClassicHistogram | NativeHistogram


def read_histograms(body: Any) -> list[tuple[Mapping[str, str], NativeHistogram]] | Hold:
    """Native histograms of an instant query's JSON body with their labels, or why there are none."""
    entries = _entries(body)
    if isinstance(entries, Hold):
        return entries
    found: list[tuple[Mapping[str, str], NativeHistogram]] = []
    try:
        for entry in entries:
            raw = entry["histogram"][1].get("buckets") or []
            buckets = tuple((float(low), float(high), float(count)) for _, low, high, count in raw)
            found.append((dict(entry["metric"]), NativeHistogram(tuple(b for b in buckets if b[2] > 0))))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return _unusable("the answer has no histograms in it")
    if not found:
        return Hold(HoldReason.NO_FRESH_DATA, "the query has no result: missing data is not good data")
    return found


def compare_quantile(stable: Histogram, candidate: Histogram, q: float, margin: float) -> Hold | None:
    """Why two histograms cannot say whether the candidate's quantile keeps the margin; None when their buckets can."""
    ours, theirs = candidate.quantile_bounds(q), stable.quantile_bounds(q)
    if ours is None or theirs is None:
        return Hold(HoldReason.NO_FRESH_DATA, "an arm has no requests in the window")
    (s_low, s_high), (c_low, c_high) = theirs, ours
    if math.isinf(c_high) or math.isinf(s_high):
        return Hold(HoldReason.TOO_COARSE, f"P{q * 100:g} lies in the overflow bucket: use the recorder's timings")
    classic = isinstance(stable, ClassicHistogram) and isinstance(candidate, ClassicHistogram)
    if classic and stable.edges != candidate.edges:  # type: ignore[union-attr]  # both are classic here
        words = f"the arms have different bucket edges: ({s_low:g}, {s_high:g}] against ({c_low:g}, {c_high:g}]"
        return Hold(HoldReason.TOO_COARSE, words)
    if c_low > s_high * (1 + margin) or c_high <= s_low * (1 + margin):
        return None
    words = f"too coarse for a margin of {margin:.0%}: ({s_low:g}, {s_high:g}] against ({c_low:g}, {c_high:g}]"
    return Hold(HoldReason.TOO_COARSE, words)
