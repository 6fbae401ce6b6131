"""A router that leaves: its clients are closed a few at a time, with the reason, and none connects."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request

import pytest
from proton import ConnectionException, Message
from proton.utils import ConnectionClosed

from tests.router.harness import DEADLINE, RouterProcess, post, wait_for

ENTITIES = [["address", {"name": "q", "prefix": "q", "distribution": "balanced"}]]


def test_each_client_is_closed_with_the_reason_and_none_connects() -> None:
    router = RouterProcess(ENTITIES, settings={"leave_within": 600})
    sending, receiving, idle = router.connect(), router.connect(), router.connect()
    receiver = receiving.create_receiver("q", credit=1)
    post(sending.create_sender("q"), Message(body="is not settled"))
    receiver.receive(DEADLINE)
    router.process.send_signal(signal.SIGTERM)
    wait_for(lambda: _detail(router).startswith("leaving, "), "it leaves")
    with pytest.raises((ConnectionException, OSError)):
        router.connect(reconnect=False)
    for each in (sending, receiving, idle):
        with pytest.raises(ConnectionClosed):
            each.wait(lambda: False, timeout=DEADLINE)
        assert each.conn.remote_condition.name == "amqp:connection:forced"
        assert "connect again" in each.conn.remote_condition.description
    assert router.process.wait(DEADLINE) == 0
    assert "Traceback" not in router.errors()
    router.log.close()
    router.folder.cleanup()


def test_a_second_order_ends_it_at_once() -> None:
    router = RouterProcess([], settings={"leave_within": 600})
    clients = [router.connect() for _ in range(30)]
    router.process.send_signal(signal.SIGTERM)
    wait_for(lambda: _detail(router).startswith("leaving, "), "it leaves")
    router.stop()
    for each in clients:
        each.conn.free()


def _detail(router: RouterProcess) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{router.health_port}/healthz", timeout=DEADLINE) as answer:
            return str(json.load(answer)["detail"])
    except urllib.error.HTTPError as error:
        with error:
            return str(json.load(error)["detail"])
