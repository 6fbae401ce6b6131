"""Messages between MQTT gateways and the subscription service, and between the service and the command line
(docs/contracts.md, "$mqtt/sessions" and "$mqtt/control").

Each message is JSON in an amqp-value string; its subject names the operation. The body of a request is the struct of
that name, the body of the reply the struct with `Reply`; a failed request is answered with subject `error` (`Failure`).
A client is its MQTT client identifier, preceded by the name of its user (enmasse/identity/owned.py). An epoch is the
number of the client's connection: it grows with each `open`, and requests of an older epoch are refused. Times are
seconds unless their name says otherwise.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from enmasse.model.names import AddressName

ADDRESS: Final = "$mqtt/sessions"
"""Address to which a gateway attaches one sender and one receiver."""
CONTROL: Final = "$mqtt/control"
"""Address for requests of operators; not on listeners for clients."""
NEVER: Final = 0xFFFFFFFF
"""Session expiry interval of a session that does not expire (MQTT 5, 3.1.2.11.2)."""
MOST_HELD: Final = 1024 * 1024
"""Bytes of a message that the service holds for an exchange from a contended source (`out` with a message)."""
STALE: Final = "enmasse:stale-epoch"
"""Condition of a `Failure`: the client has been opened elsewhere since, or its session has ended."""

Qos = Literal[0, 1, 2]
PacketId = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Seconds = Annotated[int, msgspec.Meta(ge=0, le=NEVER)]
Epoch = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
ClientId = Annotated[str, msgspec.Meta(min_length=1, max_length=65535 + 767)]
"""Name of a client as `enmasse.identity.owned` writes it: an MQTT client identifier, of a user's client with up to 767
characters before it."""


class Subscription(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A subscription with its options (MQTT 5, 3.8.3.1). `identifier` 0: none (3.8.2.1.2).

    In a reply `qos` is the granted one. 3.1.1 has `filter` and `qos` only.
    """

    filter: str
    qos: Qos
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: Literal[0, 1, 2] = 0
    identifier: Annotated[int, msgspec.Meta(ge=0, le=268435455)] = 0


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A queue from which the gateway is to receive for a session, in addition to the other sources.

    `filter`: None for the session's own queues, else the whole filter of the shared subscription (`$share/g/f`).
    """

    address: str
    filter: str | None = None


def is_contended(source: str) -> bool:
    """Return whether several sessions may receive from this queue.

    True for a queue address and for the queue of a shared subscription (`$sub/<broker>/share.…`), false for the queue
    of one session.
    """
    return is_address(source) or source.rpartition("/")[2].startswith("share.")


def is_address(source: str) -> bool:
    """Return whether this queue is an address of its own, not the queue of a session or a shared subscription."""
    return not source.startswith("$sub/")


# -- the gateway asks -------------------------------------------------------------------------------------------------
class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """`hello`: everything that a gateway holds, after each attach. `sessions`: client and epoch."""

    gateway: str
    sessions: list[tuple[ClientId, Epoch]] = []


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """`statistics`, every 10 s: counters of a gateway since its start (`since`: seconds since 1970). `in_spaces`: those
    of address spaces, without the default one. `group`: the address space whose ports it has, empty: those of all;
    `leaving`: it hands its clients on."""

    gateway: str
    since: float
    values: dict[str, int]
    in_spaces: dict[str, dict[str, int]] = {}
    group: str = ""
    leaving: bool = False


class StatisticsReply(msgspec.Struct, frozen=True, kw_only=True):
    """`values`: sums over the gateways that are attached, by the last report of each; and `sessions`,
    `subscriptions` and `retained` of the subscription service; `in_spaces`: the same of address spaces, without the
    default one. `since`: the start of the oldest gateway. `gateways`: number of gateways of the group that stay,
    `clients`: number of theirs."""

    since: float
    values: dict[str, int]
    in_spaces: dict[str, dict[str, int]] = {}
    gateways: int = 0
    clients: int = 0


class BindDefault(msgspec.Struct, frozen=True, kw_only=True):
    """`bind_default`: `name` (full) takes the topics that no other address of `space` takes. Reply: Done, once all that
    leads to subscribers is bound there; until then the gateway publishes to the default before."""

    space: str
    name: AddressName


class HelloReply(msgspec.Struct, frozen=True, kw_only=True):
    """`stale`: clients whose session is on another gateway or has ended: the gateway disconnects them. `seal`: key (in
    base64) by which the gateway states the users of retained messages (enmasse/identity/seals.py); empty: none."""

    stale: list[str] = []
    seal: str = ""


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """`open`: a client connects. `clean`: Clean Session (3.1.1), Clean Start (5): an old session ends first.

    `expiry`: Session Expiry Interval; of 3.1.1: 0 with Clean Session, NEVER without. `peer`: where it connects from.
    `groups`: those that a token has stated, of a user without an entry in users.json.
    """

    client: ClientId
    gateway: str
    clean: bool
    expiry: Seconds
    protocol: Literal[4, 5]
    peer: str = ""
    will: bool = False
    groups: tuple[str, ...] | None = None


class Outgoing(msgspec.Struct, frozen=True, array_like=True):
    """A message under way to the client: `[pid, qos, identity, source, state, message]`.

    `identity`: the delivery-tag of the session queue in hexadecimal (it is the same when the message is delivered
    again), None without one. `source`: address of the queue. QoS 2: `released`: PUBREC was received; `completed`:
    PUBCOMP too, and the broker has not settled yet: the packet id is not free, and the message is accepted if it comes.
    `message`: the AMQP message (Base64 in JSON) if the service holds it: it is sent from here, the queue may have
    forgotten it.
    """

    pid: PacketId
    qos: Qos
    identity: str | None
    source: str
    state: Literal["published", "released", "completed"] = "published"
    message: bytes = b""


class OpenReply(msgspec.Struct, frozen=True, kw_only=True):
    """`present`: a session continues (Session Present). `received`: packet ids of QoS 2 messages from the client that
    are not released, each with the duplicate id under which the message was (or is to be) sent on. `sent`: messages to
    the client, in their first order. `previous_will`: `pending` if the client was connected with a will, or has one
    that waits; else empty.
    """

    epoch: Epoch
    present: bool
    subscriptions: list[Subscription] = []
    sources: list[Source] = []
    received: list[tuple[PacketId, str]] = []
    sent: list[Outgoing] = []
    previous_will: Literal["", "pending"] = ""


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """`handover`: before `open`, of a client that this gateway has no room for. If it is connected at another one it is
    closed there: its connection may be half-open, and makes room for the new one."""

    client: ClientId
    gateway: str


class HandoverReply(msgspec.Struct, frozen=True, kw_only=True):
    """`epoch`: of the connection that was closed; 0: there was none at another gateway."""

    epoch: Epoch = 0


class Subscribe(msgspec.Struct, frozen=True, kw_only=True):
    """`subscribe`: the filters of one SUBSCRIBE packet."""

    client: ClientId
    epoch: Epoch
    subscriptions: list[Subscription]


class SubscribeReply(msgspec.Struct, frozen=True, kw_only=True):
    """`codes`: for each filter, in the order of the request: the granted QoS, or a reason code of MQTT 5 (3.9.3); for a
    client of 3.1.1 every refusal is 0x80. `reasons`: for each filter too, empty if it is granted; none at all from a
    service of an earlier version. `sources`: all of the session from now on. Retained
    messages that belong to the subscriptions are in these queues already.
    """

    codes: list[int]
    sources: list[Source] = []
    reasons: list[str] = []


class Unsubscribe(msgspec.Struct, frozen=True, kw_only=True):
    """`unsubscribe`: the filters of one UNSUBSCRIBE packet."""

    client: ClientId
    epoch: Epoch
    filters: list[str]


class UnsubscribeReply(msgspec.Struct, frozen=True, kw_only=True):
    """`codes` as MQTT 5, 3.11.3: 0x00, 0x11 (there was no such subscription), or a failure."""

    codes: list[int]
    sources: list[Source] = []
    reason: str = ""


class Close(msgspec.Struct, frozen=True, kw_only=True):
    """`close`: the client's connection has ended, in whatever way. The session ends `expiry` later.

    `expiry` None: unchanged since `open`. `sent`: QoS 1 messages that the client has not acknowledged, so that they
    have the same packet ids after the next `open`, and what is `completed`. (The other messages of QoS 2 are known from
    `packets`.)
    """

    client: ClientId
    epoch: Epoch
    expiry: Seconds | None = None
    sent: list[Outgoing] = []


class CloseReply(msgspec.Struct, frozen=True, kw_only=True):
    """The session is stored as disconnected, or has ended."""


class PacketChange(msgspec.Struct, frozen=True, array_like=True):
    """Change of a packet id of a QoS 2 exchange: `[client, epoch, op, pid, key, source, message, late]`.

    op    key           source   meaning
    in    duplicate id           a PUBLISH came; its message is sent on under this id
    in-                          PUBREL came: the packet id is free
    out   identity      queue    a PUBLISH is to be sent to the client
    rel   identity      queue    PUBREC came
    out-                         PUBCOMP came and the broker has settled: the packet id is free
    end                          PUBCOMP came, the broker may bring the message again: the packet id is free, and no
                                 session is given the message (contended sources only)

    With `out` from a contended source (`is_contended`):
    message  the AMQP message; the service holds it until `rel`
    late     the delivery was lost before this was sent: the broker may have given the message to another session, which
             may have completed it. It is stored only if it has been before
    """

    client: ClientId
    epoch: Epoch
    op: Literal["in", "in-", "out", "rel", "out-", "end"]
    pid: PacketId
    key: str | None = None
    source: str = ""
    message: bytes = b""
    late: bool = False


class Packets(msgspec.Struct, frozen=True, kw_only=True):
    """`packets`: changes of any clients of the gateway, in their order."""

    changes: list[PacketChange]


class PacketsReply(msgspec.Struct, frozen=True, kw_only=True):
    """All changes are stored, but those of the clients in `stale`: the gateway disconnects them.

    `taken`: client and packet id of each `out` that was not stored, because another session has, or had, the message:
    the gateway accepts it and sends nothing. `left`: of each that was stored without its message, for want of room: it
    stays with the broker until PUBREC. `late`: of each that was late and is not stored: the gateway sends nothing, and
    leaves the message to the broker.
    """

    stale: list[str] = []
    taken: list[tuple[str, int]] = []
    left: list[tuple[str, int]] = []
    late: list[tuple[str, int]] = []


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """`error`: nothing of the request has been done, or it is unknown. `reason`: a reason code of MQTT 5."""

    condition: str
    description: str = ""
    reason: int = 0x80


# -- notifications of the gateway
# ----------------------------------------------------------------------------------------------
class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """`takeover`: the client has connected elsewhere: disconnect it (0x8E), then send `close` with this epoch."""

    client: str
    epoch: Epoch


class Disconnect(msgspec.Struct, frozen=True, kw_only=True):
    """`disconnect`: disconnect the client with this reason code of MQTT 5, then send `close`. `by`: as of ByClient."""

    client: str
    epoch: Epoch
    reason: int = 0x98
    by: str = ""


class SessionDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """`session_deleted`: the session was deleted, and with it the delay of its client's will ends. If the client is
    connected here, `disconnect` follows."""

    client: str
    epoch: Epoch


class SourcesChanged(msgspec.Struct, frozen=True, kw_only=True):
    """`sources`: from now on these are the sources of the session (an address has moved, or was added)."""

    client: str
    epoch: Epoch
    sources: list[Source]


# -- `$mqtt/control`, for operators -----------------------------------------------------------------------------------
class SubscriptionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription that outlives a connection, or an MQTT session with all its filters.

    `kind`: `mqtt` (a session), `amqp` (made by `$subctrl`), `share` (a shared subscription of MQTT), `durable` (a
    durable subscription of an AMQP client at a broker), `unknown` (a queue of a session that the store of the
    subscription service does not know, because the store is empty or older than the broker's data). `filters`: filter →
    granted QoS or tag. `depth`: messages that wait. `since`: ISO 8601, UTC; empty if unknown. `brokers`: the brokers
    with its queues. `names`: what the filters match, as filters of names on AMQP; empty: that is not known.
    """

    id: str
    kind: Literal["mqtt", "amqp", "share", "durable", "unknown"]
    client: str = ""
    filters: dict[str, str] = {}
    names: list[str] = []
    depth: int = 0
    since: str = ""
    brokers: list[str] = []
    connected: bool = False


class SubscriptionsReply(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to subject `subscriptions`; the request has no body."""

    subscriptions: list[SubscriptionRow]


class ById(msgspec.Struct, frozen=True, kw_only=True):
    """Body of subjects `subscription` (reply: a SubscriptionRow) and `delete` (reply: Done): the `id` of a row. `by`:
    as of ByClient."""

    id: str
    by: str = ""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to `delete`, `clear_retained` and `disconnect`: how many there were."""

    count: int


class ByFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Body of subjects `retained` (reply: RetainedReply) and `clear_retained` (reply: Done): an MQTT topic filter,
    in an address space one with `!!SPACE/` in front."""

    filter: str = "#"
    everywhere: bool = False
    """List (`retained` only) what matches in any address space, each with the same share of the rows."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000
    """Rows in the reply at most."""


class RetainedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A retained message. `size`: bytes stored; `since`, `expires`: ISO 8601, UTC (`expires` empty: never). `user`: who
    published it, empty if not stated; `withheld`: why new subscribers do not get it, empty if they do. `name`: that of
    the topic on AMQP; empty: an earlier version has written the row."""

    topic: str
    name: str = ""
    size: int
    qos: int
    since: str
    expires: str = ""
    broker: str = ""
    user: str = ""
    withheld: str = ""


class ByName(msgspec.Struct, frozen=True, kw_only=True):
    """Body of subject `retained_message` (reply: RetainedMessage): the full name on AMQP of a topic."""

    name: str


class RetainedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A retained message, encoded for AMQP: at most 1 MiB (Base64 in JSON)."""

    message: bytes


class RetainedReply(msgspec.Struct, frozen=True, kw_only=True):
    """`total`: how many match, of which at most `limit` are in `retained`."""

    retained: list[RetainedRow]
    total: int


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """An MQTT session. `since`: when it was connected, or disconnected; ISO 8601, UTC. `expiry` as in `Open`."""

    client: str
    connected: bool
    gateway: str
    peer: str
    protocol: int
    since: str
    expiry: int
    subscriptions: int
    in_flight: int


class SessionsReply(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to subject `sessions`; the request has no body."""

    sessions: list[SessionRow]


class ByClient(msgspec.Struct, frozen=True, kw_only=True):
    """Body of subject `disconnect` (reply: Done): the client is disconnected with this reason code of MQTT 5. `by`:
    name of the operator; empty: not stated."""

    client: str
    reason: int = 0x98
    by: str = ""


# -- `$mqtt/wills`, its source for operators ---------------------------------------------------------------------------
WILLS: Final = "$mqtt/wills"
"""A receiver gets the wills there are, in messages of `Wills`; after the last one the service detaches the link."""


class WillRow(msgspec.Struct, frozen=True, kw_only=True):
    """A will. `client`: as in the other rows; of an AMQP client the name of its link. `delay`: seconds from the loss
    of the client to the publication. `state`: `connected`, or `waiting`; then `due` is the time of publication in
    ISO 8601, None if it is not known yet. `size`: bytes with properties."""

    id: str
    client: str
    topic: str
    qos: int
    retain: bool
    delay: int
    size: int
    state: Literal["connected", "waiting"]
    due: str | None = None
    mqtt: bool = True


class Wills(msgspec.Struct, frozen=True, kw_only=True):
    """Part of the wills."""

    wills: list[WillRow]


# -- backups of an address space --------------------------------------------------------------------------------------
class KeptSession(msgspec.Struct, frozen=True, kw_only=True):
    """An MQTT session. `queue`: the last part of the names of its queues at brokers; `shares`: filter of a shared
    subscription → that of its queues. Body of the subject `restore_session` of `$mqtt/control`: what there was of it is
    ended before, and its client is away; the reply is RestoredQueues."""

    client: ClientId
    protocol: Literal[4, 5]
    expiry: Seconds
    groups: tuple[str, ...] | None = None
    subscriptions: list[Subscription] = []
    queue: str = ""
    shares: dict[str, str] = {}


class KeptSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription by `$subctrl`; `queue` as of a session. Body of the subject `restore_subscription` of
    `$mqtt/control`: what there was of it is ended before; the reply is RestoredQueues."""

    subscription: str
    filters: dict[str, str | None]
    queue: str = ""


class RestoredQueues(msgspec.Struct, frozen=True, kw_only=True):
    """`queues`: `queue` of what was restored, or of its shared subscriptions → the addresses of the new queues."""

    queues: dict[str, list[str]]


class KeptRetained(msgspec.Struct, frozen=True, kw_only=True):
    """A retained message. Body of the subject `restore_retained` of `$mqtt/control` (reply: Done), which no subscriber
    gets. `name`: full name on AMQP; `since`, `expires`: milliseconds since 1970; `message`: in its stored form; `user`:
    the full name of its author, None: not stated; `groups`: as in Open."""

    name: str
    qos: Qos
    since: int
    expires: int
    message: bytes
    user: str | None = None
    groups: tuple[str, ...] | None = None


class KeptWill(msgspec.Struct, frozen=True, kw_only=True):
    """A will. `client`: of an MQTT client as in Open, of an AMQP client the name of its link. `delay`: seconds from its
    loss; `message`: the one to be published; `topic`: of an MQTT client, if it differs from `to`. Body of the subject
    `restore_will` of `$mqtt/control`; the reply is the will with its user sealed by this suite: body of the subject
    `restore-will` of `$mqtt/wills`."""

    client: str
    to: str
    qos: int
    delay: int
    message: bytes
    user: str
    groups: tuple[str, ...] | None = None
    topic: str = ""


class Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of a backup: one of these."""

    session: KeptSession | None = None
    subscription: KeptSubscription | None = None
    retained: KeptRetained | None = None
    will: KeptWill | None = None
