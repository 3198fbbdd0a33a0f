"""Idle, Completed, RolledBack: one revision serves. Begins attempts, and keeps things tidy while none runs.

Called by machine.py. Pure.
"""

from collections.abc import Mapping
from typing import Any

from controller.core import plans, times
from controller.core.actions import Action, DeleteVariant, EmitEvent, PruneRunManifests
from controller.core.outcome import AT_ONCE_SECONDS, STEADY_SECONDS, WAIT_SECONDS, Outcome, is_paused, stay
from controller.core.people import Acts
from controller.core.snapshot import Frozen, PersonAction, Snapshot
from controller.core.status import Mark
from controller.core.waits import is_drained
from crds.v1alpha1.action import ActionKind
from crds.v1alpha1.conditions import ConditionType, Phase, Reason
from crds.v1alpha1.rollout import StepStatus


def at_rest(s: Snapshot, acts: Acts) -> Outcome:
    """Idle, Completed, RolledBack: one revision serves; begin an attempt when spec asks for another one."""
    status, target = s.status, s.target
    if target is None:
        return stay(s, Reason.INVALID_SPEC, "What spec asks for is not known yet.", requeue_after_s=WAIT_SECONDS)
    if not status.stable:
        labelled = next((f.rev10 for f in s.stored.values() if f.labelled_stable), "")
        if labelled:
            text = f"Status was lost; the stored manifest {labelled} is labelled stable and is taken up again."
            return stay(s, Reason.SYNCED, text, changes={"stable": labelled}, requeue_after_s=AT_ONCE_SECONDS)
    if target.rev10 == status.stable:
        return _in_sync(s)
    retry = acts.first(ActionKind.RETRY)
    is_asked = retry is not None or target.rev10 not in status.rejected
    others = [rev for rev in _leaving(s) if rev != target.rev10]
    if is_asked and others:  # their GPUs are needed, and an attempt looks at two revisions only
        text = f"Revision {target.rev10} waits until the pods of {', '.join(others)} are gone."
        return _tidy(s, Reason.DRAINING, text)
    if retry is not None:
        text = f"{retry.user} asked to weigh {target.rev10} again: {retry.reason or 'no reason given'}."
        return begin(s, target, Reason.NEW_REVISION, text, consumed=(retry,))
    if target.rev10 in status.rejected:
        return _tidy(s, Reason.SPEC_REJECTED, f"Revision {target.rev10} was rolled back; retry it or apply another.")
    if not status.stable:
        text = f"First install of {target.rev10}: nothing to compare with, readiness and hard guards decide."
        return begin(s, target, Reason.FIRST_INSTALL, text)
    if target.rev10 == status.equivalent or (s.diff is not None and not s.diff.effective):
        return _no_change(s, target)
    if s.diff is None:
        return stay(s, Reason.NEW_REVISION, "The manifests are being compared.", requeue_after_s=WAIT_SECONDS)
    if is_paused(s):
        text = f"Revision {target.rev10} waits: the rollout is paused."
        return stay(s, Reason.PAUSED, text, marks={ConditionType.HOLDING: Mark(Reason.PAUSED, text)})
    return begin(s, target, Reason.NEW_REVISION, f"Revision {target.rev10} is weighed against {status.stable}.")


def begin(
    s: Snapshot, target: Frozen, reason: Reason, message: str, consumed: tuple[PersonAction, ...] = ()
) -> Outcome:
    """Start an attempt: a new number, clean clocks, everything that the last attempt left is forgotten."""
    status = s.status
    attempt = max([status.attempt, *(f.stored_attempt for f in s.stored.values())]) + 1
    changes = {
        "attempt": attempt,
        "candidate": target.rev10,
        "step": StepStatus(index=0, name=plans.PREPARE),
        "verdict": None,
        "held_since": None,
        "attempt_started_at": times.to_text(s.now_s),
        "baseline": "FirstInstall" if not status.stable else "",
        "equivalent": "",
        "rejected": tuple(rev for rev in status.rejected if rev != target.rev10),
    }
    return Outcome(Phase.PENDING, reason, message, changes, consumed=consumed, requeue_after_s=AT_ONCE_SECONDS)


# --- keeping things tidy ------------------------------------------------------------------------------------------


def _no_change(s: Snapshot, target: Frozen) -> Outcome:
    text = f"{target.rev10} changes nothing effective: nothing is rolled, {s.status.stable} goes on serving."
    is_new = s.status.equivalent != target.rev10
    actions: tuple[Action, ...] = (EmitEvent(Reason.NO_EFFECTIVE_CHANGE, text),) if is_new else ()
    return _tidy(s, Reason.NO_EFFECTIVE_CHANGE, text, {"equivalent": target.rev10}, actions)


def _in_sync(s: Snapshot) -> Outcome:
    stable = s.status.stable
    message = s.status.message if s.status.phase is not Phase.IDLE else f"Revision {stable} serves."
    return _tidy(s, Reason.SYNCED, message or f"Revision {stable} serves.", {"equivalent": ""})


def _tidy(
    s: Snapshot,
    reason: Reason,
    message: str,
    changes: Mapping[str, Any] | None = None,
    actions: tuple[Action, ...] = (),
) -> Outcome:
    """At rest: remove variants that nothing points to any more, and manifests that history forgot."""
    plane, leaving = s.data_plane, _leaving(s)
    is_alone = plane.published is not None and plane.published.candidate is None and plane.is_in_force
    is_alone = is_alone or not plane.gates
    gone = tuple(DeleteVariant(rev) for rev in leaving if is_alone and is_drained(s, rev))
    wait_s = WAIT_SECONDS if leaving else STEADY_SECONDS
    pruned = _prunable(s)
    prune = (PruneRunManifests(pruned),) if pruned else ()
    return stay(s, reason, message, changes=changes, actions=(*actions, *gone, *prune), requeue_after_s=wait_s)


def _leaving(s: Snapshot) -> list[str]:
    return sorted(rev for rev in s.variants if rev != s.status.stable)


def _prunable(s: Snapshot) -> tuple[str, ...]:
    limit = s.spec.revision_history_limit if s.spec else 10
    keep = {s.status.stable, s.status.candidate, s.target.rev10 if s.target else ""} | set(s.variants)
    old = sorted((f for f in s.stored.values() if f.rev10 not in keep), key=lambda f: -f.stored_attempt)
    return tuple(f.rev10 for f in old[limit:])
