"""What a judge is put together from: the evidence of each check, bounds, aims and thresholds of all strata.

Called by `Judge` when it begins and when strata appear; reads its setups, changes nothing.
"""

from typing import TYPE_CHECKING

import numpy as np

from policies.contract import SERVED, Check, CheckKind
from policies.growth import DEFAULT_AIM
from policies.projection import Ints, Keys
from policies.records import CANDIDATE, STABLE
from policies.sequential import (
    FAIL_FACTORS,
    GOODPUT_FAIL_FACTORS,
    GOODPUT_PASS_FACTORS,
    PASS_FACTORS,
    Array,
    ratio_fail_grid,
)
from policies.setup import CheckSetup
from policies.track import Track

if TYPE_CHECKING:
    from policies.judge import Judge


def make_track(judge: "Judge", number: int) -> Track:
    """The evidence of one check, with what the history says of rates and dependence."""
    check, kind = judge.checks[number], judge.checks[number].kind
    is_goodput = kind is CheckKind.GOODPUT_REL
    fail: tuple[float, ...] = GOODPUT_FAIL_FACTORS if is_goodput else FAIL_FACTORS
    if kind is CheckKind.QUANTILE_REL:
        fail = ratio_fail_grid(check.share)
    track = Track(
        judge.strata,
        nulls(judge, number),
        kind.is_relative,
        judge.cap,
        judge.contract.plan_blocks,
        judge.setup.phi_floor,
        judge.setup.kappa[number],
        judge.setup.kappa_ratio[number],
        fail,
        GOODPUT_PASS_FACTORS if is_goodput else PASS_FACTORS,
        check.metric != SERVED.metric and not check.sentinel,
        max(1, round(judge.contract.freshness_s / judge.contract.block_s)),
        has_pairs=kind is CheckKind.QUANTILE_REL and not check.sentinel,
        aim=aims(judge, number),
    )
    rates = np.array([s.rate_rps for s in judge.setups]) * judge.contract.block_s
    if len(rates) and rates.any():
        track.seed_rates(rates)
    return track


def nulls(judge: "Judge", number: int) -> Array:
    """Bounds of a check by stratum, NaN where none is known yet."""
    values = (s.checks[number].null for s in judge.setups)
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def aims(judge: "Judge", number: int) -> Array:
    """Aims of a check's PASS evidence; strata that pass together need the same: the one nearest to the bound."""
    own = np.array([np.nan if s.checks[number].aim is None else s.checks[number].aim for s in judge.setups])
    nearest = np.fmin if judge.checks[number].kind is CheckKind.GOODPUT_REL else np.fmax
    joined = np.full(len(own), np.nan)
    nearest.at(joined, judge.groups, own)
    return np.asarray(joined[judge.groups], dtype=float)


def make_keys(judge: "Judge") -> Keys:
    """Thresholds of both arms by check and stratum."""

    def column(number: int, stable: bool) -> Ints:
        values = (s.checks[number] for s in judge.setups)
        return np.array([v.stable_us if stable else v.candidate_us for v in values], dtype=np.int64)

    numbers = range(len(judge.checks))
    return Keys(
        {STABLE: [column(n, True) for n in numbers], CANDIDATE: [column(n, False) for n in numbers]},
        [np.array([s.checks[n].tie_us for s in judge.setups], dtype=np.int64) for n in numbers],
        [np.array([s.checks[n].tie_share for s in judge.setups], dtype=float) for n in numbers],
        [np.array([_is_calibrated_here(judge, n, i) for i in range(len(judge.setups))]) for n in numbers],
    )


def _is_calibrated_here(judge: "Judge", number: int, place: int) -> bool:
    """Whether a margin's threshold was set in mid-attempt, so that no block was counted at it at the source."""
    if judge.checks[number].kind is not CheckKind.QUANTILE_REL:
        return False
    return place >= judge.known or judge.setup.strata[place].checks[number].stable_us < 0


def merge_groups(judge: "Judge") -> Ints:
    """Number of the group in which each stratum passes: its own, or the least of those it is merged with."""
    groups = np.arange(judge.strata.size, dtype=np.int64)
    for group in judge.setup.merged:
        members = [m for m in (judge.strata.get(name) for name in group) if m is not None]
        for member in members:
            groups[member] = min(members)
    return groups


def newcomer(judge: "Judge", check: Check) -> CheckSetup:
    """Limits hold for a stratum at once; a margin has to wait for stable's threshold in the stratum."""
    number = judge.checks.index(check)
    if check.kind is CheckKind.QUANTILE_REL:
        return CheckSetup(-1, -1, None, aim=DEFAULT_AIM)
    known = [s.checks[number] for s in judge.setups if s.checks[number].null is not None]
    if known:
        bounds = sorted(c.null for c in known if c.null is not None)
        aim = None if check.kind is CheckKind.GOODPUT_REL else DEFAULT_AIM
        return CheckSetup(known[0].stable_us, known[0].candidate_us, bounds[len(bounds) // 2], aim=aim)
    return CheckSetup(-1, -1, None)
