"""configserv's status feed and its `force` target (docs/contracts.md), over the control plane's AMQP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import msgspec

from enmasse.control import ControlConnection, ControlError, keep_connected
from enmasse.control.feeds import encode_message, follow
from enmasse.identity.processes.credentials import Credential
from enmasse.process.settings import host_port
from enmasse.storage.decoding import decode

MAX_SNAPSHOT = 256 << 20
"""Bytes: 10,000 addresses take about 3 MB."""
FORCE_TIMEOUT = 10.0


class _Address(msgspec.Struct):
    """Name and readiness in a feeds.AddressStatus, which the suite needs at each change."""

    name: str
    ready: bool = False


class _Changes(msgspec.Struct):
    """Message of the feed `status/changes`, whose entries are not decoded."""

    schema: int
    full: bool
    addresses: list[msgspec.Raw]
    removed: list[str]
    config: dict[str, str] = {}
    errors: list[dict[str, Any]] = []


class _Space(msgspec.Struct):
    gateways: int = 0
    routers: int = 0


class _Spaces(msgspec.Struct):
    """Message of the feed `spaces`, of which the suite needs the processes."""

    spaces: dict[str, _Space] = {}


class AddressTexts:
    """The status of each address, decoded while it is iterated over: as JSON it takes a quarter of the memory."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        self._texts = texts

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(msgspec.json.Decoder(dict[str, Any]).decode, self._texts)

    def raw(self) -> list[msgspec.Raw]:
        """Return them for a text of JSON."""
        return [*map(msgspec.Raw, self._texts)]


class StatusFeed:
    """Follows the status feed of configserv at `address` (host:port), reconnecting after losses. `credential`: the
    supervisor's."""

    def __init__(self, address: str, credential: Credential | None = None) -> None:
        self.body: dict[str, Any] | None = None
        self.attached = False
        self.spaces: frozenset[str] | None = None
        """The address spaces beside the default one; None: they are not known yet."""
        self.gateways: dict[str, int] | None = None
        self.routers: dict[str, int] | None = None
        """Address space → the number of processes of its own; None: it is not known yet."""
        self._addresses: dict[str, bytes] = {}
        self._unready: dict[str, bytes] = {}
        self._host, self._port = host_port(address)
        self._credential = credential
        self._connection: ControlConnection | None = None
        self._changed: Callable[[], None] = lambda: None

    async def run(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each snapshot and each loss, until cancelled."""
        self._changed = changed
        await keep_connected(
            self._host,
            self._port,
            self._follow,
            container="supervisor",
            credential=self._credential,
            max_message_size=MAX_SNAPSHOT,
        )

    async def _follow(self, connection: ControlConnection) -> None:
        self._connection = connection
        try:
            follow(connection, "status/changes", self._taken, _Changes).on_closed = lambda _: (
                connection.close()
            )  # then start over
            follow(connection, "spaces", self._spaces_taken, _Spaces)
            await connection.wait_closed()
        finally:
            self._connection, self.attached = None, False
            self._changed()

    def _taken(self, body: _Changes) -> None:
        if body.schema != 1:
            raise ValueError("expected schema 1")
        texts = [*map(bytes, body.addresses)]
        heads = [decode(text, _Address) for text in texts]
        if body.full:
            self._addresses.clear()
            self._unready.clear()
        for head, text in zip(heads, texts, strict=True):
            self._addresses[head.name] = text
            if head.ready:
                self._unready.pop(head.name, None)
            else:
                self._unready[head.name] = text
        for name in body.removed:
            self._addresses.pop(name, None)
            self._unready.pop(name, None)
        self.body = {
            "config": body.config,
            "errors": body.errors,
            "addresses": AddressTexts(self._addresses.values()),
            "unready": AddressTexts(self._unready.values()),
        }
        self.attached = True
        self._changed()

    def _spaces_taken(self, body: _Spaces) -> None:
        self.spaces = frozenset(body.spaces)
        self.gateways = {name: space.gateways for name, space in body.spaces.items() if space.gateways}
        self.routers = {name: space.routers for name, space in body.spaces.items() if space.routers}
        self._changed()

    async def force(self, names: list[str]) -> str | None:
        """Have configserv discard the messages of these addresses. Return the reason if it refused."""
        if self._connection is None:
            return "the configuration service is not reached; try again"
        message = encode_message("", {"addresses": names})
        try:
            with closing(self._connection.sender("force")) as sender:
                async with asyncio.timeout(FORCE_TIMEOUT):
                    outcome = await sender.deliver(message)
        except (ControlError, TimeoutError) as error:
            return f"the configuration service did not take it: {error or 'no answer'}"
        return None if outcome.accepted else f"the configuration service refused: {outcome.description or outcome}"
