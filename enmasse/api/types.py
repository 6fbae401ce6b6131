"""Resources of `/api/v1` as msgspec structs: JSON keys in camelCase, times as ISO 8601 in UTC, sizes in bytes.

A field that is None is unknown, or does not apply; it is left out of no answer, so that every client sees each key.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec

from enmasse.model.address_types import AddressType, FlavorType
from enmasse.model.names import DEFAULT_SPACE
from enmasse.model.permission_words import Operation
from enmasse.model.values import FormField

T = TypeVar("T")

Natural = Annotated[int, msgspec.Meta(ge=0)]
Kind = Literal["addresses", "flavors", "users", "issuers", "spaces", "plans"]
"""A kind of configuration that can be written: its file is KIND.json."""


class Resource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all resources."""


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Part of a list. `next`: value of the parameter `after` with which the following page begins; None: this is the
    last one. `total`: number of all that match the filters and that the caller may view."""

    items: list[T]
    next: str | None = None
    total: Natural = 0


class Fault(Resource, frozen=True, kw_only=True):
    """Error of an entry of the configuration. `line`: in the file, if that is known."""

    file: str
    reason: str
    entry: str | None = None
    field: str | None = None
    line: int | None = None
    since: str | None = None


class Problem(Resource, frozen=True, kw_only=True):
    """Body of every error (RFC 9457, application/problem+json). `type`: `/api/v1/problems/ID`, with an identifier of
    enmasse/errors.py; `title`: a short text of this identifier; `detail`: what is wrong here, and what to do."""

    type: str
    title: str
    status: int
    detail: str = ""
    errors: list[Fault] = []


# -- traffic -----------------------------------------------------------------------------------------------------------
class Counters(Resource, frozen=True, kw_only=True):
    """Messages and bytes since the start of the processes that count them. They restart with such a process, so take
    differences that are not negative. `in`: from clients; `out`: to clients."""

    in_: int = msgspec.field(default=0, name="in")
    out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    accepted: int = 0
    rejected: int = 0
    released: int = 0
    modified: int = 0
    expired: int = 0
    dead_lettered: int = 0
    redelivered: int = 0


class Rates(Resource, frozen=True, kw_only=True):
    """Counters per second, over the last seconds."""

    in_: float = msgspec.field(default=0.0, name="in")
    out: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    accepted: float = 0.0
    rejected: float = 0.0
    released: float = 0.0
    modified: float = 0.0
    expired: float = 0.0
    dead_lettered: float = 0.0
    redelivered: float = 0.0


class Stats(Resource, frozen=True, kw_only=True):
    """Traffic of an address. `messages`: queue depth; `size`: bytes of these; `oldest`: seconds since the oldest one
    arrived, up to a fifth too low while nothing else changes; `receivers`: router or gateway → receivers of clients
    there."""

    messages: int | None = None
    size: int | None = None
    oldest: float | None = None
    consumers: int | None = None
    receivers: dict[str, int] = {}
    producers: int | None = None
    rates: Rates = Rates()
    totals: Counters = Counters()


class SampledRates(Resource, frozen=True, kw_only=True):
    """Messages per second since the sample before."""

    in_: float = msgspec.field(default=0.0, name="in")
    out: float = 0.0


class Sample(Resource, frozen=True, kw_only=True):
    """Numbers of an address, or of all of an address space, at a time, to seven digits. With an `interval` of 300 the
    rates are the mean of the five minutes that begin then, the others the greatest of them."""

    time: str
    messages: int | None = None
    size: int | None = None
    consumers: int | None = None
    producers: int | None = None
    rates: SampledRates = SampledRates()


class ProcessSample(Resource, frozen=True, kw_only=True):
    """Numbers of a broker or router at a time, with the rules of a Sample. `busy`: the part of the time in which its
    event loop had work; `connections`: of a router those of clients; `messages`: of a broker."""

    time: str
    messages: int | None = None
    memory: int | None = None
    connections: int | None = None
    busy: float | None = None
    rates: SampledRates = SampledRates()


class ProcessHistory(Resource, frozen=True, kw_only=True):
    """Answer to `brokers/NAME/stats` and `routers/NAME/stats`: samples of the last `minutes`, with the rules of
    Totals."""

    time: str
    interval: int
    samples: list[ProcessSample] = []


class Totals(Resource, frozen=True, kw_only=True):
    """Answer to `stats`: samples of all addresses together over the last `minutes`, oldest first. `time`: of the
    answer; `interval`: seconds between two samples. Where one is missing nothing is known: the console, the router or a
    broker was not there."""

    time: str
    interval: int
    samples: list[Sample] = []


class History(Totals, frozen=True, kw_only=True):
    """Answer to `addresses/NAME/stats`: as `stats` of an address, and what it has now. Before an address was used there
    are no samples either."""

    stats: Stats


# -- configuration -----------------------------------------------------------------------------------------------------
Entry = dict[str, Any]
"""An entry of addresses.json, flavors.json or users.json as its file has it (docs/configuration.md)."""


class Address(Resource, frozen=True, kw_only=True):
    """An address. `entry`: its entry in canonical form, None if it was removed and is about to go; `etag`: of the
    entry, for `If-Match`; `brokers`: the brokers that carry it."""

    name: str
    type: AddressType | None
    flavor: str | None
    ready: bool
    phase: Literal["Pending", "Configuring", "Active", "Failed", "Terminating"]
    message: str = ""
    components: list[str] = []
    brokers: list[str] = []
    forced: bool = False
    entry: Entry | None = None
    etag: str | None = None
    stats: Stats = Stats()


class Flavor(Resource, frozen=True, kw_only=True):
    """A flavor. `addresses`: number of the addresses that name it, None for callers that may not view them all."""

    name: str
    type: FlavorType
    entry: Entry
    etag: str | None = None
    addresses: int | None = None


class Template(Resource, frozen=True, kw_only=True):
    """A template of flavors. `text`: what becomes of messages; `fields`: of the entries that name it."""

    name: str
    type: FlavorType
    text: str
    fields: list[FormField]


class Fields(Resource, frozen=True, kw_only=True):
    """Answer to `GET fields`: what forms show of entries of addresses, and of flavors by their templates."""

    addresses: list[FormField]
    templates: list[Template]


class Space(Resource, frozen=True, kw_only=True):
    """An address space. `phases`: number of its addresses in each; `ready`: all of them are Active. `used`: what it
    uses of its plan, `limits`: what that has, both by the names of limits. `entry`: its entry in spaces.json, None if
    it was removed, and addresses of it are about to go."""

    name: str
    type: str = "standard"
    plan: str | None = None
    hosts: list[str] = []
    ready: bool = False
    phases: dict[str, int] = {}
    used: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    entry: Entry | None = None
    etag: str | None = None


class Plan(Resource, frozen=True, kw_only=True):
    """A plan of addresses, or of address spaces; `spaces`: those that have it."""

    name: str
    kind: Literal["address", "space"]
    entry: Entry
    etag: str | None = None
    spaces: list[str] = []


class Permission(Resource, frozen=True, kw_only=True):
    """A permission of a user or group. `source`: where it stands, as `alice.permissions.0`."""

    effect: Literal["allow", "deny"]
    operations: list[Operation]
    addresses: list[str]
    source: str = ""


class User(Resource, frozen=True, kw_only=True):
    """A user, or a group (its name begins with `@`). Never a hash: `password` tells whether there is one. `entry`: as
    in users.json, without hashes, to be changed and sent back; `effective`: the permissions of the user and of its
    groups; `warnings`: sentences about permissions that may not do what they say, in the answer to a change alone."""

    name: str
    groups: list[str] = []
    permissions: list[Permission] = []
    effective: list[Permission] = []
    connections: int | None = None
    connects_per_second: int | None = None
    password: bool = False
    entry: Entry = {}
    etag: str | None = None
    warnings: list[str] = []


class Token(Resource, frozen=True, kw_only=True):
    """An API token of a user, without its secret. `id`: `USER/NAME`; `used`: last use, within a second, None: never, or
    not known; `readOnly`: requests with it change nothing."""

    id: str
    user: str
    name: str
    created: str
    expires: str | None = None
    used: str | None = None
    read_only: bool = False


class NewToken(Resource, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST tokens`. `user`: absent: the caller; `days`: until it expires, absent: never."""

    name: str
    user: str | None = None
    days: Annotated[int, msgspec.Meta(ge=1, le=3650)] | None = None
    read_only: bool = False


class MadeToken(Token, frozen=True, kw_only=True):
    """Answer to `POST tokens`. `secret`: by which requests prove the user, `Authorization: Bearer SECRET`; it is shown
    this once."""

    secret: str

    def __repr__(self) -> str:
        return f"MadeToken(user={self.user!r}, name={self.name!r})"


class Decision(Resource, frozen=True, kw_only=True):
    """Answer to `users/NAME/may`: whether the user may do this on the address, and the permission that decides; None:
    no permission covers it, or everything is allowed. `address`: the name on AMQP that it is about, another one than
    was asked for if that is a topic of the address with `mqttDefault`."""

    allowed: bool
    address: str
    permission: Permission | None = None


class Change(Resource, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST config`, and of the request to configserv's target `configure`. `set`: name → entry; `remove`:
    names; `if`: name → etag that the entry must have, or null if it must not exist; `check`: nothing is written;
    `with`: entries of other kinds that count as set, for a check."""

    kind: Kind
    set: dict[str, Entry] = {}
    remove: list[str] = []
    if_: dict[str, str | None] = msgspec.field(default={}, name="if")
    check: bool = False
    with_: dict[Kind, dict[str, Entry]] = msgspec.field(default={}, name="with")


class ChangeResult(Resource, frozen=True, kw_only=True):
    """Answer to a Change. `accepted`: everything was written (or would be), or nothing. `conflict`: an entry differs
    from what `if` states. `etags`: name → etag of each entry that is set."""

    accepted: bool
    errors: list[Fault] = []
    conflict: bool = False
    etags: dict[str, str] = {}


# -- connections -------------------------------------------------------------------------------------------------------
class Link(Resource, frozen=True, kw_only=True):
    """A link of a connection. Of an MQTT client: a subscription, whose `name` is its filter, with the granted `qos`, or
    an address that it has sent to, and `names` has what it covers, by names on AMQP, of which permissions are needed.
    `direction`: `in` sends to the suite."""

    id: str
    connection: str
    component: str
    direction: Literal["in", "out"]
    address: str | None = None
    name: str = ""
    credit: int | None = None
    unsettled: int | None = None
    qos: int | None = None
    names: list[str] = []
    rates: Rates = Rates()
    totals: Counters = Counters()


class MqttClient(Resource, frozen=True, kw_only=True):
    """Protocol and session of a connected MQTT client. `version`: `3.1.1` or `5`; `keep_alive`: seconds; `expiry`:
    seconds that its session is kept without a connection, 2^32 - 1: without end; `in_flight_in`, `in_flight_out`:
    messages of QoS 1 and 2 from and to it whose exchange is not over; `waiting_bytes`: waiting in the gateway."""

    version: str
    keep_alive: int
    expiry: int
    will: bool
    subscriptions: int
    in_flight_in: int
    in_flight_out: int
    waiting_bytes: int


class Connection(Resource, frozen=True, kw_only=True):
    """A connection of a client, or of a process of the suite (`inside`). `id`: unique in the suite; `component`: the
    router, broker or gateway that has it; `tls`: version and cipher, None without TLS; `links`: number of those that
    the caller may view; `mqtt`: None of other clients."""

    id: str
    component: str
    protocol: str
    user: str | None = None
    container: str = ""
    peer: str = ""
    tls: str | None = None
    since: str | None = None
    inside: bool = False
    links: int = 0
    mqtt: MqttClient | None = None
    rates: Rates = Rates()
    totals: Counters = Counters()


class Session(Resource, frozen=True, kw_only=True):
    """An MQTT session. `expiry`: seconds it is kept without a connection, 2^32 - 1: without end; `waiting`: messages
    that are stored for it."""

    id: str
    client: str
    user: str | None
    connected: bool
    gateway: str
    peer: str
    protocol: int
    since: str
    expiry: int
    subscriptions: int
    in_flight: int
    waiting: int = 0


class Subscription(Resource, frozen=True, kw_only=True):
    """A subscription that outlives connections. `filters`: filter → granted QoS or tag; `depth`: messages that wait;
    `names`: what the filters match, by names on AMQP, of which permissions are needed."""

    id: str
    kind: Literal["mqtt", "amqp", "share", "durable", "unknown"]
    client: str
    user: str | None
    filters: dict[str, str]
    depth: int
    since: str | None
    brokers: list[str]
    connected: bool
    names: list[str] = []


class Retained(Resource, frozen=True, kw_only=True):
    """A retained message. `withheld`: why new subscribers do not get it; `names`: of the topic on AMQP, of which
    permissions are needed (as a rule one)."""

    topic: str
    names: list[str] = []
    size: int
    qos: int
    since: str
    expires: str | None = None
    broker: str = ""
    user: str | None = None
    withheld: str = ""


class RetainedMessage(Retained, frozen=True, kw_only=True):
    """A retained message with its payload: as text, or Base64, by `encoding`; None if the caller may not receive it;
    `truncated`: it is longer than 64 KiB."""

    content_type: str | None = None
    encoding: Literal["utf-8", "base64"] = "utf-8"
    payload: str | None = None
    truncated: bool = False


class Will(Resource, frozen=True, kw_only=True):
    """A will: what is published when a client is lost. `topic`: the address; `delay`: seconds from the loss to then;
    `size`: bytes with properties. `state`: `connected`, or `waiting`, with the time of publication, `due`, as far as
    that is known."""

    id: str
    client: str
    user: str | None
    topic: str
    qos: int
    retain: bool
    delay: int
    size: int
    state: Literal["connected", "waiting"]
    due: str | None = None


# -- the suite ---------------------------------------------------------------------------------------------------------
class Component(Resource, frozen=True, kw_only=True):
    """A process of the suite. `leaving`: it hands its clients on, and ends then. `redundant`: another one serves
    its clients' ports. `routes`: of a router, other router → `cost` and `next`, the neighbour on the way. `ended`,
    `ended_at`: how and when its last process died, if one did."""

    name: str
    kind: str
    ready: bool
    leaving: bool = False
    redundant: bool = False
    detail: str = ""
    engine: str = ""
    pid: int | None = None
    restarts: int = 0
    ended: str = ""
    ended_at: str | None = None
    since: str | None = None
    endpoints: dict[str, str] = {}
    counts: dict[str, int] = {}
    routes: dict[str, dict[str, Any]] = {}


class Query(Resource, frozen=True, kw_only=True):
    """A query of the Spark pipeline. `batch`, `at`: the last batch that had rows, and when it began; None before the
    first. `rows`: of all batches since the pipeline started, `rows_per_second`: what comes in now. `behind`: messages
    that are spooled and not processed, `oldest`: seconds since the oldest of them arrived; None: not known."""

    name: str
    batch: Natural | None = None
    at: str | None = None
    rows: Natural = 0
    rows_per_second: float = 0.0
    behind: Natural | None = None
    oldest: float | None = None


class Window(Resource, frozen=True, kw_only=True):
    """Readings of a device between `start` and `end` (RFC 3339): their number, minimum, maximum and mean."""

    device: str
    start: str
    end: str
    minimum: float
    maximum: float
    mean: float
    readings: Natural


class QueryWindows(Resource, frozen=True, kw_only=True):
    """Newest windows of a query: of a few devices, by device and then by time."""

    name: str
    windows: list[Window] = []


class Broker(Resource, frozen=True, kw_only=True):
    """A broker. `by_hand`: it is managed by hand; `addresses`: name → `active`, `prepared` or `draining`. `size`: bytes
    of its messages, `capacity`: the most that it stores, None: as the disk has; `disk_used`: bytes of its files,
    `disk_free`: of their file system; `sync`: seconds until a batch was on disk; `memory`: bytes of the process, of
    which `message_memory` are messages; `busy`: part of the last seconds in which its event loop had work. None: it
    does not say."""

    name: str
    host: str
    port: int
    by_hand: bool = False
    connected: bool = False
    addresses: dict[str, str] = {}
    version: str = ""
    connections: int | None = None
    messages: int | None = None
    size: int | None = None
    capacity: int | None = None
    disk_used: int | None = None
    disk_free: int | None = None
    sync: float | None = None
    message_memory: int | None = None
    memory: int | None = None
    busy: float | None = None
    rates: Rates = Rates()
    totals: Counters = Counters()


class Neighbour(Resource, frozen=True, kw_only=True):
    """A broker, or another router, that a router is connected to. `rates`: what it gets there (`in`) and sends there
    (`out`); None: the router does not count by connection, see the rates of the broker."""

    name: str
    kind: Literal["broker", "router"]
    rates: Rates | None = None


class Route(Resource, frozen=True, kw_only=True):
    """The way to another router of the network. `next`: the neighbour on it; `path`: the routers from that one to the
    other, empty while the routers between are not reached."""

    name: str
    cost: int | None
    next: str
    path: list[str] = []


class Router(Resource, frozen=True, kw_only=True):
    """A router. `peers`: names of the components it is connected to; `neighbours`: brokers and routers among them;
    `routes`: to all other routers; `memory`: bytes of the process; `busy`: part of the last seconds in which its event
    loop had work; None: it does not say."""

    name: str
    connected: bool
    version: str = ""
    memory: int | None = None
    busy: float | None = None
    peers: list[str] = []
    neighbours: list[Neighbour] = []
    routes: list[Route] = []
    connections: int = 0
    links: int = 0
    rates: Rates = Rates()
    totals: Counters = Counters()


class Event(Resource, frozen=True, kw_only=True):
    """Something that a client met: a refusal, or a connection closed for a limit. `kind`: id of the log event
    (docs/events.md), whose other fields are in `more`; `count`: how often since the one before. `address`: as the
    client stated it; `names`: its names on AMQP, of which permissions are needed; `space`: the address space that these
    are of."""

    id: str
    time: str
    component: str
    kind: str
    condition: str = ""
    description: str = ""
    address: str | None = None
    names: list[str] = []
    user: str | None = None
    client: str = ""
    peer: str = ""
    count: int = 1
    space: str = DEFAULT_SPACE
    more: dict[str, Any] = {}


class Overview(Resource, frozen=True, kw_only=True):
    """The suite at a glance. `phases`: number of addresses in each; `not_ready`: the first addresses that are not;
    `degraded`: components that are not ready, and without which messages flow on."""

    version: str
    ready: bool
    degraded: list[str] = []
    phases: dict[str, int]
    not_ready: list[Address]
    components: list[Component]
    errors: list[Fault]
    connections: int = 0
    rates: Rates = Rates()
    totals: Counters = Counters()
    messages: int = 0
    size: int = 0
    consumers: int = 0
    producers: int = 0


class Me(Resource, frozen=True, kw_only=True):
    """The caller. `how`: by the operator's secret, a session's cookie, a bearer token or a password, an API token, or
    not at all, because there are no users. `csrf`: value of the header `X-CSRF-Token` that requests with the cookie
    need if they change something. `administrator`: may `manage` everything; `viewer`: may `view` everything, both in
    its address space. `operations`: those that there are in permissions. `space`: absent in the default one."""

    user: str | None
    space: str | msgspec.UnsetType = msgspec.UNSET
    how: Literal["operator", "session", "bearer", "token", "anonymous"]
    groups: list[str] = []
    csrf: str | None = None
    expires: str | None = None
    administrator: bool = False
    viewer: bool = False
    permissions: list[Permission] = []
    operations: list[Operation]


class Login(Resource, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST login`."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login(user={self.user!r})"


class LoginOptions(Resource, frozen=True, kw_only=True):
    """Answer to `GET login`: how callers may log in. `issuers`: names of those at which browsers can."""

    anonymous: bool
    password: bool
    issuers: list[str] = []


class LoginAtIssuer(Resource, frozen=True, kw_only=True):
    """Answer to `POST login/issuers/NAME`. `url`: where to send the browser."""

    url: str


# -- messages ----------------------------------------------------------------------------------------------------------
class Death(Resource, frozen=True, kw_only=True):
    """One reason for which a message became a dead letter (annotation `x-opt-death`)."""

    reason: str
    source: str | None = None
    condition: str | None = None
    description: str | None = None
    consumer: str | None = None
    count: int = 1
    first: str | None = None
    last: str | None = None


class Message(Resource, frozen=True, kw_only=True):
    """A message. `id`: of the broker, by which it is removed or moved; also the cursor of the list. `body`: as text, or
    Base64, by `encoding`; None if the caller may not read it, or the broker does not show it; `truncated`: it is longer
    than was wanted. `size`: bytes; None: not known."""

    id: str
    size: int | None
    durable: bool = False
    priority: int = 4
    delivery_count: int = 0
    message_id: str | None = None
    user_id: str | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: str | None = None
    content_type: str | None = None
    group_id: str | None = None
    created: str | None = None
    expires: str | None = None
    properties: dict[str, Any] = {}
    annotations: dict[str, Any] = {}
    deaths: list[Death] = []
    encoding: Literal["utf-8", "base64"] = "utf-8"
    body: str | None = None
    truncated: bool = False


class NewMessage(Resource, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST addresses/NAME/messages`: a message to send. Without `messageId` it gets an id of its own."""

    body: str = ""
    encoding: Literal["utf-8", "base64"] = "utf-8"
    durable: bool = True
    priority: Annotated[int, msgspec.Meta(ge=0, le=9)] = 4
    ttl: Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)] | None = None
    message_id: str | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: str | None = None
    content_type: str | None = None
    group_id: str | None = None
    properties: dict[str, str | int | float | bool | None] = {}


class Selected(Resource, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages of an address to work on: these `ids`, or those that the `selector` takes (empty: all); at most
    `limit`."""

    ids: list[str] = []
    selector: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Move(Selected, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST addresses/NAME/move`. `to`: the address that gets them."""

    to: str


class Job(Resource, frozen=True, kw_only=True):
    """A long operation on the messages of an address. `done`: messages so far; `total`: of how many, None: unknown."""

    id: str
    address: str
    operation: Literal["purge", "remove", "move", "redrive"]
    state: Literal["running", "done", "failed", "cancelled"]
    done: int = 0
    total: int | None = None
    detail: str = ""
    user: str | None = None
    started: str = ""
