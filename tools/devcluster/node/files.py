"""What a pod's file volumes contain. Pure: a volume and its sources in, files out.

ConfigMap, Secret, downward API and projected volumes; folders (emptyDir, hostPath, claims) have no content of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tools.devcluster.node.environment import ReferenceMissing, Sources, data_of, field_value, resource_value
from tools.devcluster.node.kinds import Object

FILE_KINDS = ("configMap", "secret", "downwardAPI", "projected")


@dataclass(frozen=True)
class File:
    content: bytes
    mode: int = 0o644


Tokens = Callable[[Mapping[str, Any]], str]  # a serviceAccountToken projection -> token


def is_file_volume(volume: Object) -> bool:
    return any(kind in volume for kind in FILE_KINDS)


def make_files(volume: Object, pod: Object, sources: Sources, tokens: Tokens) -> dict[str, File]:
    """Files of the volume by relative path.

    Raises:
        ReferenceMissing: something not optional is missing.
    """
    kind = next(kind for kind in FILE_KINDS if kind in volume)
    source = volume[kind] or {}
    mode = source.get("defaultMode") or 0o644
    parts = source.get("sources") or [] if kind == "projected" else [{kind: source}]
    files: dict[str, File] = {}
    for part in parts:
        files |= make_part(part, pod, sources, tokens, mode)
    return files


def make_part(part: Object, pod: Object, sources: Sources, tokens: Tokens, mode: int) -> dict[str, File]:
    if "serviceAccountToken" in part:
        projection = part["serviceAccountToken"]
        return {projection["path"]: File(tokens(projection).encode(), mode)}
    if "downwardAPI" in part:
        return make_downward(part["downwardAPI"], pod, mode)
    kind, source = ("Secret", part["secret"]) if "secret" in part else ("ConfigMap", part["configMap"])
    name = source.get("secretName") or source.get("name", "")
    found = sources(kind, name)
    if found is None:
        if source.get("optional"):
            return {}
        raise ReferenceMissing(f'{kind.lower()} "{name}" not found')
    return select(data_of(kind, found), source, name, mode)


def select(data: Mapping[str, bytes], source: Object, name: str, mode: int) -> dict[str, File]:
    """All keys, or those that ``items`` names under the paths it gives them."""
    if not source.get("items"):
        return {key: File(content, mode) for key, content in data.items()}
    files = {}
    for item in source["items"]:
        if item["key"] in data:
            files[item["path"]] = File(data[item["key"]], item.get("mode") or mode)
        elif not source.get("optional"):
            raise ReferenceMissing(f"references non-existent key {item['key']} of {name}")
    return files


def make_downward(source: Object, pod: Object, mode: int) -> dict[str, File]:
    files = {}
    for item in source.get("items") or []:
        if "fieldRef" in item:
            text = field_value(pod, item["fieldRef"]["fieldPath"])
        else:
            reference = item["resourceFieldRef"]
            containers = {container["name"]: container for container in pod["spec"]["containers"]}
            text = resource_value(containers[reference["containerName"]], reference)
        files[item["path"]] = File(text.encode(), item.get("mode") or mode)
    return files
