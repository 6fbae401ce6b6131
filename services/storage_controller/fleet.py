"""Computes the desired brokers, and which of them may carry an address. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from enmasse.model.addresses import Address
from enmasse.model.feeds import BrokerEndpoint
from enmasse.model.flavors import Flavor
from enmasse.model.names import AddressName, space_of, space_prefix
from services.storage_controller import naming


def brokers_for(name: AddressName, flavor_name: str, flavor: Flavor, *, brokered: bool = False) -> list[str]:
    """Return the brokers that may carry the address `name` of this flavor, in their order. `brokered`: it is of a
    brokered space, all of whose addresses are at one of them."""
    parameters = flavor.template_parameters
    if parameters.host is not None:
        return [naming.by_hand(parameters.host, parameters.port)]
    if parameters.dedicated:
        return [naming.dedicated(flavor_name, _owner(name, brokered=brokered))]
    return pool(flavor_name, flavor)


def pool(flavor_name: str, flavor: Flavor) -> list[str]:
    """Return the shared brokers of a flavor."""
    return [naming.pooled(flavor_name, index) for index in range(flavor.template_parameters.brokers)]


def by_hand(flavors: Mapping[str, Flavor]) -> dict[str, BrokerEndpoint]:
    """Return broker → endpoint for the brokers that flavors name, which are managed by hand."""
    found = {}
    for flavor in flavors.values():
        host, port = flavor.template_parameters.host, flavor.template_parameters.port
        if host is not None:
            found[naming.by_hand(host, port)] = BrokerEndpoint(host=host, port=port, by_hand=True)
    return found


def keeps_sessions(flavors: Mapping[str, Flavor]) -> set[str]:
    """Return the brokers managed by hand that flavors of topics name: they may hold queues of subscribers."""
    return set(by_hand({name: flavor for name, flavor in flavors.items() if flavor.type == "topic"}))


def wanted(addresses: Mapping[AddressName, Address], flavors: Mapping[str, Flavor]) -> dict[str, str]:
    """Return broker → flavor for all brokers to create. A flavor without addresses has no brokers."""
    found: dict[str, str] = {}
    seen: set[str] = set()
    for name, address in addresses.items():
        flavor_name = address.flavor
        if flavor_name is None or not address.stored:
            continue
        flavor = flavors.get(flavor_name)
        if flavor is None or flavor.by_hand:
            continue
        if flavor.template_parameters.dedicated:
            found[naming.dedicated(flavor_name, _owner(name, brokered=address.brokered))] = flavor_name
        elif flavor_name not in seen:
            seen.add(flavor_name)
            found.update(dict.fromkeys(pool(flavor_name, flavor), flavor_name))
    return found


def _owner(name: AddressName, *, brokered: bool) -> AddressName:
    """Return whose a dedicated broker is: the address's, or its brokered space's."""
    return AddressName(space_prefix(space_of(name)).rstrip("/")) if brokered else name


def least_loaded(brokers: Iterable[str], load: Mapping[str, int]) -> str | None:
    """Return the broker with the fewest addresses, the first of equals; None without brokers."""
    return min(brokers, key=lambda broker: load.get(broker, 0), default=None)
