"""The embedded broker: browses behind an id, and works in portions with a cursor (docs/contracts.md)."""

from __future__ import annotations

import base64

import msgspec

from enmasse.control import Artemis
from enmasse.engines.messages.product import Order, Progress, WaitingMessage

IDS = 200
"""Messages by id in one request."""
PORTION = 2000
"""Messages that a broker looks at before the console asks for more."""


class _Row(msgspec.Struct):
    """A row of `browseMessages`. `payload`: Base64."""

    id: int
    size: int
    durable: bool
    priority: int
    expires: int
    attempts: int
    body: int
    cut: bool
    payload: str


class _Browsed(msgspec.Struct):
    messages: list[_Row]
    more: bool


class Embedded:
    """Implements Product."""

    exchanges = True
    apart = False

    async def browse(
        self, management: Artemis, queue: str, after: int, limit: int, most: int, selector: str = ""
    ) -> tuple[list[WaitingMessage], bool]:
        """Return messages, oldest first."""
        wanted = (selector,) if selector else ()  # brokers of before know no selector here
        text = await management.invoke(f"queue.{queue}", "browseMessages", after, limit, most, *wanted)
        found = msgspec.json.decode(text, type=_Browsed)
        return [_waiting(row) for row in found.messages], found.more

    async def work(self, management: Artemis, order: Order, progress: Progress) -> None:
        """Do the work, portion by portion."""
        ids, at, cursor = order.ids, 0, None
        while not progress.stopped and (order.limit is None or progress.done < order.limit):
            portion = {
                "operation": order.operation,
                "ids": None if ids is None else ids[at : at + IDS],
                "filter": order.selector, "to": order.to, "sources": [*order.here, *order.elsewhere],
                "cursor": cursor, "most": PORTION,
                "limit": None if order.limit is None else order.limit - progress.done,
            }  # fmt: skip
            done, cursor = await management.invoke(f"queue.{order.queue}", "workOnMessages", portion)
            progress.done += done
            at += IDS
            if cursor is None and (ids is None or at >= len(ids)):
                break


def _waiting(row: _Row) -> WaitingMessage:
    return WaitingMessage(
        row.id, row.size, row.durable, row.priority, row.expires, row.attempts,
        base64.b64decode(row.payload), row.body, row.cut,
    )  # fmt: skip
