"""The state machine of a rollout: one pure function, `decide(snapshot) -> Decision`.

Theory of operation
-------------------
An *attempt* weighs one new revision (the candidate) against the stable one. `status` says where the attempt is; the
snapshot says how the world looks; `decide` compares the two and answers with the whole next status, the traffic that
the gates shall carry, and actions. It is level-based: nothing is remembered outside status and the world, repeating a
decision is harmless, and whoever kills the operator between two calls finds the same plan finished by the next one.

One decision makes at most one move between phases; a move that `TRANSITIONS` does not list is refused. Guards run
first, in order, and the first that answers wins: a deletion, then everything that must roll back, then everything
that must hold. Only when no guard answers does the phase's own function run. Time is an input, the next look is an
output; waiting is a condition, never a phase.

Three rules carry the safety of the whole operator:

* `status.step.weight` is the highest weight that the gates may hold. `enter_step` is the only place where it rises.
* `start_rollback` is the only place where a rollback starts. Rollbacks need neither the judge nor the store.
* What is unknown holds. Moving forward needs a fresh PASS of this step; nothing is inferred from silence.

A rollback after completion reuses the same phase: `start_rollback` gives the revisions back the names that they had
before the promotion (the one that serves is the candidate again, at the weight that it has), and RollingBack takes
the weight down as the restored pods become ready.

Called by controller/reconcile.py. Knows no client, no clock, no randomness.
"""

from collections.abc import Callable, Mapping
from typing import Any

from controller.core import plans, times
from controller.core.actions import (
    Action,
    ApplyVariant,
    Decision,
    DeleteRunManifests,
    DeleteVariant,
    EmitEvent,
    PruneRunManifests,
    PutSetup,
    ReleaseGate,
    RemoveFinalizer,
    StoreRunManifest,
)
from controller.core.finish import finish
from controller.core.outcome import (
    AT_ONCE_SECONDS,
    STEADY_SECONDS,
    WAIT_SECONDS,
    Outcome,
    hold,
    is_held_too_long,
    is_paused,
    move,
    stay,
)
from controller.core.people import Acts, binding_evidence, sort_acts
from controller.core.preflight import first_problem
from controller.core.snapshot import Frozen, PersonAction, Snapshot
from controller.core.status import Mark, make_verdict
from controller.core.waits import (
    await_approval,
    await_data_plane,
    await_pass,
    await_pause,
    await_pods,
    await_start,
    blind_of,
    hold_of,
    is_drained,
    pod_words,
    unschedulable,
    verify_flip,
)
from crds.v1alpha1.action import ActionKind
from crds.v1alpha1.common import parse_duration_seconds
from crds.v1alpha1.conditions import TERMINAL, ConditionType, Phase, Reason
from crds.v1alpha1.policy import OnMaxHold
from crds.v1alpha1.rollout import CapacityStrategy, DeletionPolicy, HistoryEntry, StepStatus, VerdictStatus
from policies.verdict import Result
from shadow.plan import Stage

TRANSITIONS: Mapping[Phase, frozenset[Phase]] = {
    Phase.IDLE: frozenset({Phase.PENDING, Phase.ROLLING_BACK}),
    Phase.PENDING: frozenset({Phase.DIFFED, Phase.ROLLING_BACK}),
    Phase.DIFFED: frozenset({Phase.PREFLIGHT, Phase.ROLLING_BACK}),
    Phase.PREFLIGHT: frozenset({Phase.SHADOW, Phase.ROLLING_BACK}),
    Phase.SHADOW: frozenset({Phase.CANARY, Phase.RAMP, Phase.PROMOTED, Phase.ROLLING_BACK}),
    Phase.CANARY: frozenset({Phase.RAMP, Phase.PROMOTED, Phase.ROLLING_BACK}),
    Phase.RAMP: frozenset({Phase.PROMOTED, Phase.ROLLING_BACK}),
    Phase.PROMOTED: frozenset({Phase.BAKE, Phase.ROLLING_BACK}),
    Phase.BAKE: frozenset({Phase.COMPLETED, Phase.ROLLING_BACK}),
    Phase.COMPLETED: frozenset({Phase.PENDING, Phase.ROLLING_BACK}),
    Phase.ROLLING_BACK: frozenset({Phase.ROLLED_BACK}),
    Phase.ROLLED_BACK: frozenset({Phase.PENDING, Phase.ROLLING_BACK}),
}
"""Moves between phases; staying where one is needs no entry."""

WEIGHING = frozenset({Phase.SHADOW, Phase.CANARY, Phase.RAMP, Phase.PROMOTED, Phase.BAKE})
"""Phases in which candidate pods exist."""

DELETE_WAIT_SECONDS = 30.0
HUNG_PROBES = 3
HISTORY_ENTRIES = 10

_PREFLIGHT_WAITS = frozenset({Reason.WAITING_FOR_DATA_PLANE, Reason.RECORDER_UNREACHABLE, Reason.WAITING_FOR_PODS})
"""Problems of preflight that mend themselves; all others need a person."""

_KEEPS_REVISION_FREE = frozenset({Reason.SUPERSEDED, Reason.STABLE_REAPPLIED, Reason.DELETED})
"""Rollbacks that say nothing about the candidate: its revision may be weighed again without a retry."""

_AT_ONCE = frozenset({Reason.CANDIDATE_CRASHED, Reason.CANDIDATE_HUNG})
"""Rollbacks of a dying candidate: traffic leaves it whatever stable has."""

Guard = Callable[[Snapshot, Acts], Outcome | None]
PhaseFunction = Callable[[Snapshot, Acts], Outcome]


def decide(s: Snapshot) -> Decision:
    """The next status, traffic and actions of one rollout.

    Args:
        s: everything that is known about it now.

    Returns:
        A decision; the same snapshot gives the same one.

    Raises:
        IllegalMove: a phase function asked for a move that TRANSITIONS does not list (a defect).
    """
    acts = sort_acts(s)
    for guard in GUARDS:
        outcome = guard(s, acts)
        if outcome is not None:
            return finish(s, acts, outcome, TRANSITIONS[s.status.phase])
    return finish(s, acts, PHASES[s.status.phase](s, acts), TRANSITIONS[s.status.phase])


# --- guards: first hit wins ---------------------------------------------------------------------------------------


def guard_deleted(s: Snapshot, acts: Acts) -> Outcome | None:
    """The object goes: weights to stable, candidate removed, what serves is orphaned, finalizer last."""
    if s.deleted_s is None:
        return None
    if not s.has_finalizer:
        return stay(s, Reason.DELETED, "The object is being deleted and holds nothing of ours.")
    status = s.status
    leaving = [rev for rev in s.variants if rev != status.stable]
    lowered = {"step": status.step.model_copy(update={"weight": 0}), "candidate": ""}
    waited_s = max(0.0, s.now_s - s.deleted_s)
    published = s.data_plane.published
    is_settled = s.data_plane.is_in_force and published is not None and published.candidate is None
    if leaving and s.data_plane.gates and not is_settled and waited_s < DELETE_WAIT_SECONDS:
        text = "Deleted: traffic goes back to the stable revision before anything is removed."
        return stay(s, Reason.DELETED, text, changes=lowered, requeue_after_s=1.0)
    removed: tuple[Action, ...] = tuple(DeleteVariant(rev) for rev in leaving)
    keeps = status.stable if s.spec is None or s.spec.deletion_policy is DeletionPolicy.ORPHAN else ""
    if status.stable and not keeps:
        removed += (DeleteVariant(status.stable),)
    removed += (ReleaseGate(keeps), DeleteRunManifests(), RemoveFinalizer())
    text = f"Deleted: revision {keeps} goes on serving without an owner." if keeps else "Deleted: nothing is left."
    return stay(s, Reason.DELETED, text, changes=lowered, actions=removed, requeue_after_s=WAIT_SECONDS)


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
    if s.status.step.weight > 0 and not plans.usable_pods(s, s.status.candidate, needs_probe=True):
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
    guard_resume,
    guard_paused,
)


# --- a happy rollout, phase by phase ------------------------------------------------------------------------------


def at_rest(s: Snapshot, acts: Acts) -> Outcome:
    """Idle, Completed, RolledBack: one revision serves; begin an attempt when spec asks for another one."""
    status, target = s.status, s.target
    if target is None:
        return stay(s, Reason.INVALID_SPEC, "What spec asks for is not known yet.", requeue_after_s=WAIT_SECONDS)
    if not status.stable:
        labelled = next((f.rev10 for f in s.stored.values() if f.labelled_stable), "")
        if labelled:
            text = f"Status was lost; the stored manifest {labelled} is labelled stable and is taken up again."
            return stay(s, Reason.SYNCED, text, changes={"stable": labelled}, requeue_after_s=AT_ONCE_SECONDS)
    if target.rev10 == status.stable:
        return _in_sync(s)
    retry = acts.first(ActionKind.RETRY)
    is_asked = retry is not None or target.rev10 not in status.rejected
    others = [rev for rev in _leaving(s) if rev != target.rev10]
    if is_asked and others:  # their GPUs are needed, and an attempt looks at two revisions only
        text = f"Revision {target.rev10} waits until the pods of {', '.join(others)} are gone."
        return _tidy(s, Reason.DRAINING, text)
    if retry is not None:
        text = f"{retry.user} asked to weigh {target.rev10} again: {retry.reason or 'no reason given'}."
        return begin(s, target, Reason.NEW_REVISION, text, consumed=(retry,))
    if target.rev10 in status.rejected:
        return _tidy(s, Reason.SPEC_REJECTED, f"Revision {target.rev10} was rolled back; retry it or apply another.")
    if not status.stable:
        text = f"First install of {target.rev10}: nothing to compare with, readiness and hard guards decide."
        return begin(s, target, Reason.FIRST_INSTALL, text)
    if target.rev10 == status.equivalent or (s.diff is not None and not s.diff.effective):
        return _no_change(s, target)
    if s.diff is None:
        return stay(s, Reason.NEW_REVISION, "The manifests are being compared.", requeue_after_s=WAIT_SECONDS)
    if is_paused(s):
        text = f"Revision {target.rev10} waits: the rollout is paused."
        return stay(s, Reason.PAUSED, text, marks={ConditionType.HOLDING: Mark(Reason.PAUSED, text)})
    return begin(s, target, Reason.NEW_REVISION, f"Revision {target.rev10} is weighed against {status.stable}.")


def begin(
    s: Snapshot, target: Frozen, reason: Reason, message: str, consumed: tuple[PersonAction, ...] = ()
) -> Outcome:
    """Start an attempt: a new number, clean clocks, everything that the last attempt left is forgotten."""
    status = s.status
    attempt = max([status.attempt, *(f.stored_attempt for f in s.stored.values())]) + 1
    changes = {
        "attempt": attempt,
        "candidate": target.rev10,
        "step": StepStatus(index=0, name=plans.PREPARE),
        "verdict": None,
        "held_since": None,
        "attempt_started_at": times.to_text(s.now_s),
        "baseline": "FirstInstall" if not status.stable else "",
        "equivalent": "",
        "rejected": tuple(rev for rev in status.rejected if rev != target.rev10),
    }
    return Outcome(Phase.PENDING, reason, message, changes, consumed=consumed, requeue_after_s=AT_ONCE_SECONDS)


def pending(s: Snapshot, acts: Acts) -> Outcome:
    """Both manifests are stored whole before anything moves."""
    status = s.status
    problem = first_problem(s, only_manifest=True)
    if problem is not None:
        return stay(s, problem.reason, problem.message, marks={ConditionType.STALLED: problem})
    if status.stable and status.stable not in s.stored:
        text = f"The stored manifest of the stable revision {status.stable} is gone, so nothing could be put back."
        mark = Mark(Reason.PREFLIGHT_FAILED, text)
        return stay(s, mark.reason, text, marks={ConditionType.STALLED: mark})
    kept = s.stored.get(status.candidate)
    if kept is None or kept.stored_attempt != status.attempt:
        store = (StoreRunManifest(s.target, status.attempt),) if s.target is not None else ()
        text = "The complete manifest is being stored."
        return stay(s, Reason.NEW_REVISION, text, actions=store, requeue_after_s=AT_ONCE_SECONDS)
    if status.baseline:
        return move(s, Phase.DIFFED, Reason.FIRST_INSTALL, "First install: there is nothing to compare with.")
    changes = s.diff.sentences if s.diff else ()
    text = f"{len(changes)} effective change(s): " + " ".join(changes[:5]) if changes else "The manifests differ."
    return move(s, Phase.DIFFED, Reason.NEW_REVISION, text)


def diffed(s: Snapshot, acts: Acts) -> Outcome:
    """Old and new are frozen and compared."""
    return move(s, Phase.PREFLIGHT, Reason.NEW_REVISION, s.status.message)


def preflight(s: Snapshot, acts: Acts) -> Outcome:
    """Everything that can be checked without a GPU; a problem waits here until it is mended."""
    status = s.status
    problem = first_problem(s)
    if problem is not None:
        kind = ConditionType.HOLDING if problem.reason in _PREFLIGHT_WAITS else ConditionType.STALLED
        wait_s = WAIT_SECONDS if kind is ConditionType.HOLDING else STEADY_SECONDS
        return stay(s, problem.reason, problem.message, marks={kind: problem}, requeue_after_s=wait_s)
    if not status.baseline and plans.has_no_baseline(s):
        return _no_baseline(s, acts)
    if not status.baseline and s.judge.setup_attempt != status.attempt:
        text = "The judge is being set up from the history of the stable revision."
        setup = (PutSetup(status.attempt),)
        return stay(s, Reason.WAITING_FOR_EVIDENCE, text, actions=setup, requeue_after_s=WAIT_SECONDS)
    steps = plans.attempt_steps(s)
    is_shadow = bool(steps) and steps[0].shadow is not None and not status.baseline
    step = StepStatus(index=0, name=steps[0].name if is_shadow else plans.PREPARE)
    step = step.model_copy(update={"waiting_since": times.to_text(s.now_s)})
    return move(s, Phase.SHADOW, Reason.STEP_STARTED, "Candidate pods come up; users see nothing of them.", step=step)


def shadow(s: Snapshot, acts: Acts) -> Outcome:
    """Candidate pods come up and get copies of live requests; users never see their answers."""
    weight = 100 if s.status.baseline else 0
    waiting = await_pods(s, weight)
    if waiting is not None:
        return waiting
    if s.status.baseline:
        return enter_step(s, len(plans.attempt_steps(s)))
    if s.status.step.name == plans.PREPARE:
        blind = blind_of(s)  # the first live share needs no proof, but somebody must be watching
        return hold(s, blind.reason, blind.message) if blind is not None else advance(s, acts)
    return weigh(s, acts)


def canary_or_ramp(s: Snapshot, acts: Acts) -> Outcome:
    """A live share is judged at the load that a replica will carry at 100 %."""
    return weigh(s, acts)


def weigh(s: Snapshot, acts: Acts) -> Outcome:
    """The step in force: wait until the gates hold it, until it is proven, then advance."""
    starting = await_start(s)
    if starting is not None:
        return starting
    step = plans.current_step(s)
    if step is not None and step.pause is not None:
        waiting = await_pause(s)
        if waiting is not None:
            return waiting
        if plans.judged_step(s.status, plans.attempt_steps(s)) == s.status.step.index:
            return advance(s, acts)  # a pause before any judged step has nothing to prove
    return await_pass(s) or advance(s, acts)


def advance(s: Snapshot, acts: Acts) -> Outcome:
    """The step in force is proven: approval for the next one, pods for it, then its weight."""
    steps, index = plans.attempt_steps(s), plans.next_index(s)
    used: tuple[PersonAction, ...] = ()
    if plans.is_guarded(s):
        used = acts.of(ActionKind.APPROVE)
        waiting = await_approval(s, used, steps[index].name)
        if waiting is not None:
            return waiting
    weight = s.status.step.weight if index < len(steps) else 100
    if index < len(steps) and steps[index].weight is not None:
        weight = steps[index].weight or 0
    waiting = await_pods(s, weight)
    if waiting is not None:
        return waiting
    return enter_step(s, index, consumed=used)


def enter_step(s: Snapshot, index: int, consumed: tuple[PersonAction, ...] = ()) -> Outcome:
    """Enter a step. THE ONLY PLACE WHERE status.step.weight RISES.

    Its callers have seen a PASS of the step before (or a first install), the approvals, and the pods.
    """
    steps = plans.attempt_steps(s)
    if index >= len(steps):
        step = StepStatus(index=len(steps), name="promoted", weight=100)
        phase, text = Phase.PROMOTED, f"All traffic moves to {s.status.candidate}; nothing is removed yet."
    else:
        chosen = steps[index]
        weight = s.status.step.weight if chosen.weight is None else chosen.weight
        step = StepStatus(index=index, name=chosen.name, weight=weight)
        phase = Phase.CANARY if chosen.canary else Phase.RAMP if chosen.ramp else s.status.phase
        text = f"Step {chosen.name}: {weight} % of live requests go to {s.status.candidate}."
    changes = {"held_since": None}
    return move(s, phase, Reason.STEP_STARTED, text, step=step, changes=changes, consumed=consumed)


def promoted(s: Snapshot, acts: Acts) -> Outcome:
    """All live traffic moved; wait until every gate holds it."""
    if not s.data_plane.is_in_force:
        return await_data_plane(s)
    step = s.status.step.model_copy(update={"name": "bake", "started_at": times.to_text(s.now_s)})
    text = f"{s.status.candidate} serves all traffic; {s.status.stable or 'nothing'} stays warm."
    return move(s, Phase.BAKE, Reason.STEP_STARTED, text, step=step)


def bake(s: Snapshot, acts: Acts) -> Outcome:
    """The old variant stays warm and gets reversed copies; time, and no open question, end it."""
    if s.status.baseline == "FirstInstall":
        return complete(s)
    starting = await_start(s)
    if starting is not None:
        return starting
    length_s = s.spec.bake_seconds if s.spec else 0.0
    left_s = length_s - times.since(s.status.step.started_at, s.now_s)
    problem = None if s.status.baseline else hold_of(s)
    if problem is not None:
        return hold(s, problem.reason, problem.message)
    if left_s > 0:
        text = f"Baking: {s.status.stable} stays warm for another {times.span_text(left_s)}."
        mark = {ConditionType.GATED: Mark(Reason.WAITING_FOR_EVIDENCE, text)}
        changes = {"held_since": None}
        return stay(s, Reason.WAITING_FOR_EVIDENCE, text, marks=mark, changes=changes, requeue_after_s=min(5.0, left_s))
    return complete(s)


def complete(s: Snapshot) -> Outcome:
    """The candidate is stable from here on."""
    status = s.status
    entry = HistoryEntry(
        attempt=status.attempt,
        revision=status.candidate,
        result=Phase.COMPLETED,
        reason=Reason.ATTEMPT_COMPLETED.value,
        finished_at=times.to_text(s.now_s),
    )
    changes = {
        "stable": status.candidate,
        "candidate": "",
        "baseline": "",
        "held_since": None,
        "history": (entry, *status.history)[:HISTORY_ENTRIES],
    }
    step = StepStatus(index=status.step.index, name="completed", weight=0)
    text = f"Revision {status.candidate} is stable."
    return move(s, Phase.COMPLETED, Reason.ATTEMPT_COMPLETED, text, step=step, changes=changes)


def _no_baseline(s: Snapshot, acts: Acts) -> Outcome:
    """Stable serves nothing: only a person may let the candidate through, judged by readiness alone."""
    status = s.status
    approvals = acts.of(ActionKind.APPROVE)
    waiting = await_approval(s, approvals, f"{status.candidate} without a baseline")
    if waiting is None:
        text = "A person approved a candidate without a baseline: readiness and hard guards decide."
        forced = {"baseline": "Forced"}
        return stay(s, Reason.NO_BASELINE, text, changes=forced, consumed=approvals, requeue_after_s=AT_ONCE_SECONDS)
    text = (
        f"No valid baseline: {status.stable} has no ready pod, so nothing can be compared. Mend it, or approve "
        f"{status.candidate} by readiness alone; a rollback would bring back what does not serve."
    )
    proof = VerdictStatus(message=text, evidence=binding_evidence(s), updated_at=times.to_text(s.now_s))
    is_told = status.verdict is not None and status.verdict.message == text
    changes: dict[str, Any] = {"verdict": status.verdict if is_told else proof}
    marks = {ConditionType.HOLDING: Mark(Reason.NO_BASELINE, text), **waiting.marks}
    deadline_s = parse_duration_seconds(s.spec.capacity.ready_deadline) if s.spec else 0.0
    if times.since(status.phase_started_at, s.now_s) > deadline_s:
        marks[ConditionType.STALLED] = Mark(Reason.NO_BASELINE, text)
    return stay(s, Reason.NO_BASELINE, text, changes=changes, marks=marks, requeue_after_s=5.0)


# --- at rest: keeping things tidy ---------------------------------------------------------------------------------


def _no_change(s: Snapshot, target: Frozen) -> Outcome:
    text = f"{target.rev10} changes nothing effective: nothing is rolled, {s.status.stable} goes on serving."
    is_new = s.status.equivalent != target.rev10
    actions: tuple[Action, ...] = (EmitEvent(Reason.NO_EFFECTIVE_CHANGE, text),) if is_new else ()
    return _tidy(s, Reason.NO_EFFECTIVE_CHANGE, text, {"equivalent": target.rev10}, actions)


def _in_sync(s: Snapshot) -> Outcome:
    stable = s.status.stable
    message = s.status.message if s.status.phase is not Phase.IDLE else f"Revision {stable} serves."
    return _tidy(s, Reason.SYNCED, message or f"Revision {stable} serves.", {"equivalent": ""})


def _tidy(
    s: Snapshot,
    reason: Reason,
    message: str,
    changes: Mapping[str, Any] | None = None,
    actions: tuple[Action, ...] = (),
) -> Outcome:
    """At rest: remove variants that nothing points to any more, and manifests that history forgot."""
    plane, leaving = s.data_plane, _leaving(s)
    is_alone = plane.published is not None and plane.published.candidate is None and plane.is_in_force
    is_alone = is_alone or not plane.gates
    gone = tuple(DeleteVariant(rev) for rev in leaving if is_alone and is_drained(s, rev))
    wait_s = WAIT_SECONDS if leaving else STEADY_SECONDS
    pruned = _prunable(s)
    prune = (PruneRunManifests(pruned),) if pruned else ()
    return stay(s, reason, message, changes=changes, actions=(*actions, *gone, *prune), requeue_after_s=wait_s)


def _leaving(s: Snapshot) -> list[str]:
    return sorted(rev for rev in s.variants if rev != s.status.stable)


def _prunable(s: Snapshot) -> tuple[str, ...]:
    limit = s.spec.revision_history_limit if s.spec else 10
    keep = {s.status.stable, s.status.candidate, s.target.rev10 if s.target else ""} | set(s.variants)
    old = sorted((f for f in s.stored.values() if f.rev10 not in keep), key=lambda f: -f.stored_attempt)
    return tuple(f.rev10 for f in old[limit:])


# --- failure phases -----------------------------------------------------------------------------------------------


def start_rollback(
    s: Snapshot, reason: Reason, message: str, to: str = "", consumed: tuple[PersonAction, ...] = ()
) -> Outcome:
    """Begin a rollback. THE ONLY PLACE WHERE ONE STARTS.

    In mid-attempt traffic leaves the candidate for stable. After an attempt (`to`: the stored revision to put back,
    by default the one before) the serving revision becomes the candidate again, at the weight that it has.
    """
    status = s.status
    changes: dict[str, Any] = {"held_since": None}
    step = status.step.model_copy(update={"name": "rollback", "waiting_since": None, "started_at": None})
    if status.phase in TERMINAL:
        changes |= {"stable": to or plans.previous_stable(s), "candidate": status.stable, "baseline": ""}
        step = step.model_copy(update={"weight": 100})  # what the serving revision has already: nothing rises
    else:
        weight = plans.rollback_weight(s, at_once=reason in _AT_ONCE)
        step = step.model_copy(update={"weight": weight})
    if s.judge.verdict is not None and reason is Reason.GATE_FAILED:
        changes["verdict"] = make_verdict(s, s.status)
    known_bad = " The stored manifest was not serving when the attempt began." if status.baseline == "Forced" else ""
    return move(s, Phase.ROLLING_BACK, reason, message + known_bad, step=step, changes=changes, consumed=consumed)


def rolling_back(s: Snapshot, acts: Acts) -> Outcome:
    """Weights first, verified by observed traffic; then live streams end; then the candidate goes; then what serves is
    compared. `step.started_at` is when every gate had acknowledged the flip."""
    status, plane = s.status, s.data_plane
    weight = plans.rollback_weight(s, at_once=status.reason in _AT_ONCE)
    step = status.step.model_copy(update={"weight": min(weight, status.step.weight)})
    if step.weight > 0:
        text = f"{status.stable} has pods for {100 - step.weight} % of the traffic; the rest follows as pods get ready."
        return stay(s, Reason.WAITING_FOR_PODS, text, changes={"step": step}, requeue_after_s=WAIT_SECONDS)
    is_flipped = plane.published is not None and plane.published.stage is Stage.ROLLBACK and plane.published.weight == 0
    if plane.gates and not (is_flipped and plane.is_in_force):
        text = "Traffic is going back; not every gate has acknowledged it."
        return stay(s, Reason.WAITING_FOR_DATA_PLANE, text, changes={"step": step}, requeue_after_s=1.0)
    if step.started_at is None:
        step = step.model_copy(update={"started_at": times.to_text(s.now_s)})
        text = "Every gate has acknowledged the flip."
        return stay(s, Reason.DRAINING, text, changes={"step": step}, requeue_after_s=AT_ONCE_SECONDS)
    flip = verify_flip(s)
    if status.candidate in s.variants and not flip.is_verified:
        reason = Reason.WAITING_FOR_DATA_PLANE
        return stay(s, reason, flip.message, changes={"step": step}, requeue_after_s=WAIT_SECONDS)
    if status.candidate in s.variants and not is_drained(s, status.candidate):
        text = f"{flip.message} Live streams on the candidate end first."
        return stay(s, Reason.DRAINING, text, changes={"step": step}, requeue_after_s=WAIT_SECONDS)
    if status.candidate in s.variants:
        text = f"{flip.message} The candidate is being removed."
        gone = (DeleteVariant(status.candidate),)
        return stay(s, Reason.DRAINING, text, changes={"step": step}, actions=gone, requeue_after_s=WAIT_SECONDS)
    stable = s.variant(status.stable)
    if status.stable and stable.drift and status.stable in s.stored:
        text = f"What serves differs from the stored manifest ({stable.drift}); it is put back whole."
        restore = (ApplyVariant(s.stored[status.stable], plans.full_replicas(s, status.stable), restore=True),)
        return stay(s, Reason.BASELINE_EDITED, text, actions=restore, requeue_after_s=WAIT_SECONDS)
    return _rolled_back(s)


def _rolled_back(s: Snapshot) -> Outcome:
    status = s.status
    reason = Reason(status.reason) if status.reason else Reason.ROLLED_BACK
    rejected = status.rejected
    if reason not in _KEEPS_REVISION_FREE and status.candidate not in rejected:
        rejected = (*rejected, status.candidate)[-20:]
    entry = HistoryEntry(
        attempt=status.attempt,
        revision=status.candidate,
        result=Phase.ROLLED_BACK,
        reason=reason.value,
        finished_at=times.to_text(s.now_s),
    )
    equal = f"Revision {status.stable} serves, equal to its stored manifest." if status.stable else "Nothing serves."
    changes = {
        "candidate": "",
        "baseline": "",
        "rejected": rejected,
        "history": (entry, *status.history)[:HISTORY_ENTRIES],
    }
    step = StepStatus(index=status.step.index, name="rolled back", weight=0)
    return move(s, Phase.ROLLED_BACK, reason, equal, step=step, changes=changes)


PHASES: Mapping[Phase, PhaseFunction] = {
    Phase.IDLE: at_rest,
    Phase.PENDING: pending,
    Phase.DIFFED: diffed,
    Phase.PREFLIGHT: preflight,
    Phase.SHADOW: shadow,
    Phase.CANARY: canary_or_ramp,
    Phase.RAMP: canary_or_ramp,
    Phase.PROMOTED: promoted,
    Phase.BAKE: bake,
    Phase.COMPLETED: at_rest,
    Phase.ROLLING_BACK: rolling_back,
    Phase.ROLLED_BACK: at_rest,
}
