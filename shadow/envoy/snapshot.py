"""One rollout's configuration as xDS resources with content versions. Pure; called by the xDS server and by tests."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.route.v3 import route_pb2
from google.protobuf import message

from shadow.envoy import build
from shadow.envoy.clusters import make_clusters
from shadow.envoy.endpoints import make_assignments
from shadow.envoy.routes import make_copy_routes, make_live_routes
from shadow.plan import GateConfig


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Resources of one GateConfig by name. Listeners are not in it: they are made per node, which has the address."""

    version: str
    rollout: str
    port: int
    clusters: Mapping[str, cluster_pb2.Cluster]
    assignments: Mapping[str, endpoint_pb2.ClusterLoadAssignment]
    routes: Mapping[str, route_pb2.RouteConfiguration]

    @property
    def used_clusters(self) -> frozenset[str]:
        """Clusters that some route names."""
        return frozenset(clusters_of(self.routes.values()))


def version_of(resources: Iterable[message.Message]) -> str:
    """Version of a set of resources: a digest of their content, independent of order."""
    digest = hashlib.sha256()
    for part in sorted(r.SerializeToString(deterministic=True) for r in resources):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:16]


def clusters_of(routes: Iterable[route_pb2.RouteConfiguration]) -> set[str]:
    """Names of the clusters that `routes` send to."""
    found = set()
    for config in routes:
        for host in config.virtual_hosts:
            for route in host.routes:
                if route.route.cluster:
                    found.add(route.route.cluster)
                found.update(p.cluster for p in route.route.request_mirror_policies)
    return found


def make_snapshot(config: GateConfig) -> Snapshot:
    """Everything that the gates of one rollout need, except their listeners."""
    clusters = make_clusters(config.plan)
    assignments = make_assignments(config.plan)
    live, copies = make_live_routes(config), make_copy_routes(config)
    parts: list[message.Message] = [*clusters.values(), *assignments.values(), live, copies]
    parts.append(build.socket_address("", config.port))
    return Snapshot(
        version=version_of(parts),
        rollout=config.plan.rollout,
        port=config.port,
        clusters=clusters,
        assignments=assignments,
        routes={live.name: live, copies.name: copies},
    )
