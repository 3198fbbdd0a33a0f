"""Which acts of people are in force, and which have no effect and why.

An act says which attempt, revision, step and evidence its author saw. Where one of them is no longer the present one,
the act is stale: it has no effect, and its author is told why. Pure; called by machine.py at the start of every
decision.
"""

from dataclasses import dataclass

from controller.core import plans, times
from controller.core.evidence import digest
from controller.core.snapshot import PersonAction, Snapshot
from crds.v1alpha1.action import ActionKind
from crds.v1alpha1.common import parse_duration_seconds
from crds.v1alpha1.conditions import TERMINAL, Phase, Reason
from crds.v1alpha1.policy import Approval


@dataclass(frozen=True, slots=True)
class Refused:
    """An act without effect, the reason and a sentence for its author."""

    action: PersonAction
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Acts:
    """Acts in force (oldest first) and acts that are refused now."""

    live: tuple[PersonAction, ...] = ()
    refused: tuple[Refused, ...] = ()

    def of(self, *kinds: ActionKind) -> tuple[PersonAction, ...]:
        """Acts of these kinds that are in force."""
        return tuple(action for action in self.live if action.kind in kinds)

    def first(self, *kinds: ActionKind) -> PersonAction | None:
        """The oldest act of these kinds that is in force."""
        return next(iter(self.of(*kinds)), None)


def sort_acts(s: Snapshot) -> Acts:
    """Sort the rollout's acts that were not applied before into those in force and those refused."""
    live: list[PersonAction] = []
    refused: list[Refused] = []
    for action in sorted(s.actions, key=lambda a: (a.created_s, a.uid)):
        if action.uid in s.status.applied_actions or _is_early(s, action):
            continue
        problem = _problem(s, action)
        if problem is None:
            live.append(action)
        else:
            refused.append(problem)
    return Acts(tuple(live), tuple(refused))


def approval_rules(s: Snapshot) -> Approval:
    """Rules of approvals of this attempt."""
    policy = s.attempt_policy or s.policy
    return policy.approval if policy else Approval()


def binding_evidence(s: Snapshot) -> str | None:
    """Hash that an approval must bind now; None while there is nothing to approve."""
    if s.status.phase is Phase.PREFLIGHT:
        return digest("no-baseline", s.status.candidate, s.status.attempt)
    return s.judge.evidence or None


def _is_early(s: Snapshot, action: PersonAction) -> bool:
    """Whether nobody can say yet what an approval speaks of: a new leader is still reading the evidence back."""
    is_weighing = s.status.phase not in TERMINAL and s.status.phase is not Phase.PREFLIGHT
    return action.kind is ActionKind.APPROVE and is_weighing and not s.judge.rebuilt


def _problem(s: Snapshot, action: PersonAction) -> Refused | None:
    """Why an act has no effect; None while it is in force."""
    stale = _stale_binding(s, action)
    if stale:
        return Refused(action, Reason.ACTION_STALE, stale)
    check = _CHECKS.get(action.kind)
    return check(s, action) if check else None


def _stale_binding(s: Snapshot, action: PersonAction) -> str:
    status = s.status
    if action.attempt and action.attempt != status.attempt:
        return f"It speaks of attempt {action.attempt}, and attempt {status.attempt} is the current one."
    started_s = times.from_text(status.attempt_started_at)
    is_running = status.phase not in TERMINAL
    if not action.attempt and is_running and started_s is not None and action.created_s < started_s - 1.0:
        return f"It is older than attempt {status.attempt} and names no attempt."
    binds_candidate = action.kind not in (ActionKind.ROLLBACK, ActionKind.RETRY)
    if binds_candidate and is_running and action.revision and action.revision[:10] != status.candidate:
        return f"It speaks of revision {action.revision[:10]}, and {status.candidate} is being weighed."
    return ""


def _check_running(s: Snapshot, action: PersonAction) -> Refused | None:
    if s.status.phase in TERMINAL:
        return Refused(action, Reason.ACTION_STALE, f"No attempt is running, so there is nothing to {action.kind}.")
    if s.status.phase is Phase.ROLLING_BACK:
        return Refused(action, Reason.ACTION_STALE, "The attempt is being rolled back already.")
    return None


def _check_approve(s: Snapshot, action: PersonAction) -> Refused | None:
    not_running = _check_running(s, action)
    if not_running:
        return not_running
    rules = approval_rules(s)
    status = s.status
    if not action.attempt or not action.revision:
        text = f"An approval names what it approves: attempt {status.attempt}, revision {status.candidate}, the step."
        return Refused(action, Reason.ACTION_STALE, text)
    if action.step != status.step.index:
        text = f"It speaks of step {action.step}, and step {status.step.index} is in force."
        return Refused(action, Reason.ACTION_STALE, text)
    if max(0.0, s.now_s - action.created_s) > parse_duration_seconds(rules.expires):
        return Refused(action, Reason.ACTION_EXPIRED, f"It is older than {rules.expires}; look again and approve anew.")
    if rules.require_reason and not action.reason.strip():
        return Refused(action, Reason.ACTION_REFUSED, "The policy demands a reason; approve again with one.")
    if not plans.is_guarded(s):
        return Refused(action, Reason.ACTION_REFUSED, "The next step needs no approval.")
    present = binding_evidence(s)
    if action.evidence != present:
        text = f"It was given for other evidence; the evidence is now {present or 'none yet'}."
        return Refused(action, Reason.APPROVAL_WITHDRAWN, text)
    return None


def _check_pause_step(s: Snapshot, action: PersonAction) -> Refused | None:
    if action.kind is ActionKind.RESUME and s.status.paused_by_action:
        return None
    step = plans.current_step(s)
    if step is not None and step.pause is not None and s.status.phase not in TERMINAL:
        is_other = bool(action.attempt) and action.step not in (0, s.status.step.index)
        text = f"It speaks of step {action.step}, and step {s.status.step.index} is in force."
        return Refused(action, Reason.ACTION_STALE, text) if is_other else None
    if action.kind is ActionKind.RESUME and s.spec is not None and s.spec.paused:
        text = "spec.paused is set by the object's owner; set it to false there."
        return Refused(action, Reason.ACTION_REFUSED, text)
    return Refused(action, Reason.ACTION_REFUSED, f"Nothing is paused, so there is nothing to {action.kind}.")


def _check_retry(s: Snapshot, action: PersonAction) -> Refused | None:
    wanted = s.target.rev10 if s.target else ""
    if s.status.phase is Phase.ROLLING_BACK:
        return None  # waits until the rollback has ended
    if s.status.phase not in TERMINAL:
        return Refused(action, Reason.ACTION_REFUSED, "An attempt is running already.")
    if action.revision and action.revision[:10] != wanted:
        text = f"spec asks for revision {wanted}, not for {action.revision[:10]}; apply that revision instead."
        return Refused(action, Reason.ACTION_STALE, text)
    if wanted not in s.status.rejected:
        return Refused(action, Reason.ACTION_REFUSED, f"Revision {wanted} was not rejected.")
    return None


def _check_rollback(s: Snapshot, action: PersonAction) -> Refused | None:
    status, to = s.status, action.revision[:10]
    if status.phase is Phase.ROLLING_BACK:
        return Refused(action, Reason.ACTION_STALE, "A rollback is running already.")
    if status.phase not in TERMINAL:
        is_known = to in ("", status.stable, status.candidate)
        text = f"An attempt is running: it goes back to {status.stable}; ask for {to} when that has ended."
        return None if is_known else Refused(action, Reason.ACTION_REFUSED, text)
    goal = to or plans.previous_stable(s)
    if not goal or goal == status.stable or goal not in s.stored:
        known = ", ".join(sorted(set(s.stored) - {status.stable})) or "none"
        text = f"There is no stored manifest {goal or 'before this one'} to go back to; stored are: {known}."
        return Refused(action, Reason.ACTION_REFUSED, text)
    return None


_CHECKS = {
    ActionKind.APPROVE: _check_approve,
    ActionKind.REJECT: _check_running,
    ActionKind.ABORT: _check_running,
    ActionKind.SKIP: _check_pause_step,
    ActionKind.RESUME: _check_pause_step,
    ActionKind.RETRY: _check_retry,
    ActionKind.ROLLBACK: _check_rollback,
}
