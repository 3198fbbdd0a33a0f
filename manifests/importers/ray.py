"""Ray: RayCluster, RayJob and RayService of KubeRay, and AIBrix's fleets of clusters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from manifests.importers.fields import field, left_over, under
from manifests.importers.kubernetes import workload_of
from manifests.importers.registry import (
    Field,
    JsonObject,
    Scope,
    Workload,
    items,
    mapping,
    merge_env,
    reader,
    text_list,
    whole_number,
)
from manifests.pods import accelerators
from manifests.yamlsafe import YamlRefused, load_all

_READ_CONFIG = frozenset({"model_loading_config", "engine_kwargs", "accelerator_type", "runtime_env.env_vars"})
_VLLM_PIN = re.compile(r"^vllm(?:\[[\w,-]*\])?==([\w.]+)$")


@reader("RayClusterFleet", "RayClusterReplicaSet")
def read_ray_fleet(obj: JsonObject, scope: Scope) -> list[Workload]:
    """AIBrix: a Ray cluster per replica."""
    spec = mapping(obj.get("spec"))
    inner = mapping(mapping(spec.get("template")).get("spec"))
    return _cluster(obj, inner, "spec.template.spec", whole_number(spec.get("replicas")))


@reader("RayCluster")
def read_ray_cluster(obj: JsonObject, scope: Scope) -> list[Workload]:
    """KubeRay's cluster."""
    return _cluster(obj, mapping(obj.get("spec")), "spec", 1)


@reader("RayJob")
def read_ray_job(obj: JsonObject, scope: Scope) -> list[Workload]:
    """KubeRay's job with a cluster of its own."""
    return _cluster(obj, mapping(mapping(obj.get("spec")).get("rayClusterSpec")), "spec.rayClusterSpec", 1)


@reader("RayService")
def read_ray_service(obj: JsonObject, scope: Scope) -> list[Workload]:
    """The engine's settings stand in ``serveConfigV2`` (Ray Serve LLM), the pods in ``rayClusterConfig``; a model each
    for several ``llm_configs``. An application that is a program of its own is compared as it is written."""
    spec = mapping(obj.get("spec"))
    cluster = _cluster(obj, mapping(spec.get("rayClusterConfig")), "spec.rayClusterConfig", 1)
    applications = _applications(spec.get("serveConfigV2"), scope)
    head = cluster[0] if cluster else workload_of(obj, {"spec": {"containers": [{"name": "ray-head"}]}}, "spec")
    configs = [
        (role, config)
        for application in applications
        for role, config in _llm_configs(mapping(application.get("args")))
    ]
    served = [_served(obj, head, cluster, role, config, len(configs) > 1) for role, config in configs]
    others = [app for app in applications if not _llm_configs(mapping(app.get("args")))]
    if others and not served:
        served = [_program(obj, head, cluster, others)]
    return [*served, *cluster[1:]] if served else cluster


def _applications(text: Any, scope: Scope) -> list[JsonObject]:
    if not isinstance(text, str):
        return []
    try:
        documents = load_all(text)
    except YamlRefused as refused:
        scope.problems.append(("bad-value", "spec.serveConfigV2", f"not readable: {refused}"))
        return []
    return items(mapping(documents[0].value if documents else {}).get("applications"))


def _llm_configs(args: JsonObject) -> list[tuple[str | None, JsonObject]]:
    """``(role, config)`` of every engine of an application."""
    out: list[tuple[str | None, JsonObject]] = [(None, config) for config in items(args.get("llm_configs"))]
    out += [(None, mapping(args["llm_config"]))] if mapping(args.get("llm_config")) else []
    for role in ("prefill", "decode"):
        if mapping(args.get(f"{role}_config")):
            out.append((role, mapping(args[f"{role}_config"])))
    return out


def _served(
    obj: JsonObject, head: Workload, cluster: list[Workload], role: str | None, config: JsonObject, several: bool
) -> Workload:
    loading = mapping(config.get("model_loading_config"))
    source = loading.get("model_source") or loading.get("model_id")
    if isinstance(source, dict):
        source = source.get("bucket_uri") or loading.get("model_id")
    fields: list[Field] = [field("model", str(source), "model_loading_config")] if source else []
    if loading.get("model_id") and loading.get("model_source"):
        fields.append(field("served-model-name", str(loading["model_id"]), "model_loading_config.model_id"))
    for key, value in mapping(config.get("engine_kwargs")).items():
        fields.append(field(str(key).replace("_", "-"), value, f"engine_kwargs.{key}"))
    variables = [
        {"name": key, "value": value}
        for key, value in mapping(mapping(config.get("runtime_env")).get("env_vars")).items()
    ]
    found = _leader(obj, head, cluster, variables)
    named = str(loading.get("model_id") or source or role or "llm")
    product = config.get("accelerator_type")
    return replace(
        found,
        name=(role and f"{found.name}-{role}") or (named if several else found.name),
        engine="vllm",
        fields=tuple(fields),
        model_id=str(source) if source else None,
        role=role or "server",
        product=str(product) if product else found.product,
        extra=_together(found.extra, left_over(config, _READ_CONFIG)),
    )


def _program(obj: JsonObject, head: Workload, cluster: list[Workload], applications: list[JsonObject]) -> Workload:
    """An application that is Python code of its own: what it hands to an engine cannot be read from outside."""
    packages = [
        package
        for application in applications
        for package in text_list(mapping(application.get("runtime_env")).get("pip"))
    ]
    pin = next((match[1] for package in packages if (match := _VLLM_PIN.match(str(package)))), None)
    names = ", ".join(f"`{application.get('import_path')}`" for application in applications)
    return replace(
        _leader(obj, head, cluster, []),
        engine="vllm" if pin else None,
        version=pin,
        role="server",
        notes=(f"the application {names} is a program of its own: what it gives the engine cannot be read",),
        extra=_together(head.extra, {"serveConfigV2": {str(app.get("name")): app for app in applications}}),
    )


def _together(extra: Mapping[str, Any], more: JsonObject) -> JsonObject:
    return under("spec", {**mapping(extra.get("spec")), **more})


def _leader(obj: JsonObject, head: Workload, cluster: list[Workload], variables: list[JsonObject]) -> Workload:
    """The head as the manifest of the engine, with the accelerators of the workers where it has none itself."""
    containers = items(head.pod.get("containers"))
    first = {**(containers[0] if containers else {"name": "ray-head"})}
    first["env"] = merge_env(first.get("env"), variables)
    own = _accelerated(head)
    workers = next((worker for worker in cluster[1:] if _accelerated(worker)), None)
    if own is None and workers is not None:
        first["resources"] = {**mapping(first.get("resources"))}
        limits = {**mapping(first["resources"].get("limits")), **(_accelerated(workers) or {})}
        first["resources"]["limits"] = limits
    return replace(
        head,
        pod={**head.pod, "containers": [first, *containers[1:]]},
        rank="leader" if len(cluster) > 1 else None,
        replicas=1,
        server=(str(first.get("name")),),
        patch=False,
    )


def _accelerated(workload: Workload) -> JsonObject | None:
    for container in items(workload.pod.get("containers")):
        found = accelerators(container)
        if found:
            return dict(found)
    return None


def _cluster(obj: JsonObject, cluster: JsonObject, path: str, replicas: int | None) -> list[Workload]:
    head = mapping(mapping(cluster.get("headGroupSpec")).get("template"))
    groups = items(cluster.get("workerGroupSpecs"))
    size = 1 + sum(
        (whole_number(group.get("replicas")) or 1) * (whole_number(group.get("numOfHosts")) or 1) for group in groups
    )
    shared: JsonObject = {"replicas": replicas, "pods": size, "patch": False}
    out = []
    if head:
        rank = "leader" if groups else None
        rest = left_over(cluster, ("headGroupSpec.template", "workerGroupSpecs"))
        shared["extra"] = under("spec", rest)
        out.append(workload_of(obj, head, f"{path}.headGroupSpec.template.spec", rank=rank, **shared))
    for index, group in enumerate(groups):
        worker = mapping(group.get("template"))
        if worker:
            where = f"{path}.workerGroupSpecs[{index}].template.spec"
            shared["extra"] = under("spec", {f"workerGroupSpecs[{index}]": left_over(group, ("template", "replicas"))})
            out.append(workload_of(obj, worker, where, rank="worker", **shared))
    return out
