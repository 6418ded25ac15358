"""A certificate authority of the tests' own."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Certificate:
    """Files in PEM."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates for the loopback interface; `file` is its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name, self._key = folder, _named(name), ec.generate_private_key(ec.SECP256R1())
        self.file = folder / f"{name}-ca.pem"
        ca = x509.BasicConstraints(ca=True, path_length=0)
        self._write(self.file, self._sign(self._name, self._key, ca))

    def certified(self, name: str) -> Certificate:
        """A certificate, good for a server and a client, and its key, which its owner alone reads."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = Certificate(self._folder / f"{name}.pem", self._folder / f"{name}-key.pem")
        addresses = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        self._write(made.certificate, self._sign(_named(name), key, x509.SubjectAlternativeName(addresses)))
        form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        made.key.touch(mode=0o600)
        made.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
        return made

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        of_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        of_issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        draft = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key.public_key())
        draft = draft.serial_number(x509.random_serial_number()).not_valid_before(now - DAY).not_valid_after(now + DAY)
        for one in (extension, of_key, of_issuer):
            draft = draft.add_extension(one, critical=isinstance(one, x509.BasicConstraints))
        return draft.sign(self._key, hashes.SHA256())

    def _write(self, file: Path, certificate: x509.Certificate) -> None:
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
