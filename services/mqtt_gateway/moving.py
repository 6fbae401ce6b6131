"""Clients of a gateway that are closed for them to connect elsewhere: all when it leaves, a surplus after another came.

A client gets no further message and may begin no further exchange; what is under way is answered for half a second.
Then its session is closed, with what has no answer; the gateway to which the client connects continues with that.
"""

from __future__ import annotations

from collections.abc import Callable

from enmasse.mqtt import reasons
from enmasse.network.trickle import SETTLING
from services.mqtt_gateway.network.amqp_relay import AmqpRelay, GoesAway
from services.mqtt_gateway.protocol.server_state import Connected, ServerState

CONNECT_AGAIN = "this gateway hands clients on: connect again"


class MovingClients:
    """As trickle.ClosesSome. `also_later`: those that connect later are closed as well. `moved`: closed so far."""

    def __init__(
        self, server_state: ServerState, relay: AmqpRelay | None, now: Callable[[], float], *, also_later: bool
    ) -> None:
        self._server_state = server_state
        self._relay = relay
        self._now = now
        self._also_later = also_later
        self._asked: dict[Connected, float] = {}
        """Clients that were asked → until when they are given time."""
        self._mqtt = list(server_state.clients)
        self._amqp: list[GoesAway] = [] if relay is None else list(relay.wires)
        self.moved = 0

    @property
    def number(self) -> int:
        """As trickle.ClosesSome."""
        return len(self._server_state.clients) + (0 if self._relay is None else len(self._relay.wires))

    def begin(self, most: int) -> int:
        """As trickle.ClosesSome."""
        if self._also_later and not self._mqtt and not self._amqp:
            self._mqtt = [client for client in self._server_state.clients if client not in self._asked]
            self._amqp = [] if self._relay is None else list(self._relay.wires)
        begun = 0
        while begun < most and (self._mqtt or self._amqp):
            if len(self._amqp) > len(self._mqtt):
                wire = self._amqp.pop()
                if self._relay is not None and wire in self._relay.wires:
                    wire.go_away()
                    self.moved += 1
                    begun += 1
                continue
            client = self._mqtt.pop()
            if client in self._server_state.clients and client not in self._asked:
                client.begin_to_move()
                self._asked[client] = self._now() + SETTLING
                begun += 1
        return begun

    def look(self, now: float) -> bool:
        """As trickle.ClosesSome."""
        for client, until in list(self._asked.items()):
            if client not in self._server_state.clients:
                del self._asked[client]
            elif client.may_move or now >= until:
                del self._asked[client]
                self.moved += 1
                try:
                    client.disconnect(reasons.SERVER_MOVED, CONNECT_AGAIN)
                except Exception as error:
                    client.failed(error)
        return bool(self._asked)
