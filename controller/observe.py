"""The only reader of the world: caches, gates, judge and probes in, one frozen Snapshot out.

Called by reconcile.py. Reads caches only, so it works while the API server, the recorder or the database is away.
reads/revisions.py reads what is asked for and stored, reads/workloads.py what runs.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from controller import takeover
from controller.core import freezing, times, variants
from controller.core.snapshot import DataPlane, Frozen, JudgeView, PersonAction, Snapshot, Trial, Variant
from controller.ports import Clock, Cluster, Judgement, Lease, Prober, Ref, Retryable, Store
from controller.ports import DataPlane as DataPlanePort
from controller.reads.hardware import hardware_holds
from controller.reads.parsing import claims, known_status, person_action
from controller.reads.revisions import RevisionReader
from controller.reads.workloads import WorkloadReader
from crds.v1alpha1.conditions import TERMINAL
from crds.v1alpha1.rollout import InferenceRolloutSpec, InferenceRolloutStatus
from manifests.diff import Diff
from policies.verdict import Hold


class Observer:
    """Makes snapshots.

    Args:
        schema_missing: fields that the API server's CRDs lack (asked for at start and now and then).
    """

    def __init__(
        self,
        cluster: Cluster,
        data_plane: DataPlanePort,
        judgement: Judgement,
        prober: Prober,
        store: Store,
        lease: Lease,
        clock: Clock,
        schema_missing: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self._cluster, self._data_plane, self._judgement = cluster, data_plane, judgement
        self._store, self._lease, self._clock = store, lease, clock
        self._schema_missing = schema_missing
        self._revisions, self._workloads = RevisionReader(cluster, clock), WorkloadReader(cluster, prober, clock)
        self._gate_applied: Callable[[str, InferenceRolloutSpec | None], bool] = lambda _key, _spec: False
        self._trial: Callable[[str, str, int], Trial | None] = lambda _key, _rev10, _attempt: None

    def set_actor(
        self,
        is_applied: Callable[[str, InferenceRolloutSpec | None], bool],
        trial: Callable[[str, str, int], Trial | None],
    ) -> None:
        """What only act.py knows: whether a rollout's gate objects are as its spec wants them, and dry runs."""
        self._gate_applied, self._trial = is_applied, trial

    def observe(self, namespace: str, name: str) -> Snapshot | None:
        """Everything about one rollout now; None where it does not exist (any more)."""
        obj = self._cluster.get_cached("inferencerollouts", namespace, name)
        if obj is None:
            return None
        key = f"{namespace}/{name}"
        meta = obj["metadata"]
        status = InferenceRolloutStatus.model_validate(known_status(obj.get("status") or {}))
        stored = self._revisions.stored(namespace, name)
        spec, spec_error = self._revisions.spec(obj, status, stored)
        policy, policy_error = self._revisions.policy(namespace, spec)
        target, problem = self._revisions.target(obj, spec if not spec_error else None, policy)
        attempt_policy = self._revisions.attempt_policy(stored.get(status.candidate)) if status.candidate else None
        running = self._workloads.variants(namespace, name, stored, spec, status)
        if status.stable and status.phase in TERMINAL and policy is not None and not policy_error:
            self._judgement.put_history_contract(key, freezing.dump(policy))
        return Snapshot(
            namespace=namespace,
            name=name,
            uid=meta["uid"],
            generation=int(meta.get("generation", 0)),
            now_s=self._clock.now(),
            status=status,
            spec=spec,
            spec_error=spec_error or problem,
            deleted_s=times.from_text(meta.get("deletionTimestamp")),
            has_finalizer=variants.FINALIZER in (meta.get("finalizers") or ()),
            target=target,
            stored=stored,
            diff=self._revisions.summary(stored.get(status.stable), target),
            variants=running,
            data_plane=self._plane(namespace, name, meta["uid"], spec),
            judge=self._judge(key, status, self._hardware_holds(status, running, stored)),
            traffic=self._judgement.traffic(key),
            trial=self._trial(key, status.candidate, status.attempt),
            actions=self._actions(namespace, name, meta["creationTimestamp"]),
            policy=policy,
            policy_error=policy_error,
            attempt_policy=attempt_policy,
            conflict=self._conflict(obj, spec),
            schema_missing=self._schema_missing(),
            store_ok=self._store.healthy(),
            lease_held=self._lease.is_held(),
        )

    def diff_between(self, old: Frozen | None, new: Frozen | None) -> Diff | None:
        """The effective comparison of two revisions, for people."""
        return self._revisions.diff_between(old, new)

    def _plane(self, namespace: str, name: str, uid: str, spec: InferenceRolloutSpec | None) -> DataPlane:
        key = f"{namespace}/{name}"
        return replace(
            self._data_plane.view(key, self._workloads.gates(namespace, name)),
            applied=self._gate_applied(key, spec),
            service_taken=self._service_taken(namespace, name, uid, spec),
            open_requests=self._judgement.open_requests(key),
        )

    def _service_taken(self, namespace: str, name: str, uid: str, spec: InferenceRolloutSpec | None) -> bool:
        wanted = spec.traffic.take_over_service if spec is not None else None
        if not wanted:
            return True
        try:
            return takeover.is_taken(self._cluster.fetch(Ref("v1", "services", namespace, wanted)), name, uid)
        except Retryable:
            return True  # nobody can say; it is looked at again

    def _hardware_holds(
        self, status: InferenceRolloutStatus, running: Mapping[str, Variant], stored: Mapping[str, Frozen]
    ) -> tuple[Hold, ...]:
        old, new = status.stable, status.candidate
        if old not in running or new not in running:
            return ()
        return hardware_holds(running[old].pods, running[new].pods, stored.get(old), stored.get(new))

    def _judge(self, key: str, status: InferenceRolloutStatus, guards: tuple[Hold, ...]) -> JudgeView:
        is_weighing = bool(status.candidate) and status.phase not in TERMINAL and not status.baseline
        attempt = status.attempt if is_weighing else 0
        since_s = times.from_text(status.attempt_started_at) if is_weighing else None
        began_s = since_s if since_s is not None else self._clock.now()
        return self._judgement.view(key, attempt, status.candidate, status.step.index, began_s, guards)

    def _actions(self, namespace: str, name: str, born: str) -> tuple[PersonAction, ...]:
        """Acts on this rollout; those on a deleted namesake (older than the object) are no business of this one."""
        found = []
        for obj in self._cluster.cached("rolloutactions", namespace):
            if obj["spec"].get("rollout") == name and obj["metadata"]["creationTimestamp"] >= born:
                found.append(person_action(obj))
        return tuple(found)

    def _conflict(self, obj: Mapping[str, Any], spec: InferenceRolloutSpec | None) -> str:
        """The older rollout that claims the same Service, route or workload; locks need no memory of their own."""
        mine = claims(obj.get("spec") or {})
        if not mine:
            return ""
        meta = obj["metadata"]
        for other in self._cluster.cached("inferencerollouts", meta["namespace"]):
            its = other["metadata"]
            is_older = (its["creationTimestamp"], its["uid"]) < (meta["creationTimestamp"], meta["uid"])
            if is_older and mine & claims(other.get("spec") or {}):
                return str(its["name"])
        return ""
