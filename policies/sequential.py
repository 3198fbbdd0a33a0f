"""Evidence under continuous looking: log likelihood ratios of counts, mixtures over a grid, banks with restarts.

Every value here is an e-value or its logarithm: under its null, P(it ever reaches 1/alpha) <= alpha (Ville 1939).
FAIL mixtures speak against "within the bound", PASS mixtures against "at or beyond the bound". Called by the judge,
the row builder and the planner. Knows counts and shares only, no metrics and no policy. Sources: docs/judge.md.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc, betaln

Array = NDArray[np.float64]

FAIL_FACTORS = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 25.0)
PASS_FACTORS = (0.0, 0.2, 0.4, 0.6, 0.8)
GOODPUT_FAIL_FACTORS = (0.95, 0.9, 0.8, 0.6, 0.4, 0.2)
GOODPUT_PASS_FACTORS = (1.02, 1.05, 1.1, 1.25)
AIM_WEIGHT = 0.8
"""Prior weight of the alternative at which a stratum's PASS evidence is aimed; the rest is shared by the grid."""
CEILING = 1e250
"""Banks are clipped here so that a sum of them stays finite."""


def fail_grid(p0: float) -> tuple[float, ...]:
    """Alternatives above the share `p0`: p0 x FAIL_FACTORS, clipped at 0.5 (half-way to 1 for p0 >= 0.4), each once."""
    cap = 0.5 if p0 < 0.4 else (1.0 + p0) / 2.0
    return tuple(sorted({min(p0 * factor, cap) for factor in FAIL_FACTORS}))


def pass_grid(p0: float) -> tuple[float, ...]:
    """Alternatives below the share `p0`."""
    return tuple(p0 * factor for factor in PASS_FACTORS)


def ratio_fail_grid(share: float) -> tuple[float, ...]:
    """Ratios above 1 that leave `share` x ratio at or below one half; the smallest three always."""
    return tuple(f for i, f in enumerate(FAIL_FACTORS) if i < 3 or share * f <= 0.5)


def _xlogy(count: Any, log_value: Any) -> Any:
    """count x log_value, with 0 x -inf = 0."""
    with np.errstate(invalid="ignore"):
        product = np.multiply(count, log_value)
    return np.where(np.asarray(count) == 0, 0.0, product)


def bernoulli_llr(k: Array, n: Array, p0: Array | float, factors: Array) -> Array:
    """Log likelihood ratios of `k` events in `n` trials, alternatives `factors` (shape [J] or [..., J]) against `p0`.

    k, n: shape [...]; p0: scalar or shape [...]; returns shape [..., J]. An alternative of 0 gives -inf as soon as k
    > 0.
    """
    null = np.asarray(p0, dtype=float)[..., None]
    with np.errstate(divide="ignore"):
        a = np.log(factors) - np.log(null)
        b = np.log1p(-factors) - np.log1p(-null)
    hits = np.asarray(k, dtype=float)[..., None]
    return np.asarray(_xlogy(hits, a) + (np.asarray(n, dtype=float)[..., None] - hits) * b)


class ShareRatios:
    """`bernoulli_llr` of blocks whose null and alternatives stay the same: the logarithms are taken once.

    null [S] (NaN = not known: the ratio is 1); alternatives [S, J].
    """

    __slots__ = ("_hit", "_miss")

    def __init__(self, null: Array, alternatives: Array) -> None:
        known = np.isfinite(null)[:, None]
        p0 = np.where(known, null[:, None], 0.5)
        with np.errstate(divide="ignore"):
            a, b = np.log(alternatives) - np.log(p0), np.log1p(-alternatives) - np.log1p(-p0)
        self._miss: Array = np.where(known, b, 0.0)
        self._hit: Array = np.where(known, a - b, 0.0)

    def llr(self, k: Array, n: Array) -> Array:
        """Log likelihood ratios of k events in n trials, [S] each: [S, J]; -inf where an alternative is impossible."""
        found = n[:, None] * self._miss
        rows = np.flatnonzero(k)
        found[rows] += k[rows, None] * self._hit[rows]
        return np.asarray(found)


def ratio_llr(k_c: Array, k_b: Array, n_c: Array, n_b: Array, theta0: Array | float, thetas: Array) -> Array:
    """Log likelihood ratios of the conditional binomial: ratio of event rates `theta0` x `thetas` against `theta0`.

    Counts of both arms in the same block, shape [...]; thetas: shape [J]; returns [..., J]. Zero where an arm is empty.
    """
    nc, nb = np.asarray(n_c, dtype=float)[..., None], np.asarray(n_b, dtype=float)[..., None]
    null = np.asarray(theta0, dtype=float)[..., None] * nc
    alternative = null * thetas
    with np.errstate(divide="ignore", invalid="ignore"):
        a = np.log(thetas) + np.log((null + nb) / (alternative + nb))
        b = np.log((null + nb) / (alternative + nb))
    llr = _xlogy(np.asarray(k_c, dtype=float)[..., None], a) + _xlogy(np.asarray(k_b, dtype=float)[..., None], b)
    return np.asarray(np.where((nc > 0) & (nb > 0), llr, 0.0))


def over_alternatives(ufunc: np.ufunc, values: Array) -> Array:
    """`ufunc.reduce` over the last axis, which is short: column by column, several times as fast, same result."""
    if values.ndim != 2 or not 2 <= values.shape[1] < 8:
        return np.asarray(ufunc.reduce(values, axis=-1))
    found = ufunc(values[:, 0], values[:, 1])
    for column in values.T[2:]:
        ufunc(found, column, out=found)
    return np.asarray(found)


def log_sum(logs: Array) -> Array:
    """Logarithm of the sum of exp(logs) over the last axis."""
    most = over_alternatives(np.maximum, logs)
    anchor = np.where(np.isfinite(most), most, 0.0)  # all alternatives gone: log 0 = -inf
    with np.errstate(divide="ignore"):
        return np.asarray(anchor + np.log(over_alternatives(np.add, np.exp(logs - anchor[..., None]))))


def log_mean(logs: Array) -> Array:
    """Logarithm of the mean of exp(logs) over the last axis."""
    return np.asarray(log_sum(logs) - np.log(logs.shape[-1]))


def aimed(factors: tuple[float, ...], aim: Array) -> tuple[Array, Array]:
    """(alternatives, logarithms of their prior weights) per stratum, shape [S, J + 1] each.

    `aim` [S] is one more alternative, fixed before the data; NaN = none, then the grid `factors` shares everything.
    """
    has = np.isfinite(aim)[:, None]
    size = (len(aim), len(factors))
    grid = np.concatenate([np.broadcast_to(np.array(factors), size), np.where(has, aim[:, None], 1.0)], axis=1)
    rest = np.where(has, 1.0 - AIM_WEIGHT, 1.0) / len(factors)
    with np.errstate(divide="ignore"):
        weights = np.log(np.concatenate([np.broadcast_to(rest, size), np.where(has, AIM_WEIGHT, 0.0)], axis=1))
    return grid, weights


def log_e_fail(k: float, n: float, p0: float) -> float:
    """Log e-value against "the share of events is at most p0" (grid mixture)."""
    return float(log_mean(bernoulli_llr(np.array(k), np.array(n), p0, np.array(fail_grid(p0)))))


def log_e_pass(k: float, n: float, p0: float) -> float:
    """Log e-value against "the share of events is at least p0" (grid mixture)."""
    return float(log_mean(bernoulli_llr(np.array(k), np.array(n), p0, np.array(pass_grid(p0)))))


def log_e_ratio_fail(k_c: float, k_b: float, n_c: float, n_b: float, theta0: float = 1.0) -> float:
    """Log e-value against "the candidate's event rate is at most theta0 x stable's"."""
    counts = [np.array(float(v)) for v in (k_c, k_b, n_c, n_b)]
    return float(log_mean(ratio_llr(counts[0], counts[1], counts[2], counts[3], theta0, np.array(FAIL_FACTORS))))


def log_e_ratio_pass(k_c: float, k_b: float, n_c: float, n_b: float, theta0: float = 1.0) -> float:
    """Log e-value against "the candidate's event rate is at least theta0 x stable's"."""
    counts = [np.array(float(v)) for v in (k_c, k_b, n_c, n_b)]
    return float(log_mean(ratio_llr(counts[0], counts[1], counts[2], counts[3], theta0, np.array(PASS_FACTORS))))


def log_e_beta(k: Array, n: Array, p0: Array | float, a: Array | float, b: Array | float, upper: bool) -> Array:
    """Log of the truncated Beta(a, b) mixture: on (p0, 1] if `upper` (FAIL), on [0, p0) else (PASS). Real k, n allowed.

    Source: Howard and Ramdas 2022, one-sided beta-binomial mixture; equal to confseq's with a = r/(1-p0), b = r/p0.
    """
    tail = betaincc if upper else betainc
    with np.errstate(divide="ignore"):
        post = betaln(a + k, b + n - k) + np.log(tail(a + k, b + n - k, p0))
        prior = betaln(a, b) + np.log(tail(a, b, p0))
    return np.asarray(post - prior - k * np.log(p0) - (n - k) * np.log1p(-np.asarray(p0)))


class RestartBank:
    """FAIL evidence of C cells x J alternatives, restarted at every block so that a late breach is found as fast as
    an early one.

    E of a cell = mean over alternatives of M, plus what is not yet spent on restarts; a nonnegative supermartingale
    from 1 under the cell's null (Shiryaev-Roberts with prior weights; Shin, Ramdas and Rinaldo, e-detectors).
    first_weight: mass of a breach from the very start; plan_blocks: blocks over which the rest is spread (after that,
    half of what is left per as many blocks).
    """

    __slots__ = ("_age", "_first", "_plan", "_rate", "_unspent", "mass")

    def __init__(self, cells: int, alternatives: int, plan_blocks: int, first_weight: float = 0.5) -> None:
        self._first = first_weight
        self._plan = plan_blocks
        self.mass: Array = np.full((cells, alternatives), first_weight)
        self._unspent: Array = np.full(cells, 1.0 - first_weight)
        self._rate: Array = np.full(cells, (1.0 - first_weight) / plan_blocks)
        self._age = np.zeros(cells, dtype=np.int64)

    def grow(self, cells: int, keep: NDArray[np.int64]) -> None:
        """Make room for `cells`; old cell i moves to index keep[i], the others begin anew."""
        fresh = RestartBank(cells, self.mass.shape[1], self._plan, self._first)
        for name in ("mass", "_unspent", "_rate", "_age"):
            getattr(fresh, name)[keep] = getattr(self, name)
            setattr(self, name, getattr(fresh, name))

    def step(self, llr: Array, cap: float) -> None:
        """One block: tempered log likelihood ratios [C, J], each worth at most `cap` nats."""
        spend = np.where(self._age > 0, np.minimum(self._rate, self._unspent), 0.0)
        self._unspent = self._unspent - spend
        mass = self.mass + spend[:, None]
        rows = np.flatnonzero(over_alternatives(np.logical_or, llr != 0.0))  # elsewhere the block says nothing
        if 2 * len(rows) < len(mass):
            mass[rows] *= np.exp(np.minimum(llr[rows], cap))
        else:
            factor = np.minimum(llr, cap)
            mass *= np.exp(factor, out=factor)
        self.mass = np.minimum(mass, CEILING, out=mass)
        self._age = self._age + 1
        turn = (self._age >= self._plan) & (self._age % self._plan == 0)
        if turn.any():
            self._rate = np.where(turn, self._unspent / (2 * self._plan), self._rate)

    def evidence(self) -> Array:
        """E per cell, shape [C]."""
        return np.asarray(over_alternatives(np.add, self.mass) / self.mass.shape[1] + self._unspent)

    def state(self) -> dict[str, Array | NDArray[np.int64]]:
        """Arrays from which `load` goes on bit for bit."""
        return {"mass": self.mass, "unspent": self._unspent, "rate": self._rate, "age": self._age}

    def load(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        self.mass, self._unspent, self._rate, self._age = (state[n] for n in ("mass", "unspent", "rate", "age"))


def closed_test(evidence: Array, weights: Array, reserve: float, alpha: float, most: int = 50) -> list[int]:
    """Cells that are proven bad at family-wise level `alpha`, strongest first (closed testing with weighted averages).

    evidence, weights: shape [C]; reserve: weight without a cell (its e-value is 1). A cell is listed when every
    weighted average over a set of cells that contains it is at least 1/alpha; the least of them adds the weakest
    cells in rising order.
    """
    rising = np.argsort(evidence, kind="stable")
    e = np.concatenate([[1.0], evidence[rising]])
    w = np.concatenate([[reserve], weights[rising]])
    order = np.argsort(e, kind="stable")
    gain, mass = np.cumsum((e * w)[order]), np.cumsum(w[order])
    gain, mass = np.concatenate([[0.0], gain]), np.concatenate([[0.0], mass])
    proven = []
    for cell in np.argsort(-(evidence * weights), kind="stable")[:most]:
        value, weight = float(evidence[cell]), float(weights[cell])
        if weight <= 0.0 or value < 1.0 / alpha:
            continue
        weaker = int(np.searchsorted(e[order], value, side="left"))
        averages = (gain[: weaker + 1] + weight * value) / (mass[: weaker + 1] + weight)
        if float(averages.min()) >= 1.0 / alpha:
            proven.append(int(cell))
    return proven
