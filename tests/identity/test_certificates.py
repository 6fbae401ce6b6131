"""Certificates of clients: which ones a listener accepts, and which user each names. Each passes a real handshake."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from enmasse.aio.transport import Hub, serve
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.identity.login import Certified
from enmasse.identity.proofs.certificates import certified, read
from enmasse.network import tls
from tests.certificates import Authority

HEADER = b"AMQP\x00\x01\x00\x00"
Files = tuple[Path, Path]
REFUSED = "refused"
"""The handshake fails."""
LOOPS = pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])


def self_signed(authority: Authority) -> Files:
    other = Authority(_folder(authority, "self"))
    key = other.folder / "own.key"
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key.write_bytes(other.key.private_bytes(serialization.Encoding.PEM, *form))
    return other.file, key


def of_other_authority(authority: Authority) -> Files:
    return Authority(_folder(authority, "other")).issue("alice")


def with_same_name(authority: Authority) -> Files:
    """Of an authority whose name is that of the trusted one, with another key."""
    other = Authority(_folder(authority, "twin"))
    assert other.name == authority.name
    return other.issue("alice")


def of_a_leaf(authority: Authority) -> Files:
    """Signed by the key of a certificate that is no authority."""
    certificate, key = authority.issue("leaf")
    leaf = Authority(_folder(authority, "leaf"))
    found = serialization.load_pem_private_key(key.read_bytes(), None)
    assert isinstance(found, ec.EllipticCurvePrivateKey)
    leaf.key = found
    leaf.name = x509.load_pem_x509_certificate(certificate.read_bytes()).subject
    made, private = leaf.issue("alice")
    made.write_bytes(made.read_bytes() + certificate.read_bytes())
    return made, private


def _folder(authority: Authority, name: str) -> Path:
    made = authority.folder / f"of-{name}"
    made.mkdir()
    return made


def named(*names: str, **more: Any) -> Callable[[Authority], Files]:
    return lambda authority: authority.issue("client", names=names, **more)


CASES: dict[str, tuple[Callable[[Authority], Files], Certified | str]] = {
    "a user": (named("alice"), Certified("alice")),
    "for clients": (named("alice", usage=ExtendedKeyUsageOID.CLIENT_AUTH), Certified("alice")),
    "with a space inside": (named("Alice Smith"), Certified("Alice Smith")),
    "not ASCII": (named("käthe"), Certified("käthe")),
    "another case": (named("ALICE"), Certified("ALICE")),
    "two common names": (
        named("alice", "bob"),
        Certified("", "has 2 common names, not one; its subject: commonName=alice, commonName=bob"),
    ),
    "the same name twice": (named("alice", "alice"), Certified("", "has 2 common names")),
    "no common name": (named(), Certified("", "has no common names, not one; its subject: organizationName=client")),
    "NUL": (named("alice\0.example.org"), Certified("", "control characters")),
    "line break": (named("alice\nbob"), Certified("", "its subject: commonName=alice\\nbob")),
    "white space at the end": (named("alice "), Certified("", "white space at its ends")),
    "right to left": (named("alice\u202egnp"), Certified("", "control characters")),
    "a group": (named("@operators"), Certified("", "must not begin with '@'")),
    "anonymous": (named("anonymous"), Certified("", "not the name of a user")),
    "another form": (named("\uff41lice"), Certified("", "SASLprep")),
    "expired": (named("alice", hours=(-2, -1)), REFUSED),
    "not valid yet": (named("alice", hours=(1, 2)), REFUSED),
    "for servers": (named("alice", usage=ExtendedKeyUsageOID.SERVER_AUTH), REFUSED),
    "self-signed": (self_signed, REFUSED),
    "of another authority": (of_other_authority, REFUSED),
    "of an authority with the same name": (with_same_name, REFUSED),
    "of a certificate that is no authority": (of_a_leaf, REFUSED),
}


@LOOPS
@pytest.mark.parametrize("case", CASES)
def test_a_certificate_names_its_user_or_is_refused(
    case: str, factory: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    make, expected = CASES[case]
    authority = Authority(tmp_path)
    found = connect(factory, authority, make(authority))
    if isinstance(expected, str):
        assert found == expected
    else:
        assert isinstance(found, Certified)
        assert found.user == expected.user
        assert expected.problem in found.problem
        assert bool(found.user) != bool(found.problem)


@LOOPS
def test_a_client_needs_no_certificate(factory: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path) -> None:
    assert connect(factory, Authority(tmp_path), None) is None


def connect(
    factory: Callable[[], asyncio.AbstractEventLoop], authority: Authority, files: Files | None
) -> Certified | str | None:
    """What a listener knows of a client that presents this certificate; REFUSED if it gets no answer."""
    seen: list[Certified | None] = []
    unexpected: list[dict[str, Any]] = []

    def accept(peer: Any) -> Connection:
        seen.append(certified(peer.ssl))
        return Connection(Handler(), container_id="s", is_client=False)

    async def run() -> bool:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unexpected.append(context))
        cert, key = map(str, authority.issue("server"))
        context = tls.server(cert, key, ca=str(authority.file), required=False).listening()
        server = await serve(Hub(loop), "127.0.0.1", 0, accept, ssl=context)
        own = authority.client_context()
        if files is not None:
            own.load_cert_chain(*files)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=own)
            writer.write(HEADER)
            answer = await reader.read(8)
            writer.close()
        except OSError:
            answer = b""
        server.close()
        await server.wait_closed()
        return answer == HEADER

    with asyncio.Runner(loop_factory=factory) as runner:
        answered = runner.run(run())
    assert not unexpected
    assert answered == bool(seen)
    return seen[0] if seen else REFUSED


def test_a_certificate_of_a_resumed_session_expires() -> None:
    """A client that resumes a session presents no certificate: the one of the session is looked at again."""
    certificate = {"subject": ((("commonName", "alice"),),), "notAfter": "Nov 24 10:00:00 2026 GMT"}
    then = datetime.datetime(2026, 11, 24, 10, tzinfo=datetime.UTC).timestamp()
    assert read(certificate, then - 1) == Certified("alice")
    assert read(certificate, then + 1) == Certified("", "the certificate has expired; its subject: commonName=alice")
    certificate["subject"] = ((("commonName", "x" * 5000),),)
    assert len(read(certificate, then + 1).problem) < 200
    assert certified(None, time.time()) is None
