"""Common half of a gateway: connections to the router, one for each address space, feeds, logins and rates of clients.

State that a gateway has of an address space (`GatewaySpace`) is made with the first client of the space, and ends when
the space is gone and no client of it is left.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from enmasse.aio.feeds import FeedsClient
from enmasse.aio.live_follower import LiveLink
from enmasse.aio.transport import Hub
from enmasse.amqp.connection import Connection
from enmasse.bridge.authentication import Authentication
from enmasse.bridge.client_access import ClientAccess
from enmasse.bridge.client_logins import ClientLogins, LoginAttempt
from enmasse.bridge.client_rates import ClientRates
from enmasse.bridge.client_refused import ClientRefused, Refusal
from enmasse.bridge.lanes import TICK, Counters
from enmasse.bridge.offering import Offering
from enmasse.bridge.password_link import PasswordLink
from enmasse.bridge.publishing import Publishing
from enmasse.bridge.space_lanes import SpaceLanes
from enmasse.bridge.uplink import Uplink
from enmasse.identity.login import Login
from enmasse.identity.login_audit import LoginAudit
from enmasse.identity.processes.credentials import AnyCredential, relay_key_of
from enmasse.identity.refused import Refusals
from enmasse.logs import log as logs
from enmasse.metrics import counter, gauge, of_space, single
from enmasse.model.feeds import AddressChanges, Addresses, FollowedFeed, PermissionChanges, completed
from enmasse.model.names import DEFAULT_SPACE
from enmasse.model.permission_words import Operation
from enmasse.model.topic_map import TopicMap, TopicMaps
from enmasse.process import runner
from enmasse.process.places import Places

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from enmasse.tracing.spans import Tracing

PATIENCE: Final = 8.0
"""Seconds that a client waits until addresses and users are known, and the router is reached."""
SKEW: Final = 1.0
"""Seconds after which a login is looked at again, of which the newest permissions say that it is no longer good."""
SLICE: Final = 200
"""Clients that are looked at in a turn of the loop when permissions have changed."""


class GatewaySpace(Protocol):
    """State that a gateway has of an address space. `reached`: the router was reached once."""

    @property
    def publishing(self) -> Publishing[Any]: ...
    @property
    def reached(self) -> asyncio.Event: ...

    def up(self, connection: Connection) -> None:
        """There is a new connection to the router."""

    def set_topics(self, topics: TopicMap) -> None:
        """Other addresses are configured."""


S = TypeVar("S", bound=GatewaySpace)


class Bridge(Generic[S]):
    """`name`: of the gateway, in the whole suite. `configserv`, `authserv`: host and port; without `authserv`
    clients need not log in, and may do everything. `logins`: where passwords are checked. `make` returns the state of
    an address space; `review` looks at a client again whose login or rights may be others now; `in_use` returns the
    address spaces that have clients; `addressed` is called when other addresses are configured."""

    def __init__(
        self,
        name: str,
        routers: Places,
        configserv: tuple[str, int],
        credential: AnyCredential | None,
        *,
        make: Callable[[Bridge[S], str], S],
        review: Callable[[str], None],
        in_use: Callable[[], Collection[str]],
        addressed: Callable[[], None] = lambda: None,
        authserv: tuple[str, int] | None = None,
        authserv_tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        logins: tuple[str, int] | None = None,
        refusals: Refusals | None = None,
        followers: set[LiveLink] | None = None,
        traces: Tracing | None = None,
    ) -> None:
        self.name = name
        self.hub = Hub()
        self.access = ClientAccess(authserv is not None, review)
        self.audit = LoginAudit(time.monotonic)
        """Logins by certificate; the authentication service has the others."""
        self.refusals = refusals or Refusals(time.monotonic)
        self.refusals.tried = self.access.users.tried
        self.topics = TopicMaps({})
        self.spaces: dict[str, S] = {}
        """State of each address space that has, or had, clients."""
        self._make = make
        self._review = review
        self._in_use = in_use
        self._addressed_now = addressed
        self._tasks: set[asyncio.Future[Any]] = set()

        def uplink(up: Callable[[Connection], None], space: str = "") -> Uplink:
            container = f"{name}@{space}" if space else name  # links of a container have different names
            return Uplink(self.hub, routers, container, up, credential, followers, traces, space)

        self._uplink = uplink
        self.spaces[DEFAULT_SPACE] = make(self, DEFAULT_SPACE)
        self._offering = Offering(name)
        self._data = uplink(self._up)
        passwords = None
        if logins is not None and credential is not None:
            passwords = PasswordLink(self.hub, *logins, name, credential)
        checked: Authentication | None = None
        if authserv is not None:
            key = relay_key_of(credential)
            checked = Authentication(self.hub, *authserv, authserv_tls, name, passwords, key)
        self.logins = checked
        self.admission = ClientLogins(self.access, self.audit, checked, self.configured)
        feeds: list[FollowedFeed[Any]] = [
            FollowedFeed("addresses/changes", AddressChanges, completed(self._on_addresses))
        ]
        if authserv is not None:
            feeds.append(FollowedFeed("permissions/changes", PermissionChanges, self._on_permissions))
        self.allowances = self.access.enforcer.allowances
        self.rates = ClientRates(self.allowances, time.monotonic)
        self._feeds = FeedsClient(*configserv, name, feeds, allowances=self.allowances, credential=credential)
        self._complete = asyncio.Event()
        self._addressed = False
        self._running: list[asyncio.Task[Any]] = []
        self._uplinks: dict[str, asyncio.Task[Any]] = {}  # those of address spaces but the default one

    # for the process

    def start(self) -> None:
        """Connects, and stays connected until `close`."""
        for work, what in (
            (self._data.run(), "the connection for messages"),
            (self._feeds.run(), "the feeds"),
            (self._tick(), "the ticks of the lanes"),
            (self.audit.run(), "audit of logins"),
        ):
            self.run(work, what)

    def _up(self, connection: Connection) -> None:
        self.spaces[DEFAULT_SPACE].up(connection)
        self._offering.up(connection)

    def run(self, work: Coroutine[Any, Any, Any], what: str) -> None:
        """Run this until `close`; the gateway is not ready once it has ended."""
        self._running.append(runner.spawn(work, what))

    def note_not_served(self, refused: ClientRefused, attempt: LoginAttempt, login: Login | None = None) -> None:
        """Note that a client is not served. `login`: its own, once it has proved it."""
        condition = refused.refusal.name.lower().replace("_", " ")
        facts: dict[str, Any] = {"condition": condition, "reason": refused.noted, "peer": attempt.peer}
        if login is None:
            space = self.access.space_of(attempt.space, attempt.host)
            stated, certificate = attempt.username or "", attempt.certificate
            self.refusals.note_failed("connect", stated, certificate=certificate, space=space, **facts)
        else:
            who = login.principal
            self.refusals.note("connect", user=who.full_name, space=who.space, **facts)

    def note_closed(
        self, condition: str, reason: str, *, peer: str, client: str, login: Login | None, space: str | None
    ) -> None:
        """Note that the connection of a client is ended for an error. `login` None: before it has logged in; `space`:
        of its listener."""
        facts: dict[str, Any] = {"condition": condition, "reason": reason, "peer": peer, "client": client}
        if login is None:
            self.refusals.note("connect", space=space or DEFAULT_SPACE, **facts)
        else:
            self.refusals.note("close", user=login.principal.full_name, space=login.principal.space, **facts)

    def note_denied(
        self, operation: Operation, address: str, *, peer: str, user: str, lanes: SpaceLanes, client: str = ""
    ) -> None:
        """Count, and note, that a client has no permission for an address, whose name is that on AMQP. `lanes`: of the
        client's address space; `client`: the identifier that it has stated."""
        self.access.refused[operation] += 1
        refused = "amqp:unauthorized-access", "no permission"
        what = "receive" if operation == "recv" else operation  # the word of events, and of routers
        self._note(what, address, *refused, peer=peer, user=user, client=client, lanes=lanes)

    def note_message(
        self, address: str, condition: str, reason: str, *, peer: str, user: str, lanes: SpaceLanes, client: str = ""
    ) -> None:
        """Note that a message of a client was refused, or that no receiver took it. `address`: its `to`; `condition`:
        empty if it was not rejected; the others as of `note_denied`."""
        known = condition or "amqp:released"
        name = lanes.topics.local(address)
        self._note("message", name, known, reason, peer=peer, user=user, client=client, lanes=lanes)

    def _note(
        self,
        what: str,
        address: str,
        condition: str,
        reason: str,
        *,
        peer: str,
        user: str,
        client: str,
        lanes: SpaceLanes,
    ) -> None:
        self.refusals.note(
            what,
            condition=condition,
            reason=lanes.topics.relative(reason),
            peer=peer,
            user=user,
            client=client,
            address=address,
            names=[lanes.topics.full(address)],
            space=lanes.space,
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this in a task of its own; an error is logged."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logs.get().error("gateway.request.failed", exc_info=task.exception())

    async def close(self) -> None:
        """End all connections."""
        self.audit.write_repeated()
        self.refusals.write_repeated()
        running = (*self._running, *self._uplinks.values(), *self._tasks)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    @property
    def busy(self) -> bool:
        """A message waits, or has no outcome yet."""
        return any(each.publishing.busy for each in self.spaces.values())

    def missing(self) -> str:
        """Return why clients cannot be served; empty if they can."""
        for task in (*self._running, *self._uplinks.values()):
            if task.done():
                return f"{task.get_name()} ended by an error, which is in the log: restart this gateway"
        if not self._complete.is_set():
            return "waits for the addresses of the configuration service"
        if not self.access.users.known:
            return "waits for the permissions of the configuration service"
        if not self._data.connected:
            return "the router is not reached"
        return ""

    def families(self, protocol: str, counters: Counters) -> Iterator[Metric]:
        """Yield the metrics that gateways have in common, but those of logins."""
        waiting = [(of_space(space), each.publishing.waiting) for space, each in self.spaces.items()]
        yield gauge(f"{protocol}_waiting_messages", "From clients, waiting for credit.", waiting)
        repeated = single(counters.repeated)
        yield counter(f"{protocol}_repeated_total", "Messages that were sent once more.", repeated)
        refused = [({"operation": operation}, n) for operation, n in sorted(self.access.refused.items())]
        yield counter(f"{protocol}_not_allowed_total", "What clients had no permission for.", refused)
        yield from self.refusals.families()

    def login_families(self, protocol: str) -> Iterator[Metric]:
        """Yield the metrics of logins, if clients log in."""
        if self.logins is not None:
            waiting = single(self.logins.waiting)
            yield gauge(f"{protocol}_logins_waiting", "Logins that have no answer yet.", waiting)
            outcomes = [({"outcome": outcome}, n) for outcome, n in sorted(self.logins.outcomes.items())]
            yield counter(f"{protocol}_logins_total", "Logins of clients.", outcomes)

    def hints(self) -> str:
        """Return what a person should know of the logins of a gateway that is ready."""
        return (
            ""
            if self.logins is None or not self.logins.trouble
            else f"the last login has failed: {self.logins.trouble}"
        )

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            for each in self.spaces.values():
                each.publishing.tick()
            self.refusals.tick()
            self.rates.tick()

    # configuration

    async def configured(self) -> None:
        """Wait until addresses and users are known. Raises ClientRefused."""
        if self._complete.is_set():
            return
        try:
            async with asyncio.timeout(PATIENCE):
                await self._complete.wait()
        except TimeoutError:
            raise ClientRefused(Refusal.AWAY, "the configuration is not known yet") from None

    def _on_addresses(self, body: Addresses) -> None:
        self.topics = topics = TopicMaps(body.addresses, body.leaving or None, body.remarked or ())
        for space, state in self.spaces.items():
            state.set_topics(topics.of(space))
        self._addressed_now()
        if self.access.users.known:
            self._complete.set()
        self._addressed = True

    def _on_permissions(self, body: PermissionChanges) -> None:
        concerned = self.access.enforcer.take(body)
        if self._addressed:
            self._complete.set()
        self.spawn(self._review_all(concerned))

    async def _review_all(self, clients: Sequence[str]) -> None:
        for number, client in enumerate(clients, 1):
            self._review(client)
            if not number % SLICE:
                await asyncio.sleep(0)
        self._leave_spaces()

    # clients

    async def enter(
        self, attempt: LoginAttempt, name: str, wanted: Callable[[], bool], take: Callable[[Login, S], bool]
    ) -> tuple[Login, S]:
        """Log a client in without an exchange, and follow its login by its `name`. `wanted`: whether the client is
        still there; `take`: has it from now on, or returns False. Raises ClientRefused, which is noted."""
        access = self.access
        login: Login | None = None
        try:
            login, _ = await self.admission.admit(attempt, wanted, _no_exchange)
            await self.configured()
            await access.room(login)
            access.hold(login, name)
            taken = False
            try:
                state = await self.in_space(login.principal.space)
                taken = take(login, state)
                if taken:
                    access.enforcer.enter(name, login, SKEW)
            finally:
                if not taken:
                    access.enforcer.leave(name, login)
        except ClientRefused as refused:
            self.note_not_served(refused, attempt, login)
            raise
        return login, state

    # address spaces

    async def in_space(self, space: str) -> S:
        """Return the state of an address space, which has a connection to the router of its own, once that was
        reached. Raises ClientRefused."""
        found = self.spaces.get(space)
        if found is None:
            found = self.spaces[space] = self._make(self, space)
            found.set_topics(self.topics.of(space))
            self._uplinks[space] = runner.spawn(self._uplink(found.up, space).run(), f"the connection for {space}")
        try:
            async with asyncio.timeout(PATIENCE):
                await found.reached.wait()
        except TimeoutError:
            raise ClientRefused(Refusal.AWAY, "the router is not reached") from None
        return found

    def _leave_spaces(self) -> None:
        """End the connections of address spaces that are gone."""
        used = set(self._in_use())
        for space in [each for each in self._uplinks if each not in used and not self.access.users.has_space(each)]:
            self._uplinks.pop(space).cancel()
            del self.spaces[space]


async def _no_exchange(challenge: bytes) -> bytes:
    raise AssertionError("no exchange was asked for")
