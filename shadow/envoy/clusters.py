"""Clusters: one for the live requests and one for the copies of each revision, and the hop to the copies listener."""

from envoy.config.cluster.v3 import circuit_breaker_pb2, cluster_pb2, outlier_detection_pb2
from envoy.config.core.v3 import protocol_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf import wrappers_pb2

from shadow.envoy import build
from shadow.plan import TrafficPlan

CONNECT_TIMEOUT_S = 2.0
UPSTREAM_IDLE_S = 4.0
"""Idle connections go before the engines close them (uvicorn after 5 s): a request on a closing one would be lost."""
COPY_MAX_CONNECTIONS = 1024
COPY_MAX_PENDING = 16
_UNBOUNDED = 1_000_000
_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def _breakers(connections: int, pending: int, requests: int) -> circuit_breaker_pb2.CircuitBreakers:
    limits = circuit_breaker_pb2.CircuitBreakers.Thresholds(
        max_connections=build.uint32(connections),
        max_pending_requests=build.uint32(pending),
        max_requests=build.uint32(requests),
        max_retries=build.uint32(_UNBOUNDED),
    )
    return circuit_breaker_pb2.CircuitBreakers(thresholds=[limits])


def _http1() -> http_protocol_options_pb2.HttpProtocolOptions:
    options = http_protocol_options_pb2.HttpProtocolOptions(
        common_http_protocol_options=protocol_pb2.HttpProtocolOptions(idle_timeout=build.seconds(UPSTREAM_IDLE_S))
    )
    options.explicit_http_config.http_protocol_options.SetInParent()
    return options


def _outliers() -> outlier_detection_pb2.OutlierDetection:
    """Only pods that cannot be reached are set aside; what an engine answers is the judge's matter."""
    off = wrappers_pb2.UInt32Value(value=0)
    return outlier_detection_pb2.OutlierDetection(
        split_external_local_origin_errors=True,
        consecutive_local_origin_failure=build.uint32(2),
        enforcing_consecutive_local_origin_failure=build.uint32(100),
        enforcing_consecutive_5xx=off,
        enforcing_consecutive_gateway_failure=off,
        enforcing_success_rate=off,
        enforcing_local_origin_success_rate=off,
        enforcing_failure_percentage=off,
        enforcing_failure_percentage_local_origin=off,
        interval=build.seconds(1),
        base_ejection_time=build.seconds(2),
        max_ejection_time=build.seconds(10),
        max_ejection_percent=build.uint32(100),
    )


def _engine_cluster(name: str) -> cluster_pb2.Cluster:
    cluster = cluster_pb2.Cluster(
        name=name,
        type=cluster_pb2.Cluster.DiscoveryType.EDS,
        eds_cluster_config=cluster_pb2.Cluster.EdsClusterConfig(eds_config=build.ads_source()),
        connect_timeout=build.seconds(CONNECT_TIMEOUT_S),
        lb_policy=cluster_pb2.Cluster.LbPolicy.LEAST_REQUEST,
        common_lb_config=cluster_pb2.Cluster.CommonLbConfig(healthy_panic_threshold=percent_pb2.Percent(value=0)),
    )
    cluster.typed_extension_protocol_options[_HTTP_OPTIONS].CopyFrom(build.pack(_http1()))
    return cluster


def make_live_cluster(revision: str) -> cluster_pb2.Cluster:
    """Cluster of one revision's live requests: no limit of ours, pods that refuse connections are set aside."""
    cluster = _engine_cluster(build.live_cluster(revision))
    cluster.circuit_breakers.CopyFrom(_breakers(_UNBOUNDED, _UNBOUNDED, _UNBOUNDED))
    cluster.outlier_detection.CopyFrom(_outliers())
    return cluster


def make_copy_cluster(revision: str) -> cluster_pb2.Cluster:
    """Cluster of copies: bounded, so that a shadow that hangs costs the gate a bounded number of connections."""
    cluster = _engine_cluster(build.copy_cluster(revision))
    cluster.circuit_breakers.CopyFrom(_breakers(COPY_MAX_CONNECTIONS, COPY_MAX_PENDING, COPY_MAX_CONNECTIONS))
    return cluster


def make_copies_hop() -> cluster_pb2.Cluster:
    """From the live listener to the copies listener, inside the same Envoy.

    Its limits are wider than the copy clusters': what is dropped is dropped there, where the access log sees it.
    """
    cluster = cluster_pb2.Cluster(
        name=build.COPIES_CLUSTER,
        type=cluster_pb2.Cluster.DiscoveryType.STATIC,
        connect_timeout=build.seconds(1),
        circuit_breakers=_breakers(4 * COPY_MAX_CONNECTIONS, 4 * COPY_MAX_CONNECTIONS, 4 * COPY_MAX_CONNECTIONS),
    )
    host = endpoint_components_pb2.LbEndpoint()
    host.endpoint.address.envoy_internal_address.server_listener_name = build.COPIES_LISTENER
    host.endpoint.address.envoy_internal_address.endpoint_id = build.COPIES_LISTENER
    assignment = endpoint_pb2.ClusterLoadAssignment(cluster_name=build.COPIES_CLUSTER)
    assignment.endpoints.add().lb_endpoints.append(host)
    cluster.load_assignment.CopyFrom(assignment)
    cluster.typed_extension_protocol_options[_HTTP_OPTIONS].CopyFrom(build.pack(_http1()))
    return cluster


def make_clusters(plan: TrafficPlan) -> dict[str, cluster_pb2.Cluster]:
    """Every cluster of `plan`, by name."""
    found = {build.COPIES_CLUSTER: make_copies_hop()}
    for revision in {plan.stable, plan.candidate} - {None}:
        assert revision is not None
        for cluster in (make_live_cluster(revision), make_copy_cluster(revision)):
            found[cluster.name] = cluster
    return found
