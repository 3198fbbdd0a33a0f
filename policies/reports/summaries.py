"""Reports of runs in numbers: inference-perf, vLLM and SGLang bench, AIPerf and GenAI-Perf, GuideLLM, genai-bench,
LLMPerf, llm-d's benchmark report.

One function per tool: (whether it is one, its runs). What a tool calls by our name but computes otherwise is absent,
with the formula it uses.
"""

from collections.abc import Callable, Mapping
from typing import Any

from policies import blocks
from policies.reports.summary import (
    Load,
    Summary,
    first,
    mapping,
    number,
    positive,
    read_quantiles,
)

_BY_TOKEN = "the tool's percentiles of it are over tokens, not over requests"
_FROM_START = "the tool divides the whole latency by all tokens; ours leaves the first token out"
Document = Mapping[str, Any]


def _metrics(
    values: Mapping[str, Any], scale: Mapping[str, float] | float = 1.0
) -> tuple[dict[str, Any], dict[str, float]]:
    """Percentiles and means of objects by metric."""
    quantiles, means = {}, {}
    for metric, stats in values.items():
        unit = scale if isinstance(scale, float) else scale.get(metric, 1.0)
        if found := read_quantiles(mapping(stats), unit):
            quantiles[metric] = found
        mean = positive(first(mapping(stats), "mean", "avg"))
        if mean is not None:
            means[metric] = mean * unit
    return quantiles, means


def _rate(offered: Any, concurrency: Any = None, at_once: Any = None) -> Load | None:
    """An open loop's rate where there is one, else the concurrency cap, else the number of requests sent at once."""
    if (rate := positive(offered)) is not None:
        return Load("rate", rate)
    if (users := positive(concurrency)) is not None:
        return Load("concurrency", users)
    burst = positive(at_once)
    return None if burst is None else Load("burst", burst)


def _range(stats: Mapping[str, Any]) -> tuple[float, float] | None:
    low, high = positive(stats.get("min")), positive(stats.get("max"))
    return (low, high) if low is not None and high is not None else None


# --- inference-perf ---


def is_inference_perf(document: Document) -> bool:
    return "successes" in document and "load_summary" in document


def inference_perf(document: Document) -> Summary:
    """Stage and summary files. `load_summary` is empty in the files of server metrics: their counts are averages."""
    good, load = mapping(document["successes"]), mapping(document["load_summary"])
    latency = mapping(good.get("latency")) or good
    prompts = mapping(first(good, "prompt_len", "prompt_tokens"))
    outputs = mapping(first(good, "output_len", "output_tokens"))
    quantiles, means = _metrics(
        {
            blocks.TTFT: latency.get("time_to_first_token"),
            blocks.TPOT: latency.get("time_per_output_token"),
            blocks.E2E: latency.get("request_latency"),
        }
    )
    achieved = number(load.get("achieved_rate"))
    return Summary(
        tool="inference-perf",
        succeeded=int(number(good.get("count")) or 0),
        failed=int(number(mapping(document.get("failures")).get("count")) or 0),
        load=_rate(load.get("requested_rate"), first(load, "concurrency", "concurrency_level")),
        achieved_rps=achieved,
        quantiles=quantiles if load else {},
        means=means,
        output_tokens=positive(outputs.get("mean")) if load else None,
        prompt_tokens=positive(prompts.get("mean")) if load else None,
        prompt_range=_range(prompts),
        absent={} if load else dict.fromkeys(quantiles, "read from the engine's histograms, not from requests"),
    )


# --- vLLM bench, SGLang bench ---


def is_vllm_bench(document: Document) -> bool:
    return "completed" in document and any(k.endswith(("_ttft_ms", "_e2el_ms", "_e2e_latency_ms")) for k in document)


def vllm_bench(document: Document) -> Summary:
    """One result of `vllm bench serve` (formerly benchmark_serving.py) or of SGLang's bench_serving."""
    values: dict[str, dict[str, Any]] = {blocks.TTFT: {}, blocks.TPOT: {}, blocks.E2E: {}}
    suffixes = {"_ttft_ms": blocks.TTFT, "_tpot_ms": blocks.TPOT, "_e2el_ms": blocks.E2E, "_e2e_latency_ms": blocks.E2E}
    for key, value in document.items():
        for suffix, metric in suffixes.items():
            if key.endswith(suffix) and positive(value) is not None:
                values[metric][key.removesuffix(suffix)] = value
    quantiles, means = _metrics(values, 0.001)
    completed, sent = int(number(document["completed"]) or 0), number(document.get("num_prompts"))
    failed = number(document.get("failed"))
    tokens_in = number(first(document, "total_input_tokens", "total_input"))
    tokens_out = number(first(document, "total_output_tokens", "total_output"))
    return Summary(
        tool="sglang-bench" if "total_output_tokens_retokenized" in document else "vllm-bench",
        succeeded=completed,
        failed=int(failed if failed is not None else max(0.0, (sent or completed) - completed)),
        load=_rate(document.get("request_rate"), document.get("max_concurrency"), sent),
        achieved_rps=number(document.get("request_throughput")),
        quantiles=quantiles,
        means=means,
        output_tokens=tokens_out / completed if tokens_out is not None and completed else None,
        prompt_tokens=tokens_in / completed if tokens_in is not None and completed else None,
    )


# --- AIPerf, GenAI-Perf ---

_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0, "milliseconds": 1e-3}


def aiperf_records(document: Document) -> Mapping[str, Any]:
    """The objects of statistics by metric: at the top, or under `records` (an object, or a list with tags)."""
    inside = document.get("records")
    if isinstance(inside, list):
        return {str(entry.get("tag")): entry for entry in inside if isinstance(entry, Mapping)}
    return inside if isinstance(inside, Mapping) else document


def is_aiperf(document: Document) -> bool:
    found = mapping(first(aiperf_records(document), "request_latency", "time_to_first_token", "ttft"))
    return "unit" in found and "avg" in found


def aiperf(document: Document) -> Summary:
    """`profile_export_aiperf.json` and `profile_export_genai_perf.json`; its inter-token latency is one value per
    request, which is our TPOT.
    """
    records = aiperf_records(document)
    values = {
        blocks.TTFT: mapping(first(records, "time_to_first_token", "ttft")),
        blocks.TPOT: mapping(records.get("inter_token_latency")),
        blocks.E2E: mapping(records.get("request_latency")),
    }
    scale = {metric: _UNITS.get(str(stats.get("unit")), 1e-3) for metric, stats in values.items()}
    quantiles, means = _metrics(values, scale)
    count = mapping(records.get("request_count"))
    errors = number(mapping(records.get("error_request_count")).get("avg"))
    succeeded = first(count, "avg") or mapping(records.get("request_latency")).get("count")
    config = mapping(document.get("input_config"))
    loadgen = {**mapping(mapping(config.get("perf_analyzer")).get("stimulus")), **mapping(config.get("loadgen"))}
    prompts = mapping(records.get("input_sequence_length"))
    counts_errors = errors is not None or "error_summary" in document
    return Summary(
        tool="aiperf",
        succeeded=int(number(succeeded) or 0),
        failed=int(errors or 0),
        load=_rate(loadgen.get("request_rate"), loadgen.get("concurrency")),
        achieved_rps=number(mapping(records.get("request_throughput")).get("avg")),
        quantiles=quantiles,
        means=means,
        output_tokens=positive(mapping(records.get("output_sequence_length")).get("avg")),
        prompt_tokens=positive(prompts.get("avg")),
        prompt_range=_range(prompts),
        absent={} if counts_errors else {blocks.SUCCESS: "failures are not counted"},
    )


# --- GuideLLM ---


def is_guidellm(document: Document) -> bool:
    runs = document.get("benchmarks")
    return isinstance(runs, list) and bool(runs) and "metrics" in mapping(runs[0]) and "requests" in mapping(runs[0])


def guidellm(run: Document) -> Summary:
    """One benchmark of a report. Its inter-token latencies are weighted by tokens, and its time per output token
    includes the first one: neither is our TPOT.
    """
    metrics = mapping(run["metrics"])

    def stats(name: str) -> Mapping[str, Any]:
        found = mapping(mapping(metrics.get(name)).get("successful"))
        counted = number(found.get("count"))
        return {} if counted == 0 else {**found, **mapping(found.get("percentiles"))}

    values = {blocks.TTFT: stats("time_to_first_token_ms"), blocks.E2E: stats("request_latency")}
    quantiles, means = _metrics(values, {blocks.TTFT: 0.001})
    counts = mapping(first(metrics, "request_totals") or first(run, "request_totals", "total_count"))
    counts = counts or mapping(mapping(run.get("run_stats")).get("requests_made"))
    prompts, outputs = stats("prompt_token_count"), stats("output_token_count")
    streams = any(value > 0 for _, value in quantiles.get(blocks.TTFT, ()))
    return Summary(
        tool="guidellm",
        succeeded=int(number(counts.get("successful")) or 0),
        failed=int(number(counts.get("errored")) or 0),
        load=guidellm_load(run),
        achieved_rps=number(stats("requests_per_second").get("mean")),
        quantiles=quantiles if streams else {m: q for m, q in quantiles.items() if m != blocks.TTFT},
        means=means,
        output_tokens=positive(outputs.get("mean")),
        prompt_tokens=positive(prompts.get("mean")),
        prompt_range=_range(prompts),
        absent={blocks.TPOT: _BY_TOKEN},
    )


def guidellm_load(run: Document) -> Load | None:
    """Rate of a constant or Poisson strategy, streams of a concurrent one; synchronous is one stream."""
    strategy = mapping(first(mapping(run.get("config")), "strategy") or mapping(run.get("args")).get("strategy"))
    strategy = strategy or mapping(run.get("scheduler")).get("strategy") or {}
    kind = str(first(strategy, "type_", "kind") or "")
    if kind == "synchronous":
        return Load("concurrency", 1.0)
    streams = first(strategy, "streams") or (None if strategy.get("rate") else strategy.get("max_concurrency"))
    return _rate(strategy.get("rate"), streams)


# --- genai-bench ---


def is_genai_bench(document: Document) -> bool:
    return "stats" in mapping(document.get("aggregated_metrics"))


def genai_bench(document: Document) -> Summary:
    """The file of one scenario and concurrency."""
    total = mapping(document["aggregated_metrics"])
    stats = mapping(total["stats"])
    unit = 1e-3 if document.get("_time_unit") == "ms" else 1.0
    values = {blocks.TTFT: stats.get("ttft"), blocks.TPOT: stats.get("tpot"), blocks.E2E: stats.get("e2e_latency")}
    quantiles, means = _metrics(values, unit)
    per_minute = number(total.get("requests_per_minute"))
    prompts = mapping(stats.get("num_input_tokens"))
    is_batch = total.get("iteration_type") == "batch_size"
    return Summary(
        tool="genai-bench",
        succeeded=int(number(total.get("num_completed_requests")) or 0),
        failed=int(number(total.get("num_error_requests")) or 0),
        load=_rate(None, total.get("batch_size") if is_batch else total.get("num_concurrency")),
        achieved_rps=number(total.get("requests_per_second")) or (per_minute / 60 if per_minute else None),
        quantiles=quantiles,
        means=means,
        output_tokens=positive(mapping(stats.get("num_output_tokens")).get("mean")),
        prompt_tokens=positive(prompts.get("mean")),
        prompt_range=_range(prompts),
    )


# --- LLMPerf ---


def is_llmperf(document: Document) -> bool:
    return any(k.startswith("results_ttft_s") for k in document) or "ttft_s" in mapping(document.get("results"))


def llmperf(document: Document) -> Summary:
    """The `_summary.json` of a run: flat names (`results_ttft_s_quantiles_p99`), or nested ones as LLMPerf has them
    before it writes.
    """
    nested = mapping(document.get("results"))

    def stats(name: str) -> dict[str, Any]:
        inside = mapping(nested.get(name))
        start = f"results_{name}_"
        flat = {k.removeprefix(start).removeprefix("quantiles_"): v for k, v in document.items() if k.startswith(start)}
        return {**inside, **mapping(inside.get("quantiles")), **flat}

    def one(name: str) -> float | None:
        return number(first(document, f"results_{name}", name) or nested.get(name))

    values = {blocks.TTFT: stats("ttft_s"), blocks.E2E: stats("end_to_end_latency_s")}
    quantiles, means = _metrics(values)
    per_minute, prompts = one("num_completed_requests_per_min"), stats("number_input_tokens")
    return Summary(
        tool="llmperf",
        succeeded=int(one("num_completed_requests") or 0),
        failed=int(one("number_errors") or one("num_errors") or 0),
        load=_rate(None, document.get("num_concurrent_requests")),
        achieved_rps=None if per_minute is None else per_minute / 60,
        quantiles=quantiles,
        means=means,
        output_tokens=positive(stats("number_output_tokens").get("mean")),
        prompt_tokens=positive(prompts.get("mean")),
        prompt_range=_range(prompts),
        absent={blocks.TPOT: _FROM_START},
    )


# --- llm-d benchmark report ---


def is_llm_d(document: Document) -> bool:
    return "version" in document and ("results" in document or "metrics" in document) and "scenario" in document


def llm_d(document: Document) -> Summary:
    """Benchmark reports v0.1 (`metrics`) and v0.2 (`results.request_performance.aggregate`)."""
    performance = mapping(mapping(document.get("results")).get("request_performance"))
    total = mapping(performance.get("aggregate")) or mapping(document.get("metrics"))
    latency, requests = mapping(total.get("latency")), mapping(total.get("requests"))
    values = {
        blocks.TTFT: mapping(latency.get("time_to_first_token")),
        blocks.TPOT: mapping(latency.get("time_per_output_token")),
        blocks.E2E: mapping(latency.get("request_latency")),
    }
    scale = {metric: _UNITS.get(str(stats.get("units", "s")).split("/")[0], 1.0) for metric, stats in values.items()}
    quantiles, means = _metrics(values, scale)
    prompts, outputs = mapping(requests.get("input_length")), mapping(requests.get("output_length"))
    failed = number(requests.get("failures")) or 0
    return Summary(
        tool="llm-d-benchmark",
        succeeded=int((number(requests.get("total")) or 0) - failed),
        failed=int(failed),
        load=_llm_d_load(document),
        achieved_rps=number(mapping(mapping(total.get("throughput")).get("request_rate")).get("mean")),
        quantiles=quantiles,
        means=means,
        output_tokens=positive(outputs.get("mean")),
        prompt_tokens=positive(prompts.get("mean")),
        prompt_range=_range(prompts),
    )


def _llm_d_load(document: Document) -> Load | None:
    load = mapping(mapping(document.get("scenario")).get("load"))
    known = mapping(load.get("standardized")) or load
    return _rate(first(known, "rate_qps", "rate"), known.get("concurrency"))


SUMMARIES: tuple[tuple[Callable[[Document], bool], Callable[[Document], Summary]], ...] = (
    (is_inference_perf, inference_perf),
    (is_vllm_bench, vllm_bench),
    (is_genai_bench, genai_bench),
    (is_llmperf, llmperf),
    (is_llm_d, llm_d),
    (is_aiperf, aiperf),
)
