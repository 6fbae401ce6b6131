"""Sends a message through the router and takes it back: `helm test`. Arguments: URL, address (may be empty)."""

import asyncio
import ssl
import sys

from enmasse.aio.client import connect
from enmasse.amqp.message import Message

CA = "/etc/enmasse-tls/ca.crt"


async def main(url: str, address: str) -> None:
    context = ssl.create_default_context(cafile=CA) if url.startswith("amqps:") else None
    async with connect(url, ssl=context) as receiving, connect(url, ssl=context) as sending:
        receiver = await receiving.receiver(address or None, dynamic=not address)
        sender = await sending.sender(receiver.address)
        outcome, delivery = await asyncio.gather(
            sender.send(Message("round trip")), asyncio.wait_for(anext(aiter(receiver)), 30)
        )
        await delivery.accept()
        print(f"{url}: {delivery.message.body!r} came back from {receiver.address!r}: {outcome}")


asyncio.run(main(*sys.argv[1:3]))
