"""A client for the sans-IO tests: bytes go straight into a Connection, and what comes out is packets again."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

from enmasse.model.mqtt_limits import Limits
from enmasse.mqtt import encode
from enmasse.mqtt.packets import V5, Connect, Disconnect, Packet
from enmasse.mqtt.reader import Reader
from enmasse.network.fair_turns import Tenant, Turns
from services.mqtt_gateway.interfaces import Refused, Request
from services.mqtt_gateway.protocol.connection import Connection
from services.mqtt_gateway.protocol.server_state import Connected, ServerState
from tests.mqtt_gateway.toy import ToyBackend, ToySession

P = TypeVar("P")


class World:
    """A gateway's MQTT half without sockets. Time stands still until `pass_time`. `at_once`: sessions are opened within
    the CONNECT; else by `opening`."""

    def __init__(self, limits: Limits | None = None, backend: ToyBackend | None = None) -> None:
        self.backend = backend or ToyBackend()
        self.now = 1000.0
        self.wall = 1_700_000_000.0
        self.calls: list[Callable[[], None]] = []  # of the next turn of the loop
        self.turns = Turns(self.calls.append, monotonic)
        self.server_state = ServerState(limits or Limits(), self.now, lambda: self.wall, self._open, self.turns)
        self.at_once = True
        self.opening: list[Callable[[], None]] = []
        self.peers: list[Peer] = []

    def _open(self, request: Request, client: Connected) -> None:
        def answer() -> None:
            try:
                session = self.backend.open_now(request, client)
            except Refused as refusal:
                client.refused(refusal.reason, refusal.text)
                return
            client.opened(session)
            if not session.closed:
                session.begin()

        client.admitted(request.client_id)
        if self.at_once:
            answer()
        else:
            self.opening.append(answer)

    def pass_time(self, seconds: float) -> None:
        steps = int(seconds / 0.25) or 1
        for _ in range(steps):
            self.now += seconds / steps
            self.wall += seconds / steps
            self.server_state.times.sweep(self.now)
            for peer in self.peers:
                peer.flush()

    def turn(self) -> None:
        """Turns of the loop, until all that was read is processed or waits."""
        while self.calls:
            self.one_turn()
        for peer in self.peers:
            peer.flush()

    def one_turn(self) -> None:
        """A turn of the loop."""
        calls = list(self.calls)
        self.calls.clear()
        for call in calls:
            call()

    def peer(self, version: int = V5) -> Peer:
        return Peer(self, version)

    def connected(self, client_id: str = "c", version: int = V5, **more: Any) -> Peer:
        """Its CONNACK is still to be taken."""
        peer = Peer(self, version)
        peer.send(Connect(client_id, version=version, **more))
        return peer


class Peer:
    """`closed`: the gateway has closed the socket, or the peer has gone."""

    def __init__(self, world: World, version: int = V5) -> None:
        self.world = world
        self.version = version
        self.paused = False
        self.closed = False
        self.known = False
        self.output = b""
        self.connection = Connection(world.server_state, self, "192.0.2.1:5000")
        self._reader = Reader(server=False, version=version)
        self._kept: list[Packet] = []
        self._dirty = False
        self._ending = False
        world.peers.append(self)

    # protocol.server_state.Wire and enmasse.network.fair_turns.TurnTaker

    def opened(self) -> None: ...

    def recognised(self) -> None:
        self.known = True

    def has_output(self) -> None:
        self._dirty = True

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def call_soon(self) -> None:
        self.world.turns.wait(self)

    @property
    def tenant(self) -> Tenant | None:
        return self.connection.intake.tenant

    def proceed(self) -> None:
        self.connection.intake.go_on()

    def unsent(self) -> int:
        return len(self.output)

    def end(self, *, going_away: bool = False) -> None:
        self._ending = True

    def abort(self) -> None:
        self.vanish()

    # for tests

    @property
    def session(self) -> ToySession:
        """Of the last that was opened."""
        return self.world.backend.sessions[-1]

    def send(self, *packets: Packet) -> None:
        """In one read."""
        self.send_bytes(b"".join(encode.encode(each, self.version, of_client=True) for each in packets))

    def send_bytes(self, data: bytes) -> None:
        if not self.closed:
            self.connection.intake.data(data)

    def take(self) -> list[Packet]:
        """The packets since the last call."""
        kept, self._kept = self._kept, []
        return kept + self._reader.feed(self.take_bytes())

    def take_bytes(self) -> bytes:
        self.flush()
        data, self.output = self.output, b""
        return data

    def expect(self, kind: type[P]) -> P:
        """The one packet since the last call."""
        packets = self.take()
        assert len(packets) == 1, packets
        assert isinstance(packets[0], kind), packets
        return packets[0]

    def expect_first(self, kind: type[P]) -> P:
        """The first packet; `take` gives the others."""
        first, *self._kept = self.take()
        assert isinstance(first, kind), first
        return first

    def keep_socket(self) -> None:
        """The socket does not get rid of what it has when the gateway closes it."""
        self._ending = False

    def expect_nothing(self) -> None:
        assert self.take() == []
        assert not self.closed

    def expect_end(self, reason: int) -> None:
        """The gateway has closed the connection, towards MQTT 5 with this reason."""
        packets = self.take()
        assert self.closed, packets
        if self.version == V5:
            assert isinstance(packets[-1], Disconnect), packets
            assert packets[-1].reason == reason, packets
        else:
            assert not any(isinstance(each, Disconnect) for each in packets)

    def vanish(self) -> None:
        """The socket is gone."""
        if not self.closed:
            self.closed = True
            self.connection.lost()

    def flush(self) -> None:
        """The end of a turn."""
        if self._dirty:
            self._dirty = False
            self.output += self.connection.output.take()
        if self._ending and not self.closed:
            self.closed = True
            self.connection.lost()
