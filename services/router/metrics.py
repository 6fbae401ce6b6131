"""The router's counters as Prometheus text, by Dispatch's names ."""

from __future__ import annotations

from services.router.routing.core import Router


def text(router: Router) -> str:
    """All gauges and counters, without labels."""
    total = router.totals()
    gauges = {
        "connections": len(router.connections),
        "links": sum(len(c.links) for c in router.connections.values()),
        "addresses": len(router.addresses),
        "routers": 1,
        "link_routes": len(router.link_routes.by_name),
        "auto_links": len(router.autolinks.by_name),
        "deliveries_stuck": total.stuck,
        "links_blocked": router.links_blocked(),
    }
    counters = {
        "presettled_deliveries": total.presettled,
        "dropped_presettled_deliveries": total.dropped,
        "accepted_deliveries": total.accepted,
        "released_deliveries": total.released,
        "rejected_deliveries": total.rejected,
        "modified_deliveries": total.modified,
        "deliveries_ingress": total.ingress,
        "deliveries_egress": total.egress,
        "deliveries_transit": 0,
        "deliveries_ingress_route_container": total.ingress_containers,
        "deliveries_egress_route_container": total.egress_containers,
        "deliveries_delayed_1sec": total.delayed1,
        "deliveries_delayed_10sec": total.delayed10,
        "deliveries_redirected_to_fallback": 0,
    }
    lines = []
    for kind, values in (("gauge", gauges), ("counter", counters)):
        for name, value in values.items():
            lines.append(f"# TYPE qdr_{name}_total {kind}\nqdr_{name}_total {value}\n")
    return "".join(lines)
