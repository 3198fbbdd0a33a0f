"""Platforms with roles and groups: Dynamo, AIBrix (StormService, RoleSet, RayClusterFleet), Ray, production-stack's
VLLMRuntime."""

from __future__ import annotations

from typing import Any

from manifests.importers.kubernetes import workload_of
from manifests.importers.registry import (
    Field,
    JsonObject,
    Scope,
    Workload,
    items,
    mapping,
    merge_env,
    name_of,
    reader,
    text_list,
    whole_number,
)
from manifests.importers.serving import field
from manifests.importers.values import vllm_workload
from manifests.yamlsafe import YamlRefused, load_all


@reader("DynamoGraphDeployment")
def read_dynamo_graph(obj: JsonObject, scope: Scope) -> list[Workload]:
    """Dynamo: ``spec.services`` (v1alpha1) or ``spec.components`` (v1beta1), each with a main container."""
    spec = mapping(obj.get("spec"))
    shared = merge_env(spec.get("envs"), spec.get("env"))
    framework = str(spec.get("backendFramework") or "").lower()
    out = []
    for name, part in mapping(spec.get("services")).items():
        out.append(_service(obj, str(name), mapping(part), shared, framework))
    for index, part in enumerate(items(spec.get("components"))):
        out.append(_component(obj, index, part, shared, framework))
    return [workload for workload in out if workload is not None]


def _dynamo_role(*words: Any) -> str | None:
    for word in words:
        text = str(word or "").lower()
        for role in ("frontend", "prefill", "decode", "router", "worker"):
            if text == role or (role != "worker" and role in text):
                return role
    return None


def _service(obj: JsonObject, name: str, part: JsonObject, shared: list[JsonObject], framework: str) -> Workload:
    pod = dict(mapping(part.get("extraPodSpec")))
    main = dict(mapping(pod.pop("mainContainer", None)))
    main["name"] = main.get("name") or "main"
    main["env"] = merge_env(shared, part.get("envs"), main.get("env"))
    limits = mapping(mapping(part.get("resources")).get("limits"))
    requests = mapping(mapping(part.get("resources")).get("requests"))
    own = mapping(main.get("resources"))
    main["resources"] = {
        **own,
        "limits": {**limits, **mapping(own.get("limits"))},
        "requests": {**requests, **mapping(own.get("requests"))},
        "claims": mapping(part.get("resources")).get("claims") or own.get("claims"),
    }
    if part.get("envFromSecret"):
        main["envFrom"] = [*items(main.get("envFrom")), {"secretRef": {"name": part["envFromSecret"]}}]
    pod["containers"] = [main, *items(pod.get("containers"))]
    role = _dynamo_role(part.get("subComponentType"), part.get("componentType"), name)
    return workload_of(
        obj,
        {"spec": pod},
        f"spec.services.{name}.extraPodSpec",
        name=name,
        role=None if role == "worker" else role,
        replicas=whole_number(part.get("replicas")),
        pods=whole_number(mapping(part.get("multinode")).get("nodeCount")) or 1,
        server=("main",) if main["name"] == "main" else (),
        patch=False,
        engine=f"dynamo-{framework}" if framework else None,
        accelerator="gpu" if "gpu" in limits else None,
    )


def _component(obj: JsonObject, index: int, part: JsonObject, shared: list[JsonObject], framework: str) -> Workload:
    template = mapping(part.get("podTemplate"))
    pod = dict(mapping(template.get("spec")))
    containers = []
    for container in items(pod.get("containers")):
        containers.append(
            {**container, "env": merge_env(shared, part.get("envs"), part.get("env"), container.get("env"))}
        )
    pod["containers"] = containers
    name = str(part.get("name") or f"component-{index}")
    role = _dynamo_role(part.get("type"), part.get("subComponentType"), name)
    return workload_of(
        obj,
        {**template, "spec": pod},
        f"spec.components[{index}].podTemplate.spec",
        name=name,
        role=None if role == "worker" else role,
        replicas=whole_number(part.get("replicas")),
        pods=whole_number(mapping(part.get("multinode")).get("nodeCount")) or 1,
        engine=f"dynamo-{framework}" if framework else None,
        patch=False,
    )


@reader("StormService", "RoleSet", "PodSet")
def read_storm_service(obj: JsonObject, scope: Scope) -> list[Workload]:
    """AIBrix: roles with a pod template each; ``podGroupSize`` pods serve as one."""
    spec = mapping(obj.get("spec"))
    inner = mapping(mapping(spec.get("template")).get("spec")) if obj.get("kind") == "StormService" else spec
    base = "spec.template.spec" if obj.get("kind") == "StormService" else "spec"
    variables = {
        name: f"$({name})"
        for name in (
            "STORM_SERVICE_NAME",
            "ROLESET_NAME",
            "ROLE_NAME",
            "PODSET_NAME",
            "POD_GROUP_INDEX",
            "ROLE_REPLICA_INDEX",
            "POD_NAME",
        )
    }
    out = []
    for index, role in enumerate(items(inner.get("roles"))):
        name = str(role.get("name") or f"role-{index}")
        kind = next((word for word in ("prefill", "decode", "rout") if word in name.lower()), None)
        out.append(
            workload_of(
                obj,
                mapping(role.get("template")),
                f"{base}.roles[{index}].template.spec",
                name=name,
                replicas=whole_number(role.get("replicas")),
                pods=whole_number(role.get("podGroupSize")) or 1,
                role="router" if kind == "rout" else kind,
                variables=variables,
                patch=False,
            )
        )
    return out


@reader("RayClusterFleet", "RayClusterReplicaSet")
def read_ray_fleet(obj: JsonObject, scope: Scope) -> list[Workload]:
    """AIBrix: a Ray cluster per replica."""
    spec = mapping(obj.get("spec"))
    return _ray_cluster(
        obj,
        mapping(mapping(spec.get("template")).get("spec")),
        "spec.template.spec",
        whole_number(spec.get("replicas")),
    )


@reader("RayCluster")
def read_ray_cluster(obj: JsonObject, scope: Scope) -> list[Workload]:
    """KubeRay's cluster."""
    return _ray_cluster(obj, mapping(obj.get("spec")), "spec", 1)


@reader("RayJob")
def read_ray_job(obj: JsonObject, scope: Scope) -> list[Workload]:
    """KubeRay's job with a cluster of its own."""
    return _ray_cluster(obj, mapping(mapping(obj.get("spec")).get("rayClusterSpec")), "spec.rayClusterSpec", 1)


@reader("RayService")
def read_ray_service(obj: JsonObject, scope: Scope) -> list[Workload]:
    """KubeRay's service: the engine's settings stand in ``serveConfigV2`` (Ray Serve LLM), the pods in
    ``rayClusterConfig``."""
    spec = mapping(obj.get("spec"))
    cluster = _ray_cluster(obj, mapping(spec.get("rayClusterConfig")), "spec.rayClusterConfig", 1)
    fields = _serve_config(spec.get("serveConfigV2"), scope)
    if not fields:
        return cluster
    head = cluster[0] if cluster else None
    model = next((str(f.value) for f in fields if f.name == "model"), None)
    pods = len(cluster)
    base = head or workload_of(obj, {"spec": {"containers": [{"name": "ray-head"}]}}, "spec")
    name = next((str(c.get("name")) for c in items(base.pod.get("containers"))), "ray-head")
    served = workload_of(
        obj,
        {"spec": base.pod},
        base.path,
        rank="leader" if pods > 1 else None,
        replicas=1,
        pods=max(1, pods),
        engine="vllm",
        server=(name,),
        fields=tuple(fields),
        model_id=model,
        patch=False,
        role="server",
    )
    return [served, *cluster[1:]]


def _serve_config(text: Any, scope: Scope) -> list[Field]:
    if not isinstance(text, str):
        return []
    try:
        documents = load_all(text)
    except YamlRefused as refused:
        scope.problems.append(("bad-value", "spec.serveConfigV2", f"not readable: {refused}"))
        return []
    out: list[Field] = []
    for application in items(mapping(documents[0].value if documents else {}).get("applications")):
        for config in items(mapping(application.get("args")).get("llm_configs")):
            loading = mapping(config.get("model_loading_config"))
            source = loading.get("model_source") or loading.get("model_id")
            if source:
                out.append(field("model", str(source), "model_loading_config"))
            for key, value in mapping(config.get("engine_kwargs")).items():
                out.append(field(str(key).replace("_", "-"), value, f"engine_kwargs.{key}"))
    return out


def _ray_cluster(obj: JsonObject, cluster: JsonObject, path: str, replicas: int | None) -> list[Workload]:
    head = mapping(mapping(cluster.get("headGroupSpec")).get("template"))
    groups = items(cluster.get("workerGroupSpecs"))
    size = 1 + sum(whole_number(group.get("replicas")) or 1 for group in groups)
    out = []
    if head:
        out.append(
            workload_of(
                obj,
                head,
                f"{path}.headGroupSpec.template.spec",
                rank="leader" if groups else None,
                replicas=replicas,
                pods=size,
                patch=False,
            )
        )
    for index, group in enumerate(groups):
        worker = mapping(group.get("template"))
        if worker:
            out.append(
                workload_of(
                    obj,
                    worker,
                    f"{path}.workerGroupSpecs[{index}].template.spec",
                    rank="worker",
                    replicas=replicas,
                    pods=size,
                    patch=False,
                )
            )
    return out


@reader("VLLMRuntime")
def read_vllm_runtime(obj: JsonObject, scope: Scope) -> list[Workload]:
    """production-stack's custom resource: fields become arguments of ``vllm serve``."""
    spec = mapping(obj.get("spec"))
    model, config, deployment = (
        mapping(spec.get("model")),
        mapping(spec.get("vllmConfig")),
        mapping(spec.get("deploymentConfig")),
    )
    image = mapping(deployment.get("image"))
    registry, name = str(image.get("registry") or ""), str(image.get("name") or "")
    resources = mapping(deployment.get("resources"))
    gpu = whole_number(resources.get("gpu"))
    merged = {
        **{k: v for k, v in config.items() if k != "env"},
        **{k: v for k, v in model.items() if k not in ("modelURL", "hfToken")},
    }
    return [
        vllm_workload(
            name_of(obj),
            obj,
            merged,
            str(model.get("modelURL") or ""),
            f"{registry}/{name}".strip("/") or None,
            "spec",
            replicas=whole_number(deployment.get("replicas")),
            gpu=gpu if gpu is not None else 0,
            env=items(config.get("env")),
            port=config.get("port") or 8000,
            absent_prefix_caching=None,
            extra_args=text_list(config.get("extraArgs")),
        )
    ]
