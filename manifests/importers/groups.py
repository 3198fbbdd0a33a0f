"""Groups of pods and roles: LeaderWorkerSet, DisaggregatedSet, RoleBasedGroup, JobSet, Grove, and our own objects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from manifests.importers.kubernetes import workload_of
from manifests.importers.registry import JsonObject, Scope, Workload, items, mapping, name_of, reader, whole_number


def role_of(name: str) -> str | None:
    """The role that a group's name says (``deepseek-prefill``), None where it says none."""
    lowered = name.lower()
    return next((word for word in ("prefill", "decode", "router", "frontend") if word in lowered), None)


@reader("DisaggregatedSet")
def read_disaggregated_set(obj: JsonObject, scope: Scope) -> list[Workload]:
    """Roles that are LeaderWorkerSets each (prefill, decode)."""
    out: list[Workload] = []
    for index, role in enumerate(items(mapping(obj.get("spec")).get("roles"))):
        name = str(role.get("name") or f"role-{index}")
        inner = {**obj, "spec": mapping(role.get("spec"))}
        for workload in read_leader_worker_set(inner, scope):
            path = f"spec.roles[{index}].{workload.path}"
            out.append(replace(workload, name=name, role=role_of(name), path=path))
    return out


@reader("LeaderWorkerSet")
def read_leader_worker_set(obj: JsonObject, scope: Scope) -> list[Workload]:
    """Groups of one leader and ``size - 1`` workers; without a leader template the leader runs the worker's."""
    spec = mapping(obj.get("spec"))
    group = mapping(spec.get("leaderWorkerTemplate"))
    size = whole_number(group.get("size")) or 1
    replicas = whole_number(spec.get("replicas")) or 1
    shared: JsonObject = {"replicas": replicas, "pods": size, "variables": _group_variables(size)}
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
        template = mapping(role.get("template"))
        group = mapping(role.get("leaderWorkerTemplate")) or (template if role.get("leaderWorker") else {})
        shared: JsonObject = {"name": name, "role": role_of(name), "extra": manifest}
        if group:
            inner = {**obj, "spec": {"leaderWorkerTemplate": group, "replicas": role.get("replicas")}}
            out += [replace(found, **shared) for found in read_leader_worker_set(inner, scope)]
        else:
            path = f"spec.roles[{index}].template.spec"
            out.append(workload_of(obj, template, path, replicas=whole_number(role.get("replicas")), **shared))
    return out


@reader("RoleBasedGroup")
def read_role_based_group(obj: JsonObject, scope: Scope) -> list[Workload]:
    """Roles with a pod template each, or a leader and workers made of it (``leaderWorkerSet.size``)."""
    out: list[Workload] = []
    for index, role in enumerate(items(mapping(obj.get("spec")).get("roles"))):
        name, path = str(role.get("name") or f"role-{index}"), f"spec.roles[{index}]"
        size = whole_number(mapping(role.get("leaderWorkerSet")).get("size")) or 1
        template = mapping(role.get("template"))
        out.append(
            workload_of(
                obj,
                template,
                f"{path}.template.spec",
                name=name,
                role=role_of(name),
                replicas=whole_number(role.get("replicas")),
                pods=size,
                variables=_group_variables(size) if size > 1 else {},
            )
        )
    return out


@reader("JobSet")
def read_job_set(obj: JsonObject, scope: Scope) -> list[Workload]:
    """Jobs of one group, each with a pod template."""
    out: list[Workload] = []
    for index, job in enumerate(items(mapping(obj.get("spec")).get("replicatedJobs"))):
        name, path = str(job.get("name") or f"job-{index}"), f"spec.replicatedJobs[{index}].template.spec.template.spec"
        spec = mapping(mapping(job.get("template")).get("spec"))
        pods = whole_number(spec.get("parallelism")) or 1
        replicas = whole_number(job.get("replicas"))
        out.append(workload_of(obj, mapping(spec.get("template")), path, name=name, replicas=replicas, pods=pods))
    return out


@reader("Job.batch.volcano.sh")
def read_volcano_job(obj: JsonObject, scope: Scope) -> list[Workload]:
    """Tasks of one group, each with a pod template."""
    out: list[Workload] = []
    for index, task in enumerate(items(mapping(obj.get("spec")).get("tasks"))):
        name, path = str(task.get("name") or f"task-{index}"), f"spec.tasks[{index}].template.spec"
        replicas = whole_number(task.get("replicas"))
        out.append(workload_of(obj, mapping(task.get("template")), path, name=name, replicas=replicas))
    return out


@reader("PodCliqueSet")
def read_pod_clique_set(obj: JsonObject, scope: Scope) -> list[Workload]:
    """Grove: cliques with a pod spec each."""
    out: list[Workload] = []
    cliques = items(mapping(mapping(obj.get("spec")).get("template")).get("cliques"))
    for index, clique in enumerate(cliques):
        name, path = str(clique.get("name") or f"clique-{index}"), f"spec.template.cliques[{index}].spec.podSpec"
        spec = mapping(clique.get("spec"))
        more: dict[str, Any] = {"name": name, "role": role_of(name), "replicas": whole_number(spec.get("replicas"))}
        out.append(workload_of(obj, {"spec": spec.get("podSpec"), "metadata": clique}, path, **more))
    return out


def _group_variables(size: int) -> dict[str, str]:
    return {
        "LWS_GROUP_SIZE": str(size),
        "LWS_LEADER_ADDRESS": "$(LWS_LEADER_ADDRESS)",
        "LWS_WORKER_INDEX": "$(LWS_WORKER_INDEX)",
    }
