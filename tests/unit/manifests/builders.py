"""Small Deployments, written as their authors would, for the tests of the manifest package."""

from collections.abc import Callable
from typing import Any

import yaml

from manifests.importing import import_files
from manifests.model import ImportResult

Build = Callable[..., ImportResult]


def deployment(
    image: str | None = "vllm/vllm-openai:v0.11.0",
    command: list[str] | None = None,
    args: list[Any] | None = None,
    gpu: int | None = 1,
    env: dict[str, str] | None = None,
    container: dict[str, Any] | None = None,
    others: tuple[dict[str, Any], ...] = (),
    name: str = "server",
    spec: dict[str, Any] | None = None,
    **pod: Any,
) -> list[dict[str, Any]]:
    """Documents of a Deployment with one container and what else is given."""
    main: dict[str, Any] = {"name": "engine"}
    if image is not None:
        main["image"] = image
    if gpu is not None:
        main["resources"] = {"limits": {"nvidia.com/gpu": gpu}}
    if command is not None:
        main["command"] = command
    if args is not None:
        main["args"] = args
    if env is not None:
        main["env"] = [{"name": key, "value": value} for key, value in env.items()]
    main.update(container or {})
    template = {"spec": {"containers": [main], **pod}}
    body = {"template": template, **(spec or {})}
    return [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": body}, *others]


def build_import(*positional: Any, text: str | None = None, **keywords: Any) -> ImportResult:
    """Imports a Deployment built from keywords, or a text as it is."""
    content = text if text is not None else yaml.safe_dump_all(deployment(*positional, **keywords))
    return import_files([("test.yaml", content.encode())], salt=b"test")


def configmap(name: str, **data: str) -> dict[str, Any]:
    """A ConfigMap document; ``__`` in a key is a dot."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {key.replace("__", "."): value for key, value in data.items()},
    }


def mounted(name: str, path: str) -> dict[str, Any]:
    """Keywords that mount a ConfigMap at a path."""
    return {
        "container": {"volumeMounts": [{"name": "config", "mountPath": path}]},
        "volumes": [{"name": "config", "configMap": {"name": name}}],
    }
