"""`traffic.takeOverService`: an existing Service of the user's points to the gate, and gets back what it had.

Called by observe.py (is it done?), act.py and writes/gate.py (do it, undo it). What the Service looked like is kept in
an annotation on it, so that any later operator, or a person, can restore it.
"""

import json
from collections.abc import Mapping
from typing import Any

from controller.core import variants
from controller.core.plans import entry_role
from controller.core.snapshot import Snapshot
from controller.ports import Cluster, Ref, Terminal
from crds.v1alpha1.conditions import Reason

ORIGINAL, OWNER = "weighlock.dev/original-service", "weighlock.dev/taken-over-by"


def is_taken(service: Mapping[str, Any] | None, rollout: str, uid: str) -> bool:
    """Whether a Service points to the gate of this rollout."""
    if service is None:
        return False
    notes = service["metadata"].get("annotations") or {}
    return notes.get(OWNER) == uid and service["spec"].get("selector") == {variants.GATE: rollout}


def take(cluster: Cluster, s: Snapshot, name: str) -> None:
    """Point the Service to the gate; Terminal where it does not exist or somebody else has it."""
    ref = Ref("v1", "services", s.namespace, name)
    service = cluster.get(ref)
    if service is None:
        text = f"spec.traffic.takeOverService names Service {name}, which does not exist in {s.namespace}."
        raise Terminal(Reason.MISSING_REFERENCE, text)
    notes = service["metadata"].get("annotations") or {}
    if notes.get(OWNER) not in (None, s.uid):
        raise Terminal(
            Reason.ROUTE_CONFLICT, f"Service {name} was taken over by another rollout; delete that one first."
        )
    spec = service["spec"]
    kept = notes.get(ORIGINAL) or json.dumps({"selector": spec.get("selector") or {}, "ports": spec.get("ports") or []})
    port = s.spec.traffic.port if s.spec else 8000
    ports = [{**entry, "targetPort": port} for entry in spec.get("ports") or []]
    _write(cluster, ref, service, {variants.GATE: s.name}, ports, {ORIGINAL: kept, OWNER: s.uid})


def give_back(cluster: Cluster, s: Snapshot, name: str, rev10: str) -> None:
    """Restore the Service; where nothing runs any more behind its old selector, it points to what serves (`rev10`)."""
    ref = Ref("v1", "services", s.namespace, name)
    service = cluster.get(ref)
    notes = (service or {}).get("metadata", {}).get("annotations") or {}
    if service is None or notes.get(OWNER) != s.uid:
        return
    original = json.loads(notes.get(ORIGINAL) or "{}")
    selector, ports = original.get("selector") or {}, original.get("ports") or service["spec"].get("ports") or []
    if rev10 and not cluster.has_ready_pods(s.namespace, selector):
        selector = variants.variant_labels(s.name, rev10, entry_role(s.frozen(rev10)))
        ports = service["spec"].get("ports") or []
    _write(cluster, ref, service, selector, ports, {ORIGINAL: None, OWNER: None})


def _write(
    cluster: Cluster,
    ref: Ref,
    service: Mapping[str, Any],
    selector: Mapping[str, str],
    ports: list[dict[str, Any]],
    notes: Mapping[str, str | None],
) -> None:
    dropped = {key: None for key in service["spec"].get("selector") or {} if key not in selector}
    version = service["metadata"]["resourceVersion"]
    body = {
        "metadata": {"annotations": dict(notes), "resourceVersion": version},
        "spec": {"selector": {**dropped, **selector}, "ports": ports},
    }
    cluster.patch(ref, body)
