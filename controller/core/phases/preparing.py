"""Pending, Diffed, Preflight: what happens before any GPU is touched.

Called by machine.py. Pure.
"""

from typing import Any

from controller.core import plans, times
from controller.core.actions import EmitEvent, PutSetup, StoreRunManifest, TryVariant
from controller.core.outcome import AT_ONCE_SECONDS, STEADY_SECONDS, WAIT_SECONDS, Outcome, move, stay
from controller.core.people import Acts, binding_evidence
from controller.core.preflight import first_problem
from controller.core.snapshot import Snapshot
from controller.core.status import Mark
from controller.core.waits import await_approval
from crds.v1alpha1.action import ActionKind
from crds.v1alpha1.common import parse_duration_seconds
from crds.v1alpha1.conditions import ConditionType, Phase, Reason
from crds.v1alpha1.rollout import StepStatus, VerdictStatus

_PREFLIGHT_WAITS = frozenset(
    {
        Reason.WAITING_FOR_DATA_PLANE,
        Reason.RECORDER_UNREACHABLE,
        Reason.RECORDER_INCOMPATIBLE,
        Reason.WAITING_FOR_PODS,
    }
)
"""Problems of preflight that mend themselves; all others need a person."""


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
    text = "What can be checked without a GPU is being checked."
    return move(s, Phase.PREFLIGHT, Reason.NEW_REVISION, text)


def preflight(s: Snapshot, acts: Acts) -> Outcome:
    """Everything that can be checked without a GPU; a problem waits here until it is mended."""
    status = s.status
    problem = first_problem(s)
    if problem is not None:
        kind = ConditionType.HOLDING if problem.reason in _PREFLIGHT_WAITS else ConditionType.STALLED
        wait_s = WAIT_SECONDS if kind is ConditionType.HOLDING else STEADY_SECONDS
        return stay(s, problem.reason, problem.message, marks={kind: problem}, requeue_after_s=wait_s)
    tried = _tried(s)
    if tried is not None:
        return tried
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
    text = "Candidate pods come up; users see nothing of them."
    unproven = s.trial.unproven if s.trial is not None else ""
    told = f"The candidate's objects were not tried before Shadow: {unproven}"
    warning = (EmitEvent(Reason.DRY_RUN_UNPROVEN, told, warning=True),) if unproven else ()
    return move(s, Phase.SHADOW, Reason.STEP_STARTED, text, step=step, actions=warning)


def _tried(s: Snapshot) -> Outcome | None:
    """A dry run of the candidate's objects; None when the API server would take them, or cannot be asked."""
    candidate, trial = s.frozen(s.status.candidate), s.trial
    if candidate is None:
        return None
    ask = (TryVariant(candidate, s.status.attempt),)
    if trial is None:
        text = "The API server is asked whether it takes the candidate's objects."
        return stay(s, Reason.NEW_REVISION, text, actions=ask, requeue_after_s=AT_ONCE_SECONDS)
    if not trial.refused:
        return None
    text = f"The API server would not take the candidate: {trial.refused} Nothing was moved; it is asked again."
    mark = Mark(Reason.DRY_RUN_REFUSED, text)
    is_due = s.now_s - trial.at_s >= STEADY_SECONDS
    return stay(s, mark.reason, text, marks={ConditionType.STALLED: mark}, actions=ask if is_due else ())


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
