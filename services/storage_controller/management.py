"""Management operations that the controller uses on a broker (`activemq.management` of Apache ActiveMQ Artemis)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterable
from typing import Any

import msgspec

from enmasse.control import Artemis, ControlConnection, ControlError, RequestFailed
from enmasse.control.listings import EVERYTHING, AddressRow, Listings, address_rows, read_listings
from enmasse.engines import EMBEDDED
from enmasse.model.names import AddressName, WireName, address_name, wire_name
from enmasse.storage.decoding import decode_any
from services.storage_controller.brokers.broker_contents import USER
from services.storage_controller.brokers.storage_shares import Held, Shares

EXISTS = ("AMQ229019", "AMQ229204")
"""Error codes for an object that exists already."""
GONE = ("AMQ229017", "AMQ229203")
"""Error codes for an object that does not exist."""
_ROUTING = {"queue": "ANYCAST", "topic": "MULTICAST"}


class BrokerManagement:
    """One broker's management; addresses have the names of the configuration. Every method raises RequestFailed if the
    broker refuses, ControlError if it does not answer or its answer is malformed.
    """

    def __init__(self) -> None:
        self._node: Artemis
        self._states_revision = False

    async def open(self, connection: ControlConnection) -> None:
        """Attach to the broker's management on a new connection."""
        self._states_revision = connection.remote_properties.get("engine") == EMBEDDED
        self._node = Artemis(connection)
        await self._node.opened()

    def close(self) -> None:
        """Detach the links."""
        self._node.close()

    async def revision(self) -> str:
        """Return a text that is another one after each change of the listings; empty if the broker does not know it,
        as Artemis."""
        if not self._states_revision:
            return ""
        found = await self._node.invoke("broker", "getRevision")
        return found if isinstance(found, str) else ""

    async def listings(self) -> Listings:
        """Return all addresses and queues of the broker."""
        return await read_listings(self._node)

    def create(self, name: AddressName, kind: str) -> Awaitable[Any]:
        """Create a durable queue, or a topic."""
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
        """Delete a queue, by its name on the broker, with its messages, and disconnect its consumers."""
        return self._node.invoke("broker", "destroyQueue", queue, True, True)

    def delete_address(self, name: AddressName) -> Awaitable[Any]:
        """Delete a topic with its subscriptions."""
        return self._node.invoke("broker", "deleteAddress", _wire(name), True)

    def delete_unbound(self, address: str) -> Awaitable[Any]:
        """Delete an address, by its name on the broker, if it has no queue."""
        return self._node.invoke("broker", "deleteAddress", address)

    async def addresses(self) -> list[AddressRow]:
        """Return every address, including levels that users of a topic have made. Also raises ValueError."""
        text = await self._node.invoke("broker", "listAddresses", *EVERYTHING)
        return address_rows(text) if isinstance(text, str) else []

    async def address_names(self) -> list[AddressName]:
        """Return the name of every address, including levels that users of a topic have made."""
        names = await self._node.invoke("broker", "getAddressNames")
        return [address_name(WireName(str(name))) for name in names] if isinstance(names, list) else []

    async def mismatch(self, name: AddressName, kind: str) -> str:
        """Return why the object of this name is not of this kind; empty if it is. Raises RequestFailed if none
        exists."""
        what, operation = ("address", "getRoutingTypes") if kind == "topic" else ("queue", "getRoutingType")
        types = await self._node.invoke(f"{what}.{_wire(name)}", operation)
        if _ROUTING[kind] in types:
            return ""
        return f"an object of this name exists with another routing type: {types}, not {_ROUTING[kind]}"

    def add_settings(self, match: str, settings: dict[str, Any]) -> Awaitable[Any]:
        """Set the settings of addresses that match, in place of the former ones of the same match."""
        return self._node.invoke("broker", "addAddressSettings", match, json.dumps(settings))

    def remove_settings(self, match: str) -> Awaitable[Any]:
        """Remove the settings of this match."""
        return self._node.invoke("broker", "removeAddressSettings", match)

    async def settings(self, name: AddressName) -> dict[str, Any]:
        """Return the merged settings that apply to an address."""
        text = await self._node.invoke("broker", "getAddressSettingsAsJSON", _wire(name))
        read = decode_any(text) if isinstance(text, str) else {}
        return read if isinstance(read, dict) else {}

    async def share_storage(self, shares: Shares | None) -> dict[str, Held] | None:
        """Give the broker its shares in the storage of address spaces, None: leave them, and return what it holds;
        None: it cannot share, as Artemis. Also raises ValueError."""
        if not self._states_revision:
            return None
        text = await self._node.invoke("broker", "shareSpaceStorage", msgspec.json.encode(shares).decode())
        try:
            return msgspec.json.decode(text if isinstance(text, str) else "", type=dict[str, Held])
        except msgspec.MsgspecError as error:
            raise ValueError(f"the answer about the storage of address spaces: {error}") from None

    async def producers(self) -> set[AddressName]:
        """Return the addresses that have a producer."""
        text = await self._node.invoke("broker", "listProducersInfoAsJSON")
        listed = decode_any(text) if isinstance(text, str) else []
        return {address_name(WireName(str(entry.get("destination")))) for entry in listed if isinstance(entry, dict)}


def _wire(name: AddressName) -> str:
    return wire_name(name)


async def all_done(
    under_way: Iterable[tuple[AddressName, Awaitable[Any]]], fine: tuple[str, ...] = ()
) -> dict[AddressName, str]:
    """Wait for all. Return name → refusal, except for error codes in `fine`. Raises ControlError, ValueError."""
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
"""Errors after which the outcome of a request is unknown."""
