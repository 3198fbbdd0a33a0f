"""The only writer of the world: carries out a decision, in the order that keeps `status.step.weight` an upper bound.

Lowering: the gates first, then everything else, then status. Raising: status first, then the gates. Whatever fails,
status is still written, with the failure in it. Called by reconcile.py; repeating a decision is harmless.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from controller import takeover
from controller.core import actions as a
from controller.core import freezing, variants
from controller.core.plans import entry_role
from controller.core.snapshot import Frozen, Snapshot
from controller.core.times import to_short_text
from controller.observe import FINALIZER, CachedCluster
from controller.ports import Clock, Judgement, Lease, Ref, Retryable, Store, Terminal
from controller.ports import DataPlane as DataPlanePort
from crds.v1alpha1.common import API_VERSION, parse_bytes
from crds.v1alpha1.conditions import TERMINAL, ConditionType
from crds.v1alpha1.policy import RolloutPolicySpec
from crds.v1alpha1.rollout import Condition, InferenceRolloutSpec, InferenceRolloutStatus
from shadow.envoy.bootstrap import Upstream
from shadow.envoy.workload import GateWorkload, make_gate_objects
from shadow.plan import GateConfig, TrafficPlan

log = structlog.get_logger("weighlock.act")

_PLURALS = {
    "ConfigMap": "configmaps",
    "Service": "services",
    "Deployment": "deployments",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "Secret": "secrets",
}


class Certificates(Protocol):
    """Who signs the gates' client certificates."""

    @property
    def server_name(self) -> str:
        """Name that the operator's and the recorder's certificates carry."""

    def gate_secret(self, namespace: str, rollout: str) -> dict[str, Any]:
        """Secret `<rollout>-gate-tls` (the same one while its certificate is good)."""


@dataclass(frozen=True, slots=True)
class GateSettings:
    """What the operator was told about gates.

    image: the gate's image; xds, recorder: advertised addresses; certificates: None without mutual TLS.
    """

    image: str
    xds: Upstream
    recorder: Upstream
    certificates: Certificates | None = None


class Actor:
    """Carries out decisions."""

    def __init__(
        self,
        cluster: CachedCluster,
        data_plane: DataPlanePort,
        judgement: Judgement,
        store: Store,
        lease: Lease,
        clock: Clock,
        gates: GateSettings,
    ) -> None:
        self._cluster, self._data_plane, self._judgement = cluster, data_plane, judgement
        self._store, self._lease, self._clock, self._gates = store, lease, clock, gates
        self._gate_digests: dict[str, str] = {}

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
        if spec is None:
            return key in self._gate_digests
        namespace, _, name = key.partition("/")
        wanted = _digest(self._gate_objects(namespace, name, spec))
        exists = self._cluster.get_cached("deployments", namespace, f"{name}-gate") is not None
        return exists and self._gate_digests.get(key) == wanted

    def forget(self, key: str) -> None:
        """A rollout is gone."""
        self._gate_digests.pop(key, None)
        self._data_plane.forget(key)
        self._judgement.forget(key)

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
        match action:
            case a.AddFinalizer():
                self._finalizer(s, add=True)
            case a.RemoveFinalizer():
                self._finalizer(s, add=False)
            case a.StoreRunManifest(frozen, attempt):
                self._store_manifest(s, frozen, attempt)
            case a.LabelStable(rev10):
                self._label_stable(s, rev10)
            case a.PruneRunManifests(rev10s):
                for rev10 in rev10s:
                    self._cluster.delete(Ref(API_VERSION, "runmanifests", s.namespace, f"{s.name}-{rev10}"))
            case a.DeleteRunManifests():
                for obj in self._cluster.cached("runmanifests", s.namespace, {variants.ROLLOUT: s.name}):
                    self._cluster.delete(Ref(API_VERSION, "runmanifests", s.namespace, obj["metadata"]["name"]))
            case a.ApplyVariant(frozen, replicas, restore):
                self._apply_variant(s, frozen, replicas, restore)
            case a.ScaleVariant(rev10, replicas):
                for role, count in replicas.items():
                    name = variants.variant_name(s.name, rev10, role)
                    self._cluster.patch(Ref("apps/v1", "deployments", s.namespace, name), {"spec": {"replicas": count}})
            case a.DeleteVariant(rev10):
                self._delete_variant(s, rev10)
            case a.ApplyGate():
                self._apply_gate(s)
            case a.TakeOverService(name):
                takeover.take(self._cluster, s, name)
            case a.ReleaseGate(rev10):
                self._release_gate(s, rev10)
            case a.PutSetup(attempt):
                policy = s.attempt_policy or s.policy
                if policy is not None:
                    written = policy.model_dump(by_alias=True, mode="json", exclude_none=True)
                    self._judgement.put_setup(s.key, attempt, written, s.status.stable)
            case a.EmitEvent(reason, message, warning):
                about = self._cluster.get_cached("inferencerollouts", s.namespace, s.name)
                if about is not None:
                    self._cluster.emit(about, reason.value, message, warning)
            case a.Record(kind, content):
                self._record(s, kind, content)

    # --- objects ---

    def _finalizer(self, s: Snapshot, add: bool) -> None:
        ref = Ref(API_VERSION, "inferencerollouts", s.namespace, s.name)
        obj = self._cluster.get_cached("inferencerollouts", s.namespace, s.name)
        if obj is None:
            return
        present = [f for f in obj["metadata"].get("finalizers") or () if f != FINALIZER]
        wanted = [*present, FINALIZER] if add else present
        version = obj["metadata"]["resourceVersion"]
        self._cluster.patch(ref, {"metadata": {"finalizers": wanted, "resourceVersion": version}})

    def _store_manifest(self, s: Snapshot, frozen: Frozen, attempt: int) -> None:
        obj = freezing.manifest_object(s.namespace, s.name, frozen, attempt)
        kept = s.stored.get(frozen.rev10)
        if kept is not None and kept.stored_attempt == attempt:
            return
        if kept is not None:  # the object is immutable: an older attempt's is replaced whole
            self._cluster.delete(Ref(API_VERSION, "runmanifests", s.namespace, obj["metadata"]["name"]))
        obj["spec"]["createdAt"] = to_short_text(self._clock.now())
        self._cluster.apply(obj, "runmanifests")

    def _label_stable(self, s: Snapshot, rev10: str) -> None:
        for frozen in s.stored.values():
            if frozen.labelled_stable == (frozen.rev10 == rev10):
                continue
            value = "true" if frozen.rev10 == rev10 else None
            ref = Ref(API_VERSION, "runmanifests", s.namespace, f"{s.name}-{frozen.rev10}")
            self._cluster.patch(ref, {"metadata": {"labels": {freezing.STABLE_LABEL: value}}})

    def _apply_variant(self, s: Snapshot, frozen: Frozen, replicas: Mapping[str, int], restore: bool) -> None:
        for source, name in frozen.config_maps.items():
            data = frozen.manifest.config_maps[source]
            self._cluster.apply(variants.make_config_map(s.name, s.namespace, source, name, data), "configmaps")
        for role in frozen.manifest.roles:
            wanted = variants.make_workload(s.name, s.namespace, frozen, role, replicas.get(role.name, role.replicas))
            name = wanted["metadata"]["name"]
            present = self._cluster.get_cached("deployments", s.namespace, name)
            if present is None:
                self._cluster.apply(wanted, "deployments")
            elif restore:
                whole = [{"op": "replace", "path": "/spec/template", "value": wanted["spec"]["template"]}]
                self._cluster.patch(Ref("apps/v1", "deployments", s.namespace, name), whole)

    def _delete_variant(self, s: Snapshot, rev10: str) -> None:
        for obj in self._cluster.cached(
            "deployments", s.namespace, {variants.ROLLOUT: s.name, variants.REVISION: rev10}
        ):
            self._cluster.delete(Ref("apps/v1", "deployments", s.namespace, obj["metadata"]["name"]))
        gone = s.frozen(rev10)
        kept = {copy for rev in s.variants if rev != rev10 and (f := s.frozen(rev)) for copy in f.config_maps.values()}
        for copy in set(gone.config_maps.values()) - kept if gone is not None else ():
            self._cluster.delete(Ref("v1", "configmaps", s.namespace, copy))

    def _gate_objects(self, namespace: str, name: str, spec: InferenceRolloutSpec) -> tuple[dict[str, Any], ...]:
        settings = self._gates
        workload = GateWorkload(
            namespace=namespace,
            rollout=name,
            port=spec.traffic.port,
            replicas=spec.traffic.gate_replicas,
            image=settings.image,
            xds=settings.xds,
            recorder=settings.recorder,
            server_name=settings.certificates.server_name if settings.certificates else None,
        )
        return make_gate_objects(workload)

    def _apply_gate(self, s: Snapshot) -> None:
        if s.spec is None:
            return
        objects = self._gate_objects(s.namespace, s.name, s.spec)
        if self._gates.certificates is not None:
            self._cluster.apply(self._gates.certificates.gate_secret(s.namespace, s.name), "secrets")
        for obj in objects:
            self._cluster.apply(obj, _PLURALS[obj["kind"]])
        self._gate_digests[s.key] = _digest(objects)

    def _release_gate(self, s: Snapshot, rev10: str) -> None:
        taken = s.spec.traffic.take_over_service if s.spec is not None else None
        if taken:
            takeover.give_back(self._cluster, s, taken, rev10)
        name = f"{s.name}-gate"
        service = Ref("v1", "services", s.namespace, name)
        if rev10:
            role = entry_role(s.frozen(rev10))
            selector = {"weighlock.dev/gate": None, **variants.variant_labels(s.name, rev10, role)}
            self._cluster.patch(service, {"spec": {"selector": selector}})
        else:
            self._cluster.delete(service)
        self._cluster.delete(Ref("apps/v1", "deployments", s.namespace, name))
        self._cluster.delete(Ref("policy/v1", "poddisruptionbudgets", s.namespace, name))
        self._cluster.delete(Ref("v1", "configmaps", s.namespace, name))
        if self._gates.certificates is not None:
            self._cluster.delete(Ref("v1", "secrets", s.namespace, f"{name}-tls"))

    def _record(self, s: Snapshot, kind: str, content: Mapping[str, Any]) -> None:
        now_s = self._clock.now()
        if kind == "decision":
            self._store.put_decision(s.key, int(content["attempt"]), int(content["step"]), content, now_s)
        elif kind == "action":
            self._store.put_action(s.key, str(content["uid"]), content["spec"], str(content["outcome"]), now_s)
        else:
            self._store.put_audit(s.key, "operator", kind, content, s.status.attempt, s.status.step.index)


_AFTER_STATUS = (a.EmitEvent, a.Record, a.RemoveFinalizer)
"""What must not happen when status could not be written (it would happen again), or makes the object go away."""


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
    moved = to_short_text(s.now_s)
    stalled = Condition(
        type=ConditionType.STALLED.value,
        status="True",
        reason=failure.reason.value,
        message=str(failure)[:1000],
        last_transition_time=moved,
        observed_generation=s.generation,
    )
    old = next((c for c in s.status.conditions if c.type == stalled.type), None)
    if old is not None and old.status == "True":
        stalled = stalled.model_copy(update={"last_transition_time": old.last_transition_time})
    kept = tuple(stalled if c.type == stalled.type else c for c in status.conditions)
    return status.model_copy(update={"conditions": kept})


def make_gate_config(
    plan: TrafficPlan,
    spec: InferenceRolloutSpec | None,
    policy: RolloutPolicySpec | None,
    body_size: tuple[tuple[tuple[str, float], ...], tuple[tuple[str, float], ...]],
) -> GateConfig:
    """Everything that the gates need: the plan, spec.traffic and what of the policy concerns traffic."""
    factors, overheads = body_size
    port = spec.traffic.port if spec else 8000
    include_usage = spec.traffic.include_usage if spec else True
    if policy is None:
        return GateConfig(plan, port, include_usage, bytes_per_token=factors, overhead_bytes=overheads)
    source, mirror = policy.tenants.from_, policy.mirror
    return GateConfig(
        plan=plan,
        port=port,
        include_usage=include_usage,
        tenant_header=source.header,
        tenant_path=source.path,
        tenant_api_key_hash=bool(source.api_key_hash),
        required_tenants=policy.tenants.required,
        other_tenants=policy.tenants.other.value,
        bucket_edges=policy.length_buckets.edges,
        bytes_per_token=factors,
        overhead_bytes=overheads,
        mirror_tenants=mirror.tenants,
        mirror_except=mirror.except_tenants,
        mirror_paths=mirror.paths,
        mirror_max_bytes_per_second=parse_bytes(mirror.max_bytes_per_second),
    )


def _digest(objects: Any) -> str:
    return hashlib.sha256(json.dumps(objects, sort_keys=True, default=str).encode()).hexdigest()
