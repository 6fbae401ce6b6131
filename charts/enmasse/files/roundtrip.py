"""Sends a message through the router and takes it back: `helm test`. Arguments: URL, address (may be empty).

A URL `operators://…` is that of the routers' listener for operators, where the operator's certificate is shown.
"""

import asyncio
import ssl
import sys

from enmasse.aio.client import connect
from enmasse.aio.client_links import ClientReceiver
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import Accepted
from enmasse.amqp.messages.message import Message
from enmasse.identity.processes.process_certificates import Certificate

CA = "/etc/enmasse-tls/ca.crt"
IDENTITY = "/etc/enmasse-identity"
PATIENCE = 30.0


async def main(url: str, address: str) -> None:
    context = ssl.create_default_context(cafile=CA) if url.startswith("amqps:") else None
    operator = Certificate(IDENTITY) if url.startswith("operators:") else None
    how = {"url": url.replace("operators:", "amqps:"), "ssl": context, "credential": operator}
    async with connect(**how) as receiving, connect(**how) as sending:
        receiver = await receiving.receiver(address or None, dynamic=not address)
        sender = await sending.sender(receiver.address)
        # Unless the address stores messages, the outcome is that of the receiver: it accepts while the sender waits.
        outcome, body = await asyncio.gather(sender.send(Message("round trip"), timeout=PATIENCE), taken(receiver))
        print(f"{url}: {body!r} came back from {receiver.address!r}: {outcome}")
        if not isinstance(outcome, Accepted):
            sys.exit(1)


async def taken(receiver: ClientReceiver) -> object:
    delivery = await asyncio.wait_for(anext(aiter(receiver)), PATIENCE)
    await delivery.accept()
    return delivery.message.body


url, address = sys.argv[1:3]
try:
    asyncio.run(main(url, address))
except (AmqpError, OSError) as error:  # a TimeoutError, too
    sys.exit(f"{url}: no message came back from {address or 'a reply address'!r}: {str(error) or 'not in time'}")
