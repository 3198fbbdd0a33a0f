"""Canonical metric names: one name, one formula, one unit. The table of what each engine calls them, newest name first.

Data only; read by :mod:`manifests.engines.metrics`. Two series with different formulas never share a name here,
whatever their engines call them.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Source:
    """A raw family without its prefix; ``where`` keeps series whose label has one of the values; ``scale`` converts
    to our unit."""

    raw: str
    where: tuple[str, tuple[str, ...]] | None = None
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Metric:
    """One canonical name: type, how series combine (add, max, none), sources by engine; ``plus``: families added
    together."""

    name: str
    kind: str
    over: str
    sources: dict[str, tuple[Source, ...]]
    plus: dict[str, tuple[Source, ...]] = field(default_factory=dict)


PREFIXES: dict[str, tuple[str, ...]] = {
    "vllm": ("vllm:",),
    "sglang": ("sglang:",),
    "trtllm": ("trtllm_", "trtllm:"),
    "dynamo": ("dynamo_frontend_",),
    "tgi": ("tgi_",),
    "llamacpp": ("llamacpp:",),
    "triton": ("nv_",),
    "epp": ("llm_d_epp_", "inference_objective_", "inference_pool_"),
    "process": ("",),
}


def _s(*names: str, where: tuple[str, tuple[str, ...]] | None = None, scale: float = 1.0) -> tuple[Source, ...]:
    return tuple(Source(name, where, scale) for name in names)


def _m(
    name: str,
    kind: str,
    over: str = "add",
    plus: dict[str, tuple[Source, ...]] | None = None,
    **sources: tuple[Source, ...],
) -> Metric:
    return Metric(name, kind, over, sources, plus or {})


_STREAMING = ("streaming", ("true",))
_ACTIVE, _WAITING = ("request_type", ("active",)), ("request_type", ("waiting",))
_FAILED = ("finished_reason", ("abort", "error"))
_TRITON_STEP = ("trt_llm_inflight_batcher_metrics", "trt_llm_v1_metrics")


def _step(metric: str) -> tuple[Source, ...]:
    return (
        Source(_TRITON_STEP[0], ("inflight_batcher_specific_metric", (metric,))),
        Source(_TRITON_STEP[1], ("v1_specific_metric", (metric,))),
    )


METRICS: tuple[Metric, ...] = (
    _m(
        "ttft_engine_s",
        "histogram",
        vllm=_s("time_to_first_token_seconds"),
        sglang=_s("time_to_first_token_seconds"),
        trtllm=_s("time_to_first_token_seconds"),
    ),
    _m(
        "ttft_frontend_s",
        "histogram",
        dynamo=_s("time_to_first_token_seconds"),
        epp=_s("request_ttft_seconds", where=_STREAMING),
    ),
    _m(
        "tpot_request_s",
        "histogram",
        vllm=_s("request_time_per_output_token_seconds"),
        sglang=_s("request_time_per_output_token_seconds"),
        trtllm=_s("time_per_output_token_seconds"),
    ),
    _m("tpot_running_s", "histogram", sglang=_s("time_per_output_token_seconds")),
    _m("itl_step_s", "histogram", vllm=_s("inter_token_latency_seconds", "time_per_output_token_seconds")),
    _m("itl_token_s", "histogram", sglang=_s("inter_token_latency_seconds"), dynamo=_s("inter_token_latency_seconds")),
    _m("ntpot_inference_s", "histogram", tgi=_s("request_mean_time_per_token_duration")),
    _m("ntpot_e2e_s", "histogram", epp=_s("request_ntpot_seconds", "normalized_time_per_output_token_seconds")),
    _m(
        "e2e_engine_s",
        "histogram",
        vllm=_s("e2e_request_latency_seconds"),
        sglang=_s("e2e_request_latency_seconds"),
        trtllm=_s("e2e_request_latency_seconds"),
        tgi=_s("request_duration"),
    ),
    _m("e2e_frontend_s", "histogram", dynamo=_s("request_duration_seconds"), epp=_s("request_duration_seconds")),
    _m(
        "queue_s",
        "histogram",
        vllm=_s("request_queue_time_seconds", "time_in_queue_requests"),
        sglang=_s("queue_time_seconds", "queue_time_s"),
        trtllm=_s("request_queue_time_seconds"),
        tgi=_s("request_queue_duration"),
    ),
    _m("prefill_s", "histogram", vllm=_s("request_prefill_time_seconds")),
    _m("decode_s", "histogram", vllm=_s("request_decode_time_seconds")),
    _m("inference_s", "histogram", vllm=_s("request_inference_time_seconds"), tgi=_s("request_inference_duration")),
    _m(
        "prompt_tokens_per_request",
        "histogram",
        vllm=_s("request_prompt_tokens"),
        sglang=_s("prompt_tokens_histogram"),
        dynamo=_s("input_sequence_tokens"),
        tgi=_s("request_input_length"),
        epp=_s("request_input_tokens", "input_tokens"),
    ),
    _m(
        "output_tokens_per_request",
        "histogram",
        vllm=_s("request_generation_tokens"),
        sglang=_s("generation_tokens_histogram"),
        dynamo=_s("output_sequence_tokens"),
        tgi=_s("request_generated_tokens"),
        epp=_s("request_output_tokens", "output_tokens"),
    ),
    _m(
        "cached_tokens_per_request",
        "histogram",
        dynamo=_s("cached_tokens"),
        epp=_s("request_cached_tokens", "prompt_cached_tokens"),
    ),
    _m("tokens_per_step", "histogram", vllm=_s("iteration_tokens_total")),
    _m(
        "requests_received_total",
        "counter",
        dynamo=_s("requests_started_total"),
        tgi=_s("request_count"),
        epp=_s("request_total"),
    ),
    _m(
        "requests_finished_total",
        "counter",
        vllm=_s("request_success_total"),
        sglang=_s("num_requests_total"),
        dynamo=_s("requests_total"),
        plus={
            "trtllm": _s("request_success_total", "request_error_total"),
            "tgi": _s("request_success", "request_failure"),
            "triton": _s("inference_request_success", "inference_request_failure"),
        },
    ),
    _m(
        "requests_failed_total",
        "counter",
        vllm=_s("request_success_total", where=_FAILED),
        sglang=_s("num_aborted_requests_total"),
        trtllm=_s("request_error_total"),
        dynamo=_s("requests_total", where=("status", ("error",))),
        tgi=_s("request_failure"),
        triton=_s("inference_request_failure"),
    ),
    _m(
        "prompt_tokens_total",
        "counter",
        vllm=_s("prompt_tokens_total"),
        sglang=_s("prompt_tokens_total"),
        llamacpp=_s("prompt_tokens_total"),
    ),
    _m(
        "output_tokens_total",
        "counter",
        vllm=_s("generation_tokens_total"),
        sglang=_s("generation_tokens_total"),
        dynamo=_s("output_tokens_total"),
        llamacpp=_s("tokens_predicted_total"),
    ),
    _m(
        "prefill_tokens_computed_total",
        "counter",
        vllm=_s("prompt_tokens_by_source_total", where=("source", ("local_compute",))),
        sglang=_s("prefill_effective_tokens_total", where=("mode", ("input",))),
    ),
    _m(
        "prefix_cache_query_tokens_total",
        "counter",
        vllm=_s("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
    ),
    _m(
        "prefix_cache_hit_tokens_total",
        "counter",
        vllm=_s("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
        sglang=_s("cached_tokens_total"),
    ),
    _m("external_cache_query_tokens_total", "counter", vllm=_s("external_prefix_cache_queries_total")),
    _m("external_cache_hit_tokens_total", "counter", vllm=_s("external_prefix_cache_hits_total")),
    _m("preemptions_total", "counter", vllm=_s("num_preemptions_total"), sglang=_s("num_retracted_requests_total")),
    _m(
        "spec_drafts_total",
        "counter",
        vllm=_s("spec_decode_num_drafts_total"),
        trtllm=_s("spec_decode_num_drafts_total"),
        llamacpp=_s("spec_decode_num_drafts_total"),
    ),
    _m(
        "spec_draft_tokens_total",
        "counter",
        vllm=_s("spec_decode_num_draft_tokens_total"),
        trtllm=_s("spec_decode_num_draft_tokens_total"),
        llamacpp=_s("spec_decode_num_draft_tokens_total"),
    ),
    _m(
        "spec_accepted_tokens_total",
        "counter",
        vllm=_s("spec_decode_num_accepted_tokens_total"),
        trtllm=_s("spec_decode_num_accepted_tokens_total"),
        llamacpp=_s("spec_decode_num_accepted_tokens_total"),
    ),
    _m("spec_accept_length", "gauge", "none", sglang=_s("spec_accept_length")),
    _m(
        "spec_accept_ratio",
        "gauge",
        "none",
        vllm=_s("spec_decode_draft_acceptance_rate"),
        sglang=_s("spec_accept_rate"),
    ),
    _m("request_seconds_total", "counter", triton=_s("inference_request_duration_us", scale=1e-6)),
    _m("queue_seconds_total", "counter", triton=_s("inference_queue_duration_us", scale=1e-6)),
    _m("prefill_seconds_total", "counter", llamacpp=_s("prompt_seconds_total")),
    _m("decode_seconds_total", "counter", llamacpp=_s("tokens_predicted_seconds_total")),
    _m(
        "requests_running",
        "gauge",
        vllm=_s("num_requests_running"),
        sglang=_s("num_running_reqs"),
        trtllm=_s("num_requests_running"),
        tgi=_s("batch_current_size"),
        llamacpp=_s("requests_processing"),
        triton=_s("trt_llm_request_metrics", where=_ACTIVE),
        epp=_s("request_running", "running_requests"),
    ),
    _m(
        "requests_waiting",
        "gauge",
        vllm=_s("num_requests_waiting"),
        sglang=_s("num_queue_reqs"),
        trtllm=_s("num_requests_waiting"),
        tgi=_s("queue_size"),
        llamacpp=_s("requests_deferred"),
        triton=(*_s("trt_llm_request_metrics", where=_WAITING), *_s("inference_pending_request_count")),
    ),
    _m("requests_before_first_token", "gauge", dynamo=_s("queued_requests")),
    _m("requests_swapped", "gauge", vllm=_s("num_requests_swapped")),
    _m(
        "kv_usage_ratio",
        "gauge",
        "max",
        vllm=_s("kv_cache_usage_perc", "gpu_cache_usage_perc"),
        sglang=_s("token_usage"),
        trtllm=_s("kv_cache_utilization"),
        llamacpp=_s("kv_cache_usage_ratio"),
    ),
    _m("kv_usage_cpu_ratio", "gauge", "max", vllm=_s("cpu_cache_usage_perc")),
    _m("kv_tokens_used", "gauge", sglang=_s("kv_used_tokens", "num_used_tokens"), llamacpp=_s("kv_cache_tokens")),
    _m("kv_tokens_max", "gauge", sglang=_s("max_total_num_tokens")),
    _m(
        "prefix_cache_hit_ratio",
        "gauge",
        "none",
        vllm=_s("gpu_prefix_cache_hit_rate"),
        sglang=_s("cache_hit_rate"),
        trtllm=_s("kv_cache_hit_rate"),
    ),
    _m("pool_kv_usage_ratio", "gauge", "none", epp=_s("average_kv_cache_utilization")),
    _m(
        "prompt_tokens_per_s",
        "gauge",
        vllm=_s("avg_prompt_throughput_toks_per_s"),
        llamacpp=_s("prompt_tokens_seconds"),
    ),
    _m(
        "output_tokens_per_s",
        "gauge",
        vllm=_s("avg_generation_throughput_toks_per_s"),
        sglang=_s("gen_throughput"),
        llamacpp=_s("predicted_tokens_seconds"),
    ),
    _m("step_prompt_tokens", "gauge", triton=_step("total_context_tokens")),
    _m("step_output_tokens", "gauge", triton=_step("total_generation_tokens")),
    _m("step_empty_slots", "gauge", triton=_step("empty_generation_slots")),
    _m("cuda_graph_active", "gauge", "max", sglang=_s("is_cuda_graph")),
    _m("gpu_power_w", "gauge", triton=_s("gpu_power_usage")),
    _m("gpu_energy_j_total", "counter", triton=_s("energy_consumption")),
    _m("gpu_memory_used_bytes", "gauge", triton=_s("gpu_memory_used_bytes")),
    _m("cache_config", "info", "none", vllm=_s("cache_config_info")),
    _m("process_start_s", "gauge", "max", process=_s("process_start_time_seconds")),
)

RATIOS = frozenset(
    {"kv_usage_ratio", "kv_usage_cpu_ratio", "prefix_cache_hit_ratio", "spec_accept_ratio", "pool_kv_usage_ratio"}
)

# vLLM family (without prefix) -> (lower bound, upper bound) of the version that its presence implies
VERSION_HINTS: tuple[tuple[str, str | None, str | None], ...] = (
    ("num_requests_swapped", None, "0.9.2"),
    ("cpu_cache_usage_perc", None, "0.9.2"),
    ("gpu_prefix_cache_hit_rate", None, "0.9.2"),
    ("cpu_prefix_cache_hit_rate", None, "0.9.2"),
    ("kv_cache_usage_perc", "0.9.2", None),
    ("inter_token_latency_seconds", "0.10.2", None),
    ("request_time_per_output_token_seconds", "0.11", None),
    ("gpu_cache_usage_perc", None, "0.12"),
    ("time_per_output_token_seconds", None, "0.15.1"),
    ("num_requests_waiting_by_reason", "0.20", None),
    ("request_num_preemptions", "0.30", None),
)
