"""The MQTT half as a whole: listeners, connections, and how they get their sessions from the backend."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable
from functools import partial
from typing import Final

from enmasse.identity.refused import Refusals
from enmasse.logs import log as logs
from enmasse.model.mqtt_limits import Limits
from enmasse.model.names import DEFAULT_SPACE
from enmasse.mqtt import reasons
from enmasse.network import trickle
from enmasse.network.fair_turns import Turns
from enmasse.network.spreading import Spreading
from enmasse.process.runner import spawn, woken
from services.mqtt_gateway.interfaces import Backend, Refused, Request
from services.mqtt_gateway.moving import MovingClients
from services.mqtt_gateway.network.amqp_relay import AmqpRelay
from services.mqtt_gateway.network.listeners import Listeners, ListenerSettings
from services.mqtt_gateway.protocol.server_state import Connected, ServerState
from services.mqtt_gateway.protocol.system import INTERVAL

log = logs.get(part="mqtt")

AGAIN: Final = 1.0
"""Seconds until counters are reported again that could not be."""


class Gateway:
    """`server_state` has the clients and what was counted."""

    def __init__(
        self,
        limits: Limits,
        backend: Backend,
        allowed_origins: Collection[str] = (),
        refusals: Refusals | None = None,
        relay: AmqpRelay | None = None,
    ) -> None:
        self._backend = backend
        self._relay = relay
        self._loop = asyncio.get_running_loop()
        self._openings = asyncio.Semaphore(limits.opening)
        turns = Turns(self._loop.call_soon, time.monotonic)
        self.server_state = ServerState(limits, self._loop.time(), time.time, self._open, turns, refusals)
        self.listeners = Listeners(self.server_state, allowed_origins, relay)
        self._report_now = asyncio.Event()
        self._spreading = Spreading(INTERVAL + 1.0)
        self._surplus: MovingClients | None = None
        """Clients that were here when another gateway came."""
        self._closing: asyncio.Task[None] | None = None
        self._left_of = 0
        """Clients when it began to leave; 0: it does not."""

    async def listen(self, listeners: Iterable[ListenerSettings]) -> None:
        """Listen with these settings. Raises ListenerError."""
        for listener in listeners:
            await self.listeners.open(listener)

    async def take(
        self, limits: Limits, listeners: Collection[ListenerSettings], allowed_origins: Collection[str]
    ) -> None:
        """Have these limits, listeners and origins from now on. What a client is notified of as it
        connects holds until it connects again."""
        self.server_state.limits = limits
        self.server_state.memory.limit = limits.memory
        await self.listeners.have(listeners, allowed_origins)

    async def leave(self, within: float, hurry: asyncio.Event) -> None:
        """Stop listening, and hand all clients on, a few at a time. Returns after `within` seconds at the latest, and
        once `hurry` is set."""
        self.listeners.stop_listening()
        moving = MovingClients(self.server_state, self._relay, self._loop.time, also_later=True)
        self._left_of, began = max(1, moving.number), self._loop.time()
        self._report_now.set()
        log.info("mqtt.leave.began", clients=moving.number)
        left = await trickle.empty(moving, within, hurry, self._loop.time)
        seconds = round(self._loop.time() - began, 1)
        log.info("mqtt.leave.ended", moved=moving.moved, left=left, seconds=seconds)

    @property
    def leaving(self) -> str:
        """Return how far it is with leaving, for people; empty: it does not leave."""
        if not self._left_of:
            return ""
        number = len(self.server_state.clients) + (0 if self._relay is None else len(self._relay.wires))
        return f"leaving, {number} of {max(number, self._left_of)} connections"

    async def close(self) -> None:
        """Disconnect all clients, with a reason for MQTT 5; wills wait for clients to connect elsewhere."""
        server_state = self.server_state
        server_state.stopping = True
        self.listeners.stop_listening()
        for client in list(server_state.clients):
            try:
                client.disconnect(reasons.SERVER_SHUTTING_DOWN, "this gateway ends")
            except Exception as error:
                client.failed(error)
        await asyncio.sleep(0)  # the turn in which it is written
        await self.listeners.close()

    async def report(self, group: str = "") -> None:
        """Report the counters, and take the sums of all gateways, until cancelled. `group`: the address space whose
        ports it has; empty: those of all."""
        since = last = time.time()
        while True:
            leaving = self._left_of > 0
            found = await self._backend.statistics(since, _counters(self.server_state), group=group, leaving=leaving)
            now = time.time()
            if found is not None:
                for space, sums in {DEFAULT_SPACE: found.values, **found.in_spaces}.items():
                    self.server_state.system_of(space).take(sums, now - found.since, now - last)
                last = now
                if not leaving:
                    self._spread(found.gateways, found.clients)
            await woken(self._report_now, INTERVAL if found is not None else AGAIN)

    def _spread(self, gateways: int, clients: int) -> None:
        """Close the clients that are more than this gateway's share, if another one came."""
        own = len(self.server_state.clients)
        surplus = self._spreading.take(gateways, clients, own, self._loop.time())
        if self._spreading.came:
            self._surplus = MovingClients(self.server_state, None, self._loop.time, also_later=False)
        if surplus and self._surplus is not None and (self._closing is None or self._closing.done()):
            log.info("mqtt.clients.spread", clients=own, surplus=surplus, gateways=gateways)
            self._closing = spawn(self._close(self._surplus, surplus), "clients spread")

    async def _close(self, moving: MovingClients, surplus: int) -> None:
        await trickle.close_surplus(moving, surplus, self._loop.time)
        self._spreading.closed(self._loop.time())

    def _open(self, request: Request, client: Connected) -> None:
        spawn(self._opened(request, client), "open a session")

    async def _ask(self, client: Connected, challenge: bytes) -> bytes:
        response: asyncio.Future[bytes] = self._loop.create_future()

        def answered(data: bytes) -> None:
            if not response.done():
                response.set_result(data)

        client.challenge(challenge, answered)
        return await response

    async def _opened(self, request: Request, client: Connected) -> None:
        try:
            request = await self._backend.admit(
                request, lambda: client in self.server_state.clients, partial(self._ask, client)
            )
        except Refused as refusal:
            client.refused(refusal.reason, refusal.text, refusal.noted)
            return
        except Exception as error:
            log.error("mqtt.session.open-failed", client=request.client_id, space=client.owner.space, exc_info=error)
            client.refused(reasons.SERVER_UNAVAILABLE, "the login has failed")
            return
        if client not in self.server_state.clients:
            return
        client.admitted(request.client_id, request.auth_data)
        async with self._openings:
            if client not in self.server_state.clients:  # it has gone while it waited
                client.refused(reasons.SERVER_BUSY, "")
                return
            try:
                session = await self._backend.open(request, client)
            except Refused as refusal:
                client.refused(refusal.reason, refusal.text)
            except Exception as error:
                log.error(
                    "mqtt.session.open-failed", client=request.client_id, space=client.owner.space, exc_info=error
                )
                client.refused(reasons.SERVER_UNAVAILABLE, "the session could not be opened")
            else:
                try:
                    client.opened(session)
                except Exception as error:
                    client.failed(error)


def _counters(server_state: ServerState) -> dict[str, int]:
    """Return the counters of this gateway."""
    clients = server_state.clients
    return {
        "clients": len(clients),
        "connects": server_state.packets_in[1],
        "packetsIn": sum(server_state.packets_in),
        "packetsOut": sum(server_state.packets_out),
        "publishIn": server_state.packets_in[3],
        "publishOut": server_state.packets_out[3],
        "bytesIn": server_state.bytes_in + sum(client.bytes_in for client in clients),
        "bytesOut": server_state.bytes_out + sum(client.bytes_out for client in clients),
        "dropped": server_state.dropped,
    }
