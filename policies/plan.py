"""How long proof takes: requests and minutes that a check needs, before a step (planner) and while it runs (ETA).

Closed forms of the judge's own tests (docs/judge.md): the evidence of alternative j grows by I_j nats
per candidate request with variance V_j, so its level A' is reached after about A'/I_j + z sqrt(A' V_j / I_j^3)
requests, times phi. Pure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from policies.contract import SERVED, Check, CheckKind
from policies.expectation import expected_rates
from policies.growth import absolute_drift, ratio_drift, requests_for
from policies.history import History
from policies.projection import Stratum
from policies.sequential import GOODPUT_PASS_FACTORS, PASS_FACTORS, Array, aimed
from policies.setup import JudgeSetup

Z90 = 1.2815515655446004


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One stratum x check: requests that an identical candidate needs to pass (median and 90 %), and minutes for
    90 %.
    """

    tenant: str
    bucket: str
    metric: str
    gate: str
    rate_rps: float
    requests_needed_50: int | None
    requests_needed_90: int | None
    minutes_90: float | None
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Of one step; minutes_90 of the slowest stratum that can pass.

    Cannot_pass: rows that need longer than maxHold, or for ever.
    """

    strata: tuple[PlanRow, ...]
    minutes_90: float | None
    cannot_pass: tuple[PlanRow, ...]
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        from dataclasses import asdict

        return asdict(self)


def make_plan(setup: JudgeSetup, history: History, share: float = 0.5) -> Plan:
    """Plan of a step in which the candidate gets `share` of each stratum's requests beside stable.

    Stable's own sketch says what an identical candidate would exceed; the exceedance of a stratum that has none is
    taken as 0.5 of one request. Rows are in the order of the setup.
    """
    rows = []
    for stratum in setup.strata:
        place = (stratum.tenant, stratum.bucket)
        for number, check in enumerate(setup.checks):
            if check.metric == SERVED.metric or not check.enforce:
                continue
            if check.kind.is_relative and not setup.baseline:
                continue
            rows.append(_plan_row(setup, history, place, number, stratum.rate_rps, share))
    limit = setup.contract.max_hold_s / 60.0
    cannot = tuple(r for r in rows if r.minutes_90 is None or r.minutes_90 > limit)
    minutes = [r.minutes_90 for r in rows if r.minutes_90 is not None]
    return Plan(tuple(rows), max(minutes) if minutes else None, cannot, setup.warnings)


def _plan_row(
    setup: JudgeSetup, history: History, place: Stratum, number: int, rate_rps: float, share: float
) -> PlanRow:
    check = setup.checks[number]
    stratum = next(s for s in setup.strata if (s.tenant, s.bucket) == place)
    drift = _expected_drift(setup, history, place, number, share)
    block_s = setup.contract.block_s
    c, b = rate_rps * share * block_s, rate_rps * (1 - share) * block_s
    size = 2 * c * b / (c + b) if check.kind.is_relative and c + b > 0 else c
    phi = max(setup.phi_floor, 1.0 + setup.kappa[number].get("stratum", 0.0) * size)
    need: list[float | None] = [None, None]
    if drift is not None and stratum.checks[number].null is not None:
        level = math.log(1.0 / setup.contract.alpha_promote)
        need = [requests_for(drift[0], drift[1], level, z, drift[2]) for z in (0.0, Z90)]
    counts = [None if n is None else math.ceil(n * phi) for n in need]
    candidate_rps = rate_rps * share
    minutes = None if counts[1] is None or candidate_rps <= 0 else counts[1] / candidate_rps / 60.0
    if minutes is not None:
        minutes = max(minutes, setup.contract.min_step_s / 60.0)
    advice = _advice(check, minutes, setup.contract.max_hold_s / 60.0, rate_rps)
    return PlanRow(place[0], place[1], check.metric, check.gate, candidate_rps, counts[0], counts[1], minutes, advice)


def _advice(check: Check, minutes: float | None, limit: float, rate_rps: float) -> str:
    if rate_rps <= 0:
        return "no traffic in the history: send some, or drop the bucket"
    if minutes is None:
        return "stable itself is at the bound: widen the limit, or compare with a margin"
    if minutes <= limit:
        return ""
    wider = "widen the margin" if check.margin is not None else "raise the limit"
    return f"needs {minutes:.0f} min of {limit:.0f}: {wider}, give a larger share or copies, or merge with a neighbour"


def _expected_drift(
    setup: JudgeSetup, history: History, place: Stratum, number: int, share: float
) -> tuple[Array, Array, Array] | None:
    """(I, V, logarithm of the prior weight) by alternative, of an identical candidate; None where nothing is known."""
    check = setup.checks[number]
    values = next(s for s in setup.strata if (s.tenant, s.bucket) == place).checks[number]
    rates = expected_rates(history, check, place, values)
    if rates is None or values.null is None:
        return None
    is_goodput = check.kind is CheckKind.GOODPUT_REL
    aim = np.array([np.nan if values.aim is None else values.aim])
    grid, weights = (a[0] for a in aimed(GOODPUT_PASS_FACTORS if is_goodput else PASS_FACTORS, aim))
    if not check.kind.is_relative:
        return (*absolute_drift(rates[0], values.null, grid), weights) if rates[0] < values.null else None
    theta0 = 1.0 if check.kind is CheckKind.QUANTILE_REL else values.null
    return (*ratio_drift(rates[0], rates[1], share, theta0, grid), weights)


def merged_strata(setup: JudgeSetup, history: History, share: float) -> tuple[tuple[Stratum, ...], ...]:
    """Groups of adjacent buckets of one tenant that must pass together, because one of them alone would need
    longer than maxHold.
    """
    slowest: dict[Stratum, PlanRow] = {}
    for row in make_plan(setup, history, share).strata:
        place = (row.tenant, row.bucket)
        known = slowest.get(place)
        if row.requests_needed_90 is not None and (known is None or row.requests_needed_90 > _need(known)):
            slowest[place] = row
    groups = []
    limit_s = setup.contract.max_hold_s
    for tenant in sorted({t for t, _ in slowest}):
        rows = [slowest[tenant, b] for b in setup.contract.bucket_names if (tenant, b) in slowest]
        groups += _merge_tenant([[row] for row in rows], limit_s)
    return tuple(tuple((r.tenant, r.bucket) for r in group) for group in groups)


def thin_strata(setup: JudgeSetup, history: History, share: float) -> tuple[Stratum, ...]:
    """Strata with traffic of which some check cannot pass within maxHold, in the order of the setup."""
    rows = make_plan(setup, history, share).cannot_pass
    return tuple(dict.fromkeys((r.tenant, r.bucket) for r in rows if r.rate_rps > 0 and r.minutes_90 is not None))


def _need(row: PlanRow) -> int:
    return row.requests_needed_90 or 0


def _seconds(group: Sequence[PlanRow]) -> float:
    rate = sum(r.rate_rps for r in group)
    return max(_need(r) for r in group) / rate if rate > 0 else math.inf


def _merge_tenant(groups: list[list[PlanRow]], limit_s: float) -> list[list[PlanRow]]:
    """Join the slowest group with its slower neighbour until every group is fast enough; returns the joined ones."""
    while len(groups) > 1:
        at = max(range(len(groups)), key=lambda i: _seconds(groups[i]))
        if _seconds(groups[at]) <= limit_s:
            break
        neighbours = [i for i in (at - 1, at + 1) if 0 <= i < len(groups)]
        other = max(neighbours, key=lambda i: _seconds(groups[i]))
        low, high = min(at, other), max(at, other)
        groups[low : high + 1] = [groups[low] + groups[high]]
    return [group for group in groups if len(group) > 1]
