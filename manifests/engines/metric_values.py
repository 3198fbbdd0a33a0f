"""Canonical metrics from samples: families looked up, series combined, units converted, histograms checked.

Called by :mod:`manifests.engines.metrics`. Knows the table of names, not which engine a page belongs to. A histogram is
never repaired: what is wrong with it is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from manifests.engines.exposition import Sample, number
from manifests.engines.metric_table import PREFIXES, RATIOS, Metric, Source
from manifests.engines.profiles import profile_of

_RANKS = frozenset({"tp_rank", "pp_rank"})


Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Series:
    """One series: its labels and either a value or a histogram (edge, cumulative count)."""

    labels: Labels
    value: float | None = None
    buckets: tuple[tuple[float, float], ...] | None = None
    total: float | None = None
    count: float | None = None


@dataclass(frozen=True, slots=True)
class Value:
    """A canonical metric: type, its combined value or histogram, and the series behind it."""

    kind: str
    raw_name: str
    labels: Labels
    series: tuple[Series, ...]
    value: float | None = None
    buckets: tuple[tuple[float, float], ...] | None = None
    total: float | None = None
    count: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The shape of one entry of ``metrics``."""
        out: dict[str, Any] = {"type": self.kind}
        if self.kind == "histogram":
            out |= _histogram_json(self.buckets, self.total, self.count)
        elif self.kind != "info":
            out["value"] = _plain(self.value)
        out |= {"labels": dict(self.labels), "raw_name": self.raw_name}
        if len(self.series) > 1:
            shared = set(self.labels)
            out["series"] = [self._series_json(series, shared) for series in self.series]
        return out

    def _series_json(self, series: Series, shared: set[tuple[str, str]]) -> dict[str, Any]:
        own: dict[str, Any] = {"labels": dict(pair for pair in series.labels if pair not in shared)}
        if self.kind == "histogram":
            return own | _histogram_json(series.buckets, series.total, series.count)
        return own | ({"value": _plain(series.value)} if self.kind != "info" else {})


def _plain(value: float | None) -> float | int | None:
    if value is None or math.isnan(value) or math.isinf(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _edge(value: float) -> float | int | str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return int(value) if value.is_integer() else value


def _histogram_json(
    buckets: tuple[tuple[float, float], ...] | None, total: float | None, count: float | None
) -> dict[str, Any]:
    listed = [[_edge(edge), _plain(number_)] for edge, number_ in buckets] if buckets is not None else None
    return {"buckets": listed, "sum": _plain(total), "count": _plain(count)}


def _sources(metric: Metric, column: str) -> tuple[Source, ...]:
    """Families of a canonical name in a column: of the table, else as the engine's profile states them."""
    found = metric.sources.get(column)
    return found if found is not None else tuple(Source(raw) for raw in profile_of(column).metrics.get(metric.name, ()))


class Reader:
    """Looks families up and combines their series."""

    def __init__(self, names: Mapping[str, list[Sample]], warnings: list[str]) -> None:
        self.names, self.warnings = names, warnings

    def metric(self, metric: Metric, column: str) -> Value | None:
        """One canonical metric of one column of the table; None when the page does not have it."""
        added = metric.plus.get(column)
        if added:
            return self._added(metric, column, added)
        found = [
            (raw, samples, source)
            for source in _sources(metric, column)
            for raw, samples in self._family(source, column, metric.kind)
        ]
        if not found:
            return None
        raw, samples, source = found[0]
        others = sorted({other for other, _, _ in found[1:] if other != raw})
        if others:
            self.warnings.append(f"{metric.name}: {raw} is taken; {', '.join(others)} mean the same and are left out")
        return self._value(metric, raw, samples, source)

    def _added(self, metric: Metric, column: str, sources: Iterable[Source]) -> Value | None:
        """Families that are added together (success + failure); one that is missing makes the sum unknown only if
        all are."""
        parts = [(raw, samples) for source in sources for raw, samples in self._family(source, column, metric.kind)]
        if not parts:
            return None
        samples = [sample for _, group in parts for sample in group]
        return self._value(metric, " + ".join(raw for raw, _ in parts), samples, Source(""))

    def _family(self, source: Source, column: str, kind: str) -> list[tuple[str, list[Sample]]]:
        out = []
        for prefix in PREFIXES.get(column) or profile_of(column).metric_prefixes:
            bases = [prefix + source.raw]
            if kind == "counter":
                bases.append(bases[0].removesuffix("_total") if source.raw.endswith("_total") else bases[0] + "_total")
            for base in bases:
                samples = self._samples(base, kind)
                if source.where is not None:
                    label, wanted = source.where
                    every = samples
                    samples = [sample for sample in samples if dict(sample.labels).get(label) in wanted]
                    if (
                        not samples
                        and every
                        and kind == "counter"
                        and any(label in dict(sample.labels) for sample in every)
                    ):
                        continue
                if samples:
                    out.append((base, samples))
        return out

    def _samples(self, base: str, kind: str) -> list[Sample]:
        if kind == "histogram":
            return [sample for suffix in ("_bucket", "_sum", "_count") for sample in self.names.get(base + suffix, ())]
        return list(self.names.get(base, ()))

    def _value(self, metric: Metric, raw: str, samples: list[Sample], source: Source) -> Value:
        if metric.kind == "histogram":
            return self._histogram(metric, raw, samples)
        series = [Series(sample.labels, self._known(metric, raw, sample.value * source.scale)) for sample in samples]
        shared = shared_labels(series)
        if metric.kind == "info":
            return Value(metric.kind, raw, shared, tuple(series), series[0].value)
        return Value(metric.kind, raw, shared, tuple(series), self._combined(metric, series))

    def _known(self, metric: Metric, raw: str, value: float) -> float | None:
        if math.isnan(value) or (metric.name in RATIOS and value == -1):
            self.warnings.append(f"{raw}: a value of {'NaN' if math.isnan(value) else '-1'} means unknown")
            return None
        return value

    def _combined(self, metric: Metric, series: list[Series]) -> float | None:
        if metric.over == "none":
            return series[0].value if len(series) == 1 else None
        known = [entry for entry in series if entry.value is not None]
        if len(known) < len(series) or not known:
            return None
        if metric.over == "max":
            return max(entry.value for entry in known if entry.value is not None)
        groups: dict[Labels, float] = {}
        for entry in known:
            key = tuple(sorted(pair for pair in entry.labels if pair[0] not in _RANKS))
            assert entry.value is not None
            ranked = any(name in _RANKS for name, _ in entry.labels)
            groups[key] = (
                max(groups.get(key, entry.value), entry.value) if ranked else groups.get(key, 0.0) + entry.value
            )
        return sum(groups.values())

    # --- histograms

    def _histogram(self, metric: Metric, raw: str, samples: list[Sample]) -> Value:
        table: dict[Labels, dict[str, Any]] = {}
        for sample in samples:
            labels = tuple(pair for pair in sample.labels if pair[0] != "le")
            entry = table.setdefault(tuple(sorted(labels)), {"labels": labels, "buckets": []})
            if sample.name.endswith("_bucket"):
                edge = number(dict(sample.labels).get("le", ""))
                if edge is None or math.isnan(edge):
                    self.warnings.append(f"{raw}: a bucket without a readable edge is left out")
                elif not math.isnan(sample.value):
                    entry["buckets"].append((edge, sample.value))
            else:
                entry["sum" if sample.name.endswith("_sum") else "count"] = (
                    None if math.isnan(sample.value) else sample.value
                )
        series = [
            Series(entry["labels"], None, tuple(sorted(entry["buckets"])) or None, entry.get("sum"), entry.get("count"))
            for entry in table.values()
        ]
        for one in series:
            self._check(raw, one)
        return self._added_histogram(metric, raw, series)

    def _check(self, raw: str, series: Series) -> None:
        buckets = series.buckets or ()
        counts = [count for _, count in buckets]
        reasons = []
        if any(later < earlier for earlier, later in pairwise(counts)):
            reasons.append("its counts fall")
        if not buckets or not math.isinf(buckets[-1][0]):
            reasons.append("it has no +Inf bucket" if buckets else "it has no buckets")
        elif series.count is not None and buckets[-1][1] != series.count:
            reasons.append(f"its +Inf bucket {buckets[-1][1]:g} is not its count {series.count:g}")
        if len(buckets) <= 2:
            reasons.append("its edges are cut off")
        if series.count is None:
            reasons.append("it has no count")
        if reasons:
            self.warnings.append(f"{raw}: {', '.join(reasons)}: no quantile can be had from it")

    def _added_histogram(self, metric: Metric, raw: str, series: list[Series]) -> Value:
        chosen = _one_per_rank(series)
        shared = shared_labels(series)
        total = total_of(entry.total for entry in chosen)
        count = total_of(entry.count for entry in chosen)
        edges = {tuple(edge for edge, _ in entry.buckets or ()) for entry in chosen}
        buckets: tuple[tuple[float, float], ...] | None = None
        if len(edges) == 1:
            lists = [entry.buckets or () for entry in chosen]
            buckets = (
                tuple((column[0][0], sum(count for _, count in column)) for column in zip(*lists, strict=True)) or None
            )
        elif len(edges) > 1:
            self.warnings.append(f"{raw}: its series have different bucket edges and are not added")
        return Value(metric.kind, raw, shared, tuple(series), None, buckets, total, count)


def _one_per_rank(series: list[Series]) -> list[Series]:
    """Series that differ only in a tensor or pipeline rank are the same requests: the largest counts."""
    out: dict[Labels, Series] = {}
    for entry in series:
        key = tuple(sorted(pair for pair in entry.labels if pair[0] not in _RANKS))
        old = out.get(key)
        if old is None or (entry.count or 0) > (old.count or 0):
            out[key] = entry
    return list(out.values())


def total_of(values: Iterable[float | None]) -> float | None:
    listed = list(values)
    return (
        None
        if any(value is None for value in listed) or not listed
        else sum(value for value in listed if value is not None)
    )


def shared_labels(series: list[Series]) -> Labels:
    common = set(series[0].labels) if series else set()
    for entry in series[1:]:
        common &= set(entry.labels)
    return tuple(pair for pair in series[0].labels if pair in common) if series else ()
