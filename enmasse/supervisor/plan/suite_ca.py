"""Certificates of `--tls auto`: the CA of this suite, and the server certificate that it signs.

Clients trust the CA's certificate, so its key and name stay. A certificate that expires soon is replaced by one with
the same key: that is one file, so those who read it never see a pair that does not fit.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from enmasse.logs import log
from enmasse.storage.files import read_file, write_text
from enmasse.supervisor.errors import StartError
from enmasse.supervisor.plan.services import CA_CERT, CA_KEY, SERVER_CERT, SERVER_KEY

CA_VALID, CA_LEFT = timedelta(days=3650), timedelta(days=365)
"""Validity of the CA's certificate, and its remaining time when it is renewed."""
SERVER_VALID, SERVER_LEFT = timedelta(days=90), timedelta(days=30)
BACKDATED = timedelta(hours=1)
"""By which certificates are valid before they are made: clocks of clients differ."""
PERIOD = 600.0
"""Seconds between two looks at validity and names."""


def names(hosts: Iterable[str] = (), space_domain: str = "") -> list[str]:
    """Return the names and addresses of the server certificate: those of loopback, this machine's name, `hosts`, and
    the hosts of address spaces below a domain."""
    below = [f"*.{space_domain}"] if space_domain else []
    found = dict.fromkeys(("localhost", "127.0.0.1", "::1", socket.gethostname(), *hosts, *below))
    return [name for name in found if _general_name(name) is not None]


def ensure(folder: Path, wanted: Iterable[str], now: datetime | None = None) -> list[str]:
    """Make what is missing in `folder`, and renew what expires soon or lacks a name of `wanted`. Return the names of
    certificates that were written. Raises StartError for files that cannot be used, OSError."""
    now = now or datetime.now(UTC)
    folder.mkdir(mode=0o700, exist_ok=True)
    ca_cert = _certificate(folder / CA_CERT)
    ca_key = _key(folder / CA_KEY, make=ca_cert is None)
    made = []
    if ca_cert is not None and ca_cert.public_key() != ca_key.public_key():
        raise _damaged(folder / CA_KEY, f"is not the key of {CA_CERT}")
    if ca_cert is None or ca_cert.not_valid_after_utc - CA_LEFT < now:
        ca_cert = _authority(ca_key, now)
        _write(folder / CA_CERT, ca_cert)
        made.append(CA_CERT)
    key = _key(folder / SERVER_KEY, make=True)
    if not _serves(_server_certificate(folder), key, ca_cert, wanted, now):
        _write(folder / SERVER_CERT, _server(key, ca_key, ca_cert, wanted, now))
        made.append(SERVER_CERT)
    for name in made:
        log.get().info("suite.certificate.issued", file=str(folder / name))
    return made


async def keep(
    folder: Path, wanted: Callable[[], list[str]], say: Callable[[str], None], period: float = PERIOD
) -> None:
    """Renew the certificates whenever that is due, until cancelled. `say` gets the reason if that fails."""
    while True:
        await asyncio.sleep(period)
        try:
            await asyncio.to_thread(lambda: ensure(folder, wanted()))
        except StartError as error:
            say(str(error))
        except OSError as error:
            say(f"the certificates cannot be renewed: {error.filename or folder}: {error.strerror or error}")


def _serves(
    found: x509.Certificate | None,
    key: ec.EllipticCurvePrivateKey,
    ca: x509.Certificate,
    wanted: Iterable[str],
    now: datetime,
) -> bool:
    """Return True if a server certificate is of this key and CA, has these names, and does not expire soon."""
    if found is None or found.public_key() != key.public_key() or found.not_valid_after_utc - SERVER_LEFT < now:
        return False
    try:
        found.verify_directly_issued_by(ca)
        present = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # of another CA, or not one of ours: the reason does not matter
        return False
    return {_general_name(name) for name in wanted} <= set(present)


def _authority(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    """Return a certificate of the CA, named after its key: clients that trust an earlier one trust this one too."""
    digest = x509.SubjectKeyIdentifier.from_public_key(key.public_key()).digest.hex()[:16]
    name = _name(f"EnMasse {digest}")
    builder = _builder(name, name, key, key, now, now + CA_VALID, authority=True)
    return builder.sign(key, hashes.SHA256())


def _server(
    key: ec.EllipticCurvePrivateKey,
    ca_key: ec.EllipticCurvePrivateKey,
    ca: x509.Certificate,
    wanted: Iterable[str],
    now: datetime,
) -> x509.Certificate:
    builder = _builder(_name("EnMasse server"), ca.subject, key, ca_key, now, now + SERVER_VALID, authority=False)
    found = [name for name in map(_general_name, wanted) if name is not None]
    return (
        builder.add_extension(x509.SubjectAlternativeName(found), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    ca_key: ec.EllipticCurvePrivateKey,
    now: datetime,
    end: datetime,
    *,
    authority: bool,
) -> x509.CertificateBuilder:
    usage = x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .add_extension(usage, critical=True)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general_name(name: str) -> x509.GeneralName | None:
    """Return a name of a certificate; None if it cannot have this one."""
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ip_address(name))
    if not name or not name.isascii() or not all(c.isalnum() or c in "-._" for c in name.removeprefix("*.")):
        return None
    return x509.DNSName(name)


def _certificate(path: Path) -> x509.Certificate | None:
    """Return the certificate in a file; None if there is no file. Raises StartError."""
    try:
        return x509.load_pem_x509_certificate(read_file(path))
    except FileNotFoundError:
        return None
    except (ValueError, UnsupportedAlgorithm):
        raise _damaged(path, "is not a certificate in PEM") from None


def _server_certificate(folder: Path) -> x509.Certificate | None:
    with contextlib.suppress(StartError):  # the CA can sign another one
        return _certificate(folder / SERVER_CERT)
    return None


def _key(path: Path, *, make: bool) -> ec.EllipticCurvePrivateKey:
    """Return the key in a file. `make`: a missing one is made. Raises StartError."""
    try:
        found = serialization.load_pem_private_key(read_file(path), None)
    except FileNotFoundError:
        if not make:
            raise _damaged(path, "is missing") from None
        key = ec.generate_private_key(ec.SECP256R1())
        form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        pem = key.private_bytes(serialization.Encoding.PEM, *form)
        write_text(path, pem.decode(), durable=True)
        return key
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it has a password
        raise _damaged(path, "is not a private key in PEM without a password") from None
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise _damaged(path, "is not a key on an elliptic curve")
    return found


def _write(path: Path, certificate: x509.Certificate) -> None:
    write_text(path, certificate.public_bytes(serialization.Encoding.PEM).decode(), durable=True)


def _damaged(path: Path, what: str) -> StartError:
    remedy = (
        "Delete it: a new one is made"
        if path.name == SERVER_KEY
        else f"Put it back from a backup, or delete {path.parent}: a new CA is made, whose {CA_CERT} clients must trust"
    )
    return StartError("start.tls.damaged", f"{path} {what}. {remedy}.")
