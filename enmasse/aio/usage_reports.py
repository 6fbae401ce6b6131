"""Reports of what clients of this process use of the limits of address spaces, and its shares in these, over
enmasse.amqp (docs/contracts.md, target and feed `usage`)."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from enmasse.aio.client import Client
from enmasse.aio.client_links import ClientReceiver
from enmasse.aio.json_body import json_body
from enmasse.amqp.messages.message import Message
from enmasse.identity.allowances import Allowances
from enmasse.logs import log
from enmasse.model import feeds

ADDRESS = "usage"
COALESCE = 0.05
"""Seconds in which changes gather for which no login waits."""


async def report_usage(client: Client, allowances: Allowances, *, timeout: float) -> None:
    """Report over this connection, and take shares, until it is lost; nothing is asked of the service, which may be
    older, while no space has limits. `timeout`: seconds for an attach or an answer. Raises AmqpError, TimeoutError."""
    changed, urgent = asyncio.Event(), asyncio.Event()

    def on_change(others_wait: bool) -> None:
        changed.set()
        if others_wait:
            urgent.set()

    allowances.on_change = on_change
    while not allowances.limited:
        await changed.wait()
        changed.clear()
    sender = await client.sender(ADDRESS, timeout=timeout)
    receiver = await client.receiver(ADDRESS, timeout=timeout)
    allowances.connected()
    taking = asyncio.ensure_future(_take(receiver, allowances))
    taking.add_done_callback(lambda _: changed.set())
    try:
        while not taking.done():
            if (report := allowances.report()) is not None:
                text = msgspec.json.encode(report).decode()
                await sender.send(Message(text, content_type="application/json"), timeout=timeout)
            await changed.wait()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(urgent.wait(), COALESCE)
            changed.clear()
            urgent.clear()
        taking.result()
    finally:
        taking.cancel()


async def _take(receiver: ClientReceiver, allowances: Allowances) -> None:
    logger = log.get(feed=ADDRESS)
    while True:
        delivery = await receiver.receive()
        try:
            allowances.take(json_body(delivery.payload, feeds.Shares))
        except ValueError as error:
            logger.error("feed.snapshot.refused", reason=str(error))
