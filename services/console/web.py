"""The web server: aiohttp's, with a bound on everything a peer can do."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.web_protocol import _ErrInfo

from enmasse.http import webhooks
from enmasse.identity.processes.credentials import own
from enmasse.live_state import Row
from enmasse.metrics import gauge, single
from enmasse.process import runner
from enmasse.process.places import Places
from enmasse.process.settings import host_port
from services.console.cluster_paths import ClusterPaths
from services.console.door.authserv_client import Authserv
from services.console.door.gate import Gate
from services.console.door.peer_limits import CONNECTIONS_KEY, Connections
from services.console.door.under_way import Shares
from services.console.errors import RequestError
from services.console.following.configuration import Configuration
from services.console.following.followers import Live
from services.console.following.history_file import HistoryFile
from services.console.following.kept import KeptForClients
from services.console.following.process_events import new_event
from services.console.following.subscribers import Subscribers
from services.console.following.supervisor import Supervisor
from services.console.jobs.jobs import Jobs
from services.console.page_files import Pages
from services.console.rest.api import RestApi, problems
from services.console.rest.components import Components
from services.console.rest.listing import Lists
from services.console.settings import ConsoleSettings
from services.console.supervisor_paths import SupervisorPaths
from services.console.webhooks.alerts import INTERVAL, SLOW, Alerts
from services.console.webhooks.webhook_posts import Webhooks

if TYPE_CHECKING:
    from prometheus_client.core import Metric

HEAD_BYTES = 16 << 10
READ_BYTES = 16 << 10
"""Bytes of a body that wait for their handler: twice as many, and what one read brings."""
SLICE = 16 << 10
"""Bytes of one read, which come beside what waits for a handler. Of a request with an error aiohttp keeps them until
the peer has gone, and gets none after them."""


BROWSES = 16, 4
"""Looks at the messages of queues under way, of all callers and of one: brokers do work for them."""


class Web:
    """The server. `protocol` makes the protocol of an accepted connection."""

    def __init__(self, config: ConsoleSettings) -> None:
        credential = own(config)
        configuration = Configuration(config.configserv, config.name, credential)
        authserv = Authserv(config.logins, config.name, credential)
        gate = Gate(configuration.users, authserv, config.metrics_secret, config.token_uses)
        configuration.follow_tokens(gate.tokens)
        supervisor = None if config.supervisor is None else Supervisor(config.supervisor, config.metrics_secret)
        live = Live(configuration, _routers(config), config.routers, config.name, credential)
        self._history = HistoryFile(config.history)
        self.refusals = gate.refusals
        gate.refusals.seen = lambda row: live.events.add_own({"at": time.time(), **row})
        subscribers = Subscribers(lambda: live.router.reached())
        browses = Shares("requests for the messages of queues", *BROWSES)
        kept = KeptForClients(subscribers, lambda: live.router.reached())
        self._parts = Components(
            configuration, gate, authserv, Lists(gate), live, subscribers, supervisor, Jobs(), browses, kept
        )
        configuration.on_permissions.append(self._parts.lists.recheck)
        self._connections = Connections()
        self._tasks: list[asyncio.Task[None]] = []
        self._webhooks = None if config.webhooks is None else _webhooks(config.webhooks, config)
        if self._webhooks is not None:
            live.events.seen = self._webhooks.take
        application = web.Application(middlewares=[problems, self._connections.middleware], logger=_silent)
        application[CONNECTIONS_KEY] = self._connections
        application.on_response_prepare.append(_headers)
        if supervisor is not None:
            application.add_routes(SupervisorPaths(supervisor, gate).routes())
        else:
            application.add_routes(ClusterPaths(configuration, gate).routes())
        application.add_routes(RestApi(self._parts).routes())
        application.add_routes(Pages().routes())
        self._runner = web.AppRunner(
            application, access_log=None, logger=_silent, handle_signals=False, handler_cancellation=True,
            shutdown_timeout=2.0,
        )  # fmt: skip

    async def start(self) -> None:
        """Make it ready for connections."""
        await self._runner.setup()
        self._connections.start()
        live = self._parts.live
        live.follow_on(await asyncio.to_thread(self._history.read, live))
        self._tasks.append(runner.spawn(self._parts.configuration.run(), "configuration"))
        self._tasks.append(runner.spawn(self._count_refusals(), "refusals"))
        if self._webhooks is not None:
            self._webhooks.start()
            self._tasks.append(runner.spawn(self._follow(), "events for webhooks"))

        if self._parts.supervisor is not None:  # a cluster watches its pods
            interval = SLOW if self._webhooks is None else INTERVAL
            alerts = Alerts(self._alert, live.events.add_own)
            self._tasks.append(runner.spawn(alerts.run(self._parts.supervisor, interval), "alerts"))

    def _alert(self, component: str, row: Row) -> None:
        if self._webhooks is not None:
            self._webhooks.take(new_event(component, "", row))

    async def _follow(self) -> None:
        """Follow the events of all processes, also while no page is open."""
        with self._parts.live.followed():
            await asyncio.Event().wait()

    async def _count_refusals(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self._parts.gate.refusals.tick()
            await self._write_uses()
            await self._history.write(self._parts.live)

    async def _write_uses(self, *, now: bool = False) -> None:
        await self._parts.gate.tokens.write(self._parts.configuration.tokens.keys(), now=now)

    def protocol(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        server = self._runner.server
        assert server is not None
        peer = _Peer(
            server, loop=asyncio.get_running_loop(), access_log=_silent, logger=_silent, keepalive_timeout=60,
            max_line_size=HEAD_BYTES, max_field_size=HEAD_BYTES, read_bufsize=READ_BYTES,
        )  # fmt: skip
        return self._connections.guarded(peer)

    async def close(self) -> None:
        """End all connections."""
        self._parts.lists.close()
        self._connections.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._write_uses(now=True)
        await self._history.write(self._parts.live, now=True)
        if self._webhooks is not None:
            await self._webhooks.close()
        await self._parts.jobs.close()
        await self._parts.live.close()
        self._parts.authserv.close()
        if self._parts.supervisor is not None:
            self._parts.supervisor.close()
        await self._runner.cleanup()

    def metrics(self) -> Iterable[Metric]:
        """Return the metrics."""
        yield from self._connections.metrics()
        if self._webhooks is not None:
            yield from self._webhooks.metrics()
        yield gauge("enmasse_console_streams", "Open streams of events.", single(self._parts.lists.watching.count))


class _Peer(web.RequestHandler):
    """Protocol of a connection. What is no request, or too long for one, is answered with a problem, which repeats
    nothing of it."""

    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio.Protocol."""
        transport.max_size = SLICE  # type: ignore[attr-defined]  # of asyncio: bytes of one read, else 256 KiB
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """As asyncio.Protocol."""
        if not (self._messages and isinstance(self._messages[-1][0], _ErrInfo)):
            super().data_received(data)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        super().handle_error(request, status, exc, None)  # raises ConnectionError if an answer has begun
        text = f"the request is not valid HTTP, or a line of its head has more than {HEAD_BYTES} bytes"
        found = RequestError("console.request.invalid", text).answer()
        if status >= 500:
            found = RequestError("console.request.failed", "try again").answer()
        _set_headers(found)
        found.force_close()
        return found


def _webhooks(file: str, config: ConsoleSettings) -> Webhooks:
    """Return the webhooks of a file. Raises process.Fatal."""
    state = None if config.webhooks_state is None else Path(config.webhooks_state)
    try:
        return Webhooks(webhooks.read(Path(file)), state)
    except ValueError as error:
        raise runner.Fatal("service.setting.invalid", f"console {config.name}: webhooks: {error}") from None


def _routers(config: ConsoleSettings) -> Places | None:
    """Return where routers may be reached; None: without any."""
    found = [config.router] if config.router is not None else list(config.routers.values())
    return Places(*map(host_port, found)) if found else None


async def _headers(request: web.Request, response: web.StreamResponse) -> None:
    _set_headers(response)


def _set_headers(response: web.StreamResponse) -> None:
    """Set the headers that every answer has."""
    headers = response.headers
    headers["Server"] = "EnMasse"
    headers["X-Content-Type-Options"] = "nosniff"
    headers.setdefault("Cache-Control", "no-store")
    headers["Referrer-Policy"] = "no-referrer"
    headers["X-Frame-Options"] = "DENY"
    headers["Cross-Origin-Resource-Policy"] = "same-origin"
    headers.setdefault("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")


_silent = logging.getLogger("enmasse.console.aiohttp")
"""Requests are input of clients: aiohttp logs nothing of them."""
_silent.disabled = True
