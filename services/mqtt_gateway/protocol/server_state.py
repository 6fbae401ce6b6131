"""State that all connections of a gateway share: limits, time, connected clients, counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from enmasse.identity.owned import Owner
from enmasse.identity.refused import Refusals
from enmasse.model.mqtt_limits import Limits
from enmasse.model.names import DEFAULT_SPACE
from enmasse.network.fair_turns import Turns
from services.mqtt_gateway.address_use import Attached
from services.mqtt_gateway.interfaces import Client, Request, Session
from services.mqtt_gateway.protocol.memory import Memory
from services.mqtt_gateway.protocol.system import OF_SPACE, System
from services.mqtt_gateway.protocol.timetable import Timetable
from services.mqtt_gateway.protocol.unanswered import Unanswered


class Wire(Protocol):
    """The socket of a connection, as the connection sees it."""

    def recognised(self) -> None:
        """Note that a valid CONNECT has arrived."""

    def opened(self) -> None:
        """Note that the client has logged in."""

    def has_output(self) -> None:
        """Note that there is output: take it before the turn ends."""

    def pause(self) -> None:
        """Stop reading."""

    def resume(self) -> None:
        """Read again."""

    def call_soon(self) -> None:
        """Call `Intake.go_on` when it is the turn of this connection."""

    def unsent(self) -> int:
        """Return bytes of output that the operating system has not taken."""

    def end(self, *, going_away: bool = False) -> None:
        """Send the remaining output, then close. `going_away`: the client may connect again at once."""

    def abort(self) -> None:
        """Close now."""


class Connected(Client, Protocol):
    """A connection that has sent CONNECT, as the gateway sees it. `client_id`: what the client states until `admitted`;
    `kept`: bytes that wait, to and from the client; `in_flight`: messages from and to it whose exchange has not ended.
    """

    client_id: str
    peer: str
    kept: int

    @property
    def owner(self) -> Owner:
        """Return whose client it is."""

    @property
    def in_flight(self) -> tuple[int, int]: ...
    @property
    def bytes_in(self) -> int: ...
    @property
    def bytes_out(self) -> int: ...

    def described(self, wall: float) -> dict[str, Any]:
        """Return the row of the client and its traffic, for operators. `wall`: seconds since 1970 now."""

    def attached(self) -> Iterator[Attached]:
        """Return its subscriptions, and the addresses that it has sent to."""

    def begin_to_move(self) -> None:
        """Begin no further exchange, in either direction: the client is about to be closed, to connect elsewhere."""

    @property
    def may_move(self) -> bool:
        """Return whether the session is open and no exchange has begun that has not ended."""

    def challenge(self, data: bytes, answered: Callable[[bytes], None]) -> None:
        """Ask the client for more before CONNACK (v5 4.12); its response goes to `answered`."""

    def admitted(self, client_id: str, auth_data: bytes | None = None) -> None:
        """Handle the verified user of CONNECT, and the name that the client has from now on."""

    def opened(self, session: Session) -> None:
        """Accept CONNECT, with this session."""

    def refused(self, reason: int, text: str, noted: str = "") -> None:
        """Answer CONNECT with a refusal, as far as the client's version has one. `noted`: what the event has in place
        of `text`."""

    def failed(self, error: Exception) -> None:
        """Close at once after an unexpected error of this connection; other clients stay."""


class ServerState:
    """`open` asks the backend for the session of a client, and answers by `opened` or `refused`. `wall` is the time in
    seconds since the epoch; `times` has the coarse time for deadlines; `turns`: of the connections."""

    def __init__(
        self,
        limits: Limits,
        now: float,
        wall: Callable[[], float],
        open_session: Callable[[Request, Connected], None],
        turns: Turns,
        refusals: Refusals | None = None,
    ) -> None:
        self.limits = limits
        self.times = Timetable(now)
        self.unanswered = Unanswered(self.times)
        self.wall = wall
        self.turns = turns
        self.refusals = refusals or Refusals(lambda: self.times.now)
        self.open = open_session
        self.clients: set[Connected] = set()
        """Clients with an accepted CONNECT."""
        self.opening: dict[str, Connected] = {}
        """By the name of the client: those that wait for their session."""
        self.stopping = False
        self._systems: dict[str, System] = {}
        self.memory = Memory(limits.memory)
        # by packet type, 1 to 15
        self.packets_in = [0] * 16
        self.packets_out = [0] * 16
        self.refused: Counter[int] = Counter()
        """CONNECTs by the reason code they were refused with."""
        self.closed: Counter[int] = Counter()
        """Connections by the reason code they were closed with, those that the client ended with 0 as well."""
        self.bytes_in = self.bytes_out = 0
        """Bytes of connections that have ended."""
        self.dropped = 0
        """Messages that a client could not get: too large for it, expired while they waited for it, or not stored
        and not taken."""

    def system_of(self, space: str) -> System:
        """Return the topics below `$SYS/` that clients of an address space have."""
        found = self._systems.get(space)
        if found is None:
            found = self._systems[space] = System(() if space == DEFAULT_SPACE else OF_SPACE)
        return found
