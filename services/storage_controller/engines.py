"""Table of the differences between broker products: no other module of the controller depends on the product.

All products are managed as Apache ActiveMQ Artemis is (`activemq.management`), with its names of settings and its
error codes. Settings that a product lacks are refused here, with the reason; other differences are in docs/engines.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from enmasse.model.addresses import Address
from enmasse.model.flavors import Flavor


class Engine(NamedTuple):
    """One product's capabilities, as far as the controller depends on them."""

    name: str
    duplicates_by_address: bool
    """Detects duplicates by message-id for a single address, by an address setting (otherwise for a whole acceptor)."""
    levels_exist: bool
    """Levels below a topic (`topic/a/b`) exist with the topic; otherwise each is an address that has to be created."""
    limits_subscriptions: bool
    """Bounds the durable subscriptions of one client (MAX_SUBSCRIPTIONS)."""
    blocks_at_capacity: bool
    """Can make producers wait when its disk space is used up (STORAGE_CAPACITY with FULL_POLICY BLOCK)."""


EMBEDDED = Engine(
    "embedded", duplicates_by_address=True, levels_exist=True, limits_subscriptions=True, blocks_at_capacity=True
)
ARTEMIS = Engine(
    "artemis", duplicates_by_address=False, levels_exist=False, limits_subscriptions=False, blocks_at_capacity=False
)
BY_NAME = {engine.name: engine for engine in (EMBEDDED, ARTEMIS)}

LEVELS: dict[str, Any] = {
    "autoCreateAddresses": True,
    # Deleting a level deletes the message-ids used to detect duplicates; Artemis deletes levels at start and while in
    # use.
    "autoDeleteAddresses": False,
    # Ids are kept in the heap, some 200 bytes each, for each level.
    "idCacheSize": 2000,
}
"""Settings below a topic if its levels are created by their first sender or receiver. `Levels` deletes them."""

NO_LEVEL: dict[str, Any] = {"autoCreateAddresses": False}
"""Setting of the topic itself, which the controller creates."""


def cannot_store(engine: Engine, address: Address) -> str:
    """Return why this product cannot provide an address as defined, and what to do; empty if it can."""
    if address.duplicates is not None and not engine.duplicates_by_address:
        return (
            f"duplicates: brokers of engine {engine.name} do not compare message-ids for a single address;"
            " remove it (senders can set the application property _AMQ_DUPL_ID)"
        )
    return ""


def cannot_run(engine: Engine, name: str, flavor: Flavor) -> str:
    """Return why this product cannot run brokers of a flavor, and what to do; empty if it can."""
    parameters = flavor.template_parameters
    if parameters.max_subscriptions is not None and not engine.limits_subscriptions:
        wrong = "MAX_SUBSCRIPTIONS: brokers of engine {} do not limit the durable subscriptions of a client; remove it"
    elif (
        parameters.full_policy == "BLOCK" and parameters.storage_capacity is not None and not engine.blocks_at_capacity
    ):
        wrong = (
            "FULL_POLICY BLOCK with STORAGE_CAPACITY: brokers of engine {} reject (FAIL) or drop (DROP) what the disk"
            " is not to hold; choose one of these, or remove STORAGE_CAPACITY"
        )
    else:
        return ""
    return f"flavor {name}: {wrong.format(engine.name)}"
