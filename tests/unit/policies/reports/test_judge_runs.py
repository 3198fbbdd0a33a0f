"""One look at reports: what passes, what fails, and what a report cannot say."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from policies.reports.bounds import below_floor, fewest_requests, implausible, quantile_bounds
from policies.reports.judge import judge_runs
from policies.reports.read import read_report
from policies.reports.summary import Load, Run, Summary
from policies.verdict import GateRow, HoldReason, Result, Verdict
from tests.unit.policies.conftest import make_contract

GATES = [{"metric": "ttft", "percentile": "99", "margin": "25%"}, {"metric": "success", "limit": "99%"}]
CONTRACT = make_contract(GATES)
AT_10 = Load("rate", 10.0)


def made(n: int = 40_000, p99: float = 1.0, failed: int = 0, load: Load | None = AT_10, **changes: object) -> Summary:
    knots = tuple(
        (p, p99 * f) for p, f in ((0.5, 0.4), (0.95, 0.8), (0.98, 0.95), (0.99, 1.0), (0.995, 1.05), (1.0, 1.5))
    )
    known = Summary("made", n, failed, load, 10.0, {"ttft": knots}, {}, 50.0, None, (90.0, 110.0))
    return replace(known, **changes)  # type: ignore[arg-type]


def judged(stable: Summary, candidate: Summary, floor_s: float | None = None) -> Verdict:
    return judge_runs(CONTRACT, [Run(stable)], [Run(candidate)], "a", floor_s)


def row(verdict: Verdict, metric: str = "ttft") -> GateRow:
    return next(r for r in verdict.rows if r.metric == metric)


@pytest.mark.parametrize(("p99", "result"), [(1.0, Result.PASS), (3.0, Result.FAIL), (1.3, Result.INCONCLUSIVE)])
def test_three_answers(p99: float, result: Result) -> None:
    verdict = judged(made(), made(p99=p99))
    assert verdict.result is result and row(verdict).verdict is result
    assert (verdict.rollback.e >= verdict.rollback.threshold) == (result is Result.FAIL)
    assert (row(verdict).e_pass >= 20) == (result is Result.PASS)
    assert [c.metric for c in verdict.rollback.culprits] == (["ttft"] if result is Result.FAIL else [])


@pytest.mark.parametrize(("failed", "result"), [(0, Result.PASS), (2000, Result.FAIL), (380, Result.INCONCLUSIVE)])
def test_failures_are_counted_and_shown(failed: int, result: Result) -> None:
    verdict = judged(made(), made(failed=failed))
    assert row(verdict, "success").verdict is result and row(verdict, "success").exceed_candidate == failed
    assert row(verdict).exceed_candidate is None, "how many requests exceeded a threshold is not in a report"


@pytest.mark.parametrize(
    ("stable", "candidate", "reason"),
    [
        ({"load": Load("rate", 12.0)}, {}, HoldReason.NOT_LOAD_MATCHED),
        ({"load": Load("concurrency", 10.0)}, {}, HoldReason.NOT_LOAD_MATCHED),
        ({"load": None}, {}, HoldReason.NOT_LOAD_MATCHED),
        ({"achieved_rps": 8.0}, {}, HoldReason.NOT_LOAD_MATCHED),
        ({}, {"achieved_rps": 8.0}, HoldReason.NOT_LOAD_MATCHED),
        ({}, {"output_tokens": 40.0}, HoldReason.OUTPUT_LENGTH_SHIFT),
        ({"prompt_tokens": 200.0}, {"prompt_tokens": 100.0}, HoldReason.PROMPT_MIX_SHIFT),
        ({"quantiles": {}}, {}, HoldReason.UNMEASURED),
    ],
)
def test_other_work_or_another_load_is_no_comparison(
    stable: Mapping[str, object], candidate: Mapping[str, object], reason: HoldReason
) -> None:
    verdict = judged(replace(made(), **stable), replace(made(), **candidate))  # type: ignore[arg-type]
    assert verdict.result is Result.INCONCLUSIVE and row(verdict).hold is reason
    assert reason in {h.reason for h in verdict.holds}


def test_a_mix_of_lengths_proves_no_bucket() -> None:
    verdict = judged(made(), made(prompt_range=(90.0, 900.0)))
    assert verdict.result is Result.INCONCLUSIVE and HoldReason.UNBUCKETED in {h.reason for h in verdict.holds}


def test_a_report_stands_for_one_tenant() -> None:
    both = make_contract(GATES, tenants={"required": ["a", "b"]})
    verdict = judge_runs(both, [Run(made())], [Run(made())], "a")
    assert verdict.result is Result.INCONCLUSIVE and verdict.holds[0].reason is HoldReason.NO_TRAFFIC


def test_only_averages_are_named() -> None:
    verdict = judged(made(quantiles={}, means={"ttft": 0.1}), made())
    assert row(verdict).verdict is Result.INCONCLUSIVE and "mean says nothing about a percentile" in row(verdict).reason


def test_few_requests_say_how_many_are_needed() -> None:
    found = row(judged(made(n=60), made(n=60)))
    assert found.verdict is Result.INCONCLUSIVE and found.needed_requests == fewest_requests(0.99, 0.025, 4.0) - 60
    assert fewest_requests(0.99, 0.05, 1.0) == 299, "ln 0.05 / ln 0.99"


def test_each_run_finds_the_one_at_its_load() -> None:
    stable = [Run(made(load=Load("rate", r), achieved_rps=r)) for r in (5.0, 10.0, 20.0)]
    slow = Run(made(p99=3.0, load=Load("rate", 21.0), achieved_rps=21.0))
    verdict = judge_runs(CONTRACT, stable, [Run(made()), slow], "a")
    assert [r.verdict for r in verdict.rows if r.metric == "ttft"] == [Result.PASS, Result.FAIL]
    assert "at 21 req/s" in verdict.sentences[0]


def test_bounds_are_percentiles_that_the_tool_wrote() -> None:
    """10,000 requests, 5 % each side: ranks 9883 and 9917; the percentiles beside them are P98 and P99.5."""
    assert quantile_bounds(made(n=10_000), "ttft", 0.99, 0.05) == (0.95, 1.05)
    assert quantile_bounds(made(n=298), "ttft", 0.99, 0.05)[1] is None


def test_what_cannot_be_true_is_named() -> None:
    means = {"ttft": 0.03, "tpot": 0.004, "e2e": 0.547}
    twice = made(means=means, output_tokens=62.4)
    assert "counted twice" in implausible(twice)["tpot"]
    assert not implausible(made(means={**means, "tpot": 0.0084}, output_tokens=62.4))
    falling = made(quantiles={"ttft": ((0.5, 1.0), (0.9, 0.9))})
    assert "fall" in implausible(falling)["ttft"]
    assert "longer" in implausible(made(means={"ttft": 2.0, "e2e": 1.0}))["ttft"]


def test_faster_than_the_accelerator_is_implausible() -> None:
    fast = made(quantiles={"tpot": ((0.5, 0.002), (0.99, 0.003), (1.0, 0.004))})
    assert below_floor(fast, 0.001) is None and "ledger" in str(below_floor(fast, 0.004))
    gates = [{"metric": "tpot", "percentile": "99", "limit": "20ms"}]
    verdict = judge_runs(make_contract(gates), [], [Run(fast)], "a", 0.004)
    assert verdict.result is Result.INCONCLUSIVE and row(verdict, "tpot").hold is HoldReason.IMPLAUSIBLE
    assert judge_runs(make_contract(gates), [], [Run(fast)], "a").result is Result.PASS


def load(shared_data: Path, variant: str, stage: int) -> Run:
    folder = shared_data / "traces" / "kubecon-na-2025-ab" / variant / "results"
    return read_report((folder / f"stage_{stage}_lifecycle_metrics.json").read_bytes())[0]


def test_the_ab_runs_say_which_variant_keeps_up_at_which_load(shared_data: Path) -> None:
    variants = ("vllm", "vllm+batch_size", "vllm+v0_engine")
    kept = {v: [load(shared_data, v, stage).summary.keeps_up for stage in range(7)] for v in variants}
    assert kept["vllm"] == [True, True, True, True, False, False, False]  # 92 of 92 req/s, 106 of 123
    assert kept["vllm+batch_size"] == [True, True, True, True, False, False, False]  # 112 of 112, 117 of 149
    assert kept["vllm+v0_engine"] == [True, True, True, False, False, False, False]  # 79 of 79, 79 of 119


def test_the_ab_runs_counted_tokens_twice(shared_data: Path) -> None:
    assert "counted twice" in implausible(load(shared_data, "vllm", 1).summary)["tpot"]
