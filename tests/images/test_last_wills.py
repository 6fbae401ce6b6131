"""The last-will service and its Redis as containers: whichever is killed, no will is lost and none comes twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from enmasse import __version__
from enmasse.stores import RedisSettings
from enmasse.testing import free_port, wait_for
from tests.images import bases
from tests.images.build import build
from tests.images.containers import Container
from tests.mqtt_lwt.house import QUEUE, House, Service
from tests.redis_server import DURABLE

WILLS = 30


class Contained(Service):
    """The service in a container of its own; a new one at each start."""

    container: Container | None = None

    def start(self, dies: str = "", ready: bool = True) -> None:
        assert not dies
        image = f"localhost/enmasse/mqtt-lwt:{__version__}"
        self.container = Container(image).writable("/tmp").with_volume_mapping(str(self._config.parent), "/etc/enmasse")
        self.container.with_command([f"/etc/enmasse/{self._config.name}"]).start()
        if ready:
            wait_for("the last-will service is ready", lambda: self.says()["ready"] or self.ended)

    @property
    def ended(self) -> bool:
        return self.container is None or not self.container.running

    def kill(self) -> None:
        if self.container is not None:
            self.container.kill()
            self._remove()

    def stop(self) -> None:
        if self.container is not None:
            assert self.container.terminate() == 0, self.container.said
            assert "Traceback" not in self.container.said, self.container.said
            self._remove()

    def send(self, number: int) -> None:
        """Its clock is the machine's: the tests have every will published, and none waits for a time."""

    def _remove(self) -> None:
        if self.container is not None:
            self.container.stop()
        self.container = None


class Redis:
    """A Redis in a container, on a volume."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        folder.chmod(0o777)
        self.port = free_port()
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", "/data", *DURABLE]
        self.container = Container(bases.REDIS).with_volume_mapping(str(folder), "/data", "rw").with_command(options)

    def answers(self) -> bool:
        assert self.container.running, self.container.said
        try:
            # limit: then it is asked again
            # limit: then it is asked again
            with redis.Redis(port=self.port, socket_timeout=20) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def start_again(self) -> None:
        self.container.start_again()
        wait_for("Redis answers", self.answers)


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    build("mqtt-lwt")
    made = Redis(tmp_path_factory.mktemp("redis") / "data")
    with made.container:
        wait_for("Redis answers", made.answers)
        yield made


@pytest.fixture
def house(redis_server: Redis, tmp_path: Path) -> Iterator[House]:
    tmp_path.chmod(0o755)
    store = RedisSettings(f"redis://127.0.0.1:{redis_server.port}/0", tmp_path.name)
    made = House(tmp_path, store)
    made.service = Contained(tmp_path, made.router.services, str(made.configserv.settings["listen"]), store)
    try:
        made.service.start()
        yield made
    finally:
        made.close()


def expected(numbers: range) -> list[bytes]:
    return sorted(b"%d" % number for number in numbers)


def test_redis_is_killed_and_comes_back(house: House, redis_server: Redis) -> None:
    gateway = house.gateway()
    for number in range(WILLS):
        gateway.will(f"device-{number}", body=b"%d" % number)
    redis_server.container.kill()
    wait_for("the service says so", lambda: "no will is accepted" in house.service.says()["detail"])
    refused = gateway.sender.link.send(gateway.message("will", "late", QUEUE, b"%d" % WILLS, x_opt_mqtt_qos=1))
    gateway.pump()
    assert not refused.settled or refused.remote_state != refused.ACCEPTED
    redis_server.start_again()
    gateway.insist("will", "late", QUEUE, b"%d" % WILLS, x_opt_mqtt_qos=1)
    for number in range(WILLS):
        gateway.insist("will-publish", f"device-{number}")
    gateway.insist("will-publish", "late")
    gateway.detach()
    assert sorted(house.published()) == expected(range(WILLS + 1))


def test_service_and_redis_are_killed_while_clients_are_lost(house: House, redis_server: Redis) -> None:
    """Nobody tells the service of the loss again: Redis knows of it."""
    gateway = house.gateway()
    for number in range(WILLS):
        gateway.will(f"device-{number}", body=b"%d" % number)
    for number in range(WILLS):
        gateway.insist("will-publish", f"device-{number}")
        if number == WILLS // 3:
            redis_server.container.kill()
            redis_server.start_again()
        if number == 2 * WILLS // 3:
            house.service.kill()
            redis_server.container.kill()
            redis_server.start_again()
            house.service.start()
    gateway.detach()
    assert sorted(house.published()) == expected(range(WILLS))
