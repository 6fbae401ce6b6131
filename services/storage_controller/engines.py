"""What differs between broker products, in one table: nothing else in the controller asks which product it manages.

All are managed as Apache ActiveMQ Artemis is (`activemq.management`), with its names of settings and its error codes.
What a product has not is refused here, with the reason; what is only different is in docs/engines.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from enmasse.model.addresses import Address
from enmasse.model.flavors import Flavor


class Engine(NamedTuple):
    """One product's capabilities, as far as the controller depends on them."""

    name: str
    duplicates_by_address: bool
    """Recognises copies by their message-id for a single address, by an address setting (else for a whole acceptor)."""
    levels_exist: bool
    """What lies below a topic (`topic/a/b`) exists with the topic; else it is an address that has to be made."""
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
    # The ids by which repeated messages are known go with the level: Artemis deletes levels at each start, and in use.
    "autoDeleteAddresses": False,
    # They are in the heap, some 200 bytes each, for each level.
    "idCacheSize": 2000,
}
"""Settings below a topic if the levels have to be made: by their first sender or receiver. `Levels` deletes them."""

NO_LEVEL: dict[str, Any] = {"autoCreateAddresses": False}
"""Setting of the topic itself: the controller makes it."""


def cannot_store(engine: Engine, address: Address) -> str:
    """Why a broker of this product cannot do what is asked for an address, and what to do; empty: it can."""
    if address.duplicates is not None and not engine.duplicates_by_address:
        return (
            f"duplicates: brokers of engine {engine.name} do not compare message-ids for a single address;"
            " remove it (senders can set the application property _AMQ_DUPL_ID)"
        )
    return ""


def cannot_run(engine: Engine, name: str, flavor: Flavor) -> str:
    """Why this product has no brokers of a flavor, and what to do; empty: it has."""
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
