"""Mutual TLS between gates, operator and recorder: one authority in a Secret, short certificates from it.

Made by the operator's start-up where `--tls-dir` is given. The authority survives restarts in the Secret
`weighlock-xds-ca`; the operator's own certificate is a pair of files, a gate's is the Secret `<rollout>-gate-tls`, the
recorder's is `weighlock-recorder-tls`. Implements `controller.act.Certificates`.
"""

import base64
import datetime
import threading
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controller.core.variants import OWNED, ROLLOUT
from controller.observe import CachedCluster
from controller.ports import Ref, Retryable

CA_SECRET = "weighlock-xds-ca"
RECORDER_SECRET = "weighlock-recorder-tls"
SERVER_NAME = "weighlock-xds"
AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
_RENEW_BEFORE_DAYS = 60

Key = ec.EllipticCurvePrivateKey


class CertificateAuthority:
    """Signs. Created once; a second operator that starts at the same moment takes the first one's authority."""

    def __init__(self, cluster: CachedCluster, namespace: str, folder: Path) -> None:
        self._cluster, self._namespace, self._folder = cluster, namespace, folder
        self._lock = threading.Lock()
        self._authority: tuple[x509.Certificate, Key] | None = None
        self._issued: dict[str, tuple[datetime.datetime, dict[str, Any]]] = {}

    @property
    def server_name(self) -> str:
        """Name in the server certificates of operator and recorder."""
        return SERVER_NAME

    def server_files(self) -> tuple[Path, Path, Path]:
        """Write the operator's certificate, key and the authority; also gives the recorder its Secret."""
        authority, _ = self._load()
        certificate, key = self._sign(SERVER_NAME, SERVER_NAME)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        paths = (self._folder / "tls.crt", self._folder / "tls.key", self._folder / "ca.crt")
        for path, content in zip(paths, (_pem(certificate), _pem_key(key), _pem(authority)), strict=True):
            path.touch(mode=0o600)
            path.write_bytes(content)
        self._cluster.apply(self._secret(RECORDER_SECRET, self._namespace, SERVER_NAME, SERVER_NAME, {}), "secrets")
        return paths

    def gate_secret(self, namespace: str, rollout: str) -> dict[str, Any]:
        """Client certificate of a rollout's gates; the same one until it must be renewed."""
        name = f"{rollout}-gate-tls"
        now = datetime.datetime.now(datetime.UTC)
        with self._lock:
            issued = self._issued.get(f"{namespace}/{name}")
        if issued is not None and issued[0] > now:
            return issued[1]
        secret = self._kept(namespace, name, now) or self._secret(
            name, namespace, f"{namespace}/{rollout}", None, {ROLLOUT: rollout}
        )
        until = now + datetime.timedelta(days=1)
        with self._lock:
            self._issued[f"{namespace}/{name}"] = (until, secret)
        return secret

    def _kept(self, namespace: str, name: str, now: datetime.datetime) -> dict[str, Any] | None:
        """The Secret as it is, where its certificate is ours and good for long enough."""
        found = self._cluster.get(Ref("v1", "secrets", namespace, name))
        data = (found or {}).get("data") or {}
        authority, _ = self._load()
        if not {"tls.crt", "tls.key", "ca.crt"} <= data.keys():
            return None
        certificate = x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"]))
        is_long = certificate.not_valid_after_utc > now + datetime.timedelta(days=_RENEW_BEFORE_DAYS)
        if not is_long or base64.b64decode(data["ca.crt"]) != _pem(authority):
            return None
        metadata = {"name": name, "namespace": namespace, "labels": (found or {})["metadata"].get("labels") or {}}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls", "data": data}

    def _secret(
        self, name: str, namespace: str, common_name: str, server_name: str | None, labels: dict[str, str]
    ) -> dict[str, Any]:
        authority, _ = self._load()
        certificate, key = self._sign(common_name, server_name)
        data = {"tls.crt": _pem(certificate), "tls.key": _pem_key(key), "ca.crt": _pem(authority)}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace, "labels": {**OWNED, **labels}},
            "type": "kubernetes.io/tls",
            "data": {k: base64.b64encode(v).decode() for k, v in data.items()},
        }

    def _load(self) -> tuple[x509.Certificate, Key]:
        with self._lock:
            if self._authority is None:
                self._authority = self._read() or self._create()
            return self._authority

    def _read(self) -> tuple[x509.Certificate, Key] | None:
        found = self._cluster.get(Ref("v1", "secrets", self._namespace, CA_SECRET))
        data = (found or {}).get("data") or {}
        if not {"tls.crt", "tls.key"} <= data.keys():
            return None
        key = serialization.load_pem_private_key(base64.b64decode(data["tls.key"]), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            return None
        return x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"])), key

    def _create(self) -> tuple[x509.Certificate, Key]:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _build("weighlock", None, key, None, key, AUTHORITY_DAYS, is_authority=True)
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": CA_SECRET, "namespace": self._namespace, "labels": OWNED},
            "type": "kubernetes.io/tls",
            "data": {
                "tls.crt": base64.b64encode(_pem(certificate)).decode(),
                "tls.key": base64.b64encode(_pem_key(key)).decode(),
            },
        }
        self._cluster.apply(secret, "secrets")
        kept = self._read()  # only the leader comes here, so the last writer is the reader
        if kept is None:
            raise Retryable(f"Secret {CA_SECRET} cannot be read back")
        return kept

    def _sign(self, common_name: str, server_name: str | None) -> tuple[x509.Certificate, Key]:
        authority, authority_key = self._load()
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _build(common_name, server_name, key, authority, authority_key, CERTIFICATE_DAYS)
        return certificate, key


def _build(
    common_name: str,
    server_name: str | None,
    key: Key,
    issuer: x509.Certificate | None,
    issuer_key: Key,
    days: int,
    is_authority: bool = False,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if not is_authority:
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server_name else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    if server_name:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(server_name)]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_key(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
