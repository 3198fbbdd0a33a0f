"""Workloads of a revision and the ConfigMap copies that they mount. Called by act.py; core/variants.py builds them."""

from collections.abc import Mapping

from controller.core import variants
from controller.core.snapshot import Frozen, Snapshot
from controller.ports import Cluster, Ref


def apply(cluster: Cluster, s: Snapshot, frozen: Frozen, replicas: Mapping[str, int], restore: bool) -> None:
    """Create what does not exist; `restore`: put the stored templates back whole where it does."""
    for source, name in frozen.config_maps.items():
        data = frozen.manifest.config_maps[source]
        cluster.apply(variants.make_config_map(s.name, s.namespace, source, name, data), "configmaps")
    for role in frozen.manifest.roles:
        wanted = variants.make_workload(s.name, s.namespace, frozen, role, replicas.get(role.name, role.replicas))
        name = wanted["metadata"]["name"]
        present = cluster.get_cached("deployments", s.namespace, name)
        if present is None:
            cluster.apply(wanted, "deployments")
        elif restore:
            whole = [{"op": "replace", "path": "/spec/template", "value": wanted["spec"]["template"]}]
            cluster.patch(Ref("apps/v1", "deployments", s.namespace, name), whole)


def scale(cluster: Cluster, s: Snapshot, rev10: str, replicas: Mapping[str, int]) -> None:
    """Set replicas by role; templates stay untouched."""
    for role, count in replicas.items():
        name = variants.variant_name(s.name, rev10, role)
        cluster.patch(Ref("apps/v1", "deployments", s.namespace, name), {"spec": {"replicas": count}})


def delete(cluster: Cluster, s: Snapshot, rev10: str) -> None:
    """Remove the workloads, and the ConfigMap copies that no other revision, of any rollout, mounts.

    Copies are named by content, so rollouts that mount the same ConfigMap share one.
    """
    gone = cluster.cached("deployments", s.namespace, {variants.ROLLOUT: s.name, variants.REVISION: rev10})
    names = {obj["metadata"]["name"] for obj in gone}
    others = [o for o in cluster.cached("deployments", s.namespace) if o["metadata"]["name"] not in names]
    for name in names:
        cluster.delete(Ref("apps/v1", "deployments", s.namespace, name))
    kept = {copy for rev in s.variants if rev != rev10 and (f := s.frozen(rev)) for copy in f.config_maps.values()}
    kept |= {name for obj in others for name in variants.referenced_config_maps(obj["spec"]["template"], False)}
    frozen = s.frozen(rev10)
    for copy in set(frozen.config_maps.values()) - kept if frozen is not None else ():
        cluster.delete(Ref("v1", "configmaps", s.namespace, copy))
