"""The asyncio skin: the listening socket, the turns in which the broker commits, dispatches and expires."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from enmasse import engines
from enmasse.aio.transport import Hub, serve
from enmasse.amqp.connection import Connection
from enmasse.amqp.sasl.layer import SaslServer
from enmasse.amqp.sole_connection import SOLE_CONNECTION
from enmasse.identity.login import SPACES
from enmasse.identity.processes.credentials import AnyPeers, Peers
from enmasse.identity.processes.peer_check import PeerCheck
from enmasse.identity.processes.process_certificates import CertifiedPeers
from enmasse.identity.processes.refusals import log_handshake
from enmasse.identity.processes.roles import Listener
from enmasse.logs import log
from enmasse.network.fair_turns import InTurn
from services.broker.connection import OFFERED, BrokerConnection
from services.broker.core.broker import Broker
from services.broker.core.connections import Connections
from services.broker.core.turn_shares import Spent
from services.broker.live_rows import LiveBroker
from services.broker.management.calls import VERSION
from services.broker.management.node import ManagementNode

if TYPE_CHECKING:
    from enmasse.tracing.spans import Tracing

_log = log.get()
LAZY_COMMIT = 0.005  # seconds an acknowledgement may wait for company before it is written
TRY_AGAIN = 0.5  # and what could not be written, before it is tried again
RETRY_TICK = 1000  # milliseconds
TURN = 0.001  # seconds of a turn of the loop for jobs over many messages, for queues, and for links that look at them
SHARE = 0.0005  # seconds of that for one queue or link
LONGEST_SLEEP = 3600.0  # seconds; messages may be scheduled for any time
CAPABILITIES = (SOLE_CONNECTION, *OFFERED, "ANONYMOUS-RELAY", SPACES)


# A clock that includes the time in which the machine sleeps, as users expect of a time to live.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_clock() -> Callable[[], int]:
    """Return a clock: milliseconds since 1970 as of this call. Later changes of the system's time do not affect it."""
    origin = time.time() - time.clock_gettime(_STEADY)
    return lambda: int((origin + time.clock_gettime(_STEADY)) * 1000)


def wall() -> int:
    """Return milliseconds since 1970."""
    return int(time.time() * 1000)


def ends_after(seconds: float) -> Spent:
    """Begin a share of the turn: it is spent after these seconds."""
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() >= end


class BrokerServer:
    """One broker on the loop: its listener, its connections, its timers."""

    def __init__(
        self,
        broker: Broker,
        loop: asyncio.AbstractEventLoop,
        peers: AnyPeers | None = None,
        traces: Tracing | None = None,
    ) -> None:
        """`peers`: the processes that may connect; None: every client may do everything. `traces`: of messages; None:
        they are not traced."""
        self.broker = broker
        self._peers = peers
        self._traces = traces
        self.loop = loop
        self.clients = Connections()
        self.management = ManagementNode(broker, self.clients)
        self.hub = Hub(loop)
        self.live = LiveBroker(broker, self.clients, loop, self.hub.flush)
        self.connections: set[BrokerConnection] = set()
        self._listener: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._lazy: asyncio.TimerHandle | None = None
        self._lazy_due = 0.0
        self._links: InTurn[Callable[[], None]] = InTurn()  # of links that look at queues: continues one
        self._links_due = False
        broker.share = lambda: ends_after(SHARE)
        broker.on_pending = self._run_pending_later
        broker.jobs.on_work = self._run_jobs_later
        broker.on_commit = self._commit_later
        broker.on_deadline = self._arm
        # What was found at the start may be scheduled or expire.
        self._arm(broker.now)

    def _run_pending_later(self) -> None:
        """Run pending work in the next turn of the loop, after other connections have been read."""
        self.loop.call_soon(self._run_pending)

    def _run_pending(self) -> None:
        self.broker.run_pending(ends_after(TURN))

    def _later(self, go_on: Callable[[], None], tenant: str) -> None:
        """Call in one of the next turns, in which other links continue as well, address spaces in turn."""
        self._links.add(tenant, go_on)
        self._run_links_later()

    def _first(self, go_on: Callable[[], None], tenant: str) -> None:
        """Call before other links of this address space continue."""
        self._links.add_first(tenant, go_on)
        self._run_links_later()

    def _run_links_later(self) -> None:
        if self._links and not self._links_due:
            self._links_due = True
            self.loop.call_soon(self._run_links)

    def _run_links(self) -> None:
        self._links_due = False
        spent = ends_after(TURN)
        try:
            for _ in range(len(self._links)):
                self._links.take()()
                if spent():
                    break
        finally:
            self._run_links_later()

    def _run_jobs_later(self) -> None:
        self.loop.call_soon(self._run_jobs)

    def _run_jobs(self) -> None:
        self.broker.jobs.run(ends_after(TURN))

    def _commit_later(self, urgent: bool) -> None:
        if urgent:
            self.loop.call_soon(self._commit)
            return
        store = self.broker.store
        pause = TRY_AGAIN if store is not None and store.failing else LAZY_COMMIT
        self._lazy_due = self.loop.time() + pause
        if self._lazy is None:
            self._lazy = self.loop.call_later(pause, self._commit_lazily)

    def _commit(self) -> None:
        """Commit, after every socket that was ready has been read. A small batch is on disk when this returns."""
        self.broker.commit()
        self.hub.flush()

    def _commit_lazily(self) -> None:
        self._lazy = None
        if self.broker.commit_asked != 1:
            return  # the commit of a message took the acknowledgements along, or is about to
        left = self._lazy_due - self.loop.time()
        if left > 0.0005:
            self._lazy = self.loop.call_later(left, self._commit_lazily)
        else:
            self._commit()

    def _arm(self, deadline_ms: int) -> None:
        if self._timer is not None:
            if self._timer_at <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_at = deadline_ms
        delay = min(max(0.001, (deadline_ms - self.broker.now) / 1000), LONGEST_SLEEP)
        self._timer = self.loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        try:
            deadline = self.broker.tick()
        except Exception:  # of one queue: the timers of the others continue
            _log.exception("broker.tick.failed")
            deadline = self.broker.now + RETRY_TICK
        if deadline:
            self._arm(deadline)

    async def listen(self, host: str, port: int) -> int:
        """Listens; the port (another one than asked for only for 0). Raises OSError."""
        tls = self._peers.tls if isinstance(self._peers, CertifiedPeers) else None
        self.live.publisher.start()
        self._listener = await serve(self.hub, host, port, self._connection, tls, refused=log_handshake)
        return int(self._listener.port)

    def _connection(self, remote: Any) -> Connection:
        peers = self._peers
        admission = None
        if peers is not None:
            secrets = peers if isinstance(peers, Peers) else None
            admission = PeerCheck(Listener.BROKER, secrets, remote.address, remote.certificate)
        handler = BrokerConnection(
            self.broker,
            self.clients,
            remote.address,
            admission,
            manage=self.management.handle,
            followers=self.live.followers,
            later=self._later,
            first=self._first,
            gone=self.connections.discard,
        )
        connection = Connection(
            handler,
            container_id=self.broker.name,
            is_client=False,
            max_frame_size=131072,
            sasl=SaslServer() if admission is None else admission.sasl(),
            properties={"product": "apache-activemq-artemis", "version": VERSION, "engine": engines.EMBEDDED},
            offered_capabilities=CAPABILITIES,
        )
        if self._traces is not None:
            connection.session_type = self._traces.session
        handler.connection = connection
        self.connections.add(handler)
        return connection

    async def close(self) -> None:
        """Close the connections, commit all changes and end."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            connection.close()
        for _ in range(50):
            if not self.connections:
                break
            await asyncio.sleep(0.01)
        if self._timer is not None:
            self._timer.cancel()
        if self.broker.store is not None:
            self.broker.store.close()
        if self.broker.pager is not None:
            self.broker.pager.close()
