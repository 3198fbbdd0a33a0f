"""The authority of mutual TLS: made once, kept, renewed in time, and never somebody else's root."""

import base64
import datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from controller.adapters import certificates as module
from controller.adapters.certificates import CA_SECRET, RECORDER_SECRET, SERVER_NAME, CertificateAuthority
from controller.ports import Retryable, Terminal
from tests.unit.controller.shell.fakes import FakeCluster

OPS = "weighlock-system"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster([])


def secret(cluster: FakeCluster, namespace: str, name: str) -> dict[str, bytes]:
    data = cluster.objects["secrets", namespace, name]["data"]
    return {key: base64.b64decode(value) for key, value in data.items()}


def test_one_authority_signs_for_all(cluster: FakeCluster, tmp_path: Path) -> None:
    authority = CertificateAuthority(cluster, OPS, tmp_path / "tls")
    certificate, key, root = authority.server_files()
    assert key.stat().st_mode & 0o077 == 0
    recorder = secret(cluster, OPS, RECORDER_SECRET)
    gate = authority.gate_secret("ns", "chat")
    assert base64.b64decode(gate["data"]["ca.crt"]) == recorder["ca.crt"] == root.read_bytes()
    ours = x509.load_pem_x509_certificate(certificate.read_bytes())
    ours.verify_directly_issued_by(x509.load_pem_x509_certificate(root.read_bytes()))
    names = ours.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [SERVER_NAME]
    usage = x509.load_pem_x509_certificate(base64.b64decode(gate["data"]["tls.crt"]))
    allowed = usage.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert x509.oid.ExtendedKeyUsageOID.SERVER_AUTH not in allowed  # a gate cannot pose as the operator


def names_of(pem: bytes) -> list[str]:
    extensions = x509.load_pem_x509_certificate(pem).extensions
    return [str(name.value) for name in extensions.get_extension_for_class(x509.SubjectAlternativeName).value]


def test_a_gates_certificate_names_its_rollout_and_one_that_does_not_is_replaced(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    authority = CertificateAuthority(cluster, OPS, tmp_path)
    for rollout in ("chat", "code"):
        cluster.apply(authority.gate_secret("ns", rollout), "secrets")
        assert names_of(secret(cluster, "ns", f"{rollout}-gate-tls")["tls.crt"]) == [f"weighlock://gate/ns/{rollout}"]
    cluster.objects["secrets", "ns", "chat-gate-tls"]["data"] = dict(
        cluster.objects["secrets", "ns", "code-gate-tls"]["data"]
    )
    cluster.apply(CertificateAuthority(cluster, OPS, tmp_path).gate_secret("ns", "chat"), "secrets")
    assert names_of(secret(cluster, "ns", "chat-gate-tls")["tls.crt"]) == ["weighlock://gate/ns/chat"]


def test_a_new_operator_keeps_what_is_good(cluster: FakeCluster, tmp_path: Path) -> None:
    first = CertificateAuthority(cluster, OPS, tmp_path)
    first.server_files()
    cluster.apply(first.gate_secret("ns", "chat"), "secrets")
    before = secret(cluster, OPS, RECORDER_SECRET), secret(cluster, "ns", "chat-gate-tls")
    second = CertificateAuthority(cluster, OPS, tmp_path)
    second.server_files()
    cluster.apply(second.gate_secret("ns", "chat"), "secrets")
    assert (secret(cluster, OPS, RECORDER_SECRET), secret(cluster, "ns", "chat-gate-tls")) == before


def test_what_ends_soon_is_renewed(cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = CertificateAuthority(cluster, OPS, tmp_path)
    authority.server_files()
    cluster.apply(authority.gate_secret("ns", "chat"), "secrets")
    old = secret(cluster, "ns", "chat-gate-tls"), (tmp_path / "tls.crt").read_bytes()
    authority.renew([("ns", "chat"), ("ns", "without-a-gate")])
    assert secret(cluster, "ns", "chat-gate-tls") == old[0]
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=310)
    monkeypatch.setattr(module, "_now", lambda: later)
    authority.renew([("ns", "chat")])
    renewed = secret(cluster, "ns", "chat-gate-tls")
    assert renewed["tls.crt"] != old[0]["tls.crt"] and renewed["ca.crt"] == old[0]["ca.crt"]
    assert secret(cluster, OPS, RECORDER_SECRET)["tls.crt"] != old[1]
    assert ("secrets", "ns", "without-a-gate-gate-tls") not in cluster.objects


def test_an_authority_that_was_replaced_reaches_everybody(cluster: FakeCluster, tmp_path: Path) -> None:
    authority = CertificateAuthority(cluster, OPS, tmp_path)
    authority.server_files()
    cluster.apply(authority.gate_secret("ns", "chat"), "secrets")
    old = (tmp_path / "ca.crt").read_bytes()
    del cluster.objects["secrets", OPS, CA_SECRET]
    authority.renew([("ns", "chat")])
    new = (tmp_path / "ca.crt").read_bytes()
    assert new != old
    assert secret(cluster, "ns", "chat-gate-tls")["ca.crt"] == secret(cluster, OPS, RECORDER_SECRET)["ca.crt"] == new


def put_authority(cluster: FakeCluster, key: Any, is_authority: bool, issuer: str = "ours") -> None:
    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name(issuer), name("ours"), key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(is_authority, None), critical=True)
    certificate = builder.sign(key, module.hashes.SHA256())
    pair = {"tls.crt": module._pem(certificate), "tls.key": module._pem_key(key)}
    data = {entry: base64.b64encode(content).decode() for entry, content in pair.items()}
    cluster.put({"kind": "Secret", "metadata": {"name": "given", "namespace": OPS}, "data": data})


def test_a_given_authority_signs(cluster: FakeCluster, tmp_path: Path) -> None:
    put_authority(cluster, ec.generate_private_key(ec.SECP256R1()), is_authority=True)
    _, _, root = CertificateAuthority(cluster, OPS, tmp_path, "given").server_files()
    assert root.read_bytes() == secret(cluster, OPS, "given")["tls.crt"]
    assert ("secrets", OPS, CA_SECRET) not in cluster.objects


def test_a_given_authority_that_cannot_sign_is_said(cluster: FakeCluster, tmp_path: Path) -> None:
    authority = CertificateAuthority(cluster, OPS, tmp_path, "given")
    with pytest.raises(Retryable):
        authority.server_files()
    elliptic = ec.generate_private_key(ec.SECP256R1())
    for key, is_authority, issuer in (
        (rsa.generate_private_key(65537, 2048), True, "ours"),
        (elliptic, False, "ours"),
        (elliptic, True, "a company's root"),
    ):
        put_authority(cluster, key, is_authority, issuer)
        with pytest.raises(Terminal, match="given"):
            authority.server_files()
