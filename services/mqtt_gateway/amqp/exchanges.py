"""QoS 2 to the client: each message is an exchange, which ends once the client has completed it and the broker has
forgotten the message (4.3.3). Whatever is lost in between, the exchange continues where it was.

A message is known by its identity, the delivery-tag of a session's queue. Without one (anycast, multicast),
nothing is stored: there it is at least once.

A message of a contended source (a queue address, the queue of a shared subscription) is stored with its packet id, then
accepted, then sent. From then on it is this client's, and no other session gets it (v5 MQTT-4.8.2-4, MQTT-4.8.2-5): the
subscription service refuses a message that another session has. A message that is too large to be stored, or for which
there is no room, is accepted after PUBREC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from typing import Final, Literal, Protocol, TypeAlias

from enmasse.model.sessions import MOST_HELD, Outgoing, is_contended
from services.mqtt_gateway.ports import Delivery

MOST_ENDED = 1024
"""Messages of one session that are complete and may be redelivered, because the broker does not settle."""

Op: TypeAlias = Literal["in", "in-", "out", "rel", "out-", "end"]


class Step(Enum):
    """Step of an exchange that is reported to the client's connection (ports.Client)."""

    ASSIGNED = "assigned"
    RECEIVED = "received"
    COMPLETED = "completed"
    WITHDRAWN = "withdrawn"


class Verdict(Enum):
    """Outcome of a change of a packet id."""

    DONE = "done"
    TAKEN = "taken"
    """Not stored: the message is, or was, another session's."""
    LEFT = "left"
    """Stored without its message, which stays with the broker."""
    LATE = "late"
    """Not stored: its delivery was lost before it was asked for, and another session may have had the message."""
    REFUSED = "refused"
    """Not stored, because the store of the subscription service is full."""


class Host(Protocol):
    """The session."""

    def change(
        self,
        op: Op,
        packet_id: int,
        key: str | None,
        source: str,
        done: Callable[[Verdict], None] | None,
        message: bytes = b"",
    ) -> None:
        """Stores a change of a packet id, in order; `done` is called when it is durable, or was refused."""

    def late(self, packet_id: int) -> None:
        """The delivery of an `out` that is not answered is lost: if it is sent from now on, it is late."""

    def step(self, packet_id: int, step: Step) -> None: ...


class _Nobody:
    def change(
        self,
        op: Op,
        packet_id: int,
        key: str | None,
        source: str,
        done: Callable[[Verdict], None] | None,
        message: bytes = b"",
    ) -> None:
        pass

    def late(self, packet_id: int) -> None:
        pass

    def step(self, packet_id: int, step: Step) -> None:
        pass


_NOBODY: Final = _Nobody()


def accept(delivery: Delivery) -> bool:
    """States to the broker that the client has it. False: the delivery was lost, the message will be redelivered."""
    source, link, delivery_id, _ = delivery.handle
    return link is not None and bool(source.accept(link, delivery_id))


class _Exchange:
    """A QoS 2 message to the client. `delivery` None: it was under way when the session was opened and has not come
    again. `packet_id` 0: none yet. `taken`: PUBREC or the message is stored, the broker may forget it. `settled`: it
    has. `finished`: PUBCOMP has come. `asked`: `out` is not answered yet. `contended`: from such a source; whether the
    broker has settled is known only if it confirms that, because the message may be redelivered to others."""

    __slots__ = ("asked", "contended", "delivery", "finished", "key", "packet_id", "settled", "source", "taken")

    def __init__(self, source: str, delivery: Delivery | None, packet_id: int = 0) -> None:
        self.source = source
        self.contended = is_contended(source)
        self.key: tuple[str, str] | None = None  # source and identity
        self.delivery = delivery
        self.packet_id = packet_id
        self.asked = False
        self.taken = False
        self.settled = False
        self.finished = False


class Exchanges:
    """Exchanges of one session. `sent`: those under way when it was opened."""

    __slots__ = ("_by_id", "_ended", "_host", "_once", "_stated")

    def __init__(self, host: Host, sent: Sequence[Outgoing]) -> None:
        self._host = host
        self._by_id: dict[int, _Exchange] = {}
        self._once: dict[tuple[str, str], _Exchange] = {}  # by source and identity, until the broker has settled
        self._stated: dict[tuple[str, int], _Exchange] = {}  # accepted by delivery-id, and not settled by the broker
        self._ended: dict[tuple[str, str], None] = {}  # of brokers that do not settle: what may come once more
        for each in sent:
            if each.state != "published" and each.identity is not None:
                exchange = self._by_id[each.pid] = _Exchange(each.source, None, each.pid)
                exchange.taken = True
                exchange.finished = each.state == "completed"
                self._remember((each.source, each.identity), exchange)

    def _remember(self, key: tuple[str, str], exchange: _Exchange) -> None:
        exchange.key = key
        self._once[key] = exchange

    def let_go(self) -> None:
        """Report nothing further: the session has ended, and with it the links that it received from."""
        self._now_late(self._by_id.values())
        self._host = _NOBODY

    # messages

    def goes_on(self, delivery: Delivery) -> bool:
        """Whether it is a message that the client has, or is getting, already: then this is done here."""
        identity = delivery.identity
        if identity is None or (delivery.qos < 2 and not self._once and not self._ended):
            return False
        known = self._once.get((delivery.source, identity))
        if known is None:
            if (delivery.source, identity) in self._ended:
                accept(delivery)
                return True
            if delivery.qos == 2:
                self._remember((delivery.source, identity), _Exchange(delivery.source, delivery))
            return False
        if known.delivery is None:
            known.delivery = delivery
        else:
            known.delivery.handle = delivery.handle
        if known.taken:
            known.settled = False  # it was redelivered
            self._accept(known)
        return True

    def forget(self, delivery: Delivery) -> None:
        """Drop a message that is not an exchange, because the client cannot get it."""
        if delivery.identity is not None and self._once:
            self._once.pop((delivery.source, delivery.identity), None)

    # packets

    def assign(self, delivery: Delivery, packet_id: int) -> None:
        """Assign a packet id, before the PUBLISH is sent; it is stored if the message has an identity."""
        exchange = self._of(delivery, packet_id)
        if delivery.identity is None:
            self._host.step(packet_id, Step.ASSIGNED)
            return
        source, link, delivery_id, message = delivery.handle
        if not exchange.contended:
            self._host.change(
                "out",
                packet_id,
                delivery.identity,
                delivery.source,
                lambda _: self._host.step(packet_id, Step.ASSIGNED),
            )
            return
        delivery.handle = (source, link, delivery_id, b"")
        if len(message) > MOST_HELD:
            message = b""
        given = partial(self._given, exchange, bool(message))
        exchange.asked = True
        self._host.change("out", packet_id, delivery.identity, delivery.source, given, message)
        if link is not None and not source.holds(link):
            self._host.late(packet_id)

    def _now_late(self, exchanges: Iterable[_Exchange]) -> None:
        """The deliveries of these are lost. The broker may give the messages to other sessions, which may have
        completed them by the time that an `out` reaches the service."""
        for exchange in exchanges:
            if exchange.asked:
                self._host.late(exchange.packet_id)

    def _given(self, exchange: _Exchange, held: bool, verdict: Verdict) -> None:
        """Go on with a message of a contended source, or withdraw it if it is, or may be, another session's."""
        packet_id, delivery = exchange.packet_id, exchange.delivery
        exchange.asked = False
        if verdict is Verdict.LATE and delivery is not None:
            source, link, *_ = delivery.handle
            if link is not None and source.holds(link):
                self.assign(delivery, packet_id)  # the broker has redelivered it
                return
        if verdict not in (Verdict.TAKEN, Verdict.LATE):
            if held and verdict is Verdict.DONE:
                self._accept(exchange)
            self._host.step(packet_id, Step.ASSIGNED)
            return
        self._by_id.pop(packet_id, None)
        if exchange.key is not None:
            self._once.pop(exchange.key, None)
        if delivery is not None and verdict is Verdict.TAKEN:
            accept(delivery)
        self._host.step(packet_id, Step.WITHDRAWN)

    def hold(self, delivery: Delivery, packet_id: int) -> None:
        """A message that the subscription service holds is under way to the client again."""
        exchange = self._by_id[packet_id] = _Exchange(delivery.source, delivery, packet_id)
        exchange.taken = True
        if delivery.identity is not None:
            self._remember((delivery.source, delivery.identity), exchange)

    def received(self, delivery: Delivery, packet_id: int) -> None:
        """PUBREC."""
        exchange = self._of(delivery, packet_id)
        if delivery.identity is None:
            self._received(exchange)
            return
        self._host.change("rel", packet_id, delivery.identity, delivery.source, lambda _: self._received(exchange))

    def _received(self, exchange: _Exchange) -> None:
        self._accept(exchange)
        self._host.step(exchange.packet_id, Step.RECEIVED)

    def complete(self, packet_id: int, delivery: Delivery | None) -> None:
        """PUBCOMP, or the end of it in another way."""
        exchange = self._by_id.get(packet_id) if delivery is None else self._of(delivery, packet_id)
        if exchange is None:
            self._host.change("out-", packet_id, None, "", None)
            self._host.step(packet_id, Step.COMPLETED)
            return
        exchange.finished = True
        self._accept(exchange)
        self._end(exchange)

    def completed(self) -> list[Outgoing]:
        """Return the exchanges that the client has completed and that the broker may not have settled."""
        return [
            Outgoing(packet_id, 2, each.key[1], each.key[0], "completed")
            for packet_id, each in self._by_id.items()
            if each.finished and each.key is not None
        ]

    def knows(self, source: str, identity: str) -> bool:
        """Whether it is a message that the client has, or is getting."""
        return (source, identity) in self._once

    def _of(self, delivery: Delivery, packet_id: int) -> _Exchange:
        exchange = self._by_id.get(packet_id)
        if exchange is None and delivery.identity is not None:
            exchange = self._once.get((delivery.source, delivery.identity))
        if exchange is None:
            exchange = _Exchange(delivery.source, delivery)
            if delivery.identity is not None:
                self._remember((delivery.source, delivery.identity), exchange)
        exchange.packet_id = packet_id
        self._by_id[packet_id] = exchange
        return exchange

    # the broker

    def _accept(self, exchange: _Exchange) -> None:
        """The broker may forget it: if this delivery is lost, the next one of the message is accepted."""
        exchange.taken = True
        delivery = exchange.delivery
        if delivery is None or exchange.settled:
            return
        source, link, delivery_id, _ = delivery.handle
        if link is None and exchange.contended:
            return  # it is held
        if link is None or delivery.identity is None or not link.second:
            accept(delivery)
            exchange.settled = delivery.identity is None or not exchange.contended
        elif (source.address, delivery_id) not in self._stated and accept(delivery):
            self._stated[source.address, delivery_id] = exchange

    def settled(self, source: str, delivery_ids: Sequence[int]) -> None:
        """Forget deliveries that the broker has settled: they are not redelivered."""
        for delivery_id in delivery_ids if self._stated else ():
            exchange = self._stated.pop((source, delivery_id), None)
            if exchange is not None:
                self._gone(exchange)

    def unsure(self, source: str) -> bool:
        """Return True if the broker may not have settled a message that was accepted."""
        return not is_contended(source) and any(each.taken and each.source == source for each in self._once.values())

    def drained(self, source: str) -> None:
        """The queue has redelivered all its messages: those that are missing were settled."""
        if is_contended(source):
            return  # it may have come to others
        stated = set(map(id, self._stated.values()))
        for exchange in list(self._once.values()):
            if exchange.taken and not exchange.settled and exchange.source == source and id(exchange) not in stated:
                self._gone(exchange)

    def lost(self, source: str) -> None:
        """The link is lost: unsettled messages will be redelivered, accepted ones may be."""
        for key in [key for key in self._stated if key[0] == source]:
            self._end(self._stated.pop(key))
        self._now_late(each for each in self._by_id.values() if each.source == source)
        for exchange in self._once.values():
            if exchange.source == source:
                exchange.settled = False  # a broker that does not settle may not have read it

    def _gone(self, exchange: _Exchange) -> None:
        """The broker has forgotten the message."""
        exchange.settled = True
        if exchange.key is not None:
            self._once.pop(exchange.key, None)
        self._end(exchange)

    def _end(self, exchange: _Exchange) -> None:
        """End the exchange once the client is done and the broker has settled, in either order.

        That of a contended source ends as well when the broker's settlement can no longer come.
        """
        if not exchange.finished:
            return
        over: Op = "out-"
        if not exchange.settled:
            if not exchange.contended or exchange in self._stated.values():
                return
            over = "end"
            if exchange.key is not None:
                self._once.pop(exchange.key, None)
        elif exchange.key is not None and self._once.pop(exchange.key, None) is not None:
            # The acceptance was sent and the broker does not confirm it. More than are ever under way are remembered.
            self._ended[exchange.key] = None
            if len(self._ended) > MOST_ENDED:
                del self._ended[next(iter(self._ended))]
        packet_id, delivery = exchange.packet_id, exchange.delivery
        self._by_id.pop(packet_id, None)
        if delivery is None or delivery.identity is not None:
            self._host.change(over, packet_id, None, "", None)
        self._host.step(packet_id, Step.COMPLETED)
