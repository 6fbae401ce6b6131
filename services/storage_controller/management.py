"""What the controller asks of a broker's management (`activemq.management`, as Apache ActiveMQ Artemis has it)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterable
from typing import Any

from enmasse.control import Artemis, ControlConnection, ControlError, RequestFailed
from enmasse.control.listings import EVERYTHING, AddressRow, Listings, address_rows, read_listings
from enmasse.model.names import AddressName, WireName, address_name, wire_name
from services.storage_controller.contents import USER

EXISTS = ("AMQ229019", "AMQ229204")
"""Codes of refusals that state that it is there already."""
GONE = ("AMQ229017", "AMQ229203")
"""Codes of refusals that state that it is not there."""
_ROUTING = {"queue": "ANYCAST", "topic": "MULTICAST"}


class BrokerManagement:
    """One broker's management; addresses are named as in the configuration. Every method raises RequestFailed if the
    broker refuses, ControlError if it does not answer, or not as it should.
    """

    def __init__(self) -> None:
        self._node: Artemis

    async def open(self, connection: ControlConnection) -> None:
        """Begins on a connection; after a failure once more."""
        self._node = Artemis(connection)
        await self._node.opened()

    def close(self) -> None:
        """Detaches its links."""
        self._node.close()

    async def listings(self) -> Listings:
        return await read_listings(self._node)

    def create(self, name: AddressName, kind: str) -> Awaitable[Any]:
        """Makes a durable queue, or a topic."""
        if kind == "topic":
            return self._node.invoke("broker", "createAddress", _wire(name), _ROUTING[kind])
        configuration = {
            "name": _wire(name),
            "address": _wire(name),
            "routing-type": _ROUTING[kind],
            "durable": True,
            "user": USER,
            "auto-create-address": True,
        }
        return self._node.invoke("broker", "createQueue", json.dumps(configuration))

    def destroy_queue(self, queue: str) -> Awaitable[Any]:
        """Deletes a queue, by its name on the broker, with its messages, and ends its consumers."""
        return self._node.invoke("broker", "destroyQueue", queue, True, True)

    def delete_address(self, name: AddressName) -> Awaitable[Any]:
        """Deletes a topic with what subscribes to it."""
        return self._node.invoke("broker", "deleteAddress", _wire(name), True)

    def delete_unbound(self, address: str) -> Awaitable[Any]:
        """Deletes an address, by its name on the broker, if it has no queue."""
        return self._node.invoke("broker", "deleteAddress", address)

    async def addresses(self) -> list[AddressRow]:
        """Every address, those that users of a topic have made below it, too. Raises ValueError as well."""
        text = await self._node.invoke("broker", "listAddresses", *EVERYTHING)
        return address_rows(text) if isinstance(text, str) else []

    async def address_names(self) -> list[AddressName]:
        """Every address, those that users of a topic have made below it, too."""
        names = await self._node.invoke("broker", "getAddressNames")
        return [address_name(WireName(str(name))) for name in names] if isinstance(names, list) else []

    async def mismatch(self, name: AddressName, kind: str) -> str:
        """Why what is there under this name is not of this kind; empty if it is. Raises RequestFailed if none is."""
        what, operation = ("address", "getRoutingTypes") if kind == "topic" else ("queue", "getRoutingType")
        types = await self._node.invoke(f"{what}.{_wire(name)}", operation)
        if _ROUTING[kind] in types:
            return ""
        return f"something else of this name is there already: {types}, not {_ROUTING[kind]}"

    def add_settings(self, match: str, settings: dict[str, Any]) -> Awaitable[Any]:
        return self._node.invoke("broker", "addAddressSettings", match, json.dumps(settings))

    def remove_settings(self, match: str) -> Awaitable[Any]:
        return self._node.invoke("broker", "removeAddressSettings", match)

    async def settings(self, name: AddressName) -> dict[str, Any]:
        """The settings that hold for an address, merged."""
        text = await self._node.invoke("broker", "getAddressSettingsAsJSON", _wire(name))
        read = json.loads(text) if isinstance(text, str) else {}
        return read if isinstance(read, dict) else {}

    async def producers(self) -> set[AddressName]:
        """Addresses to which somebody has a sender."""
        text = await self._node.invoke("broker", "listProducersInfoAsJSON")
        listed = json.loads(text) if isinstance(text, str) else []
        return {address_name(WireName(str(entry.get("destination")))) for entry in listed if isinstance(entry, dict)}


def _wire(name: AddressName) -> str:
    return wire_name(name)


async def all_done(
    under_way: Iterable[tuple[AddressName, Awaitable[Any]]], fine: tuple[str, ...] = ()
) -> dict[AddressName, str]:
    """Waits for all; gives what was refused, by name, but for codes in `fine`. Raises ControlError, ValueError."""
    under_way = list(under_way)
    results = await asyncio.gather(*(work for _, work in under_way), return_exceptions=True)
    refused: dict[AddressName, str] = {}
    for (name, _), result in zip(under_way, results, strict=True):
        if isinstance(result, RequestFailed):
            if not fine or not result.description.startswith(fine):
                refused[name] = result.description[:300]
        elif isinstance(result, BaseException):
            raise result
    return refused


ERRORS = (ControlError, ValueError)
"""After these it is unknown what was done."""
