"""Files or objects in, manifests out: the entry point of everything that reads a manifest.

Called by the CLI (files), the operator (objects of the API) and the dashboard. Pure: bytes and objects are
arguments. One bad file among several is refused in one line; the others are answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from manifests.codes import make_finding
from manifests.importers import load_readers
from manifests.importers.kubernetes import CONTEXT
from manifests.importers.registry import JsonObject, Scope, Workload, find_reader, items, mapping, name_of, namespace_of
from manifests.importers.values import looks_like_values, read_values
from manifests.model import Document, Finding, ImportResult, Manifest, Refusal
from manifests.resolve import Origin, resolve
from manifests.secrets import redact_text
from manifests.stored import read_stored
from manifests.yamlsafe import Loaded, YamlRefused, decode, load_all

MAX_OBJECTS = 5000


@dataclass(frozen=True, slots=True)
class _Item:
    """One object of a document: several for a List or a Template."""

    file: str
    index: int
    obj: JsonObject
    path: str = ""


@dataclass(slots=True)
class _Job:
    items: list[_Item] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    manifests: list[Manifest] = field(default_factory=list)
    order: list[tuple[str, int]] = field(default_factory=list)


def import_files(
    files: Iterable[tuple[str, bytes]], engine_version: str | None = None, salt: bytes | None = None
) -> ImportResult:
    """Reads Kubernetes YAML (or JSON), Helm values, our own RunManifests.

    Args:
        files: ``(name, content)``; ConfigMaps of one file are seen by workloads of another.
        engine_version: overrides the engine's version where the image does not say it.
        salt: salts hashes of literal secrets, so that a diff can tell that one changed; None leaves secrets out
        altogether.
    """
    job = _Job()
    loaded: list[tuple[str, list[Loaded]]] = []
    for name, content in files:
        try:
            loaded.append((name, load_all(decode(content))))
        except YamlRefused as refused:
            job.refused.append(Refusal(name, refused.where, refused.problem, refused.remedy))
            job.documents.append(Document(name, 0, None, None, "refused", str(refused)))
    for name, documents in loaded:
        _collect(name, documents, job)
    return _run(job, {}, engine_version, salt)


def import_objects(
    objects: Iterable[Mapping[str, Any]],
    configmaps: Mapping[str, Mapping[str, str]] | None = None,
    engine_version: str | None = None,
    salt: bytes | None = None,
    file: str = "cluster",
) -> ImportResult:
    """Reads objects that are already parsed (from the API server, or a rollout's roles as pseudo-Deployments).

    Args:
        objects: Kubernetes objects; ``spec.manifest`` of a pseudo-Deployment is taken over into ``Manifest.extra``.
        configmaps: name -> data, for references that the objects do not hold themselves.
    """
    job = _Job()
    for index, obj in enumerate(objects):
        _expand(_Item(file, index, dict(obj)), job, 0)
        job.order.append((file, index))
    return _run(job, configmaps or {}, engine_version, salt)


def _collect(name: str, documents: list[Loaded], job: _Job) -> None:
    for index, document in enumerate(documents):
        job.order.append((name, index))
        for key, line in document.duplicates:
            job.findings.append(
                make_finding(
                    "duplicate-key",
                    f"`{key}` is written twice in one mapping (line {line}); the last one counts",
                    name,
                    f"[{index}].{key}",
                )
            )
        value = document.value
        if isinstance(value, list) and _is_json_patch(value):
            job.documents.append(Document(name, index, None, None, "context", _JSON_PATCH))
        elif isinstance(value, list):
            for part in value:
                if isinstance(part, dict):
                    _expand(_Item(name, index, part), job, 0)
            if not any(isinstance(part, dict) for part in value):
                job.documents.append(Document(name, index, None, None, "not-ours", "a list of values, no object"))
        elif not isinstance(value, dict):
            job.documents.append(
                Document(name, index, None, None, "not-ours", "no mapping: a Kubernetes object has apiVersion and kind")
            )
        else:
            _expand(_Item(name, index, value), job, 0)


_JSON_PATCH = "a JSON patch: what it changes depends on its target; render both first (kubectl kustomize)"


def _is_json_patch(value: list[Any]) -> bool:
    return bool(value) and all(isinstance(part, dict) and {"op", "path"} <= part.keys() for part in value)


def _expand(item: _Item, job: _Job, depth: int) -> None:
    """Lists and OpenShift Templates hold objects, which belong to their document."""
    kind = str(item.obj.get("kind") or "")
    inner = (
        item.obj.get("objects")
        if kind == "Template"
        else item.obj.get("items")
        if kind.endswith("List") or kind == "List"
        else None
    )
    if inner is None or depth > 4:
        job.items.append(item)
        return
    where = "objects" if kind == "Template" else "items"
    children = items(inner)
    if not children:
        job.documents.append(Document(item.file, item.index, kind, _name(item.obj), "not-ours", f"an empty {kind}"))
    parameters = {
        str(p.get("name")): p["value"] if p.get("value") is not None else "{{" + str(p.get("name")) + "}}"
        for p in items(item.obj.get("parameters"))
        if kind == "Template"
    }
    for number, child in enumerate(children[:MAX_OBJECTS]):
        filled = _substitute(child, parameters) if parameters else child
        _expand(replace(item, obj=filled, path=f"{item.path}{where}[{number}]."), job, depth + 1)


def _substitute(value: Any, parameters: Mapping[str, Any]) -> Any:
    """``${NAME}`` of an OpenShift Template by its parameters' values; one without a value becomes the placeholder
    ``{{NAME}}``, which stays unresolved."""
    if isinstance(value, dict):
        return {key: _substitute(part, parameters) for key, part in value.items()}
    if isinstance(value, list):
        return [_substitute(part, parameters) for part in value]
    if isinstance(value, str) and "${" in value:
        for name, text in parameters.items():
            value = value.replace("${" + name + "}", str(text))
    return value


def _run(
    job: _Job, configmaps: Mapping[str, Mapping[str, str]], engine_version: str | None, salt: bytes | None
) -> ImportResult:
    load_readers()
    scope = Scope()
    for name, data in configmaps.items():
        scope.configmaps[(None, name)] = {"data": dict(data)}
    for item in job.items:
        _index(item.obj, scope)
    for item in job.items:
        _read(item, scope, job, engine_version, salt)
    documents = tuple(_without_secrets(document) for document in _one_per_document(job))
    findings = tuple(
        replace(finding, path=redact_text(finding.path), message=redact_text(finding.message))
        for finding in dict.fromkeys(job.findings)
    )
    return ImportResult(tuple(job.manifests), documents, findings, tuple(job.refused))


def _without_secrets(document: Document) -> Document:
    """Names are whatever the file says: one that looks like a credential is shown nowhere."""
    kind, name = (redact_text(text) if text else text for text in (document.kind, document.name))
    return replace(document, kind=kind, name=name, reason=redact_text(document.reason))


def _index(obj: JsonObject, scope: Scope) -> None:
    kind, name = obj.get("kind"), name_of(obj)
    if kind == "ConfigMap":
        scope.configmaps[(namespace_of(obj), name)] = obj
    elif kind == "RunManifest":
        for held, data in mapping(mapping(obj.get("spec")).get("configMaps")).items():
            scope.configmaps.setdefault((namespace_of(obj), str(held)), {"data": mapping(data)})
    elif kind == "ResourceClaimTemplate":
        scope.claims[name] = obj
    elif kind in ("ServingRuntime", "ClusterServingRuntime"):
        scope.runtimes[name] = obj
    elif kind == "LLMInferenceServiceConfig":
        scope.bases[name] = obj


def _read(item: _Item, scope: Scope, job: _Job, engine_version: str | None, salt: bytes | None) -> None:
    obj = item.obj
    kind, version = obj.get("kind"), str(obj.get("apiVersion") or "")
    stored = read_stored(obj, item.file, item.index)
    if stored is not None:
        job.manifests += stored
        job.documents.append(
            Document(item.file, item.index, kind, _name(obj), "manifest", f"{len(stored)} stored manifest(s)")
        )
        return
    if not isinstance(kind, str) or not kind:
        if looks_like_values(obj):
            _serve(item, read_values(obj, scope), None, scope, job, engine_version, salt)
        else:
            job.documents.append(
                Document(
                    item.file,
                    item.index,
                    None,
                    None,
                    "not-ours",
                    "no kind: neither a Kubernetes object nor Helm values of a serving chart that is known",
                )
            )
        return
    found = find_reader(kind, version)
    if found is None:
        reason = CONTEXT.get(kind)
        handled = "context" if reason else "not-ours"
        job.documents.append(
            Document(
                item.file,
                item.index,
                kind,
                _name(obj),
                handled,
                reason or f"no reader for {kind} ({version or 'no apiVersion'})",
            )
        )
        return
    _serve(item, found(obj, scope), kind, scope, job, engine_version, salt)


def _serve(
    item: _Item,
    workloads: list[Workload],
    kind: str | None,
    scope: Scope,
    job: _Job,
    engine_version: str | None,
    salt: bytes | None,
) -> None:
    found: list[Manifest] = []
    for workload in workloads:
        manifests, findings = resolve(
            replace(workload, path=item.path + workload.path),
            scope,
            Origin(item.file, item.index),
            salt,
            engine_version,
        )
        found += manifests
        job.findings += findings
    job.manifests += found
    for problem in scope.problems:
        job.findings.append(make_finding(problem[0], problem[2], item.file, problem[1]))
    scope.problems.clear()
    name = _name(item.obj)
    if found:
        reason = ", ".join(f"{m.name}/{m.container or m.role}: {m.engine.name} {m.role}" for m in found)
        job.documents.append(Document(item.file, item.index, kind, name, "manifest", reason))
        return
    notes = "; ".join(note for workload in workloads for note in workload.notes)
    handled = "context" if notes else "not-ours"
    job.documents.append(
        Document(item.file, item.index, kind, name, handled, notes or "no container in it is known to serve a model")
    )


def _name(obj: JsonObject) -> str | None:
    name = mapping(obj.get("metadata")).get("name")
    return str(name) if name else None


def _one_per_document(job: _Job) -> list[Document]:
    """Every document exactly once, in order; several objects of one document are joined."""
    merged: dict[tuple[str, int], Document] = {}
    rank = {"manifest": 0, "context": 1, "not-ours": 2, "refused": 3}
    for document in job.documents:
        key = (document.file, document.index)
        old = merged.get(key)
        if old is None:
            merged[key] = document
            continue
        best = min(old, document, key=lambda entry: rank[entry.handled])
        merged[key] = replace(
            best, reason=f"{old.reason}; {document.reason}" if old.reason != document.reason else old.reason
        )
    return [merged[key] for key in sorted(merged, key=lambda key: _position(key, job))]


def _position(key: tuple[str, int], job: _Job) -> int:
    return job.order.index(key) if key in job.order else len(job.order)
