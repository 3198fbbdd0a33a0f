"""KubeAI's Model: the operator starts the engine with the written arguments."""

from __future__ import annotations

from typing import Any

from manifests.importers.fields import field, left_over, under
from manifests.importers.kubernetes import workload_of
from manifests.importers.registry import JsonObject, Scope, Workload, items, mapping, reader, text_list, whole_number

_ENGINES = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp"}
_READ = ("engine", "url", "image", "args", "env", "envFrom", "adapters", "replicas", "minReplicas", "files")


@reader("Model.kubeai.org", "Model")
def read_kubeai_model(obj: JsonObject, scope: Scope) -> list[Workload]:
    """``resourceProfile`` is ``NAME:COUNT``; a profile of CPUs has no accelerator. What else the spec holds is compared
    as it is written."""
    spec = mapping(obj.get("spec"))
    engine = _ENGINES.get(str(spec.get("engine")).lower())
    if engine is None:
        note = f"engine `{spec.get('engine')}` is none of ours: vLLM, SGLang and llama.cpp are read"
        return [workload_of(obj, {"spec": {}}, "spec", notes=(note,))]
    profile, _, number = str(spec.get("resourceProfile") or "").partition(":")
    on_cpu = profile.startswith("cpu")
    env = [{"name": key, "value": value} for key, value in mapping(spec.get("env")).items()]
    container: JsonObject = {"name": "server", "image": spec.get("image"), "args": spec.get("args"), "env": env}
    if spec.get("envFrom"):
        container["envFrom"] = spec["envFrom"]
    count = whole_number(number.partition(":")[0]) or 1
    read = _READ if on_cpu or number.count(":") else (*_READ, "resourceProfile")
    return [
        workload_of(
            obj,
            {"spec": {"containers": [container]}},
            "spec",
            engine=engine,
            server=("server",),
            replicas=whole_number(spec.get("minReplicas" if spec.get("replicas") is None else "replicas")),
            model_id=str(spec["url"]) if spec.get("url") else None,
            gpu=0 if on_cpu else count if profile else -1,
            fields=_adapters(items(spec.get("adapters")), engine),
            accelerator=None if on_cpu or not profile else "amd.com/gpu" if "amd" in profile else "nvidia.com/gpu",
            product=None if on_cpu or not profile else profile,
            files={str(file.get("path")): str(file.get("content") or "") for file in items(spec.get("files"))},
            extra=under("spec", left_over(spec, read)),
            patch=False,
        )
    ]


def _adapters(adapters: list[JsonObject], engine: str) -> tuple[Any, ...]:
    if not adapters or engine != "vllm":
        return ()
    modules = [f"{adapter.get('name')}={adapter.get('url')}" for adapter in adapters]
    return (field("enable-lora", True, "adapters"), field("lora-modules", text_list(modules), "adapters"))
