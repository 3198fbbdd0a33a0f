"""Helpers of end-to-end tests: waiting, and objects of one namespace. Blocking; every wait has a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from tools.devcluster import Cluster
from tools.devcluster.bootstrap import ApiClient

T = TypeVar("T")
PATIENCE = 2.0
"""Deadlines are those of a quiet machine; waiting longer costs time only where a test fails."""
PLURALS = {"ConfigMap": "configmaps", "Pod": "pods", "Deployment": "deployments", "Secret": "secrets"}
PLURALS |= {"Role": "roles", "RoleBinding": "rolebindings", "PersistentVolumeClaim": "persistentvolumeclaims"}


def wait_until(what: str, look: Callable[[], T], timeout_seconds: float = 30.0) -> T:
    """The first true value of `look`; fails the test when there is none in time, on a machine that may be busy."""
    timeout_seconds *= PATIENCE
    deadline = time.monotonic() + timeout_seconds
    tick = threading.Event()
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            pytest.fail(f"not within {timeout_seconds:g} s: {what}")
        tick.wait(0.1)


class Namespace:
    """Objects of one namespace, as an administrator."""

    def __init__(self, api: ApiClient, name: str) -> None:
        self.api, self.name = api, name

    def open(self) -> None:
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": self.name}})
        wait_until("default service account", lambda: self.get("serviceaccounts", "default"))

    def close(self) -> None:
        self.api.call("DELETE", f"/api/v1/namespaces/{self.name}")
        self.api.call("DELETE", self.path("pods"))
        # The namespace itself takes its controller ten seconds more, which nobody needs to wait for.
        wait_until("end of the pods", lambda: not self.list("pods"), 60)

    def call(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> Any:
        status, answer = self.api.call(method, path, body, content_type)
        assert status < 400, f"{method} {path}: {status} {answer}"
        return answer

    def path(self, plural: str, name: str = "", version: str = "v1") -> str:
        root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        return f"{root}/namespaces/{self.name}/{plural}" + (f"/{name}" if name else "")

    def apply(self, text: str) -> None:
        """Create the objects of a YAML text."""
        for item in yaml.safe_load_all(text):
            self.call("POST", self.path(PLURALS[item["kind"]], version=item["apiVersion"]), item)

    def get(self, plural: str, name: str, version: str = "v1") -> Any:
        """An object, None where there is none."""
        status, answer = self.api.call("GET", self.path(plural, name, version))
        return answer if status == 200 else None

    def list(self, plural: str) -> list[Any]:
        items: list[Any] = self.call("GET", self.path(plural))["items"]
        return items

    def start(self, name: str, script: str, container: dict[str, Any] | None = None, **spec: Any) -> None:
        """Create a pod whose one container runs a shell script."""
        main = {"name": "main", "image": "devcluster/tool:1", "command": ["sh", "-c", script], **(container or {})}
        body = {"metadata": {"name": name}, "spec": {"containers": [main], **spec}}
        self.call("POST", self.path("pods"), body)

    def status(self, pod: str) -> Any:
        """The pod's status, empty once it is gone."""
        found = self.get("pods", pod)
        return found["status"] if found else {}

    def container(self, pod: str) -> Any:
        """Status of the pod's first container, empty before there is one."""
        return (self.status(pod).get("containerStatuses") or [{}])[0]

    def condition(self, pod: str, kind: str) -> str:
        conditions = {c["type"]: c["status"] for c in self.status(pod).get("conditions") or []}
        return conditions.get(kind, "Unknown")

    def log(self, cluster: Cluster, pod: str, container: str = "main", run: int = 0) -> str:
        """What a container has printed, read from disk."""
        files: list[Path] = list(cluster.state.pods.glob(f"{self.name}_{pod}_*/{container}/{run}.log"))
        return files[0].read_text() if files else ""

    def pid(self, pod: str) -> int:
        """The process of the pod's first container."""
        return int(self.container(pod)["containerID"].removeprefix("process://"))

    def environment(self, pod: str) -> dict[str, str]:
        """The environment of the first container's process."""
        pairs = Path(f"/proc/{self.pid(pod)}/environ").read_text().split("\0")
        return dict(pair.split("=", 1) for pair in pairs if pair)
