"""Rows of the gateway's live state (enmasse/live_state.py, docs/contracts.md): its clients and their observations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from enmasse.aio.live_follower import LiveLink
from enmasse.clock import Clock
from enmasse.identity.refused import Refusals
from enmasse.live_state import LivePublisher, Row, Rows
from services.coap_gateway.coap_memory import CoapEndpoint
from services.coap_gateway.coap_observations import CoapObservation
from services.coap_gateway.coap_requests import CoapRequests

MOST: Final = 1000
"""Clients that are shown beside observers: who says to be one costs nothing."""
PART: Final = 50
"""Rows that are looked at in a turn."""


class CoapRows:
    """Offers the source `$live/<name>` to `followers`, whose links come through the router."""

    def __init__(
        self, name: str, requests: CoapRequests, refusals: Refusals, followers: set[LiveLink], clock: Clock
    ) -> None:
        self._requests = requests
        self._clock = clock
        self.rows = Rows(name, "coap_gateway", time.time)
        refusals.seen = self.rows.event
        self.publisher = LivePublisher(self.rows, self.look, lambda: followers, clock)
        self._shown: dict[tuple[str, str], tuple[Any, ...]] = {}
        """Kind and id of a row → what it was made of."""

    def look(self) -> Iterator[None]:
        """Bring the rows up to date."""
        if not len(self.rows):
            self._shown.clear()
        observations = list(self._requests.observations.all)
        endpoints = {each.endpoint for each in observations}
        sending = (each for each in self._requests.memory.endpoints.values() if each.messages_in)
        endpoints.update(islice(sending, MOST))
        seen = set()
        for n, endpoint in enumerate(endpoints, 1):
            seen.add(("connections", endpoint.name))
            mark = endpoint.messages_in, endpoint.messages_out, len(endpoint.observations)
            self._put("connections", endpoint.name, mark, endpoint)
            if not n % PART:
                yield
        for n, each in enumerate(observations, 1):
            id = f"{each.endpoint.name}/{each.token.hex()}"
            seen.add(("links", id))
            self._put("links", id, (each.sent, each.dropped), each)
            if not n % PART:
                yield
        for gone in self._shown.keys() - seen:
            del self._shown[gone]
            self.rows.drop(*gone)

    def _put(self, kind: str, id: str, mark: tuple[Any, ...], of: CoapEndpoint | CoapObservation) -> None:
        if self._shown.get((kind, id)) != mark:
            self._shown[kind, id] = mark
            self.rows.put(kind, id, self._connection(of) if isinstance(of, CoapEndpoint) else _link(of))

    def _connection(self, endpoint: CoapEndpoint) -> Row:
        return {
            "protocol": "coap",
            "client": "",
            "user": endpoint.user,
            "peer": endpoint.name,
            "opened": round(self.rows.wall() - (self._clock.time() - endpoint.opened), 1),
            "subscriptions": len(endpoint.observations),
            "in": endpoint.messages_in,
            "out": endpoint.messages_out,
            "bytesIn": endpoint.received,
            "bytesOut": endpoint.replied,
        }


def _link(observation: CoapObservation) -> Row:
    topics = observation.visitor.lanes.topics
    return {
        "connection": observation.endpoint.name,
        "name": observation.local,
        "stated": observation.local,
        "address": observation.owner.name,
        "names": [topics.full(observation.local)],
        "dir": "out",
        "qos": None,
        "count": observation.sent,
        "bytes": observation.sent_bytes,
    }
