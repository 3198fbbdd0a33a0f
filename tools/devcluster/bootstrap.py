"""Cluster-wide basics that a fresh control plane lacks: what the process node may do. Called once by `up`."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

NODE_BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "devcluster-nodes"},
    # Without the node authorizer the role that Kubernetes ships for nodes has no subject.
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "devcluster:nodes"}],
}
NODE_WATCH_ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "devcluster-node-watch"},
    # A kubelet reads single objects; one process for all nodes watches them all instead.
    "rules": [{"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["get", "list", "watch"]}],
}
NODE_WATCH_BINDING = {
    **NODE_BINDING,
    "metadata": {"name": "devcluster-node-watch"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "devcluster-node-watch"},
}
KUBELET_CLIENT_BINDING = {
    **NODE_BINDING,
    "metadata": {"name": "devcluster-kubelet-client"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "devcluster-kubelet-client"}],
}


class ApiClient:
    """A few blocking calls with one user's token; the node has its own asynchronous client."""

    def __init__(self, server: str, token: str, authority: Path) -> None:
        self.server, self.token = server, token
        self.context = ssl.create_default_context(cafile=str(authority))

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and decoded answer; errors of HTTP are answers, a refused connection raises OSError."""
        request = urllib.request.Request(self.server + path, method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        request.add_header("Content-Type", "application/json")
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data=data, context=self.context, timeout=10) as answer:
                return answer.status, decode(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, decode(error.read())


def decode(body: bytes) -> Any:
    """JSON where the server sent JSON, else text (health checks)."""
    try:
        return json.loads(body)
    except json.JSONDecodeError:
        return body.decode(errors="replace")


def reconcile_basics(api: ApiClient) -> None:
    """Create roles and bindings of the node process; what is there already stays.

    Raises:
        RuntimeError: the API server refused one of them.
    """
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    for body in (NODE_WATCH_ROLE, NODE_BINDING, NODE_WATCH_BINDING, KUBELET_CLIENT_BINDING):
        plural = "clusterroles" if body["kind"] == "ClusterRole" else "clusterrolebindings"
        status, answer = api.call("POST", f"{rbac}/{plural}", body)
        if status not in (201, 409):
            raise RuntimeError(f"cannot create {body['kind']}: {status} {answer}")
