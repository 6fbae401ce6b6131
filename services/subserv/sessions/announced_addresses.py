"""Addresses from which gateways receive for their sessions, as last sent to them (`Session.announced`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from enmasse.model import sessions as wire
from services.subserv import broker_names
from services.subserv.brokers.brokers import Broker, Brokers
from services.subserv.brokers.slices import portions
from services.subserv.serial_work import SerialWork
from services.subserv.sessions.sessions import Session, Sessions
from services.subserv.subscription_placement import Desired, Subscriber

Command = Callable[[str, str, Any], bool]
"""Sends a gateway (its name) a command (subject, body); returns False if the gateway is not attached."""


class SessionSources:
    """Tells gateways when the queues of a session have come or gone."""

    def __init__(
        self, sessions: Sessions, desired: Desired, brokers: Brokers, command: Command, turns: SerialWork
    ) -> None:
        self._sessions = sessions
        self._desired = desired
        self._brokers = brokers
        self._command = command
        self._turns = turns

    def of(self, session: Session) -> list[wire.Source]:
        """Return the sources of a session for its gateway."""
        found = [wire.Source(address=address) for address in self._addresses(session)]
        for share in self._sessions.shares_of(session):
            found += [wire.Source(address=address, filter=share.name) for address in self._addresses(share)]
        return found

    def _addresses(self, subscriber: Subscriber) -> list[str]:
        brokers = self._desired.brokers(subscriber)
        brokers.update(broker.name for broker in self._brokers if _holds(broker, subscriber))
        return [broker_names.queue_name(broker, subscriber.id) for broker in sorted(brokers)]

    def tell(self, session: Session) -> list[wire.Source]:
        """Return the sources of a session and note them as known to its gateway; the caller sends them."""
        sources = self.of(session)
        session.announced = [source.address for source in sources]
        return sources

    def placement_changed(self, ids: Iterable[str]) -> None:
        """Notify gateways of queues of these sessions that were made or deleted."""
        clients: dict[str, None] = {}
        for id in ids:
            session = self._sessions.by_id.get(id)
            if session is not None:
                clients[session.record.client] = None
            elif (share := self._sessions.shares.get(id)) is not None:
                clients.update(dict.fromkeys(share.members))
        for client in clients:
            self._tell_changes(self._sessions.by_client[client])

    async def tell_in_portions(self, ids: list[str]) -> None:
        """Do as `placement_changed` for many ids, some in each turn of the loop."""
        async for some in portions(ids):
            self.placement_changed(some)

    def _tell_changes(self, session: Session) -> None:
        record = session.record
        if not record.connected or self._turns.busy(record.client):
            return  # who serves a request of the client tells with its reply
        before, sources = session.announced, self.tell(session)
        if session.announced != before:
            command = wire.SourcesChanged(client=record.client, epoch=record.epoch, sources=sources)
            if not self._command(record.gateway, "sources", command):
                session.announced = None  # announced with its hello


def _holds(broker: Broker, subscriber: Subscriber) -> bool:
    held = broker.conversation.held.get(subscriber.id)
    return held is not None and held.created >= subscriber.created
