"""Requests that benchmark tools wrote one by one, as request records without variant and tenant.

inference-perf `per_request_lifecycle_metrics.json`, vLLM bench `--save-detailed`, AIPerf `profile_export.jsonl`,
GuideLLM `requests`, genai-bench `individual_request_metrics`, LLMPerf `_individual_responses.json`. Where a tool wrote
no start times the records have none and can only be summed up. A zero that stands for "not measured" is left out.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from policies.records import Outcome
from policies.reports.summaries import guidellm, guidellm_load, is_guidellm
from policies.reports.summary import Load, Run, first, mapping, number, positive, summary_of

Record = dict[str, Any]
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}
_CODE = re.compile(r"\b([45]\d\d)\b")


def error_outcome(code: Any, text: str) -> str:
    """Outcome of a failed request, from a status code, else from the words of the error."""
    status = number(code)
    if status is None and (found := _CODE.search(text)):
        status = float(found.group(1))
    words = text.lower()
    if status == 499 or "cancel" in words:
        return Outcome.CANCELLED
    if status in (408, 504) or "timeout" in words or "timed out" in words:
        return Outcome.TIMEOUT
    if status == 429:
        return Outcome.REJECTED
    return Outcome.CLIENT_ERROR if status is not None and 400 <= status < 500 else Outcome.SERVER_ERROR


def make(number_: int, outcome: str, start_s: float | None, **fields: Any) -> Record:
    """A record; fields that are None are left out, a zero latency as well."""
    kept = {k: v for k, v in fields.items() if v is not None and not (k in ("ttft_s", "e2e_s") and v <= 0)}
    times = {} if start_s is None else {"t_start_s": start_s}
    return {"id": str(number_), "outcome": str(outcome), **times, **kept}


def gap_fields(ends: Sequence[float], start_s: float = 0.0) -> Record:
    """The longest gap between chunks, its end from the start of the request, and the number of gaps."""
    gaps = [(b - a, b - start_s) for a, b in pairwise(ends)]
    if not gaps:
        return {"gaps_n": 0} if ends else {}
    longest, at = max(gaps)
    return {"max_gap_s": longest, "max_gap_at_s": at, "gaps_n": len(gaps)}


def achieved_rps(records: Sequence[Record]) -> float | None:
    """Requests started per second; None without times."""
    starts = [r["t_start_s"] for r in records if "t_start_s" in r]
    span = max(starts) - min(starts) if starts else 0.0
    return (len(starts) - 1) / span if span > 0 else None


def _run(tool: str, records: Sequence[Record], load: Load | None) -> Run:
    rps = achieved_rps(records)
    timed = bool(records) and all("t_start_s" in r for r in records)
    if load is None and rps is not None:
        load = Load("rate", rps)
    return Run(summary_of(tool, records, load, rps), tuple(records) if timed else None)


# --- vLLM bench ---


def vllm_detailed(document: Mapping[str, Any], load: Load | None) -> Run | None:
    """Lists of a detailed result; None for a result without them."""
    ttfts, outputs, errors = (document.get(name) or [] for name in ("ttfts", "output_lens", "errors"))
    if not ttfts or not len(ttfts) == len(outputs) == len(errors):
        return None
    itls = document.get("itls") or [[]] * len(ttfts)
    starts, whole = document.get("start_times"), document.get("latencies")
    prompts = document.get("input_lens") or [None] * len(ttfts)
    records = []
    for i, (ttft, tokens, error, gaps) in enumerate(zip(ttfts, outputs, errors, itls, strict=True)):
        start_s = number(starts[i]) if starts else None
        prompt = positive(prompts[i])
        if error:
            records.append(make(i, error_outcome(None, str(error)), start_s, prompt_tokens=prompt))
            continue
        e2e = positive(whole[i]) if whole else (ttft + sum(gaps) if ttft and (gaps or tokens == 1) else None)
        ends = [ttft]
        for gap in gaps:
            ends.append(ends[-1] + gap)
        fields = gap_fields(ends) if ttft and gaps else {}
        known = {"prompt_tokens": prompt, "output_tokens": positive(tokens), "stream": bool(ttft)}
        records.append(make(i, Outcome.OK, start_s, ttft_s=positive(ttft), e2e_s=e2e, **known, **fields))
    return _run("vllm-bench", records, load)


# --- inference-perf ---


def is_inference_perf(entries: Sequence[Any]) -> bool:
    head = mapping(entries[0]) if entries else {}
    return {"start_time", "end_time", "info"} <= head.keys()


def inference_perf(entries: Sequence[Mapping[str, Any]]) -> Run:
    """Old files have the numbers in `info`, newer ones in `info.request_metrics` and `info.response_metrics`."""
    records = []
    for i, entry in enumerate(entries):
        info = mapping(entry.get("info"))
        answer = mapping(info.get("response_metrics")) or info
        usage = mapping(answer.get("server_usage"))
        start_s, end_s = number(entry.get("start_time")), number(entry.get("end_time"))
        times = [t for t in first(answer, "output_token_times", "chunk_times") or [] if number(t) is not None]
        prompt = first(usage, "prompt_tokens", "input_tokens") or first(info, "input_tokens")
        prompt = prompt or mapping(mapping(info.get("request_metrics")).get("text")).get("input_tokens")
        tokens = first(usage, "completion_tokens") or first(answer, "output_tokens")
        error = entry.get("error") or {}
        error = {"error_msg": error} if isinstance(error, str) else mapping(error)
        words = " ".join(str(v) for v in error.values())
        has_times = start_s is not None and bool(times)
        fields = {
            "ttft_s": times[0] - start_s if has_times and start_s is not None else None,
            "e2e_s": end_s - start_s if end_s is not None and start_s is not None else None,
            "prompt_tokens": positive(prompt),
            "output_tokens": positive(tokens),
            "tokens_source": "usage" if usage else "estimate",
            "stream": bool(times),
        }
        gaps = gap_fields(times, start_s or 0.0) if has_times else {}
        outcome = error_outcome(error.get("status_code"), words) if error else Outcome.OK
        records.append(make(i, outcome, start_s, **fields, **gaps))
    return _run("inference-perf", records, None)


# --- AIPerf ---


def is_aiperf(entries: Sequence[Any]) -> bool:
    head = mapping(entries[0]) if entries else {}
    return "metadata" in head and "metrics" in head and "request_start_ns" in mapping(head["metadata"])


def aiperf(entries: Iterable[Mapping[str, Any]]) -> Run:
    """Lines of `profile_export.jsonl`; those of the warm-up phase are left out."""
    records = []
    for i, entry in enumerate(entries):
        about, metrics = mapping(entry.get("metadata")), mapping(entry.get("metrics"))
        if about.get("benchmark_phase") not in (None, "profiling"):
            continue
        start_ns, end_ns = number(about.get("request_start_ns")), number(about.get("request_end_ns"))
        start_s = None if start_ns is None else start_ns / 1e9
        whole = _aiperf_seconds(metrics, "request_latency")
        if whole is None and start_ns is not None and end_ns is not None:
            whole = (end_ns - start_ns) / 1e9
        error = mapping(entry.get("error"))
        words = f"{error.get('type', '')} {error.get('message', '')}"
        outcome = error_outcome(error.get("code"), words) if error else Outcome.OK
        outcome = Outcome.CANCELLED if about.get("was_cancelled") else outcome
        ttft = _aiperf_seconds(metrics, "time_to_first_token", "ttft")
        fields = {
            "ttft_s": ttft,
            "e2e_s": whole,
            "prompt_tokens": positive(_value(metrics, "input_sequence_length", "error_isl")),
            "output_tokens": positive(_value(metrics, "output_sequence_length")),
            "stream": ttft is not None or None,
        }
        records.append(make(i, outcome, start_s, **fields, **_aiperf_gaps(metrics, ttft)))
    return _run("aiperf", records, None)


def _value(metrics: Mapping[str, Any], *names: str) -> Any:
    found = first(metrics, *names)
    return found.get("value") if isinstance(found, Mapping) else found


def _aiperf_unit(metrics: Mapping[str, Any], *names: str) -> float:
    return _UNIT_SECONDS.get(str(mapping(first(metrics, *names)).get("unit")), 1e-3)


def _aiperf_seconds(metrics: Mapping[str, Any], *names: str) -> float | None:
    found = positive(_value(metrics, *names))
    return None if found is None else found * _aiperf_unit(metrics, *names)


def _aiperf_gaps(metrics: Mapping[str, Any], ttft: float | None) -> Record:
    gaps = _value(metrics, "inter_chunk_latency")
    if not isinstance(gaps, list) or ttft is None:
        return {}
    unit, ends = _aiperf_unit(metrics, "inter_chunk_latency"), [ttft]
    for gap in gaps:
        ends.append(ends[-1] + (number(gap) or 0.0) * unit)
    return gap_fields(ends)


# --- GuideLLM ---


def guidellm_runs(document: Mapping[str, Any]) -> list[Run]:
    """One run per benchmark; requests only where the report holds all of them (they may be a sample, or left out)."""
    return [_guidellm_run(run) for run in document["benchmarks"]] if is_guidellm(document) else []


def _guidellm_run(run: Mapping[str, Any]) -> Run:
    summary, lists = guidellm(run), mapping(run["requests"])
    ends = (("successful", Outcome.OK), ("errored", Outcome.SERVER_ERROR), ("incomplete", Outcome.OPEN))
    found = [(entry, outcome) for name, outcome in ends for entry in lists.get(name) or []]
    ok = sum(outcome is Outcome.OK for _, outcome in found)
    if not ok or ok < summary.succeeded or sum(o is Outcome.SERVER_ERROR for _, o in found) < summary.failed:
        return Run(summary)
    records = [_guidellm_request(i, mapping(entry), outcome) for i, (entry, outcome) in enumerate(found)]
    return _run("guidellm", records, guidellm_load(run))


def _guidellm_request(i: int, entry: Mapping[str, Any], outcome: str) -> Record:
    timings = mapping(mapping(entry.get("info")).get("timings"))
    start_s = number(first(entry, "request_start_time", "start_time") or timings.get("request_start"))
    end_s = number(first(entry, "request_end_time", "end_time") or timings.get("request_end"))
    ttft_ms, whole = positive(entry.get("time_to_first_token_ms")), positive(entry.get("request_latency"))
    if whole is None and start_s is not None and end_s is not None:
        whole = end_s - start_s
    if outcome is Outcome.SERVER_ERROR:
        outcome = error_outcome(None, str(entry.get("error") or mapping(entry.get("info")).get("error") or ""))
    fields = {
        "ttft_s": None if ttft_ms is None else ttft_ms / 1000,
        "e2e_s": whole,
        "prompt_tokens": positive(entry.get("prompt_tokens")),
        "output_tokens": positive(entry.get("output_tokens")),
        "stream": ttft_ms is not None or None,
    }
    return make(i, outcome, start_s, **fields)


# --- genai-bench, LLMPerf ---


def genai_bench(document: Mapping[str, Any], load: Load | None) -> Run | None:
    """The single requests of a run (they have no times); None where the file has none, or not all."""
    entries = document.get("individual_request_metrics") or []
    total = mapping(document.get("aggregated_metrics"))
    if not entries or len(entries) < (number(total.get("num_completed_requests")) or 0):
        return None
    unit = 1e-3 if document.get("_time_unit") == "ms" else 1.0
    records = []
    for i, entry in enumerate(entries):
        code = entry.get("error_code")
        ttft, whole = positive(entry.get("ttft")), positive(entry.get("e2e_latency"))
        fields = {
            "ttft_s": None if ttft is None else ttft * unit,
            "e2e_s": None if whole is None else whole * unit,
            "prompt_tokens": positive(entry.get("num_input_tokens")),
            "output_tokens": positive(entry.get("num_output_tokens")),
        }
        outcome = error_outcome(code, str(entry.get("error_message") or "")) if code is not None else Outcome.OK
        records.append(make(i, outcome, None, **fields))
    return _run("genai-bench", records, load)


def is_llmperf(entries: Sequence[Any]) -> bool:
    head = mapping(entries[0]) if entries else {}
    return "ttft_s" in head and "end_to_end_latency_s" in head and "variant" not in head


def llmperf(entries: Iterable[Mapping[str, Any]]) -> Run:
    """Individual responses; start times where the version wrote them."""
    records, users = [], None
    for i, entry in enumerate(entries):
        users = users or positive(entry.get("num_concurrent_requests"))
        code, words = entry.get("error_code"), str(entry.get("error_msg") or "")
        failed = code is not None or bool(entry.get("failure"))
        fields = {
            "ttft_s": positive(entry.get("ttft_s")),
            "e2e_s": positive(entry.get("end_to_end_latency_s")),
            "prompt_tokens": positive(entry.get("number_input_tokens")),
            "output_tokens": positive(entry.get("number_output_tokens")),
        }
        start_s = number(first(entry, "request_start_time", "request_start_time_s", "start_time", "start_time_s"))
        records.append(make(i, error_outcome(code, words) if failed else Outcome.OK, start_s, **fields))
    return _run("llmperf", records, None if users is None else Load("concurrency", users))
