"""Reports of tools, by kind and version: made documents in the tools' own shapes, and samples of the data folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from policies.reports.read import read_report, runs_of
from policies.reports.summary import Load, ReportError, Run

AIPERF_LINE = {
    "metadata": {
        "session_num": 45,
        "request_start_ns": 1_759_813_207_532_900_363,
        "request_end_ns": 1_759_813_207_838_764_604,
        "benchmark_phase": "profiling",
        "was_cancelled": False,
    },
    "metrics": {
        "input_sequence_length": {"value": 550, "unit": "tokens"},
        "time_to_first_token": {"value": 255.9, "unit": "ms"},
        "request_latency": {"value": 297.5, "unit": "ms"},
        "output_sequence_length": {"value": 9, "unit": "tokens"},
        "inter_chunk_latency": {"value": [4.0, 6.0, 5.0], "unit": "ms"},
    },
    "error": None,
}
AIPERF_FAILED = {
    "metadata": {**AIPERF_LINE["metadata"], "was_cancelled": True},  # type: ignore[dict-item]
    "metrics": {"error_isl": {"value": 550, "unit": "tokens"}},
    "error": {"code": 499, "type": "RequestCancellationError", "message": "cancelled after 0.000 seconds"},
}


def one(document: Any) -> Run:
    (found,) = runs_of(document)
    return found


def vllm(**changes: Any) -> dict[str, Any]:
    return {
        "backend": "vllm",
        "num_prompts": 1000,
        "request_rate": 10.0,
        "max_concurrency": None,
        "duration": 101.0,
        "completed": 990,
        "total_input_tokens": 198_000,
        "total_output_tokens": 99_000,
        "request_throughput": 9.8,
        "mean_ttft_ms": 100.0,
        "median_ttft_ms": 90.0,
        "p99_ttft_ms": 300.0,
        "mean_tpot_ms": 10.0,
        "p99_tpot_ms": float("nan"),
        "mean_e2el_ms": 1090.0,
        "p99.9_e2el_ms": 1900.0,
        "p99_itl_ms": 50.0,
        **changes,
    }


def test_vllm_bench_without_details() -> None:
    run = one(vllm())
    s = run.summary
    assert run.records is None and s.tool == "vllm-bench"
    assert (s.succeeded, s.failed, s.output_tokens, s.prompt_tokens) == (990, 10, 100.0, 200.0)
    assert s.load == Load("rate", 10.0) and s.keeps_up
    assert s.quantiles["ttft"] == ((0.5, 0.09), (0.99, 0.3)) and s.quantiles["e2e"] == ((0.999, pytest.approx(1.9)),)
    assert "tpot" not in s.quantiles, "NaN is absent, and the inter-token latency is not the time per token"


@pytest.mark.parametrize(
    ("changes", "load"),
    [
        ({"request_rate": "inf", "max_concurrency": 8}, Load("concurrency", 8)),
        ({"request_rate": "inf"}, Load("burst", 1000)),
    ],
)
def test_an_endless_rate_is_a_closed_loop_or_a_burst(changes: dict[str, Any], load: Load) -> None:
    assert one(vllm(**changes)).summary.load == load


def test_a_tool_that_did_not_stream_has_no_time_to_first_token() -> None:
    zeros = vllm(mean_ttft_ms=0.0, median_ttft_ms=0.0, p99_ttft_ms=0.0)
    assert "ttft" not in one(zeros).summary.quantiles, "absent was read as zero"


def detailed(**changes: Any) -> dict[str, Any]:
    return vllm(
        completed=2,
        num_prompts=3,
        input_lens=[100, 200, 300],
        output_lens=[3, 1, 0],
        ttfts=[0.1, 0.2, 0.0],
        itls=[[0.01, 0.03], [], []],
        errors=["", "", "Traceback: 429 Too Many Requests"],
        **changes,
    )


def test_vllm_bench_with_details_is_records_where_it_has_start_times() -> None:
    run = one(detailed(start_times=[50.0, 50.1, 50.2], latencies=[0.14, 0.2, 0.0]))
    assert run.records is not None
    first, second, failed = run.records
    assert (first["t_start_s"], first["ttft_s"], first["e2e_s"], first["output_tokens"]) == (50.0, 0.1, 0.14, 3)
    assert first["max_gap_s"] == pytest.approx(0.03) and first["max_gap_at_s"] == pytest.approx(0.14)
    assert second["e2e_s"] == 0.2 and second["output_tokens"] == 1
    assert failed["outcome"] == "rejected" and "ttft_s" not in failed and "output_tokens" not in failed


def test_vllm_bench_of_a_version_without_start_times_is_summed_up() -> None:
    run = one(detailed())
    assert run.records is None, "a time is not made up"
    assert run.summary.quantiles["ttft"] == ((0.0, 0.1), (1.0, 0.2)) and run.summary.failed == 1
    assert run.summary.load == Load("rate", 10.0)


def test_sglang_bench_has_one_line_per_run() -> None:
    lines = [
        {
            "backend": "sglang",
            "request_rate": rate,
            "completed": 500,
            "total_output_tokens": 50_000,
            "total_output_tokens_retokenized": 50_010,
            "median_e2e_latency_ms": 900.0,
            "p99_ttft_ms": 200.0,
        }
        for rate in (4.0, 8.0)
    ]
    runs = read_report("\n".join(json.dumps(line) for line in lines).encode())
    assert [r.summary.load for r in runs] == [Load("rate", 4.0), Load("rate", 8.0)]
    assert runs[0].summary.tool == "sglang-bench" and runs[0].summary.quantiles["e2e"] == ((0.5, 0.9),)


def stats(p99: float, unit: str = "ms", **more: Any) -> dict[str, Any]:
    return {"unit": unit, "avg": p99 / 2, "min": 1.0, "max": p99 * 1.1, "p50": p99 / 2, "p99": p99, **more}


@pytest.mark.parametrize("shape", ["flat", "records", "tagged"])
def test_aiperf_summary_in_three_shapes(shape: str) -> None:
    records = {
        "time_to_first_token": stats(300.0),
        "inter_token_latency": stats(12.0),
        "request_latency": stats(2.0, "s"),
        "request_throughput": {"unit": "requests/sec", "avg": 4.9},
        "request_count": {"unit": "requests", "avg": 1200.0},
        "error_request_count": {"unit": "requests", "avg": 3.0},
        "output_sequence_length": stats(80.0, "tokens"),
        "input_sequence_length": {"unit": "tokens", "avg": 550.0, "min": 540, "max": 560},
    }
    config = {"input_config": {"loadgen": {"concurrency": 16, "request_rate": None}}}
    document: dict[str, Any] = {**records, **config}
    if shape == "records":
        document = {"records": records, **config}
    elif shape == "tagged":
        document = {"records": [{"tag": tag, **entry} for tag, entry in records.items()], **config}
    s = one(document).summary
    assert (s.tool, s.succeeded, s.failed, s.load) == ("aiperf", 1200, 3, Load("concurrency", 16.0))
    assert dict(s.quantiles["ttft"])[0.99] == pytest.approx(0.3) and dict(s.quantiles["e2e"])[0.99] == 2.0
    assert dict(s.quantiles["tpot"])[0.99] == pytest.approx(0.012), "its inter-token latency is one value per request"
    assert s.prompt_range == (540, 560)


def test_aiperf_lines_are_records() -> None:
    warm = {**AIPERF_LINE, "metadata": {**AIPERF_LINE["metadata"], "benchmark_phase": "warmup"}}  # type: ignore[dict-item]
    run = one([AIPERF_LINE, AIPERF_FAILED, warm])
    assert run.records is not None and len(run.records) == 2, "the warm-up phase is left out"
    ok, gone = run.records
    assert ok["ttft_s"] == pytest.approx(0.2559) and ok["e2e_s"] == pytest.approx(0.2975)
    assert ok["t_start_s"] == pytest.approx(1_759_813_207.5329) and ok["max_gap_s"] == pytest.approx(0.006)
    assert gone["outcome"] == "cancelled" and gone["prompt_tokens"] == 550


def guidellm(run: dict[str, Any]) -> dict[str, Any]:
    def known(**values: float) -> dict[str, Any]:
        return {"successful": {"mean": 1.0, "count": 2, "percentiles": values, **values}}

    metrics = {
        "request_totals": {"successful": 2, "errored": 1, "incomplete": 1},
        "request_latency": known(p50=1.0, p99=2.0),
        "time_to_first_token_ms": {**known(p50=90.0, p99=300.0), "errored": {"mean": 0.0, "count": 0}},
        "time_per_output_token_ms": known(p99=9.0),
        "inter_token_latency_ms": known(p99=8.0),
        "prompt_token_count": {"successful": {"mean": 60.0, "min": 50.0, "max": 70.0, "count": 2}},
    }
    return {
        "benchmarks": [{"metrics": metrics, "requests": {"successful": [], "errored": [], "incomplete": []}, **run}]
    }


def test_guidellm_calls_other_things_time_per_token() -> None:
    s = one(guidellm({"config": {"strategy": {"type_": "constant", "rate": 4.0, "max_concurrency": 512}}})).summary
    assert s.load == Load("rate", 4.0) and s.failed == 1
    assert dict(s.quantiles["ttft"])[0.99] == 0.3
    assert "tpot" not in s.quantiles and "over tokens" in s.absent["tpot"]


@pytest.mark.parametrize("version", [1, 2])
def test_guidellm_requests_of_two_versions_are_records(version: int) -> None:
    def request(start: float) -> dict[str, Any]:
        common = {"prompt_tokens": 60, "output_tokens": 11, "request_latency": 1.0, "time_to_first_token_ms": 100.0}
        times = {"start_time": start, "end_time": start + 1.0} if version == 1 else {"request_start_time": start}
        return {**common, **times}

    error = {"start_time": 12.0, "request_start_time": 12.0, "error": "ReadTimeout"}
    lists = {"successful": [request(10.0), request(11.0)], "errored": [error], "incomplete": [{"start_time": 13.0}]}
    args = {"args": {"strategy": {"type_": "concurrent", "streams": 4}}}
    run = one(guidellm({"requests": lists, **args}))
    assert run.records is not None and run.summary.load == Load("concurrency", 4)
    assert [r["outcome"] for r in run.records] == ["ok", "ok", "timeout", "open"]
    assert run.records[0]["ttft_s"] == 0.1 and run.summary.quantiles["tpot"][0][1] == pytest.approx(0.09)


def test_a_sample_of_requests_is_not_taken_for_all() -> None:
    one_of_two = {"successful": [{"start_time": 10.0, "request_latency": 1.0}], "errored": [], "incomplete": []}
    assert one(guidellm({"requests": one_of_two})).records is None


@pytest.mark.parametrize(("unit", "scale"), [("s", 1.0), (None, 1.0), ("ms", 1000.0)])
def test_genai_bench_in_seconds_and_milliseconds(unit: str | None, scale: float) -> None:
    entry = {"ttft": 0.2 * scale, "e2e_latency": 1.2 * scale, "num_input_tokens": 100, "num_output_tokens": 101}
    failed = {"ttft": None, "e2e_latency": None, "error_code": 503, "error_message": "overloaded"}
    document: dict[str, Any] = {
        "aggregated_metrics": {
            "num_concurrency": 4,
            "num_completed_requests": 2,
            "num_error_requests": 1,
            "requests_per_second": 3.0,
            "stats": {"ttft": {"p50": 0.2 * scale, "p99": 0.3 * scale, "mean": 0.2 * scale}},
        },
        "individual_request_metrics": [entry, entry, failed],
    }
    if unit is not None:
        document["_time_unit"] = unit
    s = one(document).summary
    assert s.load == Load("concurrency", 4.0) and (s.succeeded, s.failed) == (2, 1)
    assert s.quantiles["ttft"][0][1] == pytest.approx(0.2) and s.quantiles["tpot"][0][1] == pytest.approx(0.01)
    document["individual_request_metrics"] = []
    assert dict(one(document).summary.quantiles["ttft"])[0.99] == pytest.approx(0.3)


def test_llmperf_summary_flat_and_nested() -> None:
    flat = {
        "num_concurrent_requests": 10,
        "results_ttft_s_quantiles_p99": 0.4,
        "results_ttft_s_mean": 0.2,
        "results_inter_token_latency_s_quantiles_p99": 0.02,
        "results_end_to_end_latency_s_quantiles_p99": 3.0,
        "results_num_completed_requests": 300,
        "results_number_errors": 2,
        "results_num_completed_requests_per_min": 60.0,
    }
    nested = {
        "num_concurrent_requests": 10,
        "results": {
            "ttft_s": {"quantiles": {"p99": 0.4}, "mean": 0.2},
            "end_to_end_latency_s": {"quantiles": {"p99": 3.0}},
            "num_completed_requests": 300,
            "number_errors": 2,
            "num_completed_requests_per_min": 60.0,
        },
    }
    for document in (flat, nested):
        s = one(document).summary
        assert (s.tool, s.succeeded, s.failed, s.achieved_rps) == ("llmperf", 300, 2, 1.0)
        assert s.quantiles["ttft"] == ((0.99, 0.4),) and "first token" in s.absent["tpot"]


def test_llmperf_responses_have_no_times() -> None:
    entry = {"ttft_s": 0.5, "end_to_end_latency_s": 2.5, "number_output_tokens": 101, "error_code": None}
    error = {"ttft_s": 0, "end_to_end_latency_s": 0, "error_code": 429, "error_msg": "slow down"}
    run = one([entry, entry, error])
    assert run.records is None and (run.summary.succeeded, run.summary.failed) == (2, 1)
    assert run.summary.quantiles["tpot"][0][1] == pytest.approx(0.02)


@pytest.mark.parametrize("is_new", [False, True])
def test_inference_perf_requests_old_and_new(is_new: bool) -> None:
    answer = {"output_tokens": 3, "output_token_times": [100.2, 100.3, 100.5]}
    info: dict[str, Any] = {"input_tokens": 64, **answer}
    if is_new:
        usage = {"server_usage": {"prompt_tokens": 66, "completion_tokens": 3}}
        info = {"request_metrics": {"text": {"input_tokens": 64}}, "response_metrics": {**answer, **usage}}
    ok = {"start_time": 100.0, "end_time": 100.6, "info": info, "error": None}
    bad = {
        "start_time": 101.0,
        "end_time": 101.1,
        "info": {},
        "error": {"error_type": "HTTP Error 400", "error_msg": ""},
    }
    run = one([ok, bad])
    assert run.records is not None
    first, second = run.records
    assert first["ttft_s"] == pytest.approx(0.2) and first["e2e_s"] == pytest.approx(0.6)
    assert first["max_gap_s"] == pytest.approx(0.2) and first["prompt_tokens"] == (66 if is_new else 64)
    assert second["outcome"] == "client_error"


def test_the_samples_of_the_data_folder(shared_data: Path) -> None:
    folder = shared_data / "traces"
    two = read_report((folder / "reports" / "guidellm_report_v2.json").read_bytes())
    assert [str(r.summary.load) for r in two] == ["2 req/s", "4 req/s"]
    (llm_d,) = read_report((folder / "reports" / "br_v0_2_example.yaml").read_bytes())
    assert set(llm_d.summary.quantiles) == {"ttft"} and set(llm_d.summary.means) == {"ttft", "tpot", "e2e"}
    (llmperf,) = read_report((folder / "llmperf_bedrock_per_request.jsonl").read_bytes())
    assert llmperf.summary.succeeded == 350
    stage = folder / "kubecon-na-2025-ab" / "vllm" / "results"
    (run,) = read_report((stage / "stage_1_lifecycle_metrics.json").read_bytes())
    assert run.summary.succeeded == 1884 and "maxGap" not in run.summary.quantiles
    (scraped,) = read_report((stage / "stage_1_prometheus_metrics.json").read_bytes())
    assert not scraped.summary.quantiles and "histograms" in scraped.summary.absent["ttft"]


@pytest.mark.parametrize(
    "content", [b"[]", b"{}", b'{"hello": 1}', b"text", b"[1, 2]", b"\xff\xfe", b'[{"a": 1}]', b""]
)
def test_other_documents_are_refused(content: bytes) -> None:
    with pytest.raises(ReportError):
        read_report(content)
