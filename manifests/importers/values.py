"""Helm values of serving charts: production-stack (``servingEngineSpec``) and llm-d modelservice (``modelArtifacts``).

A values file has no kind; what its chart would render from it is composed here, so that an update of values can be
read without rendering. Where the chart writes a flag for an *absent* key, the flag is there too.
"""

from __future__ import annotations

from typing import Any

from manifests.importers.registry import (
    Field,
    JsonObject,
    Scope,
    Workload,
    items,
    mapping,
    namespace_of,
    text_list,
    whole_number,
)
from manifests.yamlsafe import Text, line_of, text_of


def looks_like_values(obj: JsonObject) -> bool:
    """Whether a mapping without kind is the values file of a chart that is known."""
    return "servingEngineSpec" in obj or ("modelArtifacts" in obj and ("decode" in obj or "prefill" in obj))


def read_values(obj: JsonObject, scope: Scope) -> list[Workload]:
    """The workloads that the chart would render."""
    return _production_stack(obj) if "servingEngineSpec" in obj else _modelservice(obj)


def _argument(text: Any, origin: str, source: Any = None) -> Text:
    out = Text(text_of(text))
    out.line, out.literal = line_of(source if source is not None else text) or 1, False
    out.origin = origin  # type: ignore[attr-defined]
    return out


# --- production-stack


def _production_stack(obj: JsonObject) -> list[Workload]:
    spec = mapping(obj.get("servingEngineSpec"))
    out = []
    for index, model in enumerate(items(spec.get("modelSpec"))):
        name, path = str(model.get("name") or f"model-{index}"), f"servingEngineSpec.modelSpec[{index}]"
        if spec.get("enableEngine") is False or model.get("enabled") is False:
            out.append(Workload(name, None, "values", path, {}, notes=(f"modelSpec `{name}` is not enabled",)))
            continue
        out.append(_model_spec(name, model, spec, path))
    return out or [
        Workload(
            "values", None, "values", "servingEngineSpec", {}, notes=("no modelSpec: the chart deploys no engine",)
        )
    ]


def _model_spec(name: str, model: JsonObject, spec: JsonObject, path: str) -> Workload:
    config = mapping(model.get("vllmConfig"))
    repository, tag = str(model.get("repository") or ""), str(model.get("tag") or "")
    env: list[JsonObject] = [{"name": "HF_HOME", "value": "/data" if model.get("pvcStorage") else "/tmp"}]
    if str(config.get("v0")) == "1":
        env.append({"name": "VLLM_USE_V1", "value": "0"})
    if model.get("hf_token"):
        env.append(
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "release-secrets", "key": f"hf_token_{name}"}}}
        )
    merged: JsonObject = {
        **config,
        **{key: model[key] for key in ("enableLoRA", "enableTool", "toolCallParser", "chatTemplate") if key in model},
    }
    if model.get("modelRevision"):
        merged["revision"] = model["modelRevision"]
    return vllm_workload(
        name,
        {},
        merged,
        str(model.get("modelURL") or ""),
        f"{repository}:{tag}" if tag else repository or None,
        path,
        replicas=whole_number(model.get("replicaCount")),
        gpu=_gpu(model),
        env=[*env, *items(model.get("env"))],
        port=spec.get("containerPort") or 8000,
        extra_args=text_list(config.get("extraArgs")),
        accelerator=str(model.get("requestGPUType") or "nvidia.com/gpu"),
        absent_prefix_caching=False if config else None,
        lmcache=mapping(model.get("lmcacheConfig")),
        resources=mapping(model.get("resources")),
        extra=_not_shown(model, config),
    )


_READ = frozenset(
    {"name", "repository", "tag", "modelURL", "replicaCount", "requestGPU", "requestGPUType", "vllmConfig", "env"}
    | {"hf_token", "enabled", "enableLoRA", "enableTool", "toolCallParser", "chatTemplate", "modelRevision"}
    | {"resources", "annotations", "podAnnotations", "labels"}
)
_READ_CONFIG = frozenset(
    {"v0", "enableChunkedPrefill", "enablePrefixCaching", "maxModelLen", "dtype", "tensorParallelSize", "maxNumSeqs"}
    | {"gpuMemoryUtilization", "maxLoras", "runner", "convert", "extraArgs"}
)


def _not_shown(model: JsonObject, config: JsonObject) -> JsonObject:
    """Keys that the chart turns into something other than an argument read here: compared as they are written."""
    left = {key: value for key, value in model.items() if key not in _READ}
    more = {key: value for key, value in config.items() if key not in _READ_CONFIG}
    return {"modelSpec": {**left, **({"vllmConfig": more} if more else {})}} if left or more else {}


def _gpu(model: JsonObject) -> int:
    return whole_number(model.get("requestGPU")) or 0


def vllm_workload(
    name: str,
    obj: JsonObject,
    config: JsonObject,
    model: str,
    image: str | None,
    path: str,
    *,
    replicas: int | None,
    gpu: int,
    env: list[JsonObject],
    port: Any,
    extra_args: list[Any],
    absent_prefix_caching: bool | None,
    accelerator: str = "nvidia.com/gpu",
    lmcache: JsonObject | None = None,
    resources: JsonObject | None = None,
    extra: JsonObject | None = None,
) -> Workload:
    """``vllm serve`` as production-stack composes it from camelCase keys (chart and operator alike)."""
    args = [_argument("vllm", "command"), _argument("serve", "command"), _argument(model, "custom-resource")]
    args += [_argument(part, "custom-resource") for part in ("--host", "0.0.0.0", "--port", text_of(port))]
    for key, flag in (("enableLoRA", "--enable-lora"), ("enableTool", "--enable-auto-tool-choice")):
        if config.get(key):
            args.append(_argument(flag, "custom-resource"))
    for key, flag in (
        ("enableChunkedPrefill", "enable-chunked-prefill"),
        ("enablePrefixCaching", "enable-prefix-caching"),
    ):
        value = config.get(key)
        if key == "enablePrefixCaching" and value is None:
            value = absent_prefix_caching
        if value is not None:
            args.append(_argument(f"--{flag}" if value else f"--no-{flag}", "custom-resource"))
    for key, flag in (
        ("toolCallParser", "--tool-call-parser"),
        ("maxModelLen", "--max-model-len"),
        ("dtype", "--dtype"),
        ("tensorParallelSize", "--tensor-parallel-size"),
        ("maxNumSeqs", "--max-num-seqs"),
        ("gpuMemoryUtilization", "--gpu-memory-utilization"),
        ("maxLoras", "--max-loras"),
        ("runner", "--runner"),
        ("convert", "--convert"),
        ("revision", "--revision"),
        ("chatTemplate", "--chat-template"),
    ):
        if config.get(key) not in (None, ""):
            args += [_argument(flag, "custom-resource", config[key]), _argument(config[key], "custom-resource")]
    if lmcache and lmcache.get("enabled"):
        connector = "LMCacheConnector" if str(config.get("v0")) == "1" else "LMCacheConnectorV1"
        args += [
            _argument("--kv-transfer-config", "custom-resource"),
            _argument(
                f'{{"kv_connector":"{connector}","kv_role":"{lmcache.get("kvRole") or "kv_both"}"}}', "custom-resource"
            ),
        ]
    args += [_argument(part, "args") for part in extra_args]
    container: JsonObject = {"name": "vllm", "image": image, "command": args, "env": env, "resources": resources or {}}
    return Workload(
        name,
        namespace_of(obj),
        str(obj.get("kind") or "values"),
        path,
        {"containers": [container]},
        replicas=replicas,
        gpu=gpu,
        accelerator=accelerator if gpu else None,
        extra=extra or {},
    )


# --- llm-d modelservice


def _modelservice(obj: JsonObject) -> list[Workload]:
    artifacts = mapping(obj.get("modelArtifacts"))
    uri = str(artifacts.get("uri") or "").replace("{{ .Values.modelArtifacts.name }}", str(artifacts.get("name")))
    out = []
    for role in ("decode", "prefill"):
        part = mapping(obj.get(role))
        if not part or part.get("create") is False or whole_number(part.get("replicas")) == 0:
            continue
        out.append(_modelservice_part(obj, role, part, artifacts, uri))
    return out or [Workload("values", None, "values", "decode", {}, notes=("neither decode nor prefill is created",))]


def _modelservice_part(obj: JsonObject, role: str, part: JsonObject, artifacts: JsonObject, uri: str) -> Workload:
    parallel = mapping(part.get("parallelism"))
    tensor, local = whole_number(parallel.get("tensor")) or 1, whole_number(parallel.get("dataLocal")) or 1
    containers = [_modelservice_container(dict(c), uri, obj) for c in items(part.get("containers"))]
    fields = (
        [Field("served-model-name", str(artifacts["name"]), f"modelArtifacts.name: {artifacts['name']}")]
        if artifacts.get("name")
        else []
    )
    for key, flag in (
        ("tensor", "tensor-parallel-size"),
        ("data", "data-parallel-size"),
        ("dataLocal", "data-parallel-size-local"),
    ):
        if key in parallel and (whole_number(parallel[key]) or 1) > 1:
            fields.append(Field(flag, parallel[key], f"{role}.parallelism.{key}: {parallel[key]}"))
    kind = str(mapping(obj.get("accelerator")).get("type") or "nvidia")
    resource = str(mapping(mapping(obj.get("accelerator")).get("resources")).get(kind) or "nvidia.com/gpu")
    return Workload(
        role,
        None,
        "values",
        f"{role}",
        {"containers": containers, "nodeSelector": part.get("nodeSelector"), "volumes": part.get("volumes")},
        role=role if mapping(obj.get("prefill")) else None,
        replicas=whole_number(part.get("replicas")) or 1,
        fields=tuple(fields),
        gpu=tensor * local,
        accelerator=None if kind == "cpu" else resource,
        pods=whole_number(parallel.get("workers")) or 1,
    )


def _modelservice_container(container: JsonObject, uri: str, obj: JsonObject) -> JsonObject:
    """``modelCommand: vllmServe`` puts ``vllm serve MODEL --port`` before the arguments; ``imageDefault`` nothing."""
    if container.get("modelCommand") == "vllmServe":
        target = (
            mapping(mapping(obj.get("routing")).get("proxy")).get("targetPort")
            or mapping(obj.get("routing")).get("servicePort")
            or 8000
        )
        model = uri.removeprefix("hf://")
        container["command"] = [_argument(word, "command") for word in ("vllm", "serve")]
        container["args"] = [
            *(_argument(word, "custom-resource") for word in (model, "--port", text_of(target))),
            *text_list(container.get("args")),
        ]
    return container
