"""The gateway's metrics (docs/metrics.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from enmasse.bridge.bridge import Bridge
from enmasse.bridge.lanes import Counters
from enmasse.metrics import connections, counter, gauge, single
from services.http_gateway.api.http_space import HttpSpace
from services.http_gateway.http_door import HttpDoor

if TYPE_CHECKING:
    from prometheus_client.core import Metric


def families(door: HttpDoor, bridge: Bridge[HttpSpace], counters: Counters) -> Iterator[Metric]:
    """Yield the metrics of a gateway."""
    requests = door.requests
    yield gauge("http_connections", "HTTP connections that are open now.", single(len(door.connections)))
    users = Counter(client.login.principal.full_name for client in requests.clients.clients.values())
    yield connections("http", users)
    yield counter(
        "http_requests_total",
        "Requests, by the status of their answers; 0: the client left before.",
        [({"status": str(status)}, count) for status, count in sorted(requests.statuses.items())],
    )
    yield counter(
        "http_messages_total",
        "Messages from clients, by the status of their outcome.",
        [({"status": str(status)}, count) for status, count in sorted(requests.posting.answered.items())],
    )
    locks = requests.receiving.locks
    yield gauge("http_locked_messages", "Messages that clients have and have not settled.", single(len(locks.tokens)))
    ended = [({"outcome": outcome}, count) for outcome, count in sorted(locks.ended.items())]
    yield counter("http_deliveries_total", "Messages to clients, by what became of them.", ended)
    answered = requests.receiving.elsewhere.answered
    asked = [({"status": str(status)}, count) for status, count in sorted(answered.items())]
    text = "Outcomes of messages that another gateway has locked, by the status of their answers."
    yield counter("http_passed_on_total", text, asked)
    streaming = requests.streaming
    yield gauge("http_streams", "Streams of events that are open now.", single(len(streaming.streams)))
    yield gauge("http_streams_kept_bytes", "Bytes of messages that wait for clients.", single(streaming.kept))
    events = [({"outcome": outcome}, count) for outcome, count in sorted(streaming.counts.items())]
    yield counter("http_events_total", "Events of streams, by what became of them.", events)
    requesting = requests.requesting
    yield gauge("http_requests_waiting", "Requests that have no reply yet.", single(sum(requesting.of_user.values())))
    replies = [({"outcome": outcome}, count) for outcome, count in sorted(requesting.answered.items())]
    yield counter("http_replies_total", "Requests that waited for a reply, by what became of them.", replies)
    late = sum(each.replies.late for each in bridge.spaces.values())
    yield counter("http_replies_not_expected_total", "Replies that no request waited for.", single(late))
    yield gauge("http_kept_bytes", "Bytes of bodies without an outcome.", single(requests.posting.kept))
    yield counter("http_not_taken_total", "Settled messages that no receiver took.", single(counters.dropped))
    yield from bridge.families("http", counters)
    yield from bridge.login_families("http")
