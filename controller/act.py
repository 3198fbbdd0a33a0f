"""The only writer of the world: carries out a decision, in the order that keeps `status.step.weight` an upper bound.

Lowering: the gates first, then everything else, then status. Raising: status first, then the gates. Whatever fails,
status is still written, with the failure in it. Called by reconcile.py; repeating a decision is harmless. This file
holds the order; writes/ the objects.
"""

from collections.abc import Mapping
from typing import Any

import structlog

from controller import takeover
from controller.core import actions as a
from controller.core import freezing
from controller.core.gate_config import make_gate_config
from controller.core.snapshot import Snapshot, Trial
from controller.core.times import to_short_text
from controller.core.variants import FINALIZER
from controller.ports import Clock, Cluster, Judgement, Lease, Ref, Retryable, Store, Terminal
from controller.ports import DataPlane as DataPlanePort
from controller.writes import manifests, variants
from controller.writes.gate import GateSettings, GateWriter
from controller.writes.trials import Trials
from crds.v1alpha1.common import API_VERSION
from crds.v1alpha1.conditions import TERMINAL, ConditionType, Reason
from crds.v1alpha1.rollout import Condition, InferenceRolloutSpec, InferenceRolloutStatus
from manifests.secrets import redact_text
from shadow.plan import TrafficPlan

log = structlog.get_logger("weighlock.act")

_AFTER_STATUS = (a.EmitEvent, a.Record, a.RemoveFinalizer)
"""What must not happen when status could not be written (it would happen again), or makes the object go away."""


class Actor:
    """Carries out decisions."""

    def __init__(
        self,
        cluster: Cluster,
        data_plane: DataPlanePort,
        judgement: Judgement,
        store: Store,
        lease: Lease,
        clock: Clock,
        gates: GateSettings,
    ) -> None:
        self._cluster, self._data_plane, self._judgement = cluster, data_plane, judgement
        self._store, self._lease, self._clock = store, lease, clock
        self._gates = GateWriter(cluster, gates)
        self._trials = Trials(cluster, clock)

    def carry_out(self, s: Snapshot, decision: a.Decision) -> InferenceRolloutStatus:
        """Do what a decision says; returns the status that was written.

        Raises:
            Retryable, Terminal: the first failure, after everything else was tried and status was written.
        """
        rises = is_raising(s.data_plane.published, decision.plan)
        if decision.plan is not None and not rises and self._lease.may_lower():
            self._publish(s, decision.plan)
        if not self._lease.is_held():
            return s.status  # nobody else may have it, but the API server is out of reach: nothing more to do
        failure = self._attempt_all(s, [x for x in decision.actions if not isinstance(x, _AFTER_STATUS)])
        status = decision.status if failure is None else with_failure(decision.status, failure, s)
        self._write_status(s, status)
        if decision.plan is not None and rises and self._lease.is_held():
            self._publish(s, decision.plan)
        late = self._attempt_all(s, [x for x in decision.actions if isinstance(x, _AFTER_STATUS)])
        if failure is not None or late is not None:
            raise failure or late or Retryable("unknown failure")
        return status

    def gate_applied(self, key: str, spec: InferenceRolloutSpec | None) -> bool:
        """Whether this process has applied the gate's objects as spec wants them, and its Deployment exists."""
        return self._gates.is_applied(key, spec)

    def trial(self, key: str, rev10: str, attempt: int) -> Trial | None:
        """What the API server said to a dry run of this revision in this attempt; None where this process made none."""
        return self._trials.of(key, rev10, attempt)

    def forget(self, key: str) -> None:
        """A rollout is gone."""
        self._gates.forget(key)
        self._trials.forget(key)
        self._data_plane.forget(key)
        self._judgement.forget(key)

    def tell_defect(self, namespace: str, name: str, error: Exception) -> None:
        """Nobody foresaw this error: condition Stalled says so, everything else in status stays as it is."""
        obj = self._cluster.get_cached("inferencerollouts", namespace, name)
        if obj is None or not self._lease.is_held():
            return
        text = (
            f"The operator met an error of its own ({type(error).__name__}: {redact_text(str(error)[:300])}). Nothing "
        )
        text += f"moves; it tries again. Its log has it whole: look for the event `defect` of {namespace}/{name}."
        old: dict[str, Any] = obj.get("status") or {}
        before = {c["type"]: c for c in old.get("conditions") or ()}
        stalled = make_stalled(
            Terminal(Reason.OPERATOR_DEFECT, text),
            self._clock.now(),
            obj["metadata"].get("generation"),
            before.get(ConditionType.STALLED.value),
        )
        before[stalled.type] = stalled.model_dump(by_alias=True, mode="json", exclude_none=True)
        status = old | {"conditions": list(before.values())}
        if status != old:
            self._cluster.replace_status(obj, status)

    # --- the two writes whose order matters ---

    def _publish(self, s: Snapshot, plan: TrafficPlan) -> None:
        policy = s.attempt_policy if s.status.phase not in TERMINAL and s.attempt_policy else s.policy
        self._data_plane.publish(make_gate_config(plan, s.spec, policy, self._judgement.body_size(s.key)))

    def _write_status(self, s: Snapshot, status: InferenceRolloutStatus) -> None:
        obj = self._cluster.get_cached("inferencerollouts", s.namespace, s.name)
        if obj is None or obj["metadata"]["uid"] != s.uid:
            raise Retryable(f"{s.key} was replaced while it was decided", 0.1)
        wanted = status.model_dump(by_alias=True, mode="json", exclude_none=True)
        if obj.get("status") == wanted:
            return
        self._cluster.replace_status(obj, wanted)

    # --- actions ---

    def _attempt_all(self, s: Snapshot, todo: list[a.Action]) -> Retryable | Terminal | None:
        failure: Retryable | Terminal | None = None
        for action in todo:
            try:
                self._do(s, action)
            except (Retryable, Terminal) as error:
                log.warning("action failed", rollout=s.key, action=type(action).__name__, error=str(error))
                failure = failure or error
                if isinstance(action, a.ReleaseGate | a.DeleteVariant | a.DeleteRunManifests):
                    return failure  # the finalizer must not go before these are done
        return failure

    def _do(self, s: Snapshot, action: a.Action) -> None:
        cluster = self._cluster
        match action:
            case a.AddFinalizer():
                self._finalizer(s, add=True)
            case a.RemoveFinalizer():
                self._finalizer(s, add=False)
            case a.StoreRunManifest(frozen, attempt):
                manifests.store(cluster, s, frozen, attempt, self._clock.now())
            case a.LabelStable(rev10):
                manifests.label_stable(cluster, s, rev10)
            case a.PruneRunManifests(rev10s):
                manifests.prune(cluster, s, rev10s)
            case a.DeleteRunManifests():
                manifests.delete_all(cluster, s)
            case a.ApplyVariant(frozen, replicas, restore):
                variants.apply(cluster, s, frozen, replicas, restore)
            case a.TryVariant(frozen, attempt):
                self._trials.make(s, frozen, attempt)
            case a.ScaleVariant(rev10, replicas):
                variants.scale(cluster, s, rev10, replicas)
            case a.DeleteVariant(rev10):
                variants.delete(cluster, s, rev10)
            case a.ApplyGate():
                self._gates.apply(s)
            case a.TakeOverService(name):
                takeover.take(cluster, s, name)
            case a.ReleaseGate(rev10):
                self._gates.release(s, rev10)
            case a.PutSetup(attempt):
                self._put_setup(s, attempt)
            case a.EmitEvent(reason, message, warning):
                about = cluster.get_cached("inferencerollouts", s.namespace, s.name)
                if about is not None:
                    cluster.emit(about, reason.value, message, warning)
            case a.Record(kind, content):
                self._record(s, kind, content)

    def _put_setup(self, s: Snapshot, attempt: int) -> None:
        policy = s.attempt_policy or s.policy
        if policy is not None:
            self._judgement.put_setup(s.key, attempt, freezing.dump(policy), s.status.stable)

    def _finalizer(self, s: Snapshot, add: bool) -> None:
        ref = Ref(API_VERSION, "inferencerollouts", s.namespace, s.name)
        obj = self._cluster.get_cached("inferencerollouts", s.namespace, s.name)
        if obj is None:
            return
        present = [f for f in obj["metadata"].get("finalizers") or () if f != FINALIZER]
        wanted = [*present, FINALIZER] if add else present
        version = obj["metadata"]["resourceVersion"]
        self._cluster.patch(ref, {"metadata": {"finalizers": wanted, "resourceVersion": version}})

    def _record(self, s: Snapshot, kind: str, content: Mapping[str, Any]) -> None:
        now_s = self._clock.now()
        if kind == "decision":
            self._store.put_decision(s.key, int(content["attempt"]), int(content["step"]), content, now_s)
        elif kind == "action":
            self._store.put_action(s.key, str(content["uid"]), content["spec"], str(content["outcome"]), now_s)
        else:
            self._store.put_audit(s.key, "operator", kind, content, s.status.attempt, s.status.step.index)


def is_raising(published: TrafficPlan | None, plan: TrafficPlan | None) -> bool:
    """Whether a plan gives the candidate more than the gates hold now (unknown counts as less)."""
    if plan is None or plan.candidate is None:
        return False
    if plan.weight == 0 and plan.copies_to_candidate == 0:
        return False
    if published is None or published.candidate != plan.candidate:
        return True
    return plan.weight > published.weight


def with_failure(status: InferenceRolloutStatus, failure: Retryable | Terminal, s: Snapshot) -> InferenceRolloutStatus:
    """The status with a failure that only a person can mend as condition Stalled; others just retry."""
    if isinstance(failure, Retryable):
        return status
    old = next((c for c in s.status.conditions if c.type == ConditionType.STALLED), None)
    before = old.model_dump(by_alias=True) if old is not None else None
    stalled = make_stalled(failure, s.now_s, s.generation, before)
    kept = tuple(stalled if c.type == stalled.type else c for c in status.conditions)
    return status.model_copy(update={"conditions": kept})


def make_stalled(failure: Terminal, now_s: float, generation: int | None, old: Mapping[str, Any] | None) -> Condition:
    """Condition Stalled about a failure; its transition time is the old one's where that was true already."""
    was_true = old is not None and old.get("status") == "True"
    return Condition(
        type=ConditionType.STALLED.value,
        status="True",
        reason=failure.reason.value,
        message=str(failure)[:1000],
        last_transition_time=old["lastTransitionTime"] if old is not None and was_true else to_short_text(now_s),
        observed_generation=generation,
    )
