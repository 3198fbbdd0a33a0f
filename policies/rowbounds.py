"""The intervals of each row, of the percentile or share and of the ratio to stable, all time-uniform: valid however
often one looks.

Called by `explain`; reads the judge, changes nothing.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from policies import blocks, histogram, intervals
from policies.contract import Check, CheckKind
from policies.records import CANDIDATE, STABLE
from policies.sequential import Array
from policies.track import Track

if TYPE_CHECKING:
    from policies.judge import Judge

Bounds = tuple[Array, Array, Array, Array, Array, Array, Array]


def row_bounds(judge: "Judge", check: Check, number: int, track: Track) -> Bounds:
    """low, high, ratio_low, ratio_high, estimate_stable, estimate_candidate, limit: NaN where unknown."""
    alpha, t = judge.contract.alpha_promote, track.total
    aim = None if check.kind is CheckKind.GOODPUT_REL else track.aim  # goodput's aims lie above its bound
    phi = np.maximum(track.phi, 1.0)
    k_c, k_b, n_c, n_b = t.k_c / phi, t.k_b / phi, t.n_c / phi, t.n_b / phi
    if check.metric in blocks.LATENCIES:
        return _quantile_bounds(judge, check, number, track, phi)
    with np.errstate(divide="ignore", invalid="ignore"):
        stable, candidate = t.k_b / t.n_b, t.k_c / t.n_c
    nothing = np.full(len(phi), np.nan)
    low, high = intervals.share_intervals(k_c, n_c, alpha, aim) if len(phi) else (nothing, nothing)
    ratio_low, ratio_high = nothing, nothing
    if judge.setup.baseline and len(phi):
        ratio_low, ratio_high = intervals.ratio_intervals(k_c, k_b, n_c, n_b, alpha, aim)
    limit = track.null * (stable if check.kind.is_relative else 1.0)
    return low, high, ratio_low, ratio_high, stable, candidate, limit


def _quantile_bounds(judge: "Judge", check: Check, number: int, track: Track, phi: Array) -> Bounds:
    size = len(phi)
    is_relative = check.kind is CheckKind.QUANTILE_REL
    sketches = judge.sketches if is_relative else judge.step_sketches
    q = check.quantile or 0.99
    tails = [
        (_tail(sketches, STABLE, p, check.metric), _tail(sketches, CANDIDATE, p, check.metric)) for p in range(size)
    ]
    columns = [np.full(size, np.nan) for _ in range(7)]
    if not size:
        return tuple(columns)  # type: ignore[return-value]
    n_c = np.array([c.n for _, c in tails], dtype=float)
    alpha, t = judge.contract.alpha_promote, track.total
    k_pass, k_fail = intervals.critical_counts(n_c / phi, np.full(size, 1.0 - q), alpha, track.aim)
    r_pass, r_fail = intervals.critical_ratio_counts(t.k_b / phi, t.n_c / phi, t.n_b / phi, alpha, track.aim)
    for p, (s, c) in enumerate(tails):
        setup = judge.setups[p].checks[number]
        columns[0][p], columns[1][p] = c.low(k_fail[p] * phi[p]), c.high(k_pass[p] * phi[p])
        columns[4][p], columns[5][p] = s.quantile(q), c.quantile(q)
        columns[6][p] = setup.candidate_us / 1e6 if setup.candidate_us >= 0 else np.nan
        if is_relative and setup.stable_us > 0:
            tau = setup.stable_us / 1e6
            columns[2][p], columns[3][p] = c.low(r_fail[p] * phi[p]) / tau, c.high(r_pass[p] * phi[p]) / tau
    return tuple(columns)  # type: ignore[return-value]


class _Tail:
    """A sketch read from its upper end."""

    def __init__(self, bins: Mapping[int, int]) -> None:
        self._index = sorted(bins)
        self._cumulative = np.cumsum([bins[i] for i in self._index]) if bins else np.zeros(0)
        self.n = int(self._cumulative[-1]) if bins else 0

    def _bin(self, rank: float) -> int | None:
        if not 1 <= rank <= self.n:
            return None
        return self._index[int(np.searchsorted(self._cumulative, rank))]

    def low(self, k: float) -> float:
        """Lower edge of the value that `k` requests reach or exceed."""
        index = None if math.isnan(k) else self._bin(self.n - math.ceil(k) + 1)
        return math.nan if index is None else histogram.edge(index - 1)

    def high(self, k: float) -> float:
        """Upper edge of the value that at most `k` requests exceed."""
        index = None if math.isnan(k) else self._bin(self.n - math.floor(k))
        return math.nan if index is None else histogram.edge(index)

    def quantile(self, q: float) -> float:
        """Middle of the bin that holds the nearest-rank quantile."""
        index = self._bin(max(1, math.ceil(q * self.n - 1e-9)))
        return math.nan if index is None else math.sqrt(histogram.edge(index - 1) * histogram.edge(index))


def _tail(sketches: Mapping[tuple[str, int, str], Mapping[int, int]], variant: str, place: int, metric: str) -> _Tail:
    return _Tail(sketches.get((variant, place, metric), {}))
