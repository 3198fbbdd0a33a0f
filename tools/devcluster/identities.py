"""Who may talk to the cluster: certificates, tokens and kubeconfigs, made once per state folder.

Called by the cluster at `up`. Roles of the approver, the viewer and the stranger are not made here: whoever installs
a product binds their groups.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import secrets
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from tools.devcluster.paths import State

# User name and groups by kubeconfig name. People have a group each under `weighlock:`; components the names that
# Kubernetes binds its built-in roles to.
USERS = {
    "admin": ("admin", ["system:masters"]),
    "approver": ("approver", ["weighlock:approvers"]),
    "viewer": ("viewer", ["weighlock:viewers"]),
    "stranger": ("stranger", ["weighlock:strangers"]),
    "controller-manager": ("system:kube-controller-manager", []),
    "scheduler": ("system:kube-scheduler", []),
    "node": ("devcluster:node", ["devcluster:nodes"]),
}
PEOPLE = ("admin", "approver", "viewer", "stranger")
VALID_DAYS = 3650
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def ensure_certificates(state: State) -> None:
    """A certificate authority, the API server's and the nodes' certificates, and the service account key."""
    if (state.pki / "complete").exists():
        return
    state.pki.mkdir(parents=True, exist_ok=True)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = sign("devcluster-ca", authority_key, None, authority_key, [])
    write(state.pki / "ca", authority, authority_key)
    loopback: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.DNSName("kubernetes"),
        x509.DNSName("kubernetes.default.svc"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("10.96.0.1")),
    ]
    for name, addresses in {"apiserver": loopback, "node": loopback, "kubelet-client": loopback}.items():
        key = ec.generate_private_key(ec.SECP256R1())
        write(state.pki / name, sign(f"devcluster-{name}", key, authority, authority_key, addresses), key)
    account_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    write(state.pki / "service-account", None, account_key)
    (state.pki / "complete").touch()


def sign(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
    addresses: list[x509.GeneralName],
) -> x509.Certificate:
    """A certificate for `name`; without an issuer a self-signed authority."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if addresses:
        builder = builder.add_extension(x509.SubjectAlternativeName(addresses), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def write(stem: Path, certificate: x509.Certificate | None, key: PrivateKey) -> None:
    """Write ``<stem>.crt`` (if there is one) and ``<stem>.key``, the key for the owner only."""
    if certificate:
        stem.with_suffix(".crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    file = stem.with_suffix(".key")
    file.touch(mode=0o600)
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def ensure_tokens(state: State) -> dict[str, str]:
    """The token of every user by kubeconfig name; also writes the API server's token file.

    Many processes ask at once while a cluster runs, so files change only when a user is new, and as a whole.
    """
    file = state.pki / "tokens.json"
    tokens: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    if tokens.keys() >= USERS.keys():
        return tokens
    for name in USERS:
        tokens.setdefault(name, secrets.token_urlsafe(24))
    rows = [f'{tokens[name]},{user},{name},"{",".join(groups)}"' for name, (user, groups) in USERS.items()]
    _replace(state.pki / "tokens.csv", "\n".join(rows) + "\n")
    _replace(file, json.dumps(tokens))
    return tokens


def _replace(file: Path, text: str) -> None:
    fresh = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    fresh.touch(mode=0o600)
    fresh.write_text(text)
    fresh.replace(file)


def write_kubeconfigs(state: State, server: str, tokens: dict[str, str]) -> None:
    """One kubeconfig per user, for the API server at `server`."""
    for name in USERS:
        file = state.kubeconfig(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(yaml.safe_dump(make_kubeconfig(name, server, state.pki / "ca.crt", tokens[name])))


def make_kubeconfig(user: str, server: str, authority: Path, token: str) -> dict[str, object]:
    authority_data = base64.b64encode(authority.read_bytes()).decode()
    cluster = {"server": server, "certificate-authority-data": authority_data}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "devcluster", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": user, "context": {"cluster": "devcluster", "user": user, "namespace": "default"}}],
        "current-context": user,
    }
