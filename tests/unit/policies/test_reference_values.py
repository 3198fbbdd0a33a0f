"""Reference values of the statistics, to the digits that were published with the design."""

import math

import numpy as np
import pytest

from policies import sequential as seq
from policies.intervals import clopper_pearson, order_statistic_ranks, requests_for_upper_bound, wilson
from policies.projection import Strata
from policies.rollback import cell_weights

R = 1.55436286
"""Confseq's parametrisation a = r/(1 - p0), b = r/p0, of Beta(1.570063, 155.436286)."""


@pytest.mark.parametrize(
    ("q", "expected"),
    [(0.90, (29, 36, 44)), (0.95, (59, 72, 90)), (0.99, (299, 368, 459)), (0.999, (2995, 3688, 4603))],
)
def test_fewest_requests_for_a_finite_bound(q: float, expected: tuple[int, int, int]) -> None:
    assert tuple(requests_for_upper_bound(q, a) for a in (0.05, 0.025, 0.01)) == expected


@pytest.mark.parametrize(
    ("n", "q", "alpha", "ranks"),
    [
        (298, 0.99, 0.05, (292, None)),
        (299, 0.99, 0.05, (293, 299)),
        (300, 0.99, 0.05, (294, 300)),
        (500, 0.99, 0.05, (491, 499)),
        (1000, 0.99, 0.05, (985, 996)),
        (3000, 0.99, 0.05, (2961, 2980)),
        (10000, 0.99, 0.05, (9883, 9917)),
        (299, 0.99, 0.025, (292, None)),
        (500, 0.99, 0.025, (490, 500)),
        (1000, 0.99, 0.025, (983, 997)),
        (3000, 0.99, 0.025, (2959, 2981)),
        (10000, 0.99, 0.025, (9880, 9920)),
        (59, 0.95, 0.05, (53, 59)),
        (100, 0.95, 0.05, (91, 99)),
        (29, 0.90, 0.05, (23, 29)),
        (100, 0.50, 0.05, (42, 59)),
    ],
)
def test_order_statistic_ranks(n: int, q: float, alpha: float, ranks: tuple[int | None, int | None]) -> None:
    assert order_statistic_ranks(n, q, alpha) == ranks


@pytest.mark.parametrize(
    ("k", "n", "alpha", "low", "high"),
    [
        (0, 299, 0.05, 0.0, 0.00996915),
        (0, 299, 0.025, 0.0, 0.01226160),
        (0, 298, 0.05, 0.0, 0.01000243),
        (0, 500, 0.05, 0.0, 0.00597355),
        (1, 473, 0.05, 0.00010844, 0.00998971),
        (2, 500, 0.05, 0.00071118, 0.01253761),
        (2, 500, 0.025, 0.00048479, 0.01437408),
        (5, 500, 0.05, 0.00394833, 0.02091032),
        (5, 500, 0.025, 0.00325472, 0.02318139),
        (10, 1000, 0.05, 0.00543514, 0.01690318),
        (10, 1000, 0.025, 0.00480551, 0.01831324),
        (20, 1000, 0.05, 0.01329301, 0.02893012),
        (20, 1000, 0.025, 0.01225827, 0.03072003),
    ],
)
def test_clopper_pearson(k: int, n: int, alpha: float, low: float, high: float) -> None:
    assert clopper_pearson(k, n, alpha) == pytest.approx((low, high), abs=5e-9)


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [
        (2, 500, 0.00109763, 0.01446572),
        (5, 500, 0.00427875, 0.02319310),
        (10, 1000, 0.00544075, 0.01830947),
        (20, 1000, 0.01298368, 0.03069001),
    ],
)
def test_wilson(k: int, n: int, low: float, high: float) -> None:
    assert wilson(k, n, 0.025) == pytest.approx((low, high), abs=5e-9)


def test_single_alternatives() -> None:
    one = seq.bernoulli_llr(np.array(3.0), np.array(100.0), 0.01, np.array([0.02]))
    assert math.exp(one[0]) == pytest.approx(2.98817105, abs=5e-9)
    two = seq.ratio_llr(*(np.array(v) for v in (5.0, 0.0, 100.0, 100.0)), 1.0, np.array([2.0]))
    assert math.exp(two[0]) == pytest.approx(4.21399177, abs=5e-9)


@pytest.mark.parametrize(
    ("k", "n", "log_fail", "log_pass"),
    [
        (0, 100, -1.31051433, 0.64379275),
        (0, 459, -2.81165040, 3.50202497),
        (0, 500, -2.94485740, 3.86659378),
        (3, 100, 0.59534765, -1.53751538),
        (5, 100, 2.90660377, -2.24458991),
        (10, 500, 0.90450970, -2.70517596),
        (20, 1000, 2.52930313, -4.07188987),
        (30, 1000, 11.32877967, -6.34486615),
    ],
)
def test_grid_e_values(k: int, n: int, log_fail: float, log_pass: float) -> None:
    assert seq.log_e_fail(k, n, 0.01) == pytest.approx(log_fail, abs=5e-9)
    assert seq.log_e_pass(k, n, 0.01) == pytest.approx(log_pass, abs=5e-9)


def test_grid_e_values_in_plain_numbers() -> None:
    assert math.exp(seq.log_e_fail(5, 100, 0.01)) == pytest.approx(18.2946, abs=5e-5)
    assert math.exp(seq.log_e_fail(20, 1000, 0.01)) == pytest.approx(12.5448, abs=5e-5)
    assert math.exp(seq.log_e_fail(30, 1000, 0.01)) == pytest.approx(83181.5, abs=0.05)


@pytest.mark.parametrize(
    ("a", "b", "k", "n", "log_fail", "log_pass"),
    [
        (1.0, 99.0, 0, 100, -0.69818497, 0.62304419),
        (1.0, 99.0, 3, 100, 0.87835468, -1.46897082),
        (1.0, 99.0, 20, 1000, 3.02102890, -2.92935528),
        (1.0, 99.0, 30, 1000, 11.51251701, -3.56370065),
        (R / 0.99, R / 0.01, 10, 1000, -0.88974841, None),
        (R / 0.99, R / 0.01, 20, 1000, 3.04746095, None),
        (R / 0.99, R / 0.01, 30, 1000, 11.25122342, None),
        (R / 0.99, R / 0.01, 2, 1000, None, 3.88841021),
    ],
)
def test_truncated_beta(a: float, b: float, k: int, n: int, log_fail: float | None, log_pass: float | None) -> None:
    counts = np.array(float(k)), np.array(float(n))
    for expected, upper in ((log_fail, True), (log_pass, False)):
        if expected is not None:
            assert float(seq.log_e_beta(*counts, 0.01, a, b, upper)) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize(
    ("counts", "log_fail", "log_pass"),
    [
        ((5, 0, 100, 100), 2.37185529, -1.76343343),
        ((10, 2, 200, 200), 2.21387206, -2.35221020),
        ((0, 5, 100, 100), -1.89725065, 2.40794012),
        ((0, 10, 500, 500), -2.78141523, 5.51097756),
        ((3, 20, 1000, 1000), -3.83822845, 5.55235181),
        ((4, 4, 100, 900), 3.09646354, -1.95726935),
    ],
)
def test_ratio_grid(counts: tuple[int, int, int, int], log_fail: float, log_pass: float) -> None:
    assert seq.log_e_ratio_fail(*counts) == pytest.approx(log_fail, abs=5e-9)
    assert seq.log_e_ratio_pass(*counts) == pytest.approx(log_pass, abs=5e-9)


def test_critical_counts_of_the_grid() -> None:
    def smallest_fail(n: int, threshold: float) -> int:
        return next(k for k in range(n + 1) if seq.log_e_fail(k, n, 0.01) >= math.log(threshold))

    def largest_pass(n: int) -> int | None:
        passing = [k for k in range(120) if seq.log_e_pass(k, n, 0.01) >= math.log(20)]
        return max(passing) if passing else None

    sizes = (50, 100, 300, 500, 1000, 3000)
    assert [smallest_fail(n, 20) for n in sizes] == [4, 6, 10, 13, 21, 48]
    assert [smallest_fail(n, 48000) for n in sizes] == [8, 10, 16, 20, 30, 62]
    assert [largest_pass(n) for n in (300, 400, 401, 500, 1000, 3000, 10000)] == [None, None, 0, 0, 2, 15, 71]


def test_critical_counts_of_one_clopper_pearson_look() -> None:
    largest = {
        n: max(k for k in range(100) if clopper_pearson(k, n, 0.05)[1] <= 0.01) for n in (299, 500, 1000, 3000, 10000)
    }
    assert largest == {299: 0, 500: 1, 1000: 4, 3000: 20, 10000: 83}


def test_restart_recursion() -> None:
    bank = seq.RestartBank(cells=1, alternatives=1, plan_blocks=4)
    seen = []
    for ratio in (2.0, 0.5, 3.0):
        bank.step(np.array([[math.log(ratio)]]), cap=10.0)
        seen.append(float(bank.evidence()[0]))
    assert seen == pytest.approx([1.5, 0.9375, 2.3125], abs=1e-12)


def test_weights_of_strata_that_appear_later() -> None:
    """With four checks: a tenth for all newcomers of a check, shared as 6 / (pi j)^2; all weights together below 1."""
    strata = Strata([("a", "0-1")])
    for name in ("b", "c", "d"):
        strata.index((name, "0-1"))
    strata.seal()
    weights = cell_weights(strata, known=1)
    assert weights[1:4] / 4 == pytest.approx([0.015198, 0.003800, 0.001689], abs=5e-7)
    assert weights.sum() <= 1.0


def test_alternative_zero_is_gone_after_one_event() -> None:
    llr = seq.ratio_llr(*(np.array(v) for v in (1.0, 9.0, 50.0, 50.0)), 1.0, np.array([0.0, 0.5]))
    assert llr[0] == -math.inf and math.isfinite(llr[1])


def test_threshold_of_a_family_of_480_equal_cells() -> None:
    """alpha 0.01 over 480 cells of equal weight: one cell alone needs 48,000 = e^10.779."""
    weights = np.full(480, 1 / 480)
    evidence = np.zeros(480)
    evidence[7] = 48_000.0
    assert float(weights @ evidence) == pytest.approx(1 / 0.01)
    assert math.log(48_000) == pytest.approx(10.779, abs=5e-4)
    assert seq.closed_test(evidence, weights, 0.0, 0.01) == [7]
    evidence[7] = 47_000.0
    assert seq.closed_test(evidence, weights, 0.0, 0.01) == []


def test_evidence_stays_finite_however_bad_it_gets() -> None:
    bank = seq.RestartBank(cells=2, alternatives=3, plan_blocks=4)
    for _ in range(400):
        bank.step(np.full((2, 3), 50.0), cap=10.0)
    assert bank.mass.max() == seq.CEILING
    assert np.isfinite(bank.evidence()).all() and np.isfinite(bank.evidence().sum())
