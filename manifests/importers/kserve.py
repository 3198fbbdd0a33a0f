"""KServe: InferenceService over its runtime, ServingRuntime, LLMInferenceService and its configs."""

from __future__ import annotations

import re
import shlex
from typing import Any

from manifests.engines.values import guess
from manifests.importers.fields import added, field, laid_over, left_over, under
from manifests.importers.kubernetes import pod_annotations, workload_of
from manifests.importers.ome import read_ome_runtime
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
from manifests.yamlsafe import Text, line_of

_DRA = "serving.kserve.io/exp-dra-"
_PARALLEL = {
    "vllm": (
        ("tensor", "tensor-parallel-size"),
        ("pipeline", "pipeline-parallel-size"),
        ("data", "data-parallel-size"),
        ("dataLocal", "data-parallel-size-local"),
    ),
    "sglang": (("tensor", "tp-size"), ("pipeline", "pp-size"), ("data", "dp-size"), ("expert", "ep-size")),
}
_LLM_READ = frozenset(
    {"model.uri", "model.name", "model.lora", "replicas", "parallelism", "template", "worker", "prefill", "baseRefs"}
    | {"speculator"}
)
_ADDITIONAL = re.compile(r"^(?:VLLM|SGLANG)_ADDITIONAL_ARGS$")


# --- LLMInferenceService


@reader("LLMInferenceServiceConfig")
def read_llm_inference_service_config(obj: JsonObject, scope: Scope) -> list[Workload]:
    """A part that services refer to; where it holds a pod template it is read like a service of its own."""
    spec = mapping(obj.get("spec"))
    if not any(mapping(spec.get(key)) for key in ("template", "prefill", "worker")):
        note = "a part that LLMInferenceServices refer to, without a pod template"
        return [workload_of(obj, {"spec": {}}, "spec", notes=(note,))]
    return read_llm_inference_service(obj, scope)


@reader("LLMInferenceService")
def read_llm_inference_service(obj: JsonObject, scope: Scope) -> list[Workload]:
    """``spec.template`` decodes (or does both), ``spec.prefill`` prefills; baseRefs and the runtime of the same input
    are merged below."""
    spec = _with_bases(mapping(obj.get("spec")), scope)
    prefill = mapping(spec.get("prefill"))
    out = _llm_part(obj, spec, "decode" if prefill else None, spec, "spec", scope)
    if prefill:
        out += _llm_part(obj, spec, "prefill", prefill, "spec.prefill", scope)
    return out


def _with_bases(spec: JsonObject, scope: Scope) -> JsonObject:
    out: JsonObject = {}
    for reference in items(spec.get("baseRefs")):
        name = str(reference.get("name"))
        base = scope.bases.get(name)
        if base is None:
            message = f"LLMInferenceServiceConfig `{name}` is not in the input; add it"
            scope.problems.append(("missing-configmap", "spec.baseRefs", message))
        out = laid_over(out, mapping((base or {}).get("spec")))
    return laid_over(out, spec)


def _llm_part(
    obj: JsonObject, spec: JsonObject, role: str | None, part: JsonObject, path: str, scope: Scope
) -> list[Workload]:
    model, parallel = mapping(spec.get("model")), mapping(part.get("parallelism"))
    runtime = str(spec.get("runtime") or "")
    engine = runtime_engine(runtime, "") or "vllm"
    worker, template = mapping(part.get("worker")), mapping(part.get("template"))
    if not template and not worker:
        template = {"containers": [{"name": "main"}]}
    annotations = pod_annotations({}, obj)
    count = whole_number(annotations.get(f"{_DRA}device-count"))
    shared: JsonObject = {
        "replicas": whole_number(part.get("replicas")),
        "fields": tuple(_llm_fields(spec, parallel, engine)),
        "engine": engine,
        "model_id": str(model["uri"]) if model.get("uri") else None,
        "role": role,
        "pods": _group_size(parallel) if worker else 1,
        "patch": False,
        "extra": under("spec", left_over(part if role == "prefill" else spec, _LLM_READ)),
    }
    if f"{_DRA}device-class" in annotations:
        shared |= {"gpu": count or 1, "accelerator": str(annotations[f"{_DRA}device-class"])}
    out = []
    for pod, where, rank in (
        (template, "template", "leader" if worker else None),
        (worker, "worker", "worker" if worker else None),
    ):
        if where == "worker" and not worker:
            continue
        pod = _over_runtime(pod, runtime, scope)
        servers = _servers(pod, annotations)
        more = {"rank": rank, "added_args": _additional(pod), "server": servers}
        out.append(workload_of(obj, {"spec": pod}, f"{path}.{where}", **shared, **more))
    return out


def _over_runtime(pod: JsonObject, runtime: str, scope: Scope) -> JsonObject:
    """The image comes from the runtime that the service names, where that runtime is in the input."""
    found = mapping((scope.runtimes.get(runtime) or {}).get("spec"))
    container = next(iter(items(found.get("containers"))), None)
    if container is None:
        return pod
    own = items(pod.get("containers")) or [{"name": "main"}]
    return {**pod, "containers": [{**container, **entry} if not entry.get("image") else entry for entry in own]}


def _servers(pod: JsonObject, annotations: JsonObject) -> tuple[str, ...]:
    """``main`` by KServe's contract, the container that the annotation names, or those that leave the image to the
    template."""
    names = [str(container.get("name")) for container in items(pod.get("containers"))]
    named = str(annotations.get(f"{_DRA}container-name") or "main")
    if named in names:
        return (named,)
    free = [str(c.get("name")) for c in items(pod.get("containers")) if not c.get("image") and not c.get("command")]
    return tuple(free[:1])


def _llm_fields(spec: JsonObject, parallel: JsonObject, engine: str) -> list[Field]:
    model = mapping(spec.get("model"))
    out = [field("served-model-name", model["name"], "model.name")] if model.get("name") else []
    for key, flag in _PARALLEL.get(engine, ()):
        if key in parallel and not isinstance(parallel[key], bool):
            out.append(field(flag, parallel[key], f"parallelism.{key}"))
    if engine == "vllm" and parallel.get("expert"):
        out.append(field("enable-expert-parallel", True, "parallelism.expert"))
    return out + _lora_fields(mapping(model.get("lora"))) + _speculator(mapping(spec.get("speculator")))


def _group_size(parallel: JsonObject) -> int:
    data, local = whole_number(parallel.get("data")) or 1, whole_number(parallel.get("dataLocal")) or 1
    return max(1, data // max(1, local)) if data > 1 else whole_number(parallel.get("pipeline")) or 1


def _lora_fields(lora: JsonObject) -> list[Field]:
    adapters = items(lora.get("adapters"))
    if not adapters:
        return []
    out = [
        field("enable-lora", True, "model.lora"),
        field("lora-modules", [f"{a.get('name')}={a.get('uri')}" for a in adapters], "model.lora.adapters"),
    ]
    for key, flag in (("maxRank", "max-lora-rank"), ("maxAdapters", "max-loras"), ("maxCpuAdapters", "max-cpu-loras")):
        if key in lora:
            out.append(field(flag, lora[key], f"model.lora.{key}"))
    return out


def _speculator(speculator: JsonObject) -> list[Field]:
    """``--speculative-config``: the config's entries (texts that are numbers are numbers) and the draft's weights."""
    config = {
        key: guess(value) if isinstance(value, str) else value
        for key, value in mapping(speculator.get("config")).items()
    }
    draft = mapping(speculator.get("model")).get("uri")
    if draft and "model" not in config:
        config["model"] = str(draft)
    return [Field("speculative-config", config, f"speculator: {config}")] if config else []


def _additional(template: JsonObject) -> tuple[Text, ...]:
    """KServe's template appends the words of ``VLLM_ADDITIONAL_ARGS`` to the command line."""
    for container in items(template.get("containers")):
        for entry in items(container.get("env")):
            value = entry.get("value")
            if _ADDITIONAL.match(str(entry.get("name"))) and isinstance(value, str) and not container.get("command"):
                try:
                    words = shlex.split(value)
                except ValueError:
                    words = value.split()
                return tuple(added(word, "env", line_of(value)) for word in words)
    return ()


# --- ServingRuntime and InferenceService


@reader("ServingRuntime", "ClusterServingRuntime")
def read_serving_runtime(obj: JsonObject, scope: Scope) -> list[Workload]:
    """Containers whose ``{{.Name}}`` an InferenceService fills in."""
    spec = mapping(obj.get("spec"))
    if "engineConfig" in spec or "decoderConfig" in spec:
        return read_ome_runtime(obj, scope)
    version = str(pod_annotations({}, obj).get("opendatahub.io/runtime-version") or "").removeprefix("v") or None
    names = any(container.get("name") == "kserve-container" for container in items(spec.get("containers")))
    shared: JsonObject = {"version": version, "server": ("kserve-container",) if names else ()}
    template = {"metadata": {"labels": spec.get("labels"), "annotations": spec.get("annotations")}, "spec": spec}
    worker = mapping(spec.get("workerSpec"))
    if not worker:
        return [workload_of(obj, template, "spec", **shared)]
    pods = whole_number(worker.get("pipelineParallelSize")) or 1
    return [
        workload_of(obj, template, "spec", rank="leader", pods=pods, **shared),
        workload_of(obj, {"spec": worker}, "spec.workerSpec", rank="worker", pods=pods, version=version),
    ]


@reader("InferenceService")
def read_inference_service(obj: JsonObject, scope: Scope) -> list[Workload]:
    """``predictor.model`` over its runtime, or containers of its own."""
    predictor = mapping(mapping(obj.get("spec")).get("predictor"))
    model = mapping(predictor.get("model")) or _framework(predictor)
    replicas = whole_number(predictor.get("minReplicas"))
    if not model:
        more: JsonObject = {"replicas": replicas, "model_id": _storage_uri(predictor)}
        return [workload_of(obj, {"spec": predictor}, "spec.predictor", **more)] if predictor else []
    name = str(model.get("runtime") or "")
    runtime = scope.runtimes.get(name)
    form = str(mapping(model.get("modelFormat")).get("name") or "").lower()
    engine = runtime_engine(name, form)
    if not name and not form:
        keys = ("image", "command", "args", "env", "resources")
        pod = {**predictor, "containers": [{"name": "kserve-container"} | {k: model[k] for k in keys if k in model}]}
        uri = str(model["storageUri"]) if model.get("storageUri") else None
        return [workload_of(obj, {"spec": pod}, "spec.predictor.model", replicas=replicas, model_id=uri)]
    if runtime is None and engine is None:
        note = f"model format `{form}` is served by no engine of ours"
        return [workload_of(obj, {"spec": {}}, "spec.predictor", notes=(note,))]
    known = mapping((runtime or {}).get("spec"))
    container = _predictor_container(obj, model, known)
    shared = {key: value for key, value in known.items() if key in ("volumes", "nodeSelector", "tolerations")}
    worker = mapping(predictor.get("workerSpec"))
    named = f"runtime `{name}`" if name else f"the runtime for the format `{form}`"
    missing = () if runtime else (f"{named} is not in the input: its own arguments are not known",)
    return [
        workload_of(
            obj,
            {"spec": {**shared, **predictor, "containers": [container]}},
            "spec.predictor.model",
            replicas=replicas,
            engine=None if runtime else engine,
            server=(str(container["name"]),),
            notes=missing,
            model_id=str(model["storageUri"]) if model.get("storageUri") else None,
            patch=False,
            fields=_worker_fields(worker),
            pods=whole_number(worker.get("pipelineParallelSize")) or 1,
            extra=under("spec", left_over(mapping(obj.get("spec")), _ISVC_READ)),
        )
    ]


_ISVC_READ = frozenset(
    {f"predictor.{key}" for key in ("minReplicas", "workerSpec.tensorParallelSize", "workerSpec.pipelineParallelSize")}
    | {f"predictor.{key}" for key in ("volumes", "nodeSelector", "tolerations", "affinity", "serviceAccountName")}
    | {f"predictor.{form}" for form in ("huggingface", "triton", "containers", "imagePullSecrets", "initContainers")}
    | {f"predictor.model.{key}" for key in ("storageUri", "image", "command", "args", "env", "resources", "ports")}
    | {f"predictor.model.{key}" for key in ("volumeMounts", "modelFormat", "runtime", "name")}
    | {"predictor.model.livenessProbe", "predictor.model.readinessProbe", "predictor.model.startupProbe"}
)


def _storage_uri(predictor: JsonObject) -> str | None:
    """What KServe's storage initialiser fetches into ``/mnt/models`` for a container of one's own."""
    for container in items(predictor.get("containers")):
        for entry in items(container.get("env")):
            if entry.get("name") == "STORAGE_URI" and isinstance(entry.get("value"), str):
                return str(entry["value"])
    return None


def _framework(predictor: JsonObject) -> JsonObject:
    """The older form: the framework's name is the key (``predictor.huggingface``, ``predictor.triton``)."""
    for form in ("huggingface", "triton"):
        if isinstance(predictor.get(form), dict):
            return {"modelFormat": {"name": form}, **mapping(predictor[form])}
    return {}


def _worker_fields(worker: JsonObject) -> tuple[Field, ...]:
    return tuple(
        field(flag, worker[key], f"workerSpec.{key}")
        for key, flag in (
            ("tensorParallelSize", "tensor-parallel-size"),
            ("pipelineParallelSize", "pipeline-parallel-size"),
        )
        if worker.get(key)
    )


def runtime_engine(name: str, form: str) -> str | None:
    """The engine that a runtime's name or a model's format stands for, None for none of ours."""
    for word, engine in (
        ("huggingface", "huggingfaceserver"),
        ("vllm", "vllm"),
        ("sglang", "sglang"),
        ("tgi", "tgi"),
        ("trtllm", "trtllm"),
        ("triton", "triton-trtllm"),
    ):
        if word in name.lower() or word == form:
            return engine
    return None


def _predictor_container(obj: JsonObject, model: JsonObject, runtime: JsonObject) -> JsonObject:
    base = next((c for c in items(runtime.get("containers")) if c.get("name") == "kserve-container"), {})
    keys = ("image", "command", "resources", "ports", "volumeMounts", "livenessProbe", "readinessProbe", "startupProbe")
    own = {key: value for key, value in model.items() if key in keys}
    container = {"name": "kserve-container", **base, **own}
    arguments = [_filled(a, name_of(obj)) for a in text_list(base.get("args"))]
    container["args"] = arguments + list(text_list(model.get("args")))
    container["env"] = merge_env(base.get("env"), model.get("env"))
    return container


def _filled(value: Any, name: str) -> Any:
    if isinstance(value, str) and "{{.Name}}" in value:
        return added(value.replace("{{.Name}}", name), "args", line_of(value))
    return value
