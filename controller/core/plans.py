"""How many pods, which endpoints, which copies: arithmetic of the state machine, without any decision.

Pure; called by guards.py, phases/, finish.py, people.py and status.py.
"""

import math
from collections.abc import Mapping

from controller.core.snapshot import Frozen, Pod, Snapshot
from crds.v1alpha1.conditions import TERMINAL, Phase
from crds.v1alpha1.rollout import InferenceRolloutStatus, Step
from shadow.plan import Endpoint, Stage, TrafficPlan, copies_to_candidate

PREPARE = "prepare"
"""Name of the step before the first: candidate pods come up, nothing is judged."""

_STAGES = {
    Phase.SHADOW: Stage.SHADOW,
    Phase.CANARY: Stage.CANARY,
    Phase.RAMP: Stage.RAMP,
    Phase.PROMOTED: Stage.BAKE,
    Phase.BAKE: Stage.BAKE,
    Phase.ROLLING_BACK: Stage.ROLLBACK,
}


def attempt_steps(s: Snapshot) -> tuple[Step, ...]:
    """Steps of the running attempt, as frozen when it began (an edit of spec.steps applies to the next one)."""
    candidate = s.stored.get(s.status.candidate)
    if candidate is not None and candidate.manifest.steps:
        return tuple(Step.model_validate(raw) for raw in candidate.manifest.steps)
    return s.spec.steps if s.spec else ()


def current_step(s: Snapshot) -> Step | None:
    """The step in force; None before the first and after the last one."""
    steps, index = attempt_steps(s), s.status.step.index
    if s.status.step.name == PREPARE or index >= len(steps) or s.status.phase in TERMINAL:
        return None
    return steps[index]


def next_index(s: Snapshot) -> int:
    """Index of the step after the one in force (the first one while the candidate is prepared)."""
    return 0 if s.status.step.name == PREPARE else s.status.step.index + 1


def is_guarded(s: Snapshot) -> bool:
    """Whether a person must approve before the attempt may move on."""
    if s.status.phase is Phase.PREFLIGHT:
        return has_no_baseline(s)
    steps, index = attempt_steps(s), next_index(s)
    is_stepping = s.status.phase in (Phase.SHADOW, Phase.CANARY, Phase.RAMP) and not s.status.baseline
    return is_stepping and index < len(steps) and steps[index].needs_approval


def judged_step(status: InferenceRolloutStatus, steps: tuple[Step, ...]) -> int:
    """Index that blocks carry: a pause goes on collecting evidence of the step before it."""
    index = min(status.step.index, len(steps))
    while 0 < index < len(steps) and steps[index].pause is not None:
        index -= 1
    return index


def previous_stable(s: Snapshot) -> str:
    """The revision that was stable before the present one, by history; "" where there is none."""
    done = [e.revision for e in s.status.history if e.result is Phase.COMPLETED and e.revision in s.stored]
    return next((rev for rev in done if rev != s.status.stable), "") or _first_stored(s)


def _first_stored(s: Snapshot) -> str:
    others = [f for f in s.stored.values() if f.rev10 not in (s.status.stable, *s.status.rejected)]
    return max(others, key=lambda f: f.stored_attempt).rev10 if others else ""


def full_replicas(s: Snapshot, rev10: str) -> dict[str, int]:
    """Replicas by role at 100 %: spec's, and while an attempt runs never fewer than when it began.

    Traffic that moves to the candidate makes an autoscaler shrink `spec.replicas`; a rollback needs what was there.
    """
    frozen = s.frozen(rev10)
    if frozen is None:
        return {}
    live = {role.name: role.replicas for role in s.spec.effective_roles()} if s.spec else {}
    began: dict[str, int] = {}
    candidate = s.stored.get(s.status.candidate)
    if s.status.phase not in TERMINAL and candidate is not None:
        began = {role.name: role.replicas for role in candidate.manifest.roles}
    return {
        role.name: max(live.get(role.name, role.replicas), began.get(role.name, 0)) for role in frozen.manifest.roles
    }


def needed_replicas(s: Snapshot, rev10: str, weight: int) -> dict[str, int]:
    """Candidate replicas by role for a weight: max(1, ceil(weight x R)); 0 where the role wants none."""
    full = full_replicas(s, rev10)
    return {role: min(r, max(1, math.ceil(r * weight / 100))) for role, r in full.items()}


def grown_replicas(s: Snapshot, rev10: str, weight: int) -> dict[str, int]:
    """Replicas to ask for: what the weight or the shadow step needs, never fewer than there are."""
    step = current_step(s)
    shadow = step.shadow.capacity if step and step.shadow else 0
    full, needed = full_replicas(s, rev10), needed_replicas(s, rev10, max(weight, shadow))
    present = s.variant(rev10).replicas
    return {role: min(full[role], max(n, present.get(role, 0))) for role, n in needed.items()}


def entry_role(frozen: Frozen | None) -> str:
    """Name of the role that receives requests."""
    roles = frozen.manifest.roles if frozen else ()
    return next((role.name for role in roles if role.entrypoint), roles[0].name if roles else "server")


def is_usable(pod: Pod, needs_probe: bool) -> bool:
    """Whether a pod may receive requests: ready, not leaving and (for candidates) it has answered one."""
    return pod.ready and not pod.terminating and (pod.servable or not needs_probe)


def usable_pods(s: Snapshot, rev10: str, needs_probe: bool) -> list[Pod]:
    """Pods of the entry role that may receive requests."""
    entry = entry_role(s.frozen(rev10))
    return [pod for pod in s.variant(rev10).pods if pod.role == entry and is_usable(pod, needs_probe)]


def is_unasked(s: Snapshot, rev10: str) -> bool:
    """Whether a revision's only pods that could answer have not been asked by this operator yet.

    A new leader has no probe results; readiness that was lost and regained meanwhile proves nothing either way.
    """
    ready = usable_pods(s, rev10, needs_probe=False)
    return bool(ready) and not any(pod.servable or pod.probe_failures for pod in ready)


def missing_pods(s: Snapshot, rev10: str, wanted: Mapping[str, int]) -> dict[str, int]:
    """By role, how many candidate pods are not servable yet; empty when all are."""
    entry = entry_role(s.frozen(rev10))
    pods = s.variant(rev10).pods
    missing = {}
    for role, count in wanted.items():
        usable = sum(pod.role == role and is_usable(pod, role == entry) for pod in pods)
        if usable < count:
            missing[role] = count - usable
    return missing


def has_no_baseline(s: Snapshot) -> bool:
    """Whether stable should serve and does not, so that nothing can be compared with it."""
    stable = s.status.stable
    if not stable or stable not in s.stored:
        return False
    wants = full_replicas(s, stable).get(entry_role(s.stored[stable]), 0)
    return wants > 0 and not usable_pods(s, stable, needs_probe=False)


def rollback_weight(s: Snapshot, at_once: bool) -> int:
    """Weight that the candidate may keep during a rollback: what stable has no pods for yet.

    Zero where stable has its pods (`surge`: always), where there is no stable, or where the candidate is dying.
    """
    stable, now = s.status.stable, s.status.step.weight
    if at_once or not stable or now == 0:
        return 0
    wants = full_replicas(s, stable).get(entry_role(s.frozen(stable)), 0)
    has = len(usable_pods(s, stable, needs_probe=False))
    candidate_has = len(usable_pods(s, s.status.candidate, needs_probe=False))
    if has >= wants or candidate_has == 0:
        return 0
    return min(now, math.ceil(100 * (1 - has / wants)))


def make_plan(s: Snapshot, status: InferenceRolloutStatus) -> TrafficPlan:
    """What the gates shall do under a status; a pure function of status, spec and pods."""
    stage = _stage(status)
    is_resting = stage is Stage.IDLE
    candidate = None if is_resting else status.candidate or None
    stable = status.stable or None
    weight = status.step.weight if candidate else 0
    steps = attempt_steps(s)
    to_candidate, to_stable = (0.0, 0.0) if is_resting else _copies(s, status, stage)
    return TrafficPlan(
        rollout=s.key,
        attempt=0 if is_resting else status.attempt,
        step=0 if is_resting else judged_step(status, steps),
        stage=stage,
        weight=weight,
        copies_to_candidate=to_candidate,
        copies_to_stable=to_stable,
        stable=stable,
        candidate=candidate,
        endpoints=tuple(e for rev in (stable, candidate) if rev for e in _endpoints(s, rev, rev != stable)),
    )


def _stage(status: InferenceRolloutStatus) -> Stage:
    stage = _STAGES.get(status.phase, Stage.IDLE)
    if status.baseline == "FirstInstall" and stage not in (Stage.IDLE, Stage.ROLLBACK):
        return Stage.INSTALL
    return stage


def _copies(s: Snapshot, status: InferenceRolloutStatus, stage: Stage) -> tuple[float, float]:
    """(share copied to the candidate, share copied to stable)."""
    if status.baseline or stage in (Stage.INSTALL, Stage.ROLLBACK) or status.step.name == PREPARE:
        return 0.0, 0.0
    to_stable = 1.0 if status.step.weight > 0 else 0.0
    ready = len(usable_pods(s, status.candidate, needs_probe=True))
    entry = entry_role(s.frozen(status.candidate))
    share = copies_to_candidate(status.step.weight, ready, full_replicas(s, status.candidate).get(entry, 0))
    return min(share, _mirror_cap(s, status, stage, share)), to_stable


def _mirror_cap(s: Snapshot, status: InferenceRolloutStatus, stage: Stage, auto: float) -> float:
    """The least of what the shadow step and the policy allow; `auto` allows what equal load asks for."""
    steps = attempt_steps(s)
    index = status.step.index
    step = steps[index].shadow if stage is Stage.SHADOW and index < len(steps) else None
    policy = s.attempt_policy
    given = [step.percent if step else "auto", policy.mirror.percent if policy else "auto"]
    return min((int(text) / 100.0 for text in given if text != "auto"), default=auto)


def _endpoints(s: Snapshot, rev10: str, needs_probe: bool) -> list[Endpoint]:
    """Where a revision is reached. A candidate without a usable pod has no endpoint; stable without one keeps them all.

    A control plane that was away calls every pod unready when it comes back, though all of them serve; and an address
    that refuses connections is no worse for users than no address.
    """
    entry = entry_role(s.frozen(rev10))
    port = s.spec.traffic.port if s.spec else 8000
    pods = [pod for pod in s.variant(rev10).pods if pod.role == entry and pod.ip]
    usable = {pod.name for pod in pods if is_usable(pod, needs_probe)}
    known = {pod.name for pod in pods if pod.ready_since_s is not None or pod.ready}
    if not usable and not needs_probe:
        usable = known = {pod.name for pod in pods if not pod.terminating}
    return [
        Endpoint(pod.ip, port, pod.name, rev10, pod.ready_since_s or pod.created_s, pod.name in usable)
        for pod in sorted(pods, key=lambda p: p.name)
        if pod.name in known
    ]
