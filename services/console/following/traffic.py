"""Traffic of addresses, connections and links, from the rows of `$live` (docs/contracts.md). No sockets, no clock.

Each process gives rows with counters since its start. A row's contribution to its address is replaced when the row
changes; that of a row that is gone stays in the counters, so that they never fall while the console runs.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

import msgspec

from enmasse.api.types import Connection, Counters, Link, MqttClient, Rates, Stats
from enmasse.identity.principal import named
from enmasse.identity.processes.roles import GATEWAYS
from enmasse.live_state import INTER_ROUTER, Row
from enmasse.model.address_types import TYPES, AddressType
from enmasse.model.names import DEFAULT_SPACE, space_prefix
from services.console.following.address_history import Point
from services.console.following.rates import Meter
from services.console.following.rows import Rows

FIELDS = (
    "in", "out", "bytesIn", "bytesOut", "accepted", "rejected", "released", "modified", "expired", "deadLettered",
    "redelivered",
)  # fmt: skip
"""Counters of an address, in the order of `Counters`."""
OF_QUEUE = ("in", "out", "bytesIn", None, "out", "rejected", None, None, "expired", "deadLettered", "redelivered")
"""Fields of a broker's row that count for these."""
STORED_AT_ROUTER = (None, None, None, "bytesOut", None, None, "outReleased", "outModified", None, None, None)
"""Fields of a router's row that count, for addresses whose messages a broker stores."""
AT_ROUTER = ("in", "out", "bytesIn", "bytesOut", "accepted", "rejected", "released", "modified", None, None, None)
TOPIC_AT_GATEWAY = (None, "out", None, "bytesOut", None, None, None, None, None, None, None)
"""Fields of a gateway's row that count for topics: what comes from the queues of its clients. All else that its clients
send and receive counts at routers and brokers."""
OF_CONNECTION = ("in", "out", "bytesIn", "bytesOut")
_GAUGES = ("messages", "bytes", "consumers", "producers")
_OF_LINK = ("count", "bytes", "accepted", "rejected", "released", "modified")
AGES, SHORTEST = 1.2, 2.0
"""An age that was stated is stated again when it is this many times higher, after this many seconds at least."""
INSIDE = frozenset({INTER_ROUTER, "route-container", "edge"})
"""Kinds of connections that are not clients'."""

Owner = Callable[[str], tuple[str, AddressType] | None]
"""Name on the wire → the configured address that it belongs to, and its type."""
T = TypeVar("T", Rates, Counters)


class _Of:
    """Contribution of one row: counters and gauges."""

    __slots__ = ("address", "counters", "gauges", "oldest", "receivers")

    def __init__(
        self, address: str, counters: list[int], gauges: dict[str, int], oldest: float | None, receivers: int = 0
    ) -> None:
        self.address = address
        self.receivers = receivers
        self.counters = counters
        self.gauges = gauges
        self.oldest = oldest


class _Sum:
    """The sum of an address."""

    __slots__ = ("counters", "gauges", "oldest", "receivers")

    def __init__(self) -> None:
        self.counters = [0] * len(FIELDS)
        self.gauges: dict[str, int] = {}
        self.oldest: dict[tuple[str, str, str], float] = {}
        self.receivers: dict[tuple[str, str, str], int] = {}
        """Row of a router or gateway that has receivers → their number."""


class Traffic:
    """Sums by address, and rows of connections and links. `owner`: see Owner; `now()`: seconds since 1970."""

    def __init__(self, owner: Owner, now: Callable[[], float]) -> None:
        self.connections: Rows[Connection] = Rows(lambda: self._connections, self._connection)
        self.links: Rows[Link] = Rows(lambda: self._links, self._link)
        self.addresses_of: dict[str, dict[str, str | None]] = {}
        """Connection → link → address."""
        self.inside: set[str] = set()
        """The connections of the suite's own processes."""
        self._owner = owner
        self._now = now
        self._rows: dict[tuple[str, str, str], _Of] = {}
        self._sums: dict[str, _Sum] = {}
        self._connections: dict[str, tuple[str, Row]] = {}
        self._links: dict[str, tuple[str, Row]] = {}
        self._meter = Meter(len(FIELDS))
        self._moved: set[str] = set()
        self._sampled: dict[str, tuple[int, int]] = {}
        """Address → messages in and out, as of the last points."""
        self._aging: list[tuple[float, str]] = []
        """When the age of the oldest message has to be stated again, and of which address; a heap."""
        self._aged: set[str] = set()
        """The addresses in it."""
        self._connection_meter = Meter(len(OF_CONNECTION))
        self._link_meter = Meter(len(_OF_LINK))
        self._component_meter = Meter(len(FIELDS))
        self._totals: dict[str, list[int]] = {}
        """Router or broker → counters: of connections that are not brokers', of queues and topics."""
        self._counted: dict[str, tuple[int, ...]] = {}
        """Connection at a router → what it has added to these."""
        self._peers: dict[str, tuple[str, Row]] = {}
        """Connections of routers to brokers and to each other."""
        self._peer_meter = Meter(len(OF_CONNECTION))
        self._unseen: dict[str, set[tuple[str, str]]] = {}
        """Process whose state is incomplete → groups and ids of its earlier rows that it has not had yet."""

    def take(self, component: str, kind: str, body: Row, *, full: bool, complete: bool = True) -> None:
        """Take a message of a process. `full`: its state begins, and rows that it does not have until it is `complete`
        are gone. Dropping them earlier would count the others twice."""
        if full:
            self._unseen[component] = self._known(component)
        for group, ids in body.get("removed", {}).items():
            for id in ids:
                if group == "connections":
                    self._counted.pop(f"{component}/{id}", None)
                self._drop(component, group, id)
        for group in ("queues", "addresses"):
            for id, row in body.get(group, {}).items():
                self._put(component, kind, group, id, row)
        changed, other = set(), False
        for id, row in body.get("connections", {}).items():
            key = f"{component}/{id}"
            # What connections between routers carry is counted where it enters and leaves the mesh.
            if kind == "router" and row.get("dir") != "out" and row.get("kind") != INTER_ROUTER:
                self._count(component, key, row)
            elif kind == "router":
                self._peers[key] = component, row
                self._peer_meter.note(key, _carried(row))
            other = other or key not in self._connections
            self._connections[key] = component, row
            if is_inside(kind, row):
                self.inside.add(key)
            else:
                self.inside.discard(key)
            self._connection_meter.note(key, _carried(row))
            changed.add(key)
        linked, more = set(), False
        for id, row in body.get("links", {}).items():
            of, key = f"{component}/{row.get('connection')}", f"{component}/{id}"
            more = more or key not in self._links
            self._links[key] = component, row
            self._link_meter.note(key, tuple([int(row.get(field) or 0) for field in _OF_LINK]))
            self.addresses_of.setdefault(of, {})[key] = self._local(of, row)
            linked.add(key)
            changed.add(of)
        if changed:
            self.connections.changed(changed, other_keys=other)
        if linked:
            self.links.changed(linked, other_keys=more)
        self._see(component, body, complete=complete)

    def clients(self, space: str) -> int:
        """Return the number of connections of clients of an address space."""
        return sum(self.space_of(key) == space for key in self._connections.keys() - self.inside)

    def space_of(self, connection: str) -> str:
        """Return the address space of a connection, that of its user."""
        found = self._connections.get(connection)
        user = None if found is None else found[1].get("user")
        return DEFAULT_SPACE if user is None else named(str(user)).space

    def space_of_link(self, link: str) -> str:
        """Return the address space of a link, that of its connection."""
        found = self._links.get(link)
        return DEFAULT_SPACE if found is None else self.space_of(f"{found[0]}/{found[1].get('connection')}")

    def _local(self, connection: str, row: Row) -> str | None:
        """Return the address of a link, as its client knows it."""
        found = row.get("address") or row.get("stated")
        return None if found is None else str(found).removeprefix(space_prefix(self.space_of(connection)))

    def of_client(self, link: Link) -> bool:
        """Return whether a link belongs to a client's connection."""
        return link.connection in self._connections and link.connection not in self.inside

    def gone(self, component: str) -> None:
        """Forget the connections and gauges of a process that is not reached. Its counters are kept: if it is
        followed again without a new start, only their growth counts."""
        self._unseen.pop(component, None)
        for group, id in self._of_clients(component):
            self._drop(component, group, id)
        for key, row in list(self._rows.items()):
            if key[0] == component:
                self._set(key, _Of(row.address, row.counters, dict.fromkeys(row.gauges, 0), None), of_broker=False)

    def rest(self) -> None:
        """Forget the rates: nothing is followed. Counters stay."""
        for meter in (self._meter, self._component_meter, self._peer_meter):
            meter.rest()
        self._moved.clear()

    def look(self, now: float) -> set[str]:
        """Compute rates; return the addresses that have changed since the last call."""
        for name in self._moved:
            self._meter.note(name, tuple(self._sums[name].counters))
        changed = self._moved | self._meter.look(now)
        while self._aging and self._aging[0][0] <= self._now():
            _, name = heapq.heappop(self._aging)
            self._aged.discard(name)
            if name in self._sums and self._sums[name].oldest:
                changed.add(name)
        self._moved = set()
        moving = self._connection_meter.look(now)
        if moving:
            self.connections.changed(moving, other_keys=False)
        moving = self._link_meter.look(now)
        if moving:
            self.links.changed(moving, other_keys=False)
        for component, totals in self._totals.items():
            self._component_meter.note(component, tuple(totals))
        self._component_meter.look(now)
        self._peer_meter.look(now)
        return changed

    def points(self, seconds: float) -> Iterator[tuple[str, Point]]:
        """Yield each address and its numbers, rates since the call before this one, which was `seconds` ago."""
        for name, total in list(self._sums.items()):
            now, gauges = (total.counters[0], total.counters[1]), total.gauges
            before = self._sampled.get(name, now)
            self._sampled[name] = now
            known = [float(gauges.get(each, math.nan)) for each in _GAUGES]
            yield name, Point((now[0] - before[0]) / seconds, (now[1] - before[1]) / seconds, *known)

    def stats(self, name: str) -> Stats:
        """Return the traffic of an address."""
        total = self._sums.get(name)
        if total is None:
            return Stats()
        gauges = total.gauges
        receivers: Counter[str] = Counter()
        for (component, _, _), count in total.receivers.items():
            receivers[component] += count
        oldest = min(total.oldest.values(), default=None)
        age = None if oldest is None else round(max(0.0, self._now() - oldest), 1)
        if age is not None and name not in self._aged:
            self._aged.add(name)
            heapq.heappush(self._aging, (self._now() + max(SHORTEST, age * (AGES - 1)), name))
        return Stats(
            messages=gauges.get("messages"),
            size=gauges.get("bytes"),
            oldest=age,
            consumers=gauges.get("consumers"),
            receivers=dict(sorted(receivers.items())),
            producers=gauges.get("producers"),
            rates=_rates(self._meter.rates(name)),
            totals=_counters(total.counters),
        )

    def of_component(self, name: str) -> tuple[Rates, Counters]:
        """Return rates and totals of a router or broker."""
        totals = self._totals.get(name)
        return _rates(self._component_meter.rates(name)), Counters() if totals is None else _counters(totals)

    def peers(self, router: str) -> list[tuple[Row, Rates]]:
        """Return the router's connections to brokers and other routers, with rates: `in_` is what it gets there."""
        found = [(key, row) for key, (component, row) in self._peers.items() if component == router]
        rates = [self._peer_meter.rates(key) for key, _ in found]
        return [
            (row, Rates(in_=each[0], out=each[1], bytes_in=each[2], bytes_out=each[3]))
            for (_, row), each in zip(found, rates, strict=True)
        ]

    # -- contributions

    def _count(self, component: str, key: str, row: Row) -> None:
        """Add what a connection has carried since its last row to the counters of its router."""
        totals = self._totals.setdefault(component, [0] * len(FIELDS))
        now = _carried(row)
        before = self._counted.get(key, (0,) * len(now))
        for at, (value, was) in enumerate(zip(now, before, strict=True)):
            totals[at] += value - was if value >= was else value
        self._counted[key] = now

    def _put(self, component: str, kind: str, group: str, id: str, row: Row) -> None:
        wire = row.get("address") or id
        owner = None if str(wire).startswith("$") else self._owner(str(wire))
        key = component, group, id
        if owner is None:
            self._forget(key)
            return
        name, traits = owner[0], TYPES[owner[1]]
        counters, gauges, oldest, receivers = [0] * len(FIELDS), {}, None, 0
        if kind != "broker":
            receivers = int(row.get("consumers") or 0)
            gauges = {each: int(row[each]) for each in ("consumers", "producers") if row.get(each) is not None}
            columns: tuple[str | None, ...]
            if kind in GATEWAYS:
                columns = TOPIC_AT_GATEWAY if traits.levels else (None,) * len(FIELDS)
            else:
                columns = STORED_AT_ROUTER if traits.stored else AT_ROUTER
                if traits.levels:  # brokers state its consumers, also those at their own ports
                    gauges.pop("consumers", None)
        elif group == "queues":
            columns = OF_QUEUE
            gauges = {each: int(row[each] or 0) for each in ("messages", "bytes") if each in row}
            if traits.levels:
                columns = (None, *OF_QUEUE[1:2], None, *OF_QUEUE[3:])
                gauges["consumers"] = int(row.get("consumers") or 0)
            oldest = row.get("oldest")
        else:  # of a broker: what a topic receives is counted there
            columns = ("in", *((None,) * (len(FIELDS) - 1))) if traits.levels else (None,) * len(FIELDS)
        for at, column in enumerate(columns):
            if column is not None:
                counters[at] = int(row.get(column) or 0)
        self._set(key, _Of(name, counters, gauges, oldest, receivers), of_broker=kind == "broker")

    def _set(self, key: tuple[str, str, str], new: _Of, *, of_broker: bool) -> None:
        old = self._rows.get(key)
        if old is not None and old.address != new.address:
            self._forget(key)
            old = None
        total = self._sums.setdefault(new.address, _Sum())
        before = [0] * len(FIELDS) if old is None else old.counters
        sums = [total.counters]
        if of_broker:
            sums.append(self._totals.setdefault(key[0], [0] * len(FIELDS)))
        for at, value in enumerate(new.counters):
            # A counter that has fallen belongs to a new start of its process: it counts from 0.
            more = value - before[at] if value >= before[at] else value
            for counters in sums:
                counters[at] += more
        for gauge, value in new.gauges.items():
            was = 0 if old is None else old.gauges.get(gauge, 0)
            total.gauges[gauge] = total.gauges.get(gauge, 0) + value - was
        if new.oldest is None:
            total.oldest.pop(key, None)
        else:
            total.oldest[key] = new.oldest
        if new.receivers:
            total.receivers[key] = new.receivers
        else:
            total.receivers.pop(key, None)
        self._rows[key] = new
        self._moved.add(new.address)

    def _forget(self, key: tuple[str, str, str]) -> None:
        old = self._rows.pop(key, None)
        if old is None:
            return
        total = self._sums[old.address]
        for gauge, value in old.gauges.items():
            total.gauges[gauge] -= value
        total.oldest.pop(key, None)
        total.receivers.pop(key, None)
        self._moved.add(old.address)

    def _drop(self, component: str, group: str, id: str) -> None:
        key = f"{component}/{id}"
        if group == "connections" and self._peers.pop(key, None) is not None:
            self._peer_meter.forget(key)
        if group == "connections" and self._connections.pop(key, None) is not None:
            self.addresses_of.pop(key, None)
            self.inside.discard(key)
            self._connection_meter.forget(key)
            self.connections.changed({key})
        elif group == "links" and (found := self._links.pop(key, None)) is not None:
            of = f"{component}/{found[1].get('connection')}"
            self.addresses_of.get(of, {}).pop(key, None)
            self._link_meter.forget(key)
            self.links.changed({key})
            self.connections.changed({of}, other_keys=False)
        else:
            self._forget((component, group, id))

    def _known(self, component: str) -> set[tuple[str, str]]:
        """Return groups and ids of the rows of a process, also of connections that are only counted."""
        prefix = f"{component}/"
        counted = {("connections", key[len(prefix) :]) for key in self._counted if key.startswith(prefix)}
        rows = {(group, id) for of, group, id in self._rows if of == component}
        return counted | rows | self._of_clients(component)

    def _of_clients(self, component: str) -> set[tuple[str, str]]:
        """Return groups and ids of the connections and links of a process."""
        prefix = f"{component}/"
        groups = (("connections", self._connections), ("links", self._links))
        return {(group, key[len(prefix) :]) for group, keys in groups for key in keys if key.startswith(prefix)}

    def _see(self, component: str, body: Row, *, complete: bool) -> None:
        """Note the rows of a message. When the state of its process is complete, drop those that have not come."""
        unseen = self._unseen.get(component)
        if unseen is None:
            return
        for group in ("queues", "addresses", "connections", "links"):
            unseen.difference_update((group, id) for id in body.get(group, ()))
        if not complete:
            return
        del self._unseen[component]
        for group, id in unseen:
            if group == "connections":
                self._counted.pop(f"{component}/{id}", None)
            self._drop(component, group, id)

    # -- rows

    def _connection(self, key: str) -> Connection | None:
        found = self._connections.get(key)
        if found is None:
            return None
        component, row = found
        tls = row.get("tls")
        rates = self._connection_meter.rates(key)
        return Connection(
            id=key,
            component=component,
            protocol=str(row.get("protocol", "amqp")),
            user=None if row.get("user") is None else named(str(row["user"])).name,
            container=str(row.get("container") or row.get("client") or ""),
            peer=str(row.get("peer") or ""),
            tls=None
            if not tls
            else " ".join(str(each) for each in tls.values() if each)
            if isinstance(tls, Mapping)
            else str(tls),
            since=moment(row.get("opened")),
            inside=key in self.inside,
            links=len(self.addresses_of.get(key, ())),
            mqtt=_mqtt(row) if row.get("protocol") == "mqtt" else None,
            rates=Rates(in_=rates[0], out=rates[1], bytes_in=rates[2], bytes_out=rates[3]),
            totals=Counters(**{a: int(row.get(b) or 0) for a, b in zip(_SHORT, OF_CONNECTION, strict=True)}),
        )

    def _link(self, key: str) -> Link | None:
        found = self._links.get(key)
        if found is None:
            return None
        component, row = found
        direction: Literal["in", "out"] = "in" if row.get("dir") == "in" else "out"
        count, size = int(row.get("count") or 0), int(row.get("bytes") or 0)
        outcomes = {each: int(row.get(each) or 0) for each in ("accepted", "rejected", "released", "modified")}
        rates = dict(zip(_OF_LINK, self._link_meter.rates(key), strict=True))
        moving = {each: rates[each] for each in outcomes}
        if direction == "in":
            moving |= {"in_": rates["count"], "bytes_in": rates["bytes"]}
        else:
            moving |= {"out": rates["count"], "bytes_out": rates["bytes"]}
        moved = {"in_": count, "bytes_in": size} if direction == "in" else {"out": count, "bytes_out": size}
        return Link(
            id=key,
            connection=f"{component}/{row.get('connection')}",
            component=component,
            direction=direction,
            address=self._local(f"{component}/{row.get('connection')}", row),
            name=str(row.get("name") or ""),
            credit=row.get("credit"),
            unsettled=row.get("unsettled"),
            qos=row.get("qos"),
            names=[str(name).removeprefix(space_prefix(self.space_of_link(key))) for name in row.get("names") or ()],
            rates=Rates(**moving),
            totals=Counters(**moved, **outcomes),
        )


def _mqtt(row: Row) -> MqttClient:
    return MqttClient(
        version=str(row.get("version") or ""),
        keep_alive=int(row.get("keepAlive") or 0),
        expiry=int(row.get("sessionExpiry") or 0),
        will=bool(row.get("will")),
        subscriptions=int(row.get("subscriptions") or 0),
        in_flight_in=int(row.get("inFlightIn") or 0),
        in_flight_out=int(row.get("inFlightOut") or 0),
        waiting_bytes=int(row.get("waitingBytes") or 0),
    )


def _carried(row: Row) -> tuple[int, ...]:
    return tuple([int(row.get(field) or 0) for field in OF_CONNECTION])


def is_inside(kind: str, row: Row) -> bool:
    """Return whether a connection at a router, broker or gateway (`kind`) is one of the suite's own processes."""
    if "inside" in row:
        return bool(row["inside"])
    if row.get("role") or row.get("kind", "normal") in INSIDE or row.get("dir") == "out":
        return True
    return kind == "broker" and not row.get("user")


_SHORT = ("in_", "out", "bytes_in", "bytes_out")


def _rates(values: tuple[float, ...]) -> Rates:
    return Rates(**dict(zip(_NAMES, values, strict=True)))


def _counters(values: list[int]) -> Counters:
    return Counters(**dict(zip(_NAMES, values, strict=True)))


def added(kind: type[T], rows: Iterable[T]) -> T:
    """Return the sum of rates, or of counters."""
    sums = [sum(column) for column in zip(*map(msgspec.structs.astuple, rows), strict=True)]
    return kind(**dict(zip(_NAMES, sums, strict=True))) if sums else kind()


_NAMES = tuple(each.name for each in msgspec.structs.fields(Counters))


def moment(seconds: Any) -> str | None:
    """Return a time as ISO 8601 in UTC."""
    if not isinstance(seconds, int | float):
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
