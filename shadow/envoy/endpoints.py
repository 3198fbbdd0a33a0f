"""Endpoints of clusters: which pods a cluster may use, each labelled with pod, revision and age for the access log."""

from envoy.config.core.v3 import health_check_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2

from shadow.envoy import build
from shadow.plan import Endpoint, TrafficPlan

_OVERPROVISIONING = 100_000
"""A priority keeps all its traffic while any of its pods is healthy (percent; Envoy's default 140 would send a share of
the candidate's requests to stable as soon as one candidate pod fails)."""


def make_host(endpoint: Endpoint) -> endpoint_components_pb2.LbEndpoint:
    """One pod."""
    about = {"pod": endpoint.pod, "revision": endpoint.revision, "started_at": endpoint.started_at_s}
    return endpoint_components_pb2.LbEndpoint(
        endpoint=endpoint_components_pb2.Endpoint(address=build.socket_address(endpoint.address, endpoint.port)),
        health_status=health_check_pb2.HealthStatus.HEALTHY,
        metadata=build.metadata(weighlock={"host": build.text(about), "revision": endpoint.revision}),
    )


def make_assignment(name: str, *priorities: tuple[Endpoint, ...]) -> endpoint_pb2.ClusterLoadAssignment:
    """Endpoints of cluster `name`, first choice first; an empty first choice makes way for the next."""
    found = endpoint_pb2.ClusterLoadAssignment(cluster_name=name)
    found.policy.overprovisioning_factor.value = _OVERPROVISIONING
    for priority, hosts in enumerate(priorities):
        group = found.endpoints.add(priority=priority)
        group.lb_endpoints.extend(make_host(h) for h in sorted(hosts, key=lambda h: h.pod))
    return found


def make_assignments(plan: TrafficPlan) -> dict[str, endpoint_pb2.ClusterLoadAssignment]:
    """Endpoints of every cluster of `plan`, by cluster name.

    Live requests to a candidate whose pods are gone fall over to stable; copies never do.
    """
    found = {}
    for revision in {plan.stable, plan.candidate} - {None}:
        assert revision is not None
        own = build.endpoints_of(plan, revision)
        spare = build.endpoints_of(plan, plan.stable) if revision != plan.stable and plan.stable else ()
        live, copy = build.live_cluster(revision), build.copy_cluster(revision)
        found[live] = make_assignment(live, own, spare) if spare else make_assignment(live, own)
        found[copy] = make_assignment(copy, own)
    return found
