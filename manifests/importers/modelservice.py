"""Values of llm-d's modelservice chart (``modelArtifacts``, ``decode``, ``prefill``).

What the chart would render from them is composed here; see :mod:`manifests.importers.production_stack`.
"""

from __future__ import annotations

from manifests.importers.fields import added, left_over, under
from manifests.importers.registry import Field, JsonObject, Scope, Workload, items, mapping, text_list, whole_number
from manifests.yamlsafe import text_of

_READ = frozenset(
    {"create", "replicas", "parallelism", "containers", "nodeSelector", "volumes", "annotations", "labels"}
)


def read_modelservice_values(obj: JsonObject, scope: Scope) -> list[Workload]:
    """A workload each for ``decode`` and ``prefill`` that is created."""
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
    pod = {"containers": containers, "nodeSelector": part.get("nodeSelector"), "volumes": part.get("volumes")}
    return Workload(
        role,
        None,
        "values",
        f"{role}",
        {**pod, "initContainers": _proxy(obj) if role == "decode" else []},
        role=role if mapping(obj.get("prefill")) else "server",
        replicas=whole_number(part.get("replicas")) or 1,
        fields=tuple(fields),
        gpu=tensor * local,
        accelerator=None if kind == "cpu" else resource,
        pods=whole_number(parallel.get("workers")) or 1,
        extra=under("spec", left_over(part, _READ)),
    )


def _proxy(obj: JsonObject) -> list[JsonObject]:
    """The sidecar in front of the decoder, where the values name its image."""
    routing = mapping(obj.get("routing"))
    proxy = mapping(routing.get("proxy"))
    if not proxy.get("image") or proxy.get("enabled") is False:
        return []
    words = [("--port", routing.get("servicePort") or 8000), ("--vllm-port", proxy.get("targetPort") or 8200)]
    words += [(f"--{key}", proxy[key]) for key in ("connector", "secure") if key in proxy]
    args = [added(f"{flag}={text_of(value)}", "custom-resource") for flag, value in words]
    return [{"name": "routing-proxy", "image": proxy["image"], "args": args, "restartPolicy": "Always"}]


def _modelservice_container(container: JsonObject, uri: str, obj: JsonObject) -> JsonObject:
    """``modelCommand: vllmServe`` puts ``vllm serve MODEL --port`` before the arguments; ``imageDefault`` nothing."""
    if container.get("modelCommand") == "vllmServe":
        target = (
            mapping(mapping(obj.get("routing")).get("proxy")).get("targetPort")
            or mapping(obj.get("routing")).get("servicePort")
            or 8000
        )
        model = uri.removeprefix("hf://").strip("\"'")
        container["command"] = [added(word, "command") for word in ("vllm", "serve")]
        container["args"] = [
            *(added(word, "custom-resource") for word in (model, "--port", text_of(target))),
            *text_list(container.get("args")),
        ]
    return container
