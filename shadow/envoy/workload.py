"""Kubernetes objects of a rollout's gate: ConfigMap, Deployment, Service, PodDisruptionBudget. Pure builders.

Called by the controller, which applies them and waits for their pods. They hold nothing that changes during an
attempt: weights come over xDS, so no gate pod restarts because of a rollout.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

from shadow.envoy.bootstrap import TlsFiles, Upstream, bootstrap_yaml, make_secrets
from shadow.envoy.routes import READY_PATH

BOOTSTRAP_FOLDER = "/etc/weighlock"
TLS_FOLDER = f"{BOOTSTRAP_FOLDER}/tls"
GRACE_S = 120
"""A pod that is deleted gets this long for its streams."""


@dataclass(frozen=True, slots=True)
class GateWorkload:
    """What a gate's objects depend on.

    Attributes:
        namespace, rollout: the InferenceRollout.
        port: client port.
        replicas: gate pods.
        image: the gate's image.
        xds: the operator's xDS address as advertised, without TLS files.
        recorder: the recorder's access-log address as advertised, without TLS files.
        server_name: name in the certificates of both; None: no TLS.
        resources: container resources.
    """

    namespace: str
    rollout: str
    port: int
    replicas: int
    image: str
    xds: Upstream
    recorder: Upstream
    server_name: str | None = None
    resources: tuple[tuple[str, str], ...] = (("cpu", "100m"), ("memory", "128Mi"))

    @property
    def name(self) -> str:
        """Name of every object."""
        return f"{self.rollout}-gate"

    @property
    def tls_secret(self) -> str:
        """Secret with `tls.crt`, `tls.key`, `ca.crt`."""
        return f"{self.rollout}-gate-tls"

    @property
    def labels(self) -> dict[str, str]:
        return {
            "app.kubernetes.io/managed-by": "weighlock",
            "weighlock.dev/rollout": self.rollout,
            "weighlock.dev/gate": self.rollout,
        }

    @property
    def selector(self) -> dict[str, str]:
        """Labels that choose the gate's pods."""
        return {"weighlock.dev/gate": self.rollout}


def _metadata(gate: GateWorkload) -> dict[str, Any]:
    return {"name": gate.name, "namespace": gate.namespace, "labels": gate.labels}


def _tls(gate: GateWorkload) -> TlsFiles | None:
    """Paths relative to the bootstrap's folder, in which gate.py starts Envoy."""
    if gate.server_name is None:
        return None
    folder = TLS_FOLDER.removeprefix(f"{BOOTSTRAP_FOLDER}/")
    return TlsFiles(f"{folder}/tls.crt", f"{folder}/tls.key", f"{folder}/ca.crt", gate.server_name, ".")


def _bootstrap(gate: GateWorkload) -> str:
    tls = _tls(gate)
    xds = Upstream(gate.xds.host, gate.xds.port, tls)
    return bootstrap_yaml(xds, Upstream(gate.recorder.host, gate.recorder.port, tls))


def make_gate_config_map(gate: GateWorkload) -> dict[str, Any]:
    """ConfigMap with Envoy's bootstrap, and where its certificates are."""
    tls = _tls(gate)
    secrets = make_secrets(tls) if tls is not None else {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(gate),
        "data": {"bootstrap.yaml": _bootstrap(gate), **secrets},
    }


def _container(gate: GateWorkload) -> dict[str, Any]:
    files = make_gate_config_map(gate)["data"]
    mounts = [{"name": "bootstrap", "mountPath": f"{BOOTSTRAP_FOLDER}/{name}", "subPath": name} for name in files]
    if gate.server_name is not None:
        mounts.append({"name": "tls", "mountPath": TLS_FOLDER})
    ready = {"path": READY_PATH, "port": gate.port}
    return {
        "name": "gate",
        "image": gate.image,
        "command": ["python3", "-m", "shadow.envoy.gate"],
        "args": [
            f"--config={BOOTSTRAP_FOLDER}/bootstrap.yaml",
            f"--rollout={gate.namespace}/{gate.rollout}",
            f"--grace={GRACE_S - 10}",
        ],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "ports": [{"name": "http", "containerPort": gate.port}],
        "readinessProbe": {"httpGet": ready, "periodSeconds": 2, "failureThreshold": 2},
        "resources": {"requests": dict(gate.resources)},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": mounts,
    }


def gate_pod_template(gate: GateWorkload) -> dict[str, Any]:
    """Pod template of the gate; it changes, and its pods restart, only with image, port or addresses."""
    volumes: list[dict[str, Any]] = [{"name": "bootstrap", "configMap": {"name": gate.name}}]
    if gate.server_name is not None:
        volumes.append({"name": "tls", "secret": {"secretName": gate.tls_secret}})
    digest = hashlib.sha256(_bootstrap(gate).encode()).hexdigest()[:16]
    return {
        "metadata": {"labels": gate.labels, "annotations": {"weighlock.dev/bootstrap": digest}},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": GRACE_S,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "fsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": gate.selector},
                }
            ],
            "containers": [_container(gate)],
            "volumes": volumes,
        },
    }


def make_gate_deployment(gate: GateWorkload) -> dict[str, Any]:
    """Deployment: a pod goes only after its successor serves."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(gate),
        "spec": {
            "replicas": gate.replicas,
            "revisionHistoryLimit": 2,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "selector": {"matchLabels": gate.selector},
            "template": gate_pod_template(gate),
        },
    }


def make_gate_service(gate: GateWorkload) -> dict[str, Any]:
    """Service that clients use."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(gate),
        "spec": {
            "selector": gate.selector,
            "ports": [{"name": "http", "port": gate.port, "targetPort": gate.port, "protocol": "TCP"}],
        },
    }


def make_gate_budget(gate: GateWorkload) -> dict[str, Any]:
    """PodDisruptionBudget: a drain of nodes takes one gate pod at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(gate),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": gate.selector}},
    }


def make_gate_objects(gate: GateWorkload) -> tuple[dict[str, Any], ...]:
    """All objects in the order of their creation."""
    return make_gate_config_map(gate), make_gate_service(gate), make_gate_budget(gate), make_gate_deployment(gate)
