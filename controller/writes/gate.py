"""The gate's objects: workload, Service, certificate.

Applied as spec.traffic wants them, released when the rollout goes. Called by act.py.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from controller import takeover
from controller.core import variants
from controller.core.plans import entry_role
from controller.core.snapshot import Snapshot
from controller.jsonable import digest_of
from controller.ports import Cluster, Ref
from crds.v1alpha1.rollout import InferenceRolloutSpec
from shadow.envoy.bootstrap import Upstream
from shadow.envoy.workload import GateWorkload, make_gate_objects

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


class GateWriter:
    """Applies and releases gates, and knows which ones this process has applied."""

    def __init__(self, cluster: Cluster, settings: GateSettings) -> None:
        self._cluster, self._settings = cluster, settings
        self._applied: dict[str, str] = {}

    def is_applied(self, key: str, spec: InferenceRolloutSpec | None) -> bool:
        """Whether this process has applied the gate's objects as spec wants them, and its Deployment exists."""
        if spec is None:
            return key in self._applied
        namespace, _, name = key.partition("/")
        wanted = digest_of(self._objects(namespace, name, spec))
        exists = self._cluster.get_cached("deployments", namespace, f"{name}-gate") is not None
        return exists and self._applied.get(key) == wanted

    def forget(self, key: str) -> None:
        """A rollout is gone."""
        self._applied.pop(key, None)

    def apply(self, s: Snapshot) -> None:
        """Make the gate's objects as spec.traffic wants them."""
        if s.spec is None:
            return
        objects = self._objects(s.namespace, s.name, s.spec)
        if self._settings.certificates is not None:
            self._cluster.apply(self._settings.certificates.gate_secret(s.namespace, s.name), "secrets")
        for obj in objects:
            self._cluster.apply(obj, _PLURALS[obj["kind"]])
        self._applied[s.key] = digest_of(objects)

    def release(self, s: Snapshot, rev10: str) -> None:
        """Point the Services at the serving pods (`rev10`; "": none serve), then remove the gate."""
        taken = s.spec.traffic.take_over_service if s.spec is not None else None
        if taken:
            takeover.give_back(self._cluster, s, taken, rev10)
        name = f"{s.name}-gate"
        service = Ref("v1", "services", s.namespace, name)
        if rev10:
            role = entry_role(s.frozen(rev10))
            selector = {variants.GATE: None, **variants.variant_labels(s.name, rev10, role)}
            self._cluster.patch(service, {"spec": {"selector": selector}})
        else:
            self._cluster.delete(service)
        self._cluster.delete(Ref("apps/v1", "deployments", s.namespace, name))
        self._cluster.delete(Ref("policy/v1", "poddisruptionbudgets", s.namespace, name))
        self._cluster.delete(Ref("v1", "configmaps", s.namespace, name))
        if self._settings.certificates is not None:
            self._cluster.delete(Ref("v1", "secrets", s.namespace, f"{name}-tls"))

    def _objects(self, namespace: str, name: str, spec: InferenceRolloutSpec) -> tuple[dict[str, Any], ...]:
        settings = self._settings
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
