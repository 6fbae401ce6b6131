"""Rows of the gateway's live state (enmasse/live_state.py, docs/contracts.md): its clients and their observations."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from enmasse.aio.live_follower import LiveLink
from enmasse.clock import Clock
from enmasse.identity.refused import Refusals
from enmasse.live_state import MarkedRows, Row
from services.coap_gateway.coap_memory import CoapEndpoint
from services.coap_gateway.coap_observations import CoapObservation
from services.coap_gateway.coap_requests import CoapRequests

MOST: Final = 1000
"""Clients that are shown beside observers: who says to be one costs nothing."""


class CoapRows(MarkedRows):
    """Offers the source `$live/<name>` to `followers`, whose links come through the router."""

    def __init__(
        self, name: str, requests: CoapRequests, refusals: Refusals, followers: set[LiveLink], clock: Clock
    ) -> None:
        super().__init__(name, "coap_gateway", lambda: followers, clock)
        refusals.seen = self.rows.event
        self._requests = requests
        self._clock = clock

    def _all(self) -> Iterator[tuple[str, str, Any, Any]]:
        observations = list(self._requests.observations.all)
        endpoints = {each.endpoint for each in observations}
        sending = (each for each in self._requests.memory.endpoints.values() if each.messages_in)
        endpoints.update(islice(sending, MOST))
        for endpoint in endpoints:
            mark = endpoint.messages_in, endpoint.messages_out, len(endpoint.observations)
            yield "connections", endpoint.name, mark, endpoint
        for each in observations:
            yield "links", f"{each.endpoint.name}/{each.token.hex()}", (each.sent, each.dropped), each

    def _row(self, of: CoapEndpoint | CoapObservation) -> Row:
        return self._connection(of) if isinstance(of, CoapEndpoint) else _link(of)

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
