"""The process: follows the users, listens, and answers SASL for routers, gateways and brokers."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from enmasse.aio.feeds import FeedsClient
from enmasse.aio.transport import Hub, Server
from enmasse.aio.transport import serve as serve_amqp
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.connection import Connection
from enmasse.amqp.limits import Limits
from enmasse.amqp.sasl.layer import SaslServer
from enmasse.http.health import Health
from enmasse.identity.principal import Principal
from enmasse.identity.processes.credentials import AnyPeers, Peers, own, peers_at, relay_key_of
from enmasse.identity.processes.peer_check import PeerCheck
from enmasse.identity.processes.process_certificates import CertifiedPeers
from enmasse.identity.processes.refusals import log_handshake
from enmasse.identity.processes.roles import Listener
from enmasse.model import feeds
from enmasse.model.names import DEFAULT_SPACE
from enmasse.model.users import ANONYMOUS
from enmasse.network import tls
from enmasse.process import runner, settings
from services.authserv import requests
from services.authserv.authenticator import Authenticator
from services.authserv.processes import ProcessLogin
from services.authserv.requests import LoginRequests
from services.authserv.sasl_login import BEARER, SaslLogin

CONTAINER = "authserv"
Mechanism = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"]
LIMITS = Limits(max_sessions=1, max_links=1, max_sasl_frame=16384)


class AuthservSettings(settings.ServiceSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings (docs/contracts.md, "A service as a process"). `cert`, `key`: files in PEM for TLS; None: without.
    `relays`: networks of routers and gateways, whose clients' addresses count and not their own. `peers`: instead of
    all that, a folder with a certificate (enmasse/identity/processes/process_certificates.py): only routers, gateways
    and brokers with theirs may connect, and all of them are relays. `logins`: where gateways have passwords checked
    over one connection; they authenticate by the folder `peers`, or by secrets if that is a file, which holds for
    `logins` alone."""

    listen: settings.HostPort
    configserv: settings.HostPort
    mechanisms: tuple[Mechanism, ...] = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
    cert: str | None = None
    key: str | None = None
    peers: str | None = None
    logins: settings.HostPort | None = None
    relays: tuple[str, ...] = ("127.0.0.0/8", "::1/128")
    threads: int = 2
    """Passwords that are checked at a time."""
    processes: dict[Listener, settings.HostPort] = msgspec.field(default_factory=dict)
    """Ports at which it answers for listeners of Qpid Dispatch at which processes of the suite log in, by the file
    `peers`."""

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key belong together: give both, or neither")
        if self.cert is not None and self.peers is not None:
            raise ValueError("peers is a folder with the certificate: give it, or cert and key")
        if self.logins is not None and (self.peers is None or "PLAIN" not in self.mechanisms):
            raise ValueError("logins is for passwords of gateways that authenticate: give peers, and PLAIN")
        if self.processes and (self.peers is None or Path(self.peers).is_dir()):
            raise ValueError("processes is for peers with secrets: give peers, a file")
        for network in self.relays:
            ipaddress.ip_network(network)


class AuthService:
    """Connections of routers, gateways and brokers, by which their clients log in."""

    def __init__(
        self,
        config: AuthservSettings,
        loop: asyncio.AbstractEventLoop,
        peers: AnyPeers | None = None,
        relay_key: str = "",
    ) -> None:
        """`relay_key`: by which relays prove the addresses of their clients; empty: they need no proof."""
        self.logins = Authenticator(loop, config.threads)
        self._mechanisms: tuple[str, ...] = config.mechanisms
        self._peers = peers
        self._by_certificate = isinstance(peers, CertifiedPeers)
        self._relay_key = relay_key
        self._relays = [ipaddress.ip_network(network) for network in config.relays]

    def connection(self, peer: Any) -> Connection:
        """Return the engine's side of a new connection."""
        host = str(peer.address).rpartition(":")[0].strip("[]")
        relayed = self._by_certificate or self._is_relay(host)
        login = SaslLogin(self.logins, host, relayed=relayed, relay_key="" if self._by_certificate else self._relay_key)
        offered = self._offered(login) if self._is_admitted(peer) else {}
        return Connection(
            login,
            container_id=CONTAINER,
            is_client=False,
            sasl=SaslServer(offered, required=True),
            properties={"product": "enmasse-authserv"},
            limits=LIMITS,
        )

    def gateway(self, peer: Any) -> Connection:
        """Return the engine's side of a new connection of a gateway."""
        secrets = self._peers if isinstance(self._peers, Peers) else None
        admission = PeerCheck(Listener.LOGINS, secrets, peer.address, peer.certificate)
        return Connection(
            LoginRequests(self.logins, admission),
            container_id=CONTAINER,
            is_client=False,
            sasl=admission.sasl(),
            properties={"product": "enmasse-authserv"},
            limits=requests.LIMITS,
        )

    def process(self, listener: Listener, peer: Any) -> Connection:
        """Return the engine's side of a connection by which a router asks about a process at this listener."""
        assert isinstance(self._peers, Peers)
        login = ProcessLogin(listener, self._peers, peer.address, self.logins.soon)
        return Connection(login, container_id=CONTAINER, is_client=False, sasl=login.sasl(), limits=LIMITS)

    def _offered(self, login: SaslLogin) -> dict[str, Any]:
        """Return the mechanisms of a client, whose address space is not known yet: they are those of the default space.
        While there are others, also what a space may need, whether any does: the files of one must not show."""
        users, issuers, spaces = self.logins.users, self.logins.issuers, self.logins.has_spaces
        if not users.known:
            return login.unready(self._mechanisms)
        if not self.logins.has_users:
            return login.open_to_all()
        # Clients prefer SCRAM, and issuers cannot check it.
        scram = users.scram or not issuers.checks_passwords_of(DEFAULT_SPACE)
        names = [name for name in self._mechanisms if scram or name == "PLAIN"]
        if issuers.has(DEFAULT_SPACE):
            names[:0] = BEARER
        elif spaces:  # last: some clients take the first one that they know
            names += BEARER
        if spaces or users.principal(Principal(ANONYMOUS)) is not None:
            names.append("ANONYMOUS")
        return login.mechanisms(tuple(names), self.logins.unknown)

    def _is_admitted(self, peer: Any) -> bool:
        if self._by_certificate:
            try:
                PeerCheck(Listener.AUTHSERV, None, peer.address, peer.certificate).certified()
            except AmqpError:
                return False
        return True

    def _is_relay(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._relays)


async def serve(config: AuthservSettings, stop: asyncio.Event) -> None:
    """Run the service until `stop` is set. Raises process.Fatal if its port or certificate cannot be used."""
    loop = asyncio.get_running_loop()
    peers = peers_at(config.peers)
    credential = own(config)
    service = AuthService(config, loop, peers, relay_key_of(credential))
    logins = service.logins
    users: feeds.FollowedFeed[feeds.Users] = feeds.FollowedFeed("users", feeds.Users, logins.replace)
    client = FeedsClient(*settings.host_port(config.configserv), config.name, [users], credential=credential)
    health = Health(
        config.health,
        logins.metrics,
        metrics_secret=config.metrics_secret,
        check=lambda: _state(logins, client),
        counts=lambda: {"users": len(logins.users), "issuers": len(logins.issuers)},
    )
    await health.start()
    hub = Hub(loop)
    context = _tls(config, peers)
    listeners = [await _listen(hub, "listen", config.listen, service.connection, context)]
    if config.logins is not None:
        between = context if isinstance(peers, CertifiedPeers) else None
        listeners.append(await _listen(hub, "logins", config.logins, service.gateway, between))
    for of_router, port in config.processes.items():
        listeners.append(await _listen(hub, "processes", port, partial(service.process, of_router), None))
    at = f"{settings.host_port(config.listen)[0]}:{listeners[0].port}"
    health.endpoints = lambda: {"amqp" if context is None else "amqps": at}
    following = [runner.spawn(client.run(), "feed of users")]
    following.append(runner.spawn(logins.audit.run(), "audit"))
    if isinstance(peers, Peers):
        following.append(runner.spawn(peers.follow(), "file of peers"))
    await stop.wait()
    health.check = None
    health.set(False, "stopping")
    for task in following:
        task.cancel()
    await asyncio.gather(*following, return_exceptions=True)
    for listener in listeners:
        listener.close()
    logins.audit.write_repeated()
    await logins.close()
    await health.close()


def _state(logins: Authenticator, client: FeedsClient) -> tuple[bool, str]:
    users = logins.users
    if not users.known:
        return False, "the configuration service has not delivered users yet"
    notes = logins.issuers.problems()
    if not client.connected:
        notes.append("the configuration service cannot be reached: changes of users have no effect meanwhile")
    if users.anonymous:
        notes.append("anonymous: there are no users, every client is let in")
    return True, "; ".join(notes)


async def _listen(
    hub: Hub, setting: str, at: settings.HostPort, factory: Callable[[Any], Connection], tls: ssl.SSLContext | None
) -> Server:
    host, port = settings.host_port(at)
    refused = log_handshake if tls is not None and tls.verify_mode is ssl.CERT_REQUIRED else None
    try:
        return await serve_amqp(hub, host, port, factory, tls, refused=refused)
    except OSError as error:
        raise runner.cannot_listen(at, error, setting) from None


def _tls(config: AuthservSettings, peers: AnyPeers | None) -> ssl.SSLContext | None:
    if isinstance(peers, CertifiedPeers):
        return peers.tls
    if peers is not None and config.logins is None:
        reason = f"peers: {config.peers}: is not a folder with tls.crt, tls.key and ca.crt"
        raise runner.Fatal("service.setting.invalid", f"authserv {config.name}: {reason}")
    cert, key = config.cert, config.key
    if cert is None or key is None:
        return None
    try:
        return tls.server(cert, key).listening()
    except (OSError, ssl.SSLError) as error:
        raise runner.Fatal(
            "service.setting.invalid", f"authserv {config.name}: cert, key: {cert}: {error}; correct the files"
        ) from None
