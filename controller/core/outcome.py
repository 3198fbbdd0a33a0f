"""What a guard or a phase function answers, and the small words to say it.

Called by guards.py, waits.py and phases/. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.core import times
from controller.core.actions import Action
from controller.core.snapshot import PersonAction, Snapshot
from controller.core.status import Mark
from crds.v1alpha1.common import parse_duration_seconds
from crds.v1alpha1.conditions import TERMINAL, ConditionType, Phase, Reason
from crds.v1alpha1.rollout import StepStatus

AT_ONCE_SECONDS = 0.0
WAIT_SECONDS = 2.0
STEADY_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a guard or phase function answers; `finish` turns it into a Decision.

    changes: fields of status; marks: conditions that are true now; consumed: people's acts that took effect.
    """

    phase: Phase
    reason: Reason
    message: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    marks: Mapping[ConditionType, Mark] = field(default_factory=dict)
    actions: tuple[Action, ...] = ()
    consumed: tuple[PersonAction, ...] = ()
    requeue_after_s: float = STEADY_SECONDS


def move(
    s: Snapshot,
    phase: Phase,
    reason: Reason,
    message: str,
    step: StepStatus | None = None,
    changes: Mapping[str, Any] | None = None,
    actions: tuple[Action, ...] = (),
    consumed: tuple[PersonAction, ...] = (),
) -> Outcome:
    """Go to a phase (or to another step of the same one) and look again at once."""
    merged = dict(changes or {})
    if step is not None:
        merged["step"] = step
    return Outcome(phase, reason, message, merged, {}, actions, consumed, AT_ONCE_SECONDS)


def stay(
    s: Snapshot,
    reason: Reason,
    message: str,
    changes: Mapping[str, Any] | None = None,
    marks: Mapping[ConditionType, Mark] | None = None,
    actions: tuple[Action, ...] = (),
    consumed: tuple[PersonAction, ...] = (),
    requeue_after_s: float = STEADY_SECONDS,
) -> Outcome:
    """Stay in the phase."""
    return Outcome(s.status.phase, reason, message, changes or {}, marks or {}, actions, consumed, requeue_after_s)


def hold(s: Snapshot, reason: Reason, message: str) -> Outcome:
    """Stay at this weight, with a reason and a clock."""
    mark = Mark(reason, message)
    if is_held_too_long(s):
        mark = Mark(Reason.MAX_HOLD_EXCEEDED, f"Held longer than maxHold: {message}")
    is_running = s.status.phase not in TERMINAL
    changes = {"held_since": s.status.held_since or times.to_text(s.now_s)} if is_running else {}
    return stay(s, reason, message, changes=changes, marks={ConditionType.HOLDING: mark}, requeue_after_s=5.0)


def is_held_too_long(s: Snapshot) -> bool:
    policy = s.attempt_policy
    if policy is None or s.status.held_since is None:
        return False
    return times.since(s.status.held_since, s.now_s) > parse_duration_seconds(policy.evidence.max_hold)


def is_paused(s: Snapshot) -> bool:
    """Whether a person or the object's owner paused the rollout."""
    return s.status.paused_by_action or (s.spec is not None and s.spec.paused)
