"""How fast evidence of PASS grows, and from that the alternative that proves a healthy candidate soonest.

Closed forms of the judge's own tests (docs/judge.md): the evidence of alternative j grows by I_j nats per candidate
request with variance V_j. Called by the history (which fixes the aim before an attempt), the planner and the rows
(which say how long proof takes). Pure.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from policies.sequential import AIM_WEIGHT, Array

DEFAULT_AIM = 0.45
"""Aim where no history says what to expect: right for a candidate with a fifth to a third of the allowed events."""
_AIMS = np.arange(0.05, 0.951, 0.05)


def absolute_drift(p: float, p0: float, factors: Sequence[float] | Array) -> tuple[Array, Array]:
    """(I, V) per candidate request and alternative, for event share `p` tested against `p0` x factors."""
    grid = np.minimum(p0 * np.asarray(factors), 1.0 - 1e-9)
    with np.errstate(divide="ignore"):
        a, b = np.log(grid) - math.log(p0), np.log1p(-grid) - math.log1p(-p0)
    return _moments(p, a, b)


def _moments(p: float, a: Array, b: Array) -> tuple[Array, Array]:
    with np.errstate(invalid="ignore"):
        drift = np.where(np.isneginf(a), b if p == 0 else -np.inf, p * a + (1 - p) * b)
        variance = np.where(np.isneginf(a), 0.0, p * (1 - p) * (a - b) ** 2)
    return np.asarray(drift), np.asarray(variance)


def ratio_drift(
    p_c: float, p_b: float, share: float, theta0: float, factors: Sequence[float] | Array
) -> tuple[Array, Array]:
    """(I, V) per candidate request for event rates p_c, p_b; `share` = candidate's part of all requests."""
    r = (1.0 - share) / share
    theta = theta0 * np.asarray(factors)
    with np.errstate(divide="ignore"):
        pi, pi0 = theta / (theta + r), theta0 / (theta0 + r)
        a, b = np.log(pi) - math.log(pi0), np.log1p(-pi) - math.log1p(-pi0)
    with np.errstate(invalid="ignore"):
        drift = np.where(np.isneginf(a), r * p_b * b if p_c == 0 else -np.inf, p_c * a + r * p_b * b)
        variance = np.where(np.isneginf(a), 0.0, p_c * a**2 + r * p_b * b**2)
    return np.asarray(drift), np.asarray(variance)


def requests_for(drift: Array, variance: Array, level: float, z: float, start: Array | float) -> float | None:
    """Candidate requests until some alternative reaches `level` nats; z = 0 for the median. None = never.

    start: logarithm of what each alternative has now (before any request: of its prior weight).
    """
    target = np.maximum(level - start, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        need = target / drift + z * np.sqrt(target * variance / drift**3)
    need = np.where((drift > 0) & np.isfinite(need), np.maximum(need, 0.0), np.inf)
    best = float(need.min())
    return None if math.isinf(best) else best


def slowest_z(strata: int) -> float:
    """Standard score of the slowest of so many alike strata, in the middle."""
    return float(-ndtri(0.5 / max(1, strata)))


def absolute_aim(p: float, p0: float, level: float, z: float) -> float:
    """Factor of `p0` at which to aim PASS evidence when the candidate's share will be `p`."""
    return _soonest(_AIMS, *absolute_drift(p, p0, _AIMS), level, z)


def ratio_aim(p_c: float, p_b: float, share: float, theta0: float, level: float, z: float, high: bool = False) -> float:
    """Factor of the ratio `theta0` at which to aim PASS evidence when the arms' rates will be p_c and p_b.

    high: good events (goodput), where PASS looks for a ratio above theta0; the aim is then at most 1/theta0^1.9.
    """
    factors = theta0 ** (-2.0 * _AIMS) if high else _AIMS
    return _soonest(factors, *ratio_drift(p_c, p_b, share, theta0, factors), level, z)


def _soonest(factors: Array, drift: Array, variance: Array, level: float, z: float) -> float:
    """The factor that reaches `level` with fewest requests n in an unlucky stratum: n I - z sqrt(n V) = level.

    An unlucky stratum looks worse than it is, which is why the best aim lies between what is expected and the bound.
    NaN (no aim) where no factor gets there.
    """
    need = level + math.log(1.0 / AIM_WEIGHT)
    ok = drift > 0
    if not ok.any():
        return math.nan
    safe: Any = np.where(ok, drift, 1.0)
    root = (z * np.sqrt(variance) + np.sqrt(z * z * variance + 4.0 * safe * need)) / (2.0 * safe)
    return float(factors[int(np.argmin(np.where(ok, root, np.inf)))])
