"""Older bodies of EnMasse: the map of feed `maas` and the AddressList of feed `v1/addresses`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from enmasse.model.addresses import Address
from enmasse.model.names import AddressName


def address_map(addresses: Mapping[AddressName, Address]) -> bytes:
    """`{name: {"store_and_forward", "multicast"}}`."""
    return msgspec.json.encode(
        {
            name: {"store_and_forward": address.stored, "multicast": address.multicast}
            for name, address in addresses.items()
        }
    )


def address_list(addresses: Mapping[AddressName, Address], ready: Mapping[AddressName, bool]) -> bytes:
    """Encode the AddressList. Flavors stand for plans; addresses without storage have the plan `standard`."""
    items = [
        {
            "metadata": {"name": name},
            "spec": {"address": name, "type": address.type, "plan": address.flavor or "standard"},
            "status": {"isReady": ready.get(name, False)},
        }
        for name, address in addresses.items()
    ]
    return msgspec.json.encode({"apiVersion": "enmasse.io/v1", "kind": "AddressList", "items": items})
