"""Addresses: making, changing, deleting and listing them (Artemis' ActiveMQServerControl); AddressControl."""

from __future__ import annotations

from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.queues.queue import Queue
from services.broker.management import rows
from services.broker.management.calls import CallContext, Operations
from services.broker.management.routing_types import routing_types

broker = Operations()
one = Operations()


@broker.add("createAddress", "ss")
def create_address(c: CallContext, name: str, kinds: str) -> str:
    """Create an address; `kinds` are routing types with commas. Raises BrokerError if it exists or has a bad name."""
    address = c.broker.catalogue.create_address(name, routing_types(kinds))
    return f"Address [name={name}, routingTypes={{{', '.join(sorted(address.routing_types))}}}, autoCreated=false]"


@broker.add("deleteAddress", "s")
def delete_address(c: CallContext, name: str) -> None:
    """Delete an address. Raises BrokerError if it has queues or does not exist."""
    c.broker.catalogue.delete_address(name)


@broker.add("deleteAddress", "sb")
def delete_address_2(c: CallContext, name: str, force: bool) -> None:
    """Delete an address, with `force` its queues as well. Raises BrokerError if it does not exist."""
    c.broker.catalogue.delete_address(name, force=force)


@broker.add("getAddressNames")
def get_address_names(c: CallContext) -> list[str]:
    """Return the names of all addresses."""
    return list(c.broker.catalogue.addresses)


@broker.add("listAddresses", "Sii")
def list_addresses(c: CallContext, options: str | None, page: int, page_size: int) -> str:
    """Return a page of addresses as JSON, with filter and order as Artemis reads them in `options`."""

    def row(address: BrokerAddress) -> dict[str, str]:
        return rows.address_row(
            address, c.broker.catalogue.queues_of(address).values(), c.broker.admission.full_policy(address)
        )

    return rows.list_rows(c.broker.catalogue.addresses.values(), row, options, page, page_size)


# -- one address -------------------------------------------------------------------------------------------------------
def _queues(c: CallContext, a: BrokerAddress) -> list[Queue]:
    return list(c.broker.catalogue.queues_of(a).values())


@one.add("getQueueNames")
def get_queue_names(c: CallContext, a: BrokerAddress) -> list[str]:
    """Return the names of the queues of an address."""
    return [q.name for q in _queues(c, a)]


@one.add("getRoutingTypes")
def get_routing_types(c: CallContext, a: BrokerAddress) -> list[str]:
    """Return the routing types of an address."""
    return sorted(a.routing_types)


@one.add("pause")
def pause_address(c: CallContext, a: BrokerAddress) -> None:
    """Stop delivery from the queues of an address."""
    a.paused = True
    for q in _queues(c, a):
        c.broker.catalogue.pause_queue(q, True)


@one.add("resume")
def resume_address(c: CallContext, a: BrokerAddress) -> None:
    """Deliver again from the queues of an address."""
    a.paused = False
    for q in _queues(c, a):
        c.broker.catalogue.pause_queue(q, False)
