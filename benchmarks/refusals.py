"""Time of refusals in an address space: of an address of another space, beside one of a space that there is not.

`python -m benchmarks.refusals [WAY …]`: clients of the table in docs/spaces.md, COUNT refusals each, in turn. Existence
must not show in the time: medians are to differ by less than 10 %.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from enmasse.aio.client import Client
from enmasse.aio.mqtt import Refused
from enmasse.amqp.codec.errors import AmqpError
from enmasse.wire_formats import coap_messages as coap
from tests.tenants.messaging_ways import AmqpWay, CoapWay, HttpWay, MqttWay, StompWay
from tests.tenants.reading_ways import RestWay
from tests.tenants.tenant_suite import NOBODYS, Tenants, Who, running_tenants

COUNT = int(os.environ.get("COUNT", "1000"))
OWN, OTHER = "zzone", "zztwo"
USER = Who(OWN, "user")
Refuse = Callable[[str], Awaitable[float]]
"""Lets an address of this space be refused; returns the seconds."""


async def timed(act: Awaitable[Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    found = await act
    return time.perf_counter() - begun, found


async def amqp(tenants: Tenants, attach: Callable[[Client, str], Awaitable[Any]]) -> tuple[Any, Refuse]:
    way = AmqpWay(tenants, False)
    client = await way.client(USER)

    async def refuse(space: str) -> float:
        begun = time.perf_counter()
        with contextlib.suppress(AmqpError):
            await attach(client, f"!!{space}/jobs")
            raise AssertionError(space)
        return time.perf_counter() - begun

    return way, refuse


async def mqtt(tenants: Tenants, what: str) -> tuple[Any, Refuse]:
    way = MqttWay(tenants, False)
    client = await way.client(USER)

    async def refuse(space: str) -> float:
        begun = time.perf_counter()
        with contextlib.suppress(Refused):
            if what == "SUBSCRIBE":
                await client.subscribe(f"!!{space}/jobs", qos=1)
            else:
                await client.publish(f"!!{space}/jobs", "x", 1)
            raise AssertionError(space)
        return time.perf_counter() - begun

    return way, refuse


async def http(tenants: Tenants, method: str, end: str) -> tuple[Any, Refuse]:
    way = HttpWay(tenants, False)

    async def refuse(space: str) -> float:
        taken, answer = await timed(way.ask(USER, method, f"/v1/!!{space}/jobs/{end}", b"x"))
        assert answer.status >= 400, answer
        return taken

    return way, refuse


async def stomp(tenants: Tenants, command: str) -> tuple[Any, Refuse]:
    """A refusal ends the connection: each has one of its own, whose login is not timed."""
    way = StompWay(tenants, False)
    more = {} if command == "SEND" else {"id": "1"}

    async def refuse(space: str) -> float:
        client = await asyncio.to_thread(way.new, USER)
        body = b"x" if command == "SEND" else b""
        taken, frame = await timed(asyncio.to_thread(client.ask, command, body, destination=f"!!{space}/jobs", **more))
        client.close()
        assert frame.command == "ERROR", frame
        return taken

    return way, refuse


async def coaps(tenants: Tenants, method: int) -> tuple[Any, Refuse]:
    way = CoapWay(tenants, False)
    options, body = (((coap.OBSERVE, b""),), b"") if method == coap.GET else ((), b"x")

    async def refuse(space: str) -> float:
        who = Who(OWN, "anonymous")
        taken, answer = await timed(way.ask(who, f"v1/!!{space}/jobs", body, options=options, code=method))
        assert answer.code >= coap.code("4.00"), answer
        return taken

    return way, refuse


async def rest(tenants: Tenants, path: str) -> tuple[Any, Refuse]:
    way = RestWay(tenants, False)

    async def refuse(space: str) -> float:
        taken, (status, _) = await timed(way.ask(Who(OWN, "administrator"), "GET", path.format(space)))
        assert status >= 400, status
        return taken

    return way, refuse


WAYS: dict[str, Callable[[Tenants], Awaitable[tuple[Any, Refuse]]]] = {
    "attach of an AMQP sender": lambda to: amqp(to, lambda client, name: client.sender(name)),
    "attach of an AMQP receiver": lambda to: amqp(to, lambda client, name: client.receiver(name)),
    "MQTT SUBSCRIBE": lambda to: mqtt(to, "SUBSCRIBE"),
    "MQTT PUBLISH": lambda to: mqtt(to, "PUBLISH"),
    "HTTP, a message": lambda to: http(to, "POST", "messages"),
    "HTTP, the next message": lambda to: http(to, "POST", "messages/next"),
    "HTTP, events": lambda to: http(to, "GET", "events"),
    "STOMP SEND": lambda to: stomp(to, "SEND"),
    "STOMP SUBSCRIBE": lambda to: stomp(to, "SUBSCRIBE"),
    "CoAP, a message": lambda to: coaps(to, coap.POST),
    "CoAP, Observe": lambda to: coaps(to, coap.GET),
    "REST, an address": lambda to: rest(to, "addresses/!!{}%2Fjobs"),
    "REST, addresses of a space": lambda to: rest(to, "spaces/{}/addresses"),
}


async def measure(tenants: Tenants, name: str) -> None:
    way, refuse = await WAYS[name](tenants)
    times: dict[str, list[float]] = {OTHER: [], NOBODYS: []}
    for number in range(COUNT):
        for space in (OTHER, NOBODYS) if number % 2 else (NOBODYS, OTHER):
            times[space].append(await refuse(space))
    await way.close()
    other, unknown = (statistics.median(found) * 1000 for found in times.values())
    print(f"| {name} | {other:.3f} | {unknown:.3f} | {other / unknown:.3f} |", flush=True)


async def measure_all(tenants: Tenants, names: list[str]) -> None:
    for name in names:
        await measure(tenants, name)


def main(wanted: list[str] | None = None) -> None:
    names = [name for name in WAYS if not wanted or any(each in name for each in wanted)]
    with tempfile.TemporaryDirectory() as folder, running_tenants(Path(folder)) as tenants:
        print(f"medians of {COUNT} refusals each, ms")
        print("| refused | of another space | of no space | ratio |\n|---|---|---|---|")
        asyncio.run(measure_all(tenants, names))


if __name__ == "__main__":
    main(sys.argv[1:])
