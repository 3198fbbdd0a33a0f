"""Mutual TLS between gates, operator and recorder: one authority in a Secret, short certificates from it.

Made by the operator's start-up where `--tls-dir` is given. The authority is the Secret `weighlock-xds-ca`, made at the
first start, or one that somebody else keeps (cert-manager). The operator's own certificate is a pair of files, a gate's
is the Secret `<rollout>-gate-tls`, the recorder's `weighlock-recorder-tls`; all are renewed long before they end, and
their users read them again. Implements `Certificates` of what applies the gates.
"""

import base64
import datetime
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controller.core.variants import OWNED, ROLLOUT
from controller.ports import Cluster, Ref, Retryable, Terminal
from crds.v1alpha1.conditions import Reason
from shadow.envoy.bootstrap import TlsFiles
from shadow.identity import CONTROL_NAME, gate_identity

CA_SECRET = "weighlock-xds-ca"
RECORDER_SECRET = "weighlock-recorder-tls"
SERVER_NAME = CONTROL_NAME
AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
_RENEW_BEFORE_DAYS = 60

Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class Holder:
    """Whom a certificate speaks of: common name, the name that is checked, what it is good for."""

    common_name: str
    name: x509.GeneralName
    usage: tuple[x509.ObjectIdentifier, ...]


def control_holder() -> Holder:
    """Operator and recorder: servers to gates, and the operator a client of the recorder."""
    usage = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
    return Holder(SERVER_NAME, x509.DNSName(SERVER_NAME), usage)


def gate_holder(rollout: str) -> Holder:
    """The gates of a rollout (`namespace/name`): clients, and of this rollout alone."""
    name = x509.UniformResourceIdentifier(gate_identity(rollout))
    return Holder(rollout, name, (ExtendedKeyUsageOID.CLIENT_AUTH,))


class CertificateAuthority:
    """Signs, as the leader only.

    Args:
        namespace: the operator's own.
        folder: where its own certificate lies.
        secret: Secret with `tls.crt` and `tls.key` of an authority that somebody else keeps; "" for our own.
    """

    def __init__(self, cluster: Cluster, namespace: str, folder: Path, secret: str = "") -> None:
        self._cluster, self._namespace, self._folder, self._given = cluster, namespace, folder, secret
        self._lock = threading.Lock()
        self._authority: tuple[x509.Certificate, Key] | None = None
        self._issued: dict[str, tuple[datetime.datetime, dict[str, Any]]] = {}

    @property
    def server_name(self) -> str:
        """Name in the server certificates of operator and recorder."""
        return SERVER_NAME

    @property
    def paths(self) -> TlsFiles:
        """Where the operator's own certificate lies once `server_files` wrote it."""
        certificate, key, authority = (str(self._folder / name) for name in ("tls.crt", "tls.key", "ca.crt"))
        return TlsFiles(certificate, key, authority, SERVER_NAME)

    def server_files(self) -> tuple[Path, Path, Path]:
        """Write the operator's certificate, key and the authority; also gives the recorder its Secret."""
        authority, _ = self._load()
        certificate, key = self._sign(control_holder())
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        paths = (self._folder / "tls.crt", self._folder / "tls.key", self._folder / "ca.crt")
        for path, content in zip(paths, (_pem(certificate), _pem_key(key), _pem(authority)), strict=True):
            path.touch(mode=0o600)
            path.write_bytes(content)
        if self._kept(self._namespace, RECORDER_SECRET, control_holder(), _now()) is None:
            recorder = self._secret(RECORDER_SECRET, self._namespace, control_holder(), {})
            self._cluster.apply(recorder, "secrets")
        return paths

    def renew(self, rollouts: Iterable[tuple[str, str]]) -> None:
        """Once a day: new certificates for whoever's ends soon, or is of an authority that was replaced.

        Args:
            rollouts: (namespace, name) of all that have gates.

        Raises:
            Retryable, Terminal: the first failure; the certificates in use are good for weeks more.
        """
        with self._lock:
            self._authority = None
            self._issued.clear()
        self.server_files()
        for namespace, rollout in rollouts:
            name = _gate_name(rollout)
            found = self._cluster.get(Ref("v1", "secrets", namespace, name))
            holder = gate_holder(f"{namespace}/{rollout}")
            if found is not None and self._kept(namespace, name, holder, _now()) is None:
                self._cluster.apply(self.gate_secret(namespace, rollout), "secrets")

    def gate_secret(self, namespace: str, rollout: str) -> dict[str, Any]:
        """Client certificate of a rollout's gates; the same one until it must be renewed."""
        name, now = _gate_name(rollout), _now()
        with self._lock:
            issued = self._issued.get(f"{namespace}/{name}")
        if issued is not None and issued[0] > now:
            return issued[1]
        holder = gate_holder(f"{namespace}/{rollout}")
        kept = self._kept(namespace, name, holder, now)
        secret = kept or self._secret(name, namespace, holder, {ROLLOUT: rollout})
        until = now + datetime.timedelta(days=1)
        with self._lock:
            self._issued[f"{namespace}/{name}"] = (until, secret)
        return secret

    def _kept(self, namespace: str, name: str, holder: Holder, now: datetime.datetime) -> dict[str, Any] | None:
        """The Secret as it is, where its certificate is ours, the holder's, and good for long enough."""
        found = self._cluster.get(Ref("v1", "secrets", namespace, name))
        data = (found or {}).get("data") or {}
        authority, _ = self._load()
        if not {"tls.crt", "tls.key", "ca.crt"} <= data.keys():
            return None
        certificate = x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"]))
        is_long = certificate.not_valid_after_utc > now + datetime.timedelta(days=_RENEW_BEFORE_DAYS)
        if not is_long or base64.b64decode(data["ca.crt"]) != _pem(authority) or not _is_of(certificate, holder):
            return None
        metadata = {"name": name, "namespace": namespace, "labels": (found or {})["metadata"].get("labels") or {}}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls", "data": data}

    def _secret(self, name: str, namespace: str, holder: Holder, labels: dict[str, str]) -> dict[str, Any]:
        authority, _ = self._load()
        certificate, key = self._sign(holder)
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
        name = self._given or CA_SECRET
        data = (self._cluster.get(Ref("v1", "secrets", self._namespace, name)) or {}).get("data") or {}
        if not {"tls.crt", "tls.key"} <= data.keys():
            if not self._given:
                return None
            raise Retryable(f"Secret {name} in {self._namespace} holds no tls.crt and tls.key yet", 5.0)
        try:
            key = serialization.load_pem_private_key(base64.b64decode(data["tls.key"]), None)
            certificate = x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"]))
            constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        except (ValueError, TypeError, x509.ExtensionNotFound) as error:
            raise _unusable(name, str(error) or type(error).__name__) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise _unusable(name, "its key is no ECDSA key")
        if not constraints.ca or certificate.issuer != certificate.subject:
            # Gates trust everything that their root signed: an authority below somebody else's root would let in more.
            raise _unusable(name, "its certificate is no self-signed authority")
        return certificate, key

    def _create(self) -> tuple[x509.Certificate, Key]:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _build("weighlock", None, key, None, key, AUTHORITY_DAYS)
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

    def _sign(self, holder: Holder) -> tuple[x509.Certificate, Key]:
        authority, authority_key = self._load()
        key = ec.generate_private_key(ec.SECP256R1())
        return _build(holder.common_name, holder, key, authority, authority_key, CERTIFICATE_DAYS), key


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _gate_name(rollout: str) -> str:
    return f"{rollout}-gate-tls"


def _unusable(name: str, why: str) -> Terminal:
    return Terminal(Reason.PREFLIGHT_FAILED, f"Secret {name} cannot sign certificates: {why}.")


def _is_of(certificate: x509.Certificate, holder: Holder) -> bool:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:  # of a release before certificates named their holder
        return False
    return list(names) == [holder.name] and set(usage) == set(holder.usage)


def _build(
    common_name: str, holder: Holder | None, key: Key, issuer: x509.Certificate | None, issuer_key: Key, days: int
) -> x509.Certificate:
    """holder: None for an authority."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])
    now = _now()
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=holder is None, path_length=None), critical=True)
    )
    if holder is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage(list(holder.usage)), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName([holder.name]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_key(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
