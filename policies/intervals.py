"""Intervals for people and for plots: fixed-size ones (one look) and time-uniform ones (any number of looks).

Called by the row builder, the planner, judge-bench. Counts in, bounds out. Only the time-uniform ones may be shown
beside a verdict.
"""

import math
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc
from scipy.stats import beta, binom, norm

from policies.sequential import log_e_beta, log_e_fail, log_e_pass

BETA_A, BETA_B = 1.570063, 155.436286
"""Truncated Beta mixture tuned for P99 at n = 1,000."""


def requests_for_upper_bound(q: float, alpha: float) -> int:
    """Fewest requests for a finite one-sided upper bound of the `q`-quantile at level `alpha`."""
    return math.ceil(math.log(alpha) / math.log(q) - 1e-12)


def order_statistic_ranks(n: int, q: float, alpha: float) -> tuple[int | None, int | None]:
    """Ranks (lower, upper) of one-sided bounds of the `q`-quantile, each at level `alpha`; None where none exists."""
    upper = int(binom.ppf(1.0 - alpha, n, q)) + 1
    while upper - 1 >= 1 and binom.sf(upper - 2, n, q) <= alpha:
        upper -= 1
    while upper <= n and binom.sf(upper - 1, n, q) > alpha:
        upper += 1
    lower = int(binom.ppf(alpha, n, q)) + 1
    while lower >= 1 and binom.cdf(lower - 1, n, q) > alpha:
        lower -= 1
    while lower + 1 <= n and binom.cdf(lower, n, q) <= alpha:
        lower += 1
    return (lower if lower >= 1 else None), (upper if upper <= n else None)


def clopper_pearson(k: int, n: int, alpha: float) -> tuple[float, float]:
    """Bounds of a share from one look, `alpha` on each side."""
    low = 0.0 if k == 0 else float(beta.ppf(alpha, k, n - k + 1))
    high = 1.0 if k == n else float(beta.ppf(1.0 - alpha, k + 1, n - k))
    return low, high


def wilson(k: int, n: int, alpha: float) -> tuple[float, float]:
    """Wilson score bounds of a share from one look, `alpha` on each side."""
    z = float(norm.ppf(1.0 - alpha))
    p, scale = k / n, 1.0 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return centre - half, centre + half


@lru_cache(maxsize=65536)
def critical_counts(n_effective: float, p0: float, alpha: float) -> tuple[float | None, float | None]:
    """(k_pass, k_fail): largest real k with PASS evidence >= 1/alpha, smallest with FAIL evidence >= 1/alpha, at n
    effective trials.

    Beta mixture of mean p0 scaled from the P99 tuning; None where no k reaches it. Used for the time-uniform interval
    of a quantile: [X_(n - k_fail + 1), X_(n - k_pass)] (Howard and Ramdas 2022).
    """
    target = math.log(1.0 / alpha)
    a, b = BETA_A * p0 / 0.01, BETA_B
    if p0 > 0.05:
        a, b = BETA_B * p0, BETA_B * (1.0 - p0)

    def gap(k: float, upper: bool) -> float:
        return float(log_e_beta(np.array(k), np.array(n_effective), p0, a, b, upper)) - target

    mean = n_effective * p0
    k_pass = k_fail = None
    if gap(0.0, False) >= 0.0:
        k_pass = 0.0 if gap(mean, False) >= 0.0 else float(brentq(gap, 0.0, mean, args=(False,), xtol=1e-6))
    if n_effective > 0 and gap(n_effective, True) >= 0.0:
        k_fail = float(brentq(gap, mean, n_effective, args=(True,), xtol=1e-6))
    return k_pass, k_fail


@lru_cache(maxsize=65536)
def share_interval(k: float, n: float, alpha: float) -> tuple[float, float]:
    """Time-uniform bounds of a share: all p with neither FAIL nor PASS evidence of 1/alpha (real k, n allowed)."""
    if n <= 0:
        return 0.0, 1.0
    target = math.log(1.0 / alpha)
    rate = min(max(k / n, 1e-12), 1.0 - 1e-9)
    low = 0.0
    if k > 0 and log_e_fail(k, n, 1e-9) >= target:
        low = float(brentq(lambda p: log_e_fail(k, n, p) - target, 1e-9, rate, xtol=1e-9))
    high = 1.0
    if log_e_pass(k, n, 1.0 - 1e-9) >= target:
        high = float(brentq(lambda p: log_e_pass(k, n, p) - target, rate, 1.0 - 1e-9, xtol=1e-9))
    return low, high


def binomial_tail_share(p0: float, n: int, k: int) -> float:
    """P(Bin(n, p0) >= k): the one-look p-value of "too many events"."""
    return 1.0 if k == 0 else float(betainc(k, n - k + 1, p0))
