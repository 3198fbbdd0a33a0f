"""The only reader of the world: caches, gates, judge and probes in, one frozen Snapshot out.

Called by reconcile.py. Reads caches only, so it works while the API server, the recorder or the database is away.
Expensive parts (digests, imports, diffs) are kept by content.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

from pydantic import ValidationError

from controller import takeover
from controller.core import freezing, times, variants
from controller.core.snapshot import DataPlane, DiffSummary, Frozen, JudgeView, PersonAction, Pod, Snapshot, Variant
from controller.ports import Clock, Cluster, Judgement, Lease, Prober, Ref, Retryable, Store
from controller.ports import DataPlane as DataPlanePort
from crds.v1alpha1.action import ActionKind
from crds.v1alpha1.conditions import TERMINAL
from crds.v1alpha1.policy import RolloutPolicySpec
from crds.v1alpha1.rollout import InferenceRolloutSpec, InferenceRolloutStatus
from manifests.diff import Diff
from manifests.digest import equal_after_normalisation
from manifests.secrets import redact_text
from policies.contract import ContractError, contract_from_mapping

T = TypeVar("T")
FINALIZER = "weighlock.dev/rollout"
PRODUCT_LABEL = "nvidia.com/gpu.product"
_KEPT = 512


class CachedCluster(Cluster, Protocol):
    """A cluster that also keeps objects which it does not watch."""

    def fetch(self, ref: Ref) -> dict[str, Any] | None:
        """An object, a few seconds old at most."""

    def refresh(self, ref: Ref) -> None:
        """Read one watched object now."""


class Memo:
    """The last few hundred answers of pure functions, by key."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The kept answer, or a new one."""
        if key not in self._kept:
            self._kept[key] = make()
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return cast(T, self._kept[key])


class Observer:
    """Makes snapshots.

    Args:
        schema_missing: fields that the API server's CRDs lack (asked for at start and now and then).
    """

    def __init__(
        self,
        cluster: CachedCluster,
        data_plane: DataPlanePort,
        judgement: Judgement,
        prober: Prober,
        store: Store,
        lease: Lease,
        clock: Clock,
        schema_missing: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self._cluster, self._data_plane, self._judgement = cluster, data_plane, judgement
        self._prober, self._store, self._lease, self._clock = prober, store, lease, clock
        self._schema_missing = schema_missing
        self._memo = Memo()
        self._gate_applied: Callable[[str, InferenceRolloutSpec | None], bool] = lambda _key, _spec: False

    def set_gate_applied(self, is_applied: Callable[[str, InferenceRolloutSpec | None], bool]) -> None:
        """Who knows whether a rollout's gate objects are as its spec wants them (act.py applies them)."""
        self._gate_applied = is_applied

    def observe(self, namespace: str, name: str) -> Snapshot | None:
        """Everything about one rollout now; None where it does not exist (any more)."""
        obj = self._cluster.get_cached("inferencerollouts", namespace, name)
        if obj is None:
            return None
        meta = obj["metadata"]
        status = InferenceRolloutStatus.model_validate(_known_status(obj.get("status") or {}))
        stored = self._stored(namespace, name)
        spec, spec_error = self._spec(obj, status, stored)
        policy, policy_error = self._policy(namespace, spec)
        target, problem = self._target(obj, spec if not spec_error else None, policy)
        diff = self._diff(stored.get(status.stable), target)
        plane = replace(
            self._plane(f"{namespace}/{name}", namespace, name, spec),
            service_taken=self._service_taken(namespace, name, meta["uid"], spec),
        )
        attempt_policy = self._attempt_policy(stored.get(status.candidate)) if status.candidate else None
        if status.stable and status.phase in TERMINAL and policy is not None and not policy_error:
            self._judgement.put_history_contract(f"{namespace}/{name}", _dump(policy))
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
            has_finalizer=FINALIZER in (meta.get("finalizers") or ()),
            target=target,
            stored=stored,
            diff=summary_of(diff),
            variants=self._variants(namespace, name, stored, spec, status),
            data_plane=plane,
            judge=self._judge(f"{namespace}/{name}", status),
            traffic=self._judgement.traffic(f"{namespace}/{name}"),
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
        if old is None or new is None:
            return None
        return self._memo.get(("diff", old.rev10, new.rev10), lambda: freezing.effective_diff(old, new))

    # --- spec, policy, revisions ---

    def _spec(
        self, obj: Mapping[str, Any], status: InferenceRolloutStatus, stored: Mapping[str, Frozen]
    ) -> tuple[InferenceRolloutSpec | None, str]:
        key = ("spec", obj["metadata"]["uid"], _digest(obj.get("spec")))
        found = self._memo.get(key, lambda: _parse_spec(obj.get("spec") or {}))
        if isinstance(found, InferenceRolloutSpec):
            return found, ""
        last = stored.get(status.candidate) or stored.get(status.stable)
        return (freezing.spec_from(last) if last is not None else None), found

    def _policy(self, namespace: str, spec: InferenceRolloutSpec | None) -> tuple[RolloutPolicySpec | None, str]:
        if spec is None:
            return None, ""
        if spec.policy is not None:
            return spec.policy, self._contract_error(spec.policy, "spec.policy")
        name = spec.policy_ref.name if spec.policy_ref else ""
        obj = self._cluster.get_cached("rolloutpolicies", namespace, name)
        if obj is None:
            return None, f"spec.policyRef names RolloutPolicy {name}, which does not exist in {namespace}; create it."
        try:
            policy = RolloutPolicySpec.model_validate(obj["spec"])
        except ValidationError as error:
            return None, f"RolloutPolicy {name}: {first_error(error)}"
        return policy, self._contract_error(policy, f"RolloutPolicy {name}")

    def _contract_error(self, policy: RolloutPolicySpec, where: str) -> str:
        def check() -> str:
            try:
                contract_from_mapping(_dump(policy))
            except ContractError as error:
                return f"{where}: {error}"
            return ""

        return self._memo.get(("contract", where, policy.model_dump_json()), check)

    def _target(
        self, obj: Mapping[str, Any], spec: InferenceRolloutSpec | None, policy: RolloutPolicySpec | None
    ) -> tuple[Frozen | None, str]:
        if spec is None or spec.workload_ref is not None:
            text = "spec.workloadRef is not supported yet; write spec.template or spec.roles."
            return None, text if spec is not None else ""
        namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
        needed = freezing.needed_config_maps(freezing.frozen_roles(spec))
        contents: dict[str, Mapping[str, str] | None] = {}
        for source in sorted(needed):
            try:
                found = self._cluster.fetch(Ref("v1", "configmaps", namespace, source))
            except Retryable:
                return None, ""
            contents[source] = dict(found.get("data") or {}) if found is not None else None
        policy_text = policy.model_dump_json() if policy else ""
        key = ("target", obj["metadata"]["uid"], _digest(obj["spec"]), _digest(contents), policy_text)
        created = times.to_short_text(self._clock.now())
        return self._memo.get(key, lambda: freezing.freeze(namespace, name, spec, policy, contents, created)), ""

    def _stored(self, namespace: str, name: str) -> dict[str, Frozen]:
        found = {}
        for obj in self._cluster.cached("runmanifests", namespace, {variants.ROLLOUT: name}):
            meta = obj["metadata"]
            if meta.get("deletionTimestamp"):
                continue
            key = ("stored", meta["uid"], meta.get("resourceVersion"))
            frozen = self._memo.get(key, lambda obj=obj: _read_stored(obj))  # type: ignore[misc]
            if frozen is not None:
                found[frozen.rev10] = frozen
        return found

    def _diff(self, old: Frozen | None, new: Frozen | None) -> tuple[Frozen, Frozen, Diff | None] | None:
        if old is None or new is None:
            return None
        return old, new, self.diff_between(old, new)

    def _attempt_policy(self, frozen: Frozen | None) -> RolloutPolicySpec | None:
        if frozen is None or not frozen.manifest.policy:
            return None
        key = ("policy", frozen.rev10, frozen.stored_attempt)
        return self._memo.get(key, lambda: RolloutPolicySpec.model_validate(frozen.manifest.policy))

    # --- pods and gates ---

    def _variants(
        self,
        namespace: str,
        name: str,
        stored: Mapping[str, Frozen],
        spec: InferenceRolloutSpec | None,
        status: InferenceRolloutStatus,
    ) -> dict[str, Variant]:
        replicas: dict[str, dict[str, int]] = {}
        drift: dict[str, list[str]] = {}
        for obj in self._cluster.cached("deployments", namespace, {variants.ROLLOUT: name}):
            labels, meta = obj["metadata"]["labels"], obj["metadata"]
            rev10, role = labels.get(variants.REVISION), labels.get(variants.ROLE)
            if rev10 is None or role is None or meta.get("deletionTimestamp"):
                continue
            replicas.setdefault(rev10, {})[role] = int(obj["spec"].get("replicas", 1))
            drift.setdefault(rev10, []).extend(self._drift(obj, stored.get(rev10), role))
        pods = self._pods(namespace, name, spec, status)
        return {
            rev: Variant(rev, replicas.get(rev, {}), tuple(pods.get(rev, ())), ", ".join(drift.get(rev, ())[:5]))
            for rev in {*replicas, *pods}
        }

    def _drift(self, obj: Mapping[str, Any], frozen: Frozen | None, role: str) -> list[str]:
        if frozen is None:
            return []
        wanted = next((r for r in frozen.manifest.roles if r.name == role), None)
        if wanted is None:
            return [f"role {role} is not in the stored manifest"]

        def compare() -> list[str]:
            labels = obj["metadata"]["labels"]
            stored = variants.make_template(wanted, labels, frozen.config_maps)
            return equal_after_normalisation(stored, obj["spec"]["template"])

        meta = obj["metadata"]
        return self._memo.get(("drift", meta["uid"], meta.get("generation"), frozen.rev10), compare)

    def _pods(
        self, namespace: str, name: str, spec: InferenceRolloutSpec | None, status: InferenceRolloutStatus
    ) -> dict[str, list[Pod]]:
        port = spec.traffic.port if spec else 8000
        found: dict[str, list[Pod]] = {}
        targets: dict[str, str] = {}
        for obj in self._cluster.cached("pods", namespace, {variants.ROLLOUT: name}):
            labels, meta = obj["metadata"]["labels"], obj["metadata"]
            if variants.REVISION not in labels:
                continue
            pod = make_pod(obj)
            uid = meta["uid"]
            if labels[variants.REVISION] == status.candidate and pod.ip and pod.ready and not pod.terminating:
                targets[uid] = f"http://{host_of(pod.ip)}:{port}"
                answered, failures, error = self._prober.result(uid)
                is_servable = answered or _was_proven(pod, status)
                pod = replace(pod, servable=is_servable, probe_failures=failures, probe_error=error)
            found.setdefault(pod.revision, []).append(pod)
        self._prober.watch(f"{namespace}/{name}", targets)
        return found

    def _plane(self, key: str, namespace: str, name: str, spec: InferenceRolloutSpec | None) -> DataPlane:
        pods = self._cluster.cached("pods", namespace, {"weighlock.dev/gate": name})
        gates = [p["metadata"]["name"] for p in pods if is_ready(p) and not p["metadata"].get("deletionTimestamp")]
        view = self._data_plane.view(key, gates)
        return replace(view, applied=self._gate_applied(key, spec), open_requests=self._judgement.open_requests(key))

    def _service_taken(self, namespace: str, name: str, uid: str, spec: InferenceRolloutSpec | None) -> bool:
        wanted = spec.traffic.take_over_service if spec is not None else None
        if not wanted:
            return True
        try:
            return takeover.is_taken(self._cluster.fetch(Ref("v1", "services", namespace, wanted)), name, uid)
        except Retryable:
            return True  # nobody can say; it is looked at again

    # --- judge, people, neighbours ---

    def _judge(self, key: str, status: InferenceRolloutStatus) -> JudgeView:
        is_weighing = bool(status.candidate) and status.phase not in TERMINAL and not status.baseline
        attempt = status.attempt if is_weighing else 0
        since_s = times.from_text(status.attempt_started_at) if is_weighing else None
        return self._judgement.view(
            key, attempt, status.candidate, status.step.index, since_s if since_s is not None else self._clock.now()
        )

    def _actions(self, namespace: str, name: str, born: str) -> tuple[PersonAction, ...]:
        """Acts on this rollout; those on a deleted namesake (older than the object) are no business of this one."""
        found = []
        for obj in self._cluster.cached("rolloutactions", namespace):
            if obj["spec"].get("rollout") == name and obj["metadata"]["creationTimestamp"] >= born:
                found.append(_person_action(obj))
        return tuple(found)

    def _conflict(self, obj: Mapping[str, Any], spec: InferenceRolloutSpec | None) -> str:
        """The older rollout that claims the same Service, route or workload; locks need no memory of their own."""
        mine = _claims(obj.get("spec") or {})
        if not mine:
            return ""
        meta = obj["metadata"]
        for other in self._cluster.cached("inferencerollouts", meta["namespace"]):
            its = other["metadata"]
            is_older = (its["creationTimestamp"], its["uid"]) < (meta["creationTimestamp"], meta["uid"])
            if is_older and mine & _claims(other.get("spec") or {}):
                return str(its["name"])
        return ""


def summary_of(found: tuple[Frozen, Frozen, Diff | None] | None) -> DiffSummary | None:
    """What the machine needs of a comparison."""
    return freezing.summarise(*found) if found is not None else None


def first_error(error: ValidationError) -> str:
    """Field and problem of a pydantic error, as a sentence."""
    first = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in first["loc"]) or "spec"
    return f"{path}: {str(first['msg']).removeprefix('Value error, ')}."


def _was_proven(pod: Pod, status: InferenceRolloutStatus) -> bool:
    """Whether a pod was ready before the step in force began: the step could not have begun without its answer.

    A new leader has no probe results yet; it must not take that for a dead candidate.
    """
    began_s = times.from_text(status.step.started_at)
    if began_s is None and status.step.weight > 0:
        began_s = times.from_text(status.phase_started_at)
    return began_s is not None and pod.ready_since_s is not None and pod.ready_since_s <= began_s


def _parse_spec(raw: Mapping[str, Any]) -> InferenceRolloutSpec | str:
    try:
        return InferenceRolloutSpec.model_validate(raw)
    except ValidationError as error:
        return f"spec.{first_error(error)} Correct it; nothing moves until then."


def _known_status(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Status without fields of a newer release: a downgrade must read it too."""
    known = {f.alias or name for name, f in InferenceRolloutStatus.model_fields.items()}
    return {key: value for key, value in raw.items() if key in known}


def _read_stored(obj: Mapping[str, Any]) -> Frozen | None:
    try:
        return freezing.from_object(obj)
    except ValidationError:
        return None


def _person_action(obj: Mapping[str, Any]) -> PersonAction:
    spec, meta = obj["spec"], obj["metadata"]
    return PersonAction(
        uid=meta["uid"],
        name=meta["name"],
        kind=ActionKind(spec["action"]),
        user=spec.get("user", ""),
        created_s=times.from_text(meta.get("creationTimestamp")) or 0.0,
        revision=spec.get("revision", ""),
        attempt=int(spec.get("attempt", 0)),
        step=int(spec.get("step", 0)),
        evidence=spec.get("evidence", ""),
        reason=spec.get("reason", ""),
    )


def _claims(spec: Mapping[str, Any]) -> set[tuple[str, str]]:
    traffic, ref = spec.get("traffic") or {}, spec.get("workloadRef") or {}
    claims = {
        ("service", traffic.get("takeOverService")),
        ("route", traffic.get("httpRoute")),
        ("workload", f"{ref.get('kind')}/{ref.get('name')}" if ref else None),
    }
    return {(kind, str(name)) for kind, name in claims if name}


def is_ready(obj: Mapping[str, Any]) -> bool:
    """Whether a pod's Ready condition is true."""
    return _condition(obj, "Ready").get("status") == "True"


def _condition(obj: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c.get("type") == kind), {})


def make_pod(obj: Mapping[str, Any]) -> Pod:
    """The parts of a pod that decisions depend on."""
    meta, status = obj["metadata"], obj.get("status") or {}
    labels = meta["labels"]
    containers = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    ended = [t for c in containers for t in (_ended(c, "state"), _ended(c, "lastState")) if t]
    ready = _condition(obj, "Ready")
    is_up = ready.get("status") == "True"
    placed = _condition(obj, "PodScheduled")
    is_unplaced = placed.get("status") == "False" and placed.get("reason") == "Unschedulable"
    bad = [t for t in ended if t.get("exitCode") not in (0, None) or t.get("reason") == "OOMKilled"]
    return Pod(
        name=meta["name"],
        revision=labels[variants.REVISION],
        role=labels.get(variants.ROLE, variants.SINGLE_ROLE),
        ip=status.get("podIP") or "",
        created_s=times.from_text(meta.get("creationTimestamp")) or 0.0,
        ready=is_up,
        ready_since_s=times.from_text(ready.get("lastTransitionTime")) if is_up else None,
        terminating=bool(meta.get("deletionTimestamp")),
        servable=is_up,
        restarts=sum(int(c.get("restartCount") or 0) for c in containers),
        oom_killed=any(t.get("reason") == "OOMKilled" for t in ended),
        crash=_last_words(bad[-1]) if bad else "",
        unschedulable=str(placed.get("message") or "no node fits") if is_unplaced else "",
        product=str((obj.get("spec") or {}).get("nodeSelector", {}).get(PRODUCT_LABEL, "")),
    )


def _ended(container: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = (container.get(name) or {}).get("terminated")
    return found


def _last_words(ended: Mapping[str, Any]) -> str:
    reason = f"{ended.get('reason', 'Error')}, exit code {ended.get('exitCode')}"
    message = redact_text(" ".join(str(ended.get("message") or "").split())[-300:])
    return f"{reason}: {message}" if message else reason


def host_of(address: str) -> str:
    """An address as it stands in a URL."""
    return f"[{address}]" if ":" in address else address


def _dump(model: RolloutPolicySpec) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
