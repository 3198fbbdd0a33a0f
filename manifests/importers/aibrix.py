"""AIBrix: StormService, RoleSet, PodSet (roles with a pod template each) and ModelClaim (an engine in a warm pool)."""

from __future__ import annotations

from manifests.importers.fields import added, left_over, under
from manifests.importers.kubernetes import workload_of
from manifests.importers.registry import JsonObject, Scope, Workload, items, mapping, reader, text_list, whole_number

_VARIABLES = (
    "STORM_SERVICE_NAME",
    "ROLESET_NAME",
    "ROLE_NAME",
    "PODSET_NAME",
    "POD_GROUP_INDEX",
    "ROLE_REPLICA_INDEX",
    "POD_NAME",
)
_CLAIM_READ = frozenset({"modelName", "artifactURL", "engine", "replicas", "engineConfig.args", "podSelector"})


@reader("StormService", "RoleSet", "PodSet")
def read_storm_service(obj: JsonObject, scope: Scope) -> list[Workload]:
    """``podGroupSize`` pods of a role serve as one."""
    spec = mapping(obj.get("spec"))
    is_storm = obj.get("kind") == "StormService"
    inner = mapping(mapping(spec.get("template")).get("spec")) if is_storm else spec
    base = "spec.template.spec" if is_storm else "spec"
    if obj.get("kind") == "PodSet":
        size = whole_number(spec.get("podGroupSize")) or 1
        return [workload_of(obj, mapping(spec.get("template")), "spec.template.spec", pods=size)]
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
                variables={variable: f"$({variable})" for variable in _VARIABLES},
                patch=False,
            )
        )
    return out


@reader("ModelClaim.model.aibrix.ai")
def read_model_claim(obj: JsonObject, scope: Scope) -> list[Workload]:
    """An engine that a runtime of the pool starts with ``engineConfig.args`` (flag -> value)."""
    spec = mapping(obj.get("spec"))
    engine = str(spec.get("engine") or "vllm").lower()
    model = str(spec.get("artifactURL") or "")
    for prefix in ("huggingface://", "hf://"):
        model = model.removeprefix(prefix)
    args = [added(model, "custom-resource")] if engine == "vllm" else []
    args += [added(word, "custom-resource") for word in ("--served-model-name", spec.get("modelName") or "")]
    given = mapping(spec.get("engineConfig")).get("args")
    for flag, value in mapping(given).items():
        args.append(added(flag, "args"))
        if value not in (None, ""):
            args.append(added(value, "args"))
    args += [added(word, "args") for word in text_list(given)]
    return [
        workload_of(
            obj,
            {"spec": {"containers": [{"name": "engine", "args": args}]}},
            "spec",
            engine=engine,
            server=("engine",),
            replicas=whole_number(spec.get("replicas")),
            model_id=model or None,
            gpu=-1,
            patch=False,
            extra=under("spec", left_over(spec, _CLAIM_READ)),
        )
    ]
