"""Time-uniform intervals: consistent with the verdicts, and they cover."""

import numpy as np

from policies import intervals
from policies import sequential as seq


def test_critical_counts_are_those_of_the_grid() -> None:
    n = np.array([300.0, 401.0, 500.0, 1000.0, 3000.0, 10000.0])
    k_pass, k_fail = intervals.critical_counts(n, np.full(6, 0.01), 0.05)
    assert np.isnan(k_pass[0])
    assert np.floor(k_pass[1:] + 1e-6).tolist() == [0, 0, 2, 15, 71]
    assert np.ceil(k_fail[[0, 2, 3, 4]] - 1e-6).tolist() == [10, 13, 21, 48]


def test_share_intervals_hold_exactly_the_shares_without_evidence() -> None:
    k, n = np.array([0.0, 3.0, 40.0, 99.0]), np.array([500.0, 200.0, 400.0, 100.0])
    low, high = intervals.share_intervals(k, n, 0.05)
    assert low[0] == 0.0 and (low <= k / n).all() and (k / n <= high).all()
    for i in range(4):
        if high[i] < 1.0:
            assert (
                abs(seq.log_e_pass(k[i], n[i], float(high[i])) - np.log(20)) < 0.3
            )  # duplicates of a clipped grid weigh more here
        if low[i] > 0.0:
            assert (
                abs(seq.log_e_fail(k[i], n[i], float(low[i])) - np.log(20)) < 0.3
            )  # duplicates of a clipped grid weigh more here


def test_share_intervals_cover_under_continuous_looking() -> None:
    rng = np.random.default_rng(8)
    events = np.cumsum(rng.random((300, 2000)) < 0.02, axis=1)
    ever_missed = np.zeros(300, dtype=bool)
    for n in range(50, 2001, 50):
        low, high = intervals.share_intervals(events[:, n - 1].astype(float), np.full(300, float(n)), 0.05)
        ever_missed |= (low > 0.02) | (high < 0.02)
    assert ever_missed.mean() <= 0.10 + 2 * np.sqrt(0.1 * 0.9 / 300)  # 5 % on each side


def test_ratio_intervals_hold_the_observed_ratio() -> None:
    k_c, k_b = np.array([20.0, 0.0, 10.0]), np.array([10.0, 12.0, 0.0])
    n = np.full(3, 1000.0)
    low, high = intervals.ratio_intervals(k_c, k_b, n, n, 0.05)
    assert low[0] < 2.0 < high[0]
    assert np.isnan(low[1]) and high[1] < 1.0
    assert low[2] > 1.0 and np.isnan(high[2])


def test_nothing_is_known_without_requests() -> None:
    zero = np.zeros(1)
    low, high = intervals.share_intervals(zero, zero, 0.05)
    assert (low[0], high[0]) == (0.0, 1.0)
    assert all(np.isnan(v[0]) for v in intervals.ratio_intervals(zero, zero, zero, zero, 0.05))
