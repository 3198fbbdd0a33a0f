"""Plain Kubernetes: Deployment, StatefulSet, DaemonSet, Job, CronJob, Pod, ReplicaSet and kinds shaped like them.

Also what can never be an engine but belongs to serving (Service, HTTPRoute, InferencePool, ...): see :data:`CONTEXT`.
"""

from __future__ import annotations

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
    "Kustomization": "a list of files and patches for kustomize, not an object; render it first (kubectl kustomize)",
    "Component": "a set of patches for kustomize, not an object; render it with its base first (kubectl kustomize)",
    "CustomResourceDefinition": "a type, not an object of it",
    "PodAutoscaler": "changes replicas; not part of a revision",
    "VariantAutoscaling": "changes replicas; not part of a revision",
    "KVCache": "a cache that engines share; what an engine keeps in it stands in the engine's own manifest",
    "CacheServer": "a cache that engines share; what an engine keeps in it stands in the engine's own manifest",
    "ModelWarmup": "prepares nodes with images and weights; serves nothing",
    "BaseModel": "names weights that services refer to",
    "ClusterBaseModel": "names weights that services refer to",
    "FineTunedWeight": "names weights that services refer to",
    "AcceleratorClass": "names accelerators that runtimes refer to",
    "BenchmarkJob": "loads a service; serves nothing",
    "LocalModelCache": "keeps weights on nodes; serves nothing",
    "InferenceGraph": "routes requests between services; no engine in it",
    "DynamoGraphDeploymentRequest": "asks the Dynamo operator for a deployment that it makes itself",
    "AIGatewayRoute": "routes requests; no engine in it",
    "ResourceQuota": "limits a namespace",
    "PriorityClass": "a priority for pods",
    "Route": "routes requests; no engine in it",
    "EnvoyFilter": "changes a proxy; no engine in it",
    "TrafficPolicy": "changes a proxy; no engine in it",
    "DeviceClass": "devices for the containers that claim them",
    "LocalQueue": "admission of workloads",
    "ClusterQueue": "admission of workloads",
    "ResourceFlavor": "admission of workloads",
    "ImageStream": "names of images",
    "SealedSecret": "credentials; read by reference only",
    "ExternalSecret": "credentials; read by reference only",
    "HelmRepository": "where charts come from",
    "GitRepository": "where files come from",
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
    "DeploymentConfig",
    "Service.serving.knative.dev",
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
