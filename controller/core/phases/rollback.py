"""Where a rollback starts and how it goes: `start_rollback` is THE ONLY PLACE WHERE ONE STARTS, RollingBack ends it.

Needs neither the judge nor the store. Called by guards.py (which say why) and by machine.py in RollingBack. Pure.
"""

from typing import Any

from controller.core import plans, times
from controller.core.actions import ApplyVariant, DeleteVariant
from controller.core.outcome import AT_ONCE_SECONDS, WAIT_SECONDS, Outcome, move, stay
from controller.core.people import Acts
from controller.core.snapshot import PersonAction, Snapshot
from controller.core.status import make_history, make_verdict
from controller.core.waits import is_drained, verify_flip
from crds.v1alpha1.conditions import TERMINAL, Phase, Reason
from crds.v1alpha1.rollout import StepStatus
from shadow.plan import Stage

_KEEPS_REVISION_FREE = frozenset({Reason.SUPERSEDED, Reason.STABLE_REAPPLIED, Reason.DELETED})
"""Rollbacks that say nothing about the candidate: its revision may be weighed again without a retry."""

_AT_ONCE = frozenset({Reason.CANDIDATE_CRASHED, Reason.CANDIDATE_HUNG})
"""Rollbacks of a dying candidate: traffic leaves it whatever stable has."""


def start_rollback(
    s: Snapshot, reason: Reason, message: str, to: str = "", consumed: tuple[PersonAction, ...] = ()
) -> Outcome:
    """Begin a rollback.

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
    """Weights first, verified by observed traffic; then the candidate's streams end; then its pods go.

    Last, what serves is compared with its stored manifest. `step.started_at` is when every gate had acknowledged the
    flip.
    """
    weight = plans.rollback_weight(s, at_once=s.status.reason in _AT_ONCE)
    step = s.status.step.model_copy(update={"weight": min(weight, s.status.step.weight)})
    return _await_traffic(s, step) or _await_removal(s, step) or _await_stored(s) or _rolled_back(s)


def _await_traffic(s: Snapshot, step: StepStatus) -> Outcome | None:
    """Until the candidate gets no live request by any gate's word."""
    plane = s.data_plane
    if step.weight > 0:
        has = 100 - step.weight
        text = f"{s.status.stable} has pods for {has} % of the traffic; the rest follows as pods get ready."
        return stay(s, Reason.WAITING_FOR_PODS, text, changes={"step": step}, requeue_after_s=WAIT_SECONDS)
    is_flipped = plane.published is not None and plane.published.stage is Stage.ROLLBACK and plane.published.weight == 0
    if plane.gates and not (is_flipped and plane.is_in_force):
        text = "Traffic is going back; not every gate has acknowledged it."
        return stay(s, Reason.WAITING_FOR_DATA_PLANE, text, changes={"step": step}, requeue_after_s=1.0)
    if step.started_at is None:
        step = step.model_copy(update={"started_at": times.to_text(s.now_s)})
        text = "Every gate has acknowledged the flip."
        return stay(s, Reason.DRAINING, text, changes={"step": step}, requeue_after_s=AT_ONCE_SECONDS)
    return None


def _await_removal(s: Snapshot, step: StepStatus) -> Outcome | None:
    """Until observed traffic confirms the flip, the candidate's live streams have ended and its pods are gone."""
    candidate = s.status.candidate
    if candidate not in s.variants:
        return None
    flip = verify_flip(s)
    changes = {"step": step}
    if not flip.is_verified:
        return stay(s, Reason.WAITING_FOR_DATA_PLANE, flip.message, changes=changes, requeue_after_s=WAIT_SECONDS)
    if not is_drained(s, candidate):
        text = f"{flip.message} Live streams on the candidate end first."
        return stay(s, Reason.DRAINING, text, changes=changes, requeue_after_s=WAIT_SECONDS)
    text = f"{flip.message} The candidate is being removed."
    gone = (DeleteVariant(candidate),)
    return stay(s, Reason.DRAINING, text, changes=changes, actions=gone, requeue_after_s=WAIT_SECONDS)


def _await_stored(s: Snapshot) -> Outcome | None:
    """Until what serves equals its stored manifest."""
    stable = s.status.stable
    drift = s.variant(stable).drift
    if not stable or not drift or stable not in s.stored:
        return None
    text = f"What serves differs from the stored manifest ({drift}); it is put back whole."
    restore = (ApplyVariant(s.stored[stable], plans.full_replicas(s, stable), restore=True),)
    return stay(s, Reason.BASELINE_EDITED, text, actions=restore, requeue_after_s=WAIT_SECONDS)


def _rolled_back(s: Snapshot) -> Outcome:
    """The rollback is over: its revision is rejected, unless the rollback said nothing about it."""
    status = s.status
    reason = Reason(status.reason) if status.reason else Reason.ROLLED_BACK
    rejected = status.rejected
    if reason not in _KEEPS_REVISION_FREE and status.candidate not in rejected:
        rejected = (*rejected, status.candidate)[-20:]
    equal = f"Revision {status.stable} serves, equal to its stored manifest." if status.stable else "Nothing serves."
    changes = {
        "candidate": "",
        "baseline": "",
        "rejected": rejected,
        "history": make_history(s, Phase.ROLLED_BACK, reason),
    }
    step = StepStatus(index=status.step.index, name="rolled back", weight=0)
    return move(s, Phase.ROLLED_BACK, reason, equal, step=step, changes=changes)
