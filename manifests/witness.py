"""Accepted is not active: what proves on a live pod that a mechanism is really on.

Called by the operator before a latency verdict, by the dashboard and the CLI. Judges a scrape (canonical metrics), a
resolved configuration (``/server_info``) or log lines: active, inactive or cannot tell, with the reason. A metric
that is absent never counts as zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from manifests.compare import same
from manifests.engines.grammar import catalogs_of, find_switch
from manifests.engines.metrics import Metrics
from manifests.engines.profiles import profile_of
from manifests.model import Manifest, Setting

ACTIVE, INACTIVE, CANNOT_TELL = "active", "inactive", "cannot_tell"
Observation = Metrics | Mapping[str, Any] | str


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict about one mechanism: state, the reason in words, and what it rests on (metric, field, log line)."""

    mechanism: str
    state: str
    reason: str
    evidence: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The shape that status, dashboard and CLI show."""
        return {"mechanism": self.mechanism, "state": self.state, "reason": self.reason, "evidence": self.evidence}


def witness(subject: Manifest | str, observation: Observation, mechanism: str | None = None) -> Judgement:
    """Judges one mechanism.

    Args:
        subject: the manifest that should be running, or a mechanism's name alone.
        observation: a scrape, the JSON of ``/server_info``, or log text.
        mechanism: which mechanism of the manifest; default: the first that a witness is known for.
    """
    manifest = subject if isinstance(subject, Manifest) else None
    name = mechanism or (subject if isinstance(subject, str) else next(iter(mechanisms_on(subject)), "none"))
    if isinstance(observation, Metrics):
        rule = _METRIC_RULES.get(name)
        found = rule(observation, manifest) if rule is not None else None
        return found or Judgement(name, CANNOT_TELL, _no_metric(observation.engine, name))
    if manifest is None:
        return Judgement(name, CANNOT_TELL, "a resolved configuration or a log can only be judged against a manifest")
    if isinstance(observation, str):
        return _from_fields(name, manifest, _log_fields(observation), "log")
    return _from_fields(name, manifest, dict(_flatten(observation)), "server_info")


def _no_metric(engine: str, mechanism: str) -> str:
    """Why a page cannot tell, and where the engine says it."""
    where = profile_of(engine).resolved or profile_of(engine.partition("-")[0]).resolved
    told = f"; ask {where}" if where else ""
    return f"no metric of {engine} on this page tells whether {mechanism} is on{told}"


def witnesses(manifest: Manifest, *observations: Observation) -> list[Judgement]:
    """One judgement per mechanism that the manifest turns on, from the observation that tells most."""
    order = {ACTIVE: 0, INACTIVE: 0, CANNOT_TELL: 1}
    out = []
    for name in mechanisms_on(manifest):
        judged = [witness(manifest, observation, name) for observation in observations]
        if judged:
            conflict = {j.state for j in judged} >= {ACTIVE, INACTIVE}
            best = min(judged, key=lambda judgement: order[judgement.state])
            out.append(
                Judgement(name, CANNOT_TELL, "the observations contradict each other", best.evidence)
                if conflict
                else best
            )
    return out


def mechanisms_on(manifest: Manifest) -> list[str]:
    """Mechanisms that the written settings of a manifest switch on or shape, in the order of the settings."""
    return list(dict.fromkeys(mechanism for _, _, mechanism in _shaped(manifest)))


def _shaped(manifest: Manifest) -> Iterator[tuple[str, Setting, str]]:
    catalogs = catalogs_of(manifest.engine.name)
    for name, setting in manifest.settings.items():
        found = find_switch(catalogs, name)
        if (
            found is not None
            and found[0].correctness != "none"
            and found[0].mechanism not in ("model_identity", "network", "observability")
        ):
            yield name, setting, found[0].mechanism


# --- metrics

Rule = Callable[[Metrics, Manifest | None], Judgement | None]


def _counter(page: Metrics, name: str) -> float | None:
    return page.value(name)


def _config(page: Metrics, label: str) -> str | None:
    found = page.metrics.get("cache_config")
    return dict(found.series[0].labels).get(label) if found is not None and found.series else None


def _prefix_cache(page: Metrics, manifest: Manifest | None) -> Judgement | None:
    name = "prefix_cache"
    hits, queries = _counter(page, "prefix_cache_hit_tokens_total"), _counter(page, "prefix_cache_query_tokens_total")
    configured = _config(page, "enable_prefix_caching")
    if configured == "False":
        return Judgement(name, INACTIVE, "the engine reports enable_prefix_caching=False", "cache_config")
    if hits is not None and hits > 0:
        share = f", {hits / queries:.0%} of the tokens looked up" if queries else ""
        return Judgement(
            name, ACTIVE, f"{hits:g} prompt tokens came from the cache{share}", "prefix_cache_hit_tokens_total"
        )
    if queries is not None and queries > 0:
        if configured == "True":
            return Judgement(
                name,
                ACTIVE,
                f"the cache is on and was asked for {queries:g} tokens, but nothing was found in it yet",
                "prefix_cache_query_tokens_total",
            )
        return Judgement(
            name,
            CANNOT_TELL,
            f"{queries:g} tokens were looked up and none found: off, or nothing repeats",
            "prefix_cache_query_tokens_total",
        )
    ratio = page.value("prefix_cache_hit_ratio")
    if ratio is not None and ratio > 0:
        return Judgement(name, ACTIVE, f"the engine states a hit ratio of {ratio:g}", "prefix_cache_hit_ratio")
    if configured == "True":
        return Judgement(name, ACTIVE, "the engine reports enable_prefix_caching=True", "cache_config")
    return None


def _speculation(page: Metrics, manifest: Manifest | None) -> Judgement | None:
    name = "spec_decode"
    drafts, tokens = _counter(page, "spec_drafts_total"), _counter(page, "spec_draft_tokens_total")
    accepted, written = _counter(page, "spec_accepted_tokens_total"), _counter(page, "output_tokens_total")
    made = drafts if drafts is not None else tokens
    if made is not None and made > 0:
        rate = f", {accepted / tokens:.0%} of draft tokens accepted" if accepted is not None and tokens else ""
        return Judgement(name, ACTIVE, f"{made:g} drafts were verified{rate}", "spec_drafts_total")
    if made == 0 and written:
        return Judgement(name, INACTIVE, f"{written:g} tokens were written without a single draft", "spec_drafts_total")
    length = page.value("spec_accept_length")
    if length is not None and written:
        state = ACTIVE if length > 1 else INACTIVE
        return Judgement(name, state, f"mean accepted length {length:g} after {written:g} tokens", "spec_accept_length")
    return None


def _chunked_prefill(page: Metrics, manifest: Manifest | None) -> Judgement | None:
    name = "chunked_prefill"
    steps, prompts = page.metrics.get("tokens_per_step"), page.metrics.get("prompt_tokens_per_request")
    setting = manifest.settings.get("max-num-batched-tokens") if manifest is not None else None
    if steps is None or not steps.buckets or setting is None or not isinstance(setting.value, int):
        return None
    budget = setting.value
    above = [(edge, count) for edge, count in steps.buckets if edge >= budget]
    if len(above) < 2 and not above:
        return None
    beyond = above[-1][1] - above[0][1]
    if beyond > 0:
        return Judgement(
            name, INACTIVE, f"{beyond:g} steps held more tokens than the budget of {budget}", "tokens_per_step"
        )
    longer = _count_above(prompts.buckets, budget) if prompts is not None and prompts.buckets else None
    if longer:
        return Judgement(
            name,
            ACTIVE,
            f"{longer:g} prompts were longer than the budget of {budget} and no step exceeded it",
            "tokens_per_step",
        )
    return None


def _count_above(buckets: tuple[tuple[float, float], ...], limit: float) -> float | None:
    below = [count for edge, count in buckets if edge <= limit]
    exact = any(edge == limit for edge, _ in buckets)
    return buckets[-1][1] - below[-1] if below and exact else None


def _kv_quant(page: Metrics, manifest: Manifest | None) -> Judgement | None:
    dtype = _config(page, "cache_dtype")
    if dtype is None:
        return None
    wanted = manifest.settings.get("kv-cache-dtype") if manifest is not None else None
    if wanted is not None and isinstance(wanted.value, str) and wanted.value != "auto":
        state = (
            ACTIVE
            if dtype == wanted.value or (dtype.startswith("fp8") and wanted.value.startswith("fp8"))
            else INACTIVE
        )
        return Judgement(
            "kv_quant",
            state,
            f"the engine reports cache_dtype={dtype}, the manifest asks for {wanted.value}",
            "cache_config",
        )
    quantized = bool(re.match(r"fp8|int8|int4|nvfp4|turbo", dtype))
    return Judgement(
        "kv_quant", ACTIVE if quantized else INACTIVE, f"the engine reports cache_dtype={dtype}", "cache_config"
    )


def _graphs(page: Metrics, manifest: Manifest | None) -> Judgement | None:
    value = page.value("cuda_graph_active")
    if value is None:
        return None
    return Judgement(
        "cuda_graph_compile",
        ACTIVE if value >= 1 else INACTIVE,
        f"the last step ran {'a captured graph' if value >= 1 else 'without a graph'}",
        "cuda_graph_active",
    )


def _external(name: str) -> Rule:
    def rule(page: Metrics, manifest: Manifest | None) -> Judgement | None:
        hits, asked = (
            _counter(page, "external_cache_hit_tokens_total"),
            _counter(page, "external_cache_query_tokens_total"),
        )
        if hits is not None and hits > 0:
            return Judgement(
                name, ACTIVE, f"{hits:g} tokens came from outside the engine", "external_cache_hit_tokens_total"
            )
        if asked is not None and asked > 0:
            return Judgement(
                name,
                INACTIVE,
                f"{asked:g} tokens were asked for outside and none arrived",
                "external_cache_query_tokens_total",
            )
        return None

    return rule


_PAGED_LABELS = {
    "gpu-memory-utilization": "gpu_memory_utilization",
    "block-size": "block_size",
    "num-gpu-blocks-override": "num_gpu_blocks_override",
}


def _paged(page: Metrics, manifest: Manifest | None) -> Judgement | None:
    if manifest is None:
        return None
    for setting_name, label in _PAGED_LABELS.items():
        setting, reported = manifest.settings.get(setting_name), _config(page, label)
        if setting is None or reported is None or setting.value is None:
            continue
        try:
            equal = float(reported) == float(setting.value)
        except ValueError:
            continue
        state = ACTIVE if equal else INACTIVE
        return Judgement(
            "paged_kv",
            state,
            f"the engine reports {label}={reported}, the manifest asks for {setting.value}",
            "cache_config",
        )
    return None


def _limit(page: Metrics, manifest: Manifest | None) -> Judgement | None:
    running = page.value("requests_running")
    setting = (
        manifest.settings.get("max-num-seqs") or manifest.settings.get("max-running-requests")
        if manifest is not None
        else None
    )
    if running is None or setting is None or not isinstance(setting.value, int):
        return None
    if running > setting.value * max(1, len(page.metrics["requests_running"].series)):
        return Judgement(
            "scheduler",
            INACTIVE,
            f"{running:g} requests run at once, more than the limit of {setting.value}",
            "requests_running",
        )
    return None


_METRIC_RULES: dict[str, Rule] = {
    "prefix_cache": _prefix_cache,
    "spec_decode": _speculation,
    "chunked_prefill": _chunked_prefill,
    "kv_quant": _kv_quant,
    "cuda_graph_compile": _graphs,
    "pd_disagg": _external("pd_disagg"),
    "kv_offload": _external("kv_offload"),
    "paged_kv": _paged,
    "scheduler": _limit,
}


# --- resolved configuration and logs --------------------------------------------------------------


def _flatten(value: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        if isinstance(item, Mapping) and depth < 6:
            yield from _flatten(item, depth + 1)
            yield str(key), item
        else:
            yield str(key), item


_LOG_PAIR = re.compile(
    r"""['"]?([a-z][a-z0-9_]{2,60})['"]?\s*[=:]\s*('[^']*'|"[^"]*"|\{[^{}]*\}|\[[^\]]*\]|[\w.+/-]+)"""
)


def _log_fields(text: str) -> dict[str, Any]:
    from manifests.engines.values import guess

    marker = re.compile(r"non-default args|Initializing a V1 LLM engine|server_args=|LlmArgs|args:")
    parts = [marker.split(line, maxsplit=1) for line in text.splitlines()]
    lines = [part[1].lstrip(": ={(") for part in parts if len(part) == 2]
    out: dict[str, Any] = {}
    for line in lines[:50]:
        for key, value in _LOG_PAIR.findall(line[:20_000]):
            stripped = value.strip("'\"")
            out.setdefault(key, None if stripped == "None" else guess(stripped))
    return out


def _from_fields(name: str, manifest: Manifest, fields: Mapping[str, Any], source: str) -> Judgement:
    """Compares the settings of a mechanism with a resolved configuration."""
    agreeing = []
    for setting_name, setting, mechanism in _shaped(manifest):
        key = setting_name.rsplit(".", 1)[-1].replace("-", "_")
        if mechanism != name or key not in fields or setting.expression is not None:
            continue
        found = fields[key]
        if _equal(setting_name, setting.value, found):
            agreeing.append(f"{key}={found}")
        else:
            return Judgement(
                name, INACTIVE, f"{source} says {key}={found}, the manifest asks for {setting.value}", f"{source}:{key}"
            )
    if agreeing:
        return Judgement(name, ACTIVE, f"{source} says {', '.join(agreeing)}", source)
    return Judgement(name, CANNOT_TELL, f"{source} does not mention a setting of {name}")


def _equal(name: str, wanted: Any, found: Any) -> bool:
    if (
        isinstance(wanted, int | float)
        and isinstance(found, int | float)
        and not isinstance(wanted, bool)
        and not isinstance(found, bool)
    ):
        return float(wanted) == float(found)
    if isinstance(wanted, dict) and isinstance(found, Mapping):
        return all(key in found and _equal(name, value, found[key]) for key, value in wanted.items())
    return same(name, wanted, found) or str(wanted) == str(found)
