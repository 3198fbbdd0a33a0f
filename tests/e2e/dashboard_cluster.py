"""The dashboard's world on a real API server: real tokens, RBAC, CRDs and admission policy; evidence of the fixture.

`start_cluster_world` has the shape of `dashboard_world.start_world`, so that the same browser tests run on both.
"""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kubernetes import config

from controller.adapters.person_api import ApiServer
from controller.dashboard.app import Settings, create_dashboard_app
from controller.evidence.app import create_evidence_app
from controller.evidence.auth import ClusterAuth
from crds.admission import admission_objects
from crds.generate import make_crds
from tests.e2e import dashboard_data as data
from tests.e2e.dashboard_world import Source, World, serve
from tests.e2e.kube import wait_until
from tools.devcluster import Cluster
from tools.devcluster.bootstrap import ApiClient

_API = "/apis/weighlock.dev/v1alpha1"
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_PATHS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}
_READ = ["get", "list", "watch"]
_ACT = ["approve", "reject", "pause", "resume", "abort", "rollback", "retry", "skip"]


class _Kube:
    """Two namespaces of one test as the administrator sees them."""

    def __init__(self, api: ApiClient) -> None:
        self.api = api
        suffix = uuid.uuid4().hex[:6]
        self.names = {"chat": f"chat-{suffix}", "search": f"search-{suffix}"}

    def call(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> Any:
        code, answer = self.api.call(method, path, body, content_type)
        assert code < 400, f"{method} {path}: {code} {answer}"
        return answer

    def install(self) -> None:
        """CRDs and admission policy."""
        for body in (*make_crds().values(), *admission_objects()):
            path = f"{_PATHS[body['kind']]}/{body['metadata']['name']}?fieldManager=tests&force=true"
            self.call("PATCH", path, body, _APPLY)
        wait_until("CRDs are served", lambda: self.api.call("GET", f"{_API}/rolloutactions")[0] == 200)

    def open(self) -> None:
        """Namespaces, rights, rollouts."""
        for name in self.names.values():
            self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        for people, verbs in (("approvers", [*_READ, *_ACT]), ("viewers", _READ)):
            for name in self.names.values():
                self._grant(name, people, verbs)
        for rollout in data.rollouts():
            self._create(rollout)
        self._wait_for_admission()

    def close(self) -> None:
        for name in self.names.values():
            self.call("DELETE", f"/api/v1/namespaces/{name}")

    def path(self, plural: str, name: str = "", namespace: str = "chat") -> str:
        tail = f"/{name}" if name else ""
        return f"{_API}/namespaces/{self.names[namespace]}/{plural}{tail}"

    def set_status(self, status: Mapping[str, Any]) -> None:
        path = f"{self.path('inferencerollouts', data.NAME)}/status"
        self.call("PATCH", path, {"status": status}, _MERGE)

    def actions(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.call("GET", self.path("rolloutactions"))["items"]
        return sorted(items, key=lambda item: (item["metadata"]["creationTimestamp"], item["metadata"]["name"]))

    def _create(self, rollout: dict[str, Any]) -> None:
        kind = rollout["metadata"]["namespace"]
        meta = {"name": rollout["metadata"]["name"], "annotations": rollout["metadata"].get("annotations", {})}
        self.call("POST", self.path("inferencerollouts", namespace=kind), {**rollout, "metadata": meta})
        path = f"{self.path('inferencerollouts', meta['name'], kind)}/status"
        self.call("PATCH", path, {"status": rollout["status"]}, _MERGE)

    def _grant(self, namespace: str, people: str, verbs: list[str]) -> None:
        rules = [
            {"apiGroups": ["weighlock.dev"], "resources": ["inferencerollouts"], "verbs": verbs},
            {"apiGroups": ["weighlock.dev"], "resources": ["rolloutactions"], "verbs": [*_READ, "create"]},
        ]
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": f"weighlock:{people}"}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": people}
        base = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        self.call("POST", f"{base}/roles", {"metadata": {"name": people}, "rules": rules})
        binding = {"metadata": {"name": people}, "subjects": [subject], "roleRef": reference}
        self.call("POST", f"{base}/rolebindings", binding)

    def _wait_for_admission(self) -> None:
        """The policy is in force about two seconds after it was made: until then a forged name gets through."""
        spec = {"rollout": data.NAME, "action": "pause", "user": "somebody-else"}
        body = {
            "apiVersion": "weighlock.dev/v1alpha1",
            "kind": "RolloutAction",
            "metadata": {"generateName": "probe-"},
            "spec": spec,
        }
        path = f"{self.path('rolloutactions')}?dryRun=All"
        wait_until("the admission policy is in force", lambda: self.api.call("POST", path, body)[0] in (403, 422))


@contextmanager
def start_cluster_world(cluster: Cluster) -> Iterator[World]:
    """Dashboard and evidence API over a running cluster."""
    kube = _Kube(cluster.api())
    kube.install()
    kube.open()
    chat, search = kube.names["chat"], kube.names["search"]
    audit: list[tuple[str, str, Mapping[str, Any]]] = []
    source = Source(audit, chat)
    auth = ClusterAuth(config.new_client_from_config(str(cluster.kubeconfig("admin"))))
    approver = cluster.api("approver")
    reason = {"action": "pause", "user": "approver", "reason": f"Launch in ten minutes. {data.XSS}"}
    status, answer = approver.call("POST", kube.path("rolloutactions"), _action(reason))
    assert status == 201, answer
    try:
        with serve(create_evidence_app(source, auth)) as evidence_url:
            server = ApiServer(cluster.server, cluster.state.pki / "ca.crt")
            settings = Settings(server, evidence_url, namespaces=(chat, search))
            with serve(create_dashboard_app(settings)) as url:
                yield World(
                    url=url,
                    namespace=chat,
                    name=data.NAME,
                    tokens={person: cluster.token(person) for person in ("approver", "viewer", "stranger")},
                    actions=kube.actions,
                    change_evidence=lambda evidence: kube.set_status({"verdict": {"evidence": evidence}}),
                    change_live=source.change,
                    live_view=lambda: source.view,
                    kube_url=cluster.server,
                    evidence_url=evidence_url,
                    audit=audit,
                )
    finally:
        kube.close()


def _action(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "weighlock.dev/v1alpha1",
        "kind": "RolloutAction",
        "metadata": {"generateName": f"{data.NAME}-"},
        "spec": {"rollout": data.NAME, "revision": "a83f2d7710", "attempt": 7, **spec},
    }
