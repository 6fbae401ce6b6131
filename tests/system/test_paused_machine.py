"""All processes of a suite are stopped for longer than any client may be silent, as when a machine is paused: none of
those that went on to send is taken for gone."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from enmasse.aio.client import connect
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.messages.message import Message
from enmasse.testing import Suite, running
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE
from tests.stomp_gateway.stomp_environment import RawClient
from tests.system.seeing import status

HTTP, STOMP = 8088, 61613
CONNECT, CONNACK = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x05\x00\x04lamp", b"\x20\x02\x00\x00"
"""With a keep alive of five seconds."""
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"
PAUSE = 20.0
"""Seconds; a client of AMQP may be silent for 16."""
ADDRESSES = {"orders": {"type": "queue", "flavor": "small-persisted-queue"}}


@contextmanager
def paused(suite: Suite) -> Iterator[None]:
    """Stop the suite; its own processes first go on, then the one that watches them."""
    assert suite.process is not None
    pids = [suite.process.pid, *(each["pid"] for each in status(suite)["components"])]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
@asyncio_test
async def test_a_paused_machine_ends_no_connection_of_a_client_that_has_sent(tmp_path: Path) -> None:
    options = ("--routers", "2", "--gateways", "2", "--with", "stomp", "--with", "http")
    with running(tmp_path, ADDRESSES, options=options) as suite:
        await asyncio.to_thread(suite.up)
        pids = {each["name"]: each["pid"] for each in status(suite)["components"]}
        client = await connect(suite.url, timeout=DEADLINE).open(DEADLINE)
        sender = await client.sender("orders", timeout=DEADLINE)
        device = socket.create_connection(("127.0.0.1", suite.mqtt_port), DEADLINE)
        device.sendall(CONNECT)
        assert await asyncio.to_thread(device.recv, 100) == CONNACK
        stomp = RawClient(STOMP + suite.offset, heart_beat="1000,0")
        stomp.connect()
        web = socket.create_connection(("127.0.0.1", HTTP + suite.offset), DEADLINE)
        web.sendall(b"POST /v1/orders/messages HTTP/1.1\r\n")
        with paused(suite):
            # pause: longer than any client may be silent; that of AMQP has its heartbeats sent meanwhile
            await asyncio.sleep(PAUSE)
            device.sendall(PINGREQ)
            stomp.write(b"\n")
            web.sendall(b"host: localhost\r\ncontent-length: 1\r\n\r\nx")
        assert await sender.send(Message("x", durable=True), timeout=DEADLINE) == ACCEPTED
        await asyncio.to_thread(partial(stomp.done, "SEND", b"x", destination="orders"))
        assert b" 20" in (await asyncio.to_thread(web.recv, 1 << 16)).split(b"\r\n")[0]
        await asyncio.to_thread(suite.wait_ready)
        assert await sender.send(Message("x", durable=True), timeout=DEADLINE) == ACCEPTED
        assert await asyncio.to_thread(device.recv, 100) == PINGRESP
        assert {each["name"]: each["pid"] for each in status(suite)["components"]} == pids
        await client.close()
        for each in (device, stomp.socket, web):
            each.close()
        assert await asyncio.to_thread(suite.down) == 0
