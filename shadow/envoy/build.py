"""Small helpers of the Envoy builders: packing, durations, metadata, names. Knows nothing of rollouts' lives."""

from typing import Any

import orjson
from envoy.config.core.v3 import address_pb2, base_pb2, config_source_pb2
from google.protobuf import any_pb2, duration_pb2, message, struct_pb2, wrappers_pb2

from shadow.plan import Endpoint, TrafficPlan

NAMESPACE = "weighlock"
LUA_FILTER = "envoy.filters.http.lua"
LIVE_LISTENER = "live"
COPIES_LISTENER = "copies"
LIVE_ROUTES = "live"
COPIES_ROUTES = "copies"
COPIES_CLUSTER = "copies"
RECORDER_CLUSTER = "recorder"
XDS_CLUSTER = "xds"


def live_cluster(revision: str) -> str:
    """Cluster of the live requests of one revision."""
    return f"live-{revision}"


def copy_cluster(revision: str) -> str:
    """Cluster of the copies to one revision: the same pods with breakers of their own and no way over to others."""
    return f"copy-{revision}"


def pack(value: message.Message) -> any_pb2.Any:
    """`value` as Any, with the same bytes for the same content."""
    packed = any_pb2.Any(type_url=f"type.googleapis.com/{value.DESCRIPTOR.full_name}")
    packed.value = value.SerializeToString(deterministic=True)
    return packed


def seconds(value: float) -> duration_pb2.Duration:
    """Protobuf duration of `value` seconds."""
    whole = int(value)
    return duration_pb2.Duration(seconds=whole, nanos=round((value - whole) * 1e9))


def uint32(value: int) -> wrappers_pb2.UInt32Value:
    return wrappers_pb2.UInt32Value(value=value)


def metadata(**namespaces: dict[str, Any]) -> base_pb2.Metadata:
    """Metadata from namespaces, whose dots are written `__`."""
    found = base_pb2.Metadata()
    for name, values in namespaces.items():
        struct = struct_pb2.Struct()
        struct.update(values)
        found.filter_metadata[name.replace("__", ".")].CopyFrom(struct)
    return found


def text(value: dict[str, Any]) -> str:
    """Compact JSON with sorted keys: the same content gives the same text."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def socket_address(host: str, port: int) -> address_pb2.Address:
    return address_pb2.Address(socket_address=address_pb2.SocketAddress(address=host, port_value=port))


def ads_source() -> config_source_pb2.ConfigSource:
    """Resources come over the one ADS stream; nothing serves before they have come."""
    return config_source_pb2.ConfigSource(
        ads=config_source_pb2.AggregatedConfigSource(),
        resource_api_version=config_source_pb2.ApiVersion.V3,
        initial_fetch_timeout=seconds(0),
    )


def endpoints_of(plan: TrafficPlan, revision: str | None) -> tuple[Endpoint, ...]:
    """Pods of `revision` that may get requests; all its pods where none is ready (one may answer, none surely not)."""
    pods = tuple(e for e in plan.endpoints if e.revision == revision)
    ready = tuple(e for e in pods if e.ready)
    if ready or revision != plan.stable:
        return ready
    return pods


def live_weight(plan: TrafficPlan) -> int:
    """Percent of live requests that the gates send to the candidate: the plan's, or 0 where it has no ready pod."""
    if plan.candidate is None or not endpoints_of(plan, plan.candidate):
        return 0
    return plan.weight
