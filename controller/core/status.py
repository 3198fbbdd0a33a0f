"""Conditions of an InferenceRollout: what is true now, in the shapes that kubectl, kstatus and GitOps tools read.

Called by finish.py at the end of a decision. A condition's transition time moves only when its status flips; all but
the kstatus ones start anew with an attempt. Pure.
"""

from collections.abc import Mapping
from typing import NamedTuple

from controller.core import plans, times
from controller.core.snapshot import Snapshot
from crds.v1alpha1.conditions import TERMINAL, ConditionType, Phase, Reason
from crds.v1alpha1.rollout import Condition, HistoryEntry, InferenceRolloutStatus, VerdictStatus, WorstStratum

VERDICT_PERIOD_SECONDS = 30.0
HISTORY_ENTRIES = 10
_KSTATUS = frozenset({ConditionType.READY, ConditionType.RECONCILING, ConditionType.STALLED})
_NEEDS_A_PERSON = frozenset(
    {
        Reason.INVALID_SPEC,
        Reason.POLICY_MISSING,
        Reason.PREFLIGHT_FAILED,
        Reason.MANIFEST_TOO_LARGE,
        Reason.MISSING_REFERENCE,
        Reason.SCHEMA_TOO_OLD,
        Reason.ROUTE_CONFLICT,
        Reason.SPEC_REJECTED,
        Reason.MAX_HOLD_EXCEEDED,
    }
)


class Mark(NamedTuple):
    """A condition that is true now."""

    reason: Reason
    message: str


class State(NamedTuple):
    """Status, reason and message of a condition."""

    status: str
    reason: Reason
    message: str


Marks = Mapping[ConditionType, Mark]


def make_conditions(s: Snapshot, after: InferenceRolloutStatus, marks: Marks) -> tuple[Condition, ...]:
    """All conditions under the new status; `marks` are those that the decision found true."""
    is_new_attempt = after.attempt != s.status.attempt
    old = {c.type: c for c in s.status.conditions if not is_new_attempt or c.type in _KSTATUS}
    states = _states(s, after, marks)
    return tuple(_condition(s, kind, state, old.get(kind.value)) for kind, state in states.items())


def _worst(tenant: str, bucket: str, metric: str) -> WorstStratum:
    return WorstStratum(tenant=tenant, bucket=bucket, metric=metric, label=f"{tenant}/{bucket}/{metric}")


def make_verdict(s: Snapshot, after: InferenceRolloutStatus) -> VerdictStatus | None:
    """The judge's word for status: at once when it changes, else at most every 30 seconds."""
    verdict, old = s.judge.verdict, s.status.verdict
    if after.attempt != s.status.attempt or after.phase in TERMINAL or after.phase is Phase.ROLLING_BACK:
        return after.verdict
    if verdict is None:
        return after.verdict
    worst = verdict.worst
    new = VerdictStatus(
        result=verdict.result.value,
        worst=_worst(worst.tenant, worst.bucket, worst.metric) if worst else None,
        requests_needed=verdict.requests_needed,
        message=verdict.sentences[0] if verdict.sentences else "",
        evidence=s.judge.evidence or None,
        updated_at=times.to_text(s.now_s),
    )
    if old is not None and (old.result, old.worst, old.evidence) == (new.result, new.worst, new.evidence):
        is_due = times.since(old.updated_at, s.now_s) >= VERDICT_PERIOD_SECONDS
        return new if is_due else old
    return new


def make_history(s: Snapshot, result: Phase, reason: Reason) -> tuple[HistoryEntry, ...]:
    """The rollout's history with the attempt that ends now in front."""
    status = s.status
    entry = HistoryEntry(
        attempt=status.attempt,
        revision=status.candidate,
        result=result,
        reason=reason.value,
        finished_at=times.to_text(s.now_s),
    )
    return (entry, *status.history)[:HISTORY_ENTRIES]


def _condition(s: Snapshot, kind: ConditionType, state: State, old: Condition | None) -> Condition:
    flipped = old is None or old.status != state.status
    moved = times.to_short_text(s.now_s) if flipped or old is None else old.last_transition_time
    return Condition(
        type=kind.value,
        status=state.status,
        reason=state.reason.value,
        message=state.message,
        last_transition_time=moved,
        observed_generation=s.generation,
    )


def _states(s: Snapshot, after: InferenceRolloutStatus, marks: Marks) -> dict[ConditionType, State]:
    calm = State("False", Reason.AS_EXPECTED, "")
    states = dict.fromkeys(ConditionType, calm)
    states |= {kind: State("True", mark.reason, mark.message) for kind, mark in marks.items()}
    states[ConditionType.IN_SYNC] = _in_sync(s, after)
    states |= _outcome_states(after)
    states |= _side_states(s, after)
    states |= _kstatus_states(s, after, states)
    return states


def _in_sync(s: Snapshot, after: InferenceRolloutStatus) -> State:
    if s.spec_error or s.target is None:
        return State("Unknown", Reason.INVALID_SPEC, s.spec_error or "What spec asks for is not known yet.")
    wanted = s.target.rev10
    if after.phase not in TERMINAL:
        return State("False", Reason.ATTEMPT_RUNNING, f"Revision {after.candidate} is being weighed.")
    if wanted == after.stable:
        return State("True", Reason.SYNCED, f"Revision {wanted} serves.")
    if wanted == after.equivalent:
        text = f"Revision {wanted} changes nothing effective, so {after.stable} goes on serving."
        return State("True", Reason.NO_EFFECTIVE_CHANGE, text)
    if wanted in after.rejected:
        text = f"spec asks for {wanted}, which was rolled back; {after.stable or 'nothing'} serves. "
        return State("False", Reason.SPEC_REJECTED, text + "Apply another revision, or retry this one.")
    return State("False", Reason.NEW_REVISION, f"spec asks for {wanted}; {after.stable or 'nothing'} serves.")


def _outcome_states(after: InferenceRolloutStatus) -> dict[ConditionType, State]:
    reason = Reason(after.reason) if after.reason else Reason.AS_EXPECTED
    running = State("False", Reason.ATTEMPT_RUNNING, f"Attempt {after.attempt} is running.")
    states = {}
    for kind, phase in ((ConditionType.COMPLETED, Phase.COMPLETED), (ConditionType.ROLLED_BACK, Phase.ROLLED_BACK)):
        if after.phase is phase:
            states[kind] = State("True", reason, after.message)
        elif after.phase not in TERMINAL:
            states[kind] = running
    is_running = after.phase not in TERMINAL
    states[ConditionType.PROGRESSING] = State("True" if is_running else "False", reason, after.message)
    return states


def _side_states(s: Snapshot, after: InferenceRolloutStatus) -> dict[ConditionType, State]:
    states = {}
    drift = s.variant(after.stable).drift if after.stable else ""
    if drift:
        states[ConditionType.BASELINE_CHANGED] = State("True", Reason.BASELINE_EDITED, drift)
    is_running = after.phase not in TERMINAL
    if is_running and s.attempt_policy is not None and s.policy is not None and s.policy != s.attempt_policy:
        text = "The policy was edited; this attempt goes on with the one that it began with."
        states[ConditionType.POLICY_CHANGED] = State("True", Reason.POLICY_EDITED, text)
    plane = s.data_plane
    text = f"{plane.connected} of {len(plane.gates)} gates are connected."
    synced = State("True", Reason.SYNCED, text) if plane.is_in_force else None
    states[ConditionType.DATA_PLANE_SYNCED] = synced or State("False", Reason.WAITING_FOR_DATA_PLANE, text)
    if not s.store_ok:
        text = "The database refuses writes; decisions go on and are marked, history shows a gap."
        states[ConditionType.EVIDENCE_NOT_STORED] = State("True", Reason.EVIDENCE_NOT_STORED, text)
    return states


def _kstatus_states(
    s: Snapshot, after: InferenceRolloutStatus, states: Mapping[ConditionType, State]
) -> dict[ConditionType, State]:
    reason = Reason(after.reason) if after.reason else Reason.AS_EXPECTED
    stalled = states[ConditionType.STALLED]
    in_sync = states[ConditionType.IN_SYNC]
    if stalled.status != "True" and in_sync.reason in _NEEDS_A_PERSON:
        stalled = State("True", in_sync.reason, in_sync.message)
    holding = states[ConditionType.HOLDING]
    if stalled.status != "True" and holding.status == "True" and holding.reason in _NEEDS_A_PERSON:
        stalled = State("True", holding.reason, holding.message)
    is_moving = after.phase not in TERMINAL
    unready = _unready(s, after) if in_sync.status == "True" else in_sync.message
    ready = State("False", in_sync.reason, unready) if unready else State("True", Reason.SYNCED, in_sync.message)
    if unready and in_sync.status == "True":
        ready = State("False", Reason.WAITING_FOR_PODS, unready)
    is_reconciling = is_moving or (bool(unready) and stalled.status != "True")
    return {
        ConditionType.READY: ready,
        ConditionType.RECONCILING: State("True" if is_reconciling else "False", reason, after.message),
        ConditionType.STALLED: stalled,
    }


def _unready(s: Snapshot, after: InferenceRolloutStatus) -> str:
    """Why what serves is not healthy; "" while it is."""
    wants = plans.full_replicas(s, after.stable)
    pods = s.variant(after.stable).pods
    for role, count in wants.items():
        ready = sum(pod.role == role and pod.ready and not pod.terminating for pod in pods)
        if ready < count:
            return f"{ready} of {count} {role} pods of {after.stable} are ready."
    return ""
