"""Small things about Kubernetes objects that every part of the node needs. Pure, but for the clock in `now_text`."""

from __future__ import annotations

import datetime
from typing import Any

Object = dict[str, Any]


def now_text(micro: bool = False) -> str:
    """The time as Kubernetes writes it: whole seconds, or microseconds (leases and events)."""
    now = datetime.datetime.now(datetime.UTC)
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


def name_of(item: Object) -> tuple[str, str]:
    """Namespace and name."""
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def pod_path(pod: Object, subresource: str = "") -> str:
    namespace, name = name_of(pod)
    return f"/api/v1/namespaces/{namespace}/pods/{name}" + (f"/{subresource}" if subresource else "")


def is_sidecar(container: Object) -> bool:
    """An init container that keeps running."""
    return container.get("restartPolicy") == "Always"


def is_finished(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
