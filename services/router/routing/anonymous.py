"""The anonymous relay: every delivery is routed by its `to`, of which nothing else is decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse.amqp.errors import NOT_IMPLEMENTED, AmqpError
from enmasse.amqp.performatives import RELEASED, Error, Rejected
from enmasse.amqp.sections import Sections
from enmasse.amqp.types import Symbol
from services.router.routing.address import MANAGEMENT_ELSEWHERE, Address
from services.router.routing.annotations import stripped
from services.router.routing.configuration import MULTICAST
from services.router.routing.links import NOT_A_MESSAGE, Copies, InLink
from services.router.routing.names import MOBILE, parse
from services.router.routing.relay import Relays, relays
from services.router.routing.sizes import limited

if TYPE_CHECKING:
    from enmasse.amqp.link import Receiver
    from services.router.routing.connections import RouterConnection

CACHED = 1024
"""Different `to` remembered per link."""
MAX_CACHED = 256
"""Bytes of a `to` that is remembered."""

_FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}


def _skip(data: bytes, at: int) -> int:
    """Where the value at `at` ends. Raises IndexError or ValueError for what cannot be."""
    code = data[at]
    while code == 0x00:  # a described value: its descriptor, which is a plain one, then the value
        if data[at + 1] == 0x00:
            raise ValueError("a described descriptor")
        at = _skip(data, at + 1)
        code = data[at]
    kind = code >> 4
    width = _FIXED.get(kind)
    if width is not None:
        return at + 1 + width
    if kind in (0xA, 0xC, 0xE):
        return at + 2 + data[at + 1]
    if kind in (0xB, 0xD, 0xF):
        size = data[at + 1 : at + 5]
        if len(size) < 4:
            raise IndexError(at)
        return at + 5 + int.from_bytes(size, "big")
    raise ValueError(f"format code 0x{code:02x}")


def find_to(data: bytes) -> bytes | None:
    """The raw `to` of a message, None when it has none.

    Knows the usual encodings. Raises ValueError for anything else, IndexError for a message that is cut short.
    """
    at = 0
    end = len(data)
    while at < end:
        if data[at] != 0:
            raise ValueError("a section must begin with a descriptor")
        code = data[at + 1]
        if code == 0x53:
            section = data[at + 2]
            value = at + 3
        elif code == 0x80:
            section = data[at + 9]
            value = at + 10
        else:
            raise ValueError("a section must have a numeric descriptor")
        if section > 0x73:
            return None
        if section == 0x73:
            return _third_field(data, value)
        at = _skip(data, value)
    if at > end:
        raise IndexError(at)
    return None


def _third_field(data: bytes, at: int) -> bytes | None:
    code = data[at]
    if code == 0x45:
        return None
    if code == 0xC0:
        count = data[at + 2]
        at += 3
    elif code == 0xD0:
        count = int.from_bytes(data[at + 5 : at + 9], "big")
        at += 9
    else:
        raise ValueError("properties must be a list")
    if count < 3:
        return None
    at = _skip(data, _skip(data, at))
    code = data[at]
    if code == 0x40:
        return None
    if code == 0xA1:
        start, size = at + 2, data[at + 1]
    elif code == 0xB1:
        start, size = at + 5, int.from_bytes(data[at + 1 : at + 5], "big")
    else:
        raise ValueError("'to' must be a string")
    if start + size > len(data):
        raise IndexError(at)
    return data[start : start + size]


def read_to(payload: bytes) -> bytes | None:
    """As find_to, and for unusual encodings too. Raises AmqpError."""
    try:
        return find_to(payload)
    except (ValueError, IndexError):
        to = Sections(payload).to
        return None if to is None else to.encode()


def rejected(condition: str, description: str) -> Rejected:
    return Rejected(error=Error(condition=Symbol(condition), description=description))


NO_ADDRESS = rejected("amqp:precondition-failed", "Routing failure: no address present")
NO_MANAGEMENT = rejected(*MANAGEMENT_ELSEWHERE)
NO_DELAY = rejected(NOT_IMPLEMENTED, "a delivery delay needs a queue or a topic: this address keeps no message back")
_DELAY = b"x-opt-delivery-"
_DELAYS = ("x-opt-delivery-delay", "x-opt-delivery-time")
UNAUTHORIZED = rejected("amqp:unauthorized-access", "the message's address is disallowed by local policy")


class AnonymousInLink(InLink):
    """The router's end of a sender without a target address. It always has credit."""

    __slots__ = ("_cache", "_generation", "_relays")

    def __init__(self, identity: int, connection: RouterConnection, link: Receiver) -> None:
        super().__init__(identity, connection, link, None)
        self._cache: dict[bytes, str] = {}
        self._generation = -1
        self._relays = Relays(connection)
        link.on_delivery = limited(link, self.forward)

    def forward(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        try:
            to = read_to(payload)
        except AmqpError:
            self.refuse(delivery_id, settled, NOT_A_MESSAGE)
            return
        address = self.resolve(to, payload)
        if not isinstance(address, Address):
            self.refuse(delivery_id, settled, address)
            return
        payload = stripped(payload)
        address.ingress += 1
        if self.connection.is_container:
            address.ingress_containers += 1
        if address.subscriber is not None:
            if settled:
                self.presettled += 1
            else:
                self.settle(delivery_id)
            address.subscriber(self.connection, payload)
        elif address.treatment == MULTICAST and len(address.outs) > 1:
            if settled:
                self.presettled += 1
            token = None if settled else (Copies(self, delivery_id, len(address.outs)), 0)
            for out in address.outs:
                out.offer(payload, token, message_format)
        else:
            chosen = self.way(address)
            if chosen is None:
                self.refuse(delivery_id, settled)
            elif settled:
                self.presettled += 1
                chosen.offer(payload, None, message_format)
            else:
                chosen.offer(payload, (self, delivery_id), message_format)

    def gone(self) -> None:
        super().gone()
        self._relays.end()

    def resolve(self, to: bytes | None, head: bytes) -> Any:
        """The address for a raw `to`, or the state that refuses the message. `head`: the message, as far as it came."""
        if not to:
            return NO_ADDRESS
        address = self._find(to)
        if isinstance(address, Address) and _DELAY in head and not _keeps(address) and _delayed(head):
            return NO_DELAY
        return address

    def _find(self, to: bytes) -> Any:
        router = self.connection.router
        if self._generation != router.config_generation or len(self._cache) >= CACHED:
            self._cache.clear()
            self._generation = router.config_generation
        key = self._cache.get(to)
        if key is not None:
            address = router.addresses.get(key)
            if address is not None and not address.unused:
                return address
        try:
            text = str(to, "utf-8")
            rights = self.connection.rights
            if rights is not None and not rights.may_send(text):
                router.policy.links_denied += 1
                return UNAUTHORIZED
            broker = self._broker(text)
            if broker is not None:
                return self._relays.to(broker)
            address = router.address_for_message(text)
        except AmqpError as error:
            return rejected(error.condition, error.description)
        except UnicodeDecodeError:
            return NOT_A_MESSAGE
        if address is None or not address.reachable:
            return RELEASED
        if address.subscriber is not None and not self.connection.management:
            return NO_MANAGEMENT
        if len(to) <= MAX_CACHED:
            self._cache[to] = address.key
        return address

    def _broker(self, text: str) -> RouterConnection | None:
        """Where an address lies that is reached by links to a broker, not by an address of the router. Raises AmqpError
        if it is not connected or takes no such messages."""
        router = self.connection.router
        parsed = parse(text, router.id)
        if parsed.kind != MOBILE:
            return None
        broker = router.temporaries.broker_of(parsed.name)
        found = None if broker is not None else router.link_routes.find("in", parsed.name)
        if found is not None:
            route, broker = found
            if route.config.external(parsed.name) != parsed.name:
                raise AmqpError(NOT_IMPLEMENTED, f"{text} has another name behind the router: attach a sender to it")
        if broker is not None and not relays(broker):
            raise AmqpError(NOT_IMPLEMENTED, f"the broker of {text} takes no anonymous messages: attach a sender to it")
        return broker


def _delayed(head: bytes) -> bool:
    """Does an annotation of this message, as far as it came, keep it back?"""
    try:
        annotations = Sections(head).annotations
    except AmqpError:
        return False
    return any(name in annotations for name in _DELAYS)


def _keeps(address: Address) -> bool:
    """Does a broker take what is sent there?"""
    return any(out.auto is not None or out.connection.is_container for out in address.outs)
