"""Decodes requests to `$lwt` (docs/contracts.md, "`$lwt`"), and builds the message that publishes a will."""

from __future__ import annotations

from typing import Literal, NamedTuple

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.messages.message import Message
from enmasse.control.errors import DECODE_ERROR, INVALID_FIELD, ControlError
from enmasse.identity.annotations import (
    CLIENT_ID,
    EPOCH,
    GROUPS,
    OF_FACTS,
    QOS,
    RETAIN,
    RETAINED_BY,
    USER,
    WILL_DELAY,
    WILL_TOPIC,
)
from enmasse.identity.authors import NOT_STATED, Author, author
from enmasse.identity.link_users import of_link
from enmasse.identity.senders import shown
from enmasse.model.names import SPACE, states_space
from enmasse.model.sessions import KeptWill
from enmasse.storage.decoding import decode

DUPLICATE_ID = "_AMQ_DUPL_ID"
MAX_KEY = 16 * 1024
"""Longest id of a client in UTF-8, or name of a link, in bytes."""
MAX_TO = 64 * 1024
MAX_DELAY = 2**32 - 1
MAX_EPOCH = 2**53
RESTORED = "restore-will"
OF_MQTT = "client:"
"""Beginning of the keys of MQTT clients."""
_OWN = (CLIENT_ID, WILL_DELAY, WILL_TOPIC, EPOCH, USER, GROUPS)

Operation = Literal["will", "will-clear", "will-publish", "client-moved", "session-ended", "session-deleted"]
_OTHERS: dict[object, Operation] = {
    "will-clear": "will-clear",
    "will-publish": "will-publish",
    "client-moved": "client-moved",
    "session-ended": "session-ended",
    "session-deleted": "session-deleted",
}


class Request(NamedTuple):
    """`key`: the client; `epoch`: of its session, 0 if it is not known (AMQP clients, earlier gateways). Only for the
    operation `will`: `to`, `qos`, `delay` in seconds, the message, and the user whose will it is; `delay` also for
    `will-publish`, where it takes the place of the former one. `topic`: of an MQTT client, if it differs from `to`."""

    operation: Operation
    key: str
    to: str = ""
    qos: int = 0
    delay: int | None = None
    message: Message | None = None
    author: Author = NOT_STATED
    epoch: int = 0
    topic: str = ""


def read(data: bytes, link_name: str, *, gateway: bool = False) -> Request:
    """Decode a request that came over the link of this name. `gateway`: the link may speak for MQTT clients; other
    links speak only for themselves. Raises ControlError with the reason of a refusal."""
    try:
        message = Message.decode(data)
    except AmqpError as error:
        raise ControlError(DECODE_ERROR, f"not an AMQP message: {error.description}"[:200]) from None
    if gateway and message.subject == RESTORED:
        return _restored(message.body)
    key = _key(message.annotations.get(CLIENT_ID), link_name, gateway)
    epoch = _epoch(message.annotations.get(EPOCH)) if gateway else 0
    if (operation := _OTHERS.get(message.subject)) is not None:
        delay = message.annotations.get(WILL_DELAY) if operation == "will-publish" else None
        return Request(operation, key, delay=None if delay is None else _delay(delay), epoch=epoch)
    if message.subject != "will":
        raise ControlError(
            INVALID_FIELD, f"subject {str(message.subject)[:50]!r}: will or {', '.join(map(str, _OTHERS))}"
        )
    to = message.to
    if not isinstance(to, str) or not to or len(to) > MAX_TO or not _is_text(to):
        raise ControlError(INVALID_FIELD, f"to: the address of the will, at most {MAX_TO} characters")
    if states_space(to):
        raise ControlError(INVALID_FIELD, f"to: clients state no names that begin with {SPACE}")
    topic = ""
    if gateway:
        author, topic = _author(message), _topic(message.annotations.get(WILL_TOPIC))
    else:
        author = of_link(link_name)
        message.annotations = OF_FACTS.without(message.annotations)
    delay = _delay(message.annotations.get(WILL_DELAY))
    return Request("will", key, to, _qos(message), delay, message, author, epoch, topic)


def publication(request: Request, id: str) -> bytes:
    """Return the message to publish for a will: durable if its QoS is not 0, with `id` as its duplicate id.

    Raises ControlError(amqp:decode-error).
    """
    message = request.message
    assert message is not None
    message.subject = None
    message.durable = request.qos > 0
    for name in _OWN:
        message.annotations.pop(name, None)
    message.annotations[QOS] = request.qos
    message.delivery_annotations = {}
    if request.qos == 2:
        message.message_id = shown(id)
    message.application_properties[DUPLICATE_ID] = id
    try:
        return message.encode()
    except (TypeError, ValueError, KeyError) as error:
        raise ControlError(DECODE_ERROR, f"the message cannot be published: {error}"[:200]) from None


def not_retained(message: bytes) -> bytes:
    """Return the message without what has it retained."""
    found = Message.decode(message)
    for name in (RETAIN, RETAINED_BY):
        found.annotations.pop(name, None)
    return found.encode()


def readdressed(message: bytes, to: str) -> bytes:
    """Return the message with another address. Its seal names the author for the one before only, and goes."""
    found = Message.decode(message)
    found.to = to
    found.annotations.pop(RETAINED_BY, None)
    return found.encode()


def retains(message: bytes) -> bool:
    """Return whether a stored message is to be retained."""
    if RETAIN.encode() not in message:
        return False
    try:
        return Message.decode(message).annotations.get(RETAIN) is True
    except AmqpError:
        return False


def _restored(body: object) -> Request:
    """Return the request that a will of a backup makes. Raises ControlError."""
    try:
        kept = decode(body if isinstance(body, str) else b"", KeptWill)
        message = Message.decode(kept.message)
    except (ValueError, AmqpError) as error:
        raise ControlError(DECODE_ERROR, f"not a will: {error}"[:200]) from None
    by = author(kept.user, kept.groups)
    key = _key(kept.client, "", gateway=True)
    return Request("will", key, kept.to, kept.qos, kept.delay, message, by, topic=kept.topic)


def _key(client: object, link_name: str, gateway: bool) -> str:
    """Return the key of a will. MQTT clients, links, and clients named by a link have separate keys, so that none can
    speak for another."""
    if client is None:
        kind, name = "link:", link_name
    elif not isinstance(client, str):
        raise ControlError(INVALID_FIELD, f"{CLIENT_ID}: a string")
    elif gateway:
        kind, name = OF_MQTT, str(client)
    else:
        kind, name = f"of link {len(link_name)}:", link_name + str(client)
    if not _is_text(name) or len(name.encode()) > MAX_KEY:
        raise ControlError(INVALID_FIELD, f"{CLIENT_ID}, or the link's name: text of at most {MAX_KEY} bytes")
    return kind + name


def _author(message: Message) -> Author:
    """Return the user that a gateway states."""
    user, groups = message.annotations.get(USER), message.annotations.get(GROUPS)
    if user is None and groups is None:
        return NOT_STATED
    if not isinstance(user, str) or not user or not _is_text(user):
        raise ControlError(INVALID_FIELD, f"{USER}: the name of a user")
    if groups is None:
        return author(str(user))
    if not isinstance(groups, list) or not all(isinstance(group, str) and _is_text(group) for group in groups):
        raise ControlError(INVALID_FIELD, f"{GROUPS}: a list of names")
    return author(str(user), tuple(map(str, groups)))


def _is_text(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _qos(message: Message) -> int:
    if RETAIN in message.annotations and not isinstance(message.annotations[RETAIN], bool):
        raise ControlError(INVALID_FIELD, f"{RETAIN}: a boolean")
    qos = message.annotations.get(QOS)
    if qos is None:
        return 1 if message.durable else 0
    if isinstance(qos, bool) or not isinstance(qos, int) or not 0 <= qos <= 2:
        raise ControlError(INVALID_FIELD, f"{QOS}: 0, 1 or 2")
    return int(qos)


def _delay(delay: object) -> int:
    if delay is None:
        return 0
    if isinstance(delay, bool) or not isinstance(delay, int) or not 0 <= delay <= MAX_DELAY:
        raise ControlError(INVALID_FIELD, f"{WILL_DELAY}: seconds, 0 to {MAX_DELAY}")
    return int(delay)


def _topic(topic: object) -> str:
    if topic is None:
        return ""
    if not isinstance(topic, str) or len(topic) > MAX_TO or not _is_text(topic):
        raise ControlError(INVALID_FIELD, f"{WILL_TOPIC}: a topic, at most {MAX_TO} characters")
    return str(topic)


def _epoch(epoch: object) -> int:
    if epoch is None:
        return 0
    if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch <= MAX_EPOCH:
        raise ControlError(INVALID_FIELD, f"{EPOCH}: the number of the client's connection, 0 to {MAX_EPOCH}")
    return int(epoch)
