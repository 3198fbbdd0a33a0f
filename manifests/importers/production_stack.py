"""production-stack: values of its two charts, and the custom resources of its operator (VLLMRuntime, VLLMRouter).

A values file has no kind; what its chart would render from it is composed here, so that an update of values can be
read without rendering. Where the chart writes a flag for an *absent* key, the flag is there too; keys that become
something else than an argument read here are compared as they are written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from manifests.importers.fields import added, laid_over, left_over, under
from manifests.importers.registry import (
    JsonObject,
    Scope,
    Workload,
    items,
    mapping,
    name_of,
    namespace_of,
    reader,
    text_list,
    whole_number,
)
from manifests.yamlsafe import line_of, text_of

_ARGUMENTS = {
    "toolCallParser": "--tool-call-parser",
    "maxModelLen": "--max-model-len",
    "dtype": "--dtype",
    "tensorParallelSize": "--tensor-parallel-size",
    "pipelineParallelSize": "--pipeline-parallel-size",
    "maxNumSeqs": "--max-num-seqs",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
    "maxLoras": "--max-loras",
    "runner": "--runner",
    "convert": "--convert",
    "revision": "--revision",
    "chatTemplate": "--chat-template",
}
_SWITCHES = ("enableLoRA", "enableTool", "enableChunkedPrefill", "enablePrefixCaching")
_OF_MODEL = ("enableLoRA", "enableTool", "toolCallParser", "chatTemplate")
_READ_MODEL = frozenset(
    {"name", "repository", "tag", "modelURL", "replicaCount", "requestGPU", "requestGPUType", "env", "hf_token"}
    | {"enabled", *_OF_MODEL, "modelRevision", "resources", "annotations", "podAnnotations", "labels"}
    | {"requestCPU", "requestMemory", "limitCPU", "limitMemory", "lmcacheConfig.enabled", "lmcacheConfig.kvRole"}
    | {f"vllmConfig.{key}" for key in (*_ARGUMENTS, *_SWITCHES, "v0", "extraArgs")}
)
_READ_RUNTIME = frozenset(
    {f"model.{key}" for key in ("modelURL", *_ARGUMENTS, *_SWITCHES)}
    | {f"vllmConfig.{key}" for key in (*_ARGUMENTS, *_SWITCHES, "env", "port", "extraArgs")}
    | {f"deploymentConfig.{key}" for key in ("image.registry", "image.name", "replicas", "resources")}
    | {"lmCacheConfig.enabled", "lmCacheConfig.kvRole", "topology"}
)
_READ_SPEC = frozenset({"modelSpec", "enableEngine", "containerPort", "vllmApiKey", "labels"})
_READ_ROUTER = frozenset(
    {"enableRouter", "repository", "tag", "image.registry", "image.name", "replicaCount", "replicas", "containerPort"}
    | {"port", "serviceDiscovery", "k8sServiceDiscoveryType", "k8sLabelSelector", "staticBackends", "staticModels"}
    | {"routingLogic", "sessionKey", "engineScrapeInterval", "requestStatsWindow", "extraArgs", "resources", "env"}
    | {"lmcacheControllerPort", "hf_token", "labels"}
)


# --- the chart's values


def read_stack_values(obj: JsonObject, scope: Scope) -> list[Workload]:
    """``servingEngineSpec.modelSpec`` (one workload each) and ``routerSpec``."""
    spec = mapping(obj.get("servingEngineSpec"))
    out: list[Workload] = []
    for index, model in enumerate(items(spec.get("modelSpec"))):
        name, path = str(model.get("name") or f"model-{index}"), f"servingEngineSpec.modelSpec[{index}]"
        if spec.get("enableEngine") is False or model.get("enabled") is False:
            out.append(Workload(name, None, "values", path, {}, notes=(f"modelSpec `{name}` is not enabled",)))
            continue
        out.append(_model_spec(name, model, spec, path))
    out = _with_the_rest(obj, out)
    if not out:
        note = "no modelSpec: the chart deploys no engine"
        out.append(Workload("values", None, "values", "servingEngineSpec", {}, notes=(note,)))
    router = mapping(obj.get("routerSpec"))
    if router and router.get("enableRouter") is not False:
        out.append(_router("router", {}, router, "routerSpec", spec.get("vllmApiKey")))
    return out


def _model_spec(name: str, model: JsonObject, spec: JsonObject, path: str) -> Workload:
    config, cache = mapping(model.get("vllmConfig")), mapping(model.get("lmcacheConfig"))
    repository, tag = str(model.get("repository") or ""), str(model.get("tag") or "")
    env: list[JsonObject] = [{"name": "HF_HOME", "value": "/data" if model.get("pvcStorage") else "/tmp"}]
    if str(config.get("v0")) == "1":
        env.append({"name": "VLLM_USE_V1", "value": "0"})
    env += _secret("HF_TOKEN", model.get("hf_token")) + _secret("VLLM_API_KEY", spec.get("vllmApiKey"))
    merged: JsonObject = {**config, **{key: model[key] for key in _OF_MODEL if key in model}}
    if isinstance(merged.get("chatTemplate"), str) and not merged["chatTemplate"].startswith("/"):
        merged["chatTemplate"] = f"/templates/{merged['chatTemplate']}"
    if model.get("modelRevision"):
        merged["revision"] = model["modelRevision"]
    if config and merged.get("enablePrefixCaching") is None:
        merged["enablePrefixCaching"] = False
    return vllm_workload(
        name,
        {},
        merged,
        model.get("modelURL") or "",
        f"{repository}:{tag}" if tag else repository or None,
        path,
        replicas=whole_number(model.get("replicaCount")),
        gpu=whole_number(model.get("requestGPU")) or 0,
        env=[*env, *items(model.get("env"))],
        port=spec.get("containerPort") or 8000,
        extra_args=text_list(config.get("extraArgs")),
        accelerator=str(model.get("requestGPUType") or "nvidia.com/gpu"),
        transfer=_transfer(cache, str(config.get("v0")) == "1"),
        resources=mapping(model.get("resources")) or _requests(model),
        extra={
            **under("modelSpec", left_over(model, _READ_MODEL)),
            **under("servingEngineSpec", left_over(spec, _READ_SPEC)),
        },
    )


def _with_the_rest(obj: JsonObject, models: list[Workload]) -> list[Workload]:
    """What stands beside the models: adapters that are loaded at run time and their controller, the cache server.

    An adapter belongs to the model that it names, and to all of them where it names none of the file; what is switched
    off is left out.
    """
    names = {workload.name for workload in models}
    adapters = [entry for entry in items(obj.get("loraAdapters")) if entry.get("enabled") is not False]
    controller, cache = mapping(obj.get("loraController")), mapping(obj.get("cacheserverSpec"))
    shared = under("cacheserverSpec", left_over(cache, ()))
    if controller.get("enableLoraController"):
        shared |= under("loraController", left_over(controller, ()))
    out = []
    for workload in models:
        if not workload.pod:
            out.append(workload)
            continue
        own = [a for a in adapters if a.get("baseModel") == workload.name or a.get("baseModel") not in names]
        named = {str(a.get("name") or f"adapter-{index}"): left_over(a, ("name",)) for index, a in enumerate(own)}
        out.append(replace(workload, extra={**workload.extra, **shared, **under("loraAdapters", named)}))
    return out


def _secret(name: str, value: Any) -> list[JsonObject]:
    """A token that the chart puts into a Secret; where the values hold it in the clear, it stands there as it is."""
    if not value:
        return []
    if isinstance(value, str):
        return [{"name": name, "value": value}]
    reference = {"name": mapping(value).get("secretName"), "key": mapping(value).get("secretKey")}
    return [{"name": name, "valueFrom": {"secretKeyRef": reference}}]


def _requests(model: JsonObject) -> JsonObject:
    out: JsonObject = {}
    for part, word in (("requests", "request"), ("limits", "limit")):
        found = {key: model.get(word + name) for key, name in (("cpu", "CPU"), ("memory", "Memory"))}
        out[part] = {key: value for key, value in found.items() if value is not None}
    return out


def _transfer(cache: JsonObject, old_engine: bool) -> str | None:
    """``--kv-transfer-config`` for LMCache, as the chart writes it."""
    if not cache.get("enabled"):
        return None
    role = f'"kv_role":"{cache.get("kvRole") or "kv_both"}"'
    if "enablePD" in cache:
        port = cache.get("rpcPort") or cache.get("nixlRole") or ""
        more = f'"kv_connector_extra_config":{{"discard_partial_chunks":false,"lmcache_rpc_port":"{port}"}}'
        return f'{{"kv_connector":"LMCacheConnectorV1",{role},{more}}}'
    return f'{{"kv_connector":"{"LMCacheConnector" if old_engine else "LMCacheConnectorV1"}",{role}}}'


def vllm_workload(
    name: str,
    obj: JsonObject,
    config: JsonObject,
    model: Any,
    image: str | None,
    path: str,
    *,
    replicas: int | None,
    gpu: int,
    env: list[JsonObject],
    port: Any,
    extra_args: list[Any],
    accelerator: str = "nvidia.com/gpu",
    transfer: str | None = None,
    resources: JsonObject | None = None,
    extra: JsonObject | None = None,
    role: str | None = None,
) -> Workload:
    """``vllm serve`` as production-stack composes it from camelCase keys (chart and operator alike)."""
    args = [added(word, "command") for word in ("vllm", "serve")]
    args += [added(word, "custom-resource") for word in (model, "--host", "0.0.0.0", "--port", text_of(port))]
    for key, flag in (("enableLoRA", "--enable-lora"), ("enableTool", "--enable-auto-tool-choice")):
        if config.get(key):
            args.append(added(flag, "custom-resource"))
    for key, flag in (
        ("enableChunkedPrefill", "enable-chunked-prefill"),
        ("enablePrefixCaching", "enable-prefix-caching"),
    ):
        if config.get(key) is not None:
            args.append(added(f"--{flag}" if config[key] else f"--no-{flag}", "custom-resource"))
    for key, flag in _ARGUMENTS.items():
        if config.get(key) not in (None, ""):
            line = line_of(config[key])
            args += [added(flag, "custom-resource", line), added(config[key], "custom-resource")]
    if transfer:
        args += [added("--kv-transfer-config", "custom-resource"), added(transfer, "custom-resource")]
    args += [added(part, "args") for part in extra_args]
    container: JsonObject = {"name": "vllm", "image": image, "command": args, "env": env, "resources": resources or {}}
    return Workload(
        name,
        namespace_of(obj),
        str(obj.get("kind") or "values"),
        path,
        {"containers": [container]},
        role=role,
        replicas=replicas,
        gpu=gpu,
        accelerator=accelerator if gpu else None,
        extra=extra or {},
    )


def _router(name: str, obj: JsonObject, spec: JsonObject, path: str, api_key: Any = None) -> Workload:
    """The router's command line as chart and operator write it; absent keys are the chart's defaults."""
    image = mapping(spec.get("image"))
    repository = str(spec.get("repository") or image.get("name") or "lmcache/lmstack-router")
    named = f"{image['registry']}/{repository}" if image.get("registry") else repository
    discovery = str(spec.get("serviceDiscovery") or "k8s")
    words: list[Any] = ["--host", "0.0.0.0", "--port", spec.get("containerPort") or spec.get("port") or 8000]
    words += ["--service-discovery", discovery]
    for key, flag, default in (
        ("k8sLabelSelector", "--k8s-label-selector", None),
        ("k8sServiceDiscoveryType", "--k8s-service-discovery-type", None),
        ("staticBackends", "--static-backends", None),
        ("staticModels", "--static-models", None),
        ("routingLogic", "--routing-logic", "roundrobin"),
        ("sessionKey", "--session-key", None),
        ("engineScrapeInterval", "--engine-stats-interval", 15),
        ("requestStatsWindow", "--request-stats-window", 60),
        ("lmcacheControllerPort", "--lmcache-controller-port", None),
    ):
        value = spec.get(key) or default
        if value is not None:
            text = ",".join(map(str, value)) if isinstance(value, list) else value
            words += [added(flag, "custom-resource", line_of(text)), text]
    args = [added(word, "custom-resource", line_of(word)) for word in words]
    args += [added(word, "args") for word in text_list(spec.get("extraArgs"))]
    tag = spec.get("tag")
    resources = mapping(spec.get("resources"))
    plain = {key: resources[key] for key in ("cpu", "memory") if key in resources}
    container: JsonObject = {
        "name": "router-container",
        "image": f"{named}:{tag}" if tag else named,
        "args": args,
        "env": [
            *_secret("HF_TOKEN", spec.get("hf_token")),
            *_secret("VLLM_API_KEY", api_key),
            *items(spec.get("env")),
        ],
        "resources": {"limits": plain} if plain else resources,
    }
    return Workload(
        name,
        namespace_of(obj),
        str(obj.get("kind") or "values"),
        path,
        {"containers": [container]},
        role="router",
        server=("router-container",),
        replicas=whole_number(spec.get("replicaCount") or spec.get("replicas")),
        extra=under("routerSpec", left_over(spec, _READ_ROUTER)),
    )


# --- the operator


@reader("VLLMRuntime")
def read_vllm_runtime(obj: JsonObject, scope: Scope) -> list[Workload]:
    """Fields become arguments of ``vllm serve``; ``topology`` holds a prefill and a decode part."""
    spec = mapping(obj.get("spec"))
    topology = mapping(spec.get("topology"))
    parts = [(role, mapping(topology.get(role))) for role in ("prefill", "decode") if mapping(topology.get(role))]
    if not parts:
        return [_runtime(obj, name_of(obj), spec, "spec", None)]
    return [_runtime(obj, f"{name_of(obj)}-{role}", part, f"spec.topology.{role}", role) for role, part in parts]


def _runtime(obj: JsonObject, name: str, spec: JsonObject, path: str, role: str | None) -> Workload:
    model, config = mapping(spec.get("model")), mapping(spec.get("vllmConfig"))
    deployment = mapping(spec.get("deploymentConfig"))
    image, resources = mapping(deployment.get("image")), mapping(deployment.get("resources"))
    registry, tagged = str(image.get("registry") or ""), str(image.get("name") or "")
    limits = {key: resources[key] for key in ("cpu", "memory") if key in resources}
    return vllm_workload(
        name,
        obj,
        {**config, **model},
        model.get("modelURL") or "",
        f"{registry}/{tagged}".strip("/") or None,
        path,
        replicas=whole_number(deployment.get("replicas")),
        gpu=whole_number(resources.get("gpu")) or 0,
        accelerator=str(resources.get("gpuType") or "nvidia.com/gpu"),
        env=items(config.get("env")),
        port=config.get("port") or 8000,
        extra_args=text_list(config.get("extraArgs")),
        transfer=_transfer(mapping(spec.get("lmCacheConfig")), False),
        resources={"limits": limits} if limits else {},
        extra=under("spec", left_over(spec, _READ_RUNTIME)),
        role=role,
    )


@reader("VLLMRouter")
def read_vllm_router(obj: JsonObject, scope: Scope) -> list[Workload]:
    """The router in front of VLLMRuntimes."""
    spec = mapping(obj.get("spec"))
    if spec.get("enableRouter") is False:
        return [Workload(name_of(obj), namespace_of(obj), "VLLMRouter", "spec", {}, notes=("it is not enabled",))]
    return [_router(name_of(obj), obj, spec, "spec")]


def read_operator_values(obj: JsonObject, scope: Scope) -> list[Workload]:
    """Values of the operator's chart: every entry of ``vllmRuntimes`` over ``vllmRuntimeDefaults``, and the router."""
    defaults = mapping(obj.get("vllmRuntimeDefaults"))
    out: list[Workload] = []
    for index, entry in enumerate(items(obj.get("vllmRuntimes"))):
        name = str(entry.get("name") or (f"runtime-{index}" if index else "runtime"))
        spec = laid_over(defaults, mapping(entry.get("spec")))
        made = {"kind": "values", "metadata": {"name": name}, "spec": spec}
        out += [replace(part, path=f"vllmRuntimes[{index}].{part.path}") for part in read_vllm_runtime(made, scope)]
    router = mapping(obj.get("vllmRouter"))
    if router.get("enabled") and mapping(router.get("spec")).get("enableRouter") is not False:
        out.append(_router(str(router.get("name") or "router"), {}, mapping(router.get("spec")), "vllmRouter.spec"))
    note = "neither a runtime nor a router: the chart deploys the operator alone"
    return out or [Workload("values", None, "values", "vllmRuntimes", {}, notes=(note,))]
