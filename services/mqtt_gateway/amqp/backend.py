"""`interfaces.Backend`: opens sessions, and keeps the connections to the router and the feed of addresses."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import structs

from enmasse.aio.live_follower import LiveLink
from enmasse.amqp.connection import Connection
from enmasse.bridge.bridge import SKEW, Bridge
from enmasse.bridge.client_access import NOBODY
from enmasse.bridge.client_logins import LoginAttempt
from enmasse.bridge.client_rates import too_large
from enmasse.bridge.client_refused import Ask, ClientRefused
from enmasse.bridge.uplink import Uplink
from enmasse.identity import authors
from enmasse.identity.allowances import PATIENCE
from enmasse.identity.login import Login
from enmasse.identity.mqtt_permissions import without_permission
from enmasse.identity.owned import owned
from enmasse.identity.processes.credentials import AnyCredential
from enmasse.identity.refused import OPERATOR, Refusals
from enmasse.logs import log as logs
from enmasse.metrics import counter, gauge, labelled, largest, of_space, single
from enmasse.model.names import DEFAULT_SPACE
from enmasse.model.sessions import (
    Close,
    Handover,
    HandoverReply,
    Open,
    OpenReply,
    Outgoing,
    SessionDeleted,
    SourcesChanged,
    Statistics,
    StatisticsReply,
)
from enmasse.model.topic_map import TopicMap
from enmasse.mqtt import reasons
from enmasse.mqtt.packets import Will
from enmasse.process.places import Places
from enmasse.process.settings import METRICS_ADDRESSES
from services.mqtt_gateway.address_use import AddressUse
from services.mqtt_gateway.amqp.gateway_state import Shared
from services.mqtt_gateway.amqp.mapping import TopicRoute
from services.mqtt_gateway.amqp.metered_session import MeteredSession
from services.mqtt_gateway.amqp.outcome_reasons import REASONS_OF_REFUSAL, reason_of_outcome
from services.mqtt_gateway.amqp.session import MqttSession
from services.mqtt_gateway.amqp.session_service import Control, RequestFailed
from services.mqtt_gateway.amqp.topic_access import may_have_replies, may_send
from services.mqtt_gateway.amqp.wills import Wills, will_message
from services.mqtt_gateway.interfaces import UNKNOWN, Client, Ending, Refused, Request, Session

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from enmasse.tracing.spans import Tracing

OPENING: Final = 8.0
"""Seconds that the subscription service and the last-will service have for a CONNECT."""
CLOSING: Final = 3.0
"""Seconds in which what sessions have asked for is done before the connections go."""
CLEARING: Final = 3.0
"""Seconds that a client without a will waits until its former one is cleared."""
TAKING: Final = 1.5
"""Seconds that the last-will service has to note that a client is connected elsewhere, before it may continue there."""


log = logs.get(part="sessions")


class AmqpBackend:
    """`name`: of this gateway, in the whole suite. `configserv`, `authserv`: host and port; without
    `authserv` clients need not log in, and may do everything. `logins`: where passwords are checked.
    `drops_unauthorized`: messages of clients of 3.1.1 that are not allowed are dropped."""

    def __init__(
        self,
        name: str,
        routers: Places,
        configserv: tuple[str, int],
        credential: AnyCredential | None = None,
        *,
        authserv: tuple[str, int] | None = None,
        authserv_tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        logins: tuple[str, int] | None = None,
        drops_unauthorized: bool = False,
        refusals: Refusals | None = None,
        followers: set[LiveLink] | None = None,
        traces: Tracing | None = None,
    ) -> None:
        self.name = name
        self.sessions: dict[str, MqttSession] = {}
        self.control = Control(name, self._held, self._disconnect, self._sources, self._deleted, self._failed)
        self.wills = Wills()
        self._drops_unauthorized = drops_unauthorized
        self.bridge: Bridge[Shared] = Bridge(
            name,
            routers,
            configserv,
            credential,
            make=self._shared_in,
            review=self._review,
            in_use=lambda: {session.login.principal.space for session in self.sessions.values()},
            addressed=self._on_addresses,
            authserv=authserv,
            authserv_tls=authserv_tls,
            logins=logins,
            refusals=refusals,
            followers=followers,
            traces=traces,
        )
        self.access = self.bridge.access
        self.shared = self.bridge.spaces[DEFAULT_SPACE]
        self._services = Uplink(self.bridge.hub, routers, name, self._services_up, credential, followers)

    def _shared_in(self, bridge: Bridge[Shared], space: str) -> Shared:
        if space != DEFAULT_SPACE:
            return self.shared.in_space(space)
        return Shared(
            self.control,
            bridge.access,
            drops_unauthorized=self._drops_unauthorized,
            refusals=bridge.refusals,
            attach=self._attach,
        )

    # for the process

    def start(self) -> None:
        """Connects, and stays connected until `close`."""
        self.bridge.start()
        self.bridge.run(self._services.run(), "the connection to the services")

    async def close(self) -> None:
        """As interfaces.Backend."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING):
                while self.control.unanswered or self.wills.waiting or self.bridge.busy:
                    await asyncio.sleep(0.02)
        tasks = list(self.shared.tasks)
        for task in tasks:
            task.cancel()
        await self.bridge.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    def state(self) -> tuple[bool, str]:
        """As interfaces.Backend."""
        missing = self._missing()
        ready = not missing
        if ready and not self.wills.ready:
            missing = "no client with a will is accepted: the last-will service is not reached"
        missing = missing or self.bridge.hints()
        return ready, "; ".join(filter(None, (missing, self.bridge.hub.trouble)))

    def _missing(self) -> str:
        if missing := self.bridge.missing():
            return missing
        if not self._services.connected:
            return "the router is not reached"
        if not self.control.ready:
            return "the subscription service is not reached"
        return ""

    async def statistics(
        self, since: float, counters: Mapping[str, int], *, group: str = "", leaving: bool = False
    ) -> StatisticsReply | None:
        """As interfaces.Backend."""
        clients = Tally(session.login.principal.space for session in self.sessions.values())
        in_spaces = {
            space: {"clients": clients[space], "publishOut": each.delivered}
            for space, each in self.bridge.spaces.items()
            if space != DEFAULT_SPACE
        }
        body = Statistics(
            gateway=self.name,
            since=since,
            values=dict(counters),
            in_spaces=in_spaces,
            group=group,
            leaving=leaving,
        )
        try:
            return await self.control.request("statistics", body, StatisticsReply)
        except RequestFailed:
            return None

    def uses(self) -> Iterable[AddressUse]:
        """As interfaces.Backend."""
        return [each.use for each in self.bridge.spaces.values()]

    def families(self) -> Iterator[Metric]:
        """As interfaces.Backend."""
        counters = self.shared.publishing.counters
        spaces = list(self.bridge.spaces.items())
        open_sessions = Tally(session.login.principal.space for session in self.sessions.values())
        yield gauge(
            "mqtt_sessions",
            "MQTT sessions that are open here.",
            [(of_space(space), open_sessions[space]) for space, _ in spaces],
        )
        consumers: dict[str, int] = {}
        for use in self.uses():
            consumers.update(use.consumers_of_topics())
        yield gauge(
            "enmasse_mqtt_topic_consumers",
            "Subscriptions of connected MQTT clients, by topic address.",
            [(labelled("address", name), sum(n)) for name, n in largest(consumers, METRICS_ADDRESSES, float)],
        )
        yield gauge("mqtt_wills", "Connected clients that have a will.", single(self.wills.held))
        links = [
            ({"direction": "in"}, sum(each.publishing.links for each in self.bridge.spaces.values())),
            ({"direction": "out"}, sum(each.links for each in self.sessions.values())),
        ]
        yield gauge("mqtt_amqp_links", "Links to and from addresses, as messages of MQTT go.", links)
        yield gauge(
            "mqtt_unanswered_requests",
            "Requests and packet ids on their way to the subscription service.",
            single(self.control.unanswered),
        )
        codes: Tally[int] = Tally()
        for (outcome, condition), count in counters.outcomes.items():
            codes[reason_of_outcome(outcome, condition)] += count
        outcomes = [({"reason": _reason(code)}, count) for code, count in sorted(codes.items())]
        yield counter("mqtt_publish_outcomes_total", "Messages of QoS 1 and 2 from clients.", outcomes)
        yield counter(
            "mqtt_not_taken_total", "Messages of QoS 0 that no receiver took in time.", single(counters.dropped)
        )
        yield counter(
            "mqtt_delivered_total",
            "Messages for clients.",
            [(of_space(space), each.delivered) for space, each in spaces],
        )
        yield counter(
            "mqtt_not_delivered_total",
            "Messages that came and went to no client.",
            [
                ({"why": why, **of_space(space)}, count)
                for space, each in spaces
                for why, count in (
                    ("expired", each.expired),
                    ("no subscription", each.unmatched),
                    ("not possible in MQTT", each.rejected),
                )
            ],
        )
        yield counter(
            "mqtt_not_allowed_dropped_total",
            "Messages of clients of 3.1.1 that were acknowledged and dropped, without permission.",
            single(self.access.dropped),
        )
        yield from self.bridge.families("mqtt", counters)
        yield from self.bridge.login_families("mqtt")

    def _on_addresses(self) -> None:
        topics = self.bridge.topics
        for session in list(self.sessions.values()):
            try:
                session.set_topics(topics.of(session.login.principal.space))
                if session.rights is not None and (ended := session.not_allowed()):
                    self._revoke(session, session.not_to(ended[0]))
            except Exception as error:
                session.failed(error)

    def _review(self, client_id: str) -> None:
        """Apply the permissions that are in force now to a client whose session may be open."""
        session = self.sessions.get(client_id)
        if session is None or session.client is None:
            return
        login = session.login
        rights = self.access.rights(login)
        reason = self.access.users.loss(login)
        if not reason and rights is session.rights:
            return
        try:
            session.set_rights(rights)
            if session.has_will and session.will_to and (refused := self._refusal_of_will(session)):
                self.access.refused["will"] += 1
                self.wills.clear(session.client_id, session.epoch)
                session.drop_will(refused)
            if not reason and (ended := session.not_allowed()):
                reason = session.not_to(ended[0])
            if reason:
                self._revoke(session, reason)
        except Exception as error:
            session.failed(error)

    def _refusal_of_will(self, session: MqttSession) -> str:
        """Return why the will of a session may no longer be published, by the rule of the last-will service: groups of
        the login do not count for a user that was removed."""
        if session.rights is None:
            return ""
        author = authors.of_login(session.login)
        return authors.refusal(self.access.users.permissions_of(author.space), author, session.will_to)

    def _revoke(self, session: MqttSession, reason: str) -> None:
        session.note_refused("session", reasons.NOT_AUTHORIZED, reason)
        self.access.refused["session"] += 1
        log.info(
            "gateway.session.revoked", client=session.client_id, reason=reason, space=session.login.principal.space
        )
        if session.client is not None:
            session.client.disconnect(reasons.NOT_AUTHORIZED, reason)

    def _attach(self, space: str) -> None:
        for session in [each for each in self.sessions.values() if each.login.principal.space == space]:
            try:
                session.attach()
            except Exception as error:
                session.failed(error)

    def _services_up(self, connection: Connection) -> None:
        self.control.up(connection)
        self.wills.up(connection)

    # sessions

    async def admit(self, request: Request, wanted: Callable[[], bool], ask: Ask) -> Request:
        """As interfaces.Backend. Raises Refused."""
        attempt = LoginAttempt(
            peer=request.peer,
            space=request.asked.space,
            host=request.asked.host,
            username=request.username,
            password=request.password,
            certificate=request.certificate,
            method=request.auth_method,
            data=request.auth_data,
            any_site=request.any_site,
        )
        with _answered():
            login, data = await self.bridge.admission.admit(attempt, wanted, ask)
        client = owned(login.principal, request.client_id)
        return structs.replace(request, client_id=client, password=None, username=None, login=login, auth_data=data)

    async def open(self, request: Request, client: Client) -> Session:
        """As interfaces.Backend. Raises Refused."""
        login: Login = request.login or NOBODY
        with _answered():
            await self.bridge.configured()
            taken = await self._room(request, login)
            try:
                self.access.hold(login, request.client_id)
            except ClientRefused:
                if taken:  # it is connected nowhere now
                    self.wills.publish(request.client_id, taken)
                raise
        try:
            return await self._open(request, client, login)
        finally:
            if request.client_id not in self.sessions:
                self.access.enforcer.leave(request.client_id, login)

    async def _room(self, request: Request, login: Login) -> int:
        """Wait for room for a client. Where its user has none left, the connection that the client may have at another
        gateway gives its room up: it may be half-open. Return the epoch of that connection; 0: there was none."""
        await self.access.room(login)
        if not self.access.enforcer.too_many(login, request.client_id):
            return 0
        body = Handover(client=request.client_id, gateway=self.name)
        try:
            epoch = (await self.control.request("handover", body, HandoverReply)).epoch
        except RequestFailed:
            return 0
        if epoch:
            await self.access.room(login, PATIENCE)
        return epoch

    async def _open(self, request: Request, client: Client, login: Login) -> Session:
        with _answered():
            shared = await self.bridge.in_space(login.principal.space)
        will, will_to = None, ""
        if request.will is not None:
            self._check_will_size(request.will, login.principal.space)
            will_to = self._will_to(request.will, login, shared.topics)
            author = None if self.access.users.is_open(shared.space) else authors.of_login(login)
            stated = author, self.control.seal
            will = will_message(request.client_id, request.will, shared.topics, request.expiry, *stated)
        reply = await self._opened(request, login)
        try:
            if reply.previous_will and not reply.present:
                self.wills.session_ended(request.client_id, reply.epoch)
            if will is not None:
                await self.wills.put(request.client_id, reply.epoch, will(reply.epoch), OPENING)
            elif reply.previous_will:
                # What is due by now is published all the same. The client of a lost gateway is connected again.
                await self._cleared(request.client_id, reply.epoch)
        except (Refused, asyncio.CancelledError):
            self.control.close(Close(client=request.client_id, epoch=reply.epoch))
            raise
        kind = MqttSession if shared.space == DEFAULT_SPACE else partial(MeteredSession, self.bridge.rates)
        session = kind(shared, request, client, reply, self._closed, login, will_to)
        self.sessions[request.client_id] = session
        self.access.enforcer.enter(request.client_id, login, SKEW)
        if self.access.users.loss(login):
            self.shared.later(SKEW, partial(self._review, request.client_id))
        return session

    async def _cleared(self, client: str, epoch: int) -> None:
        """Clear the will of a client that is back, and wait a moment until a due one is published: a retained one must
        not replace what the client publishes from now on."""
        cleared = asyncio.Event()
        self.wills.clear(client, epoch, lambda _: cleared.set())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLEARING):
                await cleared.wait()

    def _check_will_size(self, will: Will, space: str) -> None:
        """Raise Refused if a will is larger than the messages that the plan of the space allows."""
        allowances = self.access.enforcer.allowances
        most, size = allowances.limits(space).max_message_size, len(will.topic) + len(will.payload)
        if most is not None and size > most:
            raise Refused(reasons.PACKET_TOO_LARGE, too_large(size, allowances, space))

    def _will_to(self, will: Will, login: Login, topics: TopicMap) -> str:
        """The name on AMQP of a will's topic; empty if no address takes it. Raises Refused."""
        topic, response = will.topic, will.properties.response_topic
        route = TopicRoute.find(topic, topics)
        rights = self.access.rights(login)
        if response is not None and rights is not None and not may_have_replies(rights, topics, response):
            self.access.refused["will"] += 1
            text = without_permission(topics, "receive from the response topic", response)
            raise Refused(reasons.NOT_AUTHORIZED, text)
        if rights is not None and not may_send(rights, topics, topic, route):
            self.access.refused["will"] += 1
            raise Refused(reasons.NOT_AUTHORIZED, without_permission(topics, "send a will to", topic))
        return "" if route is None else route.to

    async def _opened(self, request: Request, login: Login) -> OpenReply:
        body = Open(
            client=request.client_id,
            gateway=self.name,
            clean=request.clean,
            expiry=request.expiry,
            protocol=5 if request.version == 5 else 4,
            peer=request.peer,
            will=request.will is not None,
            groups=authors.of_login(login).groups,
        )
        try:
            return await self.control.request("open", body, OpenReply, OPENING)
        except RequestFailed as failed:
            reason = failed.reason if failed.reason in reasons.CONNACK else reasons.UNSPECIFIED_ERROR
            raise Refused(reason, self.bridge.topics.of(login.principal.space).relative(failed.text)) from None

    def _closed(self, session: MqttSession, ending: Ending, expiry: int | None, sent: Sequence[Outgoing]) -> None:
        """Settle the will of a session that has ended, then close the session at the subscription service."""
        client = session.client_id
        if self.sessions.get(client) is session:
            del self.sessions[client]
            self.access.enforcer.leave(client, session.login)
        body = Close(client=client, epoch=session.epoch, expiry=expiry, sent=list(sent))
        if session.has_will and ending is Ending.TAKEN and not session.deleted:
            self._taken(session, body)
            return
        if session.has_will and ending is Ending.CLEAN:
            self.wills.clear(client, session.epoch)
        elif session.has_will and (ending is Ending.LOST or session.deleted):
            # The delay ends with the session, at once or when DISCONNECT says (v5 3.1.3.2.2, 3.14.2.2.2).
            end = 0 if session.deleted else expiry
            self.wills.publish(client, session.epoch, delay=None if end is None else min(session.will_delay, end))
        elif session.has_will and ending is Ending.MOVED:
            self.wills.moved(client, session.epoch)
        self.control.close(body)

    def _taken(self, session: MqttSession, body: Close) -> None:
        """Connected elsewhere, where the will is decided upon once this session is closed. Without a delay it is
        published here, and before that: the connection has ended without DISCONNECT (v5 3.1.2.5)."""
        if session.will_delay:
            self.wills.forget(session.client_id)
            self.control.close(body)
            return
        closing = asyncio.get_running_loop().call_later(TAKING, self.control.close, body)

        def published(_: Refused | None) -> None:
            if not closing.cancelled() and closing.when() > asyncio.get_running_loop().time():
                closing.cancel()
                self.control.close(body)

        self.wills.publish(session.client_id, session.epoch, published)

    # for Control

    def _held(self) -> list[tuple[str, int]]:
        return [(session.client_id, session.epoch) for session in self.sessions.values()]

    def _disconnect(self, client: str, epoch: int | None, reason: int, text: str) -> None:
        session = self.sessions.get(client)
        if session is not None and epoch in (None, session.epoch) and session.client is not None:
            try:
                if reason == reasons.ADMINISTRATIVE_ACTION:
                    text = session.note_closed(text or OPERATOR)
                session.client.disconnect(reason, text)
            except Exception as error:
                session.failed(error)

    def _deleted(self, deleted: SessionDeleted) -> None:
        session = self.sessions.get(deleted.client)
        if session is not None and session.epoch == deleted.epoch:
            session.deleted = True  # its client is disconnected next
        else:
            self.wills.session_deleted(deleted.client, deleted.epoch)

    def _sources(self, changed: SourcesChanged) -> None:
        session = self.sessions.get(changed.client)
        if session is not None and session.epoch == changed.epoch:
            try:
                session.set_sources(changed.sources)
            except Exception as error:
                session.failed(error)

    def _failed(self, client: str, epoch: int, error: Exception) -> None:
        session = self.sessions.get(client)
        if session is not None and session.epoch == epoch:
            session.failed(error)


@contextlib.contextmanager
def _answered() -> Iterator[None]:
    """Make reason codes of CONNACK of refusals."""
    try:
        yield
    except ClientRefused as refused:
        raise Refused(REASONS_OF_REFUSAL[refused.refusal], refused.text, refused.noted) from None


def _reason(code: int) -> str:
    return "unknown" if code == UNKNOWN else reasons.name(code)
