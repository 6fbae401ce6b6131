"""`ports.Backend`: opens sessions, and keeps the connections to the router and the feed of addresses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from enmasse import process
from enmasse.aio.feeds import FeedsClient, FollowedFeed
from enmasse.aio.transport import Hub
from enmasse.amqp.connection import Connection
from enmasse.identity.credentials import Credential
from enmasse.metrics import counter, gauge, single
from enmasse.model.feeds import AddressChanges, Addresses, completed
from enmasse.model.sessions import Close, Open, OpenReply, Outgoing, SourcesChanged
from enmasse.model.topics import TopicMap
from enmasse.mqtt import reasons
from services.mqtt_gateway.amqp import lanes
from services.mqtt_gateway.amqp.control import Control, RequestFailed
from services.mqtt_gateway.amqp.session import MqttSession
from services.mqtt_gateway.amqp.shared import Shared
from services.mqtt_gateway.amqp.uplink import Uplink
from services.mqtt_gateway.amqp.wills import Wills, will_message
from services.mqtt_gateway.ports import UNKNOWN, Client, Ending, Refused, Request, Session

if TYPE_CHECKING:
    from prometheus_client.core import Metric

OPENING: Final = 8.0
"""Seconds that the subscription service and the last-will service have for a CONNECT."""
CLOSING: Final = 3.0
"""Seconds in which what sessions have asked for is done before the connections go."""
TAKING: Final = 1.5
"""Seconds that the last-will service has to note that a client is connected elsewhere, before it may continue there."""


class AmqpBackend:
    """`name`: of this gateway, in the whole suite. `router`, `configserv`: host and port."""

    def __init__(
        self,
        name: str,
        router: tuple[str, int],
        configserv: tuple[str, int],
        credential: Credential | None = None,
        *,
        router_scram: bool = True,
    ) -> None:
        self.name = name
        self.sessions: dict[str, MqttSession] = {}
        self.control = Control(name, self._held, self._disconnect, self._sources, self._failed)
        self.shared = Shared(self.control)
        self.wills = Wills()
        self._hub = Hub()
        to_router = credential if router_scram else None
        self._data = Uplink(self._hub, *router, name, self._data_up, to_router)
        self._services = Uplink(self._hub, *router, name, self._services_up, to_router)
        addresses = FollowedFeed("addresses/changes", AddressChanges, completed(self._on_addresses))
        self._feeds = FeedsClient(*configserv, name, [addresses], credential=credential)
        self._complete = asyncio.Event()
        self._running: list[asyncio.Task[Any]] = []

    # for the process

    def start(self) -> None:
        """Connects, and stays connected until `close`."""
        for work, what in (
            (self._data.run(), "the connection for messages"),
            (self._services.run(), "the connection to the services"),
            (self._feeds.run(), "the feeds"),
            (self._tick(), "the ticks of the lanes"),
        ):
            self._running.append(process.spawn(work, what))

    async def close(self) -> None:
        """As ports.Backend."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING):
                while self.control.unanswered or self.wills.waiting or self.shared.publishing.busy:
                    await asyncio.sleep(0.02)
        for task in (*self._running, *self.shared.tasks):
            task.cancel()
        await asyncio.gather(*self._running, *self.shared.tasks, return_exceptions=True)

    def state(self) -> tuple[bool, str]:
        """As ports.Backend."""
        missing = self._missing()
        ready = not missing
        if ready and not self.wills.ready:
            missing = "no client with a will is accepted: the last-will service is not reached"
        return ready, "; ".join(filter(None, (missing, self._hub.trouble)))

    def _missing(self) -> str:
        for task in self._running:
            if task.done():
                return f"{task.get_name()} ended by an error, which is in the log: restart this gateway"
        if not self._complete.is_set():
            return "waits for the addresses of the configuration service"
        if not self._data.connected or not self._services.connected:
            return "the router is not reached"
        if not self.control.ready:
            return "the subscription service is not reached"
        return ""

    def families(self) -> Iterator[Metric]:
        """As ports.Backend."""
        publishing, counters = self.shared.publishing, self.shared.publishing.counters
        yield gauge("mqtt_sessions", "MQTT sessions that are open here.", single(len(self.sessions)))
        yield gauge("mqtt_wills", "Connected clients that have a will.", single(self.wills.held))
        links = [
            ({"direction": "in"}, publishing.links),
            ({"direction": "out"}, sum(each.links for each in self.sessions.values())),
        ]
        yield gauge("mqtt_amqp_links", "Links to and from addresses, as messages of MQTT go.", links)
        yield gauge("mqtt_waiting_messages", "From clients, waiting for credit.", single(publishing.waiting))
        yield gauge(
            "mqtt_unanswered_requests",
            "Requests and packet ids on their way to the subscription service.",
            single(self.control.unanswered),
        )
        outcomes = [({"reason": _reason(code)}, count) for code, count in sorted(counters.outcomes.items())]
        yield counter("mqtt_publish_outcomes_total", "Messages of QoS 1 and 2 from clients.", outcomes)
        yield counter(
            "mqtt_not_taken_total", "Messages of QoS 0 that no receiver took in time.", single(counters.dropped)
        )
        yield counter("mqtt_repeated_total", "Messages that were sent once more.", single(counters.repeated))
        yield counter("mqtt_delivered_total", "Messages for clients.", single(self.shared.delivered))
        yield counter(
            "mqtt_not_delivered_total",
            "Messages that came and went to no client.",
            [
                ({"why": "expired"}, self.shared.expired),
                ({"why": "no subscription"}, self.shared.unmatched),
                ({"why": "not possible in MQTT"}, self.shared.rejected),
            ],
        )

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(lanes.TICK)
            self.shared.publishing.tick()

    def _on_addresses(self, body: Addresses) -> None:
        self.shared.set_topics(TopicMap(body.addresses))
        for session in list(self.sessions.values()):
            try:
                session.set_topics(self.shared.topics)
            except Exception as error:
                session.failed(error)
        self._complete.set()

    def _data_up(self, connection: Connection) -> None:
        self.shared.publishing.up(connection)
        self.shared.receiving = connection.begin()
        for session in list(self.sessions.values()):
            try:
                session.attach()
            except Exception as error:
                session.failed(error)

    def _services_up(self, connection: Connection) -> None:
        self.control.up(connection)
        self.wills.up(connection)

    # sessions

    async def open(self, request: Request, client: Client) -> Session:
        """As ports.Backend. Raises Refused."""
        try:
            async with asyncio.timeout(OPENING):
                await self._complete.wait()
        except TimeoutError:
            raise Refused(reasons.SERVER_UNAVAILABLE, "the configuration is not known yet") from None
        will = None
        if request.will is not None:
            will = will_message(request.client_id, request.will, self.shared.topics, request.expiry)
        reply = await self._opened(request)
        try:
            if reply.previous_will and not reply.present:
                self.wills.session_ended(request.client_id)
            if will is not None:
                await self.wills.put(request.client_id, will, OPENING)
            elif reply.previous_will:
                # What is due by now is published all the same. The client of a lost gateway is connected again.
                self.wills.clear(request.client_id)
        except (Refused, asyncio.CancelledError):
            self.control.close(Close(client=request.client_id, epoch=reply.epoch))
            raise
        session = MqttSession(self.shared, request, client, reply, self._closed)
        self.sessions[request.client_id] = session
        return session

    async def _opened(self, request: Request) -> OpenReply:
        body = Open(
            client=request.client_id,
            gateway=self.name,
            clean=request.clean,
            expiry=request.expiry,
            protocol=5 if request.version == 5 else 4,
            peer=request.peer,
            will=request.will is not None,
        )
        try:
            return await self.control.request("open", body, OpenReply, OPENING)
        except RequestFailed as failed:
            reason = failed.reason if failed.reason in reasons.CONNACK else reasons.UNSPECIFIED_ERROR
            raise Refused(reason, failed.text) from None

    def _closed(self, session: MqttSession, ending: Ending, expiry: int | None, sent: Sequence[Outgoing]) -> None:
        """Settle the will of a session that has ended, then close the session at the subscription service."""
        client = session.client_id
        if self.sessions.get(client) is session:
            del self.sessions[client]
        body = Close(client=client, epoch=session.epoch, expiry=expiry, sent=list(sent))
        if session.has_will and ending is Ending.TAKEN:
            self._taken(session, body)
            return
        if session.has_will and ending is Ending.CLEAN:
            self.wills.clear(client)
        elif session.has_will and ending is Ending.LOST:
            self.wills.publish(client)
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

        self.wills.publish(session.client_id, published)

    # for Control

    def _held(self) -> list[tuple[str, int]]:
        return [(session.client_id, session.epoch) for session in self.sessions.values()]

    def _disconnect(self, client: str, epoch: int | None, reason: int, text: str) -> None:
        session = self.sessions.get(client)
        if session is not None and epoch in (None, session.epoch) and session.client is not None:
            try:
                session.client.disconnect(reason, text)
            except Exception as error:
                session.failed(error)

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


def _reason(code: int) -> str:
    return "unknown" if code == UNKNOWN else reasons.name(code)
