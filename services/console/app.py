"""The process: a listening socket, and behind it the web server, which is made for the first connection.

aiohttp takes a quarter of a second and 12 MiB, and the feeds take work with each change: a suite whose console is not
used has neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from enmasse.http import health
from enmasse.identity.processes.refusals import note_handshake
from enmasse.logs import log
from enmasse.network import tls, tls_handshake
from enmasse.network.acceptor import Acceptor
from enmasse.network.port_sockets import listening
from enmasse.process import runner, settings
from services.console.settings import ConsoleSettings

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from services.console.web import Web

BACKLOG = 256
HANDSHAKE_SECONDS = 10.0
"""For TLS."""
DAY_SECONDS = 86_400.0
LOST_SECONDS = 45.0
"""Until a client that no longer acknowledges what is sent counts as lost: a stream may be all that it has asked for.
Longer than a stream waits for a client that does not read."""


def _context(config: ConsoleSettings) -> ssl.SSLContext | None:
    """Return the TLS of the listeners; None without a certificate. Raises process.Fatal."""
    if config.cert is None or config.key is None:
        return None
    try:
        return tls.server(config.cert, config.key).listening()
    except (OSError, ssl.SSLError) as error:
        text = f"cert {config.cert}, key {config.key}: cannot be used: {error}; both must be PEM and a pair"
        raise runner.Fatal("start.tls.invalid", text) from None


class Door:
    """Accepts connections and gives them to the web server."""

    def __init__(self, config: ConsoleSettings) -> None:
        self._config = config
        self._acceptors: dict[str, Acceptor] = {}
        """host:port → what accepts there."""
        self._web: Web | None = None
        self._making: asyncio.Lock = asyncio.Lock()

    async def open(self) -> None:
        """Listen. Raises process.Fatal if the port or the certificate cannot be used."""
        config = self._config
        await self._listen(config.listen, None if config.https else _context(config))
        await self.have(config)

    async def have(self, config: ConsoleSettings) -> None:
        """Have the listeners with TLS of changed settings. Connections that are open stay. Raises as `open`."""
        for each in self._acceptors.keys() - {config.listen, *config.https}:
            self._acceptors.pop(each).close()
        context = _context(config) if config.https else None
        for each in config.https:
            if each not in self._acceptors:
                await self._listen(each, context)

    @property
    def endpoints(self) -> dict[str, str]:
        """Return name → host:port of the listeners."""
        return {self._name(number): at for number, at in enumerate(self._acceptors)}

    @staticmethod
    def _name(number: int) -> str:
        return "http" if number == 0 else "https" if number == 1 else f"https-{number}"

    async def _listen(self, at: str, context: ssl.SSLContext | None) -> None:
        host, port = settings.host_port(at)
        loop = asyncio.get_running_loop()
        try:
            sockets = await listening(loop, host, port, BACKLOG)
        except OSError as error:
            raise runner.cannot_listen(at, error, "listen") from None

        def take(sock: socket.socket) -> Callable[[], None]:
            task = runner.spawn(self._connect(sock, acceptor, context), "connection")

            def drop() -> None:
                task.cancel()

            return drop

        acceptor = Acceptor(loop, sockets, take)
        self._acceptors[at] = acceptor

    async def close(self) -> None:
        """Stop listening, and end every connection."""
        for each in self._acceptors.values():
            each.close()
        if self._web is not None:
            await self._web.close()

    def metrics(self) -> Iterable[Metric]:
        """Metrics of the process; none before the first connection."""
        return () if self._web is None else self._web.metrics()

    async def _connect(self, sock: socket.socket, acceptor: Acceptor, context: ssl.SSLContext | None) -> None:
        try:
            with contextlib.suppress(OSError):
                if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; elsewhere the system's own patience, minutes
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * LOST_SECONDS))
            web = await self.made()
            refused = partial(note_handshake, web.refusals, None)
            await tls_handshake.accept(web.protocol, sock, context, refused, patience=HANDSHAKE_SECONDS)
        except OSError:
            sock.close()
        except asyncio.CancelledError:
            sock.close()
            raise
        finally:
            acceptor.done(sock)

    async def made(self) -> Web:
        """Return the web server, which the first call makes. Raises process.Fatal if its settings are wrong."""
        async with self._making:
            if self._web is None:
                module = await asyncio.to_thread(importlib.import_module, "services.console.web")
                web: Web = module.Web(self._config)
                await web.start()
                self._web = web
            return self._web


def _was_used(history: str | None) -> bool:
    """Return whether the console was used in the last day: its history is continued then."""
    with contextlib.suppress(OSError):
        return history is not None and time.time() - Path(history).stat().st_mtime < DAY_SECONDS
    return False


async def _made(door: Door) -> None:
    await door.made()


async def serve(config: ConsoleSettings, stop: asyncio.Event) -> None:
    """Run the service until `stop` is set. Raises process.Fatal if a port cannot be had."""
    door = Door(config)
    state = health.Health(
        config.health, door.metrics, endpoints=lambda: door.endpoints, metrics_secret=config.metrics_secret
    )

    async def take(changed: ConsoleSettings) -> None:
        try:
            await door.have(changed)
        except runner.Fatal as error:
            log.get().error("process.listener.failed", reason=str(error))

    await state.start()
    try:
        await door.open()
        if config.webhooks is not None:
            await door.made()
        elif _was_used(config.history):
            runner.spawn(_made(door), "history")
        state.set(True)
        if isinstance(stop, runner.Stop):
            stop.on_settings(take)
        await stop.wait()
    finally:
        await door.close()
        await state.close()
