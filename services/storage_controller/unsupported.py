"""Refusals of addresses and flavors that a broker product cannot provide. Other differences are in docs/engines.md."""

from __future__ import annotations

import msgspec

from enmasse.engines.engine import BrokerEngine
from enmasse.model.addresses import Address
from enmasse.model.flavors import Flavor


def cannot_store(engine: BrokerEngine, address: Address) -> str:
    """Return why this product cannot provide an address as defined, and what to do; empty if it can."""
    if address.duplicates is not None and not engine.duplicates_by_address:
        return (
            f"duplicates: brokers of engine {engine.name} do not compare message-ids for a single address;"
            " remove it (senders can set the application property _AMQ_DUPL_ID)"
        )
    return ""


def cannot_run(engine: BrokerEngine, name: str, flavor: Flavor) -> str:
    """Return why this product cannot run brokers of a flavor, and what to do; empty if it can."""
    parameters = flavor.template_parameters
    stated = next((key for key in msgspec.to_builtins(parameters) if key in engine.refused), None)
    if stated is not None:
        return f"flavor {name}: {stated}: brokers of engine {engine.name} {engine.refused[stated]}"
    if parameters.full_policy == "BLOCK" and parameters.storage_capacity is not None and not engine.blocks_at_capacity:
        return (
            f"flavor {name}: FULL_POLICY BLOCK with STORAGE_CAPACITY: brokers of engine {engine.name} reject (FAIL) or"
            " drop (DROP) what the disk is not to hold; choose one of these, or remove STORAGE_CAPACITY"
        )
    return ""
