"""The peers' rules on cases made by hand: formulas of the judge's facts 3c, values of its section 11."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm, rankdata

from tools.bench.judge import peers, quantiles
from tools.bench.judge.quantiles import VLLM_TTFT_EDGES_S, histogram_quantile

NAN, INF = math.nan, math.inf


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)[:, None]


# --- Argo Rollouts ---


def test_argo_fails_when_failures_exceed_the_limit_and_they_need_not_be_consecutive() -> None:
    values = column(2, 1, 2, 1, 2, 1, 2, 1)
    assert peers.argo(values, 1.25, 0, count=8) == ("FAIL", 60.0)
    assert peers.argo(values, 1.25, 3, count=8) == ("FAIL", 420.0)  # the fourth failure
    assert peers.argo(values, 1.25, 4, count=8) == ("PASS", 480.0)


def test_argo_exactly_at_the_limit_is_a_success_and_nan_is_a_failure() -> None:
    assert peers.argo(column(1.25, 1.25), 1.25, 0, count=2) == ("PASS", 120.0)
    assert peers.argo(column(1.0, NAN), 1.25, 0, count=2) == ("FAIL", 120.0)


def test_argo_counts_each_metric_alone_and_any_ends_the_run() -> None:
    values = np.array([[2.0, 1.0], [1.0, 2.0], [1.0, 2.0]])
    assert peers.argo(values, 1.25, 1, count=3) == ("FAIL", 180.0)
    assert peers.argo(values, 1.25, 2, count=3) == ("PASS", 180.0)


def test_argo_errors_only_count_in_a_row() -> None:
    err = -INF
    assert peers.argo(column(err, err, err, err, 1.0, err, err, err, err), 1.25, 0, count=9) == ("PASS", 540.0)
    assert peers.argo(column(err, err, err, err, err), 1.25, 0, count=5) == ("FAIL", 300.0)


# --- Flagger ---


def test_flagger_sums_failed_checks_and_rolls_back_at_the_next_tick() -> None:
    values = column(2, 1, 2, 1, 1, 1, 1)
    assert peers.flagger(values, 1.25, threshold=2, iterations=10) == ("FAIL", 240.0)
    assert peers.flagger(values, 1.25, threshold=3, iterations=5) == ("PASS", 420.0)  # failed ticks are no iterations


def test_flagger_any_metric_fails_the_tick_once_and_no_value_fails_it_too() -> None:
    values = np.array([[2.0, 2.0], [1.0, NAN], [1.0, 1.0], [1.0, 1.0]])
    assert peers.flagger(values, 1.25, threshold=2, iterations=9) == ("FAIL", 180.0)
    assert peers.flagger(values, 1.25, threshold=3, iterations=9) == ("INCONCLUSIVE", 240.0)


# --- Kayenta ---


@pytest.mark.parametrize(
    ("added", "low", "high", "estimate", "is_high"),
    [(0.5, -3.5, 4.5, 0.5, False), (3.0, -1.0, 7.0, 3.0, False), (5.0, 1.0, 9.0, 5.0, False)],
)
def test_kayenta_reference_values(added: float, low: float, high: float, estimate: float, is_high: bool) -> None:
    control = np.arange(1.0, 11.0)[None, :]
    shift = peers.mann_whitney(control, control + added)
    assert (shift.low[0], shift.high[0], shift.estimate[0]) == pytest.approx((low, high, estimate))
    assert peers.kayenta_high(control, control + added)[0] == is_high  # for +5: 1.0 > 1.25 is false


def _by_root(control: np.ndarray, experiment: np.ndarray, quantile: float) -> float:
    """The interval's end by root finding on the ranks, as `MannWhitney.scala` does it."""
    m, n = len(control), len(experiment)

    def statistic(shift: float) -> float:
        ranks = rankdata(np.concatenate([experiment - shift, control]))
        z = ranks[:n].sum() - n * (n + 1) / 2 - n * m / 2
        ties = np.unique(ranks, return_counts=True)[1].astype(float)
        sigma = math.sqrt(m * n / 12 * ((m + n + 1) - (ties**3 - ties).sum() / ((m + n) * (m + n - 1))))
        return float((z - np.sign(z) * 0.5) / sigma - quantile)

    low, high = experiment.min() - control.max(), experiment.max() - control.min()
    if statistic(low) <= 0:
        return float(low)
    if statistic(high) >= 0:
        return float(high)
    return float(brentq(statistic, low, high, xtol=1e-9))


@pytest.mark.parametrize("seed", range(8))
def test_kayenta_interval_equals_root_finding(seed: int) -> None:
    rng = np.random.default_rng(seed)
    control, experiment = rng.lognormal(5.0, 0.2, 30), rng.lognormal(5.1, 0.3, 30 - seed % 2)
    shift = peers.mann_whitney(control[None, :], experiment[None, :])
    z = float(norm.ppf(0.99))
    assert shift.low[0] == pytest.approx(_by_root(control, experiment, z), abs=1e-6)
    assert shift.high[0] == pytest.approx(_by_root(control, experiment, -z), abs=1e-6)


def test_kayenta_with_ties_inside_an_arm() -> None:
    control, experiment = np.array([1.0, 1.0, 2.0, 3.0, 5.0, 8.0]), np.array([2.5, 2.5, 4.25, 6.0, 9.5, 9.5])
    shift = peers.mann_whitney(control[None, :], experiment[None, :], confidence=0.9)
    assert shift.low[0] == pytest.approx(_by_root(control, experiment, float(norm.ppf(0.95))), abs=1e-6)


def test_kayenta_high_needs_both_the_interval_and_the_ratio_of_means() -> None:
    control = np.arange(100.0, 130.0)[None, :]
    worse = control * 1.2
    assert peers.kayenta_high(control, worse)[0]
    assert not peers.kayenta_high(control, worse, allowed_increase=1.25)[0]
    assert not peers.kayenta_high(control, control)[0]  # equal data pass
    assert not peers.kayenta_high(worse, control)[0]  # lower is no breach for this direction


def test_kayenta_one_critical_metric_fails_all_and_missing_data_fail_from_one_half_on() -> None:
    good = np.tile(np.arange(100.0, 130.0), (3, 1))
    worse = good.copy()
    worse[1] *= 2
    assert peers.kayenta(good, worse) == ("FAIL", 1800.0)
    assert peers.kayenta(good, good[:, ::-1]) == ("PASS", 1800.0)
    silent = good[:, ::-1].copy()
    silent[0] = NAN
    assert peers.kayenta(good, silent)[0] == "PASS"
    silent[1] = NAN
    assert peers.kayenta(good, silent)[0] == "FAIL"


# --- tests of fixed size ---


def _looks(k_c: int, k_b: int, over: int, n: int = 1000) -> peers.Looks:
    def one(value: float) -> np.ndarray:
        return np.array([[float(value)]])

    return peers.Looks(np.array([60.0]), (one(n), one(k_c), one(n), one(k_b)), ((one(n), one(over), 0.01),))


def test_fixed_size_uses_exact_tails() -> None:
    assert peers.fixed_size(_looks(15, 5, 4)) == ("FAIL", 60.0)  # P(Bin(20, 1/2) >= 15) = .0207
    assert peers.fixed_size(_looks(14, 6, 4)) == ("INCONCLUSIVE", 60.0)  # .0577
    assert peers.fixed_size(_looks(5, 15, 4)) == ("PASS", 60.0)  # and 4 of 1000 is below 1 %: CP95 allows 4
    assert peers.fixed_size(_looks(5, 15, 5)) == ("INCONCLUSIVE", 60.0)
    assert peers.fixed_size(_looks(5, 5, 17))[0] == "FAIL"


# --- what the peers read ---


def test_histogram_quantile_interpolates_inside_a_bucket_like_promql() -> None:
    buckets = np.zeros(len(VLLM_TTFT_EDGES_S) + 1)
    buckets[VLLM_TTFT_EDGES_S.index(0.25)] = 98
    buckets[VLLM_TTFT_EDGES_S.index(0.5)] = 2
    assert histogram_quantile(0.99, buckets) == pytest.approx(0.375)  # half of the way from .25 to .5
    assert histogram_quantile(0.98, buckets) == pytest.approx(0.25)
    assert math.isnan(float(histogram_quantile(0.99, np.zeros_like(buckets))))
    beyond = np.zeros_like(buckets)
    beyond[-1] = 5
    assert histogram_quantile(0.99, beyond) == VLLM_TTFT_EDGES_S[-1]
    first = np.zeros_like(buckets)
    first[0] = 4
    assert histogram_quantile(0.5, first) == pytest.approx(0.0005)


def test_windows_sum_the_last_minutes() -> None:
    counts = np.arange(1.0, 7.0)[:, None, None]
    assert quantiles.windows(counts, 1)[:, 0, 0].tolist() == [1, 2, 3, 4, 5, 6]
    assert quantiles.windows(counts, 5)[:, 0, 0].tolist() == [1, 3, 6, 10, 15, 20]
