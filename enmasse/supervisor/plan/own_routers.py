"""Names and ports of the routers that address spaces have of their own."""

from __future__ import annotations

from collections.abc import Mapping

from enmasse.engines.engine import MOST_ROUTERS
from enmasse.supervisor.plan.internal_ports import InternalPorts
from enmasse.supervisor.plan.services import AMQP_PROTOCOLS, ROUTER_KIND, router_name


def own_routers(wanted: Mapping[str, int], before: Mapping[str, str], shared: int) -> tuple[dict[str, str], list[str]]:
    """Return router → address space for these numbers of routers, and the spaces that have fewer than they want: a
    suite has MOST_ROUTERS, of which `shared` are for all. Routers of `before` stay; new ones have the last free names,
    whose ports services and console know."""
    found: dict[str, str] = {}
    left = dict(wanted)
    names = [router_name(number) for number in range(shared, MOST_ROUTERS)]
    for name, space in before.items():
        if left.get(space, 0) > 0 and name in names:
            found[name] = space
            left[space] -= 1
    free = [name for name in names if name not in found]
    for space in sorted(left):
        while left[space] > 0 and free:
            found[free.pop()] = space
            left[space] -= 1
    return found, [space for space, count in left.items() if count > 0]


def forget_routers_of(ports: InternalPorts, space: str) -> None:
    """Release the ports of an address space that has no routers of its own any longer."""
    for protocol in AMQP_PROTOCOLS:
        ports.release(f"{ROUTER_KIND}-{space}/{protocol}")
