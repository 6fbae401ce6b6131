"""Pages of a router's tables: answers of a QUERY, and the counts of consumers in the router's addresses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from enmasse.control import ControlError, Reply
from enmasse.model.address_types import TYPES, AddressType
from enmasse.model.names import AddressName, WireName, address_name


class ConsumerPage(NamedTuple):
    """A page of the router's addresses: digest, number of rows, and address key → subscribers where there are any."""

    digest: int
    rows: int
    counts: dict[str, int]


class ConsumerCounts:
    """Number of receivers of each address on this router (receivers of topics are counted by the broker).

    `kind(name)`: the desired type of an address, None if it is not desired. `changed(names)`: their counts differ.
    """

    def __init__(
        self, kind: Callable[[AddressName], AddressType | None], changed: Callable[[set[AddressName]], None]
    ) -> None:
        self.found: dict[AddressName, int] = {}
        self._kind = kind
        self._changed = changed
        self._pages: list[ConsumerPage] = []
        self._number = 0

    async def page(self, query: Callable[[int, int], Awaitable[Reply]], size: int) -> tuple[int, bool]:
        """Read the next page by `query(offset, count)`. Return its number of rows, and whether it was the last.

        Raises ControlError.
        """
        number = self._number
        reply = await query(number * size, size)
        if number == len(self._pages) or self._pages[number].digest != reply.digest:
            self._pages[number : number + 1] = [consumer_page(reply)]
        count = self._pages[number].rows
        if count == size:
            self._number += 1
            return count, False
        del self._pages[number + 1 :]
        self._number = 0
        self._sum_up()
        return count, True

    def _sum_up(self) -> None:
        found: dict[AddressName, int] = {}
        for page in self._pages:
            for key, consumers in page.counts.items():
                # Consumers of a waypoint are at its last phase; its first phase has the auto-link to the broker.
                name = address_name(WireName(key[2:]))
                kind = self._kind(name)
                if kind is None or TYPES[kind].levels:
                    continue
                if key[:2] == ("M1" if TYPES[kind].stored else "M0"):
                    found[name] = consumers
        old, self.found = self.found, found
        self._changed({name for name in old.keys() | found.keys() if old.get(name) != found.get(name)})


def consumer_page(reply: Reply) -> ConsumerPage:
    """Decode a page of the router's addresses. Raises ControlError, or ValueError if the answer is malformed."""
    names, rows = results(reply)
    at, count_at = names.index("key"), names.index("subscriberCount")
    found = {row[at]: row[count_at] for row in rows if isinstance(row[at], str) and row[count_at]}
    return ConsumerPage(reply.digest, len(rows), {key: int(n) for key, n in found.items() if isinstance(n, int)})


def results(reply: Reply) -> tuple[list[str], list[list[Any]]]:
    """Return columns and rows of the answer to a QUERY. Raises ControlError if it is malformed."""
    body = reply.body
    if not isinstance(body, dict) or not isinstance(body.get("results"), list):
        raise ControlError("amqp:decode-error", "QUERY: the reply has no results")
    return list(body.get("attributeNames") or ()), body["results"]
