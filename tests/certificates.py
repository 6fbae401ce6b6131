"""Certificates for tests, as strict as Python 3.13 wants them (RFC 5280: key identifiers, key usage)."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOSTS = ("localhost", "127.0.0.1")


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        certificate = self._build(self.name, self.key.public_key(), authority=True)
        self.file = folder / "ca.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _build(
        self,
        subject: x509.Name,
        key: Any,
        hosts: Sequence[str] = HOSTS,
        *,
        authority: bool = False,
        hours: tuple[float, float] = (-1, 1),
        usage: x509.ObjectIdentifier | None = None,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        names = [
            x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host) for host in hosts
        ]
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + datetime.timedelta(hours=hours[0]))
            .not_valid_after(now + datetime.timedelta(hours=hours[1]))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(issuer, critical=False)
            .add_extension(_usage(signs_certificates=authority), critical=True)
        )
        if usage is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def issue(
        self, name: str, hosts: Sequence[str] = HOSTS, *, names: Sequence[str] | None = None, **more: Any
    ) -> tuple[Path, Path]:
        """Certificate and key of one subject, which may serve as these hosts. `names`: its common names, if they are
        not just `name`. `more`: `hours` of validity from now, extended `usage`."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each) for each in names or (name,)])
        if names == ():
            subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, name)])
        certificate, private = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        made = self._build(subject, key.public_key(), hosts, **more)
        certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        private.touch(mode=0o600)
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return certificate, private

    def issue_folder(
        self, folder: Path, *names: str, hosts: Sequence[str] = HOSTS, ca: Path | None = None, **more: Any
    ) -> Path:
        """Make a folder as Kubernetes mounts a Secret of type kubernetes.io/tls, or replace its files. `names`: common
        names of the subject; `ca`: the file of the authorities in the folder (default: of this one); `more`: as of
        `issue`."""
        folder.mkdir(exist_ok=True)
        made = self.issue(folder.name, hosts, names=names, **more)
        for file, source in zip(("tls.crt", "tls.key", "ca.crt"), (*made, ca or self.file), strict=True):
            new = folder / f".{file}"
            new.write_bytes(source.read_bytes())
            new.replace(folder / file)
        return folder

    def server_context(self, clients: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue("server"))
        if clients:
            context.load_verify_locations(self.file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client_context(self, name: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.file))
        if name is not None:
            context.load_cert_chain(*self.issue(name))
        return context
