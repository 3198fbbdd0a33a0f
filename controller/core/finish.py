"""From an outcome to a decision: the whole next status, the traffic, and the actions that every decision asks for.

Called by machine.py alone. Pure.
"""

from typing import Any

from controller.core import plans, times
from controller.core.actions import (
    Action,
    AddFinalizer,
    ApplyGate,
    ApplyVariant,
    Decision,
    EmitEvent,
    LabelStable,
    Record,
    ScaleVariant,
    TakeOverService,
)
from controller.core.outcome import Outcome
from controller.core.people import Acts
from controller.core.plans import usable_pods
from controller.core.snapshot import PersonAction, Snapshot
from controller.core.status import make_conditions, make_verdict
from crds.v1alpha1.conditions import TERMINAL, Phase, Reason
from crds.v1alpha1.rollout import InferenceRolloutStatus

APPLIED_ACTIONS = 64


class IllegalMove(RuntimeError):
    """A defect of a guard or phase: a move that TRANSITIONS does not list."""


def finish(s: Snapshot, acts: Acts, outcome: Outcome, allowed: frozenset[Phase]) -> Decision:
    """Check the move, build the whole status, add what every decision asks for."""
    before = s.status
    if outcome.phase is not before.phase and outcome.phase not in allowed:
        raise IllegalMove(f"{s.key}: {before.phase} -> {outcome.phase} ({outcome.reason})")
    after = _status_after(s, acts, outcome)
    plan = None if s.deleted_s is not None and not s.has_finalizer else plans.make_plan(s, after)
    if plan is not None and _would_guess(s, after):
        plan = None
    actions = (*_upkeep(s, after), *outcome.actions, *_announce(s, acts, outcome, after))
    return Decision(outcome.phase, outcome.reason, outcome.message, after, plan, actions, outcome.requeue_after_s)


def _would_guess(s: Snapshot, after: InferenceRolloutStatus) -> bool:
    """A new leader that has not rebuilt the judge, or asked the candidate: the gates keep what they hold.

    They may hold less than status allows, and an endpoint that nobody has asked must be neither added nor taken away.
    """
    is_new = s.data_plane.published is None and after.phase is not Phase.ROLLING_BACK
    return is_new and after.step.weight > 0 and (not s.judge.rebuilt or plans.is_unasked(s, after.candidate))


def _status_after(s: Snapshot, acts: Acts, outcome: Outcome) -> InferenceRolloutStatus:
    before = s.status
    changes: dict[str, Any] = dict(outcome.changes)
    done = [act.uid for act in outcome.consumed] + [refused.action.uid for refused in acts.refused]
    if done:
        known = {action.uid for action in s.actions}
        kept = [uid for uid in before.applied_actions if uid in known]
        changes["applied_actions"] = tuple([*kept, *done][-APPLIED_ACTIONS:])
    if outcome.phase is not before.phase:
        changes |= {"phase": outcome.phase, "phase_started_at": times.to_text(s.now_s), "reason": outcome.reason.value}
    serving = s.variant(changes.get("stable", before.stable) or changes.get("candidate", before.candidate))
    changes |= {
        "observed_generation": s.generation,
        "message": outcome.message,
        "replicas": sum(not pod.terminating for pod in serving.pods),
        "ready_replicas": sum(pod.ready and not pod.terminating for pod in serving.pods),
        "selector": f"weighlock.dev/rollout={s.name},weighlock.dev/revision={serving.revision}",
    }
    after = before.model_copy(update=changes)
    after = after.model_copy(update={"verdict": make_verdict(s, after)})
    return after.model_copy(update={"conditions": make_conditions(s, after, outcome.marks)})


def _upkeep(s: Snapshot, after: InferenceRolloutStatus) -> tuple[Action, ...]:
    """What must be so in every phase: finalizer, gate, the stable variant with its replicas."""
    if s.deleted_s is not None or s.conflict:
        return ()
    actions: list[Action] = []
    if not s.has_finalizer:
        actions.append(AddFinalizer())
    if s.spec is not None and not s.data_plane.applied and (s.target is not None or after.stable):
        actions.append(ApplyGate())
    service = s.spec.traffic.take_over_service if s.spec is not None else None
    if service and not s.data_plane.service_taken and s.data_plane.is_in_force and usable_pods(s, after.stable, False):
        actions.append(TakeOverService(service))  # only when the gate can answer: users must not notice
    stable = s.stored.get(after.stable)
    if stable is not None and after.phase in TERMINAL and not stable.labelled_stable:
        actions.append(LabelStable(after.stable))
    if stable is not None and s.lease_held:
        wanted = plans.full_replicas(s, after.stable)
        present = s.variant(after.stable).replicas
        if set(present) != set(wanted):
            actions.append(ApplyVariant(stable, wanted))
        elif dict(present) != wanted:
            actions.append(ScaleVariant(after.stable, wanted))
    if after.phase in (Phase.PROMOTED, Phase.BAKE) and s.lease_held:
        actions += _follow_scale(s, after.candidate)
    return tuple(actions)


def _follow_scale(s: Snapshot, candidate: str) -> list[Action]:
    """The candidate serves everything: it follows spec.replicas upwards like stable would."""
    wanted = plans.grown_replicas(s, candidate, 100)
    present = dict(s.variant(candidate).replicas)
    return [ScaleVariant(candidate, wanted)] if set(present) == set(wanted) and present != wanted else []


def _announce(s: Snapshot, acts: Acts, outcome: Outcome, after: InferenceRolloutStatus) -> tuple[Action, ...]:
    """Events and records of what changed, once."""
    actions: list[Action] = []
    before = s.status
    for refused in acts.refused:
        text = f"{refused.action.kind} by {refused.action.user} has no effect: {refused.message}"
        actions += [
            EmitEvent(refused.reason, text, warning=True),
            _act_record(refused.action, refused.reason.value, refused.message),
        ]
    for act in outcome.consumed:
        actions += [
            EmitEvent(Reason.ACTION_ACCEPTED, f"{act.kind} by {act.user}: {act.reason or 'no reason given'}"),
            _act_record(act, "applied"),
        ]
    is_step = (before.step.index, before.step.weight) != (after.step.index, after.step.weight)
    if outcome.phase is not before.phase or is_step:
        is_bad = outcome.phase in (Phase.ROLLING_BACK, Phase.ROLLED_BACK)
        actions.append(EmitEvent(outcome.reason, f"{outcome.phase}: {outcome.message}", warning=is_bad))
        actions.append(Record("decision", _decision_content(s, outcome, after)))
    return tuple(actions)


def _decision_content(s: Snapshot, outcome: Outcome, after: InferenceRolloutStatus) -> dict[str, Any]:
    verdict = s.judge.verdict
    return {
        "phase": outcome.phase.value,
        "from": s.status.phase.value,
        "reason": outcome.reason.value,
        "message": outcome.message,
        "attempt": after.attempt,
        "step": after.step.index,
        "weight": after.step.weight,
        "stable": after.stable,
        "candidate": after.candidate,
        "evidence": s.judge.evidence,
        "verdict": verdict.result.value if verdict else None,
        "stored": s.store_ok,
    }


def _act_record(act: PersonAction, outcome: str, message: str = "") -> Record:
    """message: why an act has no effect."""
    return Record(
        "action",
        {
            "uid": act.uid,
            "outcome": outcome,
            "spec": {
                "action": act.kind.value,
                "user": act.user,
                "reason": act.reason,
                "revision": act.revision,
                "attempt": act.attempt,
                "step": act.step,
                "evidence": act.evidence,
                **({"message": message} if message else {}),
            },
        },
    )
