"""What `enmasse send` tells its user, and how fast it sends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from enmasse.amqp.codec.performatives import Accepted, Released
from enmasse.amqp.messages.jsonform import plain
from enmasse.amqp.messages.message import Message
from enmasse.cli.commands.configuration.address import PROPERTIES
from enmasse.cli.commands.messaging.send import MOST_IDS, TOLD_SECONDS, Tally, _Sending, encoded
from enmasse.cli.contexts.remote import RemoteAddress
from enmasse.cli.messages.bodies import bodies, paced
from enmasse.model import addresses
from tests.cli.running import enmasse


class FullQueue:
    """The sender to a queue that has room only when it is asked a second time."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def wait_credit(self, timeout: float) -> None:
        self.waits.append(timeout)
        if len(self.waits) == 1:
            raise TimeoutError


def test_a_sender_that_waits_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    remote = RemoteAddress(scheme="amqp", host="other.example", port=5672, address="orders")
    sender: Any = FullQueue()
    sending = _Sending(remote, bodies(b"x", 1), 10.0, Tally("orders"))
    assert asyncio.run(sending._has_room(sender))
    assert sender.waits == [TOLD_SECONDS, 7.0]
    told = capsys.readouterr().err
    assert told.startswith("orders: no credit yet. ") and "is full" in told and "Waiting for up to 7 s more" in told


def test_bodies_come_at_a_rate_and_none_is_lost() -> None:
    async def main() -> tuple[list[Any], float]:
        clock = asyncio.get_running_loop().time
        begin = clock()
        return [body async for body in paced(bodies(b"x", 6), 50)], clock() - begin

    found, seconds = asyncio.run(main())
    assert len(found) == 6 and seconds >= 5 / 50 - 0.01


async def ids(fields: dict[str, Any], *, lines: bool = False) -> list[Any]:
    body = b'{"body": "x", "id": null}' if lines else "x"
    return [Message.decode(each).message_id async for each in encoded(bodies(body, 3), fields, lines=lines)]


def test_each_message_has_an_id_of_its_own() -> None:
    """Two commands count from 1, and their messages are not the same ones."""
    found = asyncio.run(ids({})) + asyncio.run(ids({}))
    assert len(set(found)) == 6 and None not in found
    assert asyncio.run(ids({"message_id": "mine"})) == ["mine"] * 3
    assert asyncio.run(ids({}, lines=True)) == [None] * 3


def test_messages_that_were_not_accepted_are_named() -> None:
    tally = Tally("orders")
    for number in range(MOST_IDS + 3):
        tally.take(Released() if number else Accepted(), Message("x", message_id=f"m-{number}").encode())
    names = [f"m-{number}" for number in range(1, MOST_IDS + 1)]
    assert tally.failed_ids() == f"message-ids: {', '.join(names)} and 2 more"
    tally = Tally("orders")
    tally.take(Released(), Message("x").encode())
    assert tally.failed_ids() == "", "it has no id"


def test_numbered_bodies_are_text_where_the_content_type_is_of_json() -> None:
    async def sent(**fields: Any) -> list[Any]:
        found = encoded(bodies(None, 2), fields, lines=False)
        return [plain(Message.decode(each).body) async for each in found]

    numbered = [{"sequence": 1}, {"sequence": 2}]
    assert asyncio.run(sent()) == numbered
    assert asyncio.run(sent(content_type="application/json")) == ['{"sequence": 1}', '{"sequence": 2}']


def test_help_has_examples_and_the_properties_of_an_address() -> None:
    assert set(PROPERTIES) == set(addresses.KEYS) - {"type", "store_and_forward", "multicast", "flavor"}
    shown = enmasse("address", "add", "--help").stdout
    assert all(f"  {key}=" in shown for key in PROPERTIES) and "Examples:\n    enmasse address add" in shown
    whole = enmasse("help", "address", "add").stdout
    assert whole.count("Examples:") == 1 and "Examples:" in enmasse("--help").stdout
