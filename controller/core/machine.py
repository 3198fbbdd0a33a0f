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

* `status.step.weight` is the highest weight that the gates may hold. `phases/enter_step.py` is the only place where it
  rises.
* `phases/rollback.py`, `start_rollback`, is the only place where a rollback starts. Rollbacks need neither the judge
  nor the store.
* What is unknown holds. Moving forward needs a fresh PASS of this step; nothing is inferred from silence.

A rollback after completion reuses the same phase: `start_rollback` gives the revisions back the names that they had
before the promotion (the one that serves is the candidate again, at the weight that it has), and RollingBack takes
the weight down as the restored pods become ready.

This file holds the table and the order of things; guards.py what comes before every phase, phases/ what each phase
does, in the order of a happy rollout: at_rest.py, preparing.py, weighing.py (enter_step.py), baking.py, rollback.py.

Called by controller/reconcile.py. Knows no client, no clock, no randomness.
"""

from collections.abc import Callable, Mapping

from controller.core.actions import Decision
from controller.core.finish import finish
from controller.core.guards import GUARDS
from controller.core.outcome import Outcome
from controller.core.people import Acts, sort_acts
from controller.core.phases.at_rest import at_rest
from controller.core.phases.baking import bake, promoted
from controller.core.phases.preparing import diffed, pending, preflight
from controller.core.phases.rollback import rolling_back
from controller.core.phases.weighing import canary_or_ramp, shadow
from controller.core.snapshot import Snapshot
from crds.v1alpha1.conditions import Phase

PhaseFunction = Callable[[Snapshot, Acts], Outcome]

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
"""What happens in each phase, when no guard answers."""


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
