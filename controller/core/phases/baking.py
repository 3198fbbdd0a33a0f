"""Promoted, Bake: the candidate serves everything while the old variant stays warm; then it is stable.

Called by machine.py. Pure.
"""

from controller.core import times
from controller.core.outcome import Outcome, hold, move, stay
from controller.core.people import Acts
from controller.core.snapshot import Snapshot
from controller.core.status import Mark, make_history
from controller.core.waits import await_data_plane, await_start, hold_of
from crds.v1alpha1.conditions import ConditionType, Phase, Reason
from crds.v1alpha1.rollout import StepStatus


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
    changes = {
        "stable": status.candidate,
        "candidate": "",
        "baseline": "",
        "held_since": None,
        "history": make_history(s, Phase.COMPLETED, Reason.ATTEMPT_COMPLETED),
    }
    step = StepStatus(index=status.step.index, name="completed", weight=0)
    text = f"Revision {status.candidate} is stable."
    return move(s, Phase.COMPLETED, Reason.ATTEMPT_COMPLETED, text, step=step, changes=changes)
