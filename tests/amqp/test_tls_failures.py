"""Why a TLS handshake failed, as the listener sees it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from enmasse.network import tls, tls_handshake
from enmasse.network.tls_failures import TlsFailure, failure
from tests.amqp.server_kit import BOTH, run
from tests.amqp.test_turns import client_hello
from tests.certificates import Authority
from tests.kit.waiting import DEADLINE

Client = Callable[[socket.socket, Authority], object]


def with_tls(change: Callable[[ssl.SSLContext, Authority], object]) -> Client:
    def talk(sock: socket.socket, authority: Authority) -> None:
        context = authority.client_context()
        change(context, authority)
        with context.wrap_socket(sock, server_hostname="localhost") as client:
            client.recv(1)

    return talk


def of_another(authority: Authority) -> Authority:
    return Authority(authority.folder / "other")


def without_its_authority(sock: socket.socket, authority: Authority) -> None:
    with of_another(authority).client_context().wrap_socket(sock, server_hostname="localhost"):
        pass


def old(context: ssl.SSLContext, _: Authority) -> None:
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = ssl.TLSVersion.TLSv1_1


def leaves(sock: socket.socket, _: Authority) -> None:
    sock.sendall(client_hello())
    sock.recv(1)


def refuses_the_name(sock: socket.socket, _: Authority) -> None:
    """End the handshake with the alert that a program causes by its own check of the certificate, as Proton has."""
    sock.sendall(client_hello())
    sock.recv(1)
    sock.sendall(b"\x15\x03\x03\0\2\2\x28")


CASES: dict[str, tuple[Client, str, str]] = {
    "wrong authority": (without_its_authority, "tls: tlsv1 alert unknown ca", "does not have its CA"),
    "no certificate": (
        with_tls(lambda *_: None), "tls: peer did not return a certificate", "has sent no certificate"
    ),
    "foreign certificate": (
        with_tls(lambda context, authority: context.load_cert_chain(*of_another(authority).issue("alice"))),
        "tls: certificate refused",
        "unable to get local issuer certificate",
    ),
    "plain text": (
        lambda sock, _: sock.sendall(b"\x10\x10\0\4MQTT\4\2\0\x3c\0\4test"),
        "tls: no client hello",
        "something else than TLS, such as plain text",
    ),
    "old version": (with_tls(old), "tls: unsupported protocol", "1.2 and 1.3 are spoken here"),
    "wrong name": (refuses_the_name, "tls: sslv3 alert handshake failure", "the name it connects to"),
    "leaves": (leaves, "tls: not agreed", "left while TLS was being agreed"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@BOTH
@pytest.mark.parametrize("case", CASES)
def test_a_failed_handshake_has_a_condition_and_a_sentence(case: str, loop: str, tmp_path: Path) -> None:
    client, condition, sentence = CASES[case]
    found = handshake(loop, client, Authority(tmp_path))
    assert found is not None
    assert found.condition == condition and sentence in found.reason


def resets(sock: socket.socket, _: Authority) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("client", [lambda *_: None, resets])
def test_a_probe_that_only_connects_is_no_failure(client: Client, tmp_path: Path) -> None:
    assert handshake("asyncio", client, Authority(tmp_path)) is None


def handshake(loop: str, client: Client, authority: Authority) -> TlsFailure | None:
    cert, key = map(str, authority.issue("server"))
    context = tls.server(cert, key, ca=str(authority.file)).listening()

    def talk(address: tuple[str, int]) -> None:
        with socket.create_connection(address) as sock, contextlib.suppress(OSError):
            client(sock, authority)

    found: list[TlsFailure | None] = []

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            talking = asyncio.create_task(asyncio.to_thread(talk, listening.getsockname()))
            ours, _ = await asyncio.to_thread(listening.accept)
        ours.setblocking(False)
        with pytest.raises(OSError) as raised:
            await tls_handshake.connect(asyncio.Protocol, ours, context, patience=DEADLINE)
        await talking
        found.append(failure(raised.value))

    run(loop, main)
    return found[0]
