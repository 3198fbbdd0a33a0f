"""Mutual TLS of the recorder's HTTP interface: the operator is answered and nobody else, whatever our authority signed.

Server side used by shadow/recorder/serve.py, client side by controller/adapters/recorder_client.py. Both read the files
again when they change, so a renewed certificate, or another authority, needs no restart.
"""

import asyncio
import ssl
from pathlib import Path
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from shadow.envoy.bootstrap import TlsFiles
from shadow.identity import is_control

_Protocol: Any = AutoHTTPProtocol  # whichever of uvicorn's is installed


class OperatorOnly(_Protocol):  # type: ignore[misc]  # the base is chosen at run time
    """HTTP for peers whose certificate is the operator's; the connections of others end before they say a word."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        certificate = transport.get_extra_info("peercert") or {}
        if not is_control(certificate.get("subjectAltName", ())):
            transport.abort()


def stamp_of(tls: TlsFiles) -> tuple[int, ...]:
    """What changes when the files do; OSError where one is missing."""
    return tuple(Path(path).stat().st_mtime_ns for path in (tls.certificate, tls.key, tls.authority))


def server_context(tls: TlsFiles) -> ssl.SSLContext:
    """Demands a certificate of our authority of every client; OSError (ssl.SSLError) where the files are unusable."""
    current, stamp = _server_context(tls), stamp_of(tls)
    first = current

    def renew(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Called in each handshake, also without a server name."""
        nonlocal current, stamp
        try:
            found = stamp_of(tls)
            if found != stamp:
                current, stamp = _server_context(tls), found
        except OSError:  # between two writes of the files: the last good ones stay in force
            pass
        connection.context = current

    first.sni_callback = renew
    return first


def client_context(tls: TlsFiles) -> ssl.SSLContext:
    """Shows our certificate and trusts our authority alone."""
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=tls.authority)
    context.load_cert_chain(tls.certificate, tls.key)
    return context


def _server_context(tls: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tls.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(tls.certificate, tls.key)
    return context
