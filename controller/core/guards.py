"""The guards: what comes before every phase. `GUARDS` is their order; the first that answers wins.

First a deletion, then everything that must roll back, then everything that must hold. Called by machine.py. Pure.
"""

from collections.abc import Callable
from typing import Any

from controller.core import plans, times
from controller.core.actions import Action, DeleteRunManifests, DeleteVariant, ReleaseGate, RemoveFinalizer
from controller.core.outcome import AT_ONCE_SECONDS, WAIT_SECONDS, Outcome, hold, is_held_too_long, is_paused, stay
from controller.core.people import Acts
from controller.core.phases.rollback import start_rollback
from controller.core.snapshot import Snapshot
from controller.core.status import Mark
from controller.core.waits import pod_words, unschedulable
from crds.v1alpha1.action import ActionKind
from crds.v1alpha1.common import parse_duration_seconds
from crds.v1alpha1.conditions import TERMINAL, ConditionType, Phase, Reason
from crds.v1alpha1.policy import OnMaxHold
from crds.v1alpha1.rollout import CapacityStrategy, DeletionPolicy
from policies.verdict import Result

WEIGHING = frozenset({Phase.SHADOW, Phase.CANARY, Phase.RAMP, Phase.PROMOTED, Phase.BAKE})
"""Phases in which candidate pods exist."""

DELETE_WAIT_SECONDS = 30.0
HUNG_PROBES = 3

Guard = Callable[[Snapshot, Acts], Outcome | None]


def guard_deleted(s: Snapshot, acts: Acts) -> Outcome | None:
    """The object goes: weights to stable, candidate removed, what serves is orphaned, finalizer last."""
    if s.deleted_s is None:
        return None
    if not s.has_finalizer:
        return stay(s, Reason.DELETED, "The object is being deleted and holds nothing of ours.")
    status = s.status
    serving = _serving(s)
    leaving = [rev for rev in s.variants if rev != serving]
    lowered = (
        {"step": status.step.model_copy(update={"weight": 0}), "candidate": ""} if serving == status.stable else {}
    )
    waited_s = max(0.0, s.now_s - s.deleted_s)
    published = s.data_plane.published
    is_settled = s.data_plane.is_in_force and published is not None and published.candidate is None
    if lowered and leaving and s.data_plane.gates and not is_settled and waited_s < DELETE_WAIT_SECONDS:
        text = "Deleted: traffic goes back to the stable revision before anything is removed."
        return stay(s, Reason.DELETED, text, changes=lowered, requeue_after_s=1.0)
    keeps = serving if s.spec is None or s.spec.deletion_policy is DeletionPolicy.ORPHAN else ""
    removed: tuple[Action, ...] = tuple(DeleteVariant(rev) for rev in leaving)
    if serving and not keeps:
        removed += (DeleteVariant(serving),)
    release: tuple[Action, ...] = (ReleaseGate(keeps),)
    removed = removed + release if lowered else release + removed  # what answers now goes last
    text = f"Deleted: revision {keeps} goes on serving without an owner." if keeps else "Deleted: nothing is left."
    actions = (*removed, DeleteRunManifests(), RemoveFinalizer())
    return stay(s, Reason.DELETED, text, changes=lowered, actions=actions, requeue_after_s=WAIT_SECONDS)


def _serving(s: Snapshot) -> str:
    """The revision that goes on serving: stable, or the candidate while stable has no pods for its traffic.

    That is so when a rollback after completion, or one from a dead stable, is under way: what answers must not go.
    """
    stable, candidate = s.status.stable, s.status.candidate
    if plans.rollback_weight(s, at_once=False) == 0:
        return stable
    ready = {rev: len(plans.usable_pods(s, rev, needs_probe=False)) for rev in (stable, candidate)}
    return candidate if ready[candidate] > ready[stable] else stable


def guard_person_ends(s: Snapshot, acts: Acts) -> Outcome | None:
    """Abort, reject or rollback by a person; a reject beats any approval."""
    if s.status.phase is Phase.ROLLING_BACK:
        return None
    act = acts.first(ActionKind.ABORT, ActionKind.REJECT, ActionKind.ROLLBACK)
    if act is None:
        return None
    reasons = {ActionKind.ABORT: Reason.ABORTED, ActionKind.REJECT: Reason.REJECTED}
    reason = reasons.get(act.kind, Reason.ROLLED_BACK_BY_PERSON)
    verb = {ActionKind.ABORT: "aborted", ActionKind.REJECT: "rejected the step"}.get(act.kind, "asked for a rollback")
    text = f"{act.user} {verb}: {act.reason or 'no reason given'}."
    to = act.revision[:10] if act.kind is ActionKind.ROLLBACK else ""
    return start_rollback(s, reason, text, to=to, consumed=(act,))


def guard_judge_failed(s: Snapshot, acts: Acts) -> Outcome | None:
    """The judge proved a breach."""
    verdict = s.judge.verdict
    if s.status.phase not in WEIGHING or verdict is None or verdict.result is not Result.FAIL:
        return None
    text = verdict.sentences[0] if verdict.sentences else "The judge proved a breach."
    return start_rollback(s, Reason.GATE_FAILED, text)


def guard_candidate_crashed(s: Snapshot, acts: Acts) -> Outcome | None:
    """Out of memory, a crash loop (counted by restarts, not by readiness), or ready pods that answer nothing."""
    if s.status.phase not in WEIGHING or s.spec is None:
        return None
    allowed = max(1, s.spec.capacity.max_restarts)
    pods = s.variant(s.status.candidate).pods
    for pod in pods:
        if pod.oom_killed:
            text = f"Pod {pod.name} of the candidate ran out of memory: {pod.crash or 'OOMKilled'}."
            return start_rollback(s, Reason.CANDIDATE_CRASHED, text)
    restarts = sum(pod.restarts for pod in pods)
    if restarts >= allowed:
        last = next((pod.crash for pod in pods if pod.crash), "no last words")
        text = f"Candidate containers restarted {restarts} times in this attempt: {last}."
        return start_rollback(s, Reason.CANDIDATE_CRASHED, text)
    can_answer = plans.usable_pods(s, s.status.candidate, needs_probe=True)
    if s.status.step.weight > 0 and not can_answer and not plans.is_unasked(s, s.status.candidate):
        text = f"No candidate pod can answer while {s.status.step.weight} % of live requests go there: {pod_words(s)}"
        return start_rollback(s, Reason.CANDIDATE_CRASHED, text)
    hung = next((pod for pod in pods if pod.ready and pod.servable and pod.probe_failures >= HUNG_PROBES), None)
    if hung is not None and s.status.step.name != plans.PREPARE:
        text = f"Pod {hung.name} is ready and answers no request: {hung.probe_error or 'no answer'}."
        return start_rollback(s, Reason.CANDIDATE_HUNG, text)
    return None


def guard_candidate_late(s: Snapshot, acts: Acts) -> Outcome | None:
    """Candidate pods did not become servable within capacity.readyDeadline; waiting for a GPU does not count."""
    waiting = s.status.step.waiting_since
    if s.status.phase not in WEIGHING or s.spec is None or waiting is None:
        return None
    if unschedulable(s):
        is_refused = s.spec.capacity.strategy is CapacityStrategy.REFUSE
        text = f"No place for the candidate, and capacity.strategy is refuse: {unschedulable(s)}"
        return start_rollback(s, Reason.CAPACITY, text) if is_refused else None
    deadline_s = parse_duration_seconds(s.spec.capacity.ready_deadline)
    if times.since(waiting, s.now_s) <= deadline_s:
        return None
    text = f"Candidate pods were not servable within {s.spec.capacity.ready_deadline}: {pod_words(s)}"
    return start_rollback(s, Reason.CANDIDATE_DEADLINE, text)


def guard_held_too_long(s: Snapshot, acts: Acts) -> Outcome | None:
    """A step held longer than evidence.maxHold and the policy says rollback."""
    policy = s.attempt_policy
    if s.status.phase not in WEIGHING or policy is None or policy.evidence.on_max_hold is not OnMaxHold.ROLLBACK:
        return None
    if not is_held_too_long(s) or is_paused(s):
        return None
    text = f"Step {s.status.step.name} did not pass within maxHold ({policy.evidence.max_hold})."
    return start_rollback(s, Reason.MAX_HOLD_EXCEEDED, text)


def guard_spec_moved(s: Snapshot, acts: Acts) -> Outcome | None:
    """Another revision was applied in mid-attempt: stable again is a rollback, anything else supersedes."""
    status = s.status
    if status.phase in TERMINAL or status.phase is Phase.ROLLING_BACK:
        return None
    if s.target is None or s.spec_error or s.target.problems:
        return None  # what cannot be read asks for nothing
    wanted = s.target.rev10
    if wanted == status.candidate:
        return None
    if wanted == status.stable:
        return start_rollback(s, Reason.STABLE_REAPPLIED, f"The stable revision {wanted} was applied again.")
    text = f"Revision {wanted} was applied: {status.candidate} goes to 0 first, then {wanted} is weighed."
    return start_rollback(s, Reason.SUPERSEDED, text)


def guard_not_ours(s: Snapshot, acts: Acts) -> Outcome | None:
    """Spec unusable, schema older than the code, or somebody else owns the workload: nothing moves forward."""
    if s.status.phase is Phase.ROLLING_BACK:
        return None
    problem = None
    if s.conflict:
        text = f"Rollout {s.conflict} owns the same Service or workload; delete one of the two."
        problem = Mark(Reason.ROUTE_CONFLICT, text)
    elif s.schema_missing:
        fields = ", ".join(s.schema_missing[:5])
        text = f"The API server's CRDs drop fields that this operator relies on ({fields}); apply the new CRDs."
        problem = Mark(Reason.SCHEMA_TOO_OLD, text)
    elif s.spec_error:
        problem = Mark(Reason.INVALID_SPEC, s.spec_error)
    elif s.target is not None and s.target.problems:
        problem = Mark(Reason.MISSING_REFERENCE, " ".join(s.target.problems))
    if problem is None:
        return None
    return stay(s, problem.reason, problem.message, marks={ConditionType.STALLED: problem})


def guard_lease(s: Snapshot, acts: Acts) -> Outcome | None:
    """Without the API server weights may only fall, and everything that lowers stands above."""
    if s.lease_held or s.status.phase is Phase.ROLLING_BACK:
        return None
    return hold(s, Reason.LEASE_LOST, "The API server is out of reach; weights may only fall until it answers.")


def guard_candidate_unasked(s: Snapshot, acts: Acts) -> Outcome | None:
    """Live requests go to pods that this operator has not asked yet: their first answer, or failure, comes first."""
    if s.status.phase not in WEIGHING or s.status.step.weight == 0 or not plans.is_unasked(s, s.status.candidate):
        return None
    return hold(s, Reason.WAITING_FOR_PODS, f"The candidate is asked for a first completion: {pod_words(s)}")


def guard_resume(s: Snapshot, acts: Acts) -> Outcome | None:
    """Pause and resume acts; spec.paused belongs to the object's owner."""
    act = acts.first(ActionKind.PAUSE, ActionKind.RESUME, ActionKind.SKIP)
    if act is None:
        return None
    if act.kind is ActionKind.PAUSE:
        changes: dict[str, Any] = {"paused_by_action": True}
        text = f"{act.user} paused: {act.reason or 'no reason given'}."
    elif act.kind is ActionKind.RESUME and s.status.paused_by_action:
        changes, text = {"paused_by_action": False}, f"{act.user} resumed."
    else:
        changes = {"step": s.status.step.model_copy(update={"resumed": True})}
        text = f"{act.user} ended the pause of step {s.status.step.index}."
    return stay(s, Reason.ACTION_ACCEPTED, text, changes=changes, consumed=(act,), requeue_after_s=AT_ONCE_SECONDS)


def guard_paused(s: Snapshot, acts: Acts) -> Outcome | None:
    """Paused: nothing moves forward; what is in force stays in force and is watched."""
    status = s.status
    if not is_paused(s) or status.phase in TERMINAL or status.phase is Phase.ROLLING_BACK:
        return None
    who = "a person" if status.paused_by_action else "spec.paused"
    text = f"Paused by {who}: nothing moves forward, rollbacks still work."
    return stay(s, Reason.PAUSED, text, marks={ConditionType.HOLDING: Mark(Reason.PAUSED, text)})


GUARDS: tuple[Guard, ...] = (
    guard_deleted,
    guard_person_ends,
    guard_judge_failed,
    guard_candidate_crashed,
    guard_candidate_late,
    guard_held_too_long,
    guard_spec_moved,
    guard_not_ours,
    guard_lease,
    guard_candidate_unasked,
    guard_resume,
    guard_paused,
)
