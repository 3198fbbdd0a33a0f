"""The selection matrix: an observation, what more likely helps, what must be ruled out first, how well it fits.

Read by :mod:`manifests.diagnose`. Data and scores of single observations; knows no engine. Source: the matrix and the
path table of the field's survey.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the selection matrix: an observation, what helps more likely, what to rule out first, what it needs
    to be seen.

    ``score`` gives 0 (does not fit) to 1 (fits fully) from the observations, None when it cannot be told.
    """

    name: str
    observation: str
    helps: Mapping[str, str]
    rule_out: str
    needs: tuple[str, ...]
    score: Callable[[Mapping[str, float]], float | None]


def _ramp(value: float, low: float, high: float) -> float:
    """0 below ``low``, 1 above ``high``, linear between."""
    return min(1.0, max(0.0, (value - low) / (high - low)))


def _has(seen: Mapping[str, float], *names: str) -> bool:
    return all(name in seen for name in names)


def _kv_full(seen: Mapping[str, float]) -> float | None:
    if not ("kv_usage_ratio" in seen or "preemptions_per_request" in seen):
        return None
    return max(
        _ramp(seen.get("kv_usage_ratio", 0), 0.8, 0.95), _ramp(seen.get("preemptions_per_request", 0), 0.0, 0.05)
    )


def _jitter(seen: Mapping[str, float]) -> float | None:
    if not _has(seen, "tpot_tail_ratio", "prompt_tokens_mean"):
        return None
    return min(_ramp(seen["tpot_tail_ratio"], 2, 5), _ramp(seen["prompt_tokens_mean"], 500, 2000))


def _queue(seen: Mapping[str, float]) -> float | None:
    if "queue_share_of_ttft" not in seen:
        return None if "requests_waiting" not in seen else _ramp(seen["requests_waiting"], 0, 20) * 0.5
    pressure = _ramp(seen["queue_share_of_ttft"], 0.3, 0.7)
    return pressure * (1 - (_kv_full(seen) or 0) * 0.5)


def _decode_bytes(seen: Mapping[str, float]) -> float | None:
    return _ramp(seen["hbm_bandwidth_ratio"], 0.6, 0.85) if "hbm_bandwidth_ratio" in seen else None


def _gaps(seen: Mapping[str, float]) -> float | None:
    if "kernel_gap_ratio" in seen:
        return _ramp(seen["kernel_gap_ratio"], 0.1, 0.3)
    if "cuda_graph_active" in seen:
        return 0.6 if seen["cuda_graph_active"] == 0 and seen.get("requests_running", 1) > 0 else 0.0
    return None


def _long_prefill(seen: Mapping[str, float]) -> float | None:
    if not _has(seen, "prefill_share_of_ttft", "prompt_tokens_mean"):
        return None
    return min(_ramp(seen["prefill_share_of_ttft"], 0.5, 0.9), _ramp(seen["prompt_tokens_mean"], 1000, 4000))


def _hits_without_gain(seen: Mapping[str, float]) -> float | None:
    if not _has(seen, "prefix_hit_ratio", "queue_share_of_ttft"):
        return None
    return min(_ramp(seen["prefix_hit_ratio"], 0.4, 0.7), _ramp(seen["queue_share_of_ttft"], 0.3, 0.7))


def _speculation(seen: Mapping[str, float]) -> float | None:
    if not _has(seen, "spec_acceptance", "tpot_against_baseline"):
        return None
    return min(_ramp(seen["spec_acceptance"], 0.5, 0.7), _ramp(seen["tpot_against_baseline"], 0.9, 1.0))


def _collectives(seen: Mapping[str, float]) -> float | None:
    return _ramp(seen["collective_share"], 0.15, 0.4) if "collective_share" in seen else None


ROWS: tuple[Row, ...] = (
    Row(
        "kv_almost_full",
        "the KV cache is almost full",
        {
            "kv_quant": "halves the bytes of a token",
            "paged_kv": "gives the pool more memory or less waste",
            "prefix_cache": "shares equal prefixes",
            "kv_offload": "moves cold blocks out",
            "parallelism": "spreads KV heads over more cards",
            "weight_quant": "frees weight memory for KV",
        },
        "orphan blocks, fragmentation, over-reservation",
        ("kv_usage_ratio", "preemptions_per_request"),
        _kv_full,
    ),
    Row(
        "large_prefills_jittery_tpot",
        "large prefills make the token intervals of others jitter",
        {
            "chunked_prefill": "bounds the tokens of a step",
            "pd_disagg": "takes prefills off the decoding cards",
            "scheduler": "limits what a step may hold",
        },
        "a wrong queue policy or token budget",
        ("tpot_tail_ratio", "prompt_tokens_mean"),
        _jitter,
    ),
    Row(
        "queue",
        "requests wait before they are scheduled",
        {
            "scheduler": "admits more or orders better",
            "chunked_prefill": "lets prefills share steps",
            "pd_disagg": "separates the two stages",
            "parallelism": "adds capacity",
            "limits": "refuses early instead of late",
        },
        "a limit that is too low for the memory, and clients that arrive in bursts",
        ("queue_share_of_ttft",),
        _queue,
    ),
    Row(
        "decode_memory_bandwidth",
        "decoding is bound by reading weights and KV",
        {
            "weight_quant": "fewer weight bytes per step",
            "kv_quant": "fewer KV bytes per step",
            "scheduler": "a larger effective batch shares the weights",
            "spec_decode": "several tokens per read of the weights",
        },
        "starvation by the host scheduler",
        ("hbm_bandwidth_ratio",),
        _decode_bytes,
    ),
    Row(
        "kernel_gaps",
        "the GPU waits between kernels",
        {
            "cuda_graph_compile": "launches a step at once",
            "kernel_backend": "fuses kernels",
            "scheduler": "overlaps host work (async scheduling)",
        },
        "network streaming that blocks the scheduler's thread",
        ("kernel_gap_ratio",),
        _gaps,
    ),
    Row(
        "long_prompt_prefill",
        "the first token waits for computing long prompts",
        {
            "attention_backend": "a faster attention kernel",
            "prefix_cache": "skips what was computed",
            "parallelism": "splits the sequence or the heads",
            "activation_quant": "faster matrix products",
            "weight_quant": "low-bit matrix products, where the card has them",
        },
        "a prompt mix that changed",
        ("prefill_share_of_ttft", "prompt_tokens_mean"),
        _long_prefill,
    ),
    Row(
        "hits_without_gain",
        "many tokens are found in the prefix cache, but the first token does not come sooner",
        {
            "routing": "sends a prefix to where it is cached",
            "kv_offload": "cheaper install of what was found",
            "scheduler": "the queue, not the prefill, is what is long",
        },
        "how a hit is counted, and version compatibility of the cache",
        ("prefix_hit_ratio", "queue_share_of_ttft"),
        _hits_without_gain,
    ),
    Row(
        "speculation_without_gain",
        "drafts are accepted, but tokens do not come sooner",
        {
            "spec_decode": "the verify and state path, or fewer draft tokens",
            "scheduler": "less concurrency, where speculation pays",
        },
        "the draft taking resources that the target needs",
        ("spec_acceptance", "tpot_against_baseline"),
        _speculation,
    ),
    Row(
        "collectives",
        "one card is fast, many are slow",
        {"parallelism": "a layout that follows the topology", "kernel_backend": "a faster all-reduce"},
        "number and dtype of collectives",
        ("collective_share",),
        _collectives,
    ),
)
