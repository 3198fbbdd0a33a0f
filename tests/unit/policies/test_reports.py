"""Reports of tools: the KubeCon NA 2025 A/B runs, and small made ones."""

import json
from pathlib import Path

import pytest

from policies.reports import ReportError, Summary, compare, implausible, quantile_interval, read_report
from policies.verdict import Result

VARIANTS = ("vllm", "vllm+batch_size", "vllm+v0_engine")


def load(shared_data: Path, variant: str, stage: int) -> Summary:
    folder = shared_data / "traces" / "kubecon-na-2025-ab" / variant / "results"
    return read_report(json.loads((folder / f"stage_{stage}_lifecycle_metrics.json").read_text()))


def test_the_ab_runs_say_which_variant_keeps_up_at_which_load(shared_data: Path) -> None:
    kept = {v: [load(shared_data, v, stage).keeps_up for stage in range(7)] for v in VARIANTS}
    assert kept["vllm"] == [True, True, True, True, False, False, False]  # 92 of 92 req/s, 106 of 123
    assert kept["vllm+batch_size"] == [True, True, True, True, False, False, False]  # 112 of 112, 117 of 149
    assert kept["vllm+v0_engine"] == [True, True, True, False, False, False, False]  # 79 of 79, 79 of 119


def test_sixty_requests_prove_nothing_about_p99(shared_data: Path) -> None:
    stable, candidate = (load(shared_data, v, 0) for v in VARIANTS[:2])
    assert quantile_interval(candidate, "ttft", 0.99, 0.025)[1] is None
    assert compare(stable, candidate, "ttft", 0.99, 0.25).result is Result.INCONCLUSIVE


def test_runs_at_different_loads_are_not_compared(shared_data: Path) -> None:
    stable, batch, old = (load(shared_data, v, 1) for v in VARIANTS)
    for candidate in (batch, old):
        found = compare(stable, candidate, "ttft", 0.99, 0.25)
        assert found.result is Result.INCONCLUSIVE and "loads differ" in found.reason


def test_the_old_engine_is_worse_than_the_new_one_at_a_similar_load(shared_data: Path) -> None:
    """79 requests a second against 75."""
    found = compare(load(shared_data, "vllm+batch_size", 2), load(shared_data, "vllm+v0_engine", 2), "ttft", 0.99, 0.25)
    assert found.result is Result.FAIL


def test_what_a_report_leaves_out_is_absent(shared_data: Path) -> None:
    summary = load(shared_data, "vllm", 1)
    assert "maxGap" not in summary.quantiles and summary.failed == 0 and summary.succeeded == 1884
    assert compare(summary, summary, "maxGap", 0.99, 0.25).result is Result.INCONCLUSIVE


def test_per_token_times_that_do_not_add_up_are_named(shared_data: Path) -> None:
    (words,) = implausible(load(shared_data, "vllm", 1))
    assert "tokens are counted twice" in words


def made(n: int, p99: float, **changes: object) -> Summary:
    knots = tuple(
        (p, p99 * f) for p, f in ((0.5, 0.4), (0.95, 0.8), (0.98, 0.95), (0.99, 1.0), (0.995, 1.05), (1.0, 1.5))
    )
    values: dict[str, object] = {"requested_rps": 10.0, "achieved_rps": 10.0, "quantiles": {"ttft": knots}, "means": {}}
    return Summary("made", n, 0, **{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(("p99", "result"), [(1.0, Result.PASS), (3.0, Result.FAIL), (1.3, Result.INCONCLUSIVE)])
def test_one_look_at_two_reports(p99: float, result: Result) -> None:
    assert compare(made(10_000, 1.0), made(10_000, p99), "ttft", 0.99, 0.25).result is result


def test_a_vllm_bench_report_reads_under_our_names() -> None:
    document = {
        "completed": 990,
        "num_prompts": 1000,
        "request_throughput": 9.9,
        "request_rate": 10.0,
        "total_output_tokens": 99_000,
        "mean_ttft_ms": 100.0,
        "median_ttft_ms": 90.0,
        "p99_ttft_ms": 300.0,
        "mean_tpot_ms": 10.0,
        "p99_tpot_ms": float("nan"),
        "mean_e2el_ms": 1090.0,
        "p99_itl_ms": 50.0,
    }
    summary = read_report(document)
    assert summary.failed == 10 and summary.output_tokens == 100.0
    assert summary.quantiles == {"ttft": ((0.5, 0.09), (0.99, 0.3))}, "NaN is absent, and itl is not tpot"
    assert implausible(summary) == []


def test_other_documents_are_refused() -> None:
    for document in ([], {}, {"hello": 1}, "text"):
        with pytest.raises(ReportError):
            read_report(document)
