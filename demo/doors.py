"""HTTP, STOMP and CoAP clients at an address of AMQP clients."""

from __future__ import annotations

import asyncio
import threading
from http.client import HTTPConnection
from typing import Any

import stomp
from aiocoap import POST, Context
from aiocoap import Message as CoapMessage
from proton import Message

from demo.report import Report
from demo.semantics import PATIENCE, accept, connect
from enmasse.testing import Suite

OPTIONS = ("--with", "http", "--with", "stomp", "--with", "coap")
ADDRESS = "myqueue"


def _ask(suite: Suite, method: str, path: str, body: str | None = None) -> tuple[int, str, str]:
    """Return status, `Location` and body of the answer to an HTTP request."""
    connection = HTTPConnection("127.0.0.1", 8088 + suite.offset, timeout=PATIENCE)
    connection.request(method, path, body, {"Content-Type": "text/plain"} if body else {})
    answer = connection.getresponse()
    found = answer.status, answer.headers.get("Location", ""), answer.read().decode()
    connection.close()
    return found


class _Receipt(stomp.ConnectionListener):
    def __init__(self) -> None:
        self.came = threading.Event()

    def on_receipt(self, frame: Any) -> None:
        """As stomp.py."""
        self.came.set()


def _send_by_stomp(suite: Suite, body: str) -> bool:
    """Send a message and return whether its receipt came."""
    receipt = _Receipt()
    connection = stomp.Connection12([("127.0.0.1", 61613 + suite.offset)])
    connection.set_listener("", receipt)
    connection.connect(wait=True)
    connection.send(ADDRESS, body, receipt="1")
    came = receipt.came.wait(PATIENCE)
    connection.disconnect()
    return came


async def _post_by_coap(suite: Suite, body: str) -> str:
    """Return the code of the answer."""
    context = await Context.create_client_context()
    uri = f"coap://127.0.0.1:{5683 + suite.offset}/v1/{ADDRESS}"
    answer = await context.request(CoapMessage(code=POST, uri=uri, payload=body.encode())).response
    await context.shutdown()
    return str(answer.code)


def show(suite: Suite, report: Report) -> None:
    """Send by each protocol and receive by AMQP; send by AMQP and receive by HTTP."""
    report.step("HTTP, STOMP and CoAP: an address is one name whatever the protocol")
    path = f"/v1/{ADDRESS}/messages"
    status, _, _ = _ask(suite, "POST", path, "by HTTP")
    report.check("HTTP: the queue has stored what was posted", status == 201, status)
    report.check("STOMP: so says a receipt", _send_by_stomp(suite, "by STOMP"))
    code = asyncio.run(_post_by_coap(suite, "by CoAP"))
    report.check("CoAP: so says the answer", code.startswith("2.01"), code)
    connection = connect(suite)
    receiver = connection.create_receiver(ADDRESS, name="demo-doors-r", credit=3)
    bodies = []
    for _ in range(3):
        message = receiver.receive(timeout=PATIENCE)  # a body of bytes is a view of it
        bodies.append(message.body if isinstance(message.body, str) else bytes(message.body).decode())
        accept(connection, receiver)
    report.check("an AMQP receiver has all three", bodies == ["by HTTP", "by STOMP", "by CoAP"], bodies)
    receiver.close()
    connection.create_sender(ADDRESS, name="demo-doors").send(Message(body="by AMQP", durable=True))
    status, delivery, body = _ask(suite, "POST", f"{path}/next?wait=30")
    report.check("HTTP receives and locks a message of AMQP", (status, body) == (200, "by AMQP"), body)
    status, _, _ = _ask(suite, "DELETE", delivery)
    report.check("and accepts it", status == 204, status)
    connection.close()
