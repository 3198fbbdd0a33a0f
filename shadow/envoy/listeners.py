"""Listeners: the live one on the pod's address, and the copies' inside the same Envoy. Both run the same meter."""

from dataclasses import dataclass

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import base_pb2, config_source_pb2, grpc_service_pb2, protocol_pb2
from envoy.config.core.v3 import extension_pb2 as core_extension_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.extensions.access_loggers.grpc.v3 import als_pb2
from envoy.extensions.filters.http.lua.v3 import lua_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.http.early_header_mutation.header_mutation.v3 import header_mutation_pb2
from envoy.type.matcher.v3 import string_pb2
from envoy.type.metadata.v3 import metadata_pb2
from envoy.type.tracing.v3 import custom_tag_pb2

from shadow.envoy import build
from shadow.envoy.script import gate_script

DEBUG = "x-weighlock-debug"
_DEBUG_INSIDE = "weighlock-debug"


@dataclass(frozen=True, slots=True)
class GateTimes:
    """Times of a gate in seconds: stream_idle_s: a stream without any byte ends; copy_max_s: longest life of a copy;
    open_log_s: how often an unfinished request is reported; log_flush_s: longest wait of a finished one."""

    stream_idle_s: float = 600.0
    copy_max_s: float = 900.0
    open_log_s: float = 1.0
    log_flush_s: float = 0.25


def _tag(name: str, kind: metadata_pb2.MetadataKind, key: str) -> custom_tag_pb2.CustomTag:
    where = metadata_pb2.MetadataKey(key=build.NAMESPACE, path=[metadata_pb2.MetadataKey.PathSegment(key=key)])
    return custom_tag_pb2.CustomTag(tag=name, metadata=custom_tag_pb2.CustomTag.Metadata(kind=kind, metadata_key=where))


def make_access_log(name: str, times: GateTimes) -> accesslog_pb2.AccessLog:
    """gRPC access log to the recorder; route and host metadata come as tags, the meter's as dynamic metadata."""
    route = metadata_pb2.MetadataKind(route=metadata_pb2.MetadataKind.Route())
    host = metadata_pb2.MetadataKind(host=metadata_pb2.MetadataKind.Host())
    common = als_pb2.CommonGrpcAccessLogConfig(
        log_name=name,
        transport_api_version=config_source_pb2.ApiVersion.V3,
        grpc_service=grpc_service_pb2.GrpcService(
            envoy_grpc=grpc_service_pb2.GrpcService.EnvoyGrpc(cluster_name=build.RECORDER_CLUSTER)
        ),
        buffer_flush_interval=build.seconds(times.log_flush_s),
        buffer_size_bytes=build.uint32(65536),
        custom_tags=[_tag("plan", route, "plan"), _tag("host", host, "host")],
    )
    config = als_pb2.HttpGrpcAccessLogConfig(common_config=common, additional_response_headers_to_log=["retry-after"])
    return accesslog_pb2.AccessLog(name="envoy.access_loggers.http_grpc", typed_config=build.pack(config))


def _lua() -> hcm_pb2.HttpFilter:
    config = lua_pb2.Lua()
    config.default_source_code.inline_string = gate_script()
    config.clear_route_cache.value = False  # the script says when the route must be chosen again
    return hcm_pb2.HttpFilter(name=build.LUA_FILTER, typed_config=build.pack(config))


def _router() -> hcm_pb2.HttpFilter:
    config = router_pb2.Router(suppress_envoy_headers=True)
    return hcm_pb2.HttpFilter(name="envoy.filters.http.router", typed_config=build.pack(config))


def _manager(name: str, routes: str, times: GateTimes) -> hcm_pb2.HttpConnectionManager:
    manager = hcm_pb2.HttpConnectionManager(
        stat_prefix=name,
        rds=hcm_pb2.Rds(route_config_name=routes, config_source=build.ads_source()),
        http_filters=[_lua(), _router()],
        access_log=[make_access_log(name, times)],
        stream_idle_timeout=build.seconds(times.stream_idle_s),
        request_timeout=build.seconds(0),
    )
    manager.access_log_options.access_log_flush_interval.CopyFrom(build.seconds(times.open_log_s))
    manager.generate_request_id.value = True
    manager.normalize_path.value = True
    manager.merge_slashes = True
    return manager


def _chain(manager: hcm_pb2.HttpConnectionManager) -> listener_components_pb2.FilterChain:
    chain = listener_components_pb2.FilterChain()
    chain.filters.add(name="envoy.filters.network.http_connection_manager", typed_config=build.pack(manager))
    return chain


def _own_names_are_ours() -> core_extension_pb2.TypedExtensionConfig:
    """Takes headers of our names from the client's request before anything reads them; `DEBUG` gets another name first.

    It costs a tenth of what the filter would pay: that one must copy every header to see its name.
    """
    debug = base_pb2.HeaderValueOption(
        header=base_pb2.HeaderValue(key=_DEBUG_INSIDE, value=f"%REQ({DEBUG})%"),
        append_action=base_pb2.HeaderValueOption.HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD,
    )
    ours = string_pb2.StringMatcher(prefix="x-weighlock-")
    early = header_mutation_pb2.HeaderMutation()
    early.mutations.add().append.CopyFrom(debug)
    early.mutations.add().remove_on_match.key_matcher.CopyFrom(ours)
    early.mutations.add().remove = "x-envoy-retry-on"
    return core_extension_pb2.TypedExtensionConfig(
        name="envoy.http.early_header_mutation.header_mutation", typed_config=build.pack(early)
    )


def make_live_listener(address: str, port: int, times: GateTimes) -> listener_pb2.Listener:
    """Where clients come in: `address` is the gate pod's own."""
    manager = _manager("live", build.LIVE_ROUTES, times)
    manager.early_header_mutation_extensions.append(_own_names_are_ours())
    manager.use_remote_address.value = True
    manager.skip_xff_append = False
    manager.common_http_protocol_options.CopyFrom(protocol_pb2.HttpProtocolOptions(idle_timeout=build.seconds(3600)))
    manager.drain_timeout.CopyFrom(build.seconds(5))
    return listener_pb2.Listener(
        name=build.LIVE_LISTENER,
        address=build.socket_address(address, port),
        filter_chains=[_chain(manager)],
        per_connection_buffer_limit_bytes=build.uint32(2 * 1024 * 1024),
    )


def make_copies_listener(times: GateTimes) -> listener_pb2.Listener:
    """Where copies are metered: reachable from inside this Envoy alone, so its headers can be trusted."""
    manager = _manager("copies", build.COPIES_ROUTES, times)
    manager.common_http_protocol_options.CopyFrom(
        protocol_pb2.HttpProtocolOptions(max_stream_duration=build.seconds(times.copy_max_s))
    )
    listener = listener_pb2.Listener(name=build.COPIES_LISTENER, filter_chains=[_chain(manager)])
    listener.internal_listener.SetInParent()
    return listener
