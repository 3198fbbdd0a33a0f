"""Plain Kubernetes: Deployment, StatefulSet, DaemonSet, Job, CronJob, Pod, ReplicaSet, LeaderWorkerSet.

Also what can never be an engine but belongs to serving (Service, HTTPRoute, InferencePool, ...): see :data:`CONTEXT`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from manifests.importers.registry import (
    JsonObject,
    Scope,
    Workload,
    items,
    mapping,
    name_of,
    namespace_of,
    reader,
    whole_number,
)

# kind -> why it is context: it says how requests reach the engine or what it may do, not how it runs
CONTEXT: dict[str, str] = {
    "Service": "routes requests to pods; no engine in it",
    "HTTPRoute": "routes requests; no engine in it",
    "GRPCRoute": "routes requests; no engine in it",
    "Ingress": "routes requests; no engine in it",
    "Gateway": "routes requests; no engine in it",
    "VirtualService": "routes requests; no engine in it",
    "DestinationRule": "routes requests; no engine in it",
    "InferencePool": "names the pods behind a route; no engine in it",
    "InferenceModel": "names a model behind a pool (retired API); no engine in it",
    "InferenceObjective": "sets the priority of requests; no engine in it",
    "InferenceModelRewrite": "rewrites model names; no engine in it",
    "PodMonitoring": "says where metrics are scraped",
    "PodMonitor": "says where metrics are scraped",
    "ServiceMonitor": "says where metrics are scraped",
    "PrometheusRule": "rules over metrics",
    "ConfigMap": "content for the containers that mount it",
    "Secret": "credentials; read by reference only",
    "PersistentVolumeClaim": "storage",
    "PersistentVolume": "storage",
    "StorageClass": "storage",
    "ServiceAccount": "identity",
    "Role": "rights",
    "RoleBinding": "rights",
    "ClusterRole": "rights",
    "ClusterRoleBinding": "rights",
    "Namespace": "a namespace",
    "NetworkPolicy": "network rules",
    "PodDisruptionBudget": "limits voluntary disruption",
    "HorizontalPodAutoscaler": "changes replicas; not part of a revision",
    "VerticalPodAutoscaler": "changes resource requests",
    "ScaledObject": "changes replicas; not part of a revision",
    "ResourceClaimTemplate": "devices for the containers that claim them",
    "ResourceClaim": "devices for the containers that claim them",
    "ComputeDomain": "an NVLink domain for the pods that claim it",
    "ModelAdapter": "a LoRA adapter loaded at run time",
    "LoraAdapter": "a LoRA adapter loaded at run time",
    "Kustomization": "a list of files for kustomize, not an object; render it first",
    "CustomResourceDefinition": "a type, not an object of it",
    "DynamoComponentDeployment": "a part that the Dynamo operator creates",
    "NodePool": "nodes",
    "EC2NodeClass": "nodes",
}


def pod_labels(template: JsonObject, obj: JsonObject) -> JsonObject:
    """Labels of the pod template over those of the object."""
    return {
        **mapping(mapping(obj.get("metadata")).get("labels")),
        **mapping(mapping(template.get("metadata")).get("labels")),
    }


def pod_annotations(template: JsonObject, obj: JsonObject) -> JsonObject:
    """Annotations of the pod template over those of the object."""
    return {
        **mapping(mapping(obj.get("metadata")).get("annotations")),
        **mapping(mapping(template.get("metadata")).get("annotations")),
    }


def is_patch(pod: JsonObject) -> bool:
    """A workload none of whose containers has an image: a Kustomize patch."""
    containers = items(pod.get("containers"))
    return bool(containers) and all(not container.get("image") for container in containers)


def workload_of(obj: JsonObject, template: JsonObject, path: str, **more: Any) -> Workload:
    """A workload of a pod template inside an object."""
    pod = mapping(template.get("spec"))
    return Workload(
        **{
            "name": name_of(obj),
            "namespace": namespace_of(obj),
            "kind": str(obj.get("kind")),
            "path": path,
            "pod": pod,
            "labels": pod_labels(template, obj),
            "annotations": pod_annotations(template, obj),
            "patch": is_patch(pod),
            **more,
        }
    )


@reader(
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ReplicaSet",
    "Job",
    "ReplicationController",
    "CloneSet",
    "Rollout",
    "AdvancedStatefulSet",
)
def read_templated(obj: JsonObject, scope: Scope) -> list[Workload]:
    """Kinds with ``spec.template``."""
    spec = mapping(obj.get("spec"))
    template = mapping(spec.get("template"))
    kind = obj.get("kind")
    replicas = whole_number(spec.get("replicas"))
    if replicas is None and kind in ("Deployment", "StatefulSet", "ReplicaSet"):
        replicas = 1
    if not items(mapping(template.get("spec")).get("containers")):
        note = "a patch, or an object without containers: nothing in it can serve"
        return [workload_of(obj, template, "spec.template.spec", replicas=replicas, notes=(note,))]
    return [workload_of(obj, template, "spec.template.spec", replicas=replicas)]


@reader("CronJob")
def read_cron_job(obj: JsonObject, scope: Scope) -> list[Workload]:
    """A job template on a schedule."""
    template = mapping(mapping(mapping(mapping(obj.get("spec")).get("jobTemplate")).get("spec")).get("template"))
    return [workload_of(obj, template, "spec.jobTemplate.spec.template.spec")]


@reader("Pod")
def read_pod(obj: JsonObject, scope: Scope) -> list[Workload]:
    """A bare pod."""
    return [workload_of(obj, {"metadata": obj.get("metadata"), "spec": obj.get("spec")}, "spec", replicas=1)]


@reader("PodTemplate")
def read_pod_template(obj: JsonObject, scope: Scope) -> list[Workload]:
    """A stored template."""
    return [workload_of(obj, mapping(obj.get("template")), "template.spec")]


@reader("DisaggregatedSet")
def read_disaggregated_set(obj: JsonObject, scope: Scope) -> list[Workload]:
    """Roles that are LeaderWorkerSets each (prefill, decode)."""
    out: list[Workload] = []
    for index, role in enumerate(items(mapping(obj.get("spec")).get("roles"))):
        name = str(role.get("name") or f"role-{index}")
        kind = next((word for word in ("prefill", "decode") if word in name.lower()), None)
        inner = {**obj, "spec": mapping(role.get("spec"))}
        for workload in read_leader_worker_set(inner, scope):
            path = f"spec.roles[{index}].{workload.path}"
            out.append(replace(workload, name=name, role=kind, path=path))
    return out


@reader("LeaderWorkerSet")
def read_leader_worker_set(obj: JsonObject, scope: Scope) -> list[Workload]:
    """Groups of one leader and ``size - 1`` workers; without a leader template the leader runs the worker's."""
    spec = mapping(obj.get("spec"))
    group = mapping(spec.get("leaderWorkerTemplate"))
    size = whole_number(group.get("size")) or 1
    variables = {
        "LWS_GROUP_SIZE": str(size),
        "LWS_LEADER_ADDRESS": "$(LWS_LEADER_ADDRESS)",
        "LWS_WORKER_INDEX": "$(LWS_WORKER_INDEX)",
    }
    shared: JsonObject = {"replicas": whole_number(spec.get("replicas")) or 1, "pods": size, "variables": variables}
    leader, worker = mapping(group.get("leaderTemplate")), mapping(group.get("workerTemplate"))
    out = []
    if leader:
        out.append(workload_of(obj, leader, "spec.leaderWorkerTemplate.leaderTemplate.spec", rank="leader", **shared))
    if worker:
        rank = "worker" if leader else None
        out.append(workload_of(obj, worker, "spec.leaderWorkerTemplate.workerTemplate.spec", rank=rank, **shared))
    return out


@reader("InferenceRollout", "RunManifest")
def read_own_roles(obj: JsonObject, scope: Scope) -> list[Workload]:
    """Our own objects: ``spec.roles`` with a pod template or a leaderWorkerTemplate each, or ``spec.template``
    alone."""
    spec = mapping(obj.get("spec"))
    roles = items(spec.get("roles"))
    if not roles and mapping(spec.get("template")):
        roles = [{"name": name_of(obj), "replicas": spec.get("replicas"), "template": spec["template"]}]
    manifest = mapping(spec.get("manifest"))
    out: list[Workload] = []
    for index, role in enumerate(roles):
        name = str(role.get("name") or f"role-{index}")
        kind = next((word for word in ("prefill", "decode", "router", "frontend") if word in name.lower()), None)
        template = mapping(role.get("template"))
        group = mapping(role.get("leaderWorkerTemplate")) or (template if role.get("leaderWorker") else {})
        shared: JsonObject = {"name": name, "role": kind, "extra": manifest}
        if group:
            inner = {**obj, "spec": {"leaderWorkerTemplate": group, "replicas": role.get("replicas")}}
            out += [replace(found, **shared) for found in read_leader_worker_set(inner, scope)]
        else:
            path = f"spec.roles[{index}].template.spec"
            out.append(workload_of(obj, template, path, replicas=whole_number(role.get("replicas")), **shared))
    return out
