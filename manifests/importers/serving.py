"""Serving operators: KServe (InferenceService, LLMInferenceService, ServingRuntime), KubeAI, KAITO, OME."""

from __future__ import annotations

import shlex
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
    namespace_of,
    reader,
    text_list,
    whole_number,
)
from manifests.yamlsafe import Text, YamlRefused, line_of, load_all

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


def added(text: str, origin: str, line: int | None) -> Text:
    """An argument that an operator composes, with the place it comes from."""
    out = Text(text)
    out.line, out.literal = line or 1, False
    out.origin = origin  # type: ignore[attr-defined]
    return out


def field(name: str, value: Any, key: str) -> Field:
    """A custom resource's field as an engine setting."""
    return Field(name, value, f"{key}: {value}", line_of(value))


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
    """KServe: ``spec.template`` decodes (or does both), ``spec.prefill`` prefills; baseRefs of the same input are
    merged below."""
    spec = _with_bases(mapping(obj.get("spec")), scope)
    model = mapping(spec.get("model"))
    out = []
    parts: list[tuple[str | None, JsonObject, str]] = [("decode" if spec.get("prefill") else None, spec, "spec")]
    if mapping(spec.get("prefill")):
        parts.append(("prefill", mapping(spec.get("prefill")), "spec.prefill"))
    for role, part, path in parts:
        out += _llm_part(obj, model, role, part, path)
    return out


def _with_bases(spec: JsonObject, scope: Scope) -> JsonObject:
    out: JsonObject = {}
    for reference in items(spec.get("baseRefs")):
        name = str(reference.get("name"))
        base = scope.bases.get(name)
        if base is None:
            scope.problems.append(
                (
                    "missing-configmap",
                    "spec.baseRefs",
                    f"LLMInferenceServiceConfig `{name}` is not in the input; add it",
                )
            )
        out = _merged(out, mapping((base or {}).get("spec")))
    return _merged(out, spec)


def _merged(base: JsonObject, over: JsonObject) -> JsonObject:
    """``over`` laid on ``base``; containers merge by name, as KServe does."""
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            out[key] = _merged(old, value)
        elif (
            key in ("containers", "initContainers", "env", "volumes", "volumeMounts")
            and isinstance(old, list)
            and isinstance(value, list)
        ):
            named = {str(entry.get("name")): entry for entry in items(old)}
            for entry in items(value):
                name = str(entry.get("name"))
                named[name] = _merged(named.get(name, {}), entry)
            out[key] = list(named.values())
        else:
            out[key] = value
    return out


def _llm_part(obj: JsonObject, model: JsonObject, role: str | None, part: JsonObject, path: str) -> list[Workload]:
    parallel = mapping(part.get("parallelism"))
    fields = [field("served-model-name", model["name"], "model.name")] if model.get("name") else []
    for key, flag in (
        ("tensor", "tensor-parallel-size"),
        ("pipeline", "pipeline-parallel-size"),
        ("data", "data-parallel-size"),
        ("dataLocal", "data-parallel-size-local"),
    ):
        if key in parallel:
            fields.append(field(flag, parallel[key], f"parallelism.{key}"))
    if parallel.get("expert"):
        fields.append(field("enable-expert-parallel", True, "parallelism.expert"))
    fields += _lora_fields(mapping(model.get("lora")))
    worker = mapping(part.get("worker"))
    shared: JsonObject = {
        "replicas": whole_number(part.get("replicas")),
        "fields": tuple(fields),
        "engine": "vllm",
        "server": ("main",),
        "model_id": str(model["uri"]) if model.get("uri") else None,
        "role": role,
        "pods": _group_size(parallel) if worker else 1,
    }
    template = mapping(part.get("template"))
    if not template and not worker:
        template = {"containers": [{"name": "main"}]}
    out = [
        workload_of(
            obj,
            {"spec": template},
            f"{path}.template",
            rank="leader" if worker else None,
            added_args=_additional(template),
            patch=False,
            **shared,
        )
    ]
    if worker:
        out.append(
            workload_of(
                obj,
                {"spec": worker},
                f"{path}.worker",
                rank="worker",
                added_args=_additional(worker),
                patch=False,
                **shared,
            )
        )
    return out


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


def _additional(template: JsonObject) -> tuple[Text, ...]:
    """KServe's template appends the words of ``VLLM_ADDITIONAL_ARGS`` to the command line."""
    for container in items(template.get("containers")):
        for entry in items(container.get("env")):
            value = entry.get("value")
            if entry.get("name") == "VLLM_ADDITIONAL_ARGS" and isinstance(value, str) and not container.get("command"):
                try:
                    words = shlex.split(value)
                except ValueError:
                    words = value.split()
                return tuple(added(word, "env", line_of(value)) for word in words)
    return ()


@reader("ServingRuntime", "ClusterServingRuntime")
def read_serving_runtime(obj: JsonObject, scope: Scope) -> list[Workload]:
    """KServe's runtime: containers whose ``{{.Name}}`` an InferenceService fills in."""
    spec = mapping(obj.get("spec"))
    if "engineConfig" in spec or "decoderConfig" in spec:
        return read_ome_runtime(obj, scope)
    annotations = mapping(mapping(obj.get("metadata")).get("annotations"))
    version = str(annotations.get("opendatahub.io/runtime-version") or "").removeprefix("v") or None
    template = {"metadata": {"labels": spec.get("labels"), "annotations": spec.get("annotations")}, "spec": spec}
    return [workload_of(obj, template, "spec", version=version, server=("kserve-container",) if _names(spec) else ())]


def _names(spec: JsonObject) -> bool:
    return any(container.get("name") == "kserve-container" for container in items(spec.get("containers")))


@reader("ServingRuntime.ome.io", "ClusterServingRuntime.ome.io")
def read_ome_runtime(obj: JsonObject, scope: Scope) -> list[Workload]:
    """OME: an engine, a decoder and a router, each with a runner or a leader and workers."""
    spec = mapping(obj.get("spec"))
    out: list[Workload] = []
    both = bool(mapping(spec.get("decoderConfig")))
    for key, role in (
        ("engineConfig", "prefill" if both else "server"),
        ("decoderConfig", "decode"),
        ("routerConfig", "router"),
    ):
        out += _ome_part(obj, mapping(spec.get(key)), f"spec.{key}", role)
    return out


def _ome_part(obj: JsonObject, part: JsonObject, path: str, role: str) -> list[Workload]:
    out = []
    size = 1 + (whole_number(mapping(part.get("worker")).get("size")) or (1 if part.get("worker") else 0))
    for where, rank, source in (
        ("", None, part),
        (".leader", "leader", mapping(part.get("leader"))),
        (".worker", "worker", mapping(part.get("worker"))),
    ):
        runner = mapping(source.get("runner"))
        if runner:
            pod = {
                **{k: v for k, v in part.items() if k in ("volumes", "nodeSelector", "tolerations", "affinity")},
                "containers": [{"name": "ome-container", **runner}],
            }
            out.append(
                workload_of(
                    obj,
                    {"spec": pod},
                    f"{path}{where}.runner",
                    role=role,
                    rank=rank,
                    pods=size if rank else 1,
                    replicas=whole_number(part.get("minReplicas")),
                )
            )
    return out


@reader("InferenceService")
def read_inference_service(obj: JsonObject, scope: Scope) -> list[Workload]:
    """KServe: ``predictor.model`` over its runtime, or containers of its own."""
    predictor = mapping(mapping(obj.get("spec")).get("predictor"))
    model = mapping(predictor.get("model"))
    replicas = whole_number(predictor.get("minReplicas"))
    if not model:
        return [workload_of(obj, {"spec": predictor}, "spec.predictor", replicas=replicas)] if predictor else []
    name = str(model.get("runtime") or "")
    runtime = scope.runtimes.get(name)
    form = str(mapping(model.get("modelFormat")).get("name") or "").lower()
    container = _predictor_container(obj, model, mapping((runtime or {}).get("spec")))
    engine, hint = _runtime_engine(name, form)
    notes = () if runtime else (f"runtime `{name or form}` is not in the input: its own arguments are not known",)
    if runtime is None and engine is None:
        return [
            workload_of(
                obj, {"spec": {}}, "spec.predictor", notes=(f"model format `{form}` is served by no engine of ours",)
            )
        ]
    pod = {
        **{
            k: v
            for k, v in mapping((runtime or {}).get("spec")).items()
            if k in ("volumes", "nodeSelector", "tolerations")
        },
        **predictor,
        "containers": [container],
    }
    return [
        workload_of(
            obj,
            {"spec": pod},
            "spec.predictor.model",
            replicas=replicas,
            engine=None if runtime else engine,
            server=(str(container["name"]),),
            notes=notes,
            model_id=str(model["storageUri"]) if model.get("storageUri") else None,
            patch=False,
            fields=() if runtime else hint,
        )
    ]


def _runtime_engine(name: str, form: str) -> tuple[str | None, tuple[Field, ...]]:
    for word, engine in (
        ("huggingface", "huggingfaceserver"),
        ("vllm", "vllm"),
        ("sglang", "sglang"),
        ("tgi", "tgi"),
        ("trtllm", "trtllm"),
        ("triton", "triton-trtllm"),
    ):
        if word in name.lower() or word == form:
            return engine, ()
    return None, ()


def _predictor_container(obj: JsonObject, model: JsonObject, runtime: JsonObject) -> JsonObject:
    base = next((c for c in items(runtime.get("containers")) if c.get("name") == "kserve-container"), {})
    container = {
        "name": "kserve-container",
        **base,
        **{k: v for k, v in model.items() if k in ("image", "command", "resources", "ports", "volumeMounts")},
    }
    arguments = [_filled(a, name_of(obj)) for a in text_list(base.get("args"))]
    container["args"] = arguments + list(text_list(model.get("args")))
    container["env"] = merge_env(base.get("env"), model.get("env"))
    return container


def _filled(value: Any, name: str) -> Any:
    if isinstance(value, str) and "{{.Name}}" in value:
        return added(value.replace("{{.Name}}", name), "args", line_of(value))
    return value


@reader("Model.kubeai.org", "Model")
def read_kubeai_model(obj: JsonObject, scope: Scope) -> list[Workload]:
    """KubeAI: the operator starts the engine; ``resourceProfile`` is ``NAME:COUNT``."""
    spec = mapping(obj.get("spec"))
    engine = {"VLLM": "vllm", "OLlama": None, "Infinity": None, "FasterWhisper": None}.get(str(spec.get("engine")))
    if engine is None:
        return [workload_of(obj, {"spec": {}}, "spec", notes=(f"engine `{spec.get('engine')}` is none of ours",))]
    profile, _, number = str(spec.get("resourceProfile") or "").partition(":")
    count = whole_number(number) or 1
    is_cpu = profile.startswith("cpu")
    fields = []
    if items(spec.get("adapters")):
        fields += [
            field("enable-lora", True, "adapters"),
            field("lora-modules", [f"{a.get('name')}={a.get('url')}" for a in items(spec.get("adapters"))], "adapters"),
        ]
    env = [{"name": key, "value": value} for key, value in mapping(spec.get("env")).items()]
    container = {"name": "server", "image": spec.get("image"), "args": spec.get("args"), "env": env}
    return [
        Workload(
            name=name_of(obj),
            namespace=namespace_of(obj),
            kind="Model",
            path="spec",
            pod={"containers": [container]},
            engine=engine,
            server=("server",),
            replicas=whole_number(spec.get("replicas"))
            if spec.get("replicas") is not None
            else whole_number(spec.get("minReplicas")),
            model_id=str(spec["url"]) if spec.get("url") else None,
            gpu=0 if is_cpu else count if profile else -1,
            fields=tuple(fields),
            accelerator=None
            if is_cpu
            else "amd.com/gpu"
            if "amd" in profile
            else "nvidia.com/gpu"
            if profile
            else None,
            product=None if is_cpu or not profile else profile,
            extra={"resourceProfile": str(spec["resourceProfile"])} if profile else {},
        )
    ]


@reader("Workspace", "InferenceSet", "RAGEngine")
def read_kaito(obj: JsonObject, scope: Scope) -> list[Workload]:
    """KAITO: a preset with a vLLM configuration in a ConfigMap, or a pod template of one's own."""
    spec = mapping(obj.get("spec"))
    inner = mapping(spec.get("template")) if obj.get("kind") == "InferenceSet" else obj
    inference, resource = mapping(inner.get("inference")), mapping(inner.get("resource"))
    base = "spec.template." if obj.get("kind") == "InferenceSet" else ""
    template = mapping(inference.get("template"))
    replicas = whole_number(spec.get("replicas")) or whole_number(resource.get("count")) or 1
    if template:
        return [workload_of(obj, template, f"{base}inference.template.spec", replicas=replicas)]
    preset = mapping(inference.get("preset"))
    if not preset:
        return [
            workload_of(obj, {"spec": {}}, base + "inference", notes=("no inference preset: a tuning job or an index",))
        ]
    annotations = mapping(mapping(obj.get("metadata")).get("annotations"))
    if annotations.get("kaito.sh/runtime") == "transformers":
        return [workload_of(obj, {"spec": {}}, base + "inference", notes=("the transformers runtime is none of ours",))]
    instance = str(resource.get("instanceType") or "").lower().removeprefix("standard_")
    gpus, product = _AZURE_GPUS.get(instance, (-1, None))
    container = {"name": "server", "env": []}
    return [
        Workload(
            name=name_of(obj),
            namespace=namespace_of(obj),
            kind=str(obj.get("kind")),
            path=base + "inference",
            pod={"containers": [container]},
            engine="vllm",
            server=("server",),
            replicas=replicas,
            model_id=str(preset.get("name")),
            gpu=gpus,
            product=product,
            accelerator="nvidia.com/gpu" if product and "NVIDIA" in product else None,
            fields=_kaito_config(obj, inference, base, scope),
            extra={"instanceType": resource["instanceType"]} if resource.get("instanceType") else {},
        )
    ]


def _kaito_config(obj: JsonObject, inference: JsonObject, base: str, scope: Scope) -> tuple[Field, ...]:
    name = inference.get("config")
    if not name:
        return ()
    found = scope.configmap(namespace_of(obj), str(name))
    text = mapping((found or {}).get("data")).get("inference_config.yaml")
    if not isinstance(text, str):
        scope.problems.append(
            (
                "missing-configmap",
                base + "inference.config",
                f"ConfigMap `{name}` with `inference_config.yaml` is not in the input; add it",
            )
        )
        return ()
    try:
        documents = load_all(text)
    except YamlRefused as refused:
        scope.problems.append(
            ("bad-value", base + "inference.config", f"`inference_config.yaml` of ConfigMap `{name}`: {refused}")
        )
        return ()
    settings = mapping(mapping(documents[0].value if documents else {}).get("vllm"))
    start = getattr(text, "line", 1)
    return tuple(
        Field(str(key).replace("_", "-"), _bare(value), f"configmap {name}: {key}: {value}", start)
        for key, value in settings.items()
    )


def _bare(value: Any) -> Any:
    return float(value) if isinstance(value, float) else str(value) if isinstance(value, str) else value
