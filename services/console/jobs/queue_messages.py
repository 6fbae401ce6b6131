"""Messages of queues, by management of the brokers that have them: looking, and work on many in portions."""

from __future__ import annotations

import asyncio
import base64
import codecs
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from typing import Any, Literal, NamedTuple

import msgspec

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.types import Described
from enmasse.amqp.messages.message import AmqpSequence, AmqpValue
from enmasse.amqp.messages.message import Message as AmqpMessage
from enmasse.api.types import Death, Job, Message, NewMessage
from enmasse.control import Artemis, ControlError, ControlSender, Outcome, RequestFailed
from enmasse.control.link import REJECTED, RELEASED
from enmasse.engines.messages import product as engine
from enmasse.engines.messages.product import Product, WaitingMessage
from enmasse.identity.annotations import ACTUAL_EXPIRY, DEATH, ORIGINAL_ADDRESS, RETAINED_BY
from enmasse.logs import log
from enmasse.model.moves import MoveOrder
from enmasse.model.names import AddressName
from services.console.door.access import Caller
from services.console.errors import RequestError
from services.console.following.followers import Live
from services.console.following.traffic import moment
from services.console.jobs import jobs
from services.console.jobs.moves import carry

SECONDS = 30.0
"""For an answer of a broker, or the outcome of a message."""
CREDIT_SECONDS = 3.0
"""Until an address that takes messages has granted credit."""
MAY_BE_STORED = "it may be stored; look before you send it again"
Encoding = Literal["utf-8", "base64"]
IDS = 200
"""Messages by id that are carried to another broker at a time."""
EMPTY = b"\x00\x53\x77\x40"
"""A body of null."""


class MessagePlace(NamedTuple):
    """A message: its broker, and its id there. As text `ID@BROKER`; 0: before all of the broker."""

    broker: str
    id: int

    @classmethod
    def read(cls, text: str) -> MessagePlace:
        """Return the place that a text states. Raises RequestError."""
        id, _, broker = text.partition("@")
        if not id.isascii() or not id.isdigit() or len(id) > 18 or not broker:
            raise RequestError("console.request.invalid", f"{text[:100]!r} is not an id of a message")
        return cls(broker, int(id))

    def __str__(self) -> str:
        return f"{self.id}@{self.broker}"


class Order(NamedTuple):
    """Work on messages of the queue `address`. `ids` None: those that the `selector` takes. `origins`: addresses
    to which redrive may send: those from which dead letters come here."""

    address: str
    operation: Literal["purge", "remove", "move", "redrive"]
    ids: Sequence[MessagePlace] | None = None
    selector: str = ""
    limit: int | None = None
    to: str = ""
    origins: Sequence[str] = ()


@asynccontextmanager
async def _management(live: Live, broker: str, *, works: bool = False) -> AsyncIterator[tuple[Artemis, Product]]:
    """Yield a broker's management, and its product. `works`: for work on many messages."""
    node = live.node(broker)
    product = await node.managed()
    connection = await (live.dialled(broker) if works and product.apart else node.reached())
    try:
        management = await Artemis(connection, timeout=SECONDS).opened()
        try:
            yield management, product
        finally:
            management.close()
    except ControlError as error:
        raise _failed(broker, error) from None
    finally:
        if connection is not node.connection:
            connection.close()


def _failed(broker: str, error: ControlError) -> RequestError:
    reason = error.description or str(error)
    if "AMQ229069" in reason:
        return RequestError("console.change.refused", f"the broker {broker} has no management for this ({reason})")
    if isinstance(error, RequestFailed):
        return RequestError("console.change.refused", f"the broker {broker} refuses: {reason}")
    return RequestError("console.service.failed", f"the broker {broker} has not answered: {reason}; look, and repeat")


# -- looking -----------------------------------------------------------------------------------------------------------
async def browse(
    live: Live, address: str, brokers: Sequence[str], after: MessagePlace | None, limit: int, most: int,
    selector: str = "", *, bodies: bool,
) -> tuple[list[Message], str | None]:  # fmt: skip
    """Return up to `limit` waiting messages that the `selector` takes, oldest first of each broker, and where the next
    page begins; None: this is the last one. `most`: bytes of a body that are shown. Raises RequestError."""
    found: list[Message] = []
    for number, broker in enumerate(brokers):
        if after is not None and broker < after.broker:
            continue
        start = after.id if after is not None and after.broker == broker else 0
        async with _management(live, broker) as (management, product):
            rows, more = await product.browse(management, address, start, limit - len(found), most, selector)
        found += [shown(broker, row, most, bodies=bodies) for row in rows]
        if more:
            return found, found[-1].id if found else None
        if len(found) >= limit and number + 1 < len(brokers):
            return found, str(MessagePlace(brokers[number + 1], 0))
    return found, None


def shown(broker: str, row: WaitingMessage, most: int, *, bodies: bool) -> Message:
    """Return how a waiting message is shown; `most`: bytes of its body. Seals of publishers are left out."""
    try:
        front = AmqpMessage.decode((row.payload or b"")[: row.body] + EMPTY)
    except AmqpError:
        front = AmqpMessage()
    encoding: Encoding = "utf-8"
    body, cut = None, False
    if bodies and row.payload is not None:
        encoding, body, cut = body_of(row.payload, most, row.body if row.cut else None)
    death = front.annotations.get(DEATH)
    created = row.created if row.payload is None else front.creation_time
    return Message(
        id=str(MessagePlace(broker, row.id)),
        size=row.size,
        durable=row.durable,
        priority=row.priority,
        delivery_count=row.attempts,
        message_id=row.message_id if row.payload is None else _text(front.message_id),
        user_id=_text(front.user_id),
        to=front.to,
        subject=front.subject,
        reply_to=front.reply_to,
        correlation_id=_text(front.correlation_id),
        content_type=_text(front.content_type),
        group_id=front.group_id,
        created=None if created is None else _time(created),
        expires=_time(row.expires) if row.expires else None,
        properties={str(key): plain(value) for key, value in front.application_properties.items()},
        annotations={str(key): plain(value) for key, value in front.annotations.items() if key != RETAINED_BY},
        deaths=[_death(death)] if isinstance(death, dict) else _origin(front.annotations),
        encoding=encoding,
        body=body,
        truncated=cut,
    )


def _time(milliseconds: Any) -> str | None:
    try:
        return moment(milliseconds / 1000)
    except (OverflowError, ValueError, TypeError, OSError):
        return None  # a year without four digits


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _death(value: dict[Any, Any]) -> Death:
    count = value.get("count")
    return Death(
        reason=str(value.get("reason", "")),
        source=_text(value.get("source")),
        condition=_text(value.get("condition")),
        description=_text(value.get("description")),
        consumer=_text(value.get("consumer")),
        count=int(count) if isinstance(count, int) else 1,
        first=_time(value.get("first")),
        last=_time(value.get("last")),
    )


def _origin(annotations: Mapping[Any, Any]) -> list[Death]:
    """Return where a message was before, and whether it has expired there, as Artemis states it."""
    source = annotations.get(ORIGINAL_ADDRESS)
    if source is None:
        return []
    return [Death(reason="expired" if ACTUAL_EXPIRY in annotations else "unknown", source=_text(source))]


def plain(value: Any) -> Any:
    """Return a value of AMQP in the types of JSON: bytes as Base64, what JSON does not know as text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if abs(value) < float("inf") else str(value)
    if isinstance(value, str | uuid.UUID):
        return str(value)
    if isinstance(value, bytes | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return plain(value.value) if isinstance(value, Described) else str(value)


def body_of(payload: bytes, most: int, begin: int | None = None) -> tuple[Encoding, str, bool]:
    """Return encoding and text of the body of a message, and whether it is cut. `most`: bytes of it that are shown;
    `begin`: where the body begins of a message of which the rest is missing, None: it is whole."""
    if begin is not None:
        return text_of(_begun(payload[begin:]), most, cut=True)
    try:
        return text_of(AmqpMessage.decode(payload).body, most)
    except AmqpError:
        return text_of(payload, most)


def text_of(value: Any, most: int, *, cut: bool = False) -> tuple[Encoding, str, bool]:
    """Return encoding and text of a decoded body, and whether it is cut. `most`: bytes of it that are shown."""
    if isinstance(value, AmqpValue):
        value = value.value
    if isinstance(value, str):
        return "utf-8", value[:most], cut or len(value) > most
    if not isinstance(value, bytes | memoryview):
        found = value.values if isinstance(value, AmqpSequence) else value
        text = msgspec.json.encode(plain(found)).decode() if found is not None else ""
        return "utf-8", text[:most], len(text) > most
    content = bytes(value)
    cut = cut or len(content) > most
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(content[:most], final=not cut)
    except UnicodeDecodeError:
        return "base64", base64.b64encode(content[:most]).decode(), cut
    return "utf-8", text, cut


def _begun(body: bytes) -> bytes:
    """Return the content at the beginning of a body: of binary or text; of others its encoding."""
    if body[:3] in (b"\x00\x53\x75", b"\x00\x53\x77") and len(body) > 8:
        if body[3] in (0xB0, 0xB1):
            return body[8:]
        if body[3] in (0xA0, 0xA1):
            return body[5:]
    return body


# -- sending -----------------------------------------------------------------------------------------------------------
async def send(live: Live, inside: AddressName, address: str, new: NewMessage, user: str | None) -> None:
    """Send a message by the router, and wait until it is accepted. `inside`: the full name of the address. Raises
    RequestError."""
    connection, message = await live.router.reached(), _encoded(address, new, user)
    try:
        with closing(connection.sender(inside)) as sender:
            async with asyncio.timeout(SECONDS):
                await sender.opened()
                await _has_room(sender, address)
                outcome = await sender.deliver(message)
    except ControlError as error:
        if not connection.is_open:
            text = f"it is unknown whether {address[:200]} has taken it: the router was lost"
            raise RequestError("console.service.unavailable", text) from None
        raise RequestError("console.message.refused", f"{address[:200]} does not take it: {error}") from None
    except TimeoutError:
        text = f"{address[:200]} has not settled it in {SECONDS:.0f} seconds: {MAY_BE_STORED}"
        raise RequestError("console.service.failed", text) from None
    if not outcome.accepted:
        raise _not_accepted(address, outcome)


async def _has_room(sender: ControlSender, address: str) -> None:
    """Wait until the address takes a message. Raises RequestError if it takes none, and ControlError."""
    try:
        async with asyncio.timeout(CREDIT_SECONDS):
            await sender.has_credit()
    except TimeoutError:
        text = f"{address[:200]} takes no messages now: it has no consumers, or is full; nothing was sent"
        raise RequestError("console.message.not-taken", text) from None


def _not_accepted(address: str, outcome: Outcome) -> RequestError:
    if outcome.state == REJECTED:
        reason = outcome.description or outcome.condition or "it was rejected without a reason"
        return RequestError("console.message.refused", f"{address[:200]} does not take it: {reason}")
    if outcome.state == RELEASED:
        return RequestError("console.message.not-taken", f"{address[:200]} has released it: nothing takes it now")
    return RequestError("console.service.failed", f"{address[:200]} has returned it as modified: {MAY_BE_STORED}")


def _encoded(address: str, new: NewMessage, user: str | None) -> bytes:
    body: Any = new.body
    if new.encoding == "base64":
        try:
            body = base64.b64decode(new.body, validate=True)
        except ValueError:
            raise RequestError("console.request.invalid", "the body: `body` is not Base64") from None
    elif new.content_type:
        body = new.body.encode()  # a content type is of bytes (AMQP 1.0, 3.2.4)
    try:
        return AmqpMessage(
            body, durable=new.durable, priority=new.priority, ttl=new.ttl,
            creation_time=time.time_ns() // 1_000_000,
            message_id=uuid.uuid4().hex if new.message_id is None else new.message_id,
            user_id=None if user is None else user.encode(), to=new.to or address, subject=new.subject,
            reply_to=new.reply_to, correlation_id=new.correlation_id, content_type=new.content_type,
            group_id=new.group_id, application_properties=dict(new.properties),
        ).encode()  # fmt: skip
    except (ValueError, TypeError, OverflowError) as error:
        raise RequestError("console.request.invalid", f"the body: {error}") from None


# -- work on many ------------------------------------------------------------------------------------------------------
async def work(
    live: Live, nearest: Callable[[str, str], str | None], brokers: Sequence[str], order: Order, job: jobs.Running
) -> None:
    """Do the work of an order, portion by portion, until it is done or the job is to stop. `nearest`: address, broker →
    the broker to which its messages that are there go. Raises RequestError."""
    for broker in brokers:
        ids = None if order.ids is None else [place.id for place in order.ids if place.broker == broker]
        if ids == []:
            continue
        elsewhere = nearest(order.to, broker) if order.operation == "move" else broker
        if elsewhere is None:
            raise RequestError("console.service.unavailable", f"no broker carries {order.to[:200]!r}; try again")
        if elsewhere != broker:
            await _carry(live, broker, elsewhere, order, ids, order.to, None, job)
            continue
        at = {source: nearest(source, broker) for source in order.origins}
        away = [source for source, there in at.items() if there not in (None, broker)]
        within = engine.Order(
            order.address, "remove" if order.operation == "purge" else order.operation, ids, order.selector,
            order.limit, order.to, [source for source in at if at[source] == broker], away,
        )  # fmt: skip
        async with _management(live, broker, works=True) as (management, product):
            await product.work(management, within, job)
        for source in away if order.operation == "redrive" and product.exchanges else ():
            elsewhere = at[source]
            if elsewhere is not None:
                await _carry(live, broker, elsewhere, order, ids, source, source, job)


async def _carry(
    live: Live, broker: str, elsewhere: str, order: Order, ids: list[int] | None, to: str, origin: str | None,
    job: jobs.Running,
) -> None:  # fmt: skip
    """Do the work of an order from one broker to another."""
    portions = [None] if ids is None else [ids[at : at + IDS] for at in range(0, len(ids), IDS)]
    for portion in portions:
        left = None if order.limit is None else order.limit - job.done
        wanted = MoveOrder(ids=portion, filter=order.selector, limit=left, source=origin)
        await carry(live, broker, elsewhere, order.address, to, wanted, job)


def audit(job: Job, caller: Caller, host: str) -> None:
    """Log the end of a job for auditors."""
    log.audit(
        "audit.messages.ordered",
        who=caller.title, role=caller.role, from_=host, what=f"{job.operation} {job.address}", outcome=job.state,
        result=job.done, space=caller.space,
    )  # fmt: skip
