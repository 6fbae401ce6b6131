"""The router's metrics: by the names that Qpid Dispatch gives them, and by address (docs/metrics.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from enmasse.identity.principal import ANONYMOUS
from enmasse.metrics import connections, counter, gauge, labelled, largest, single
from enmasse.process.settings import METRICS_ADDRESSES
from services.router.routing.addresses.traffic import FIELDS
from services.router.routing.router import Router

if TYPE_CHECKING:
    from prometheus_client.core import Metric


OUTCOMES = ("accepted", "rejected", "released", "modified")


def families(router: Router, most: int = METRICS_ADDRESSES) -> Iterator[Metric]:
    """Yield the metrics by the names of Dispatch, of the network, by address and by user. `most`: addresses."""
    yield from totals(router)
    yield from of_network(router)
    yield from by_address(router, most)
    users: Counter[tuple[str, str]] = Counter()
    for connection in router.connections.values():
        if connection.dir == "out":
            continue
        role = "" if connection.rights is None or not connection.rights.of_process else "process"
        users[role or connection.role, "" if role else connection.amqp.user or ANONYMOUS] += 1
    clients = {user: n for (role, user), n in users.items() if role == "normal"}
    yield connections("amqp", clients)


def of_network(router: Router) -> Iterator[Metric]:
    """Yield how this router reaches the other ones: MAX_ROUTERS of the mesh at most."""
    engine = router.network.engine
    neighbours = len(engine.neighbours.routers())
    yield gauge("enmasse_router_neighbours", "Routers with a connection to this one.", single(neighbours))
    costs = [({"router": name}, cost) for name, cost in engine.topology.costs.items()]
    yield gauge("enmasse_router_path_cost", "Cost of the shortest path to another router.", costs)


def by_address(router: Router, most: int) -> Iterator[Metric]:
    """Yield what clients have sent to addresses and received from them over this router."""
    traffic = router.traffic
    using: dict[str, list[int]] = {}
    for record in router.client_links():
        name, _ = traffic.look(record)
        if name is not None:
            using.setdefault(name, [0, 0])[record.direction == "out"] += 1
    none = [0] * len(FIELDS)
    rows = {name: [*traffic.totals.get(name, none), *using.get(name, (0, 0))] for name in {*traffic.totals, *using}}
    shown = [
        (labelled("address", name), [sum(column) for column in zip(*some, strict=True)])
        for name, some in largest(rows, most, lambda row: row[0] + row[8])
    ]
    for field, name, help_text in (
        ("in", "messages_in", "Messages that clients have sent."),
        ("bytesIn", "bytes_in", "Bytes of the messages that clients have sent."),
        ("out", "messages_out", "Messages that clients were sent."),
        ("bytesOut", "bytes_out", "Bytes of the messages that clients were sent."),
        ("dropped", "dropped", "Messages that came settled and reached no receiver."),
    ):
        at = FIELDS.index(field)
        yield counter(f"enmasse_router_{name}_total", help_text, [(labels, row[at]) for labels, row in shown])
    for prefix, name, help_text in (
        ("", "outcomes", "Outcomes of the messages that clients have sent."),
        ("out", "receiver_outcomes", "Outcomes that receivers have stated."),
    ):
        columns = [(each, FIELDS.index(prefix + (each.capitalize() if prefix else each))) for each in OUTCOMES]
        yield counter(
            f"enmasse_router_{name}_total",
            help_text,
            [({**labels, "outcome": each}, row[at]) for labels, row in shown for each, at in columns],
        )
    for at, name in ((-2, "producers"), (-1, "consumers")):
        yield gauge(f"enmasse_router_{name}", f"Links of {name} now.", [(labels, row[at]) for labels, row in shown])


def totals(router: Router) -> Iterator[Metric]:
    """Gauges and counters of the whole router, without labels."""
    total = router.totals()
    links = sum(len(connection.links) for connection in router.connections.values())
    for name, help_text, value in (
        ("connections", "Connections now: of clients, brokers and the agent.", len(router.connections)),
        ("links", "Links attached now.", links),
        ("addresses", "Addresses the router knows.", len(router.addresses)),
        ("routers", "Routers of the network that this one knows.", 1 + len(router.network.engine.topology.costs)),
        ("link_routes", "Link routes configured.", len(router.link_routes.by_name)),
        ("auto_links", "Auto-links configured.", len(router.auto_links.by_name)),
        ("deliveries_stuck", "Deliveries that have been unsettled for 10 seconds.", total.stuck),
        ("links_blocked", "Links that have had no credit for 10 seconds.", router.links_blocked()),
    ):
        yield gauge(f"qdr_{name}_total", help_text, single(value))
    for name, help_text, value in (
        ("presettled_deliveries", "Deliveries that arrived settled.", total.presettled),
        ("dropped_presettled_deliveries", "Deliveries that arrived settled and reached no receiver.", total.dropped),
        ("accepted_deliveries", "Deliveries whose outcome is accepted.", total.accepted),
        ("released_deliveries", "Deliveries whose outcome is released.", total.released),
        ("rejected_deliveries", "Deliveries whose outcome is rejected.", total.rejected),
        ("modified_deliveries", "Deliveries whose outcome is modified.", total.modified),
        ("deliveries_ingress", "Deliveries received.", total.ingress),
        ("deliveries_egress", "Deliveries sent.", total.egress),
        ("deliveries_transit", "Deliveries passed on to other routers.", total.transit),
        ("deliveries_ingress_route_container", "Deliveries received from brokers.", total.ingress_containers),
        ("deliveries_egress_route_container", "Deliveries sent to brokers.", total.egress_containers),
        ("deliveries_delayed_1sec", "Deliveries settled after more than 1 second.", total.delayed1),
        ("deliveries_delayed_10sec", "Deliveries settled after more than 10 seconds.", total.delayed10),
        ("deliveries_redirected_to_fallback", "Deliveries sent to a fallback destination.", 0),
    ):
        yield counter(f"qdr_{name}_total", help_text, single(value))
