"""What is taken of who changes the configuration faster than that can be done, or does not read the results."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from enmasse.api.types import Change
from enmasse.control import ControlConnection, ControlLink, LinkClosed
from enmasse.control.dial import connect, listen
from enmasse.control.jsonmessage import body, encode
from enmasse.model.merged import FilePart
from enmasse.storage.files import locked
from services.configserv.configuring import ADDRESS, WINDOW, Configuring, SpaceTurns
from services.configserv.drivers.directory import FilesDriver
from tests.kit.running import asyncio_test
from tests.kit.waiting import until


def request(number: int, *, check: bool = True) -> bytes:
    return encode(None, msgspec.json.encode({"id": number, "kind": "addresses", "check": check}))


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


@asyncio_test
async def test_a_change_does_not_wait_for_a_check() -> None:
    """Of many entries, of another space."""
    configuring, goes_on = Configuring(), asyncio.Event()

    async def change(wanted: Change, space: str) -> dict[str, str]:
        if wanted.check:
            await goes_on.wait()
        return {}

    configuring.change = change
    attach = configuring.attach
    listener = await listen(
        "127.0.0.1", 0, lambda connection: setattr(connection, "on_attach", attach), container="configserv"
    )
    connection = await connect("127.0.0.1", listener.port, container="console")
    received: list[int] = []
    answers = connection.receiver(ADDRESS, window=8)
    answers.on_message = lambda delivery: received.append(msgspec.json.decode(body(delivery))["id"])
    sender = connection.sender(ADDRESS)
    await sender.has_credit()
    for number, check in ((1, True), (2, False), (3, True), (4, False)):
        sender.send(request(number, check=check), settled=True)
    await until(lambda: received == [2, 4])
    goes_on.set()
    await until(lambda: received == [2, 4, 1, 3])
    await listener.close()


@asyncio_test
async def test_spaces_take_turns() -> None:
    turns, order = SpaceTurns(), list[str]()

    async def work(space: str, number: int) -> None:
        async with turns.of(space):
            order.append(f"{space}{number}")
            await asyncio.sleep(0)

    works = [asyncio.ensure_future(work("one", number)) for number in range(6)]
    works += [asyncio.ensure_future(work(space, 0)) for space in ("two", "three")]
    await asyncio.sleep(0)
    works[2].cancel()  # while it waits
    await asyncio.wait(works)
    assert order == ["one0", "one1", "two0", "three0", "one3", "one4", "one5"]


@asyncio_test
async def test_a_check_does_not_wait_for_the_files(tmp_path: Path) -> None:
    driver, seen = FilesDriver(str(tmp_path)), list[bytes]()

    def edit(sources: Sequence[FilePart], home: str) -> dict[str, bytes]:
        seen.append(sources[0].data)
        return {}

    (tmp_path / "addresses.json").write_text("{}")
    with locked(tmp_path):
        await driver.check("addresses.json", edit)
    assert seen == [b"{}"]
