"""DynamoGraphDeployment: services (v1alpha1) or components (v1beta1), each with a main container."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from manifests.importers.fields import left_over, under
from manifests.importers.kubernetes import workload_of
from manifests.importers.registry import (
    JsonObject,
    Scope,
    Workload,
    items,
    mapping,
    merge_env,
    reader,
    whole_number,
)

_ROLES = ("frontend", "prefill", "decode", "router")
_AROUND = {
    "planner": "a planner: it changes replicas, no engine",
    "epp": "an endpoint picker, no engine",
    "profiler": "a profiler, no engine",
}
_READ_SERVICE = frozenset(
    {"extraPodSpec", "envs", "resources", "envFromSecret", "replicas", "multinode.nodeCount", "componentType"}
    | {"subComponentType", "extraPodMetadata", "annotations", "labels", "livenessProbe", "readinessProbe"}
)
_READ_COMPONENT = frozenset(
    {"podTemplate", "env", "envs", "name", "type", "subComponentType", "replicas", "multinode.nodeCount"}
)


@reader("DynamoGraphDeployment")
def read_dynamo_graph(obj: JsonObject, scope: Scope) -> list[Workload]:
    """One workload for every service or component; a graph without any image is a patch."""
    spec = mapping(obj.get("spec"))
    shared = merge_env(spec.get("envs"), spec.get("env"))
    framework = str(spec.get("backendFramework") or "").lower()
    out = [
        _service(obj, str(name), mapping(part), shared, framework)
        for name, part in mapping(spec.get("services")).items()
    ]
    out += [_component(obj, index, part, shared, framework) for index, part in enumerate(items(spec.get("components")))]
    return _named_roles(out)


def _named_roles(workloads: list[Workload]) -> list[Workload]:
    """Roles by name where no type says one: only beside the other half (a lone ``VllmDecodeWorker`` does both)."""
    named = {id(found): _role_in(found.name) for found in workloads if found.role is None}
    roles = {found.role or named[id(found)] for found in workloads}
    if not {"prefill", "decode"} <= roles:
        return workloads
    return [replace(found, role=found.role or named[id(found)]) for found in workloads]


@reader("DynamoComponentDeployment")
def read_dynamo_component(obj: JsonObject, scope: Scope) -> list[Workload]:
    """One component on its own, as the operator (or a person) writes it."""
    spec = mapping(obj.get("spec"))
    framework = str(spec.get("backendFramework") or "").lower()
    name = str(spec.get("serviceName") or mapping(obj.get("metadata")).get("name") or "component")
    return [_service(obj, name, spec, [], framework, path="spec")]


def _has_image(obj: JsonObject) -> bool:
    spec = mapping(obj.get("spec"))
    for part in [*mapping(spec.get("services")).values(), *items(spec.get("components")), spec]:
        pod = mapping(mapping(part).get("extraPodSpec"))
        inner = mapping(mapping(mapping(part).get("podTemplate")).get("spec"))
        if mapping(pod.get("mainContainer")).get("image") or any(
            c.get("image") for c in items(inner.get("containers"))
        ):
            return True
    return False


def _role(*types: Any) -> str | None:
    """The role that a component's types say; None for a worker, which may do both."""
    return next((role for role in map(_role_in, types) if role), None)


def _role_in(word: Any) -> str | None:
    text = str(word or "").lower()
    return next((role for role in _ROLES if role in text), None)


def _front(name: str) -> str | None:
    """Frontends and routers are told by their name where no type is written."""
    role = _role_in(name)
    return role if role in ("frontend", "router") else None


def _service(
    obj: JsonObject, name: str, part: JsonObject, shared: list[JsonObject], framework: str, path: str = ""
) -> Workload:
    kind = str(part.get("componentType") or "").lower()
    pod = dict(mapping(part.get("extraPodSpec")))
    main = dict(mapping(pod.pop("mainContainer", None)))
    main["name"] = main.get("name") or "main"
    main["env"] = merge_env(shared, part.get("envs"), main.get("env"))
    for probe in ("livenessProbe", "readinessProbe"):
        if probe in part and probe not in main:
            main[probe] = part[probe]
    own, wanted = mapping(main.get("resources")), mapping(part.get("resources"))
    limits = mapping(wanted.get("limits"))
    main["resources"] = {
        **own,
        "limits": {**limits, **mapping(own.get("limits"))},
        "requests": {**mapping(wanted.get("requests")), **mapping(own.get("requests"))},
        "claims": wanted.get("claims") or own.get("claims"),
    }
    if part.get("envFromSecret"):
        main["envFrom"] = [*items(main.get("envFrom")), {"secretRef": {"name": part["envFromSecret"]}}]
    pod["containers"] = [main, *items(pod.get("containers"))]
    where = f"{path or f'spec.services.{name}'}.extraPodSpec"
    if kind in _AROUND:
        return workload_of(obj, {"spec": {}}, where, notes=(f"`{name}`: {_AROUND[kind]}",))
    return workload_of(
        obj,
        {"spec": pod},
        where,
        name=name,
        role=_role(part.get("subComponentType"), kind) or _front(name),
        replicas=whole_number(part.get("replicas")),
        pods=whole_number(mapping(part.get("multinode")).get("nodeCount")) or 1,
        server=("main",) if main["name"] == "main" else (),
        patch=not _has_image(obj),
        engine=f"dynamo-{framework}" if framework else None,
        accelerator="gpu" if "gpu" in limits else None,
        extra=under("spec", left_over(part, _READ_SERVICE)),
    )


def _component(obj: JsonObject, index: int, part: JsonObject, shared: list[JsonObject], framework: str) -> Workload:
    template = mapping(part.get("podTemplate"))
    pod = dict(mapping(template.get("spec")))
    pod["containers"] = [
        {**container, "env": merge_env(shared, part.get("envs"), part.get("env"), container.get("env"))}
        for container in items(pod.get("containers"))
    ]
    name, kind = str(part.get("name") or f"component-{index}"), str(part.get("type") or "").lower()
    where = f"spec.components[{index}].podTemplate.spec"
    if kind in _AROUND:
        return workload_of(obj, {"spec": {}}, where, notes=(f"`{name}`: {_AROUND[kind]}",))
    named_main = any(container.get("name") == "main" for container in pod["containers"])
    return workload_of(
        obj,
        {**template, "spec": pod},
        where,
        name=name,
        role=_role(part.get("subComponentType"), kind) or _front(name),
        replicas=whole_number(part.get("replicas")),
        pods=whole_number(mapping(part.get("multinode")).get("nodeCount")) or 1,
        server=("main",) if named_main else (),
        engine=f"dynamo-{framework}" if framework else None,
        patch=not _has_image(obj),
        extra=under("spec", left_over(part, _READ_COMPONENT)),
    )
