"""An engine's ``/metrics`` under canonical names: absent is absent, a histogram is never repaired.

Called by ``weighlock metrics``, diagnose, witnesses and the recorder alike. The table is
:mod:`manifests.engines.metric_table`, reading the text is :mod:`manifests.engines.exposition`; here the engine is
told, series are combined, units converted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from manifests.engines.exposition import NotExposition, Page, Sample, number, parse_exposition
from manifests.engines.metric_table import METRICS, VERSION_HINTS
from manifests.engines.metric_values import Labels, Reader, Series, Value, shared_labels, total_of
from manifests.engines.profiles import profiles
from manifests.versions import version_key

__all__ = ["Metrics", "NotExposition", "Series", "Value", "parse_metrics"]


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
    reader = Reader(names, warnings)
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


def _from_others(out: dict[str, Value], reader: Reader, columns: tuple[str, ...]) -> None:
    """The names that the table allows to be computed from other families."""
    if "vllm" in columns and "cache_config" in out and "kv_tokens_max" not in out:
        products = [
            _product(dict(entry.labels), "num_gpu_blocks", "block_size") for entry in out["cache_config"].series
        ]
        if products and all(product is not None for product in products):
            raw = out["cache_config"].raw_name + " num_gpu_blocks x block_size"
            out["kv_tokens_max"] = Value("gauge", raw, (), (), total_of(products))
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


def _dynamo_tokens(out: dict[str, Value], reader: Reader) -> None:
    blocks = {sample.labels: sample.value for sample in reader.names.get("dynamo_frontend_model_total_kv_blocks", ())}
    sizes = {
        sample.labels: sample.value for sample in reader.names.get("dynamo_frontend_model_kv_cache_block_size", ())
    }
    series = [Series(labels, value * sizes[labels]) for labels, value in blocks.items() if labels in sizes]
    if series and len(series) == len(blocks):
        raw = "dynamo_frontend_model_total_kv_blocks x dynamo_frontend_model_kv_cache_block_size"
        out["kv_tokens_max"] = Value(
            "gauge", raw, shared_labels(series), tuple(series), total_of(entry.value for entry in series)
        )


def _triton_blocks(out: dict[str, Value], reader: Reader) -> None:
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
            out[name] = Value(
                "gauge", raw, shared_labels(series), tuple(series), max(known) if over == "max" else sum(known)
            )
