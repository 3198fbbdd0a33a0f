"""KAITO: Workspace, InferenceSet and MultiRoleInference with a preset, RAGEngine as what stands around one."""

from __future__ import annotations

from typing import Any

from manifests.importers.fields import left_over
from manifests.importers.kubernetes import pod_annotations, workload_of
from manifests.importers.registry import (
    Field,
    JsonObject,
    Scope,
    Workload,
    items,
    mapping,
    namespace_of,
    reader,
    whole_number,
)
from manifests.yamlsafe import YamlRefused, load_all

_AZURE_GPUS = {
    "nc24ads_a100_v4": (1, "NVIDIA-A100-80GB"),
    "nc48ads_a100_v4": (2, "NVIDIA-A100-80GB"),
    "nc96ads_a100_v4": (4, "NVIDIA-A100-80GB"),
    "nd96asr_v4": (8, "NVIDIA-A100-40GB"),
    "nd96amsr_a100_v4": (8, "NVIDIA-A100-80GB"),
    "nc40ads_h100_v5": (1, "NVIDIA-H100-94GB"),
    "nc80adis_h100_v5": (2, "NVIDIA-H100-94GB"),
    "nd96isr_h100_v5": (8, "NVIDIA-H100-80GB"),
    "nc6s_v3": (1, "NVIDIA-V100-16GB"),
    "nc12s_v3": (2, "NVIDIA-V100-16GB"),
    "nc24s_v3": (4, "NVIDIA-V100-16GB"),
    "nc4as_t4_v3": (1, "NVIDIA-T4"),
    "nc64as_t4_v3": (4, "NVIDIA-T4"),
    "nv36ads_a10_v5": (1, "NVIDIA-A10"),
    "nv72ads_a10_v5": (2, "NVIDIA-A10"),
    "nd96isr_mi300x_v5": (8, "AMD-MI300X"),
    "nd96isr_h200_v5": (8, "NVIDIA-H200"),
}
_READ = ("inference.preset.name", "inference.config", "inference.template", "resource.count", "resource.labelSelector")


@reader("Workspace", "InferenceSet")
def read_kaito(obj: JsonObject, scope: Scope) -> list[Workload]:
    """A preset with a vLLM configuration in a ConfigMap, or a pod template of one's own."""
    spec = mapping(obj.get("spec"))
    is_set = obj.get("kind") == "InferenceSet"
    inner, base = (mapping(spec.get("template")), "spec.template.") if is_set else (obj, "")
    inference, resource = mapping(inner.get("inference")), mapping(inner.get("resource"))
    template, preset = mapping(inference.get("template")), mapping(inference.get("preset"))
    replicas = whole_number(spec.get("replicas")) or whole_number(resource.get("count")) or 1
    if template:
        return [workload_of(obj, template, f"{base}inference.template.spec", replicas=replicas)]
    annotations = pod_annotations({}, obj)
    note = (
        "no inference preset: a tuning job"
        if not preset
        else "the transformers runtime is none of ours"
        if annotations.get("kaito.sh/runtime") == "transformers"
        else None
    )
    if note:
        return [workload_of(obj, {"spec": {}}, base + "inference", notes=(note,))]
    rest = left_over({"inference": inference, "resource": resource}, _READ)
    shown = {key: value for key, value in annotations.items() if str(key).startswith("kaito.sh/")}
    return [
        _preset(
            obj,
            base + "inference",
            str(preset.get("name")),
            resource.get("instanceType"),
            replicas=replicas,
            fields=_config(obj, inference, base, scope),
            extra={**rest, **({"annotations": shown} if shown else {})},
        )
    ]


@reader("MultiRoleInference")
def read_multi_role_inference(obj: JsonObject, scope: Scope) -> list[Workload]:
    """Prefill and decode of one preset, each with its own machines."""
    spec = mapping(obj.get("spec"))
    model = str(mapping(spec.get("model")).get("name") or "")
    out = []
    for index, part in enumerate(items(spec.get("roles"))):
        kind = str(part.get("type") or part.get("name") or f"role-{index}")
        read = ("type", "name", "replicas", "config")
        found = _preset(
            obj,
            f"spec.roles[{index}]",
            model,
            part.get("instanceType"),
            name=f"{mapping(obj.get('metadata')).get('name')}-{kind}",
            role=kind if kind in ("prefill", "decode") else None,
            replicas=whole_number(part.get("replicas")) or 1,
            fields=_config(obj, part or spec, f"spec.roles[{index}].", scope),
            extra={"resource": left_over(part, read)},
        )
        out.append(found)
    return out


@reader("RAGEngine")
def read_rag_engine(obj: JsonObject, scope: Scope) -> list[Workload]:
    """An index in front of an engine that it reaches by URL."""
    return [
        workload_of(obj, {"spec": {}}, "spec", notes=("an index in front of an engine: it serves no model itself",))
    ]


def _preset(obj: JsonObject, path: str, model: str, instance: Any, **more: Any) -> Workload:
    machine = str(instance or "").lower().removeprefix("standard_")
    gpus, product = _AZURE_GPUS.get(machine, (-1, None))
    return workload_of(
        obj,
        {"spec": {"containers": [{"name": "server", "env": []}]}},
        path,
        engine="vllm",
        server=("server",),
        model_id=model or None,
        gpu=gpus,
        product=product,
        accelerator="nvidia.com/gpu" if product and "NVIDIA" in product else None,
        patch=False,
        **more,
    )


def _config(obj: JsonObject, inference: JsonObject, base: str, scope: Scope) -> tuple[Field, ...]:
    name = inference.get("config")
    if not name:
        return ()
    path = base if base.endswith("].") else base + "inference."
    found = scope.configmap(namespace_of(obj), str(name))
    text = mapping((found or {}).get("data")).get("inference_config.yaml")
    if not isinstance(text, str):
        message = f"ConfigMap `{name}` with `inference_config.yaml` is not in the input; add it"
        scope.problems.append(("missing-configmap", f"{path}config", message))
        return ()
    try:
        documents = load_all(text)
    except YamlRefused as refused:
        message = f"`inference_config.yaml` of ConfigMap `{name}`: {refused}"
        scope.problems.append(("bad-value", f"{path}config", message))
        return ()
    settings = mapping(mapping(documents[0].value if documents else {}).get("vllm"))
    start = getattr(text, "line", 1)
    return tuple(
        Field(str(key).replace("_", "-"), _bare(value), f"configmap {name}: {key}: {value}", start)
        for key, value in settings.items()
    )


def _bare(value: Any) -> Any:
    return float(value) if isinstance(value, float) else str(value) if isinstance(value, str) else value
