"""An authentication service on a loop of its own, and clients of its contract: python-qpid-proton, and our engine for
SCRAM, which Proton has not without Cyrus SASL."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any, Self

import msgspec
from proton import Connection, Event, SSLDomain
from proton.handlers import MessagingHandler
from proton.reactor import Container

from enmasse.aio.transport import Hub
from enmasse.aio.transport import serve as serve_amqp
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.frames import HEADER
from enmasse.amqp.codec.performatives import SaslInit, encode_performative
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.connection import Connection as Engine
from enmasse.amqp.handler import Handler
from enmasse.amqp.sasl.handshake import SASL_HEADER
from enmasse.amqp.sasl.layer import ClientMechanism, SaslClient
from enmasse.identity.processes.credentials import peers_at
from enmasse.model import feeds
from enmasse.model.issuers import Issuer
from enmasse.model.users import User
from enmasse.process.settings import host_port
from services.authserv import app
from services.authserv.app import AuthService, AuthservSettings
from tests.kit.hashes import hashes
from tests.kit.loop_thread import LoopThread
from tests.kit.waiting import DEADLINE


def user(password: str, *, random: bool = True, **more: Any) -> User:
    """Return a user with this password, which is generated, or a chosen one."""
    found = hashes(password, random=random)
    return User(password=found.password, scram=found.scram, **more)


class Running:
    """The service without its process: users are given to it directly."""

    def __init__(self, *, relay_key: str = "", **settings: Any) -> None:
        self._relay_key = relay_key
        self._settings = AuthservSettings(
            name="authserv", health="127.0.0.1:0", listen="127.0.0.1:0", configserv="127.0.0.1:1", **settings
        )
        self.service: AuthService
        self.port = self.logins = 0

    def __enter__(self) -> Self:
        self._loop = LoopThread()
        self._run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._stop())
        self._loop.stop()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._loop.call(work)

    async def _replace(self, body: feeds.Users) -> None:
        self.service.logins.replace(body)

    def users(self, entries: dict[str, User] | None = None, *issuers: Issuer) -> None:
        """Put these entries and issuers in force; None: there is no users.json."""
        self.replace(
            feeds.Users(
                anonymous=entries is None and not issuers,
                users=entries or {},
                issuers={f"issuer-{number}": each for number, each in enumerate(issuers)},
            )
        )

    def replace(self, body: feeds.Users) -> None:
        """Put all of this in force."""
        self._run(self._replace(body))

    async def _start(self) -> None:
        peers = peers_at(self._settings.peers)
        self.service = AuthService(self._settings, asyncio.get_running_loop(), peers, self._relay_key)
        tls = app._tls(self._settings, peers)
        self._listeners = [await serve_amqp(Hub(), "127.0.0.1", 0, self.service.connection, tls)]
        self.port = self._listeners[0].port
        if self._settings.logins is not None:
            _, port = host_port(self._settings.logins)
            self._listeners.append(await serve_amqp(Hub(), "127.0.0.1", port, self.service.gateway))
            self.logins = self._listeners[1].port

    async def _stop(self) -> None:
        for listener in self._listeners:
            listener.close()
        await self.service.logins.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


class Answer(msgspec.Struct):
    """What a client got: an Open, or a reason."""

    opened: bool = False
    properties: dict[Any, Any] = {}
    capabilities: list[str] = []
    container: str | None = None
    mechanism: str | None = None
    outcome: int | None = None
    error: str = ""


class _Client(MessagingHandler):
    def __init__(self, url: str, desired: str | None, **options: Any) -> None:
        super().__init__()
        self._url = url
        self._options = options
        self._desired = desired
        self.answer = Answer()

    def on_start(self, event: Event) -> None:
        container = event.container
        if self._url.startswith("amqps"):
            domain = SSLDomain(SSLDomain.MODE_CLIENT)
            domain.set_peer_authentication(SSLDomain.ANONYMOUS_PEER)
            self._options["ssl_domain"] = domain
        self._connection: Connection = container.connect(
            self._url, reconnect=False, heartbeat=20, desired_capabilities=self._desired, **self._options
        )

    def on_connection_opened(self, event: Event) -> None:
        connection, answer = event.connection, self.answer
        answer.opened = True
        answer.properties = connection.remote_properties
        offered = connection.remote_offered_capabilities
        answer.capabilities = [] if offered is None else [str(each) for each in offered]
        answer.container = connection.remote_container
        self._note(event)

    def on_connection_closed(self, event: Event) -> None:
        event.connection.close()

    def on_transport_error(self, event: Event) -> None:
        self.answer.error = str(event.transport.condition)
        self._note(event)
        if event.connection is not None:
            event.connection.close()

    def _note(self, event: Event) -> None:
        sasl = event.transport.sasl()
        self.answer.mechanism, self.answer.outcome = sasl.mech, sasl.outcome


def ask(
    port: int, name: str | None = None, password: str | None = None, mechanism: str = "PLAIN", *,
    authz: bool = False, scheme: str = "amqp",
) -> Answer:  # fmt: skip
    """Log in as a router does for its client, and return what the service states."""
    client = _Client(
        f"{scheme}://127.0.0.1:{port}",
        "ADDRESS-AUTHZ" if authz else None,
        user=name,
        password=password,
        allowed_mechs=mechanism,
        allow_insecure_mechs=True,
        sasl_enabled=True,
    )
    Container(client).run()
    return client.answer


class _Opened(Handler):
    def __init__(self) -> None:
        self.answer = Answer()

    def on_open(self, c: Engine) -> None:
        assert c.remote_open is not None
        self.answer.opened = True
        self.answer.properties = dict(c.remote_open.properties or {})

    def on_close(self, c: Engine, error: AmqpError | None) -> None:
        self.answer.error = str(error)


def ask_engine(
    port: int, mechanism: ClientMechanism, hostname: str | None = None, desired: tuple[str, ...] = ()
) -> Answer:
    """Log in with our engine. `hostname`: of sasl-init; `desired`: capabilities."""
    handler = _Opened()
    sasl = SaslClient([mechanism], hostname)
    client = Engine(handler, container_id="test", is_client=True, sasl=sasl, desired_capabilities=desired)
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as connection:
        client.open()
        while not client.finished:
            connection.sendall(client.take_output())
            data = connection.recv(65536)
            if not data:
                client.transport_closed()
                break
            client.receive(data)
    return handler.answer


def begun_scram(port: int) -> socket.socket:
    """Return a connection that has been asked for its proof as alice, and does not give it."""
    body = encode_performative(SaslInit(mechanism=Symbol("SCRAM-SHA-256"), initial_response=b"n,,n=alice,r=abc"))
    connection = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)
    connection.sendall(SASL_HEADER + HEADER(len(body) + 8, 2, 1, 0) + body)
    seen = b""
    while b"r=abc" not in seen:
        seen += connection.recv(4096)
    return connection
