"""Readings of devices, 200 bytes of JSON with the header, properties and application properties of usual devices.

`python -m benchmarks.load.readings URL ADDRESS COUNT [RATE]` sends them through the engine, and prints `done` when all
are accepted. With a RATE (messages a second) their creation time is that of sending.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from enmasse.aio.client import connect
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.messages.message import Message

BODY = 200
BASE = 1_764_000_000_000
"""Creation time of the first message, milliseconds since 1970."""
WINDOW = 2000


def body(n: int) -> bytes:
    """The JSON of reading n, which is of one of 500 devices."""
    reading = {
        "device": f"d{n % 500}",
        "time": f"2026-11-24T10:{n // 60 % 60:02d}:{n % 60:02d}Z",
        "temperature": n % 97 / 4,
    }
    text = json.dumps({**reading, "filler": ""})
    return (text[:-2] + "x" * (BODY - len(text)) + text[-2:]).encode()


def message(n: int, created: int) -> bytes:
    """The encoded message of reading n. created: milliseconds since 1970."""
    return Message(
        body(n),
        durable=True,
        message_id=f"d{n % 500}-{n}",
        to="telemetry",
        content_type=Symbol("application/json"),
        creation_time=created,
        application_properties={"device": f"d{n % 500}", "unit": "C"},
    ).encode()


async def send(url: str, address: str, count: int, rate: float) -> None:
    """Send, at most WINDOW unsettled. Raises RuntimeError if a message is not accepted."""
    async with connect(url) as client:
        sender = await client.sender(address)
        flying: list[asyncio.Future[Any] | None] = []
        began = time.monotonic()
        for n in range(count):
            if rate and (early := began + n / rate - time.monotonic()) > 0.002:
                await asyncio.sleep(early)
            if not sender.credit:
                await sender.wait_credit()
            flying.append(sender.send_nowait(message(n, time.time_ns() // 1_000_000 if rate else BASE + n)))
            if len(flying) == WINDOW:
                await accepted(flying[: WINDOW // 2])
                del flying[: WINDOW // 2]
        await accepted(flying)


async def accepted(outcomes: list[asyncio.Future[Any] | None]) -> None:
    """Wait for outcomes. Raises RuntimeError if one is another than accepted."""
    for outcome in outcomes:
        assert outcome is not None
        if (found := await outcome) is not ACCEPTED:
            raise RuntimeError(f"not accepted: {found}")


def main() -> None:
    url, address, count, *rate = sys.argv[1:]
    asyncio.run(send(url, address, int(count), float(rate[0]) if rate else 0.0))
    print("done", flush=True)


if __name__ == "__main__":
    main()
