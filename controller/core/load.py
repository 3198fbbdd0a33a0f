"""Equal load, or no verdict: what the arms carry now, what a candidate replica should carry, and whether that matches.

Pure; called by waits.py (the rule) and by controller/live.py (the picture). Unknown is None, never zero.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.core import plans, times
from controller.core.snapshot import Snapshot, Traffic
from controller.core.status import Mark
from crds.v1alpha1.conditions import Phase, Reason
from crds.v1alpha1.rollout import InferenceRolloutStatus
from policies.guards import uneven_tenants
from policies.records import CANDIDATE, STABLE

TOLERANCE = 0.15
ENOUGH_REQUESTS = 300
"""Requests in the window below which a difference says nothing."""
NOISE_DEVIATIONS = 4.0
_SETTLE_SECONDS = 5.0  # a request is known some seconds after its start; the window must lie within the step
_MATCHED_PHASES = frozenset({Phase.SHADOW, Phase.CANARY, Phase.RAMP})


@dataclass(frozen=True, slots=True)
class Arm:
    """One variant over the window: requests per second (with copies), per usable replica, shares by tenant."""

    rps: float | None = None
    rps_per_replica: float | None = None
    tenant_shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Load:
    """The comparison.

    target_rps_per_replica: live requests per second by the candidate's replicas at 100 %; candidate_share_live:
    observed; worst_mix_gap: largest relative difference between a tenant's share of live requests and of the
    candidate's; matched: None where nobody can say.
    """

    stable: Arm = Arm()
    candidate: Arm = Arm()
    target_rps_per_replica: float | None = None
    candidate_share_live: float | None = None
    worst_mix_gap: float | None = None
    matched: bool | None = None
    message: str = ""


def load_of(s: Snapshot, status: InferenceRolloutStatus) -> Load:
    """What the recorder's last seconds say about the load of both arms."""
    traffic = s.traffic
    if traffic is None:
        return Load(message="the recorder's last seconds are not known")
    ready = {
        STABLE: len(plans.usable_pods(s, status.stable, needs_probe=False)),
        CANDIDATE: len(plans.usable_pods(s, status.candidate, needs_probe=True)) if status.candidate else 0,
    }
    stable = _arm(traffic, STABLE, ready[STABLE])
    live = _live(traffic)
    total = sum(live.values())
    if not status.candidate:
        return Load(stable=stable)
    full = plans.full_replicas(s, status.candidate).get(plans.entry_role(s.frozen(status.candidate)), 0)
    target = total / traffic.window_s / full if full and total else None
    found = Load(
        stable=stable,
        candidate=_arm(traffic, CANDIDATE, ready[CANDIDATE]),
        target_rps_per_replica=target,
        candidate_share_live=_of_variant(traffic, CANDIDATE, live_only=True) / total if total else None,
        worst_mix_gap=_mix_gap(traffic, live),
    )
    return _judged(s, status, traffic, found, ready[CANDIDATE])


def load_mismatch(s: Snapshot) -> Mark | None:
    """Why the candidate's requests cannot be compared with stable's now; None where they can, or nobody can say."""
    load = load_of(s, s.status)
    if load.matched is not False or not _is_enforced(s, s.status):
        return None
    return Mark(Reason.NOT_LOAD_MATCHED, f"The candidate is not at the load that it will carry: {load.message}.")


def _is_enforced(s: Snapshot, status: InferenceRolloutStatus) -> bool:
    """Whether the data plane was told to bring the candidate to equal load: copies are `auto` and leave nobody out."""
    policy = s.attempt_policy
    if status.baseline or status.phase not in _MATCHED_PHASES or policy is None or status.step.name == plans.PREPARE:
        return False
    mirror = policy.mirror
    steps, index = plans.attempt_steps(s), status.step.index
    shadow = steps[index].shadow if index < len(steps) else None
    is_auto = mirror.percent == "auto" and (shadow is None or shadow.percent == "auto")
    return is_auto and mirror.tenants == ("*",) and not mirror.except_tenants


def _judged(s: Snapshot, status: InferenceRolloutStatus, traffic: Traffic, load: Load, ready: int) -> Load:
    """The same load with `matched` and a message."""
    if status.phase not in _MATCHED_PHASES or status.step.name == plans.PREPARE:
        return load
    seen = sum(traffic.counts.values())
    if traffic.attempt != status.attempt or not _covers_step(status, traffic):
        return _with(load, None, "the last seconds lie partly before this step")
    if seen < ENOUGH_REQUESTS:
        return _with(load, None, f"{seen} requests in {traffic.window_s:g} s are too few to tell")
    problem = _rate_problem(load, traffic, ready) or _mix_problem(traffic)
    if problem:
        return _with(load, False, problem)
    return _with(load, True, "load per replica and tenant mix are within 15 % of the target")


def _with(load: Load, matched: bool | None, message: str) -> Load:
    return Load(
        load.stable, load.candidate, load.target_rps_per_replica, load.candidate_share_live, load.worst_mix_gap,
        matched, message,
    )  # fmt: skip


def _covers_step(status: InferenceRolloutStatus, traffic: Traffic) -> bool:
    started_s = times.from_text(status.step.started_at)
    return started_s is not None and traffic.read_s - started_s > traffic.window_s + _SETTLE_SECONDS


def _rate_problem(load: Load, traffic: Traffic, ready: int) -> str:
    """Beyond 15 % of the target, and beyond what chance does to a sampled share of the requests."""
    target, has = load.target_rps_per_replica, load.candidate.rps_per_replica
    if target is None:
        return "no live request arrives"
    if has is None:
        return "no candidate replica can take requests"
    noise = NOISE_DEVIATIONS / math.sqrt(max(1.0, target * ready * traffic.window_s))
    if abs(has / target - 1.0) <= max(TOLERANCE, noise):
        return ""
    return f"a candidate replica gets {has:.2f} requests/s and will carry {target:.2f} at 100 %"


def _mix_problem(traffic: Traffic) -> str:
    routed = {(STABLE, tenant): n for tenant, n in _live(traffic).items()}
    for (variant, _, tenant), n in traffic.counts.items():
        if variant == CANDIDATE:
            routed[CANDIDATE, tenant] = routed.get((CANDIDATE, tenant), 0) + n
    uneven = uneven_tenants(routed, TOLERANCE)
    if not uneven:
        return ""
    tenant, candidate, live = max(uneven, key=lambda entry: abs(entry[1] - entry[2]))
    return f"{tenant} is {candidate:.0%} of the candidate's requests and {live:.0%} of live ones"


def _arm(traffic: Traffic, variant: str, ready: int) -> Arm:
    by_tenant: dict[str, int] = {}
    for (of, _, tenant), n in traffic.counts.items():
        if of == variant:
            by_tenant[tenant] = by_tenant.get(tenant, 0) + n
    total = sum(by_tenant.values())
    rps = total / traffic.window_s
    shares = {tenant: n / total for tenant, n in sorted(by_tenant.items())} if total else {}
    return Arm(rps, rps / ready if ready else None, shares)


def _live(traffic: Traffic) -> dict[str, int]:
    """Live requests of both arms by tenant."""
    found: dict[str, int] = {}
    for (_, kind, tenant), n in traffic.counts.items():
        if kind == "live":
            found[tenant] = found.get(tenant, 0) + n
    return found


def _of_variant(traffic: Traffic, variant: str, live_only: bool) -> int:
    return sum(n for (of, kind, _), n in traffic.counts.items() if of == variant and (kind == "live" or not live_only))


def _mix_gap(traffic: Traffic, live: Mapping[str, int]) -> float | None:
    total, candidate = sum(live.values()), _of_variant(traffic, CANDIDATE, live_only=False)
    if not total or not candidate:
        return None
    gaps = []
    for tenant, n in live.items():
        has = sum(k for (of, _, t), k in traffic.counts.items() if of == CANDIDATE and t == tenant)
        gaps.append(abs((has / candidate) / (n / total) - 1.0))
    return max(gaps)
