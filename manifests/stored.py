"""Our own forms read back: ``import -o yaml|json`` output, one manifest of it, and RunManifest objects.

Called by :mod:`manifests.importing`, so that OLD and NEW of a diff may be what was stored when the old one served.
"""

from __future__ import annotations

from typing import Any

from manifests.importers.registry import JsonObject, mapping, whole_number
from manifests.model import Backend, Engine, Manifest, Model, Setting, Source, Unresolved
from manifests.stored_files import resolve


def read_stored(obj: JsonObject, file: str, index: int) -> list[Manifest] | None:
    """Manifests of a stored form; None when the object is none."""
    if obj.get("kind") == "RunManifest":
        spec = mapping(obj.get("spec"))
        found = spec.get("manifests") or mapping(spec.get("resolved")).get("manifests") or spec.get("resolved")
        listed = found if isinstance(found, list) else []
        config_maps = mapping(spec.get("configMaps"))
        parts = [_with_files(part, config_maps) for part in listed if _is_manifest(part)]
        return [_manifest(part, file, index) for part in parts] if listed else None
    if "kind" in obj:
        return None
    if isinstance(obj.get("manifests"), list) and "documents" in obj:
        return [_manifest(part, file, index) for part in obj["manifests"] if _is_manifest(part)]
    return [_manifest(obj, file, index)] if _is_manifest(obj) else None


def _with_files(part: JsonObject, config_maps: JsonObject) -> JsonObject:
    return {**part, "files": resolve(mapping(part.get("files")), config_maps)}


def _is_manifest(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("engine"), dict)
        and isinstance(value.get("settings"), dict)
        and "argv" in value
    )


def _manifest(value: JsonObject, file: str, index: int) -> Manifest:
    engine, model, source = mapping(value.get("engine")), mapping(value.get("model")), mapping(value.get("source"))
    backend = mapping(engine.get("backend"))
    unresolved = tuple(
        Unresolved(str(entry.get("what")), str(entry.get("why")))
        for entry in value.get("unresolved") or []
        if isinstance(entry, dict)
    )
    return Manifest(
        name=str(value.get("name") or "unnamed"),
        namespace=_text(value.get("namespace")),
        role=str(value.get("role") or "server"),
        rank=_text(value.get("rank")),
        container=_text(value.get("container")),
        replicas=whole_number(value.get("replicas")),
        source=Source(file, index, _text(source.get("kind")), str(source.get("path") or "")),
        engine=Engine(
            str(engine.get("name") or "unknown"),
            _text(engine.get("version")),
            _text(engine.get("image")),
            Backend(str(backend.get("name")), _text(backend.get("version"))) if backend else None,
        ),
        model=Model(_text(model.get("id")), _text(model.get("revision"))),
        argv=tuple(str(part) for part in value.get("argv") or []),
        settings={str(key): _setting(mapping(part)) for key, part in mapping(value.get("settings")).items()},
        environment={str(k): _text(v) for k, v in mapping(value.get("environment")).items()},
        resources=_plain(mapping(value.get("resources"))),
        unresolved=unresolved,
        files={str(k): str(v) for k, v in mapping(value.get("files")).items()},
        pod=_plain(mapping(value.get("pod"))),
        extra=_plain(mapping(value.get("extra"))),
        patch=bool(value.get("patch")),
        reason=_text(value.get("reason")),
    )


def _setting(value: JsonObject) -> Setting:
    expression = _text(value.get("expression"))
    origin, written = str(value.get("origin") or "args"), str(value.get("written") or "")
    return Setting(_plain(value.get("value")), origin, written, whole_number(value.get("line")), expression)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, str):
        return str(value)
    return float(value) if isinstance(value, float) else value
