"""The service killed at every point of a will's life, and at any moment under load; the router killed; Redis killed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from enmasse.stores import RedisSettings
from enmasse.testing import wait_for
from tests.kit.waiting import DEADLINE
from tests.mqtt_lwt.house import QUEUE, TOPIC, Client, House
from tests.redis_server import RedisServer

POINTS = ["before:1", "after:1", "after:2", "before:2", "before:3", "after:3"]
"""The transactions: the will, the loss of its client, the removal of what has been published."""


def live_through(house: House, point: str) -> None:
    """The service is started, dies at the point, and is started again."""
    house.service.kill()
    house.service.start(dies=point)


def start_again(house: House, *told: Client) -> None:
    """Once it has killed itself, over what these clients have told it."""

    def ended() -> bool:
        for client in told:
            client.pump()
        return house.service.ended

    wait_for("the service has killed itself", ended)
    house.service.start()


@pytest.mark.clause("v5", "MQTT-3.1.2-8")
@pytest.mark.parametrize(("point", "qos"), [(point, 1 + number % 2) for number, point in enumerate(POINTS)])
def test_a_lost_client_s_will_is_published_exactly_once(house: House, point: str, qos: int) -> None:
    live_through(house, point)
    gateway = house.gateway()
    gateway.sender.link.send(gateway.message("will", "device", QUEUE, b"will", x_opt_mqtt_qos=qos))
    if point.endswith("1"):
        start_again(house, gateway)
    gateway.insist("will", "device", QUEUE, b"will", x_opt_mqtt_qos=qos)
    if point.endswith(("2", "3")):
        gateway.sender.link.send(gateway.message("will-publish", "device", "", b""))
        start_again(house, gateway)
    gateway.insist("will-publish", "device")
    gateway.detach()
    assert house.published() == [b"will"]


"""What the gateway does not know to be accepted, it sends again."""


@pytest.mark.parametrize("point", ["before:2", "after:2"])
@pytest.mark.parametrize("address", [QUEUE, f"{TOPIC}/below"])
def test_a_client_that_is_lost_while_the_service_is_killed(house: House, point: str, address: str) -> None:
    """Nobody tells the service of the loss again: it finds out."""
    with house.receiver(address) as receiver:
        live_through(house, point)
        client = house.client()
        client.will(to=address, body=b"will")
        client.detach("my:failure")
        start_again(house)
        if point.startswith("before"):
            house.service.pass_time()
        assert bytes(receiver.receive(DEADLINE).body) == b"will"
        receiver.accept()
        wait_for("it is forgotten", lambda: house.service.wills() == 0)
        sender = receiver.connection.create_sender(address)
        sender.send(client.message("", None, address, b"the last"))
        assert bytes(receiver.receive(DEADLINE).body) == b"the last"
        receiver.accept()


@pytest.mark.parametrize("point", ["before:2", "after:2"])
def test_a_will_that_was_cleared_is_never_published(house: House, point: str) -> None:
    live_through(house, point)
    gateway = house.gateway()
    gateway.will("device", body=b"never")
    gateway.sender.link.send(gateway.message("will-clear", "device", "", b""))
    start_again(house, gateway)
    gateway.insist("will-clear", "device")
    gateway.detach()
    assert house.published() == []


def test_a_service_that_is_killed_gives_its_clients_time_to_come_again(running: House) -> None:
    gateway, gone = running.gateway(), running.client("gone")
    for number in range(30):
        gateway.will(f"c{number}", body=b"held %d" % number)
    gone.will(body=b"gone")
    running.service.kill()
    gone.vanish()
    running.service.start()
    for number in range(30):
        gateway.insist("will", f"c{number}", QUEUE, b"held again %d" % number)
    running.service.pass_time()
    wait_for("only those that came again are left", lambda: running.service.wills() == 30)
    gateway.detach()
    assert running.published() == [b"gone"]


def test_a_router_that_is_killed_publishes_nothing_of_clients_that_come_again(running: House) -> None:
    gateway, gone = running.gateway(), running.client("gone")
    for number in range(30):
        gateway.will(f"c{number}", body=b"held %d" % number)
    gone.will(body=b"gone")
    running.router.kill()
    wait_for("the service knows", lambda: not running.service.says()["ready"])
    gone.vanish()
    running.router.start()
    for number in range(30):
        gateway.insist("will", f"c{number}", QUEUE, b"held again %d" % number)
    running.service.pass_time()
    wait_for("only those that came again are left", lambda: running.service.wills() == 30)
    gateway.detach()
    assert running.published() == [b"gone"]


def test_killed_at_any_moment_with_many_clients(house: House) -> None:
    """Of each client whose will was accepted, the last one that was is published once, or none if it was cleared."""
    house.service.kill()
    house.service.start()
    gateway = house.gateway()
    expected: list[bytes] = []
    for turn in range(2):
        for number in range(40):
            key, body = f"c{number}", b"%d of %d" % (turn, number)
            gateway.insist("will", key, QUEUE, body, x_opt_mqtt_qos=1 + number % 2)
            if random.random() < 0.3:
                gateway.insist("will-clear", key)
            elif random.random() < 0.6:
                gateway.insist("will-publish", key)
                expected.append(body)
            else:
                gateway.insist("will-clear", key)
            if number % 20 == random.randrange(20):
                house.service.kill()
                house.service.start()
    gateway.detach()
    assert sorted(house.published()) == sorted(expected)


def test_redis_is_killed_and_comes_back(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis")
    house = House(tmp_path, RedisSettings(server.url, "wills"))
    try:
        house.service.start()
        gateway = house.gateway()
        for number in range(20):
            gateway.will(f"c{number}", body=b"%d" % number)
        server.kill()
        wait_for("it says so", lambda: "no will is accepted" in house.service.says()["detail"])
        delivery = gateway.sender.link.send(gateway.message("will", "late", QUEUE, b"late", x_opt_mqtt_qos=1))
        gateway.pump()
        assert not delivery.settled or delivery.remote_state != delivery.ACCEPTED
        server.start()
        gateway.insist("will", "late", QUEUE, b"late", x_opt_mqtt_qos=1)
        hold(gateway)
        for number in range(0, 20, 2):
            gateway.insist("will-publish", f"c{number}")
        gateway.insist("will-publish", "late")
        gateway.detach()
        assert sorted(house.published()) == sorted([b"late", *(b"%d" % number for number in range(0, 20, 2))])
    finally:
        house.close()
        server.stop()


def hold(gateway: Client) -> None:
    """After its link was lost the gateway tells of all clients again."""
    for number in range(20):
        gateway.insist("will", f"c{number}", QUEUE, b"%d" % number, x_opt_mqtt_qos=1)
