"""The gateway's metrics (docs/metrics.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from enmasse.bridge.bridge import Bridge
from enmasse.bridge.lanes import Counters
from enmasse.bridge.space_lanes import SpaceLanes
from enmasse.metrics import connections, counter, gauge, single
from services.coap_gateway.coap_requests import CoapRequests

if TYPE_CHECKING:
    from prometheus_client.core import Metric


def families(requests: CoapRequests, bridge: Bridge[SpaceLanes], counters: Counters) -> Iterator[Metric]:
    """Yield the metrics of a gateway."""
    memory, uploads, observations = requests.memory, requests.uploads, requests.observations
    yield gauge("coap_endpoints", "Endpoints of which something is remembered.", single(len(memory.endpoints)))
    users = Counter(each.user for each in memory.endpoints.values() if each.user)
    yield connections("coap", users)
    answers = [({"code": number}, n) for number, n in memory.counts().items()]
    yield counter("coap_answers_total", "Answers to requests, by their code.", answers)
    events = [({"what": what}, n) for what, n in sorted(memory.events.items())]
    yield counter("coap_datagrams_total", "Datagrams out of the ordinary, by what they were.", events)
    outcomes = [({"outcome": outcome.name.lower()}, n) for outcome, n in requests.outcomes.items()]
    yield counter("coap_messages_total", "Messages from clients, by their outcome.", outcomes)
    yield gauge("coap_observations", "Observations of clients.", single(len(observations.all)))
    sent = [({"outcome": outcome}, n) for outcome, n in sorted(observations.counts.items())]
    yield counter("coap_notifications_total", "Messages to observers, by what became of them.", sent)
    yield gauge("coap_uploads", "Messages whose blocks are not complete.", single(len(uploads)))
    yield counter(
        "coap_uploads_given_up_total", "Messages whose blocks did not become complete.", single(uploads.given_up)
    )
    kept = {"remembered": memory.kept, "uploads": uploads.kept, "sent": requests.kept, "observers": observations.kept}
    yield gauge(
        "coap_kept_bytes", "Bytes that are kept, by what for.", [({"for": what}, n) for what, n in kept.items()]
    )
    yield from bridge.families("coap", counters)
