"""Documents of the tests about kinds and forms of manifests, and what is read of them."""

from typing import Any

import yaml

from manifests.diff import diff
from manifests.importing import import_files
from manifests.model import ImportResult, Manifest

VLLM = "vllm/vllm-openai:v0.11.0"


def read(*documents: Any) -> ImportResult:
    return import_files([("k.yaml", yaml.safe_dump_all(documents).encode())], salt=b"test")


def made(kind: str, group: str, spec: dict[str, Any], name: str = "a", **meta: Any) -> dict[str, Any]:
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


def settings(manifest: Manifest) -> dict[str, Any]:
    return {name: setting.value for name, setting in manifest.settings.items()}


def changed(old: Any, new: Any) -> list[tuple[str, str | None]]:
    result = diff(read(*old), read(*new))
    return [(line.setting, line.manifest) for line in result.changes]
