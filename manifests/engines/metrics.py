"""An engine's ``/metrics`` under canonical names: absent is absent, a histogram is never repaired.

Called by ``weighlock metrics``, diagnose, witnesses and the recorder alike. The table is
:mod:`manifests.engines.metric_table`, reading the text is :mod:`manifests.engines.exposition`; here the engine is
told, series are combined, units converted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from manifests.engines.exposition import NotExposition, Page, Sample, number, parse_exposition
from manifests.engines.metric_table import METRICS, PREFIXES, RATIOS, VERSION_HINTS, Metric, Source
from manifests.engines.profiles import profile_of, profiles
from manifests.versions import version_key

__all__ = ["Metrics", "NotExposition", "Series", "Value", "parse_metrics"]
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


@dataclass(frozen=True, slots=True)
class Metrics:
    """A page: engine, what its families imply about the version, metrics by canonical name, warnings."""

    engine: str
    version_hint: str | None
    metrics: Mapping[str, Value]
    warnings: tuple[str, ...]

    def value(self, name: str) -> float | None:
        """The value of a gauge or counter, None when absent or unknown."""
        found = self.metrics.get(name)
        return found.value if found is not None else None

    def to_json(self) -> dict[str, Any]:
        """The shape of ``weighlock metrics -o json``."""
        return {
            "engine": self.engine,
            "version_hint": self.version_hint,
            "metrics": {name: value.to_json() for name, value in self.metrics.items()},
            "warnings": list(self.warnings),
        }


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


def parse_metrics(text: str) -> Metrics:
    """Reads a page.

    Raises:
        NotExposition: the text is no exposition (HTML, JSON, PromQL).
    """
    page = parse_exposition(text)
    names: dict[str, list[Sample]] = {}
    for sample in page.samples:
        names.setdefault(sample.name, []).append(sample)
    engine, columns = _engine(page, names)
    warnings = (
        [f"{page.unreadable} line(s) cannot be read, the first is `{page.first_unreadable}`"] if page.unreadable else []
    )
    reader = _Reader(names, warnings)
    out: dict[str, Value] = {}
    for metric in METRICS:
        for column in (*columns, "process"):
            found = reader.metric(metric, column)
            if found is not None and metric.name not in out:
                out[metric.name] = found
    _from_others(out, reader, columns)
    return Metrics(engine, _version_hint(names, columns), out, tuple(dict.fromkeys(warnings)))


def _engine(page: Page, names: Mapping[str, list[Sample]]) -> tuple[str, tuple[str, ...]]:
    """The engine of a page and the columns of the table that apply."""

    def has(*prefixes: str) -> bool:
        return any(name.startswith(prefixes) for name in names)

    inner = [
        (engine, column)
        for engine, column, prefixes in (
            ("vllm", "vllm", ("vllm:",)),
            ("sglang", "sglang", ("sglang:",)),
            ("trtllm", "trtllm", ("trtllm_", "trtllm:")),
        )
        if has(*prefixes)
    ]
    if has("dynamo_frontend_", "dynamo_component_"):
        return (f"dynamo-{inner[0][0]}", ("dynamo", inner[0][1])) if inner else ("dynamo", ("dynamo",))
    if has("nv_trt_llm_"):
        return "triton-trtllm", ("triton",)
    if inner and inner[0][0] == "vllm":
        labels = {
            key
            for name, samples in names.items()
            if name.startswith("vllm:")
            for sample in samples
            for key, _ in sample.labels
        }
        triton = {"model", "version"} <= labels and "model_name" not in labels
        return ("triton-vllm", ("vllm", "triton")) if triton else ("vllm", ("vllm",))
    if inner:
        return inner[0][0], (inner[0][1],)
    for engine, column, prefixes in (
        ("triton", "triton", ("nv_inference_",)),
        ("tgi", "tgi", ("tgi_",)),
        ("llamacpp", "llamacpp", ("llamacpp:",)),
        ("llm-d-epp", "epp", ("llm_d_epp_", "inference_objective_", "inference_pool_")),
    ):
        if has(*prefixes):
            return engine, (column,)
    for profile in profiles().values():
        if profile.metric_prefixes and has(*profile.metric_prefixes):
            return profile.name, (profile.name,)
    return "unknown", ()


def _sources(metric: Metric, column: str) -> tuple[Source, ...]:
    """Families of a canonical name in a column: of the table, else as the engine's profile states them."""
    found = metric.sources.get(column)
    return found if found is not None else tuple(Source(raw) for raw in profile_of(column).metrics.get(metric.name, ()))


def _version_hint(names: Mapping[str, list[Sample]], columns: tuple[str, ...]) -> str | None:
    if "vllm" not in columns:
        return None
    present = {
        name.removeprefix("vllm:").removesuffix(suffix)
        for name in names
        if name.startswith("vllm:")
        for suffix in ("", "_bucket", "_sum", "_count")
    }
    low: str | None = None
    high: str | None = None
    for family, lower, upper in VERSION_HINTS:
        if family not in present:
            continue
        if lower and (low is None or (version_key(lower) or ()) > (version_key(low) or ())):
            low = lower
        if upper and (high is None or (version_key(upper) or ()) < (version_key(high) or ())):
            high = upper
    if low and high and (version_key(low) or ()) >= (version_key(high) or ()):
        return None
    parts = ([f">={low}"] if low else []) + ([f"<{high}"] if high else [])
    return ",".join(parts) or None


class _Reader:
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
        shared = _shared(series)
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
        shared = _shared(series)
        total = _sum(entry.total for entry in chosen)
        count = _sum(entry.count for entry in chosen)
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


def _sum(values: Iterable[float | None]) -> float | None:
    listed = list(values)
    return (
        None
        if any(value is None for value in listed) or not listed
        else sum(value for value in listed if value is not None)
    )


def _shared(series: list[Series]) -> Labels:
    common = set(series[0].labels) if series else set()
    for entry in series[1:]:
        common &= set(entry.labels)
    return tuple(pair for pair in series[0].labels if pair in common) if series else ()


def _from_others(out: dict[str, Value], reader: _Reader, columns: tuple[str, ...]) -> None:
    """The names that the table allows to be computed from other families."""
    if "vllm" in columns and "cache_config" in out and "kv_tokens_max" not in out:
        products = [
            _product(dict(entry.labels), "num_gpu_blocks", "block_size") for entry in out["cache_config"].series
        ]
        if products and all(product is not None for product in products):
            raw = out["cache_config"].raw_name + " num_gpu_blocks x block_size"
            out["kv_tokens_max"] = Value("gauge", raw, (), (), _sum(products))
    if "dynamo" in columns and "kv_tokens_max" not in out:
        _dynamo_tokens(out, reader)
    if "triton" in columns:
        _triton_blocks(out, reader)


def _product(labels: Mapping[str, str], *names: str) -> float | None:
    result = 1.0
    for name in names:
        value = number(labels.get(name, ""))
        if value is None or math.isnan(value):
            return None
        result *= value
    return result


def _dynamo_tokens(out: dict[str, Value], reader: _Reader) -> None:
    blocks = {sample.labels: sample.value for sample in reader.names.get("dynamo_frontend_model_total_kv_blocks", ())}
    sizes = {
        sample.labels: sample.value for sample in reader.names.get("dynamo_frontend_model_kv_cache_block_size", ())
    }
    series = [Series(labels, value * sizes[labels]) for labels, value in blocks.items() if labels in sizes]
    if series and len(series) == len(blocks):
        raw = "dynamo_frontend_model_total_kv_blocks x dynamo_frontend_model_kv_cache_block_size"
        out["kv_tokens_max"] = Value(
            "gauge", raw, _shared(series), tuple(series), _sum(entry.value for entry in series)
        )


def _triton_blocks(out: dict[str, Value], reader: _Reader) -> None:
    raw = "nv_trt_llm_kv_cache_block_metrics"
    by_model: dict[Labels, dict[str, float]] = {}
    for sample in reader.names.get(raw, ()):
        labels = dict(sample.labels)
        kind = labels.pop("kv_cache_block_type", "")
        by_model.setdefault(tuple(labels.items()), {})[kind] = sample.value
    if not by_model:
        return
    for name, over, parts in (
        ("kv_usage_ratio", "max", ("used", "max")),
        ("kv_tokens_used", "add", ("used", "tokens_per")),
        ("kv_tokens_max", "add", ("max", "tokens_per")),
    ):
        series = []
        for shared, kinds in by_model.items():
            if parts[0] in kinds and kinds.get(parts[1]):
                first, second = kinds[parts[0]], kinds[parts[1]]
                series.append(Series(shared, first / second if name == "kv_usage_ratio" else first * second))
        if series and name not in out:
            known = [entry.value for entry in series if entry.value is not None]
            out[name] = Value("gauge", raw, _shared(series), tuple(series), max(known) if over == "max" else sum(known))
