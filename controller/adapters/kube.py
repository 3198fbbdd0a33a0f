"""The cluster: caches of what the controller watches, server-side apply of what it owns, fenced writes of status.

Made by the operator's start-up; implements `controller.ports.Cluster`.
"""

import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import load_kube_config
from kubernetes.config.incluster_config import InClusterConfigLoader

from controller.adapters.informers import Kind
from controller.adapters.rest import FIELD_MANAGER, Rest, path_of
from controller.ports import Ref, Retryable, Terminal
from crds.v1alpha1.common import API_VERSION, GROUP

log = structlog.get_logger("weighlock.kube")

ROLLOUTS = "inferencerollouts"
OWNED = "app.kubernetes.io/managed-by=weighlock"
WATCHED: tuple[tuple[str, str, str], ...] = (
    (API_VERSION, ROLLOUTS, ""),
    (API_VERSION, "rolloutpolicies", ""),
    (API_VERSION, "runmanifests", ""),
    (API_VERSION, "rolloutactions", ""),
    ("apps/v1", "deployments", OWNED),
    ("v1", "pods", OWNED),
)
"""API version, plural, label selector of every watched kind."""

ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
_FRESH_SECONDS = 10.0


def load_configuration(environment: Mapping[str, str]) -> Configuration:
    """Where the API server is and who we are: a pod's service account, else a kubeconfig.

    WEIGHLOCK_SERVICEACCOUNT_DIR replaces the usual folder (development cluster: pods share the machine's files).
    """
    configuration = Configuration()
    folder = Path(environment.get("WEIGHLOCK_SERVICEACCOUNT_DIR", ACCOUNT_FOLDER))
    if environment.get("KUBERNETES_SERVICE_HOST") and (folder / "token").exists():
        loader = InClusterConfigLoader(str(folder / "token"), str(folder / "ca.crt"), environ=dict(environment))
        loader.load_and_set(configuration)
    else:
        load_kube_config(client_configuration=configuration)
    configuration.retries = False
    return configuration


class KubeCluster:
    """See `controller.ports.Cluster`.

    Args:
        configuration: of the official client.
        namespaces: watched namespaces; empty: all.
        on_change: called as `(plural, object)` on an informer's thread; it must not block.

    `fence` is asked right before each write. A leader that was frozen between a decision and its write has another one
    after it by then; a write of status that was already on its way is refused for its old resourceVersion.
    """

    def __init__(
        self,
        configuration: Configuration,
        namespaces: tuple[str, ...],
        on_change: Callable[[str, dict[str, Any]], None],
        identity: str = "weighlock-operator",
    ) -> None:
        self.api_client = ApiClient(configuration)
        self.rest = Rest(self.api_client)
        self._identity = identity
        self._namespaces = namespaces or ("",)
        self._kinds = {
            plural: Kind(self.rest, version, plural, namespaces, labels, on_change)
            for version, plural, labels in WATCHED
        }
        self._lock = threading.Lock()
        self._written: dict[str, dict[str, Any]] = {}
        self._fetched: dict[Ref, tuple[float, dict[str, Any] | None]] = {}
        self._answered_s = time.monotonic()
        self.fence: Callable[[], bool] = lambda: True

    # --- caches ---

    def start(self) -> None:
        """Begin to watch."""
        for kind in self._kinds.values():
            kind.start()

    def stop(self) -> None:
        """Stop watching."""
        for kind in self._kinds.values():
            kind.stop()

    def is_synced(self) -> bool:
        """Whether all caches hold their first list.

        A namespace that was taken away must not keep the others waiting: there nothing may be listed, but for the
        rollouts themselves where a right outside of it allows that (leaving.py).
        """
        return all(
            self._is_synced_in(namespace)
            or all(kind.is_refused(namespace) for plural, kind in self._kinds.items() if plural != ROLLOUTS)
            for namespace in self._namespaces
        )

    def _is_synced_in(self, namespace: str) -> bool:
        return all(kind.is_synced(namespace) for kind in self._kinds.values())

    def _is_whole(self, plural: str, obj: Mapping[str, Any]) -> bool:
        """A rollout is not known before everything else in its namespace is: its pods would seem to be gone."""
        namespace = "" if self._namespaces == ("",) else str(obj["metadata"]["namespace"])
        return plural != ROLLOUTS or self._is_synced_in(namespace)

    def cached(self, plural: str, namespace: str, labels: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """See the protocol."""
        wanted = (labels or {}).items()
        found = [
            obj
            for obj in self._kinds[plural].list()
            if (not namespace or obj["metadata"].get("namespace") == namespace)
            and wanted <= (obj["metadata"].get("labels") or {}).items()
            and self._is_whole(plural, obj)
        ]
        return sorted(found, key=lambda o: (o["metadata"].get("creationTimestamp") or "", o["metadata"]["name"]))

    def get_cached(self, plural: str, namespace: str, name: str) -> dict[str, Any] | None:
        """See the protocol; what this process wrote itself is never older than the cache."""
        found = self.get_known(plural, namespace, name)
        return found if found is None or self._is_whole(plural, found) else None

    def get_known(self, plural: str, namespace: str, name: str) -> dict[str, Any] | None:
        """See the protocol."""
        found = self._kinds[plural].get(namespace, name)
        own = self._written.get(f"{plural}/{namespace}/{name}")
        if found is None or own is None or own["metadata"]["uid"] != found["metadata"]["uid"]:
            return found
        return own if _version(own) > _version(found) else found

    def fetch(self, ref: Ref) -> dict[str, Any] | None:
        """An object that is not watched, at most ten seconds old; the last known one while the server is silent."""
        with self._lock:
            known = self._fetched.get(ref)
        if known is not None and time.monotonic() - known[0] < _FRESH_SECONDS:
            return known[1]
        try:
            found = self.get(ref)
        except Retryable:
            if known is None:
                raise
            return known[1]
        with self._lock:
            self._fetched[ref] = (time.monotonic(), found)
        return found

    # --- calls ---

    def get(self, ref: Ref) -> dict[str, Any] | None:
        """See the protocol."""
        return self._call("GET", path_of(ref))

    def apply(self, obj: Mapping[str, Any], plural: str) -> dict[str, Any]:
        """See the protocol."""
        answer = self._apply(obj, plural, {})
        self._remember(plural, answer)
        return answer

    def try_apply(self, obj: Mapping[str, Any], plural: str) -> None:
        """See the protocol."""
        self._apply(obj, plural, {"dryRun": "All"})

    def patch(self, ref: Ref, patch: Any, subresource: str = "") -> dict[str, Any] | None:
        """See the protocol."""
        kind = "application/json-patch+json" if isinstance(patch, list) else "application/merge-patch+json"
        answer = self._call("PATCH", path_of(ref, subresource), patch, {"fieldManager": FIELD_MANAGER}, kind)
        if answer is not None and not subresource:
            self._remember(ref.plural, answer)
        return answer

    def delete(self, ref: Ref) -> None:
        """See the protocol."""
        self._call("DELETE", path_of(ref), {"propagationPolicy": "Background"})

    def replace_status(self, obj: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
        """See the protocol."""
        meta = obj["metadata"]
        ref = Ref(obj["apiVersion"], ROLLOUTS, meta["namespace"], meta["name"])
        body = {
            "apiVersion": obj["apiVersion"],
            "kind": obj["kind"],
            "metadata": {k: meta[k] for k in ("name", "namespace", "uid", "resourceVersion")},
            "spec": obj.get("spec", {}),
            "status": dict(status),
        }
        answer = self._call("PUT", path_of(ref, "status"), body, {"fieldManager": FIELD_MANAGER})
        if answer is None:
            raise Retryable(f"{meta['name']} is gone")
        self._remember(ROLLOUTS, answer)
        return answer

    def refresh(self, ref: Ref) -> None:
        """Read one watched object now; after a conflict the cache may lag behind."""
        found = self.get(ref)
        if found is not None:
            self._remember(ref.plural, found)

    def has_ready_pods(self, namespace: str, selector: Mapping[str, str]) -> bool:
        """See the protocol."""
        if not selector:
            return False
        labels = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
        found = self._call("GET", path_of(Ref("v1", "pods", namespace)), None, {"labelSelector": labels}) or {}
        return any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for pod in found.get("items") or ()
            for condition in (pod.get("status") or {}).get("conditions") or ()
        )

    def emit(self, obj: Mapping[str, Any], reason: str, message: str, warning: bool) -> None:
        """See the protocol."""
        meta = obj["metadata"]
        about = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": meta["name"]}
        about |= {"namespace": meta["namespace"], "uid": meta["uid"]}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name']}.{uuid.uuid4().hex[:16]}", "namespace": meta["namespace"]},
            "eventTime": now,
            "reportingController": f"{GROUP}/operator",
            "reportingInstance": self._identity[:128],
            "action": "Reconcile",
            "reason": reason,
            "note": message[:1000],
            "type": "Warning" if warning else "Normal",
            "regarding": about,
        }
        try:
            self._call("POST", path_of(Ref("events.k8s.io/v1", "events", meta["namespace"])), event)
        except (Retryable, Terminal) as error:
            log.warning("event not written", rollout=meta["name"], reason=reason, error=str(error))

    def is_reachable(self) -> bool:
        """See the protocol."""
        return time.monotonic() - self._answered_s < 60.0

    def _apply(self, obj: Mapping[str, Any], plural: str, more: Mapping[str, str]) -> dict[str, Any]:
        meta = obj["metadata"]
        ref = Ref(obj["apiVersion"], plural, meta.get("namespace", ""), meta["name"])
        query = {"fieldManager": FIELD_MANAGER, "force": "true", **more}
        answer = self._call("PATCH", path_of(ref), dict(obj), query, "application/apply-patch+yaml")
        if answer is None:
            raise Retryable(f"{plural} {meta['name']} cannot be applied: its namespace or kind does not exist")
        return answer

    def _call(self, method: str, *given: Any) -> dict[str, Any] | None:
        if method != "GET" and not self.fence():
            raise Retryable("not written: the lease is not held now", 1.0)
        answer = self.rest.call(method, *given)
        self._answered_s = time.monotonic()
        return answer

    def _remember(self, plural: str, obj: dict[str, Any]) -> None:
        if plural in self._kinds:
            meta = obj["metadata"]
            self._written[f"{plural}/{meta.get('namespace', '')}/{meta['name']}"] = obj


def _version(obj: Mapping[str, Any]) -> int:
    text = str(obj["metadata"].get("resourceVersion", "0"))
    return int(text) if text.isdigit() else 0


def environment() -> Mapping[str, str]:
    """The process environment (one place that reads it)."""
    return os.environ
