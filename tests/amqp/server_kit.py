"""A small server on our engine, for tests of the skin and of the client: addresses are queues in memory."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from enmasse.amqp.connection import Connection
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.handler import Handler
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.message import Message
from enmasse.amqp.performatives import ACCEPTED, Source
from enmasse.amqp.transport import Hub, Server, serve

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def run(loop: str, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test's coroutine on one kind of loop; what a task or callback raised unseen fails it."""
    unseen: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: unseen.append(context))
        runner.run(asyncio.wait_for(main(), 60))
    assert not unseen, unseen


async def until(condition: Callable[[], Any], what: str = "", seconds: float = 20.0) -> None:
    """Wait for a condition, with a deadline."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"waited {seconds} s for {what or condition}"
        await asyncio.sleep(0.005)


class Store(Handler):
    """Queues by address. "missing" is not found, "full" rejects, "silent" never settles; dynamic ones are made up."""

    def __init__(self) -> None:
        self.queues: dict[str, deque[bytes]] = {}
        self.consumers: dict[str, list[Sender]] = {}
        self.outcomes: list[Any] = []
        self.connections: list[Connection] = []
        self.detached: list[tuple[str, str | None, bool]] = []
        self.closed: list[AmqpError | None] = []
        self.links: dict[str, Link] = {}
        self.window = 100

    def make(self, peer: Any, **fields: Any) -> Connection:
        connection = Connection(self, container_id="store", is_client=False, **fields)
        connection.context = peer
        self.connections.append(connection)
        return connection

    def on_attach(self, link: Link) -> None:
        self.links[link.name] = link
        terminus = link.remote_source if link.is_sender else link.remote_target
        if terminus is None or terminus.address == "missing":
            raise AmqpError("amqp:not-found", "no such address")
        if isinstance(link, Receiver):
            link.accept()
            link.credit_window = self.window
            return
        address = f"dynamic-{len(self.queues)}" if terminus.dynamic else terminus.address
        self.queues.setdefault(address, deque())
        self.consumers.setdefault(address, []).append(link)  # type: ignore[arg-type]
        link.accept(source=Source(address=address, dynamic=terminus.dynamic, filter=terminus.filter))

    def on_delivery(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        address = str(link.remote_target.address or Message.decode(payload).to)
        if address == "silent":
            return
        if address == "full":
            from enmasse.amqp.performatives import Error, Rejected
            from enmasse.amqp.types import Symbol

            error = Error(condition=Symbol("amqp:resource-limit-exceeded"), description="full")
            link.session.settle(delivery_id, Rejected(error=error))
            return
        self.queues.setdefault(address, deque()).append(payload)
        if not settled:
            link.session.settle(delivery_id)
        self.dispatch(address)

    def dispatch(self, address: str) -> None:
        queue = self.queues[address]
        for link in self.consumers.get(address, []):
            while queue and link.credit:
                payload = queue.popleft()
                link.send(payload, payload)

    def on_flow(self, link: Sender) -> None:
        self.dispatch(link.source.address)
        super().on_flow(link)

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        self.outcomes += [state] * len(tokens)
        if not settled:
            link.settle(tokens)
        if state is not ACCEPTED:
            self.queues[link.source.address].extendleft(reversed(tokens))
            self.dispatch(link.source.address)

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        self.detached.append((link.name, str(error.condition) if error else None, closed))
        for consumers in self.consumers.values():
            if link in consumers:
                consumers.remove(link)

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        self.closed.append(error)


async def start(store: Store, tls: ssl.SSLContext | None = None, **fields: Any) -> Server:
    return await serve(Hub(), "127.0.0.1", 0, lambda peer: store.make(peer, **fields), ssl=tls)


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        certificate = self._build(self.name, self.key.public_key(), authority=True)
        self.file = folder / "ca.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _build(self, subject: x509.Name, key: Any, authority: bool = False) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self.key, hashes.SHA256())
        )

    def issue(self, name: str) -> tuple[Path, Path]:
        """Certificate and key of one subject."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate, private = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(self._build(subject, key.public_key()).public_bytes(serialization.Encoding.PEM))
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return certificate, private

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
