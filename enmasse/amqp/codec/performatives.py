"""Performatives and the composite types in them (2.7, 3.4, 3.5, 4.5, 5.3): one class each, its fields are the table.

encode_performative(p) -> bytes                 ValueError: a mandatory field is missing, or a value does not fit
decode_performative(buf, pos, end) -> (p, pos)  AmqpError(amqp:decode-error); a transfer's payload follows at pos
"""

from __future__ import annotations

from typing import Any, Final

from enmasse.amqp.codec.composite import (
    ADDRESS,
    BINARY,
    BOOLEAN,
    FIELDS,
    STRING,
    SYMBOL,
    SYMBOLS,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    FieldKind,
    at_most,
    checked,
    choice,
    composite,
    decode_composite,
    field,
    instance,
    map_of,
)
from enmasse.amqp.codec.encoder import ENCODERS
from enmasse.amqp.codec.errors import INTERNAL_ERROR, AmqpError
from enmasse.amqp.codec.types import Buffer, Described, Symbol, ULong

SENDER: Final = False  # role (2.8.1)
RECEIVER: Final = True

SND_UNSETTLED: Final = 0  # sender-settle-mode (2.8.2)
SND_SETTLED: Final = 1
SND_MIXED: Final = 2

RCV_FIRST: Final = 0  # receiver-settle-mode (2.8.3)
RCV_SECOND: Final = 1

DURABLE_NONE: Final = 0  # terminus-durability (3.5.5)
DURABLE_CONFIGURATION: Final = 1
DURABLE_UNSETTLED_STATE: Final = 2

SASL_OK: Final = 0  # sasl-code (5.3.3.6)
SASL_AUTH: Final = 1
SASL_SYS: Final = 2
SASL_SYS_PERM: Final = 3
SASL_SYS_TEMP: Final = 4

_DELIVERY_TAG = checked(BINARY, lambda tag: len(tag) <= 32, "a tag of at most 32 bytes")
_SND_SETTLE_MODE = at_most(UBYTE, 2)
_RCV_SETTLE_MODE = at_most(UBYTE, 1)
_DURABILITY = at_most(UINT, 2)
_EXPIRY_POLICY = choice(SYMBOL, "link-detach", "session-end", "connection-close", "never")

# lifetime-policy among the dynamic-node-properties (3.5.10 to 3.5.13)
DELETE_ON_CLOSE: Final = Described(ULong(0x2B), [])
DELETE_ON_NO_LINKS: Final = Described(ULong(0x2C), [])
DELETE_ON_NO_MESSAGES: Final = Described(ULong(0x2D), [])
DELETE_ON_NO_LINKS_OR_MESSAGES: Final = Described(ULong(0x2E), [])


_MAX_CONDITION = 64
_MAX_DESCRIPTION = 200


@composite(0x1D, "amqp:error:list")
class Error:
    """Error of a detach, end, close or outcome (2.8.14)."""

    condition: Symbol = field(SYMBOL, mandatory=True)
    description: str | None = field(STRING, default=None)
    info: dict[str, Any] = field(FIELDS, default=None)

    @classmethod
    def of(cls, error: AmqpError) -> Error:
        """Return the error that states an exception to the peer."""
        return cls(condition=error.condition, description=error.description or None, info=error.info)

    def exception(self) -> AmqpError:
        """Return the exception for an error that has come."""
        return AmqpError(self.condition, self.description or "", self.info)

    def shortened(self) -> Error:
        """Return the error as it fits into the smallest frame: without info, condition and description bounded."""
        condition = self.condition if len(self.condition) <= _MAX_CONDITION else INTERNAL_ERROR
        description = (self.description or "").encode()[:_MAX_DESCRIPTION].decode(errors="ignore")
        return Error(condition=condition, description=description)


ERROR: Final = instance("an error", Error)


# --- delivery states and outcomes (3.4, 4.5) --------------------------------------------------------------------------


@composite(0x23, "amqp:received:list")
class Received:
    """How much of a delivery has been received; not an outcome."""

    section_number: int = field(UINT, mandatory=True)
    section_offset: int = field(ULONG, mandatory=True)


class _Shared:
    """A state without fields has one instance: states are compared with `is`."""

    __slots__ = ()
    _instance: Any = None

    def __new__(cls) -> Any:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


@composite(0x24, "amqp:accepted:list")
class Accepted(_Shared):
    """The delivery was processed. `Accepted()` is ACCEPTED."""

    __eq__ = _Shared.__eq__
    __hash__ = _Shared.__hash__


@composite(0x25, "amqp:rejected:list")
class Rejected:
    """The delivery is invalid and will not be processed by anyone."""

    error: Error | None = field(ERROR, default=None)


@composite(0x26, "amqp:released:list")
class Released(_Shared):
    """The delivery was not and will not be processed here. `Released()` is RELEASED."""

    __eq__ = _Shared.__eq__
    __hash__ = _Shared.__hash__


@composite(0x27, "amqp:modified:list")
class Modified:
    """As released, with the message changed: counted as failed, not for this link again, annotated."""

    delivery_failed: bool = field(BOOLEAN, default=False)
    undeliverable_here: bool = field(BOOLEAN, default=False)
    message_annotations: dict[str, Any] = field(FIELDS, default=None)


@composite(0x33, "amqp:declared:list")
class Declared:
    """The outcome of a declare: the transaction's id."""

    txn_id: bytes = field(BINARY, mandatory=True)


ACCEPTED: Final = Accepted()
RELEASED: Final = Released()

Terminal = Accepted | Rejected | Released | Modified
"""States that end a delivery (3.4)."""
Outcome = Terminal | Declared
OUTCOME: Final = instance("an outcome", Accepted, Rejected, Released, Modified, Declared)


@composite(0x34, "amqp:transactional-state:list")
class TransactionalState:
    """An outcome that holds once the transaction is discharged."""

    txn_id: bytes = field(BINARY, mandatory=True)
    outcome: Outcome | None = field(OUTCOME, default=None)


DeliveryState = Received | Accepted | Rejected | Released | Modified | Declared | TransactionalState
STATE: Final = instance(
    "a delivery state", Received, Accepted, Rejected, Released, Modified, Declared, TransactionalState
)


# --- termini (3.5, 4.5.1) ---------------------------------------------------------------------------------------------


@composite(0x28, "amqp:source:list")
class Source:
    """Source of a link's messages (3.5.3)."""

    address: str | None = field(ADDRESS, default=None)
    durable: int = field(_DURABILITY, default=DURABLE_NONE)
    expiry_policy: Symbol = field(_EXPIRY_POLICY, default=Symbol("session-end"))
    timeout: int = field(UINT, default=0)  # seconds
    dynamic: bool = field(BOOLEAN, default=False)
    dynamic_node_properties: dict[str, Any] = field(FIELDS, default=None)
    distribution_mode: Symbol | None = field(SYMBOL, default=None)
    filter: dict[str, Any] = field(FIELDS, default=None)
    default_outcome: Outcome | None = field(OUTCOME, default=None)
    outcomes: tuple[Symbol, ...] = field(SYMBOLS, default=None)
    capabilities: tuple[Symbol, ...] = field(SYMBOLS, default=None)


@composite(0x29, "amqp:target:list")
class Target:
    """Target of a link's messages (3.5.4)."""

    address: str | None = field(ADDRESS, default=None)
    durable: int = field(_DURABILITY, default=DURABLE_NONE)
    expiry_policy: Symbol = field(_EXPIRY_POLICY, default=Symbol("session-end"))
    timeout: int = field(UINT, default=0)  # seconds
    dynamic: bool = field(BOOLEAN, default=False)
    dynamic_node_properties: dict[str, Any] = field(FIELDS, default=None)
    capabilities: tuple[Symbol, ...] = field(SYMBOLS, default=None)


@composite(0x30, "amqp:coordinator:list")
class Coordinator:
    """The target of a link that controls transactions."""

    capabilities: tuple[Symbol, ...] = field(SYMBOLS, default=None)


@composite(0x31, "amqp:declare:list")
class Declare:
    """Body of a message to the coordinator: begin a transaction."""

    global_id: Any = field(BINARY, default=None)


@composite(0x32, "amqp:discharge:list")
class Discharge:
    """Body of a message to the coordinator: commit a transaction, or roll it back with `fail`."""

    txn_id: bytes = field(BINARY, mandatory=True)
    fail: bool = field(BOOLEAN, default=False)


SOURCE: Final = instance("a source", Source)
TARGET: Final = instance("a target", Target, Coordinator)
UNSETTLED: Final[FieldKind] = map_of(_DELIVERY_TAG, STATE)


# --- performatives (2.7) ----------------------------------------------------------------------------------------------


@composite(0x10, "amqp:open:list")
class Open:
    """2.7.1. Times are milliseconds, sizes bytes."""

    container_id: str = field(STRING, mandatory=True)
    hostname: str | None = field(STRING, default=None)
    max_frame_size: int = field(UINT, default=4294967295)
    channel_max: int = field(USHORT, default=65535)
    idle_time_out: int | None = field(UINT, default=None)
    outgoing_locales: tuple[Symbol, ...] = field(SYMBOLS, default=None)
    incoming_locales: tuple[Symbol, ...] = field(SYMBOLS, default=None)
    offered_capabilities: tuple[Symbol, ...] = field(SYMBOLS, default=None)
    desired_capabilities: tuple[Symbol, ...] = field(SYMBOLS, default=None)
    properties: dict[str, Any] = field(FIELDS, default=None)


@composite(0x11, "amqp:begin:list")
class Begin:
    """2.7.2"""

    remote_channel: int | None = field(USHORT, default=None)
    next_outgoing_id: int = field(UINT, mandatory=True)
    incoming_window: int = field(UINT, mandatory=True)
    outgoing_window: int = field(UINT, mandatory=True)
    handle_max: int = field(UINT, default=4294967295)
    offered_capabilities: tuple[Symbol, ...] = field(SYMBOLS, default=None)
    desired_capabilities: tuple[Symbol, ...] = field(SYMBOLS, default=None)
    properties: dict[str, Any] = field(FIELDS, default=None)


@composite(0x12, "amqp:attach:list")
class Attach:
    """2.7.3. `unsettled` None: nothing is remembered; an empty map: the link is remembered, nothing is unsettled."""

    name: str = field(STRING, mandatory=True)
    handle: int = field(UINT, mandatory=True)
    role: bool = field(BOOLEAN, mandatory=True)
    snd_settle_mode: int = field(_SND_SETTLE_MODE, default=SND_MIXED)
    rcv_settle_mode: int = field(_RCV_SETTLE_MODE, default=RCV_FIRST)
    source: Source | None = field(SOURCE, default=None)
    target: Target | Coordinator | None = field(TARGET, default=None)
    unsettled: dict[bytes, DeliveryState | None] | None = field(UNSETTLED, default=None)
    incomplete_unsettled: bool = field(BOOLEAN, default=False)
    initial_delivery_count: int | None = field(UINT, default=None)
    max_message_size: int | None = field(ULONG, default=None)
    offered_capabilities: tuple[Symbol, ...] = field(SYMBOLS, default=None)
    desired_capabilities: tuple[Symbol, ...] = field(SYMBOLS, default=None)
    properties: dict[str, Any] = field(FIELDS, default=None)


@composite(0x13, "amqp:flow:list")
class Flow:
    """2.7.4"""

    next_incoming_id: int | None = field(UINT, default=None)
    incoming_window: int = field(UINT, mandatory=True)
    next_outgoing_id: int = field(UINT, mandatory=True)
    outgoing_window: int = field(UINT, mandatory=True)
    handle: int | None = field(UINT, default=None)
    delivery_count: int | None = field(UINT, default=None)
    link_credit: int | None = field(UINT, default=None)
    available: int | None = field(UINT, default=None)
    drain: bool = field(BOOLEAN, default=False)
    echo: bool = field(BOOLEAN, default=False)
    properties: dict[str, Any] = field(FIELDS, default=None)


@composite(0x14, "amqp:transfer:list")
class Transfer:
    """2.7.5. `settled` None: absent in this frame of the delivery."""

    handle: int = field(UINT, mandatory=True)
    delivery_id: int | None = field(UINT, default=None)
    delivery_tag: bytes | None = field(_DELIVERY_TAG, default=None)
    message_format: int | None = field(UINT, default=None)
    settled: bool | None = field(BOOLEAN, default=None)
    more: bool = field(BOOLEAN, default=False)
    rcv_settle_mode: int | None = field(_RCV_SETTLE_MODE, default=None)
    state: DeliveryState | None = field(STATE, default=None)
    resume: bool = field(BOOLEAN, default=False)
    aborted: bool = field(BOOLEAN, default=False)
    batchable: bool = field(BOOLEAN, default=False)


@composite(0x15, "amqp:disposition:list")
class Disposition:
    """2.7.6. `last` None: the same as first."""

    role: bool = field(BOOLEAN, mandatory=True)
    first: int = field(UINT, mandatory=True)
    last: int | None = field(UINT, default=None)
    settled: bool = field(BOOLEAN, default=False)
    state: DeliveryState | None = field(STATE, default=None)
    batchable: bool = field(BOOLEAN, default=False)


@composite(0x16, "amqp:detach:list")
class Detach:
    """2.7.7"""

    handle: int = field(UINT, mandatory=True)
    closed: bool = field(BOOLEAN, default=False)
    error: Error | None = field(ERROR, default=None)


@composite(0x17, "amqp:end:list")
class End:
    """2.7.8"""

    error: Error | None = field(ERROR, default=None)


@composite(0x18, "amqp:close:list")
class Close:
    """2.7.9"""

    error: Error | None = field(ERROR, default=None)


# --- SASL (5.3.3) -----------------------------------------------------------------------------------------------------


@composite(0x40, "amqp:sasl-mechanisms:list")
class SaslMechanisms:
    """5.3.3.1"""

    sasl_server_mechanisms: tuple[Symbol, ...] = field(SYMBOLS, mandatory=True)


@composite(0x41, "amqp:sasl-init:list")
class SaslInit:
    """5.3.3.2"""

    mechanism: Symbol = field(SYMBOL, mandatory=True)
    initial_response: bytes | None = field(BINARY, default=None)
    hostname: str | None = field(STRING, default=None)


@composite(0x42, "amqp:sasl-challenge:list")
class SaslChallenge:
    """5.3.3.3"""

    challenge: bytes = field(BINARY, mandatory=True)


@composite(0x43, "amqp:sasl-response:list")
class SaslResponse:
    """5.3.3.4"""

    response: bytes = field(BINARY, mandatory=True)


@composite(0x44, "amqp:sasl-outcome:list")
class SaslOutcome:
    """5.3.3.5"""

    code: int = field(at_most(UBYTE, 4), mandatory=True)
    additional_data: bytes | None = field(BINARY, default=None)


def encode_performative(performative: Any) -> bytes:
    """Return a performative, terminus, state or error as a described list. Raises ValueError naming the wrong field."""
    return ENCODERS[type(performative)](performative)


def decode_performative(buf: Buffer, pos: int, end: int) -> tuple[Any, int]:
    """The performative that begins at `pos` and the position after it. Raises AmqpError(amqp:decode-error)."""
    return decode_composite(buf, pos, end)
