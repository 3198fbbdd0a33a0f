"""The requests are what the scenarios say: percentiles, rates, shares, and nothing changes between two draws."""

import numpy as np
import pytest

from tools.bench.judge import quantiles, traffic
from tools.bench.judge.scenarios import SCENARIOS, STRATA, find
from tools.bench.judge.traffic import Requests, Source

SPAN = (36, 36 + 120)


def source(name: str, run: int = 0) -> Source:
    return Source(find(name)[0], seed=5, run=run, history_s=600.0)


def p99_ratio(name: str, span: tuple[int, int] = SPAN) -> np.ndarray:
    """Exceedance of the candidate above stable's true P99, by stratum, as a share."""
    s = source(name)
    requests = s.candidate(*span)
    threshold = s.log_median + np.log(traffic.true_p99_factor(s.scenario.is_heavy))
    return np.asarray(requests.above(threshold)[0].sum(axis=0) / requests.answered.sum(axis=0))


def test_stable_exceeds_its_true_p99_in_one_percent() -> None:
    for name in ("null", "heavy_null", "bursty_null_independent"):
        s = source(name)
        threshold = s.log_median + np.log(traffic.true_p99_factor(s.scenario.is_heavy))
        parts = [s.stable(first, first + 300) for first in (0, 300, 600, 900)]
        share = sum(p.above(threshold)[0].sum() for p in parts) / sum(p.answered.sum() for p in parts)
        assert share == pytest.approx(0.01, rel=0.03 if s.scenario.burst == "" else 0.5)


def test_only_the_touched_strata_are_slower() -> None:
    share = p99_ratio("one_tenant_x2")
    touched = find("one_tenant_x2")[0].touched()
    assert touched.sum() == 6
    assert share[touched].mean() == pytest.approx(0.1736, rel=0.1)  # x2 at sigma .5
    assert share[~touched].mean() == pytest.approx(0.01, rel=0.1)


def test_a_tail_of_x2_3_with_a_better_median() -> None:
    s = source("mean_better_tail_worse")
    touched = s.scenario.touched()
    requests = s.candidate(*SPAN)
    worse = s.log_median + np.log(traffic.true_p99_factor(False) * 2.3)
    share = requests.above(worse)[0].sum(axis=0) / requests.answered.sum(axis=0)
    assert share[touched].mean() == pytest.approx(0.01, rel=0.15)
    below = 1 - requests.above(s.log_median)[0].sum(axis=0) / requests.answered.sum(axis=0)
    assert below[touched].mean() > 0.55


def test_late_onset_waits() -> None:
    touched = find("late_15min_tenant_x2")[0].touched()
    early, late = p99_ratio("late_15min_tenant_x2", (36, 150)), p99_ratio("late_15min_tenant_x2", (36 + 180, 36 + 300))
    assert early[touched].mean() < 0.015 < 0.1 < late[touched].mean()


def test_zipf_keeps_the_total_and_has_the_stated_least_rate() -> None:
    rate = traffic.rates(find("zipf_null")[0])
    assert rate.sum() == pytest.approx(STRATA * traffic.RATE_RPS)
    assert rate.min() == pytest.approx(0.17, rel=1e-6)


def test_stall_holds_every_request_until_its_end() -> None:
    s = source("candidate_stall_30s")
    first = 36 + round(traffic.STALL_AT_S / 5)
    requests = s.candidate(first, first + 12)
    log_ten = np.full(STRATA, np.log(10.0))
    over = requests.above(log_ten)[0].sum(axis=1) / requests.answered.sum(axis=1)
    assert (over[:3] > 0.9).all() and (over[6:] == 0.0).all()


def test_silent_strata_and_lost_blocks() -> None:
    s = source("missing_20%_3_silent")
    assert (s.candidate(*SPAN).attempted.sum(axis=0) == 0).sum() == 3
    assert (s.stable(*SPAN).attempted.sum(axis=0) > 0).all()
    assert s.lost.mean() == pytest.approx(0.2, abs=0.04)


def test_bursts_are_shared_or_not() -> None:
    def correlation(name: str) -> float:
        s = source(name)
        arms = [s.stable(0, 1400), s.candidate(0, 1400)]
        above = [a.above(s.log_median + 0.5)[0].sum(axis=1) / a.answered.sum(axis=1) for a in arms]
        return float(np.corrcoef(above[0], above[1])[0, 1])

    assert correlation("bursty_null_shared") > 0.9
    assert abs(correlation("bursty_null_independent")) < 0.5


def test_the_same_seed_gives_the_same_requests_and_another_run_others() -> None:
    first, again, other = (source("null", run).candidate(*SPAN) for run in (0, 0, 1))
    np.testing.assert_array_equal(first.log_ttft, again.log_ttft)
    assert first.log_ttft.shape != other.log_ttft.shape or (first.log_ttft != other.log_ttft).any()


def test_names_are_unique_and_an_unknown_one_is_refused() -> None:
    assert len({s.name for s in SCENARIOS}) == len(SCENARIOS)
    with pytest.raises(ValueError, match="no scenario 'nul'"):
        find("null,nul")


def test_minute_p99_is_the_nearest_rank() -> None:
    values = np.arange(1.0, 201.0)  # one stratum of two, one minute: rank 198
    requests = Requests(
        attempted=np.tile([[200 // 10, 0]], (12, 1)), failed=np.zeros((12, 2), dtype=np.int64),
        cell=np.repeat(np.arange(0, 24, 2), 17)[:200], log_ttft=np.log(values),
    )  # fmt: skip
    by_stratum, whole = quantiles.minute_p99(requests, np.zeros(12, dtype=bool))
    assert by_stratum[0, 0] == pytest.approx(198_000.0) and np.isnan(by_stratum[0, 1])
    assert whole[0] == pytest.approx(198_000.0)


@pytest.mark.parametrize("name", ["one_tenant_x2", "heavy_null", "bursty_null_independent"])
def test_counts_by_law_are_distributed_as_counted_requests(name: str) -> None:
    drawn_from = source(name)
    logs = np.stack([drawn_from.log_median + d for d in (1.2, 0.3, 0.8)])
    law = drawn_from.candidate_law(36, 136)
    attempted, failed, above = drawn_from.above(law, 1, 36, logs)
    requests = drawn_from.candidate(36, 136)
    counted = requests.above(*logs)
    assert abs(attempted.sum() - requests.attempted.sum()) < 5 * np.sqrt(2 * attempted.sum())
    assert abs(failed.sum() - requests.failed.sum()) < 5 * np.sqrt(2 * failed.sum() + 1)
    assert (above[0] <= above[2]).all()
    assert (above[2] <= above[1]).all()
    for drawn, seen in zip(above, counted, strict=True):
        assert abs(drawn.sum() - seen.sum()) < 5 * np.sqrt(2 * drawn.sum())
