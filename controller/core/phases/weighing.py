"""Shadow, Canary, Ramp: the step in force is held until it is proven, then the next one is entered.

Called by machine.py. Decides when to move on; enter_step.py alone says to which weight. Pure.
"""

from controller.core import plans
from controller.core.outcome import Outcome, hold
from controller.core.people import Acts
from controller.core.phases.enter_step import enter_step
from controller.core.snapshot import PersonAction, Snapshot
from controller.core.waits import await_approval, await_pass, await_pause, await_pods, await_start, blind_of
from crds.v1alpha1.action import ActionKind


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
