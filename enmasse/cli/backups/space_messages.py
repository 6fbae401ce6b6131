"""Messages of the queues of an address space, in files of a backup: each with its length in front."""

from __future__ import annotations

import asyncio
import os
import secrets
import struct
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from enmasse.aio.client import Client
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.messages.message import Message
from enmasse.amqp.termini import MOVES
from enmasse.model.names import AddressName, space_prefix, wire_name

LENGTH = struct.Struct(">I")
CREDIT, WINDOW = 500, 200
SECONDS = 60.0
"""Seconds without any progress after which a broker is given up."""


async def browse(client: Client, address: AddressName, file: Path) -> int:
    """Write the messages of a queue to a file, durably; return how many there are. Raises AmqpError, OSError."""
    count = 0
    receiver = await client.receiver(wire_name(address), credit=0, browse=True)
    with file.open("xb") as out:
        while True:
            granted = receiver.link.credit + receiver.fetched
            if granted <= CREDIT // 2:
                receiver.grant(CREDIT - granted)
            found = receiver.receive_nowait()
            if found is None:
                await receiver.drain(SECONDS)
                found = receiver.receive_nowait()
            if found is None:
                break
            out.write(LENGTH.pack(len(found.payload)) + found.payload)
            await found.accept()
            count += 1
        out.flush()
        os.fsync(out.fileno())
    await receiver.close()
    return count


def read(file: Path) -> Iterator[bytes]:
    """Yield the messages of a file. Raises OSError, EOFError for one that is cut off."""
    with file.open("rb") as stream:
        while head := stream.read(LENGTH.size):
            payload = stream.read(LENGTH.unpack(head)[0])
            if len(payload) != LENGTH.unpack(head)[0]:
                raise EOFError(f"{file}: is cut off")
            yield payload


async def send(client: Client, address: AddressName, file: Path, names: tuple[str, str]) -> int:
    """Send the messages of a file to a queue; return how many were stored. `names`: the space that the messages are of,
    and the one that they come to. Raises AmqpError, OSError, TimeoutError."""
    sender = await client.sender(wire_name(address), properties={Symbol(MOVES): True})
    attempt, count = secrets.token_hex(8), 0
    waiting: deque[asyncio.Future[Any]] = deque()
    for payload in read(file):
        await sender.wait_credit(SECONDS)
        outcome = sender.send_nowait(renamed(payload, *names), tag=f"{attempt}{count:016x}".encode())
        assert outcome is not None
        waiting.append(outcome)
        count += 1
        if len(waiting) >= WINDOW:
            await _stored(waiting.popleft())
    while waiting:
        await _stored(waiting.popleft())
    await sender.close()
    return count


async def _stored(outcome: asyncio.Future[Any]) -> None:
    from enmasse.amqp.codec.errors import AmqpError
    from enmasse.amqp.codec.performatives import ACCEPTED, Rejected

    async with asyncio.timeout(SECONDS):
        state = await outcome
    if state is not ACCEPTED and state is not None:
        error = state.error if isinstance(state, Rejected) else None
        raise AmqpError("amqp:resource-limit-exceeded", str(state) if error is None else error.description or "")


def renamed(payload: bytes, before: str, now: str) -> bytes:
    """Return a message with the full names that services have set, in annotations and properties, as those of another
    space: clients can state none."""
    old, new = space_prefix(before), space_prefix(now)
    if before == now or old.encode() not in payload:
        return payload
    message = Message.decode(payload)
    found = message.annotations, message.to, message.reply_to
    changed = (
        _replaced(message.annotations, old, new),
        _replaced(message.to, old, new),
        _replaced(message.reply_to, old, new),
    )
    if changed == found:
        return payload
    message.annotations, message.to, message.reply_to = changed
    return message.encode()


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str) and value.startswith(old):
        return type(value)(new + value.removeprefix(old))
    if isinstance(value, list):
        return [_replaced(each, old, new) for each in value]
    if isinstance(value, dict):
        return {key: _replaced(each, old, new) for key, each in value.items()}
    return value
