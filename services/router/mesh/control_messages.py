"""Control messages between routers: typed, validated, encoded and decoded.

HELLO (Hello) finds neighbours. RA (Advertisement) states how new a router's link state and addresses are, LSR
(LinkStateRequest) and LSU (LinkStateUpdate) exchange the links between routers, MAR (AddressRequest) and MAU
(AddressUpdate) the addresses with receivers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, Final, NamedTuple

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.types import Int, Symbol, Timestamp
from enmasse.amqp.messages.message import AmqpValue, Message
from enmasse.amqp.messages.scan import AMQP_VALUE
from enmasse.amqp.messages.sections import Sections

VERSION: Final = 1
MAX_ROUTERS: Final = 128
EVERY_ROUTER: Final = "all"
NEIGHBOUR: Final = ""
"""Destination of what goes one hop only."""

_AREA: Final = "0"
_INGRESS: Final = Symbol("x-opt-qd.ingress")
_TRACE: Final = Symbol("x-opt-qd.trace")
_OPCODE: Final = "opcode"
_MAX_ID: Final = 255
_MAX_NUMBER: Final = 2**63 - 1
_MAX_COST: Final = 2**31 - 1
_SHOWN: Final = 80
"""Most characters of a peer's value in an error."""


class InvalidControl(ValueError):
    """Raised for a control message that does not follow the protocol."""


class NewerVersion(InvalidControl):
    """Raised for a control message of a newer version of the protocol, which is ignored. `router` is its sender."""

    def __init__(self, router: str, version: int) -> None:
        super().__init__(f"version {version} of the protocol, from {router}; this router knows {VERSION}")
        self.router = router
        self.version = version


class Treatment(IntEnum):
    """Treatment of an address, as hints of AddressUpdate state it."""

    MULTICAST_FLOOD = 0
    MULTICAST_ONCE = 1
    CLOSEST = 2
    BALANCED = 3
    LINK_BALANCED = 4
    UNAVAILABLE = 5


class Announced(NamedTuple):
    """An address with receivers: its class and name (`M0orders`), and how it is treated where they are (None: not
    stated)."""

    key: str
    treatment: Treatment | None = None


@dataclass(frozen=True, slots=True)
class Hello:
    """HELLO: `router` is running, and has received HELLOs of `seen`. `instance`: time of its start, 0: not stated."""

    opcode: ClassVar = "HELLO"
    node: ClassVar = "qdhello"
    router: str
    instance: int
    seen: tuple[str, ...] = ()

    def fields(self) -> dict[str, Any]:
        """Return the fields of the body that only this message has, as all of these classes do."""
        return {"instance": self.instance, "seen": list(self.seen)}


@dataclass(frozen=True, slots=True)
class Advertisement:
    """RA: the newest numbers of the link state and of the addresses of `router`."""

    opcode: ClassVar = "RA"
    node: ClassVar = "qdrouter"
    router: str
    instance: int
    ls_seq: int
    mobile_seq: int

    def fields(self) -> dict[str, Any]:
        return {"instance": self.instance, "ls_seq": self.ls_seq, "mobile_seq": self.mobile_seq}


@dataclass(frozen=True, slots=True)
class LinkStateRequest:
    """LSR: `router` asks for the receiver's link state."""

    opcode: ClassVar = "LSR"
    node: ClassVar = "qdrouter"
    router: str

    def fields(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class LinkStateUpdate:
    """LSU: the neighbours of `router`, with the costs of the links to them."""

    opcode: ClassVar = "LSU"
    node: ClassVar = "qdrouter"
    router: str
    instance: int
    ls_seq: int
    peers: Mapping[str, int]

    def fields(self) -> dict[str, Any]:
        state = {"id": self.router, "area": _AREA, "ls_seq": self.ls_seq, "peers": dict(self.peers)}
        return {"instance": self.instance, "ls_seq": self.ls_seq, "ls": state}


@dataclass(frozen=True, slots=True)
class AddressRequest:
    """MAR: `router` knows the receiver's addresses as of `have_seq`, and asks for all of them."""

    opcode: ClassVar = "MAR"
    node: ClassVar = "qdrouter.ma"
    router: str
    have_seq: int

    def fields(self) -> dict[str, Any]:
        return {"have_seq": self.have_seq}


@dataclass(frozen=True, slots=True)
class AddressUpdate:
    """MAU: addresses of `router`. `absolute`: `added` are all that there are; otherwise the changes since the update
    before, whose number is one less."""

    opcode: ClassVar = "MAU"
    node: ClassVar = "qdrouter.ma"
    router: str
    mobile_seq: int
    added: tuple[Announced, ...] = ()
    deleted: tuple[str, ...] = ()
    absolute: bool = False

    def fields(self) -> dict[str, Any]:
        keys = [each.key for each in self.added]
        hints = [Int(-1 if each.treatment is None else each.treatment) for each in self.added]
        if self.absolute:
            return {"mobile_seq": self.mobile_seq, "exist": keys, "hints": hints}
        return {"mobile_seq": self.mobile_seq, "hints": hints, "add": keys, "del": list(self.deleted)}


ControlMessage = Hello | Advertisement | LinkStateRequest | LinkStateUpdate | AddressRequest | AddressUpdate


@dataclass(frozen=True, slots=True)
class Envelope:
    """A control message on its way to the router `to`, to EVERY_ROUTER or to the NEIGHBOUR. `trace`: the routers that
    it has passed, its sender first. `payload`: its bytes as received, whose body is passed on unchanged."""

    to: str
    message: ControlMessage
    trace: tuple[str, ...]
    payload: bytes | None = field(default=None, compare=False, repr=False)

    def passed(self, router: str) -> Envelope:
        """Return the message with one more router in its trace."""
        return Envelope(self.to, self.message, (*self.trace, router), self.payload)

    def encode(self) -> bytes:
        """Return the message's bytes."""
        trace = [f"{_AREA}/{router}" for router in self.trace]
        annotations = {_INGRESS: trace[0], _TRACE: trace}
        if self.payload is not None:
            return Sections(self.payload).replace_annotations(annotations)
        message = self.message
        prefix = "_local" if self.to == NEIGHBOUR else f"_topo/{_AREA}/{self.to}"
        body = {"id": message.router, "pv": VERSION, "area": _AREA, **message.fields()}
        return Message(
            AmqpValue(body),
            annotations=annotations,
            to=f"amqp:/{prefix}/{message.node}",
            application_properties={_OPCODE: message.opcode},
        ).encode()


def decode(payload: bytes) -> Envelope:
    """Return the control message in `payload`. Raises InvalidControl, NewerVersion."""
    sections = Sections(payload)
    try:
        sections.check()
        annotations = sections.annotations
        opcode = sections.application_properties.get(_OPCODE)
        kind, values = sections.body()
        to, node = _destination(sections.to)
    except AmqpError as error:
        raise InvalidControl(error.description) from None
    if kind != AMQP_VALUE or not isinstance(values[0], dict):
        raise InvalidControl("the body is no map")
    body = _Body(values[0])
    read = _READERS.get(opcode) if isinstance(opcode, str) else None
    version = body.number("pv", 0)
    if version > VERSION:
        raise NewerVersion(body.router("id"), version)
    if read is None:
        raise InvalidControl(f"the opcode {_shown(opcode)} is unknown")
    message = read(body)
    if node != message.node or (to == NEIGHBOUR) != isinstance(message, Hello):
        raise InvalidControl(f"{message.opcode} to {_shown(sections.to)}")
    return Envelope(to, message, _trace(annotations, message.router), payload)


def _destination(text: str | None) -> tuple[str, str]:
    """Return the router that an address means (EVERY_ROUTER, NEIGHBOUR), and its node there."""
    parts = (text or "").removeprefix("amqp:").removeprefix("/").split("/")
    if len(parts) == 2 and parts[0] == "_local":
        return NEIGHBOUR, parts[1]
    if len(parts) == 4 and parts[0] == "_topo" and parts[1] in (_AREA, EVERY_ROUTER):
        return parts[2], parts[3]
    raise InvalidControl(f"the address {_shown(text)} is no router's")


def _trace(annotations: Mapping[Any, Any], sender: str) -> tuple[str, ...]:
    """Return the routers that a message has passed; the sender alone if the message does not state any."""
    stated = annotations.get(_TRACE, [])
    if not isinstance(stated, list) or not all(isinstance(each, str) for each in stated):
        raise InvalidControl("the trace is no list of routers")
    if len(stated) > MAX_ROUTERS:
        raise InvalidControl(f"the trace has {len(stated)} routers, more than {MAX_ROUTERS}")
    trace = tuple(_router(each.removeprefix(f"{_AREA}/")) for each in stated)
    if trace and trace[0] != sender:
        raise InvalidControl(f"sent by {_shown(sender)}, but {_shown(trace[0])} is first in the trace")
    return trace or (sender,)


class _Body:
    """Fields of a body. Raises InvalidControl for those that are absent or of another type."""

    def __init__(self, fields: dict[Any, Any]) -> None:
        self._fields = fields

    def _get(self, key: str, kind: type) -> Any:
        value = self._fields.get(key)
        if not isinstance(value, kind):
            raise InvalidControl(f"the field {key} is {_shown(value)}")
        return value

    def __contains__(self, key: str) -> bool:
        return key in self._fields

    def number(self, key: str, default: int | None = None) -> int:
        if default is not None and key not in self._fields:
            return default
        return _number(key, self._fields.get(key), 0, _MAX_NUMBER)

    def router(self, key: str) -> str:
        return _router(self._get(key, str))

    def within(self, key: str) -> _Body:
        return _Body(self._get(key, dict))

    def routers(self, key: str) -> tuple[str, ...]:
        listed: list[Any] = self._get(key, list)
        _check_count(key, len(listed))
        return tuple(_router(each) for each in listed)

    def costs(self, key: str) -> dict[str, int]:
        costs: dict[Any, Any] = self._get(key, dict)
        _check_count(key, len(costs))
        return {_router(peer): _number("cost", cost, 1, _MAX_COST) for peer, cost in costs.items()}

    def addresses(self, key: str) -> tuple[str, ...]:
        listed: list[Any] = self._get(key, list)
        for each in listed:
            if not isinstance(each, str) or len(each) < 2:
                raise InvalidControl(f"the field {key} lists {_shown(each)}, which is no address")
        return tuple(str(each) for each in listed)

    def announced(self, key: str) -> tuple[Announced, ...]:
        """Return addresses with their hints, which count only if there is one for each."""
        keys = self.addresses(key)
        hints = self._fields.get("hints")
        if not isinstance(hints, list) or len(hints) != len(keys):
            return tuple(Announced(each) for each in keys)
        return tuple(Announced(each, _treatment(hint)) for each, hint in zip(keys, hints, strict=True))


def _check_count(key: str, count: int) -> None:
    if count > MAX_ROUTERS:
        raise InvalidControl(f"the field {key} has {count} routers, more than {MAX_ROUTERS}")


def _number(key: str, value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool | Timestamp) or not least <= value <= most:
        raise InvalidControl(f"the field {key} is {_shown(value)}")
    return int(value)


def _router(value: object) -> str:
    """Return a router's id: it must be a part of addresses."""
    if not isinstance(value, str) or not is_router_id(value):
        raise InvalidControl(f"{_shown(value)} is no id of a router")
    return str(value)


def is_router_id(text: str) -> bool:
    """Return True if a router can have this id."""
    return 0 < len(text) <= _MAX_ID and text.isprintable() and not set(text) & {" ", "/"} and text != EVERY_ROUTER


def _treatment(hint: object) -> Treatment | None:
    try:
        return Treatment(hint) if isinstance(hint, int) and not isinstance(hint, bool) else None
    except ValueError:
        return None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _hello(body: _Body) -> Hello:
    return Hello(body.router("id"), body.number("instance", 0), body.routers("seen"))


def _advertisement(body: _Body) -> Advertisement:
    return Advertisement(
        body.router("id"), body.number("instance", 0), body.number("ls_seq"), body.number("mobile_seq")
    )


def _link_state_request(body: _Body) -> LinkStateRequest:
    return LinkStateRequest(body.router("id"))


def _link_state_update(body: _Body) -> LinkStateUpdate:
    router, state = body.router("id"), body.within("ls")
    if state.router("id") != router:
        raise InvalidControl(f"{_shown(router)} states the links of another router")
    return LinkStateUpdate(router, body.number("instance", 0), state.number("ls_seq"), state.costs("peers"))


def _address_request(body: _Body) -> AddressRequest:
    return AddressRequest(body.router("id"), body.number("have_seq"))


def _address_update(body: _Body) -> AddressUpdate:
    router, number = body.router("id"), body.number("mobile_seq")
    differential = "add" in body and "del" in body
    if "exist" in body and not ("add" in body or "del" in body):
        return AddressUpdate(router, number, body.announced("exist"), absolute=True)
    if differential and "exist" not in body:
        return AddressUpdate(router, number, body.announced("add"), body.addresses("del"))
    raise InvalidControl("neither all addresses (exist) nor changes (add and del)")


_READERS: Final[dict[str, Callable[[_Body], ControlMessage]]] = {
    "HELLO": _hello,
    "RA": _advertisement,
    "LSR": _link_state_request,
    "LSU": _link_state_update,
    "MAR": _address_request,
    "MAU": _address_update,
}
