"""What is taken of who changes the configuration faster than that can be done, or does not read the results."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from enmasse.api.types import Change
from enmasse.control import ControlConnection, ControlLink, LinkClosed
from enmasse.control.dial import connect, listen
from enmasse.control.jsonmessage import encode
from services.configserv.configuring import ADDRESS, WINDOW, Configuring
from tests.kit.running import asyncio_test
from tests.kit.waiting import until


def request(number: int) -> bytes:
    return encode(None, msgspec.json.encode({"id": number, "kind": "addresses", "check": True}))


@asyncio_test
@pytest.mark.parametrize("slow", ["change", "reader"])
async def test_no_more_than_a_window_is_taken_at_a_time(slow: str) -> None:
    configuring, goes_on, done = Configuring(), asyncio.Event(), 0

    async def change(wanted: Change, space: str) -> dict[str, str]:
        nonlocal done
        if slow == "change":
            await goes_on.wait()
        done += 1
        return {}

    def attach(link: ControlLink) -> None:
        if link.remote_target == ADDRESS or link.remote_source == ADDRESS:
            configuring.attach(link)
        else:
            link.refuse("amqp:not-found", "")

    async def looked_at(connection: ControlConnection) -> None:
        """Return when the server has handled all that was sent before, and its credit is here."""
        with pytest.raises(LinkClosed):
            await connection.sender("elsewhere").opened()

    configuring.change = change
    listener = await listen(
        "127.0.0.1", 0, lambda connection: setattr(connection, "on_attach", attach), container="configserv"
    )
    connection = await connect("127.0.0.1", listener.port, container="console")
    answers = connection.receiver(ADDRESS, window=0)
    received: list[bytes] = []
    answers.on_message = lambda delivery: received.append(delivery.data)
    sender = connection.sender(ADDRESS)
    await sender.opened()
    await sender.has_credit()
    sent = 0
    for _ in range(3):
        while sender.credit > 0:
            sent += 1
            sender.send(request(sent), settled=True)
        await looked_at(connection)
    if slow == "reader":
        await until(lambda: done == sent)
        await looked_at(connection)
    assert sent == WINDOW and sender.credit == 0
    goes_on.set()
    answers.grant(1000)
    await until(lambda: len(received) == WINDOW and sender.credit > 0)
    await listener.close()
