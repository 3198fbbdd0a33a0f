"""OME: runtimes with engine, decoder and router, and the InferenceService that chooses one."""

from __future__ import annotations

from dataclasses import replace

from manifests.importers.fields import laid_over, left_over, under
from manifests.importers.kubernetes import workload_of
from manifests.importers.registry import JsonObject, Scope, Workload, items, mapping, reader, whole_number

_POD_KEYS = ("volumes", "nodeSelector", "tolerations", "affinity", "hostNetwork", "hostIPC", "initContainers")
_COMPONENTS = (("engine", "engineConfig"), ("decoder", "decoderConfig"), ("router", "routerConfig"))


_READ = frozenset(
    {"model.name", "runtime.name", "predictor.model.baseModel", "predictor.model.runtime", "predictor.minReplicas"}
    | {f"{part}.{key}" for part, _ in _COMPONENTS for key in ("minReplicas", "runner", "leader", "worker", *_POD_KEYS)}
)


@reader("ServingRuntime.ome.io", "ClusterServingRuntime.ome.io")
def read_ome_runtime(obj: JsonObject, scope: Scope) -> list[Workload]:
    """An engine, a decoder and a router, each with a runner or a leader and workers; older ones have containers."""
    spec = mapping(obj.get("spec"))
    if not any(mapping(spec.get(key)) for _, key in _COMPONENTS):
        template = {"metadata": {"labels": spec.get("labels"), "annotations": spec.get("annotations")}, "spec": spec}
        return [workload_of(obj, template, "spec")]
    return _parts(obj, {key: mapping(spec.get(key)) for _, key in _COMPONENTS}, {})


@reader("InferenceService.ome.io")
def read_ome_service(obj: JsonObject, scope: Scope) -> list[Workload]:
    """A model, a runtime and overrides of its parts; a runtime that is not in the input leaves the command unknown."""
    spec = mapping(obj.get("spec"))
    predictor = mapping(mapping(spec.get("predictor")).get("model"))
    model = str(mapping(spec.get("model")).get("name") or predictor.get("baseModel") or "") or None
    name = str(mapping(spec.get("runtime")).get("name") or predictor.get("runtime") or "")
    known = mapping((scope.runtimes.get(name) or {}).get("spec"))
    parts = {key: laid_over(mapping(known.get(key)), mapping(spec.get(own))) for own, key in _COMPONENTS}
    older = mapping(spec.get("predictor"))
    extra = under("spec", left_over(spec, _READ))
    if items(known.get("containers")) and not any(mapping(known.get(key)) for _, key in _COMPONENTS):
        pod = {"spec": {**known, "containers": known["containers"]}}
        replicas = whole_number((mapping(spec.get("engine")) or older).get("minReplicas"))
        return [workload_of(obj, pod, "spec", replicas=replicas, model_id=model, extra=extra, patch=False)]
    out = [replace(part, model_id=model, extra=extra) for part in _parts(obj, parts, {"MODEL_PATH": "$(MODEL_PATH)"})]
    if out:
        return out
    missing = f"runtime `{name}` is not in the input" if name else "no runtime is named: OME chooses one by the model"
    return [
        workload_of(
            obj,
            {"spec": {"containers": [{"name": "ome-container"}]}},
            "spec",
            engine={"srt": "sglang", "vllm": "vllm"}.get(name.partition("-")[0]),
            server=("ome-container",),
            replicas=whole_number((mapping(spec.get("engine")) or older).get("minReplicas")),
            model_id=model,
            gpu=-1,
            extra=extra,
            notes=(f"{missing}: its arguments are not known",),
            patch=False,
        )
    ]


def _parts(obj: JsonObject, parts: JsonObject, variables: dict[str, str]) -> list[Workload]:
    both = bool(parts["decoderConfig"])
    out: list[Workload] = []
    for key, role in (
        ("engineConfig", "prefill" if both else "server"),
        ("decoderConfig", "decode"),
        ("routerConfig", "router"),
    ):
        out += _part(obj, parts[key], f"spec.{key}", role, variables)
    return out


def _part(obj: JsonObject, part: JsonObject, path: str, role: str, variables: dict[str, str]) -> list[Workload]:
    worker = mapping(part.get("worker"))
    size = 1 + (whole_number(worker.get("size")) or 1) if worker else 1
    if worker:
        variables = {
            **variables,
            "LWS_GROUP_SIZE": str(size),
            "LWS_LEADER_ADDRESS": "$(LWS_LEADER_ADDRESS)",
            "LWS_WORKER_INDEX": "$(LWS_WORKER_INDEX)",
        }
    out = []
    for where, rank, source in (
        ("", None, part),
        (".leader", "leader", mapping(part.get("leader"))),
        (
            ".worker",
            "worker",
            worker,
        ),
    ):
        runner = mapping(source.get("runner"))
        if not runner:
            continue
        shared = {key: value for key, value in {**part, **source}.items() if key in _POD_KEYS}
        pod = {**shared, "containers": [{"name": "ome-container", **runner}]}
        out.append(
            workload_of(
                obj,
                {"spec": pod, "metadata": {"labels": part.get("labels"), "annotations": part.get("annotations")}},
                f"{path}{where}.runner",
                role=role,
                rank=rank,
                pods=size if rank else 1,
                replicas=whole_number(part.get("minReplicas")),
                variables=variables,
            )
        )
    return out
