"""Input of a client: bytes become packets, as long as nothing holds them up, and not too many in one turn.

Clients of address spaces share a bounded amount of work by space, and spaces take turns (enmasse/network/fair_turns).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final, Protocol

from enmasse.identity.owned import Owner
from enmasse.mqtt.errors import MqttError
from enmasse.mqtt.packets import Packet, PubAck, Publish
from enmasse.mqtt.reader import Reader
from enmasse.network.fair_turns import SHARE, Tenant
from services.mqtt_gateway.protocol.memory import MemoryHolder
from services.mqtt_gateway.protocol.server_state import ServerState, Wire
from services.mqtt_gateway.protocol.unanswered import Waiter

# why nothing is read or processed: bits of what holds it up
OPENING: Final = 1
"""The session is being opened: what the client sends after CONNECT waits (3.1.4)."""
NO_ROOM: Final = 2
"""The session has no room for more messages."""
WINDOW: Final = 4
"""The client has as many messages under way as it may."""
REQUESTS: Final = 8
"""The client has as many SUBSCRIBEs and UNSUBSCRIBEs under way as it may."""
UNREAD: Final = 16
"""The client does not read its output, so no packets that need answers are processed."""
ORDER: Final = 32
"""A SUBSCRIBE of another client came before."""
RATE: Final = 64
"""Clients of the space have sent more than its plan allows in this time."""
MOVING: Final = 128
"""The client is about to be closed, to connect elsewhere."""
_TURN: Final = 256
"""The connection, or its tenant, has used up its share of this turn of the loop."""
_CLOSED: Final = 512

SLICE: Final = 16 * 1024
"""Bytes that are read at once, so that what was read and cannot go on is little."""
A_TURN: Final = 4
"""Slices of one connection in a turn of the loop, if it has no tenant."""
SMALL_SLICE: Final = 2 * 1024
"""Bytes of a tenant's connection that are read before the time is looked at."""
BEFORE_LOGIN: Final = 40 * 1024
"""Bytes of a CONNECT or AUTH: a peer costs at most 64 KiB before it has logged in."""


_RELEASED: Final[Any] = None
# parts of a connection, by their place in `Intake.parts`
CONNECTION: Final = 0
INBOUND: Final = 1
OUTBOUND: Final = 2
SUBSCRIBING: Final = 3

Handlers = Mapping[type[Packet], tuple[int, int, Callable[[Any, Any], None]]]
"""By class of packet: its number (2.2.1), the part of the connection that processes it, and that part's method."""


class Host(MemoryHolder, Waiter, Protocol):
    """A connection, as its parts see it."""

    intake: Intake

    @property
    def owner(self) -> Owner:
        """Return whose client it is."""

    def fail(self, reason: int, text: str) -> None:
        """Close the connection because of an error: of the client, of the gateway, or of what is behind it."""

    def broken(self, error: MqttError) -> None:
        """End the connection, because the client broke the specification."""

    def unfinished(self) -> None:
        """Plan the deadline of a packet that has begun and is not complete."""


class Intake:
    """`data` and `go_on` are the network's. `seen`: when a packet came last; `since`: when the one began that is not
    complete, or 0. `parts` are complete once the session is open. `tenant`: whose turns it shares; that of the clients
    which have not logged in while there are others; None: it has its own turns."""

    __slots__ = (
        "_again",
        "_counts",
        "_fault",
        "_held",
        "_host",
        "_kept",
        "_packets",
        "_raw",
        "_server_state",
        "_times",
        "_turns",
        "_wire",
        "_working",
        "bytes",
        "handlers",
        "packets",
        "parts",
        "reader",
        "seen",
        "since",
        "tenant",
    )

    def __init__(self, server_state: ServerState, wire: Wire, host: Host, handlers: Handlers) -> None:
        self._server_state = server_state
        self._wire = wire
        self._host = host
        self.handlers = handlers
        self.parts: list[Any] = [host]
        self._counts = server_state.packets_in
        self._times = server_state.times
        self._turns = turns = server_state.turns
        self.tenant: Tenant | None = turns.own("") if turns.tenants else None
        self.reader = Reader(max_packet=server_state.limits.max_packet, max_first=BEFORE_LOGIN)
        self.seen = server_state.times.now
        self.packets = self.bytes = 0
        """Read so far: packets that were processed or are about to be, and bytes."""
        self.since = 0.0
        self._held = 0
        self._working = False
        self._raw = b""  # read, not looked at
        self._packets: list[Packet] = []  # looked at, not processed
        self._again: Packet | None = None  # to be processed once more, before these
        self._fault: MqttError | None = None  # to be reported after them
        self._kept = 0  # bytes that wait, as the state of the server has it

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return bool(self._held & _CLOSED)

    @property
    def held(self) -> bool:
        """Something waits for others than the client."""
        return bool(self._held)

    def own(self, tenant: str) -> None:
        """Share the turns of this tenant from now on; empty: have turns of its own."""
        if self.tenant is not None:
            self._turns.disown(self.tenant)
        self.tenant = self._turns.own(tenant) if tenant else None

    def close(self) -> None:
        """Stop reading and processing."""
        self._held |= _CLOSED
        self.own("")
        self._raw, self._packets, self._again, self._fault = b"", [], None, None
        self.reader.clear()
        self._server_state.memory.change(self._host, -self._kept)
        self._kept = 0

    def let_go(self) -> None:
        """After `close`, last of all: release the host, which is no longer called."""
        self._host = _RELEASED
        self.parts.clear()

    def hold_back(self, packet: Packet, why: int) -> None:
        """This packet, which is being processed, is to be processed again once nothing holds it up."""
        self._again = packet
        self.hold(why)

    def hold(self, why: int) -> None:
        """Stop reading and processing for this reason too."""
        before = self._held
        self._held |= why
        if not before and not self._working:
            self._wire.pause()

    def release(self, why: int) -> None:
        """End this reason; continue if no other one is left."""
        if self._held & why:
            self._held &= ~why
            if not self._held and not self._working:
                self._work()

    def data(self, data: bytes) -> None:
        """Take bytes that were read."""
        self.bytes += len(data)
        if self._held or self._working or self._raw:
            if not self._held & _CLOSED:
                self._raw = self._raw + data if self._raw else data
                self._count()
        elif len(data) <= SLICE and self.tenant is None:
            self._working = True
            self._feed(data)
            self._working = False
            if self.reader.held != self._kept:
                self._count()
            if self._held and not self._held & _CLOSED:
                self._wire.pause()
        else:
            self._raw = data
            self._work()

    def go_on(self) -> None:
        """Continue: it is the turn of this connection."""
        if self._held & _TURN:
            self._held &= ~_TURN
            if not self._held:
                self._work(0.0)

    def _work(self, used: float | None = None) -> None:
        """Process the bytes that were read until something holds them up. `used`: seconds of the tenant's share."""
        tenant, turns = self.tenant, self._turns
        begun = until = left = 0.0
        size = SLICE
        if tenant is not None:
            left = SHARE - (tenant.used if used is None else used)
            begun = turns.clock()
            until = begun + left
            size = SMALL_SLICE
        self._working = True
        if self._packets:
            packets, self._packets = self._packets, []
            self._process(packets)
        elif self._fault is not None:
            self._host.broken(self._fault)
        raw, at, slices = self._raw, 0, 0
        self._raw = b""
        while at < len(raw) and not self._held:
            if slices == A_TURN if tenant is None else (slices or left <= 0) and turns.clock() >= until:
                self._held |= _TURN
                self._wire.call_soon()
                break
            self._feed(raw[at : at + size])
            at += size
            slices += 1
        if at < len(raw) and not self._held & _CLOSED:
            self._raw = raw[at:] + self._raw
        self._working = False
        if tenant is not None:
            turns.serve(tenant, turns.clock() - begun)
        self._count()
        if self._held:
            if not self._held & _CLOSED:
                self._wire.pause()
        elif self._raw:  # came in between
            self._work()
        else:
            self._wire.resume()

    def _count(self) -> None:
        """Count the bytes that wait here against the memory of all clients."""
        if self._held & _CLOSED:
            return
        kept = self.reader.held + len(self._raw)
        more, self._kept = kept - self._kept, kept
        self._server_state.memory.change(self._host, more)

    def _feed(self, data: bytes) -> None:
        reader = self.reader
        try:
            packets = reader.feed(data)
        except MqttError as error:
            packets = error.packets
            self._fault = error
        if packets:
            self.seen = self._times.now
        if not reader.held:
            self.since = 0.0
        elif packets or not self.since:
            self.since = self._times.now
            self._host.unfinished()
        self.packets += len(packets)
        self._process(packets)

    def _process(self, packets: list[Packet]) -> None:
        parts, handlers, counts = self.parts, self.handlers, self._counts
        done = 0
        if len(packets) > 1 and handlers[Publish][1] == INBOUND:
            kind = type(packets[0])
            if kind is Publish:
                done = parts[INBOUND].publish_run(packets)
                counts[3] += done
            elif kind is PubAck:
                done = parts[OUTBOUND].puback_run(packets)
                counts[4] += done
            if self._held:
                if not self._held & _CLOSED:
                    self._packets += packets[done:]
                return
        rest = islice(packets, done, None)
        try:
            for packet in rest:
                number, part, process = handlers[type(packet)]
                counts[number] += 1
                process(parts[part], packet)
                if self._held:
                    if self._again is not None:
                        counts[number] -= 1
                        self._packets.append(self._again)
                        self._again = None
                    if not self._held & _CLOSED:
                        self._packets += rest
                    return
        except MqttError as error:
            self._host.broken(error)
            return
        if self._fault is not None:
            self._host.broken(self._fault)
