"""Bootstrap of a gate's Envoy: where its xDS server and its recorder are; everything else comes from xDS.

Called by workload.py (ConfigMap of a gate) and by tests. What differs between the pods of a gate (name, address) is not
in it: `gate.py` gives it on the command line.
"""

import ipaddress
from dataclasses import dataclass
from typing import Any

import yaml

from shadow.envoy import build

_CERTIFICATE, _AUTHORITY = "certificate", "authority"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files of mutual TLS as the process finds them.

    server_name: name that the other side's certificate must carry; secrets: folder with the files of
    `make_secrets`, where Envoy shall read these again when they change (a renewed certificate must not cost a gate its
    streams).
    """

    certificate: str
    key: str
    authority: str
    server_name: str | None = None
    secrets: str | None = None


@dataclass(frozen=True, slots=True)
class Upstream:
    """A server that gates call: host (name or address), port, and TLS where it is on."""

    host: str
    port: int
    tls: TlsFiles | None = None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _certificate(tls: TlsFiles) -> dict[str, Any]:
    return {"certificate_chain": {"filename": tls.certificate}, "private_key": {"filename": tls.key}}


def _by_name(name: str, folder: str) -> dict[str, Any]:
    source = {"path_config_source": {"path": f"{folder}/{name}.yaml"}, "resource_api_version": "V3"}
    return {"name": name, "sds_config": source}


def _context(tls: TlsFiles) -> dict[str, Any]:
    names: dict[str, Any] = {}
    if tls.server_name:
        matcher = {"san_type": "DNS", "matcher": {"exact": tls.server_name}}
        names["match_typed_subject_alt_names"] = [matcher]
    if tls.secrets is None:
        validation = {"trusted_ca": {"filename": tls.authority}, **names}
        return {"tls_certificates": [_certificate(tls)], "validation_context": validation}
    return {
        "tls_certificate_sds_secret_configs": [_by_name(_CERTIFICATE, tls.secrets)],
        "combined_validation_context": {
            "default_validation_context": names,
            "validation_context_sds_secret_config": _by_name(_AUTHORITY, tls.secrets),
        },
    }


def make_secrets(tls: TlsFiles) -> dict[str, str]:
    """Files of the folder `TlsFiles.secrets` by name; Envoy watches the folders of what they name in turn."""
    kind = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
    parts = {
        _CERTIFICATE: {"tls_certificate": _certificate(tls)},
        _AUTHORITY: {"validation_context": {"trusted_ca": {"filename": tls.authority}}},
    }
    return {
        f"{name}.yaml": yaml.safe_dump({"resources": [{"@type": kind, "name": name, **part}]}, sort_keys=False)
        for name, part in parts.items()
    }


def _transport(tls: TlsFiles) -> dict[str, Any]:
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "common_tls_context": _context(tls),
            **({"sni": tls.server_name} if tls.server_name else {}),
        },
    }


def _cluster(name: str, upstream: Upstream) -> dict[str, Any]:
    address = {"socket_address": {"address": upstream.host, "port_value": upstream.port}}
    options = {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {
            "http2_protocol_options": {"connection_keepalive": {"interval": "5s", "timeout": "4s"}}
        },
    }
    cluster: dict[str, Any] = {
        "name": name,
        "type": "STATIC" if _is_address(upstream.host) else "STRICT_DNS",
        "connect_timeout": "2s",
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options},
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    }
    if upstream.tls is not None:
        cluster["transport_socket"] = _transport(upstream.tls)
    return cluster


def make_bootstrap(xds: Upstream, recorder: Upstream) -> dict[str, Any]:
    """Bootstrap as a mapping (Envoy reads it as YAML or JSON)."""
    ads = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}
    backoff = {"retry_back_off": {"base_interval": "0.2s", "max_interval": "2s"}}
    return {
        "dynamic_resources": {
            "ads_config": {
                "api_type": "GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": True,
                "grpc_services": [{"envoy_grpc": {"cluster_name": build.XDS_CLUSTER, "retry_policy": backoff}}],
            },
            "lds_config": ads,
            "cds_config": ads,
        },
        "static_resources": {
            "clusters": [_cluster(build.XDS_CLUSTER, xds), _cluster(build.RECORDER_CLUSTER, recorder)]
        },
        "bootstrap_extensions": [
            {
                "name": "envoy.bootstrap.internal_listener",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener"
                },
            }
        ],
        "stats_flush_interval": "60s",
    }


def bootstrap_yaml(xds: Upstream, recorder: Upstream) -> str:
    """`make_bootstrap` as YAML text."""
    return yaml.safe_dump(make_bootstrap(xds, recorder), sort_keys=False)
