"""Clients of a connection: each user that its requests name, with rights, limits and the messages that wait."""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Final

from enmasse.bridge.bridge import Bridge
from enmasse.bridge.client_logins import LoginAttempt
from enmasse.bridge.client_refused import ClientRefused
from enmasse.bridge.lanes import Publisher
from enmasse.bridge.message_outcomes import MessageOutcome
from enmasse.identity.login import Login
from enmasse.identity.permissions import Rights
from enmasse.logs import log as logs
from enmasse.model.permission_words import Operation
from enmasse.model.tenants.spaces import meant_host
from enmasse.network.web_origins import is_allowed, may_be_any_site
from services.http_gateway.api.http_problems import Answered, of_refusal
from services.http_gateway.api.http_space import HttpSpace
from services.http_gateway.wire.http_exchange import ClientGone, HttpExchange, PeerFacts

log = logs.get(part="http")

MOST: Final = 16
"""Users of a connection; the one that came first gives way."""
_BROWSER: Final = ("origin", "referer", "sec-fetch-mode", "sec-fetch-site")


class HttpClient(Publisher):
    """A user at a connection. `key` of its messages is a Future of outcome, condition and text."""

    def __init__(
        self,
        name: str,
        login: Login,
        lanes: HttpSpace,
        rights: Rights | None,
        facts: PeerFacts,
        bridge: Bridge[HttpSpace],
    ) -> None:
        super().__init__()
        self._bridge = bridge
        self.name = name
        self.login = login
        self.lanes = lanes
        self.rights = rights
        self.space = login.principal.space
        self.peer, self.tls = facts.name, facts.tls
        self.opened = time.time()
        self.messages_in = self.messages_out = self.bytes_in = self.bytes_out = 0
        self.ended = ""
        """Why its login no longer holds."""
        self.moves = False
        """Whether its connection is to end."""
        self.watchers: set[Callable[[], None]] = set()
        """Called when its login or its rights may be others, when it is to move, and when it has left."""
        self._room = asyncio.Event()
        self._room.set()

    def allowed(self, operation: Operation, address: str) -> bool:
        """Return whether the client has the permission."""
        return self.rights is None or self.rights.allows(operation, address)

    def sends(self, size: int) -> None:
        """Count a message from the client."""
        self.messages_in += 1
        self.bytes_in += size

    def gets(self, size: int) -> None:
        """Count a message to the client."""
        self.messages_out += 1
        self.bytes_out += size

    async def room(self) -> None:
        """Wait until not too many messages of the client wait."""
        await self._room.wait()

    def hold(self) -> None:
        """As Publisher."""
        super().hold()
        self._room.clear()

    def proceed(self) -> None:
        """As Publisher."""
        super().proceed()
        self._room.set()

    def sent(
        self,
        key: asyncio.Future[tuple[MessageOutcome, str, str]],
        qos: int,
        outcome: MessageOutcome,
        condition: str,
        text: str,
    ) -> None:
        """As Publisher."""
        if not key.done():
            key.set_result((outcome, condition, text))

    def not_taken(self, to: str, outcome: MessageOutcome, condition: str, text: str) -> None:
        """As Publisher."""
        user = self.login.principal.full_name
        self._bridge.note_message(to, condition, text, peer=self.peer, user=user, lanes=self.lanes)

    def look(self) -> None:
        """Let those look who watch it."""
        for watcher in list(self.watchers):
            watcher()

    def failed(self, error: Exception) -> None:
        """As Publisher."""
        log.error("http-gateway.connection.failed", peer=self.name, exc_info=error)


class Visitors:
    """Clients of one connection, by what they state in Authorization."""

    def __init__(self, clients: HttpClients, facts: PeerFacts) -> None:
        self.facts = facts
        self._clients = clients
        self._known: dict[str, HttpClient] = {}
        self._coming: dict[str, asyncio.Future[HttpClient]] = {}
        self._closed = self._leaving = False

    async def of(self, exchange: HttpExchange) -> HttpClient:
        """Return the client that a request comes from. Raises Answered, ClientGone."""
        head = exchange.head
        stated = f"{head.headers.get('authorization', '')}\0{head.authority}"
        found = self._known.get(stated)
        if found is not None and not self._clients.lost(found):
            return found
        if found is not None:
            self._forget(stated)
        coming = self._coming.get(stated)
        if coming is None:
            coming = self._coming[stated] = asyncio.ensure_future(self._clients.enter(exchange))
            coming.add_done_callback(lambda _: self._coming.pop(stated, None))
        client = await asyncio.shield(coming)
        if self._closed:
            self._clients.leave(client)
            raise ClientGone
        if stated not in self._known:
            while len(self._known) >= MOST:
                self._forget(next(iter(self._known)))
            self._known[stated] = client
        client.moves = self._leaving
        return client

    def _forget(self, stated: str) -> None:
        self._clients.leave(self._known.pop(stated))

    def leave(self) -> None:
        """As ConnectionState."""
        self._leaving = True
        for client in self._known.values():
            client.moves = True
            client.look()

    def closed(self) -> None:
        """As ConnectionState."""
        self._closed = True
        for stated in list(self._known):
            self._forget(stated)


class HttpClients:
    """All clients of the gateway, by their names. `allowed_origins`: of web pages, beside those of the gateway's own
    host."""

    def __init__(self, allowed_origins: Collection[str]) -> None:
        self.bridge: Bridge[HttpSpace]
        self.allowed_origins = allowed_origins
        self.clients: dict[str, HttpClient] = {}
        self.refused: Counter[int] = Counter()
        self._number = 0

    def connection(self, facts: PeerFacts) -> Visitors:
        """Return the state of a new connection."""
        return Visitors(self, facts)

    def denied(self, client: HttpClient, operation: Operation, address: str) -> Answered:
        """Count, and note, that a client has no permission for an address. Return the answer."""
        user = client.login.principal.full_name
        self.bridge.note_denied(operation, address, peer=client.peer, user=user, lanes=client.lanes)
        what = "send to" if operation == "send" else "receive from"
        text = f"no permission to {what} {address[:100]!r}"
        return Answered(403, text, condition="amqp:unauthorized-access")

    def lost(self, client: HttpClient) -> bool:
        """Return whether the login of a client no longer holds; its rights are the newest afterwards."""
        access = self.bridge.access
        if client.ended or access.users.loss(client.login):
            return True
        client.rights = access.rights(client.login)
        return False

    def review(self, name: str) -> None:
        """Apply the permissions that are in force now to a client."""
        client = self.clients.get(name)
        if client is not None:
            client.ended = self.bridge.access.users.loss(client.login)
            client.rights = self.bridge.access.rights(client.login)
            client.look()

    def in_use(self) -> set[str]:
        """Return the address spaces that have clients."""
        return {client.space for client in self.clients.values()}

    async def enter(self, exchange: HttpExchange) -> HttpClient:
        """Log a client in. Raises Answered."""
        bridge, facts = self.bridge, exchange.peer
        self._number += 1
        name = f"{facts.name}#{self._number}"

        def take(login: Login, lanes: HttpSpace) -> bool:
            self.clients[name] = HttpClient(name, login, lanes, bridge.access.rights(login), facts, bridge)
            return True

        try:
            await bridge.enter(self._attempt(exchange), name, lambda: not exchange.gone, take)
        except ClientRefused as refused:
            answer = of_refusal(refused)
            self.refused[answer.status] += 1
            raise answer from None
        exchange.trust()
        return self.clients[name]

    def leave(self, client: HttpClient) -> None:
        """Forget a client whose connection has ended."""
        client.left = True
        client.look()
        if self.clients.pop(client.name, None) is not None:
            self.bridge.access.enforcer.leave(client.name, client.login)

    def check_origin(self, exchange: HttpExchange) -> str | None:
        """Return the origin of the web page that has made a request; None: it is no page of another site. Raises
        Answered if the page may not."""
        origin = exchange.head.headers.get("origin")
        if origin is None:
            return None
        if not is_allowed(origin, exchange.head.authority, self.allowed_origins, exchange.peer.local):
            text = "pages of this origin may not send requests here: see the option --allowed-origin"
            reason = f"a page of {origin} sent a request to {exchange.head.authority}: see the option --allowed-origin"
            self.bridge.refusals.note("connect", condition="origin refused", reason=reason, peer=exchange.peer.name)
            raise Answered(403, text)
        return origin

    def _attempt(self, exchange: HttpExchange) -> LoginAttempt:
        head, facts = exchange.head, exchange.peer
        username, password = _credentials(head.headers.get("authorization"))
        hosts = self.bridge.access.users.hosts
        named = head.authority.rpartition(":")[0] if head.authority[-1:].isdigit() else head.authority
        named = meant_host(named)
        host = facts.host if facts.host in hosts or named not in hosts else named
        any_site = False
        if facts.tls is None and any(name in head.headers for name in _BROWSER):
            origin = head.headers.get("origin", "")
            any_site = may_be_any_site(origin, head.authority, self.allowed_origins)
        return LoginAttempt(
            peer=facts.name,
            space=facts.space,
            host=host,
            username=username,
            password=password,
            certificate=facts.certificate,
            any_site=any_site,
        )


def _credentials(authorization: str | None) -> tuple[str | None, bytes | None]:
    """Return user name and password; of a token the empty name, and the token. Raises Answered."""
    if authorization is None:
        return None, None
    scheme, _, rest = authorization.partition(" ")
    rest = rest.strip()
    if scheme.lower() == "bearer" and rest:
        return "", rest.encode("latin-1")
    if scheme.lower() == "basic":
        try:
            user, colon, password = base64.b64decode(rest, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            colon = ""
        if colon:
            return user, password.encode()
    raise Answered(401, "Authorization is `Basic` with user and password, or `Bearer` with a token")
