"""Apache ActiveMQ Artemis: messages of queues by its management, their content by a link that browses.

Management lists the first messages of a queue with their ids, and without their bodies; a link brings whole messages,
and no ids (engines.md, "Messages in the console").
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from proton.reactor import Selector

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.messages.message import Message
from enmasse.amqp.messages.scan import front_end
from enmasse.control import Artemis, RequestFailed
from enmasse.control.errors import MESSAGE_SIZE, LinkClosed
from enmasse.engines.messages.product import Order, Progress, WaitingMessage
from enmasse.engines.messages.selector import both, origin_is, translated

LISTED = 200
"""Messages that its management lists (`management-browse-page-size`): the first ones."""
TRIES = 3
"""Looks at a queue that changes, before what is not certain is left out."""
WINDOW = 20
SECONDS, SILENCE = 20.0, 2.0
"""For messages of a look, and between two of them: then consumers have taken the others."""
CONSTRUCTOR = 8
"""Bytes before the content of a body: section, type, length."""
FLUSH = 1000
"""Messages of a transaction. Each is gone from one queue and, if it moves, in the other one, or neither."""
PORTION = 2000
"""Messages that are moved before a job looks whether it is to stop."""
LONG = 3600.0
"""Seconds for the removal of everything, which is one operation."""
AT_ONCE = 50
"""Messages by id under way."""
EMPTY = b"\x00\x53\x77\x40"


class StockArtemis:
    """Implements Product."""

    exchanges = False
    apart = True

    async def browse(
        self, management: Artemis, queue: str, after: int, limit: int, most: int, selector: str = ""
    ) -> tuple[list[WaitingMessage], bool]:
        """Return messages in the order of delivery. Raises RequestFailed behind the last that is listed."""
        rows: list[Row] = []
        contents: dict[int, Content] = {}
        more, known = False, translated(selector)
        for _ in range(TRIES):
            listed = await _listed(management, queue, known)
            at = _behind(listed, after)
            rows = listed[at : at + limit]
            more = at + limit < len(listed)
            if not more and len(listed) >= LISTED:
                more = await management.invoke(f"queue.{queue}", "countMessages", known) > len(listed)
            if not rows:
                break
            seen = await _browsed(management, queue, at + len(rows), most, selector)
            again = await _listed(management, queue, known)
            if [each.id for each in again[: len(seen)]] == [each.id for each in listed[: len(seen)]]:
                contents = {row.id: content for row, content in zip(listed, seen, strict=False)}
                break
            contents = distinct(listed, seen)
        if more and not rows:
            text = f"Artemis lists the first {LISTED} messages of a queue only: consume, move or remove some of these"
            raise RequestFailed(0, text)
        return [_waiting(row, contents.get(row.id)) for row in rows], more

    async def work(self, management: Artemis, order: Order, progress: Progress) -> None:
        """Do the work. Without ids and limit, removal and redrive are one operation, which cannot be stopped."""
        ids, selector = order.ids, translated(order.selector)
        if order.operation == "redrive":
            await _check_elsewhere(management, order)
            if not order.here:
                return
            selector = both(origin_is(order.here), selector)
            if ids is not None:
                known = {row.id for row in await _listed(management, order.queue, selector)}
                ids = [id for id in ids if id in known]
        if ids is not None:
            await _each(management, order, ids, progress)
        elif order.operation == "move":
            await _move(management, order, selector, progress)
        elif order.limit is not None:
            await _some(management, order, selector, progress)
        elif not progress.stopped:
            progress.done += await _everything(management, order, selector)


# -- looking -----------------------------------------------------------------------------------------------------------
class Row(NamedTuple):
    """A row of `listMessages`."""

    id: int
    durable: bool
    priority: int
    expires: int
    message_id: str | None
    created: int | None

    @property
    def mark(self) -> tuple[Any, ...]:
        """Return the fields that row and content of a message both have."""
        return self.durable, self.priority, self.message_id, self.created


class Content(NamedTuple):
    """A message of a link, cut; `size`: before that."""

    payload: bytes
    size: int
    body: int
    cut: bool
    attempts: int
    mark: tuple[Any, ...]


async def _listed(management: Artemis, queue: str, selector: str = "") -> list[Row]:
    rows = await management.invoke(f"queue.{queue}", "listMessages", selector)
    return [
        Row(
            int(row["messageID"]), bool(row.get("durable")), int(row.get("priority", 4)),
            int(row.get("expiration") or 0), _message_id(row.get("userID")), int(row.get("timestamp") or 0) or None,
        )
        for row in rows
    ]  # fmt: skip


def _message_id(text: str | None) -> str | None:
    return None if text is None else text.removeprefix("ID:")


def _behind(rows: Sequence[Row], after: int) -> int:
    """Return the index of the message behind the one with the id `after`; of the first that came later if that has gone
    meanwhile."""
    if not after:
        return 0
    for at, row in enumerate(rows):
        if row.id == after:
            return at + 1
    return next((at for at, row in enumerate(rows) if row.id > after), len(rows))


async def _browsed(management: Artemis, queue: str, count: int, most: int, selector: str) -> list[Content]:
    """Return the content of the first `count` messages that a selector takes; of fewer if others have taken them, or
    one is too large."""
    receiver = management.connection.receiver(queue, window=0, configure=partial(_copies, selector))
    found: list[Content] = []
    try:
        async with asyncio.timeout(SECONDS):
            await receiver.opened()
            receiver.window = min(WINDOW, count)
            receiver.grant(receiver.window)
            while len(found) < count:
                async with asyncio.timeout(SILENCE):
                    delivery = await anext(receiver)
                found.append(_content(delivery.data, most))
                delivery.accept()
    except TimeoutError:
        pass
    except LinkClosed as error:
        if error.condition not in (MESSAGE_SIZE, "detached"):
            raise
    finally:
        receiver.close()
    return found


def _copies(selector: str, link: Any) -> None:
    link.source.distribution_mode = link.source.DIST_MODE_COPY
    if selector:
        Selector(selector).apply(link)


def _content(payload: bytes, most: int) -> Content:
    try:
        body = front_end(payload)
        front = Message.decode(payload[:body] + EMPTY)
    except AmqpError:
        body, front = 0, Message()
    end = body + most + CONSTRUCTOR
    id = front.message_id
    mark = front.durable, front.priority, None if id is None else str(id), front.creation_time or None
    return Content(payload[:end], len(payload), body, len(payload) > end, front.delivery_count, mark)


def distinct(rows: Iterable[Row], contents: Iterable[Content]) -> dict[int, Content]:
    """Return the contents of rows that are like no other, because the queue has changed between the looks."""
    rows, contents = list(rows), list(contents)
    times = Counter(row.mark for row in rows)
    found = {content.mark: content for content in contents}
    seen = Counter(content.mark for content in contents)
    return {
        row.id: found[row.mark]
        for row in rows
        if row.message_id is not None and times[row.mark] == 1 and seen[row.mark] == 1
    }


def _waiting(row: Row, content: Content | None) -> WaitingMessage:
    known = row.id, None if content is None else content.size, row.durable, row.priority, row.expires
    if content is None:
        return WaitingMessage(*known, message_id=row.message_id, created=row.created)
    return WaitingMessage(*known, content.attempts, content.payload, content.body, content.cut)


# -- work --------------------------------------------------------------------------------------------------------------
async def _check_elsewhere(management: Artemis, order: Order) -> None:
    """Raise RequestFailed if dead letters are there that came from addresses of other brokers."""
    if not order.elsewhere:
        return
    count = await management.invoke(f"queue.{order.queue}", "countMessages", origin_is(order.elsewhere))
    if count:
        text = f"{count} messages of {order.queue[:200]!r} came from addresses that another broker carries now"
        raise RequestFailed(0, f"{text}: Artemis exchanges none with others; receive and send them")


async def _each(management: Artemis, order: Order, ids: Sequence[int], progress: Progress) -> None:
    """Deal with messages by id."""
    if order.limit is not None:
        ids = ids[: max(0, order.limit - progress.done)]
    operation = {"move": "moveMessage", "redrive": "retryMessage"}.get(order.operation, "removeMessage")
    more = (order.to,) if order.operation == "move" else ()
    for at in range(0, len(ids), AT_ONCE):
        if progress.stopped:
            return
        asked = [management.invoke(f"queue.{order.queue}", operation, id, *more) for id in ids[at : at + AT_ONCE]]
        progress.done += sum(bool(done) for done in await asyncio.gather(*asked))


async def _move(management: Artemis, order: Order, selector: str, progress: Progress) -> None:
    """Move messages, portion by portion."""
    while not progress.stopped:
        most = PORTION if order.limit is None else min(PORTION, order.limit - progress.done)
        if most <= 0:
            return
        done = await management.invoke(
            f"queue.{order.queue}", "moveMessages", FLUSH, selector, order.to, False, most, timeout=LONG
        )
        progress.done += done
        if done < most:
            return


async def _some(management: Artemis, order: Order, selector: str, progress: Progress) -> None:
    """Remove or redrive a number of messages, the first ones."""
    assert order.limit is not None
    while not progress.stopped and progress.done < order.limit:
        rows = await _listed(management, order.queue, selector)
        before = progress.done
        await _each(management, order, [row.id for row in rows], progress)
        if progress.done == before:
            return


async def _everything(management: Artemis, order: Order, selector: str) -> int:
    """Remove or redrive all messages that the selector takes; return how many."""
    queue = f"queue.{order.queue}"
    if order.operation == "redrive":
        return int(await management.invoke(queue, "retryMessages", selector, timeout=LONG))
    return int(await management.invoke(queue, "removeMessages", FLUSH, selector, timeout=LONG))
