"""Listeners: ports for AMQP, or for HTTP with /healthz and /metrics."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from enmasse.aio.transport import Peer, Server, serve
from enmasse.amqp.codec.errors import NOT_FOUND, UNAUTHORIZED_ACCESS, AmqpError
from enmasse.amqp.connection import Connection
from enmasse.amqp.sasl.layer import EXTERNAL, SaslServer, anonymous, external
from enmasse.http.webserver import Bounds, LoopBlocked, Request, Response, WebServer, in_loop, plain
from enmasse.identity.login import Login
from enmasse.identity.principal import ANONYMOUS as NOBODY
from enmasse.identity.principal import Principal
from enmasse.identity.processes.peer_check import PeerCheck
from enmasse.identity.processes.refusals import log_handshake, note_handshake
from enmasse.identity.processes.relayed_client import RELAY, ConnectedClient, relayed
from enmasse.identity.processes.roles import Listener as PeersListener
from enmasse.identity.processes.roles import Role
from enmasse.identity.proofs.certificates import certified
from enmasse.logs import log
from enmasse.metrics import CONTENT_TYPE, text
from enmasse.model.loopback import is_loopback
from enmasse.model.names import DEFAULT_SPACE
from enmasse.model.tenants.spaces import meant_host
from enmasse.network.tls import protection, server_name
from enmasse.process import runner
from services.router import metrics
from services.router.network import hosts, tls
from services.router.network.delegation import Client, RelayedLogin
from services.router.network.maker import ConnectionMaker
from services.router.network.port_settings import ANONYMOUS, PLAIN, ListenerConfig, SslProfile
from services.router.routing.connection import NORMAL, RouterConnection
from services.router.routing.peers import PeerRights
from services.router.routing.router import Router
from services.router.routing.users import NO_CREDENTIALS, UserRights, Users

if TYPE_CHECKING:
    from prometheus_client.core import Metric

METRICS_SECONDS = 5.0
"""Seconds for the event loop to collect the metrics."""


class ListenError(Exception):
    """Raised if a port cannot be opened; names the listener and the reason."""


def offered_mechanisms(config: ListenerConfig, *, certificates: bool) -> list[str]:
    """Return the SASL mechanisms that a listener offers; `certificates`: clients can present a trusted certificate."""
    return [
        name
        for name in config.sasl_mechanisms or (EXTERNAL, ANONYMOUS)
        if (name == ANONYMOUS and not config.authenticate_peer) or (name == EXTERNAL and certificates)
    ]


class Listener:
    """A port for AMQP or HTTP. `port`: its number once it is open; `deleted`: it must no longer be opened."""

    def __init__(self, maker: ConnectionMaker, config: ListenerConfig) -> None:
        self.config = config
        self.port: int | None = None
        self.deleted = False
        self._maker = maker
        self._server: Server | None = None
        self._http: WebServer | None = None
        self._profile: SslProfile | None = None

    async def open(self) -> None:
        """Open the port. Raises ListenError if that fails."""
        config = self.config
        try:
            host = await hosts.address(config.host, config.family)
            port = hosts.port_number(config.port)
            context = None
            if config.ssl_profile:
                self._profile = self._maker.profile(config.ssl_profile)
                context = tls.server_context(self._profile, authenticate=config.authenticate_peer)
            if config.http:
                self._http = _http_server(self._maker.router, config, host, port)
                self.port = self._http.port
            else:
                refused: Callable[[str, OSError], None] = log_handshake
                if config.access is None:
                    refused = partial(note_handshake, self._maker.router.refusals, config.space)
                self._server = await serve(
                    self._maker.hub, host, port, self._accept, context, refused=refused, shared=config.shared
                )
                self.port = self._server.port
        except (OSError, ValueError, runner.Fatal) as error:
            self._http = None
            where = f"listener '{config.name}' on {config.host or '*'}:{config.port}"
            raise ListenError(f"{where}: {getattr(error, 'strerror', None) or error}") from None

    @property
    def is_for_clients(self) -> bool:
        """Return True if AMQP clients of any address space connect here."""
        return self.is_for_client_programs and self.config.space is None

    @property
    def is_for_client_programs(self) -> bool:
        """Return True if AMQP clients connect here, of any address space or of one."""
        config = self.config
        return config.access is None and not config.http and config.role == NORMAL

    async def close(self) -> None:
        """Stop accepting; open connections stay."""
        if self._server is not None:
            self._server.close(connections=False)
            self._server = None
        if self._http is not None:
            self._http.close()
            self._http = None

    def _accept(self, peer: Peer) -> Connection:
        tls_facts = protection(peer.ssl)
        if self.config.access is not None:
            record = self._record(peer.address, tls_facts)
            return self._maker.accepted(record, self.config, self._admission(record, self.config.access, peer))
        client = ConnectedClient(
            peer.address, tls_facts, server_name(peer.ssl), certified(peer.ssl), space=self.config.space
        )
        return self.accept_client(
            client, tls.user_of(peer.ssl, None if self._profile is None else self._profile.uid_format)
        )

    def accept_client(self, client: ConnectedClient, user: str | None = None) -> Connection:
        """Return the connection of a client of this listener. `user`: named by its certificate, where there are no
        users."""
        record = self._record(client.address, client.tls)
        if self.config.sasl_plugin is not None:
            sasl = self._of_user(record, client, user, self.config.sasl_plugin)
        else:
            sasl = self._sasl(user)
            if client.any_site:
                record.admit = _refuse_any_site
        return self._maker.accepted(record, self.config, sasl)

    def _record(self, address: str, facts: tuple[str, str, int] | None) -> RouterConnection:
        record = self._maker.record(self.config, address)
        record.denied = not self._maker.router.policy.socket_accepted()
        record.tls = tls.protection(facts)
        return record

    def _admission(self, record: RouterConnection, access: PeersListener, peer: Peer) -> SaslServer:
        """Return the SASL layer of a process of the suite, which gets the rights of its role."""
        router = self._maker.router
        peers = None if EXTERNAL in self.config.sasl_mechanisms else self._maker.peers
        admission = PeerCheck(access, peers, record.host, peer.certificate)

        def admit(user: str) -> PeerRights:
            role = admission.opened(user).role
            if role is Role.OPERATOR:
                self._enter_space(record)
            elif role is Role.GATEWAY:
                record.relay = lambda: self._relay(record.amqp, peer)
            return PeerRights(admission, router.id, router.policy.config.max_message_size)

        record.admit = admit

        def closed() -> None:
            record.on_closed = record.relay = None  # they refer to the record
            admission.ended(record.amqp.transport_error)

        def close(error: AmqpError) -> None:
            record.amqp.close(error)
            record.amqp.wake()

        record.on_closed, admission.close = closed, close
        return admission.sasl(plain=PLAIN in self.config.sasl_mechanisms)

    def _relay(self, connection: Connection, peer: Peer) -> None:
        """Take the client that a gateway passes on, once our Open is sent. Raises AmqpError if that cannot be."""
        opened = connection.remote_open
        assert opened is not None
        client = relayed(opened)
        entry = self._maker.entry(tls=client.tls is not None)
        if entry is None:
            raise AmqpError(NOT_FOUND, "no listener for clients is open yet")
        ours = connection.open_fields
        ours.offered_capabilities = (*(ours.offered_capabilities or ()), RELAY)

        def passed_on() -> Connection:
            connection = entry(client)
            connection.context.by_gateway = True
            return connection

        self._maker.hub.loop.call_soon(peer.hand_over, passed_on)

    def _enter_space(self, record: RouterConnection) -> None:
        """Put the connection of an operator into the address space whose host its open names: then it has the names of
        the space, as a client without a user there."""
        users, opened = self._maker.users, record.amqp.remote_open
        host = meant_host(opened.hostname or "") if opened is not None else ""
        if users is not None and (space := users.directory.hosts.get(host)) is not None:
            record.enter(NO_CREDENTIALS._replace(space=space))

    def _of_user(self, record: RouterConnection, peer: ConnectedClient, user: str | None, plugin: str) -> SaslServer:
        """Return the SASL layer of a client. While there are no users it needs no credentials; while it is not known
        whether there are any, it is refused for now. Its address space is that of the listener, or of the host that it
        names by TLS, or by SASL."""
        users = self._maker.users
        assert users is not None  # or the listener would have been refused
        login: RelayedLogin | None = None
        directory = users.directory
        chosen = peer.space or directory.hosts.get(peer.server_name)
        open_to_all = directory.known and directory.anonymous and chosen in (None, DEFAULT_SPACE)
        if open_to_all and not directory.hosts:
            sasl = self._sasl(user)
        else:
            client = Client(peer.host, peer.tls is not None or is_loopback(peer.host), self.config.sasl_mechanisms)
            service = self._maker.auth_services.get(plugin) if directory.known else None

            def meant(hostname: str | None, stated: str) -> str | None:
                record.stated = stated
                space = chosen or directory.hosts.get(meant_host(hostname or ""))
                if space is not None:  # also of a login that is refused
                    record.principal = Principal(NOBODY, space=space)
                return space

            def go_on() -> None:
                if record.amqp.unprocessed:
                    record.amqp.receive(b"")

            by_certificate = _by_certificate(users, peer, record)
            sasl = login = RelayedLogin(
                self._maker.logins,
                service,
                client,
                go_on,
                by_certificate,
                meant,
                required=not open_to_all,
                allowances=users.enforcer.allowances,
            )

        def let_in() -> None:
            if login is not None and login.reservation is not None:
                login.reservation.release()

        def admit(user: str) -> UserRights | None:
            record.admit = None  # it refers to the record
            let_in()
            identity = None if login is None else login.identity
            if identity is None:
                assert open_to_all  # else SASL was required
                identity = Login(NO_CREDENTIALS)
            if peer.any_site and identity.principal.name == NOBODY:
                _refuse_any_site(user)
            return users.admit(record, identity)

        def closed() -> None:
            record.on_closed = record.admit = None
            let_in()
            users.left(record)

        record.admit, record.on_closed = admit, closed
        return sasl

    def _sasl(self, user: str | None) -> SaslServer:
        """Return the server's side of SASL. `user`: named by the client's certificate."""
        mechanisms: dict[str, Any] = {}
        for name in offered_mechanisms(self.config, certificates=user is not None):
            if name == EXTERNAL:
                mechanisms[EXTERNAL] = external(lambda: user)
            elif name == ANONYMOUS:
                mechanisms[ANONYMOUS] = anonymous
        return SaslServer(mechanisms, required=self.config.authenticate_peer)


def _refuse_any_site(user: str) -> None:
    """Refuse a client that has not proved who it is. Raises AmqpError."""
    text = "web pages that were fetched without TLS log in, unless --allowed-origin has their origin"
    raise AmqpError(UNAUTHORIZED_ACCESS, text)


def _by_certificate(
    users: Users, peer: ConnectedClient, record: RouterConnection
) -> Callable[[str, str], Login | None] | None:
    """Return how the certificate of a client proves its identity (see RelayedLogin); None without one that names a
    user."""
    found, host = peer.certificate, peer.host
    if found is None:
        return None
    record.certificate = found
    if not found.user:
        record.login_problem = found.problem
        log.get().info("identity.certificate.unsuitable", peer=peer.address, reason=found.problem)
        return None

    def login(asked: str, space: str) -> Login | None:
        proved = users.by_certificate(found.user, asked, host, space)
        if proved is None:
            another = asked not in ("", found.user)
            text = f"the certificate names {found.user!r}, and the client asks for another user"
            record.login_problem = text if another else found.refusal
        return proved

    return login


def _http_server(router: Router, config: ListenerConfig, host: str, port: int) -> WebServer:
    """Open an HTTP listener: /healthz and /metrics in Dispatch's form. Raises OSError if the port cannot be opened."""
    loop = asyncio.get_running_loop()

    async def collect() -> list[Metric]:
        return list(metrics.families(router))

    def answer(request: Request) -> Response:
        if request.path == "/healthz" and config.healthz:
            return plain(200, "OK")
        if request.path == "/metrics" and config.metrics:
            try:
                families = in_loop(loop, collect, METRICS_SECONDS)
            except LoopBlocked as blocked:
                return plain(503, str(blocked))
            return Response(200, CONTENT_TYPE, text(families))
        return plain(404, "not found")

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server = WebServer(socket.create_server((host, port), family=family), answer, Bounds())
    server.start()
    return server
