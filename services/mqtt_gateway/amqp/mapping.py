"""An MQTT PUBLISH as an AMQP message, and any AMQP message as what MQTT clients get (docs/mqtt-mapping.md). Bytes to
values and back; no links, no clock but the one that is given.

What most messages have before their payload is one of few: `TopicRoute` holds it encoded for those that leave,
`MessageReader` knows those that come by their bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from enmasse.amqp.codec.encoder import encode, encode_binary
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.types import Int, Symbol, Timestamp
from enmasse.amqp.messages.scan import AMQP_SEQUENCE, AMQP_VALUE, DATA, MESSAGE_ANNOTATIONS, front_end
from enmasse.amqp.messages.sections import (
    Header,
    Sections,
    encode_annotations,
    encode_header,
    encode_properties,
    milliseconds,
)
from enmasse.amqp.messages.sections import Properties as AmqpProperties
from enmasse.bridge.message_routes import Route, link_of
from enmasse.identity import annotations as stated
from enmasse.identity.annotations import ORIGINAL_ADDRESS, ORIGINAL_MESSAGE_ID, RETAINED_FOR
from enmasse.identity.authors import Author
from enmasse.identity.seals import Seal
from enmasse.identity.senders import shown
from enmasse.model.address_types import AddressType
from enmasse.model.names import SPACE, plain_name
from enmasse.model.topic_map import TopicMap, escape, unescape
from enmasse.mqtt.on_wire import BINARY, FLAG, U16, U32
from enmasse.mqtt.packets import NONE, Properties, Publish
from enmasse.mqtt.properties import TABLE as PROPERTIES
from enmasse.tracing.propagation import TRACEPARENT, context_of
from services.mqtt_gateway.amqp.amqp_values import MAX_TEXT, correlation_data, correlation_id, json_of, legal, text_of
from services.mqtt_gateway.interfaces import is_system

QOS: Final = Symbol(stated.QOS)
RETAIN: Final = Symbol(stated.RETAIN)
PUBLISHER: Final = Symbol(stated.PUBLISHER)
RESPONSE_TOPIC: Final = Symbol(stated.RESPONSE_TOPIC)
CORRELATION_DATA: Final = Symbol(stated.CORRELATION_DATA)
CONTENT_TYPE: Final = Symbol(stated.CONTENT_TYPE)
USER_PROPERTIES: Final = Symbol(stated.USER_PROPERTIES)
RETAINED_BY: Final = Symbol(stated.RETAINED_BY)
NUMBERS: Final = {FLAG: 1, U16: 0xFFFF, U32: 0xFFFF_FFFF}
"""Type of a property that is a number → the greatest."""
COPIED: Final = {
    each.mqtt_property: (
        Symbol(each.name),
        next(known.kind for known in PROPERTIES if known.field == each.mqtt_property),
    )
    for each in stated.TABLE
    if each.mqtt_property
}
"""Property that messages have in an annotation only → that, and the property's type."""
DUPLICATE_ID: Final = "_AMQ_DUPL_ID"
REPLY: Final = "$reply/"
"""Topics below it are addresses of AMQP, escaped: a response topic of an AMQP client's own reply address."""
_CONTROL: Final = re.compile(r"(?:^|[./:])\$")  # a node of a router, a broker or a service, or `address::$sub/…`
JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"
MAX_TTL: Final = 0xFFFF_FFFF
MAX_HEAD: Final = 512
"""Bytes before the body that are remembered with what they mean."""
MAX_KNOWN: Final = 4096

_DATA8 = b"\x00\x53\x75\xa0"
_DATA32 = b"\x00\x53\x75\xb0"


# -- MQTT to AMQP -----------------------------------------------------------------------------------------------------
class TopicRoute(Route):
    """Route of the messages of one topic, with what most of them begin with."""

    __slots__ = ("_encoded",)

    def __init__(self, name: str, type: AddressType | None, link: str | None, to: str, wire: str = "") -> None:
        super().__init__(name, type, link, to, wire)
        self._encoded: list[bytes | None] = [None] * 6

    @classmethod
    def find(cls, topic: str, topics: TopicMap) -> TopicRoute | None:
        """Return the route of a topic; None: no address takes it, or it is one of the gateways' own."""
        if topic.startswith(REPLY):
            address = reply_address(topic)
            return None if address is None else cls(address, None, None, address)
        owner = topics.owner(topic)
        if owner is None or is_system(topic):
            return None
        return cls(topics.local(owner.name), owner.type, link_of(owner), owner.to, owner.wire)

    def plain(self, qos: int, retain: bool, payload: bytes) -> bytes:
        """Return the message of a PUBLISH without properties, of QoS 0 or 1."""
        sections = self._encoded[qos << 1 | retain]
        if sections is None:
            sections = self._encoded[qos << 1 | retain] = self._sections(qos, retain)
        size = len(payload)
        if size < 256:
            return b"%b\x00\x53\x75\xa0%c%b" % (sections, size, payload)
        return b"%b\x00\x53\x75\xb0%b%b" % (sections, size.to_bytes(4, "big"), payload)

    def _sections(self, qos: int, retain: bool) -> bytes:
        annotations: dict[Any, Any] = {QOS: Int(qos)}
        if retain:
            annotations[RETAIN] = True
        return b"".join(
            (
                encode_header(Header(durable=qos > 0)),
                encode_annotations(MESSAGE_ANNOTATIONS, annotations),
                encode_properties(AmqpProperties(to=self.to)),
            )
        )

    def full(
        self,
        publish: Publish,
        topics: TopicMap,
        now: float | None,
        publisher: str | None = None,
        duplicate_id: str = "",
        subject: str | None = None,
        further: Mapping[Any, Any] | None = None,
    ) -> bytes:
        """Return the message of any PUBLISH. `now`: seconds since the epoch, None if it expires after its sending only;
        `publisher`: the client's id, if a subscription asks for it; `duplicate_id`: of QoS 2; `further`:
        annotations."""
        given = publish.properties
        annotations: dict[Any, Any] = {QOS: Int(publish.qos), **(further or {})}
        if publish.retain:
            annotations[RETAIN] = True
        if publisher is not None:
            annotations[PUBLISHER] = publisher
        ttl = expires = reply_to = correlation = content_type = None
        application: dict[str, str] = {}
        if given is not NONE:
            if given.message_expiry is not None:
                milliseconds = max(1, given.message_expiry * 1000)
                expires = None if now is None else Timestamp(int(now * 1000) + milliseconds)
                ttl = milliseconds if milliseconds <= MAX_TTL else None
            if given.response_topic is not None:
                route = TopicRoute.find(given.response_topic, topics)
                reply_to = None if route is None else route.address
                if reply_to is None or _response_topic(reply_to, topics) != given.response_topic:
                    annotations[RESPONSE_TOPIC] = given.response_topic
            if given.correlation_data is not None:
                correlation = correlation_id(given.correlation_data)
                if correlation_data(correlation) != given.correlation_data:
                    annotations[CORRELATION_DATA] = given.correlation_data
            if given.content_type is not None:
                if given.content_type.isascii() and given.content_type:
                    content_type = Symbol(given.content_type)
                else:
                    annotations[CONTENT_TYPE] = given.content_type
            for field, (annotation, kind) in COPIED.items():
                if value := getattr(given, field):
                    annotations[annotation] = Int(value) if kind in (FLAG, U16) else value
            if given.user_properties:
                application = _joined(given.user_properties)
                if len(application) < len(given.user_properties) or DUPLICATE_ID in application:
                    annotations[USER_PROPERTIES] = [part for pair in given.user_properties for part in pair]
                    application.pop(DUPLICATE_ID, None)  # brokers believe a gateway
        if duplicate_id and self.traits.stored:
            application[DUPLICATE_ID] = duplicate_id
        return b"".join(
            (
                encode_header(Header(durable=publish.qos > 0, ttl=ttl)),
                encode_annotations(MESSAGE_ANNOTATIONS, annotations),
                encode_properties(
                    AmqpProperties(
                        message_id=shown(duplicate_id) if duplicate_id else None,
                        to=self.to,
                        subject=subject,
                        reply_to=reply_to,
                        correlation_id=correlation,
                        content_type=content_type,
                        absolute_expiry_time=expires,
                    )
                ),
                b"\x00\x53\x74" + encode(application) if application else b"",
                b"\x00\x53\x75",
                encode_binary(publish.payload),
            )
        )


def sealed(seal: Seal | None, author: Author, to: str, payload: bytes) -> dict[Any, Any] | None:
    """Return the annotation that states the author of a retained message; None if there is nothing to retain."""
    if seal is None or not payload:
        return None
    return {RETAINED_BY: seal.make(author, to, payload)}


def _joined(pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """User properties as application properties: the values of a repeated name, joined by ", "."""
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: ", ".join(values) for name, values in found.items()}


def reply_address(topic: str) -> str | None:
    """Return the AMQP address that a topic `$reply/…` stands for; None if clients may not send there."""
    address = plain_name(unescape(topic[len(REPLY) :]))
    reserved = address.startswith(("$", "_", SPACE)) and not address.startswith("_topo/")
    if not address or reserved or _CONTROL.search(address):
        return None
    return address


def _response_topic(reply_to: str, topics: TopicMap) -> str:
    reply_to = plain_name(reply_to)
    owner = topics.owner_of_wire(reply_to)
    return REPLY + escape(reply_to) if owner is None else topics.topic_of(reply_to)


# -- AMQP to MQTT -----------------------------------------------------------------------------------------------------
class MessageFields:
    """Meaning of the sections before the body. `name`: the AMQP name under which the message was sent, None if it does
    not say; `spellings`: the topics of this name. Times in milliseconds; `ttl` None: none, `expires` 0: none."""

    __slots__ = (
        "again",
        "expires",
        "name",
        "properties",
        "publisher",
        "qos",
        "retain",
        "retained_for",
        "spellings",
        "ttl",
    )

    def __init__(self) -> None:
        self.name: str | None = None
        self.spellings: tuple[str, ...] = ()
        self.qos = 0
        self.retain = False
        self.publisher: str | None = None
        self.retained_for: str | None = None
        self.properties = NONE
        self.ttl: int | None = None
        self.expires = 0
        self.again = False

    def expires_at(self, now: float) -> float:
        """Return seconds since the epoch, 0: never. `now`: when it came."""
        if self.expires:
            return self.expires / 1000
        return 0.0 if self.ttl is None else now + self.ttl / 1000


class MessageReader:
    """Reads messages for one snapshot of the addresses. Raises AmqpError for what is no message, or one that MQTT
    cannot hold."""

    def __init__(self, topics: TopicMap) -> None:
        self._topics = topics
        self._known: dict[bytes, MessageFields] = {}
        self._begin = b"\xff"  # of the last message, up to the size of its body
        self._last = MessageFields()  # what that means

    def read(self, payload: bytes) -> tuple[MessageFields, bytes]:
        """Return the meaning of the sections before the body, and the payload for MQTT. Raises AmqpError."""
        if payload.startswith(self._begin):  # the next one of a topic, as a rule
            size = len(self._begin) + 1
            if size <= len(payload) == size + payload[size - 1]:
                return self._last, payload[size:]
        at = front_end(payload)
        head = payload[:at]
        fields = self._known.get(head)
        if fields is None:
            fields = self._decode(payload, head)
        size = at + 5
        if payload[at : at + 4] == _DATA8 and size <= len(payload) == size + payload[at + 4]:
            self._begin, self._last = payload[: at + 4], fields
            return fields, payload[size:]
        if payload[at : at + 4] == _DATA32:
            size = at + 8
            if len(payload) == size + int.from_bytes(payload[at + 4 : size], "big"):
                return fields, payload[size:]
        return self._with_body(fields, payload)

    def _decode(self, payload: bytes, head: bytes) -> MessageFields:
        sections = Sections(payload)
        header, annotations, found = sections.header, sections.annotations, sections.properties
        fields = MessageFields()
        name = annotations.get(ORIGINAL_ADDRESS) or found.to
        if isinstance(name, str) and name:
            fields.name = name = self._topics.local(name)
            fields.spellings = self._topics.spellings(name)
            if not all(map(legal, fields.spellings)):
                raise AmqpError("amqp:not-allowed", "MQTT has no topics of more than 65,535 bytes")
        qos = annotations.get(QOS)
        from_mqtt = isinstance(qos, int) and not isinstance(qos, bool) and 0 <= qos <= 2
        fields.qos = int(qos) if from_mqtt else 1 if header.durable else 0  # type: ignore[arg-type]  # from_mqtt: it is an int
        fields.retain = annotations.get(RETAIN) is True
        fields.publisher = _text(annotations.get(PUBLISHER))
        fields.retained_for = _text(annotations.get(RETAINED_FOR))
        fields.ttl = header.ttl
        fields.again = header.delivery_count > 0
        if QOS in annotations or fields.ttl is None:
            # A gateway's clock. That of an AMQP client may be wrong: brokers go by its ttl, and count it down.
            fields.expires = milliseconds(found.absolute_expiry_time, "absolute-expiry-time")
        fields.properties = self._properties(found, annotations, sections.application_properties, from_mqtt)
        alike = found.message_id is None and found.correlation_id is None and not fields.expires
        alike = alike and ORIGINAL_MESSAGE_ID not in annotations and RETAINED_BY not in annotations
        alike = alike and TRACEPARENT not in annotations and TRACEPARENT not in sections.application_properties
        if len(head) <= MAX_HEAD and alike:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[head] = fields
        return fields

    def _properties(
        self, found: AmqpProperties, annotations: dict[Any, Any], application: dict[str, Any], from_mqtt: bool
    ) -> Properties:
        values: dict[str, Any] = {}
        response_topic = _text(annotations.get(RESPONSE_TOPIC))
        if response_topic is None and found.reply_to:
            response_topic = _response_topic(found.reply_to, self._topics)
        if response_topic and legal(response_topic) and not set("+#") & set(response_topic):
            values["response_topic"] = response_topic
        data = annotations.get(CORRELATION_DATA)
        if not isinstance(data, bytes) or len(data) > MAX_TEXT:
            given = found.correlation_id
            if given is None and found.reply_to and not from_mqtt:
                given = found.message_id  # what an AMQP client expects as the correlation-id of the reply
            data = None if given is None else correlation_data(given)
        if data is not None:
            values["correlation_data"] = data
        content_type = _text(annotations.get(CONTENT_TYPE)) or found.content_type
        if content_type and legal(content_type):
            values["content_type"] = str(content_type)
        for field, (annotation, kind) in COPIED.items():
            if value := _of_kind(kind, annotations.get(annotation)):
                values[field] = value
        pairs: tuple[tuple[str, str], ...] = ()
        if application:
            pairs = _pairs(annotations.get(USER_PROPERTIES)) or _texts(application)
        if TRACEPARENT in annotations and TRACEPARENT not in application:
            pairs += _texts(context_of(annotations))
        if pairs:
            values["user_properties"] = pairs
        return Properties(**values) if values else NONE

    def _with_body(self, fields: MessageFields, payload: bytes) -> tuple[MessageFields, bytes]:
        """A body that is not one section of data."""
        sections = Sections(payload)
        sections.check()
        try:
            kind, values = sections.body()
        except AmqpError:  # brokers do not decode bodies: what they have accepted reaches subscribers
            return _with(fields, content_type=fields.properties.content_type or BYTES), sections.encoded_body
        if kind == DATA:
            return fields, b"".join(values)
        value: Any = None
        if kind == AMQP_SEQUENCE:
            value = [each for part in values for each in part]
        elif kind == AMQP_VALUE:
            value = values[0]
        if value is None:
            return fields, b""
        if isinstance(value, bytes):
            return fields, bytes(value)
        if isinstance(value, str):
            return _with(fields, payload_format=1), value.encode("utf-8", "replace")
        changed = _with(fields, payload_format=1, content_type=fields.properties.content_type or JSON)
        return changed, json_of(value).encode("utf-8", "replace")


def _with(fields: MessageFields, **values: Any) -> MessageFields:
    found = MessageFields()
    for field in MessageFields.__slots__:
        setattr(found, field, getattr(fields, field))
    given = {field: getattr(fields.properties, field) for field in fields.properties.__struct_fields__}
    found.properties = Properties(**{**given, **values})
    return found


def _of_kind(kind: int, value: Any) -> Any:
    """Return the value of an annotation as that of a property of this type; None: it is absent, or MQTT cannot hold
    it."""
    if kind in NUMBERS:
        return int(value) if isinstance(value, int) and 0 <= value <= NUMBERS[kind] else None
    if kind == BINARY:
        return bytes(value) if isinstance(value, bytes) and len(value) <= MAX_TEXT else None
    return _text(value)


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, str) and legal(value) else None


def _pairs(value: Any) -> tuple[tuple[str, str], ...]:
    """Return the original user properties from the annotation that keeps what a map cannot."""
    if not isinstance(value, list) or len(value) % 2 or not all(_text(part) is not None for part in value):
        return ()
    return tuple((str(value[at]), str(value[at + 1])) for at in range(0, len(value), 2))


def _texts(application: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Application properties as user properties; those that MQTT cannot hold are left out."""
    found = []
    for name, value in application.items():
        if name != DUPLICATE_ID:
            text = text_of(value)
            if legal(name) and legal(text):
                found.append((str(name), text))
    return tuple(found)
