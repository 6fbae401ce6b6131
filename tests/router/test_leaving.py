"""A router that leaves: its clients are ended a few at a time, and none connects."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

import pytest
from proton import ConnectionException, Message, Timeout
from proton.utils import ConnectionClosed

from tests.kit.health import detail
from tests.router.harness import DEADLINE, Management, RouterProcess, free_port, post, wait_for

ENTITIES = [["address", {"name": "q", "prefix": "q", "distribution": "balanced"}]]


@contextlib.contextmanager
def leaving() -> Iterator[RouterProcess]:
    """A router to be told to leave, with a neighbour."""
    port = free_port()
    beside = {"role": "inter-router", "host": "127.0.0.1", "port": port}
    other = RouterProcess([["listener", {"name": "routers", **beside}]], router_id="r2")
    try:
        router = RouterProcess(
            [*ENTITIES, ["connector", {"name": "r2", **beside}]], settings={"leave_within": 600, "log_level": "info"}
        )
        with contextlib.closing(Management(router.url)) as asking:
            wait_for(lambda: len(asking.query("router.node", "id")) == 2, "they are neighbours")
        yield router
    finally:
        other.stop()


def test_each_client_is_ended_and_none_connects() -> None:
    with leaving() as router:
        _is_handed_on(router)


def _is_handed_on(router: RouterProcess) -> None:
    sending, receiving, idle = router.connect(), router.connect(), router.connect()
    receiver = receiving.create_receiver("q", credit=1)
    post(sending.create_sender("q"), Message(body="is not settled"))
    receiver.receive(DEADLINE)
    router.process.send_signal(signal.SIGTERM)
    wait_for(lambda: detail(router.health_port).startswith("leaving, "), "it leaves")
    with pytest.raises((ConnectionException, OSError)):
        router.connect(reconnect=False)
    for each in (sending, receiving, idle):
        with pytest.raises(ConnectionException) as ended:
            while True:  # the router awaits a sign of life
                each.conn.session().open()
                with contextlib.suppress(Timeout):
                    each.wait(lambda: False, timeout=0.2)
        if isinstance(ended.value, ConnectionClosed):  # one that has sent nothing for a while; others see the end alone
            assert each.conn.remote_condition.name == "amqp:connection:forced"
            assert "connect again" in each.conn.remote_condition.description
    assert router.process.wait(DEADLINE) == 0
    assert "Traceback" not in router.errors()
    router.log.close()
    router.folder.cleanup()


def test_a_second_order_ends_it_at_once() -> None:
    with leaving() as router:
        clients = [router.connect() for _ in range(30)]
        router.process.send_signal(signal.SIGTERM)
        wait_for(lambda: detail(router.health_port).startswith("leaving, "), "it leaves")
        router.stop()
        for each in clients:
            each.conn.free()


def test_a_router_that_is_to_end_is_not_ready_first_and_goes_on() -> None:
    """Its Service leads its clients elsewhere before they connect again."""
    router = RouterProcess([], settings={"shutdown_delay": 600})
    client = router.connect()
    router.process.send_signal(signal.SIGTERM)
    wait_for(lambda: detail(router.health_port).startswith("ends in a moment"), "it is not ready")
    router.connect().close()
    router.stop()
    client.conn.free()


def test_the_only_router_ends_at_once() -> None:
    """Its clients have no other one to connect to."""
    router = RouterProcess([], settings={"leave_within": 600, "log_level": "info"})
    clients = [router.connect() for _ in range(30)]
    router.process.send_signal(signal.SIGTERM)
    assert router.process.wait(DEADLINE) == 0
    assert "router.leave.began" not in router.errors()
    router.log.close()
    router.folder.cleanup()
    for each in clients:
        each.conn.free()


def test_the_only_router_of_its_clients_ends_at_once() -> None:
    """There is another one, but not for them: it is of an address space, or this one is."""
    with leaving() as router:
        with contextlib.closing(Management(f"127.0.0.1:{router.container_port}")) as asking:
            assert asking.call("SHARE-CLIENTS", {"routers": 1, "clients": 0})[0] == 200
        router.process.send_signal(signal.SIGTERM)
        assert router.process.wait(DEADLINE) == 0
        assert "router.leave.began" not in router.errors()
        router.log.close()
        router.folder.cleanup()
