"""Interfaces between the two halves of the gateway.

The MQTT half (`protocol`, `network`) has a `Client` for each MQTT connection: packets, packet ids, order, limits. The
AMQP half (`amqp`) has a `Session` for each of them: addresses, links, credit, outcomes, and what the subscription
service and the last-will service know of the client. `Backend.admit` finds out whose a client is, and `Backend.open`
joins it and its session. `Session.start`
hands the session the parts of the connection that its answers go to: `Publications`, `Deliveries`, `Replies`; the
connection's part for messages to the client uses the session's `Settlements`.

Everything runs in one event loop. Nothing that happens once a message is awaited or makes a task: a method asks, and
the answer is a call of the other side, later or before the method has returned. So neither side may rely on its own
state being untouched over a call. No method here raises, except `admit` and `open`.

After `Session.close` session and client no longer call each other. A packet id means one exchange
at a time: it is free again for the other side once the call that ends its exchange was made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from msgspec import Struct

from enmasse.bridge.client_refused import Ask
from enmasse.identity.login import Certified
from enmasse.model.sessions import Outgoing, StatisticsReply, Subscription
from enmasse.mqtt.packets import NONE, Properties, Publish, Subscribe, Unsubscribe, Will
from services.mqtt_gateway.address_use import AddressUse, Attached

if TYPE_CHECKING:
    from prometheus_client.core import Metric

SYSTEM: Final = "$SYS/"
"""Topics below it are written by the gateways alone, but for BRIDGE_STATE."""
BRIDGE_STATE: Final = "$SYS/broker/connection/"
"""Topics below it state whether the bridge of a mosquitto is connected: by its will, and by a retained message."""
UNKNOWN: Final = -1
"""In place of a reason code: the message is neither taken nor refused, or its outcome is unknown. The client's
connection is closed, so that it sends the message again."""


class Asked(NamedTuple):
    """The address space that a connection asks for. `space`: of the listener, None: it is for all; `host`: named by TLS
    (SNI), empty: none; `tls`: what its row has of TLS, None: without."""

    space: str | None = None
    host: str = ""
    tls: dict[str, str] | None = None


NOT_ASKED: Final = Asked()


class Request(Struct, kw_only=True):
    """A CONNECT that was found correct.

    `client_id` is never empty. `expiry`: Session Expiry Interval in seconds (NEVER: it does not end; 3.1.1: 0 with
    Clean Session, else NEVER). `window`: how many deliveries of a source the client takes unsettled. `peer`: host:port.

    `Backend.admit` checks user name and password: in the Request that it returns they are gone, `client_id` is the name
    of the user's client (enmasse/identity/owned.py), and `login` is the backend's own. `auth_method`: enhanced
    authentication (v5 4.12) by this SASL mechanism; `auth_data`: the client's first message, then the server's last.
    `certificate`: the one that the client has presented and the listener has verified. `any_site`: the client may be a
    web page of any site, in a browser that reaches the gateway.
    """

    client_id: str
    clean: bool
    expiry: int
    version: int
    window: int
    peer: str = ""
    will: Will | None = None
    username: str | None = None
    password: bytes | None = None
    login: Any = None
    auth_method: str | None = None
    auth_data: bytes | None = None
    certificate: Certified | None = None
    asked: Asked = NOT_ASKED
    any_site: bool = False


def is_system(filter: str) -> bool:
    """Return whether a topic or filter is one of those below `$SYS/`, without the state of bridges."""
    return filter.startswith(SYSTEM) and not filter.startswith(BRIDGE_STATE)


class Refused(Exception):
    """`admit` or `open` was refused. `reason`: a reason code that CONNACK may carry (v5 3.2.2.2); `text`: why, for
    people; `noted`: why, for operators, if they may know more."""

    def __init__(self, reason: int, text: str = "", noted: str = "") -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
        self.noted = noted or text


class Ending(Enum):
    """How a client's connection has ended, as far as its will is concerned."""

    CLEAN = "clean"
    """DISCONNECT with reason 0x00: the will is dropped."""
    LOST = "lost"
    """Anything else on the client's side, DISCONNECT 0x04 too: the will is published (after its delay)."""
    TAKEN = "taken"
    """The session called `disconnect` with 0x8E: the client is connected elsewhere, which decides about its will."""
    STOPPED = "stopped"
    """The gateway ends: the client may connect elsewhere within the grace time of the last-will service."""
    MOVED = "moved"
    """The gateway has closed the connection for the client to connect elsewhere, within the same grace time."""


class Delivery(Struct, eq=False):
    """A message to a client. It counts against the window until `Session.settle`.

    `qos`, `retain` and the subscription identifiers in `properties` are already those of the subscriptions that it
    matched; `properties` has no message expiry and no topic alias. `expires`: when it expires, in seconds since the
    epoch, 0 if it does not. `identity`: the same for the same message after a new `open`, None if there is no such
    thing; `source`: where from, with `identity` the key of the exchange. `again`: it has been delivered before, maybe
    not to this connection. `handle` is the session's own. `fleeting`: it is not stored and its outcome is stated, so
    the window does not bound it: it is dropped if the client does not take it.
    """

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NONE
    expires: float = 0.0
    identity: str | None = None
    source: str = ""
    again: bool = False
    handle: Any = None
    fleeting: bool = False


class Heading(NamedTuple):
    """Topic, retain flag and properties of messages of QoS 0, as `Delivery` has them."""

    topic: str
    retain: bool
    properties: Properties


class Publications(Protocol):
    """Messages from a client, as its session answers them."""

    def published(self, packet_id: int, reason: int, text: str = "") -> None:
        """Handle the outcome of `Session.publish` with QoS 1 or 2: a reason code of PUBACK and PUBREC, or UNKNOWN.
        Below 0x80 the message is stored, or its receiver has it. Outcomes come in any order: the connection
        acknowledges in the order of the client's messages."""

    def accepted(self, packet_ids: list[int]) -> None:
        """Handle the success of messages of QoS 1 that were stored together: `published` for each."""

    def released(self, packet_id: int) -> None:
        """Send PUBCOMP: `Session.release` is durable."""

    def hold(self) -> None:
        """Read no further: the session has no room for more messages. What was read already may still come, at most
        the packets of one read."""

    def proceed(self) -> None:
        """Continue: there is room again."""

    def throttle(self, throttled: bool) -> None:
        """Read no further, and process nothing, until the rate of the client's space allows more; or continue."""


class Deliveries(Protocol):
    """Messages to a client, as its session gives them."""

    def deliver(self, delivery: Delivery) -> None:
        """Send a message to the client, in the order of the calls. At most `Request.window` messages of a source are
        unsettled, so the number that waits for the client is bounded."""

    def send_together(self, messages: Sequence[tuple[Heading, bytes]]) -> bool:
        """Send messages of QoS 0 that never expire, all or none. None if the client does not take them now. The caller
        settles what was sent."""

    def deliver_together(self, deliveries: Sequence[Delivery]) -> bool:
        """`deliver` of messages of QoS 1 that never expire and come for the first time, all or none. None if the client
        does not take them now."""

    def assigned(self, packet_id: int) -> None:
        """Send PUBLISH: `Settlements.assign` is durable."""

    def withdrawn(self, packet_id: int) -> None:
        """Called instead of `assigned` if the message is another client's: nothing is sent, and the id is free."""

    def received(self, packet_id: int) -> None:
        """Send PUBREL: `Settlements.received` is durable."""

    def completed(self, packet_id: int) -> None:
        """Free the id: `Settlements.complete` is durable, or will be before any later change of this id."""

    def unsettled(self) -> Sequence[Delivery]:
        """Return the deliveries of QoS 0 and 1 that are not settled."""


class Replies(Protocol):
    """Answers to SUBSCRIBE and UNSUBSCRIBE of a client."""

    def subscribed(self, packet_id: int, codes: Sequence[int], text: str = "") -> None:
        """Answer `Session.subscribe`: a reason code of SUBACK for each filter, in order, whatever the version. `text`:
        the reason of the first refusal."""

    def unsubscribed(self, packet_id: int, codes: Sequence[int], text: str = "") -> None:
        """Answer `Session.unsubscribe`: a reason code of UNSUBACK for each filter."""


class Client(Protocol):
    """An MQTT connection, as its session sees it."""

    def disconnect(self, reason: int, text: str = "") -> None:
        """Close the connection, with DISCONNECT for a client of MQTT 5. Calls `Session.close` before it returns."""


class Settlements(Protocol):
    """Messages to a client, as its connection settles them."""

    def settle(self, delivery: Delivery) -> None:
        """Accept a message that the client has (QoS 0: written; QoS 1: PUBACK, whatever its reason), or can never get
        because it is too large or has expired. QoS 2 only before `assign`."""

    def settle_all(self, deliveries: Sequence[Delivery]) -> None:
        """`settle` of messages whose PUBACKs came together, at least one."""

    def assign(self, delivery: Delivery, packet_id: int) -> None:
        """Store that a message of QoS 2 has this packet id, before its PUBLISH. `Deliveries.assigned` or
        `Deliveries.withdrawn` is called. Not for a message that `Session.outgoing` has under this id."""

    def received(self, delivery: Delivery, packet_id: int) -> None:
        """Handle PUBREC: store it, then accept the delivery. `Deliveries.received` is called once it is stored."""

    def complete(self, packet_id: int, delivery: Delivery | None) -> None:
        """PUBCOMP, or PUBREC with an error, or a message of `Session.outgoing` that has expired: the exchange has
        ended. Accept the delivery, if that has not happened, then forget the id. `Deliveries.completed` is called. QoS
        2 only.

        `delivery` None: `Session.outgoing` has the id as released. Such messages are not delivered to the client again;
        the client sends their PUBREL by itself, and the session accepts them when they come, before or after this call.
        """


class Session(Protocol):
    """AMQP half of one MQTT connection. `tenant`: with whose connections it shares its turns; empty: it has its own."""

    @property
    def tenant(self) -> str: ...
    @property
    def present(self) -> bool:
        """A session of this client continues (Session Present of CONNACK)."""

    @property
    def has_will(self) -> bool:
        """Return whether a will is stored, which has not been dropped."""

    @property
    def incoming(self) -> Sequence[int]:
        """Packet ids of QoS 2 messages from the client that are not released, as `open` found them."""

    @property
    def outgoing(self) -> Sequence[Outgoing]:
        """Messages that were under way to the client, in their order, as `open` found them."""

    @property
    def filters(self) -> Mapping[str, Subscription]:
        """The subscriptions that are in force now."""

    @property
    def max_message(self) -> int | None:
        """Bytes of the largest message that the client may send by the plan of its space; None: no limit of it."""

    @property
    def noted(self) -> tuple[int, str]:
        """Reason code and text, as the client gets them, of the newest refusal that has an event."""

    @property
    def settlements(self) -> Settlements:
        """Return the state of the messages that this session delivers."""

    def start(self, publications: Publications, deliveries: Deliveries, replies: Replies) -> None:
        """Receive messages for the client: CONNACK was sent. Called once, unless `close` was called before."""

    def attached(self) -> Iterator[Attached]:
        """Return the subscriptions in force, and the addresses that the client has sent to."""

    # messages from the client

    def publish(self, publish: Publish) -> None:
        """A PUBLISH, valid, its topic alias resolved. With QoS 1 and 2 `Publications.published` is called.

        QoS 2: stored under its packet id before it is sent. If the id is one of `incoming` and topic and payload are
        those of before, it is sent again as the same message, whatever `publish.dup` says. Else it is another one.
        After a reason code of 0x80 and above the id is free; the session forgets it by itself. A retained message that
        cannot be: `published` with the reason, with QoS 0 `Client.disconnect`.
        """

    @property
    def takes_runs(self) -> bool:
        """Return whether messages may go to `publish_run`: False if the session has to look at each of them."""

    def publish_run(self, run: Sequence[Publish]) -> bool:
        """`publish` of messages that came together, of one topic, and QoS 0 or 1, without properties and not retained.
        `Publications.published` is called for none of them before this returns. False: nothing was done, each is one
        for `publish`."""

    def release(self, packet_id: int) -> None:
        """Handle PUBREL for a message whose `published` was below 0x80, or for an id of `incoming`.
        `Publications.released` is called."""

    # subscriptions

    def subscribe(self, subscribe: Subscribe) -> None:
        """Subscribe; one request at a time. `Replies.subscribed` is called."""

    def unsubscribe(self, unsubscribe: Unsubscribe) -> None:
        """Unsubscribe; one request at a time, `subscribe` included. `Replies.unsubscribed` is called."""

    def may_read_system(self, filter: str) -> bool:
        """Return whether the client may have the topics below `$SYS/` that match this filter."""

    # the connection

    def close(self, ending: Ending, expiry: int | None, sent: Sequence[Outgoing]) -> None:
        """Handle the end of the client's connection: unsettled messages are returned. `expiry`: a new Session Expiry
        Interval in seconds, None: unchanged. `sent`: QoS 1 messages that were sent and not acknowledged, in order."""


class Backend(Protocol):
    """AMQP half of the gateway: opens sessions."""

    async def admit(self, request: Request, wanted: Callable[[], bool], ask: Ask) -> Request:
        """Find out which user a CONNECT comes from, and return it with the name of the user's client. `wanted`:
        whether the client is still there; `ask` sends a challenge to it. Raises Refused."""
        ...

    async def open(self, request: Request, client: Client) -> Session:
        """Open the session of an admitted client; its will is stored when this returns. The client starts the session
        in the same turn of the event loop, or closes it if it is lost by then. Raises Refused."""
        ...

    def state(self) -> tuple[bool, str]:
        """Return whether clients can be served (router, subscription service and configuration are reachable), and what
        a person should know."""
        ...

    async def statistics(
        self, since: float, counters: Mapping[str, int], *, group: str = "", leaving: bool = False
    ) -> StatisticsReply | None:
        """Report the counters of this gateway, which has run `since` then (seconds since 1970), and return the sums
        over all; None: the subscription service does not answer. `group`, `leaving`: see Statistics."""
        ...

    def uses(self) -> Iterable[AddressUse]:
        """Return what clients do at addresses, of each address space that has clients."""
        ...

    def families(self) -> Iterator[Metric]:
        """Return its metrics."""
        ...

    async def close(self) -> None:
        """End the gateway, after all sessions were closed: finish their requests within a few seconds, then close
        the connections."""
