"""A private certificate authority for the tests."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tailrace.wire.tls import TLS

_DAY = datetime.timedelta(days=1)


class Authority:
    """Signs certificates into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"authority {folder.name}")
        builder = _builder(self._name, self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.ca_file = folder / "ca.pem"
        self.ca_file.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        *,
        addresses: tuple[str, ...] = ("127.0.0.1", "::1"),
        names: tuple[str, ...] = ("localhost",),
        mutual: bool = False,
    ) -> TLS:
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        certificate = (
            _builder(_name(name), self._name, key)
            .add_extension(x509.SubjectAlternativeName([*alternatives, *map(x509.DNSName, names)]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        cert_file, key_file = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return TLS(cert_file, key_file, self.ca_file, mutual=mutual)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
    )
