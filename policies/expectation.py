"""What stable's history lets one expect of an identical candidate, and the aims of PASS evidence that follow.

Called by `history.prepare` (aims are fixed before an attempt), by the planner, and by judge-bench. Pure.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from policies import blocks, histogram
from policies.contract import SERVED, Check, CheckKind
from policies.growth import DEFAULT_AIM, absolute_aim, ratio_aim, slowest_z
from policies.projection import Stratum
from policies.setup import CheckSetup, JudgeSetup

if TYPE_CHECKING:
    from policies.history import History


def exceedance(bins: Mapping[int, int], n: int, key: int) -> float:
    """Share of values above a threshold (microseconds), from a sketch, upper bound.

    At least a quarter of one request.
    """
    _, most = histogram.count_above_bounds(bins, key / 1e6)
    return max(most, 0.25) / n


def expected_rates(history: "History", check: Check, place: Stratum, values: CheckSetup) -> tuple[float, float] | None:
    """Event shares (candidate, stable) of an identical candidate in a stratum; None where the history is silent."""
    if values.null is None:
        return None
    if check.metric not in blocks.LATENCIES:
        n, k = history.bad(place, check)
        bad = max(k, 0.25) / n if n else math.nan
        if math.isnan(bad):
            return None
        return (1 - bad, 1 - bad) if check.kind is CheckKind.GOODPUT_REL else (bad, bad)
    bins, _ = history.sketch(place, check.metric)
    n = histogram.count(bins)
    if not n:
        return None
    p_b = exceedance(bins, n, values.stable_us)
    if values.tie_us >= 0:
        p_b += values.tie_share * max(0.0, exceedance(bins, n, values.tie_us) - p_b)
    return exceedance(bins, n, values.candidate_us), p_b


def with_aims(setup: JudgeSetup, history: "History", share: float = 0.5) -> JudgeSetup:
    """The setup with the aim of every check in every stratum; `share`: the candidate's part of the requests.

    An aim is fixed before any request of the candidate and so costs no validity, right or wrong.
    """
    level = -math.log(setup.contract.alpha_promote)
    z = slowest_z(len(setup.strata))
    strata = []
    for stratum in setup.strata:
        place = (stratum.tenant, stratum.bucket)
        checks = tuple(
            replace(values, aim=_aim(history, check, place, values, share, level, z))
            for check, values in zip(setup.checks, stratum.checks, strict=True)
        )
        strata.append(replace(stratum, checks=checks))
    return replace(setup, strata=tuple(strata))


def _aim(
    history: "History", check: Check, place: Stratum, values: CheckSetup, share: float, level: float, z: float
) -> float | None:
    """None for what never has to pass, and for a margin of goodput without history."""
    if check.metric == SERVED.metric or check.sentinel:
        return None
    is_goodput = check.kind is CheckKind.GOODPUT_REL
    default = None if is_goodput else DEFAULT_AIM
    rates = expected_rates(history, check, place, values)
    if rates is None or values.null is None:
        return default
    p_c, p_b = rates
    if check.kind.is_relative:
        theta0 = 1.0 if check.kind is CheckKind.QUANTILE_REL else values.null
        found = ratio_aim(p_c, p_b, share, theta0, level, z, is_goodput)
    else:
        found = absolute_aim(p_c, values.null, level, z)
    return default if math.isnan(found) else found
