"""Objects of a variant: one Deployment (or LeaderWorkerSet) per role, and immutable copies of what it mounts.

Pure builders, called by writes/variants.py (to apply) and reads/workloads.py (to compare). The pod template is the
user's, byte for byte, plus our labels and with ConfigMap names replaced by those of our copies. Nothing here has an
owner: a promotion, a deletion of the rollout or of its source objects must not touch a serving pod.
"""

import copy
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from controller.core.snapshot import Frozen
from crds.v1alpha1.manifest import FrozenRole
from manifests.model import canonical_json

OWNED = {"app.kubernetes.io/managed-by": "weighlock"}
ROLLOUT, REVISION, ROLE = "weighlock.dev/rollout", "weighlock.dev/revision", "weighlock.dev/role"
SOURCE = "weighlock.dev/source"
GATE = "weighlock.dev/gate"
FINALIZER = "weighlock.dev/rollout"
SINGLE_ROLE = "server"
_LONGEST_NAME = 253


def variant_name(rollout: str, rev10: str, role: str) -> str:
    """`<rollout>-<rev10>`, with the role where there are several."""
    return f"{rollout}-{rev10}" if role == SINGLE_ROLE else f"{rollout}-{rev10}-{role}"


def variant_labels(rollout: str, rev10: str, role: str) -> dict[str, str]:
    """Labels of a variant and of its pods. None says stable or candidate: a promotion changes no pod."""
    return {**OWNED, ROLLOUT: rollout, REVISION: rev10, ROLE: role}


def make_workload(rollout: str, namespace: str, frozen: Frozen, role: FrozenRole, replicas: int) -> dict[str, Any]:
    """The Deployment or LeaderWorkerSet of one role."""
    labels = variant_labels(rollout, frozen.rev10, role.name)
    metadata = {"name": variant_name(rollout, frozen.rev10, role.name), "namespace": namespace, "labels": labels}
    template = make_template(role, labels, frozen.config_maps)
    if role.leader_worker:
        spec: dict[str, Any] = {"replicas": replicas, "leaderWorkerTemplate": template}
        return {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": metadata,
            "spec": spec,
        }
    selector = {"matchLabels": {key: labels[key] for key in (ROLLOUT, REVISION, ROLE)}}
    spec = {"replicas": replicas, "revisionHistoryLimit": 1, "selector": selector, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def make_template(role: FrozenRole, labels: Mapping[str, str], copies: Mapping[str, str]) -> dict[str, Any]:
    """The user's template with our labels and ConfigMap copies; the input is not changed."""
    template = copy.deepcopy(role.template)
    for pod in pod_templates(template, role.leader_worker):
        meta = pod.setdefault("metadata", {})
        meta["labels"] = {**(meta.get("labels") or {}), **labels}
        for holder in config_map_references(pod.get("spec") or {}):
            holder["name"] = copies.get(holder["name"], holder["name"])
    return template


def pod_templates(template: dict[str, Any], leader_worker: bool) -> Iterator[dict[str, Any]]:
    """Pod templates inside a role's template."""
    if not leader_worker:
        yield template
        return
    for name in ("leaderTemplate", "workerTemplate"):
        if isinstance(template.get(name), dict):
            yield template[name]


def config_map_references(pod: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every mapping inside a pod spec whose `name` names a ConfigMap."""
    for volume in pod.get("volumes") or ():
        if isinstance(volume.get("configMap"), dict):
            yield volume["configMap"]
        for source in (volume.get("projected") or {}).get("sources") or ():
            if isinstance(source.get("configMap"), dict):
                yield source["configMap"]
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in pod.get(kind) or ():
            for entry in container.get("envFrom") or ():
                if isinstance(entry.get("configMapRef"), dict):
                    yield entry["configMapRef"]
            for variable in container.get("env") or ():
                reference = (variable.get("valueFrom") or {}).get("configMapKeyRef")
                if isinstance(reference, dict):
                    yield reference


def referenced_config_maps(role_template: Mapping[str, Any], leader_worker: bool) -> dict[str, bool]:
    """Names of ConfigMaps that a role needs -> whether one of the references is not optional."""
    found: dict[str, bool] = {}
    for pod in pod_templates(dict(role_template), leader_worker):
        for holder in config_map_references(pod.get("spec") or {}):
            name = str(holder.get("name", ""))
            if name:
                found[name] = found.get(name, False) or not holder.get("optional", False)
    return found


def copy_name(source: str, content: Mapping[str, Any]) -> str:
    """Name of our copy of a ConfigMap: its own name and a digest of its content."""
    digest = hashlib.sha256(canonical_json(dict(content)).encode()).hexdigest()[:10]
    return f"{source[: _LONGEST_NAME - 11]}-{digest}"


def make_config_map(rollout: str, namespace: str, source: str, name: str, data: Mapping[str, str]) -> dict[str, Any]:
    """Our immutable copy."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**OWNED, ROLLOUT: rollout},
            "annotations": {SOURCE: source},
        },
        "immutable": True,
        "data": dict(data),
    }
