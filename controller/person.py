"""What a person may do to a rollout, and what exactly they sign when they do it.

Used by the dashboard and by the CLI, so that both sign the same thing. Pure: objects in, objects out. Whether an action
takes effect is the state machine's decision; `why_not` only says what a person would like to know before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crds.v1alpha1.action import ActionKind, RolloutActionSpec
from crds.v1alpha1.common import API_VERSION
from crds.v1alpha1.conditions import TERMINAL, Phase, Reason

WORDS = {
    ActionKind.APPROVE: ("Approve", "Let the next guarded step set its weight."),
    ActionKind.REJECT: ("Reject", "Refuse the next guarded step; the attempt rolls back."),
    ActionKind.PAUSE: ("Pause", "Nothing moves forward. Rollbacks still work."),
    ActionKind.RESUME: ("Resume", "Undo a pause, or end an open pause step."),
    ActionKind.SKIP: ("Skip the pause", "End this pause step early."),
    ActionKind.ABORT: ("Abort", "End the attempt: traffic goes back to stable."),
    ActionKind.ROLLBACK: ("Roll back", "Put a stored manifest back, also after completion."),
    ActionKind.RETRY: ("Retry", "Weigh the rejected revision again."),
}
BINDING_TO_EVIDENCE = frozenset({ActionKind.APPROVE, ActionKind.REJECT})
"""Actions that speak of what was measured; all others bind revision, attempt and step only."""


@dataclass(frozen=True, slots=True)
class Signed:
    """What an action binds, for display before it is signed."""

    action: ActionKind
    rollout: str
    namespace: str
    user: str
    revision: str
    attempt: int
    step: int
    step_name: str
    evidence: str
    reason: str = ""

    def to_object(self) -> dict[str, Any]:
        """The RolloutAction to create."""
        spec = RolloutActionSpec(
            rollout=self.rollout,
            action=self.action,
            revision=self.revision,
            attempt=self.attempt,
            step=self.step,
            evidence=self.evidence,
            user=self.user,
            reason=self.reason,
        )
        return {
            "apiVersion": API_VERSION,
            "kind": "RolloutAction",
            "metadata": {"generateName": f"{self.rollout}-{self.action.value}-", "namespace": self.namespace},
            "spec": spec.model_dump(by_alias=True, mode="json"),
        }


def make_signed(rollout: Mapping[str, Any], action: ActionKind, user: str, reason: str = "", to: str = "") -> Signed:
    """What `user` would sign now.

    Args:
        rollout: the InferenceRollout object as the API server gave it.
        to: target revision of a rollback; empty takes `default_target`.
    """
    status = rollout.get("status") or {}
    step = status.get("step") or {}
    evidence = (status.get("verdict") or {}).get("evidence") or ""
    return Signed(
        action=action,
        rollout=rollout["metadata"]["name"],
        namespace=rollout["metadata"]["namespace"],
        user=user,
        revision=_revision(status, action, to),
        attempt=int(status.get("attempt") or 0),
        step=int(step.get("index") or 0),
        step_name=str(step.get("name") or ""),
        evidence=evidence if action in BINDING_TO_EVIDENCE else "",
        reason=reason,
    )


def _revision(status: Mapping[str, Any], action: ActionKind, to: str) -> str:
    if action is ActionKind.ROLLBACK:
        return to or default_target(status)
    if action is ActionKind.RETRY:
        rejected = status.get("rejected") or []
        candidate = str(status.get("candidate") or "")
        return candidate if candidate in rejected or not rejected else str(rejected[-1])
    return str(status.get("candidate") or "")


def default_target(status: Mapping[str, Any]) -> str:
    """Where a rollback goes when nobody says: stable in mid-attempt, else the last completed revision before it."""
    stable = str(status.get("stable") or "")
    if _is_running(status):
        return stable
    finished = [entry for entry in status.get("history") or [] if entry.get("result") == Phase.COMPLETED]
    return next((str(entry["revision"]) for entry in finished if entry.get("revision") != stable), "")


def condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """The condition of a type where it is True."""
    found: Sequence[Mapping[str, Any]] = status.get("conditions") or []
    return next((entry for entry in found if entry.get("type") == kind and entry.get("status") == "True"), None)


def who_acts(rollout: Mapping[str, Any]) -> str:
    """Who must do something now, as a sentence."""
    status = rollout.get("status") or {}
    name = rollout["metadata"]["name"]
    phase = str(status.get("phase") or Phase.IDLE)
    if condition(status, "AwaitingApproval"):
        return f"A person must approve: weighlock approve {name} --reason '...'"
    if not why_not(rollout, ActionKind.RESUME):
        return f"A person must resume: weighlock resume {name}"
    if condition(status, "Stalled") or condition(status, "CapacityBlocked"):
        return "A person must mend what the conditions say."
    holding = condition(status, "Holding") or {}
    if _is_running(status) and holding.get("reason") == Reason.RECORDER_UNREACHABLE:
        return "Somebody must bring the recorder back: without it there is no evidence, and nothing moves forward."
    if phase == Phase.ROLLED_BACK:
        return f"Somebody must apply another revision, or say: weighlock retry {name}"
    if not _is_running(status):
        return (
            "Nobody: nothing is being weighed." if phase != Phase.ROLLING_BACK else "Nobody: it rolls back by itself."
        )
    return "Nobody: it goes on by itself when the evidence is there."


def why_not(rollout: Mapping[str, Any], action: ActionKind) -> str:
    """Why an action would have no effect now, as a sentence; "" where it makes sense."""
    status = rollout.get("status") or {}
    paused = bool((rollout.get("spec") or {}).get("paused")) or bool(status.get("pausedByAction"))
    awaiting = condition(status, "AwaitingApproval")
    in_pause_step = str((status.get("step") or {}).get("name", "")).startswith("pause")
    running = _is_running(status)
    match action:
        case ActionKind.APPROVE | ActionKind.REJECT:
            return "" if running and awaiting else "No step is waiting for an approval."
        case ActionKind.PAUSE:
            return "It is paused already." if paused else ""
        case ActionKind.RESUME:
            return "" if paused or in_pause_step else "Nothing is paused."
        case ActionKind.SKIP:
            return "" if in_pause_step else "This step is no pause."
        case ActionKind.ABORT:
            return "" if running else "No attempt is running."
        case ActionKind.ROLLBACK:
            return "" if running or default_target(status) else "No earlier revision is known; name one."
        case ActionKind.RETRY:
            return "" if status.get("rejected") and not running else "No rejected revision is waiting for a retry."


def _is_running(status: Mapping[str, Any]) -> bool:
    phase = str(status.get("phase") or Phase.IDLE)
    return phase not in {p.value for p in TERMINAL} | {Phase.ROLLING_BACK.value}
