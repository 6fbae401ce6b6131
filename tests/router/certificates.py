"""A certificate authority for tests, and what it signs."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Signed(NamedTuple):
    """Files of a certificate and its key."""

    certificate: str
    key: str


class Authority:
    """Signs certificates into files of `folder`; `certificate` is the file to trust it by."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = str(folder / f"{name}.pem")
        signed = self._builder(self._name, self._key, authority=True).sign(self._key, hashes.SHA256())
        Path(self.certificate).write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, authority: bool
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )

    def sign(self, file: str, *subject: tuple[x509.ObjectIdentifier, str]) -> Signed:
        """A certificate for `subject`, least specific part first, good for localhost too."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(kind, value) for kind, value in subject])
        names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
        signed = self._builder(name, key, authority=False).add_extension(names, critical=False)
        files = Signed(str(self._folder / f"{file}.pem"), str(self._folder / f"{file}.key"))
        Path(files.certificate).write_bytes(
            signed.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )
        Path(files.key).write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return files
