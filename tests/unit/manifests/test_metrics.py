"""Engine metrics under canonical names: real pages, combination of series, absent is absent."""

import json
from pathlib import Path

import pytest

from manifests.engines.metrics import Metrics, NotExposition, parse_metrics


def page(shared_data: Path, name: str) -> Metrics:
    return parse_metrics((shared_data / "metrics" / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "engine", "hint", "values"),
    [
        (
            "vllm-v1-nixl-cpu-tinyllama.prom",
            "vllm",
            ">=0.11",
            {
                "requests_finished_total": 11208,
                "requests_failed_total": 0,
                "prefix_cache_hit_tokens_total": 220240,
                "prefill_tokens_computed_total": 11208,
            },
        ),
        (
            "vllm-v0-kubeai-edited.prom",
            "vllm",
            "<0.9.2",
            {"requests_waiting": 5, "requests_running": 3, "kv_tokens_max": 73184, "requests_swapped": 0},
        ),
        (
            "sglang-v0.5.10-datadog-fixture.prom",
            "sglang",
            None,
            {"kv_usage_ratio": 0.25, "kv_tokens_max": 430839, "cuda_graph_active": 1, "output_tokens_per_s": 425.5},
        ),
        (
            "tgi-datadog-fixture-excerpt.prom",
            "tgi",
            None,
            {"requests_finished_total": 111, "requests_failed_total": 2, "requests_received_total": 111},
        ),
        (
            "llamacpp-ik-server.prom",
            "llamacpp",
            None,
            {"prompt_tokens_total": 6886, "decode_seconds_total": 3544.27, "kv_tokens_used": 31428},
        ),
        (
            "triton-trtllm-inflight.prom",
            "triton-trtllm",
            None,
            {
                "requests_running": 0,
                "requests_waiting": 1,
                "kv_tokens_max": 6239 * 64,
                "kv_tokens_used": 64,
                "step_prompt_tokens": 0,
            },
        ),
        (
            "triton-vllm-backend-elided.prom",
            "triton-vllm",
            "<0.15.1",
            {"prompt_tokens_total": 10, "output_tokens_total": 16},
        ),
    ],
)
def test_real_pages(shared_data: Path, name: str, engine: str, hint: str | None, values: dict[str, float]) -> None:
    found = page(shared_data, name)
    assert (found.engine, found.version_hint) == (engine, hint)
    assert {key: found.value(key) for key in values} == values
    json.dumps(found.to_json(), allow_nan=False)


def test_absent_is_absent(shared_data: Path) -> None:
    found = page(shared_data, "llamacpp-ik-server.prom")
    assert not [
        name
        for name in found.metrics
        if name.endswith("_s") and name not in ("prompt_tokens_per_s", "output_tokens_per_s")
    ]
    assert "ttft_engine_s" not in found.metrics and found.value("preemptions_total") is None


@pytest.mark.parametrize(
    "name",
    [
        "promql-golden-vllm_queries.txt",
        "promql-golden-sglang_queries.txt",
        "vllm-v0.26.0-metric-families.txt",
        "index.tsv",
    ],
)
def test_what_is_no_exposition(shared_data: Path, name: str) -> None:
    with pytest.raises(NotExposition):
        page(shared_data, name)


@pytest.mark.parametrize("text", ["", "<html></html>", '{"a": 1}', "# only comments\n", "sum(rate(x[5m]))\n"])
def test_other_texts_are_no_exposition(text: str) -> None:
    with pytest.raises(NotExposition):
        parse_metrics(text)


def histogram(
    labels: str, *counts: int, edges: tuple[str, ...] = ("0.1", "1", "+Inf"), count: int | None = None
) -> str:
    name = "vllm:time_to_first_token_seconds"
    lines = [f'{name}_bucket{{{labels},le="{edge}"}} {value}' for edge, value in zip(edges, counts, strict=True)]
    return (
        "\n".join(
            [
                *lines,
                f"{name}_count{{{labels}}} {counts[-1] if count is None else count}",
                f"{name}_sum{{{labels}}} 1.5",
            ]
        )
        + "\n"
    )


def test_data_parallel_ranks_are_added() -> None:
    found = parse_metrics(histogram('engine="0"', 1, 2, 3) + histogram('engine="1"', 10, 20, 30)).metrics[
        "ttft_engine_s"
    ]
    assert found.buckets == ((0.1, 11), (1.0, 22), (float("inf"), 33)) and found.count == 33 and found.total == 3.0
    assert found.to_json()["buckets"] == [[0.1, 11], [1, 22], ["+Inf", 33]]
    assert [series["labels"] for series in found.to_json()["series"]] == [{"engine": "0"}, {"engine": "1"}]


def test_tensor_parallel_ranks_are_the_same_requests() -> None:
    text = 'sglang:num_running_reqs{tp_rank="0"} 3\nsglang:num_running_reqs{tp_rank="1"} 4\n'
    assert parse_metrics(text).value("requests_running") == 4
    ranks = (
        'sglang:num_running_reqs{dp_rank="0",tp_rank="0"} 3\nsglang:num_running_reqs{dp_rank="0",tp_rank="1"} '
        '3\nsglang:num_running_reqs{dp_rank="1",tp_rank="0"} 2\n'
    )
    assert parse_metrics(ranks).value("requests_running") == 5


def test_different_edges_are_not_added() -> None:
    found = parse_metrics(
        histogram('engine="0"', 1, 2, 3) + histogram('engine="1"', 1, 2, 3, edges=("0.2", "1", "+Inf"))
    )
    assert found.metrics["ttft_engine_s"].buckets is None and found.metrics["ttft_engine_s"].count == 6
    assert any("edges" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (histogram('a="b"', 1, 2, edges=("0.1", "1")), "no +Inf"),
        (histogram('a="b"', 1, 2, 3, count=4), "is not its count"),
        (histogram('a="b"', 3, 2, 3), "counts fall"),
        (histogram('a="b"', 1, edges=("+Inf",)), "cut off"),
    ],
)
def test_a_histogram_is_never_repaired(text: str, word: str) -> None:
    found = parse_metrics(text)
    assert any(word in warning and "no quantile" in warning for warning in found.warnings)


def test_a_histogram_without_count_has_none() -> None:
    text = "".join(line + "\n" for line in histogram('a="b"', 1, 2, 3).splitlines() if "_count" not in line)
    found = parse_metrics(text).metrics["ttft_engine_s"]
    assert found.count is None and found.to_json()["count"] is None and found.buckets is not None


def test_unknown_values_are_no_values() -> None:
    found = parse_metrics(
        "vllm:kv_cache_usage_perc NaN\nvllm:gpu_prefix_cache_hit_rate -1\nvllm:num_requests_running 1\n"
    )
    assert found.value("kv_usage_ratio") is None and "kv_usage_ratio" in found.metrics
    assert found.value("prefix_cache_hit_ratio") is None and len(found.warnings) == 2


def test_the_newest_of_two_names_is_taken_and_not_added() -> None:
    found = parse_metrics("vllm:kv_cache_usage_perc 0.5\nvllm:gpu_cache_usage_perc 0.7\n")
    assert found.value("kv_usage_ratio") == 0.5 and found.version_hint == ">=0.9.2,<0.12"
    assert any("gpu_cache_usage_perc" in warning for warning in found.warnings)


def test_contradicting_families_give_no_version() -> None:
    assert parse_metrics("vllm:num_requests_swapped 0\nvllm:inter_token_latency_seconds_count 1\n").version_hint is None


def test_units_are_converted_and_families_told_apart() -> None:
    found = parse_metrics(
        'nv_inference_request_duration_us{model="m"} 2500000\nnv_inference_request_success{model="m"} '
        '3\nnv_inference_request_failure{model="m",reason="OTHER"} 1\n'
    )
    assert found.engine == "triton" and found.value("request_seconds_total") == 2.5
    assert found.value("requests_finished_total") == 4 and found.value("requests_failed_total") == 1


def test_dynamo_passes_an_engine_through() -> None:
    text = (
        'dynamo_frontend_queued_requests{model="m"} 2\nvllm:num_requests_running{model_name="m"} '
        '1\ndynamo_frontend_model_total_kv_blocks{model="m"} '
        '10\ndynamo_frontend_model_kv_cache_block_size{model="m"} 16\n'
    )
    found = parse_metrics(text)
    assert found.engine == "dynamo-vllm" and found.value("requests_before_first_token") == 2
    assert found.value("requests_running") == 1 and found.value("kv_tokens_max") == 160


def test_a_router_is_never_an_engine() -> None:
    assert parse_metrics("llm_d_epp_request_running 1\n").engine == "llm-d-epp"
    assert parse_metrics("go_goroutines 5\n").engine == "unknown"
