"""Intervals for people and for plots: fixed-size ones (one look) and time-uniform ones (any number of looks).

Called by the row builder, the planner, judge-bench. Counts in, bounds out. Only the time-uniform ones may be shown
beside a verdict.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, betaincinv, ndtri

from policies.sequential import FAIL_FACTORS, PASS_FACTORS, Array, aimed, bernoulli_llr, log_mean, log_sum, ratio_llr

Bools = NDArray[np.bool_]


def requests_for_upper_bound(q: float, alpha: float) -> int:
    """Fewest requests for a finite one-sided upper bound of the `q`-quantile at level `alpha`."""
    return math.ceil(math.log(alpha) / math.log(q) - 1e-12)


def order_statistic_ranks(n: int, q: float, alpha: float) -> tuple[int | None, int | None]:
    """Ranks (lower, upper) of one-sided bounds of the `q`-quantile, each at level `alpha`; None where none exists."""
    ranks = np.arange(1, n + 1)
    enough = np.flatnonzero(1.0 - bdtr(ranks - 1, n, q) <= alpha)  # P(Bin >= rank)
    upper = int(ranks[enough[0]]) if len(enough) else None
    rare = np.flatnonzero(bdtr(ranks - 1, n, q) <= alpha)  # P(Bin <= rank - 1)
    lower = int(ranks[rare[-1]]) if len(rare) else None
    return lower, upper


def clopper_pearson(k: float, n: float, alpha: float) -> tuple[float, float]:
    """Bounds of a share from one look, `alpha` on each side; counts may be divided by a variance inflation."""
    low = 0.0 if k == 0 else float(betaincinv(k, n - k + 1, alpha))
    high = 1.0 if k == n else float(betaincinv(k + 1, n - k, 1.0 - alpha))
    return low, high


def wilson(k: int, n: int, alpha: float) -> tuple[float, float]:
    """Wilson score bounds of a share from one look, `alpha` on each side."""
    z = float(ndtri(1.0 - alpha))
    p, scale = k / n, 1.0 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return centre - half, centre + half


def _bisect(inside: Callable[[Array], Bools], low: Array, high: Array, steps: int = 42) -> Array:
    """Per element the boundary between `low` (where inside is true) and `high` (where it is false)."""
    low, high = low.astype(float).copy(), high.astype(float).copy()
    for _ in range(steps):
        middle = (low + high) / 2.0
        good = inside(middle)
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return low


def _pass_mixture(size: int, aim: Array | None) -> tuple[Array, Array]:
    """Alternatives of PASS and the logarithms of their weights, [S, J] each, as the judge has them."""
    return aimed(PASS_FACTORS, np.full(size, np.nan) if aim is None else aim)


def critical_counts(n: Array, p0: Array, alpha: float, aim: Array | None = None) -> tuple[Array, Array]:
    """(k_pass, k_fail) per element: largest real k with PASS evidence >= 1/alpha, smallest with FAIL evidence.

    n: effective trials (real), p0: allowed share, same shape; NaN where no k reaches it. The mixture is the judge's
    own, with the check's aim [S] (None: the grid alone), so that an interval never contradicts a verdict. Used for the
    time-uniform interval of a quantile, [X_(n - k_fail + 1), X_(n - k_pass)] (Howard and Ramdas 2022).
    """
    target = math.log(1.0 / alpha)
    ceiling = np.where(p0 < 0.4, 0.5, (1.0 + p0) / 2.0)
    above = np.minimum(p0[:, None] * np.array(FAIL_FACTORS), ceiling[:, None])
    below, weights = _pass_mixture(len(p0), aim)

    def fails(k: Array) -> Bools:
        return log_mean(bernoulli_llr(k, n, p0, above)) >= target

    def passes(k: Array) -> Bools:
        return log_sum(bernoulli_llr(k, n, p0, p0[:, None] * below) + weights) >= target

    mean = n * p0
    zero = np.zeros_like(mean)
    k_pass = np.where(passes(zero), _bisect(passes, zero, mean), np.nan)
    k_fail = np.where(fails(n), _bisect(fails, n, mean), np.nan)
    return k_pass, k_fail


def share_intervals(k: Array, n: Array, alpha: float, aim: Array | None = None) -> tuple[Array, Array]:
    """Time-uniform bounds of shares: all p with neither FAIL nor PASS evidence of 1/alpha (real k, n allowed.

    (0, 1) for n = 0).
    """
    target = math.log(1.0 / alpha)
    rate = np.clip(np.divide(k, n, out=np.full_like(n, 0.5), where=n > 0), 1e-9, 1.0 - 1e-9)

    def fails(p: Array) -> Bools:
        ceiling = np.where(p < 0.4, 0.5, (1.0 + p) / 2.0)
        grid = np.minimum(p[:, None] * np.array(FAIL_FACTORS), ceiling[:, None])
        return log_mean(bernoulli_llr(k, n, p, grid)) >= target

    below, weights = _pass_mixture(len(n), aim)

    def passes(p: Array) -> Bools:
        return log_sum(bernoulli_llr(k, n, p, p[:, None] * below) + weights) >= target

    least, most = np.full_like(rate, 1e-9), np.full_like(rate, 1.0 - 1e-9)
    low = np.where(fails(least), _bisect(fails, least, rate), 0.0)
    high = np.where(passes(most), _bisect(passes, most, rate), 1.0)
    return low, high


def ratio_intervals(
    k_c: Array, k_b: Array, n_c: Array, n_b: Array, alpha: float, aim: Array | None = None
) -> tuple[Array, Array]:
    """Time-uniform bounds of the ratio of event rates, candidate to stable (real counts allowed.

    NaN where unbounded).
    """
    target = math.log(1.0 / alpha)

    def fails(theta: Array) -> Bools:
        return log_mean(ratio_llr(k_c, k_b, n_c, n_b, theta, np.array(FAIL_FACTORS))) >= target

    below, weights = _pass_mixture(len(n_c), aim)

    def passes(theta: Array) -> Bools:
        return log_sum(ratio_llr(k_c, k_b, n_c, n_b, theta, below) + weights) >= target

    with np.errstate(divide="ignore", invalid="ignore"):
        middle = np.clip(((k_c + 1e-9) / n_c) / ((k_b + 1e-9) / n_b), 1e-6, 1e6)
    middle = np.where(np.isfinite(middle), middle, 1.0)
    least, most = np.full_like(middle, 1e-7), np.full_like(middle, 1e7)

    def geometric(test: Callable[[Array], Bools], end: Array) -> Array:
        return np.exp(_bisect(lambda logs: test(np.exp(logs)), np.log(end), np.log(middle)))

    low = np.where(fails(least), geometric(fails, least), np.nan)
    high = np.where(passes(most), geometric(passes, most), np.nan)
    return low, high


def critical_ratio_counts(
    k_b: Array, n_c: Array, n_b: Array, alpha: float, aim: Array | None = None
) -> tuple[Array, Array]:
    """(k_pass, k_fail): largest candidate count with PASS evidence against "rate ratio >= 1", smallest with FAIL
    evidence.

    For the interval of a ratio of quantiles: read the candidate's sketch at the value that so many requests exceed.
    NaN where none.
    """
    target = math.log(1.0 / alpha)

    below, weights = _pass_mixture(len(n_c), aim)

    def fails(k: Array) -> Bools:
        return log_mean(ratio_llr(k, k_b, n_c, n_b, 1.0, np.array(FAIL_FACTORS))) >= target

    def passes(k: Array) -> Bools:
        return log_sum(ratio_llr(k, k_b, n_c, n_b, 1.0, below) + weights) >= target

    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.minimum(np.where(n_b > 0, k_b * n_c / n_b, 0.0), n_c)
    zero = np.zeros_like(mean)
    k_pass = np.where(passes(zero), _bisect(passes, zero, mean), np.nan)
    k_fail = np.where(fails(n_c), _bisect(fails, n_c, mean), np.nan)
    return k_pass, k_fail
