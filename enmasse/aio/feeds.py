"""Feeds of the configuration service over enmasse.amqp, as typed objects (docs/contracts.md, "configserv";
enmasse/model/feeds.py). What enmasse.control.configserv_client is for processes on python-qpid-proton."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NoReturn

from enmasse.aio.client import Client, connect
from enmasse.aio.json_body import json_body
from enmasse.aio.usage_reports import report_usage
from enmasse.amqp.codec.errors import DECODE_ERROR, AmqpError
from enmasse.amqp.limits import Limits
from enmasse.identity.allowances import Allowances
from enmasse.identity.processes.credentials import AnyCredential
from enmasse.logs import log
from enmasse.model.feeds import FollowedFeed
from enmasse.network.backoff import ReconnectBackoff
from enmasse.network.reconnect import keep_connected

MAX_SNAPSHOT = 256 << 20
"""Bytes: 10,000 addresses take about 2 MB."""

TIMEOUT = 10.0
"""Seconds that one attempt to connect or to attach may take."""


class FeedsClient:
    """Follows feeds of the configuration service at host and port, through any loss of it.

    A message that cannot be decoded, or at which `received` of its feed raises ValueError, is rejected and changes
    nothing.

    `allowances`: what clients use of address spaces, reported over the same connection. `credential`: that of this
    process.
    """

    def __init__(
        self,
        host: str,
        port: int,
        container: str,
        feeds: Sequence[FollowedFeed[Any]],
        *,
        allowances: Allowances | None = None,
        credential: AnyCredential | None = None,
    ) -> None:
        self.connected = False
        """A connection is open."""
        self._host = host
        self._port = port
        self._container = container
        self._feeds = feeds
        self._allowances = allowances
        self._credential = credential
        self._log = log.get(peer=f"{host}:{port}")
        self._complete: set[str] = set()

    @property
    def complete(self) -> bool:
        """Whether a message of each feed has been accepted, over any connection."""
        return len(self._complete) == len(self._feeds)

    async def run(self) -> NoReturn:
        """Follow the feeds until cancelled."""
        now = asyncio.get_running_loop().time
        await keep_connected(
            self._connect,
            self._follow,
            self._failed,
            failures=(AmqpError, OSError, TimeoutError),
            backoff=ReconnectBackoff(now()),
            now=now,
        )

    def _connect(self) -> Client:
        return connect(
            host=self._host,
            port=self._port,
            container_id=self._container,
            credential=self._credential,
            timeout=TIMEOUT,
            limits=Limits(max_message_size=MAX_SNAPSHOT),
        )

    async def _follow(self, client: Client) -> None:
        """Follow all feeds over this connection, until the first of them fails."""
        self.connected = True
        following: list[asyncio.Future[None]] = [
            asyncio.ensure_future(self._follow_feed(client, feed)) for feed in self._feeds
        ]
        if self._allowances is not None:
            following.append(asyncio.ensure_future(report_usage(client, self._allowances, timeout=TIMEOUT)))
        try:
            done, _ = await asyncio.wait(following, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self.connected = False
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)

    async def _follow_feed(self, client: Client, feed: FollowedFeed[Any]) -> NoReturn:
        """Take one message at a time, with all changes since the one before. Raises AmqpError, TimeoutError."""
        receiver = await client.receiver(feed.name, credit=0, timeout=TIMEOUT)
        logger = log.get(feed=feed.name, peer=f"{client.host}:{client.port}")
        while True:
            receiver.grant(1)
            delivery = await receiver.receive()
            try:
                feed.received(json_body(delivery.payload, feed.kind))
            except (AmqpError, ValueError) as error:
                logger.error("feed.snapshot.refused", reason=str(error))
                await delivery.reject(DECODE_ERROR, str(error)[:200])
            else:
                self._complete.add(feed.name)
                await delivery.accept()

    async def _failed(self, error: Exception) -> None:
        self._log.info("feed.server.unreachable", reason=str(error))
