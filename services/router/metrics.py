"""The router's metrics, by the names that Qpid Dispatch gives them (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from enmasse.metrics import counter, gauge, single
from services.router.routing.router import Router

if TYPE_CHECKING:
    from prometheus_client.core import Metric


def families(router: Router) -> Iterator[Metric]:
    """Gauges and counters of the whole router, without labels."""
    total = router.totals()
    links = sum(len(connection.links) for connection in router.connections.values())
    for name, help_text, value in (
        ("connections", "Connections now: of clients, brokers and the agent.", len(router.connections)),
        ("links", "Links attached now.", links),
        ("addresses", "Addresses the router knows.", len(router.addresses)),
        ("routers", "Routers of the network that this one knows.", 1),
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
        ("deliveries_transit", "Deliveries passed on to other routers.", 0),
        ("deliveries_ingress_route_container", "Deliveries received from brokers.", total.ingress_containers),
        ("deliveries_egress_route_container", "Deliveries sent to brokers.", total.egress_containers),
        ("deliveries_delayed_1sec", "Deliveries settled after more than 1 second.", total.delayed1),
        ("deliveries_delayed_10sec", "Deliveries settled after more than 10 seconds.", total.delayed10),
        ("deliveries_redirected_to_fallback", "Deliveries sent to a fallback destination.", 0),
    ):
        yield counter(f"qdr_{name}_total", help_text, single(value))
