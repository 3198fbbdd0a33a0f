"""Cluster-wide basics that a fresh control plane lacks: rights of the process node, a storage class. Called by `up`."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

APPLY = "application/apply-patch+yaml"  # JSON is YAML
PROVISIONER = "devcluster/folder"
STORAGE_CLASS = "standard"

NODE_BINDING: dict[str, Any] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "devcluster-nodes"},
    # Without the node authorizer the role that Kubernetes ships for nodes has no subject.
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "devcluster:nodes"}],
}
NODE_WATCH_ROLE: dict[str, Any] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "devcluster-node-watch"},
    # A kubelet reads single objects; one process for all nodes watches them all instead. It also serves claims.
    "rules": [
        {
            "apiGroups": [""],
            "resources": ["configmaps", "secrets", "persistentvolumeclaims"],
            "verbs": ["get", "list", "watch"],
        },
        {"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["create", "delete"]},
    ],
}
NODE_WATCH_BINDING: dict[str, Any] = {
    **NODE_BINDING,
    "metadata": {"name": "devcluster-node-watch"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "devcluster-node-watch"},
}
DEFAULT_STORAGE: dict[str, Any] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {
        "name": STORAGE_CLASS,
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": PROVISIONER,
}
KUBELET_CLIENT_BINDING: dict[str, Any] = {
    **NODE_BINDING,
    "metadata": {"name": "devcluster-kubelet-client"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "devcluster-kubelet-client"}],
}
PLURALS = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "StorageClass": "storageclasses",
}


class ApiClient:
    """A few blocking calls with one user's token; the node has its own asynchronous client.

    Reads of one thread share a connection: a handshake for each would cost both sides more than the answer.
    """

    def __init__(self, server: str, token: str, authority: Path) -> None:
        self.server, self.token = server, token
        self.context = ssl.create_default_context(cafile=str(authority))
        self._address = urlsplit(server)
        self._kept = threading.local()

    def call(
        self, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> tuple[int, Any]:
        """Status and decoded answer; errors of HTTP are answers, a server that is away raises OSError."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type}
        if method != "GET":
            return _ask(self._connect(), method, path, data, headers)
        kept: http.client.HTTPSConnection | None = getattr(self._kept, "connection", None)
        if kept is not None:
            try:
                return _ask(kept, method, path, data, headers)
            except OSError:  # the server closed it meanwhile, or is another one now
                kept.close()
        self._kept.connection = None
        fresh = self._connect()
        answer = _ask(fresh, method, path, data, headers)
        self._kept.connection = fresh
        return answer

    def _connect(self) -> http.client.HTTPSConnection:
        host, port = self._address.hostname or "", self._address.port
        return http.client.HTTPSConnection(host, port, context=self.context, timeout=10)


def _ask(
    connection: http.client.HTTPSConnection, method: str, path: str, body: bytes | None, headers: dict[str, str]
) -> tuple[int, Any]:
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, decode(answer.read())
    except http.client.HTTPException as error:
        raise OSError(f"{method} {path}: {error!r}") from error


def decode(body: bytes) -> Any:
    """JSON where the server sent JSON, else text (health checks)."""
    try:
        return json.loads(body)
    except json.JSONDecodeError:
        return body.decode(errors="replace")


def reconcile_basics(api: ApiClient) -> None:
    """Create the basics, or bring them up to date.

    Raises:
        RuntimeError: the API server refused one of them.
    """
    for body in (NODE_WATCH_ROLE, NODE_BINDING, NODE_WATCH_BINDING, KUBELET_CLIENT_BINDING, DEFAULT_STORAGE):
        path = f"/apis/{body['apiVersion']}/{PLURALS[body['kind']]}/{body['metadata']['name']}"
        status, answer = api.call("PATCH", f"{path}?fieldManager=devcluster&force=true", body, APPLY)
        if status not in (200, 201):
            raise RuntimeError(f"cannot apply {body['kind']}: {status} {answer}")
