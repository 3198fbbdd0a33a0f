"""Which bottleneck an observation points to, what must be ruled out first, and whether a proposed change addresses it.

Called by the CLI and the dashboard. The selection matrix is data (:data:`ROWS`); an observation is a scrape of an
engine under canonical names or a stage summary (name -> number). What is not observed is named in ``missing``, never
assumed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from manifests.diagnose_rows import ROWS, Row
from manifests.engines.metrics import Metrics, Value
from manifests.model import Manifest
from manifests.witness import mechanisms_on

__all__ = ["ROWS", "Diagnosis", "Evidence", "Row", "diagnose"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One observation: what, how much, unit, where from."""

    observation: str
    value: float
    unit: str
    source: str

    def to_json(self) -> dict[str, Any]:
        """The shape of one entry of ``evidence``."""
        return {"observation": self.observation, "value": self.value, "unit": self.unit, "source": self.source}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The answer; see :meth:`to_json`."""

    engine: str
    bottleneck: str
    rule_out_first: str | None
    evidence: tuple[Evidence, ...]
    mechanisms: tuple[tuple[str, bool, str], ...]
    missing: tuple[str, ...]
    rows: tuple[tuple[str, float], ...]

    def to_json(self) -> dict[str, Any]:
        """The shape of ``weighlock diagnose -o json``."""
        return {
            "engine": self.engine,
            "bottleneck": self.bottleneck,
            "rule_out_first": self.rule_out_first,
            "evidence": [entry.to_json() for entry in self.evidence],
            "mechanisms": [
                {"mechanism": name, "addresses": addresses, "why": why} for name, addresses, why in self.mechanisms
            ],
            "missing": list(self.missing),
            "rows": [{"row": name, "fit": fit} for name, fit in self.rows],
        }


def diagnose(
    observed: Metrics | Mapping[str, float],
    proposed: Manifest | Iterable[str] | None = None,
    stages: Mapping[str, float] | None = None,
) -> Diagnosis:
    """The diagnosis of an observation.

    Args:
        observed: a scrape under canonical names, or a stage summary (the observation names of :data:`ROWS`).
        proposed: the manifest that is proposed, or names of mechanisms: does it address the bottleneck?
        stages: more observations beside a scrape (``hbm_bandwidth_ratio``, ``kernel_gap_ratio``,
        ``collective_share``, ...).
    """
    evidence = (
        _observe(observed)
        if isinstance(observed, Metrics)
        else [Evidence(n, float(v), "", "stages") for n, v in observed.items() if math.isfinite(v)]
    )
    evidence += [
        Evidence(name, float(value), "", "stages") for name, value in (stages or {}).items() if math.isfinite(value)
    ]
    seen = {entry.observation: entry.value for entry in evidence}
    fits: list[tuple[Row, float]] = []
    missing: list[str] = []
    for candidate in ROWS:
        fit = candidate.score(seen)
        if fit is None:
            absent = " and ".join(name for name in candidate.needs if name not in seen)
            missing.append(f"{candidate.name}: needs {absent}")
        else:
            fits.append((candidate, fit))
    best = max(fits, key=lambda pair: pair[1], default=None)
    row = best[0] if best is not None and best[1] >= 0.3 else None
    name = row.name if row is not None else ("none" if fits else "unknown")
    engine = observed.engine if isinstance(observed, Metrics) else "unknown"
    ordered = tuple((r.name, round(fit, 3)) for r, fit in sorted(fits, key=lambda pair: -pair[1]))
    return Diagnosis(
        engine,
        name,
        row.rule_out if row else None,
        tuple(evidence),
        tuple(_mechanisms(row, proposed)),
        tuple(missing),
        ordered,
    )


def _mechanisms(row: Row | None, proposed: Manifest | Iterable[str] | None) -> list[tuple[str, bool, str]]:
    wanted = (
        mechanisms_on(proposed) if isinstance(proposed, Manifest) else list(proposed) if proposed is not None else None
    )
    if wanted is None:
        return [(name, True, why) for name, why in (row.helps.items() if row else ())]
    out = []
    for name in wanted:
        if row is None:
            out.append((name, False, "no bottleneck was found that it could address"))
        elif name in row.helps:
            out.append((name, True, f"{row.observation}: {row.helps[name]}; rule out first: {row.rule_out}"))
        else:
            out.append((name, False, f"{row.observation}; more likely to help: {', '.join(row.helps)}"))
    return out


# --- observations of a scrape


def _observe(page: Metrics) -> list[Evidence]:
    out: list[Evidence] = []

    def add(name: str, value: float | None, unit: str, *sources: str) -> None:
        if value is not None and math.isfinite(value):
            raw = [page.metrics[source].raw_name for source in sources if source in page.metrics]
            out.append(Evidence(name, value, unit, ", ".join(raw)))

    for name in ("kv_usage_ratio", "requests_waiting", "requests_running", "cuda_graph_active"):
        add(name, page.value(name), "ratio" if "ratio" in name else "", name)
    finished = page.value("requests_finished_total")
    preempted = page.value("preemptions_total")
    add(
        "preemptions_per_request",
        preempted / finished if preempted is not None and finished else None,
        "",
        "preemptions_total",
        "requests_finished_total",
    )
    hits, queries = page.value("prefix_cache_hit_tokens_total"), page.value("prefix_cache_query_tokens_total")
    add(
        "prefix_hit_ratio",
        hits / queries if hits is not None and queries else page.value("prefix_cache_hit_ratio"),
        "ratio",
        "prefix_cache_hit_tokens_total",
    )
    accepted, drafted = page.value("spec_accepted_tokens_total"), page.value("spec_draft_tokens_total")
    add(
        "spec_acceptance",
        accepted / drafted if accepted is not None and drafted else page.value("spec_accept_ratio"),
        "ratio",
        "spec_accepted_tokens_total",
    )
    _latencies(page, add)
    return out


def _latencies(page: Metrics, add: Callable[..., None]) -> None:
    ttft, queue, prefill = (_mean(page.metrics.get(name)) for name in ("ttft_engine_s", "queue_s", "prefill_s"))
    add("ttft_mean", ttft, "seconds", "ttft_engine_s")
    add(
        "queue_share_of_ttft",
        min(1.0, queue / ttft) if queue is not None and ttft else None,
        "ratio",
        "queue_s",
        "ttft_engine_s",
    )
    add(
        "prefill_share_of_ttft",
        min(1.0, prefill / ttft) if prefill is not None and ttft else None,
        "ratio",
        "prefill_s",
        "ttft_engine_s",
    )
    add(
        "prompt_tokens_mean",
        _mean(page.metrics.get("prompt_tokens_per_request")),
        "tokens",
        "prompt_tokens_per_request",
    )
    add(
        "output_tokens_mean",
        _mean(page.metrics.get("output_tokens_per_request")),
        "tokens",
        "output_tokens_per_request",
    )
    for name in ("itl_step_s", "itl_token_s", "tpot_request_s"):
        found = page.metrics.get(name)
        low, high = _quantile_upper(found, 0.5), _quantile_lower(found, 0.99)
        if low and high is not None:
            add("tpot_tail_ratio", high / low, "P99 lower edge / P50 upper edge", name)
            return


def _mean(value: Value | None) -> float | None:
    return value.total / value.count if value is not None and value.total is not None and value.count else None


def _quantile_upper(value: Value | None, share: float) -> float | None:
    """Upper edge of the bucket that holds a quantile; None in the overflow bucket or without buckets."""
    if value is None or not value.buckets or not value.count:
        return None
    edge = next((edge for edge, count in value.buckets if count >= share * value.count), None)
    return edge if edge is not None and math.isfinite(edge) else None


def _quantile_lower(value: Value | None, share: float) -> float | None:
    """Lower edge of the bucket that holds a quantile."""
    if value is None or not value.buckets or not value.count:
        return None
    previous = 0.0
    for edge, count in value.buckets:
        if count >= share * value.count:
            return previous
        previous = edge
    return None
