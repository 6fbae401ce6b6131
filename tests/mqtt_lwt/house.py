"""A real last-will service, router, broker and configuration service; clients that lose their connection as they do."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from proton import Condition, ConnectionException, Delivery, Message, ProtonException, symbol
from proton.reactor import Container
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender, LinkDetached, SendException

from enmasse.stores import StoreSettings
from enmasse.testing import free_port, wait_for
from tests.broker.harness import BrokerProcess
from tests.configserv.running import Configserv
from tests.kit.processes import Process, Program, start_service
from tests.kit.waiting import DEADLINE
from tests.mqtt_gateway.environment import Router
from tests.router.harness import pump

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = DEADLINE
LOST = (ConnectionException, LinkDetached, SendException, ProtonException)

QUEUE, TOPIC, ANYCAST, MULTICAST = "jobs", "telemetry", "ask", "news"
ADDRESSES: dict[str, Any] = {
    QUEUE: {"type": "queue", "flavor": "q"},
    TOPIC: {"type": "topic", "flavor": "t", "mqttDefault": True},
    ANYCAST: {"type": "anycast"},
    MULTICAST: {"type": "multicast"},
}
FLAVORS = {
    "q": {"type": "queue", "templateName": "queue-persisted"},
    "t": {"type": "topic", "templateName": "topic-persisted"},
}


def broker_entities(port: int) -> list[list[Any]]:
    """How the router reaches the broker's queue and topic."""
    entities: list[list[Any]] = [
        ["connector", {"name": "b0", "host": "127.0.0.1", "port": str(port), "role": "route-container"}],
        ["address", {"name": QUEUE, "pattern": QUEUE, "waypoint": True}],
    ]
    for direction in ("in", "out"):
        fields = {"direction": direction, "connection": "b0"}
        entities.append(["autoLink", {"name": f"{QUEUE}-{direction}", "address": QUEUE, **fields}])
        entities.append(["linkRoute", {"name": f"{TOPIC}-{direction}", "prefix": TOPIC, **fields}])
    return entities


GRACE = 3600.0
"""Seconds that clients have to come again: more than a test takes. `Service.pass_time` ends them."""


class Service:
    """`python -m services.mqtt_lwt`, whose clock tests move; with `dies` it kills itself at that point
    (tests/mqtt_lwt/dying.py)."""

    def __init__(self, folder: Path, router: int, configserv: str, store: StoreSettings) -> None:
        self.health = f"127.0.0.1:{free_port()}"
        self.log = folder / "lwt.log"
        self._config = folder / "lwt.json"
        self._config.write_bytes(
            msgspec.json.encode(
                {
                    "name": "mqtt_lwt",
                    "health": self.health,
                    "router": f"127.0.0.1:{router}",
                    "configserv": configserv,
                    "store": msgspec.to_builtins(store),
                    "grace_seconds": GRACE,
                }
            )
        )
        self.process: Process | None = None

    def start(self, dies: str = "", ready: bool = True) -> None:
        with self.log.open("ab") as log:
            program = Program(("-m", "tests.mqtt_lwt.dying", dies or "never"), ("tests.mqtt_lwt.dying",))
            self.process = start_service(program, self._config, log=log)
        if ready:
            wait_for("the last-will service is ready", lambda: self.says()["ready"] or self.ended)

    @property
    def ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def says(self) -> dict[str, Any]:
        """What /readyz answers."""
        try:
            with urllib.request.urlopen(f"http://{self.health}/readyz", timeout=PATIENCE) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            return dict(json.load(error))
        except OSError:
            return {"ready": False, "detail": "", "counts": {}}

    def metric(self, name: str, labels: str = "[^}]*") -> float:
        """The sum of the series of a metric; `labels`: a pattern of those that are meant."""
        with urllib.request.urlopen(f"http://{self.health}/metrics", timeout=PATIENCE) as answer:
            text = answer.read().decode()
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{{labels}}})? (\S+)$", text, re.MULTILINE))

    def wills(self) -> int:
        """How many it has; -1 while it does not say."""
        says = self.says()
        return int(says["counts"]["wills"]) if says["ready"] else -1

    def pass_time(self) -> None:
        """As much time as the grace time passes for the service, once a client is lost or a delay runs."""
        wait_for("a time runs", self._times_run)
        self.send(signal.SIGUSR1)

    def _times_run(self) -> bool:
        return self.metric("lwt_wills", 'state="(?:orphaned|delayed)"') > 0

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        if self.process is not None and not self.ended:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(PATIENCE) == 0
        if self.log.exists():
            assert "Traceback" not in self.log.read_text(), self.log.read_text()


class Client:
    """A client with a link to `node`, which it reaches through a listener of the router: its port."""

    def __init__(self, house: House, name: str, link: str, node: str, port: int) -> None:
        self.house, self.name, self.link_name, self.node, self.port = house, name, link, node, port
        self.connection: BlockingConnection
        self.sender: BlockingSender
        self.attach()

    def attach(self) -> None:
        """Connects and attaches, as often as it takes."""

        def attached() -> bool:
            with contextlib.suppress(*LOST, OSError):
                container = Container()
                container.container_id = self.name
                self.connection = BlockingConnection(f"127.0.0.1:{self.port}", timeout=PATIENCE, container=container)
                self.sender = self.connection.create_sender(self.node, name=self.link_name)
                return True
            return False

        wait_for(f"{self.node} can be reached", attached)

    def message(self, subject: str, key: str | None, to: str, body: bytes, **annotations: Any) -> Message:
        named = {} if key is None else {"x_opt_client_id": key}
        return Message(
            subject=subject,
            address=to or None,
            body=body,
            annotations={symbol(name.replace("_", "-")): value for name, value in {**named, **annotations}.items()},
        )

    def ask(self, subject: str, key: str | None = None, to: str = "", body: bytes = b"bye", **annotations: Any) -> int:
        """Sends a request and gives the code of its outcome. Raises one of LOST."""
        delivery = self.sender.link.send(self.message(subject, key, to, body, **annotations))
        self.connection.wait(lambda: delivery.settled or self.sender.link.state & 0x20, msg="the outcome")
        if not delivery.settled:
            raise LinkDetached(self.sender.link)
        return int(delivery.remote_state)

    def will(self, key: str | None = None, to: str = QUEUE, qos: int = 1, body: bytes = b"bye", **more: Any) -> None:
        assert self.ask("will", key, to, body, x_opt_mqtt_qos=qos, **more) == Delivery.ACCEPTED

    def pump(self) -> None:
        """What can be sent and received now."""
        with contextlib.suppress(*LOST):
            pump(self.connection)

    def insist(self, subject: str, key: str | None = None, to: str = "", body: bytes = b"bye", **more: Any) -> None:
        """As a gateway: asks until it is accepted, over one link after the other."""
        while True:
            try:
                assert self.ask(subject, key, to, body, **more) == Delivery.ACCEPTED
                return
            except LOST:
                self.vanish()
                self.attach()

    def detach(self, condition: str = "") -> None:
        """Ends the link, cleanly or with an error."""
        with contextlib.suppress(*LOST):
            if condition:
                self.sender.link.condition = Condition(condition, "the client has failed")
            self.sender.close()
        self.vanish()

    def vanish(self) -> None:
        """The socket is gone, without a word."""
        with contextlib.suppress(*LOST, AttributeError):
            self.connection.conn.transport.close_tail()
            self.connection.conn.transport.close_head()
            self.connection.container.process()
        with contextlib.suppress(*LOST, OSError):
            self.connection.close()


class House:
    """What all of it stands in."""

    def __init__(self, folder: Path, store: StoreSettings) -> None:
        self.broker = BrokerProcess(folder).start()
        self.configserv = Configserv(folder, reporters=[])
        (self.configserv.config / "addresses.json").write_text(json.dumps(ADDRESSES))
        (self.configserv.config / "flavors.json").write_text(json.dumps(FLAVORS))
        self.configserv.start()
        with self.broker.manage() as management:
            management.queue(QUEUE)
            management("createAddress", TOPIC, "MULTICAST")
            management.settings(f"{TOPIC}/#", autoCreateAddresses=True, autoCreateQueues=True)
        self.router = Router(folder, broker_entities(self.broker.port))
        self.router.start()
        self.service = Service(folder, self.router.services, str(self.configserv.settings["listen"]), store)

    def close(self) -> None:
        try:
            self.service.stop()
        finally:
            self.router.kill()
            self.configserv.kill()
            self.broker.kill()

    def client(self, name: str = "client", link: str = "will") -> Client:
        """An AMQP client."""
        return Client(self, name, link, "$lwt", self.router.clients)

    def gateway(self, name: str = "gateway") -> Client:
        """An MQTT gateway."""
        return Client(self, name, "will", "$mqtt/wills", self.router.services)

    @contextlib.contextmanager
    def receiver(self, address: str) -> Iterator[BlockingReceiver]:
        connection = BlockingConnection(f"127.0.0.1:{self.router.clients}", timeout=PATIENCE)
        try:
            yield connection.create_receiver(address, credit=1000)
        finally:
            with contextlib.suppress(*LOST):
                connection.close()

    def published(self) -> list[bytes]:
        """Everything in the queue, once there are no wills any more, whatever time that takes; it is taken out."""

        def all_over() -> bool:
            wills = self.service.wills()
            if wills > 0:
                self.service.send(signal.SIGUSR1)
            return wills == 0

        wait_for("every will has been published", all_over)
        with self.broker.connect() as connection:
            connection.create_sender(QUEUE).send(Message(body=b"the last"))
            receiver = connection.create_receiver(QUEUE, credit=1000)
            found: list[bytes] = []
            while True:
                message = receiver.receive(PATIENCE)
                receiver.accept()
                if (body := bytes(message.body)) == b"the last":
                    return found
                found.append(body)
