"""RunManifest objects: stored for an attempt, labelled stable, pruned. Called by act.py."""

from controller.core import freezing, variants
from controller.core.snapshot import Frozen, Snapshot
from controller.core.times import to_short_text
from controller.ports import Cluster, Ref
from crds.v1alpha1.common import API_VERSION


def store(cluster: Cluster, s: Snapshot, frozen: Frozen, attempt: int, now_s: float) -> None:
    """Write the complete manifest of a revision, for an attempt."""
    obj = freezing.manifest_object(s.namespace, s.name, frozen, attempt)
    kept = s.stored.get(frozen.rev10)
    if kept is not None and kept.stored_attempt == attempt:
        return
    if kept is not None:  # the object is immutable: an older attempt's is replaced whole
        cluster.delete(Ref(API_VERSION, "runmanifests", s.namespace, obj["metadata"]["name"]))
    obj["spec"]["createdAt"] = to_short_text(now_s)
    cluster.apply(obj, "runmanifests")


def label_stable(cluster: Cluster, s: Snapshot, rev10: str) -> None:
    """Mark the RunManifest of the stable revision, unmark all others."""
    for frozen in s.stored.values():
        if frozen.labelled_stable == (frozen.rev10 == rev10):
            continue
        value = "true" if frozen.rev10 == rev10 else None
        ref = Ref(API_VERSION, "runmanifests", s.namespace, f"{s.name}-{frozen.rev10}")
        cluster.patch(ref, {"metadata": {"labels": {freezing.STABLE_LABEL: value}}})


def prune(cluster: Cluster, s: Snapshot, rev10s: tuple[str, ...]) -> None:
    """Delete the RunManifests of these revisions."""
    for rev10 in rev10s:
        cluster.delete(Ref(API_VERSION, "runmanifests", s.namespace, f"{s.name}-{rev10}"))


def delete_all(cluster: Cluster, s: Snapshot) -> None:
    """Delete every RunManifest of the rollout."""
    for obj in cluster.cached("runmanifests", s.namespace, {variants.ROLLOUT: s.name}):
        cluster.delete(Ref(API_VERSION, "runmanifests", s.namespace, obj["metadata"]["name"]))
