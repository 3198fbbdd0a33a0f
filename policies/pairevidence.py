"""PASS evidence from pairs: the same request served by both arms, so that what makes a request slow cancels.

Of all pairs only the discordant ones speak: one arm above its threshold, the other not (McNemar's idea, as an
e-process). A stratum uses pairs instead of single requests while that is worth it, decided from the past alone: the
log latencies within a pair correlate at 0.6 or more over at least 100 pairs, and nearly all of the candidate's
requests are copies. Used by `Track` only.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies import sequential as seq
from policies.sequential import Array

FACTORS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""Ratios of discordant rates; small ones, because pairing makes a good candidate's ratio small."""
ENOUGH_PAIRS = 100.0
WORTH, STILL_WORTH = 0.6, 0.5
"""Correlation from which a stratum turns to pairs, and down to which it then keeps to them."""
AIM = 0.8
"""Pairs aim so much lower than single requests: what both members share no longer blurs the ratio."""
MOSTLY_COPIES = 0.8
_MEMORY = 0.9  # per block, of the share of copies


@dataclass(slots=True)
class PairSums:
    """Pairs of one check in one block, float64[S]: resolved pairs, discordant ones, moments of log latencies (x
    stable, y candidate).
    """

    n: Array
    only_c: Array
    only_s: Array
    m: Array
    x: Array
    y: Array
    xx: Array
    yy: Array
    xy: Array

    @staticmethod
    def zeros(size: int) -> "PairSums":
        return PairSums(*(np.zeros(size) for _ in fields(PairSums)))


class PairEvidence:
    """Evidence of pairs for one check, all strata; `aim` [S] is that of single requests."""

    def __init__(self, aim: Array) -> None:
        size = len(aim)
        self.factors, self.log_pass = seq.aimed(FACTORS, AIM * aim)
        self.moments: Array = np.zeros((6, size))
        self.pairs: Array = np.zeros(size)  # used as evidence
        self.copies: Array = np.zeros(size)  # decaying share of copies among the candidate's requests
        self.residual, self.variance = np.zeros(size), np.zeros(size)  # of the block before
        self.excess, self.scale = 0.0, 0.0

    def correlation(self) -> Array:
        """Correlation of log latencies within a pair; NaN while there are too few pairs."""
        m, x, y, xx, yy, xy = self.moments
        with np.errstate(divide="ignore", invalid="ignore"):
            cov = xy / m - x * y / m**2
            spread = np.sqrt((xx / m - (x / m) ** 2) * (yy / m - (y / m) ** 2))
            found = cov / spread
        return np.where((m >= ENOUGH_PAIRS) & np.isfinite(found), found, np.nan)

    def chosen(self) -> NDArray[np.bool_]:
        """Strata whose next block is judged by pairs; depends on past blocks only."""
        least = np.where(self.pairs > 0, STILL_WORTH, WORTH)
        return np.asarray((np.nan_to_num(self.correlation(), nan=0.0) >= least) & (self.copies >= MOSTLY_COPIES))

    def step(self, sums: PairSums, candidates: Array, chosen: NDArray[np.bool_], phi: Array) -> Array:
        """One block; returns the tempered log likelihood ratios [S, J] of the chosen strata (zero elsewhere)."""
        llr = seq.ratio_llr(sums.only_c, sums.only_s, sums.n, sums.n, 1.0, self.factors)
        phi = np.maximum(phi, 1.0 + self._dependence(sums))
        tempered = np.where(chosen[:, None], llr / phi[:, None], 0.0)
        self.pairs = self.pairs + np.where(chosen, sums.n, 0.0)
        self.moments = self.moments + np.stack([sums.m, sums.x, sums.y, sums.xx, sums.yy, sums.xy])
        share = np.divide(sums.n, candidates, out=np.zeros_like(sums.n), where=candidates > 0)
        seen = np.where(candidates > 0, np.minimum(share, 1.0), self.copies)
        self.copies = np.where(self.copies > 0, _MEMORY * self.copies + (1 - _MEMORY) * seen, seen)
        return tempered

    def _dependence(self, sums: PairSums) -> Array:
        """Excess variance of discordant differences between successive blocks, pooled over strata, from the
        blocks before this one.
        """
        kappa = max(0.0, self.excess / self.scale) if self.scale > 0 else 0.0
        inflation = kappa * (sums.only_c + sums.only_s)
        residual, variance = sums.only_c - sums.only_s, sums.only_c + sums.only_s
        mean = (variance + self.variance) / 2.0
        self.excess += float(((residual - self.residual) ** 2 / 2.0 - mean).sum())
        self.scale += float((mean**2).sum())
        self.residual, self.variance = residual, variance
        return np.asarray(inflation)

    def add(self, llr: Array) -> None:
        """Take the ratios of `step`, after grouping."""
        self.log_pass = self.log_pass + llr

    def log_evidence(self, places: NDArray[np.int64]) -> Array:
        """Log E of some strata; 0 where pairs never spoke."""
        return seq.log_sum(self.log_pass[places])

    def grow(self, aim: Array) -> None:
        """Room for new strata; `aim` [S] of all."""
        extra = len(aim) - len(self.log_pass)
        self.factors, prior = seq.aimed(FACTORS, AIM * aim)
        self.log_pass = np.vstack([self.log_pass, prior[len(self.log_pass) :]])
        self.moments = np.hstack([self.moments, np.zeros((6, extra))])
        for name in ("pairs", "copies", "residual", "variance"):
            setattr(self, name, np.concatenate([getattr(self, name), np.zeros(extra)]))

    def state(self) -> dict[str, Any]:
        """Arrays and numbers from which `load` goes on bit for bit."""
        names = ("log_pass", "moments", "pairs", "copies", "residual", "variance", "excess", "scale")
        return {name: getattr(self, name) for name in names}

    def load(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        for name, value in state.items():
            setattr(self, name, value)
