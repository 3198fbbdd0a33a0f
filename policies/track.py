"""Evidence of one check over all strata: the FAIL bank, its environment guard, and the PASS bank.

One per check inside the judge, and one per comparability guard. Knows counts, nulls and dependence; no policy, no
names.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from policies import sequential as seq
from policies.pairevidence import PairEvidence, PairSums
from policies.projection import Counts, Ints, Strata, group_sum
from policies.sequential import Array, RestartBank

FIELDS = ("n_c", "k_c", "n_b", "k_b")
_CARRIED = (*FIELDS, "unsure_c")
_ARRAYS = ("log_pass", "latched", "step_n", "sum_c", "sum_b", "quiet_b", "phi", "null")
LEVELS = ("stratum", "tenant", "bucket", "global")
_NEVER = 1e9
_PRIOR_BLOCKS = 6.0  # the history counts like this many blocks in the running mean of requests per block


class Track:
    """Banks of one check.

    relative: compares arms (null = ratio of event rates), else a share of the candidate (null = that share).
    good_events: the event is good (goodput), so that too few of them are the breach. kappa: excess variance per
    request by level; cap: nats per block; aim [S]: factor of the null at which PASS evidence is aimed (NaN or None: the
    grid alone); alone_blocks: after so many blocks without stable traffic the bound alone speaks, as it does before
    stable is first seen.
    """

    def __init__(
        self,
        strata: Strata,
        null: Array,
        relative: bool,
        cap: float,
        plan_blocks: int,
        phi_floor: float,
        kappa: Mapping[str, float],
        kappa_ratio: Mapping[str, float],
        fail_factors: tuple[float, ...],
        pass_factors: tuple[float, ...],
        has_pass: bool = True,
        alone_blocks: int = 12,
        has_pairs: bool = False,
        aim: Array | None = None,
    ) -> None:
        self.strata, self.null, self.relative = strata, null, relative
        self.cap, self.plan_blocks, self.phi_floor = cap, plan_blocks, phi_floor
        self.kappa, self.kappa_ratio = dict(kappa), dict(kappa_ratio)
        self.fail_factors, self.pass_grid = np.array(fail_factors), pass_factors
        self.has_pass, self.alone_blocks = has_pass, alone_blocks
        self.aim = np.full(strata.size, np.nan) if aim is None else aim
        self.pass_factors, self.prior = seq.aimed(pass_factors, self.aim)
        size, cells = strata.size, strata.cells
        self.fail = RestartBank(cells, len(fail_factors), plan_blocks)
        self.versus_stable = None if relative else RestartBank(cells, len(fail_factors), plan_blocks)
        self.stable_fail = None if relative or not has_pass else RestartBank(cells, len(fail_factors), plan_blocks)
        self.log_pass: Array = self.prior.copy()
        self.latched = np.zeros(size, dtype=bool)
        self.pending = Counts(*(np.zeros(size) for _ in _CARRIED))
        self.total = Counts.zeros(
            size
        )  # behind the PASS evidence: of this step (absolute) or of the attempt (relative)
        self.step_n: Array = np.zeros(size)  # candidate requests of this step
        self.sum_c: Array = np.zeros(size)
        self.sum_b: Array = np.zeros(size)
        self.quiet_b: Array = np.full(size, _NEVER)  # blocks since stable last had a request
        self.blocks = 0.0
        self.phi: Array = np.full(size, phi_floor)
        self._ones: Array = np.ones(size)
        self._apart: tuple[Ints, bool] | None = None  # whether these groups join no strata
        self._made: tuple[Array, tuple[seq.ShareRatios, seq.ShareRatios]] | None = None
        self.pairs = PairEvidence(self.aim) if has_pairs else None

    def seed_rates(self, per_block: Array) -> None:
        """Expected requests per block and stratum from the history, so that phi is known before the first block."""
        self.sum_c = self.sum_c + per_block * _PRIOR_BLOCKS
        self.sum_b = self.sum_b + per_block * _PRIOR_BLOCKS
        self.blocks += _PRIOR_BLOCKS

    # --- evidence ---

    def step(self, counts: Counts, groups: Ints, takes_pass: bool = True, pairs: PairSums | None = None) -> None:
        """One closed block. Strata with the same `groups` number pass together; takes_pass: it belongs to this step."""
        released = self._release(counts) if self.relative else counts
        fail_llr = self._fail_ratios(released)
        rate_c, rate_b = self._rates()
        phi = self._phi(rate_c, rate_b, self.relative, self.kappa)
        self.phi = phi[: self.strata.size]
        self.fail.step(self._tempered(fail_llr, phi), self.cap)
        if self.versus_stable is not None:
            self._step_environment(counts, fail_llr, rate_c, rate_b)
        if self.has_pass and takes_pass:
            pass_llr = self._pass_ratios(released)
            if self.pairs is not None:
                pass_llr = self._step_pairs(pass_llr, counts, groups, pairs)
            self.log_pass = self.log_pass + self._grouped(pass_llr / self.phi[:, None], groups)
        self._account(counts, takes_pass)

    def _step_pairs(self, pass_llr: Array, counts: Counts, groups: Ints, sums: PairSums | None) -> Array:
        """Let pairs speak where they were chosen before this block.

        Returns the ratios that remain for single requests.
        """
        assert self.pairs is not None
        if sums is None and not self.pairs.moments.any():
            return pass_llr
        chosen = self.pairs.chosen()
        llr = self.pairs.step(sums or PairSums.zeros(self.strata.size), counts.n_c, chosen, self.phi)
        self.pairs.add(self._grouped(llr, groups))
        return np.asarray(np.where(chosen[:, None], 0.0, pass_llr))

    def _release(self, counts: Counts) -> Counts:
        """Carry counts forward until both arms have requests, then release them as one block."""
        p, c = self.pending, counts
        total = (p.n_c + c.n_c, p.k_c + c.k_c, p.n_b + c.n_b, p.k_b + c.k_b, p.unsure() + c.unsure())
        ready = (total[0] > 0) & (total[2] > 0)
        self.pending = Counts(*(np.where(ready, 0.0, v) for v in total))
        return Counts(*(np.where(ready, v, 0.0) for v in total))

    def _fail_ratios(self, c: Counts) -> Array:
        """Log likelihood ratios against "within the bound", [S, J]; events of which one is not sure are none."""
        if self.relative:
            return self._compared(c.k_c, c, self.null, self.fail_factors)
        return self._shares()[0].llr(c.k_c, c.n_c)

    def _pass_ratios(self, c: Counts) -> Array:
        """Log likelihood ratios against "at or beyond the bound", [S, J]; events of which one is not sure count."""
        if self.relative:
            return self._compared(c.most_c(), c, self.null, self.pass_factors)
        return self._shares()[1].llr(c.most_c(), c.n_c)

    @staticmethod
    def _compared(k_c: Array, c: Counts, null: Array, factors: Array) -> Array:
        """Ratios of the conditional binomial, zero where nothing happened or the bound is not known; factors [J] or
        [S, J].
        """
        found = np.zeros((len(k_c), factors.shape[-1]))
        rows = np.flatnonzero((k_c + c.k_b > 0) & np.isfinite(null))
        grid = factors if factors.ndim == 1 else factors[rows]
        found[rows] = seq.ratio_llr(k_c[rows], c.k_b[rows], c.n_c[rows], c.n_b[rows], null[rows], grid)
        return found

    def _shares(self) -> tuple[seq.ShareRatios, seq.ShareRatios]:
        """Ratios of FAIL and of PASS for the present nulls and aims (absolute checks)."""
        if self._made is None or self._made[0] is not self.null:
            null = np.where(np.isfinite(self.null), self.null, 0.5)
            fail = seq.ShareRatios(self.null, self._alternatives(null))
            self._made = self.null, (fail, seq.ShareRatios(self.null, null[:, None] * self.pass_factors))
        return self._made[1]

    def _alternatives(self, null: Array) -> Array:
        ceiling = np.where(null < 0.4, 0.5, (1.0 + null) / 2.0)
        return np.asarray(np.minimum(null[:, None] * self.fail_factors, ceiling[:, None]))

    def _step_environment(self, counts: Counts, fail_llr: Array, rate_c: Array, rate_b: Array) -> None:
        """Compare with stable at the same bound; where stable has no traffic at all, the bound alone speaks."""
        assert self.versus_stable is not None
        released = self._release(counts)
        ratio = self._compared(released.k_c, released, self._ones, self.fail_factors)
        self.quiet_b = np.where(counts.n_b > 0, 0.0, self.quiet_b + 1.0)
        alone = self.quiet_b > self.alone_blocks
        self.pending = Counts(*(np.where(alone, 0.0, getattr(self.pending, f)) for f in _CARRIED))
        phi = self._phi(rate_c, rate_b, True, self.kappa_ratio)
        llr = np.where(alone[:, None], fail_llr, ratio) if alone.any() else ratio
        self.versus_stable.step(self._tempered(llr, phi), self.cap)
        if self.stable_fail is None:
            return
        stable = self._shares()[0].llr(counts.k_b, counts.n_b)
        phi = self._phi(rate_b, rate_b, False, self.kappa)
        self.stable_fail.step(self._tempered(stable, phi), self.cap)

    def _tempered(self, per_stratum: Array, phi: Array) -> Array:
        """Ratios of all cells divided by their variance inflation, [C, J]."""
        found = self.strata.spread(per_stratum)
        found /= phi[:, None]
        return found

    def _rates(self) -> tuple[Array, Array]:
        """Mean requests per block and cell of both arms, known before the block."""
        blocks = max(self.blocks, 1.0)
        means = self.strata.spread(np.stack([self.sum_c, self.sum_b], axis=1) / blocks)
        return means[:, 0], means[:, 1]

    def _phi(self, rate_c: Array, rate_b: Array, relative: bool, kappa: Mapping[str, float]) -> Array:
        """Variance inflation per cell: 1 + kappa x requests per block, not below the floor."""
        both = rate_c + rate_b
        size = np.divide(2 * rate_c * rate_b, both, out=np.zeros_like(both), where=both > 0) if relative else rate_c
        s = self.strata
        sizes = (s.size, len(s.tenants), len(s.buckets), 1)
        level = np.repeat([kappa.get(name, 0.0) for name in LEVELS], sizes)
        return np.asarray(np.maximum(self.phi_floor, 1.0 + level * size))

    def _grouped(self, llr: Array, groups: Ints) -> Array:
        """Sum over strata that pass together; -inf (an alternative of no events that saw one) stays -inf."""
        if self._apart is None or self._apart[0] is not groups:
            self._apart = groups, len(np.unique(groups)) == len(groups)
        if self._apart[1]:
            return llr
        finite = np.where(np.isneginf(llr), -1e300, llr)
        return np.asarray(group_sum(finite, groups, int(groups.max()) + 1)[groups])

    def _account(self, c: Counts, of_this_step: bool) -> None:
        t = self.total
        if of_this_step:
            self.total = Counts(t.n_c + c.n_c, t.k_c + c.k_c, t.n_b + c.n_b, t.k_b + c.k_b)
            self.step_n = self.step_n + c.n_c
        self.sum_c, self.sum_b = self.sum_c + c.n_c, self.sum_b + c.n_b
        self.blocks += 1.0

    # --- answers ---

    def fail_evidence(self) -> Array:
        """E against "no breach" per cell; a limit must be broken and stable must be better."""
        own = self.fail.evidence()
        return own if self.versus_stable is None else np.minimum(own, self.versus_stable.evidence())

    def stable_evidence(self) -> Array:
        """E against "stable keeps the bound" per cell (ones for relative checks)."""
        return np.ones(self.strata.cells) if self.stable_fail is None else self.stable_fail.evidence()

    def log_pass_evidence(self) -> Array:
        """Log E against "there is a breach" per stratum."""
        return self._log_pass_of(np.arange(self.strata.size))

    def _log_pass_of(self, places: Ints) -> Array:
        if not len(places):
            return np.zeros(0)
        logs = np.maximum(seq.log_sum(self.log_pass[places]), -700.0)
        return logs if self.pairs is None else np.maximum(logs + self.pairs.log_evidence(places), -700.0)

    def latch(self, alpha: float) -> None:
        """A stratum that has passed in this step stays passed; it needs requests of this step."""
        open_ones = np.flatnonzero(~self.latched & (self.step_n > 0))
        self.latched[open_ones] = self._log_pass_of(open_ones) >= -np.log(alpha)

    def begin_step(self) -> None:
        """Absolute evidence of PASS starts again; relative evidence is kept, but must be seen again with fresh data."""
        self.latched = np.zeros(self.strata.size, dtype=bool)
        self.step_n = np.zeros(self.strata.size)
        if not self.relative:
            self.log_pass = self.prior.copy()
            self.total = Counts.zeros(self.strata.size)

    # --- growth and state ---

    def grow(self, before: tuple[int, int, int], null: Array, aim: Array | None = None) -> None:
        """Make room after new strata; `before` = numbers of strata, tenants and buckets until now; null and aim [S] of
        all.
        """
        s = self.strata
        starts = (0, s.size, s.size + len(s.tenants), s.size + len(s.tenants) + len(s.buckets))
        sizes = (*before, 1)
        keep = np.concatenate([np.arange(n) + start for start, n in zip(starts, sizes, strict=True)])
        for bank in (self.fail, self.versus_stable, self.stable_fail):
            if bank is not None:
                bank.grow(s.cells, keep)
        extra = s.size - before[0]
        self._ones = np.ones(s.size)
        self.null, self.aim = null, np.full(s.size, np.nan) if aim is None else aim
        self.pass_factors, self.prior = seq.aimed(self.pass_grid, self.aim)
        if self.pairs is not None:
            self.pairs.grow(self.aim)
        self.log_pass = np.vstack([self.log_pass, self.prior[before[0] :]])
        self.latched = np.concatenate([self.latched, np.zeros(extra, dtype=bool)])
        for name in ("step_n", "sum_c", "sum_b"):
            setattr(self, name, np.concatenate([getattr(self, name), np.zeros(extra)]))
        self.quiet_b = np.concatenate([self.quiet_b, np.full(extra, _NEVER)])
        self.phi = np.concatenate([self.phi, np.full(extra, self.phi_floor)])
        for counts, names in ((self.pending, _CARRIED), (self.total, FIELDS)):
            for name in names:
                setattr(counts, name, np.concatenate([getattr(counts, name), np.zeros(extra)]))

    def state(self) -> dict[str, Any]:
        """Arrays and numbers from which `load` goes on bit for bit."""
        banks = {"fail": self.fail, "versus_stable": self.versus_stable, "stable_fail": self.stable_fail}
        counts = (("pending", self.pending, _CARRIED), ("total", self.total, FIELDS))
        return {
            "banks": {name: bank.state() for name, bank in banks.items() if bank is not None},
            "counts": {name: {f: getattr(c, f) for f in fields} for name, c, fields in counts},
            "arrays": {n: getattr(self, n) for n in _ARRAYS},
            "blocks": self.blocks,
            "pairs": None if self.pairs is None else self.pairs.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        for name, bank in state["banks"].items():
            getattr(self, name).load(bank)
        for name, values in state["counts"].items():
            setattr(self, name, Counts(**values))
        for name, value in state["arrays"].items():
            setattr(self, name, value)
        self.blocks = state["blocks"]
        if self.pairs is not None:
            self.pairs.load(state["pairs"])
