"""THE ONLY PLACE WHERE status.step.weight RISES, and with it the share of live requests that a candidate may get.

Called by weighing.py. Whoever calls has seen a PASS of the step before (or a first install), the approvals and the
pods. Pure.
"""

from controller.core import plans
from controller.core.outcome import Outcome, move
from controller.core.snapshot import PersonAction, Snapshot
from crds.v1alpha1.conditions import Phase, Reason
from crds.v1alpha1.rollout import StepStatus


def enter_step(s: Snapshot, index: int, consumed: tuple[PersonAction, ...] = ()) -> Outcome:
    """Enter a step, or promote after the last one."""
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
