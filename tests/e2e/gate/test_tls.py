"""Mutual TLS between gate, xDS server and recorder: a gate without a certificate hears nothing."""

import dataclasses
import datetime as dt
import ipaddress
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shadow.envoy.bootstrap import TlsFiles, make_secrets
from shadow.envoy.xds import XdsServer
from shadow.plan import Stage
from shadow.recorder.serve import Options, RecorderServer
from tests.e2e.gate.engine import FakeEngine
from tests.e2e.gate.harness import ROLLOUT, Gate, chat, make_plan, until

pytestmark = pytest.mark.e2e
SERVER = "weighlock-xds"


class Authority:
    """A throw-away authority that writes pairs of files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"authority {folder.name}")])
        self.ca = folder / "ca.crt"
        ca = self._builder(self.name, self.key.public_key()).add_extension(x509.BasicConstraints(True, None), True)
        self.ca.write_bytes(ca.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateBuilder(self.name, subject, key, x509.random_serial_number())
        return builder.not_valid_before(now - dt.timedelta(hours=1)).not_valid_after(now + dt.timedelta(hours=1))

    def pair(self, name: str) -> TlsFiles:
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            self._builder(subject, key.public_key()).add_extension(names, False).sign(self.key, hashes.SHA256())
        )
        files = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        plain = serialization.NoEncryption()
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        files[1].write_bytes(pem)
        return TlsFiles(str(files[0]), str(files[1]), str(self.ca), SERVER)


async def test_gate_with_a_certificate_is_served_and_one_without_is_not(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    server = ours.pair(SERVER)
    xds = XdsServer("127.0.0.1:0", server)
    await xds.start()
    recorder = RecorderServer(Options("127.0.0.1:0", "127.0.0.1:0", tmp_path / "recorder", server))
    await recorder.start()
    engine = await FakeEngine("stable").start()
    good, plain, foreign = (Gate(xds, recorder.als_port) for _ in range(3))
    good.tls = ours.pair("gate-good")
    stranger = theirs.pair("gate-foreign")
    foreign.tls = TlsFiles(stranger.certificate, stranger.key, str(ours.ca), SERVER)
    try:
        for gate in (plain, foreign, good):
            gate.start()
        await good.publish(make_plan(0, [engine], stage=Stage.IDLE))
        async with httpx.AsyncClient(base_url=good.url, timeout=10) as client:
            answer = await client.post("/v1/chat/completions", json=chat(), headers={"x-tenant": "acme"})
        assert answer.status_code == 200
        await until(lambda: recorder.logs.entries == 1, "the access log came over TLS")
        assert xds.connected(ROLLOUT) == (good.node,)
    finally:
        for gate in (good, plain, foreign):
            gate.kill()
        await engine.stop()
        await recorder.stop()
        await xds.stop()


async def test_renewed_certificates_are_taken_without_a_restart_of_the_gate(tmp_path: Path) -> None:
    for name in ("old", "new", "gate", "server"):
        (tmp_path / name).mkdir()
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    gate_files, server_files = (renewable(tmp_path / name) for name in ("gate", "server"))
    for name, text in make_secrets(gate_files).items():
        (tmp_path / "gate" / name).write_text(text)
    put(old.pair("gate"), gate_files)
    put(old.pair(SERVER), server_files)
    xds = XdsServer("127.0.0.1:0", server_files)
    await xds.start()
    gate, late = Gate(xds, 1), Gate(xds, 1)
    gate.tls, late.tls = dataclasses.replace(gate_files, secrets=str(tmp_path / "gate")), old.pair("late")
    try:
        gate.start()
        await until(lambda: xds.connected(ROLLOUT) == (gate.node,), "the old authority's gate is served")
        put(new.pair(SERVER), server_files)
        put(new.pair("gate"), gate_files)
        await xds.stop()
        xds = gate.xds = XdsServer(f"127.0.0.1:{xds.port}", server_files)
        await xds.start()
        late.start()
        await until(lambda: xds.connected(ROLLOUT) == (gate.node,), "the gate shows the new certificate")
        assert gate.process is not None and gate.process.poll() is None
        put(old.pair(SERVER), server_files)
        await until(lambda: late.node in xds.connected(ROLLOUT), "a running server reads its files again")
    finally:
        gate.kill()
        late.kill()
        await xds.stop()


def renewable(folder: Path) -> TlsFiles:
    return TlsFiles(*(str(folder / name) for name in ("tls.crt", "tls.key", "ca.crt")), SERVER)


def put(pair: TlsFiles, files: TlsFiles) -> None:
    """Replace files in one step each, as a volume does."""
    given = (pair.certificate, pair.key, pair.authority)
    for source, target in zip(given, (files.certificate, files.key, files.authority), strict=True):
        fresh = Path(f"{target}.new")
        fresh.write_bytes(Path(source).read_bytes())
        fresh.rename(target)
