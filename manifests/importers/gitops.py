"""GitOps wrappers that hold Helm values of a serving chart: Flux's HelmRelease, Argo CD's Application, k3s' HelmChart.

What they hold is read as the values file that it is; a wrapper that only points elsewhere (a repository, a file, single
parameters) is context: its objects are made by rendering it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from manifests.importers.kubernetes import workload_of
from manifests.importers.registry import JsonObject, Scope, Workload, items, mapping, name_of, reader
from manifests.importers.values import looks_like_values, read_values
from manifests.yamlsafe import YamlRefused, load_all

_RENDER = "holds no values of a serving chart that is known; render it first (helm template), then import the objects"


@reader("HelmRelease")
def read_helm_release(obj: JsonObject, scope: Scope) -> list[Workload]:
    """Flux: ``spec.values``."""
    return _of_values(obj, [("spec.values", mapping(obj.get("spec")).get("values"))], scope)


@reader("HelmChart.helm.cattle.io", "HelmChartConfig.helm.cattle.io")
def read_helm_chart(obj: JsonObject, scope: Scope) -> list[Workload]:
    """k3s: ``spec.valuesContent`` (a text) or ``spec.set``."""
    return _of_values(obj, [("spec.valuesContent", mapping(obj.get("spec")).get("valuesContent"))], scope)


@reader("Application.argoproj.io")
def read_application(obj: JsonObject, scope: Scope) -> list[Workload]:
    """Argo CD: ``valuesObject`` or ``values`` (a text) of every Helm source."""
    return _of_values(obj, _sources(mapping(obj.get("spec")), "spec"), scope)


@reader("ApplicationSet.argoproj.io")
def read_application_set(obj: JsonObject, scope: Scope) -> list[Workload]:
    """Argo CD: the template's sources."""
    inner = mapping(mapping(mapping(obj.get("spec")).get("template")).get("spec"))
    return _of_values(obj, _sources(inner, "spec.template.spec"), scope)


def _sources(spec: JsonObject, base: str) -> list[tuple[str, Any]]:
    found = [(f"{base}.source", mapping(spec.get("source")))]
    found += [(f"{base}.sources[{index}]", source) for index, source in enumerate(items(spec.get("sources")))]
    out = []
    for path, source in found:
        helm = mapping(source.get("helm"))
        out += [(f"{path}.helm.{key}", helm[key]) for key in ("valuesObject", "values") if helm.get(key)]
    return out


def _of_values(obj: JsonObject, places: list[tuple[str, Any]], scope: Scope) -> list[Workload]:
    out: list[Workload] = []
    for path, value in places:
        held = _mapping_of(value, path, scope)
        if looks_like_values(held):
            out += [replace(found, path=f"{path}.{found.path}") for found in read_values(held, scope)]
    return out or [workload_of(obj, {"spec": {}}, "spec", notes=(f"`{name_of(obj)}` {_RENDER}",))]


def _mapping_of(value: Any, path: str, scope: Scope) -> JsonObject:
    if not isinstance(value, str):
        return mapping(value)
    try:
        documents = load_all(value)
    except YamlRefused as refused:
        scope.problems.append(("bad-value", path, f"not readable: {refused}"))
        return {}
    return mapping(documents[0].value if documents else {})
