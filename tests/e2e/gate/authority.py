"""A throw-away authority for tests of mutual TLS, and files that change as a volume's do."""

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shadow.envoy.bootstrap import TlsFiles
from shadow.identity import gate_identity
from tests.e2e.gate.harness import ROLLOUT

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

    def pair(self, name: str, rollout: str = ROLLOUT) -> TlsFiles:
        key = ec.generate_private_key(ec.SECP256R1())
        loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        identity = x509.UniformResourceIdentifier(gate_identity(rollout))
        names = x509.SubjectAlternativeName([x509.DNSName(name), loopback, identity])
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


def renewable(folder: Path) -> TlsFiles:
    return TlsFiles(*(str(folder / name) for name in ("tls.crt", "tls.key", "ca.crt")), SERVER)


def put(pair: TlsFiles, files: TlsFiles) -> None:
    """Replace files in one step each, as a volume does."""
    given = (pair.certificate, pair.key, pair.authority)
    for source, target in zip(given, (files.certificate, files.key, files.authority), strict=True):
        fresh = Path(f"{target}.new")
        fresh.write_bytes(Path(source).read_bytes())
        fresh.rename(target)
