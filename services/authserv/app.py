"""The process: follows the users, listens, and answers SASL for routers, gateways and brokers."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from enmasse import log, process, settings, tls
from enmasse.aio.feeds import FeedsClient, FollowedFeed
from enmasse.aio.transport import Hub, Server
from enmasse.aio.transport import serve as serve_amqp
from enmasse.amqp.connection import Connection
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.limits import Limits
from enmasse.amqp.sasl import SaslServer
from enmasse.health import Health
from enmasse.identity.admission import Admission
from enmasse.identity.audit import LoginAudit
from enmasse.identity.credentials import AnyPeers, Peers, own, peers_at, relay_key_of
from enmasse.identity.failures import Failures, network_of
from enmasse.identity.login import may_be_token
from enmasse.identity.login_requests import RedeemCode, RefreshLogin
from enmasse.identity.passwords import PasswordChecks
from enmasse.identity.permissions import Rights
from enmasse.identity.principal import Principal
from enmasse.identity.process_certificates import CertifiedPeers
from enmasse.identity.refusals import log_handshake
from enmasse.identity.roles import Listener
from enmasse.identity.scram import USER_ITERATIONS, Unknown
from enmasse.metrics import counter, gauge, single
from enmasse.model import feeds
from enmasse.model.users import ANONYMOUS, Verifier, user_name_error
from services.authserv import requests
from services.authserv.issuers import Issuers
from services.authserv.login import BEARER, Login
from services.authserv.processes import ProcessLogin
from services.authserv.proof import Proof
from services.authserv.requests import LoginRequests
from services.authserv.sources import Users

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CONTAINER = "authserv"
Mechanism = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"]
DELAY = 1.0
"""Seconds until a failure is answered whose address is not known, or has to wait."""
AT_ONCE = 64
"""Attempts of a user at an address that may be under way, which bounds the guesses between two waits."""
LIMITS = Limits(max_sessions=1, max_links=1, max_sasl_frame=16384, handshake_timeout_ms=20_000)
PROCESS_LIMITS = replace(LIMITS, handshake_timeout_ms=10_000)


class AuthservSettings(settings.ServiceSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings (docs/contracts.md, "A service as a process"). `cert`, `key`: files in PEM for TLS; None: without.
    `relays`: networks of routers and gateways, whose clients' addresses count and not their own. `peers`: instead of
    all that, a folder with a certificate (enmasse/identity/process_certificates.py): only routers, gateways and brokers
    with theirs may connect, and all of them are relays. `logins`: where gateways have passwords checked over one
    connection; they authenticate by the folder `peers`, or by secrets if that is a file, which holds for `logins`
    alone."""

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
    """Logins of all clients."""

    def __init__(
        self,
        config: AuthservSettings,
        loop: asyncio.AbstractEventLoop,
        peers: AnyPeers | None = None,
        relay_key: str = "",
    ) -> None:
        """`relay_key`: by which relays prove the addresses of their clients; empty: they need no proof."""
        self._loop = loop
        self._mechanisms: tuple[str, ...] = config.mechanisms
        self._peers = peers
        self._by_certificate = isinstance(peers, CertifiedPeers)
        self._relay_key = relay_key
        self._relays = [ipaddress.ip_network(network) for network in config.relays]
        self._checks = PasswordChecks(loop.time, config.threads)
        self._failures = Failures(loop.time)
        self._under_way: Counter[tuple[str, str]] = Counter()
        """Attempts without an outcome, by user and address."""
        self._unknown = Unknown(USER_ITERATIONS)
        self._counts: Counter[tuple[str, str]] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self.audit = LoginAudit(loop.time)
        self.users = Users(self._checks)
        self.issuers = Issuers(time.time)

    def connection(self, peer: Any) -> Connection:
        """Return the engine's side of a new connection."""
        host = str(peer.address).rpartition(":")[0].strip("[]")
        relayed = self._by_certificate or self._is_relay(host)
        login = Login(self, host, relayed=relayed, relay_key="" if self._by_certificate else self._relay_key)
        offered = self._offered(login) if self._is_admitted(peer) else {}
        return Connection(
            login,
            container_id=CONTAINER,
            is_client=False,
            sasl=SaslServer(offered, required=True),
            properties={"product": "enmasse-authserv"},
            limits=LIMITS,
        )

    def replace(self, body: feeds.Users) -> None:
        """Put other users and issuers in force."""
        if body.salt_key:
            self._unknown = Unknown(USER_ITERATIONS, body.salt_key)
        self.issuers.replace(body.issuers)
        self.users.replace(body)

    def gateway(self, peer: Any) -> Connection:
        """Return the engine's side of a new connection of a gateway."""
        secrets = self._peers if isinstance(self._peers, Peers) else None
        admission = Admission(Listener.LOGINS, secrets, peer.address, peer.certificate)
        return Connection(
            LoginRequests(self, admission),
            container_id=CONTAINER,
            is_client=False,
            sasl=admission.sasl(),
            properties={"product": "enmasse-authserv"},
            limits=requests.LIMITS,
        )

    def process(self, listener: Listener, peer: Any) -> Connection:
        """Return the engine's side of a connection by which a router asks about a process at this listener."""
        assert isinstance(self._peers, Peers)
        login = ProcessLogin(listener, self._peers, peer.address, self.soon)
        return Connection(login, container_id=CONTAINER, is_client=False, sasl=login.sasl(), limits=PROCESS_LIMITS)

    async def close(self) -> None:
        """End what runs beside the connections."""
        for task in self._tasks:
            task.cancel()
        self._checks.close()
        await self.issuers.close()

    def metrics(self) -> Iterator[Metric]:
        """Metrics of logins (docs/metrics.md)."""
        counts = [({"mechanism": name, "outcome": outcome}, n) for (name, outcome), n in sorted(self._counts.items())]
        yield counter("enmasse_logins_total", "Logins by mechanism and outcome.", counts)
        yield counter("enmasse_password_checks_total", "Passwords checked by argon2.", single(self._checks.computed))
        yield gauge("enmasse_users", "Users in users.json.", single(len(self.users)))
        yield gauge("enmasse_issuers", "Issuers in issuers.json.", single(len(self.issuers)))

    def _offered(self, login: Login) -> dict[str, Any]:
        if not self.users.known:
            return login.unready(self._mechanisms)
        if not self.has_users:
            return login.open_to_all()
        scram = self.users.scram or not self.issuers.check_passwords  # clients prefer it, and issuers cannot check it
        names = [*(BEARER if self.issuers else ()), *[name for name in self._mechanisms if scram or name == "PLAIN"]]
        if self.users.allows_anonymous():
            names.append("ANONYMOUS")
        return login.mechanisms(tuple(names), self._unknown)

    def _is_admitted(self, peer: Any) -> bool:
        if self._by_certificate:
            try:
                Admission(Listener.AUTHSERV, None, peer.address, peer.certificate).certified()
            except AmqpError:
                return False
        return True

    def _is_relay(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._relays)

    @property
    def has_users(self) -> bool:
        """Return whether users are known, so that a password can be right or wrong."""
        return self.users.known and not self.users.anonymous

    # --- for logins ---------------------------------------------------------------------------------------------------

    def begin(self, user: str, address: str | None) -> bool:
        """Return whether this user may try now: neither has to wait, nor has too many attempts under way."""
        key = user, network_of(address) if address is not None else ""
        if self._under_way[key] >= AT_ONCE or (address is not None and self._failures.wait(user, address) > 0):
            return False
        self._under_way[key] += 1
        return True

    def end(self, user: str, address: str | None, *, failed: bool) -> None:
        """Note that an attempt has ended. A failure from an address that is not known counts as under way DELAY longer,
        which bounds the guesses there, as failures do elsewhere."""
        if address is None and failed:
            self._loop.call_later(DELAY, self._ended, (user, ""))
        else:
            self._ended((user, network_of(address) if address is not None else ""))

    def _ended(self, key: tuple[str, str]) -> None:
        self._under_way[key] -= 1
        if not self._under_way[key]:
            del self._under_way[key]

    def failed(
        self, mechanism: str, user: str, address: str | None, answer: Callable[[], None], *, checked: bool
    ) -> None:
        """Count a failed login, and answer it: later if the address is not known or had to wait."""
        self._counts[mechanism, "refused"] += 1
        known = self.users.knows(user)  # a name that is unknown may be a password
        log.get().info("authserv.login.refused", user=user if known else None, peer=address, mechanism=mechanism)
        self.audit.note(user if known else None, address, mechanism, accepted=False)
        if address is not None and checked:
            self._failures.failed(user, address)
            answer()
        else:
            self._loop.call_later(DELAY, answer)

    def succeeded(self, mechanism: str, user: str, address: str | None) -> None:
        """Count a login."""
        self._counts[mechanism, "accepted"] += 1
        self.audit.note(user, address, mechanism, accepted=True)
        if address is not None:
            self._failures.succeeded(user, address)

    def undecided(self, mechanism: str) -> None:
        """Count a login that could not be decided."""
        self._counts[mechanism, "undecided"] += 1

    def verifier(self, user: str, mechanism: str) -> Verifier | None:
        """Return the verifier of a user for a SCRAM mechanism."""
        return self.users.verifier(user, mechanism)

    def at_once(self, user: str, password: str) -> Proof | None:
        """Return the identity of the user with this password if that is known, or cheap to find; else None."""
        return None if self._may_be_token(password) else self.users.at_once(user, password)

    async def check(self, user: str, password: str) -> Proof | None:
        """Return the identity of the user with this password, which may be a token, if `at_once` has not found it.
        Issuers are asked about names that have no entry in users.json. Raises Busy, Unavailable."""
        if self._may_be_token(password):
            found = await self.check_token(password)
            return found if found is not None and user in ("", found.principal.name) else None
        if self.users.knows(user) or user == ANONYMOUS or user_name_error(user) is not None:
            return await self.users.check(user, password)
        if self.issuers.check_passwords:
            return await self.issuers.check_password(user, password)
        return await self.users.check(user, password)

    def _may_be_token(self, password: str) -> bool:
        return bool(self.issuers) and may_be_token(password)

    async def check_token(self, token: str) -> Proof | None:
        """Return the identity that a token proves. Raises Unavailable."""
        return await self.issuers.check_token(token)

    async def redeem(self, login: RedeemCode) -> Proof | None:
        """Return the identity that a code of a browser proves. Raises Busy, Unavailable."""
        return await self.issuers.redeem(login)

    async def refresh(self, login: RefreshLogin) -> Proof | None:
        """Return the identity that a refresh token proves. Raises Busy, Unavailable."""
        return await self.issuers.refresh(login)

    def principal(self, user: str) -> Principal | None:
        """Return the identity of a user, after the proof by SCRAM."""
        return self.users.principal(user)

    def rights(self, principal: Principal) -> Rights:
        """Return what a principal may do."""
        return self.users.rights(principal)

    def credentials(self, user: str) -> str | None:
        """Return `credentials` of the feed `permissions`; None: the user has no entry."""
        return self.users.credentials(user)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work beside the connection."""
        task = process.spawn(work, "check of a password")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def soon(self, call: Callable[[], None]) -> None:
        """Call in the next turn of the loop."""
        self._loop.call_soon(call)


async def serve(config: AuthservSettings, stop: asyncio.Event) -> None:
    """Run the service until `stop` is set. Raises process.Fatal if its port or certificate cannot be used."""
    loop = asyncio.get_running_loop()
    peers = peers_at(config.peers)
    credential = own(config)
    service = AuthService(config, loop, peers, relay_key_of(credential))
    users: FollowedFeed[feeds.Users] = FollowedFeed("users", feeds.Users, service.replace)
    client = FeedsClient(*settings.host_port(config.configserv), config.name, [users], credential=credential)
    health = Health(
        config.health,
        service.metrics,
        metrics_secret=config.metrics_secret,
        check=lambda: _state(service, client),
        counts=lambda: {"users": len(service.users), "issuers": len(service.issuers)},
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
    following = [process.spawn(client.run(), "feed of users")]
    following.append(process.spawn(service.audit.run(), "audit"))
    if isinstance(peers, Peers):
        following.append(process.spawn(peers.follow(), "file of peers"))
    await stop.wait()
    health.check = None
    health.set(False, "stopping")
    for task in following:
        task.cancel()
    await asyncio.gather(*following, return_exceptions=True)
    for listener in listeners:
        listener.close()
    service.audit.write_repeated()
    await service.close()
    await health.close()


def _state(service: AuthService, client: FeedsClient) -> tuple[bool, str]:
    users = service.users
    if not users.known:
        return False, "the configuration service has not delivered users yet"
    notes = service.issuers.problems()
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
        raise process.cannot_listen(at, error, setting) from None


def _tls(config: AuthservSettings, peers: AnyPeers | None) -> ssl.SSLContext | None:
    if isinstance(peers, CertifiedPeers):
        return peers.tls
    if peers is not None and config.logins is None:
        reason = f"peers: {config.peers}: is not a folder with tls.crt, tls.key and ca.crt"
        raise process.Fatal("service.setting.invalid", f"authserv {config.name}: {reason}")
    cert, key = config.cert, config.key
    if cert is None or key is None:
        return None
    try:
        return tls.server(cert, key).listening()
    except (OSError, ssl.SSLError) as error:
        raise process.Fatal(
            "service.setting.invalid", f"authserv {config.name}: cert, key: {cert}: {error}; correct the files"
        ) from None
