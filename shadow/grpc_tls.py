"""Mutual TLS of our gRPC servers, from files that change while they run. Called by the xDS server and the recorder."""

from pathlib import Path
from typing import Any

import grpc

from shadow.envoy.bootstrap import TlsFiles

Content = tuple[bytes, bytes, bytes]


def server_credentials(tls: TlsFiles | None) -> grpc.ServerCredentials | None:
    """Credentials that demand a certificate of every client; None without files.

    The files are looked at again at each handshake, so a renewed certificate, or another authority, needs no restart.
    OSError where a file is missing at the start; later the last good content stays in force.
    """
    if tls is None:
        return None
    known = _read(tls)

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal known
        try:
            found = _read(tls)
        except OSError:  # between two writes of the files
            return None
        if found == known:
            return None
        known = found
        return _configuration(found)

    fetch: Any = changed  # None is "as before", which the library's types do not know
    return grpc.dynamic_ssl_server_credentials(_configuration(known), fetch, require_client_authentication=True)


def _read(tls: TlsFiles) -> Content:
    return Path(tls.key).read_bytes(), Path(tls.certificate).read_bytes(), Path(tls.authority).read_bytes()


def _configuration(content: Content) -> grpc.ServerCertificateConfiguration:
    key, certificate, authority = content
    return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)
