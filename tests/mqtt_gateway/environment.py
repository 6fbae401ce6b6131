"""The gateway's AMQP side in a test's own process, with a real router and a real configuration service."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from enmasse.mqtt.packets import Publish, Will
from enmasse.process.places import Places
from enmasse.testing import free_port
from services.mqtt_gateway.amqp.backend import AmqpBackend
from services.mqtt_gateway.interfaces import Delivery, Ending, Request, Session
from tests.configserv.running import Configserv
from tests.kit.processes import Process, start_service
from tests.kit.waiting import DEADLINE, until
from tests.kit.waiting import wait_for as wait_until
from tests.mqtt_gateway.toy_services import ToySessions, ToyWills

ROOT = Path(__file__).resolve().parents[2]

ADDRESSES: dict[str, Any] = {
    "ask": {"type": "anycast"},
    "news": {"type": "multicast"},
    "jobs": {"type": "queue", "flavor": "q"},
    "telemetry": {"type": "topic", "flavor": "t"},
    "rest": {"type": "topic", "flavor": "t", "mqttDefault": True},
}


class Router:
    """A router process that is started again on the same ports. `clients`: port for clients, `services`: for us."""

    def __init__(self, folder: Path, entities: Sequence[Any] = ()) -> None:
        self.clients, self.services, self._health = free_port(), free_port(), free_port()
        self._log = folder / "router.log"
        self._config = folder / "router.json"
        addresses = [["address", {"name": "ask", "pattern": "ask", "distribution": "balanced"}]]
        addresses += [["address", {"name": "news", "pattern": "news", "distribution": "multicast"}]]
        routes = []
        for name, prefix, container, directions in (
            ("sessions", "$mqtt/sessions", "subscription-service", ("in", "out")),
            ("lwt", "$lwt", "lwt-service", ("in",)),
            ("wills", "$mqtt/wills", "lwt-service", ("in",)),
        ):
            for direction in directions:
                fields = {"name": f"{name}-{direction}", "prefix": prefix, "containerId": container}
                routes.append(["linkRoute", {**fields, "direction": direction}])
        listener = {"host": "127.0.0.1", "port": str(self.clients), "name": "clients", "management": False}
        services = {"host": "127.0.0.1", "port": str(self.services), "name": "services", "role": "route-container"}
        services["idleTimeoutSeconds"] = str(int(DEADLINE))  # services in a test's own loop speak when that lets them
        self._config.write_text(
            json.dumps(
                {
                    "name": "r1",
                    "health": f"127.0.0.1:{self._health}",
                    "entities": [
                        ["router", {"id": "r1", "mode": "standalone", "defaultDistribution": "unavailable"}],
                        ["listener", listener],
                        ["listener", services],
                        *addresses,
                        *routes,
                        *entities,
                    ],
                }
            )
        )
        self.process: Process | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = start_service("router", self._config, log=log)
        wait_until(self._ready, "the router is ready")

    def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self._log.read_text()
        try:
            # limit: it is asked again
            with urllib.request.urlopen(f"http://127.0.0.1:{self._health}/healthz", timeout=10) as answer:
                return bool(json.load(answer)["ready"])
        except OSError:
            return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Device:
    """An MQTT client as its session sees it: it records its callbacks, and acknowledges its messages."""

    def __init__(self, acknowledge: bool = True) -> None:
        self.acknowledge = acknowledge
        self.session: Session
        self.outcomes: list[tuple[int, int, str]] = []
        self.free: list[int] = []
        self.got: list[Delivery] = []
        self.answers: list[tuple[int, list[int], str]] = []
        self.disconnected: list[tuple[int, str]] = []
        self.steps: list[tuple[str, int]] = []
        self.holding = False

    def published(self, packet_id: int, reason: int, text: str = "") -> None:
        self.outcomes.append((packet_id, reason, text))

    def accepted(self, packet_ids: list[int]) -> None:
        self.outcomes += [(packet_id, 0, "") for packet_id in packet_ids]

    def released(self, packet_id: int) -> None:
        self.free.append(packet_id)

    def hold(self) -> None:
        self.holding = True

    def proceed(self) -> None:
        self.holding = False

    def throttle(self, throttled: bool) -> None:
        self.holding = throttled

    def deliver(self, delivery: Delivery) -> None:
        self.got.append(delivery)
        if self.acknowledge and delivery.qos < 2:
            self.session.settlements.settle(delivery)

    def send_together(self, messages: object) -> bool:
        return False  # one by one

    deliver_together = send_together

    def unsettled(self) -> list[Delivery]:
        return [] if self.acknowledge else [each for each in self.got if each.qos < 2]

    def assigned(self, packet_id: int) -> None:
        self.steps.append(("assigned", packet_id))

    def withdrawn(self, packet_id: int) -> None:
        self.steps.append(("withdrawn", packet_id))

    def received(self, packet_id: int) -> None:
        self.steps.append(("received", packet_id))

    def completed(self, packet_id: int) -> None:
        self.steps.append(("completed", packet_id))

    def subscribed(self, packet_id: int, codes: Sequence[int], text: str = "") -> None:
        self.answers.append((packet_id, list(codes), text))

    def unsubscribed(self, packet_id: int, codes: Sequence[int], text: str = "") -> None:
        self.answers.append((packet_id, list(codes), text))

    def disconnect(self, reason: int, text: str = "") -> None:
        self.disconnected.append((reason, text))
        self.session.close(Ending.TAKEN if reason == 0x8E else Ending.LOST, None, [])

    # what a test says

    def publish(self, topic: str, payload: bytes = b"x", qos: int = 0, packet_id: int = 0, **more: Any) -> None:
        self.session.publish(Publish(topic, payload, qos, packet_id=packet_id, **more))

    def close(self, ending: Ending = Ending.CLEAN) -> None:
        self.session.close(ending, None, [])


async def nothing(challenge: bytes) -> bytes:
    raise AssertionError(challenge)


class Environment:
    """Router, configuration service, toys of the two services, and backends."""

    def __init__(self, router: Router, configserv: Configserv) -> None:
        self.router = router
        self.configserv = configserv
        self.sessions = ToySessions()
        self.wills = ToyWills()
        self.backends: list[AmqpBackend] = []

    async def backend(self, name: str = "gateway", **more: Any) -> AmqpBackend:
        host, port = str(self.configserv.settings["listen"]).split(":")
        backend = AmqpBackend(name, Places(("127.0.0.1", self.router.services)), (host, int(port)), **more)
        self.backends.append(backend)
        backend.start()
        await until(lambda: backend.state()[0], "the backend is ready")
        return backend

    async def device(
        self,
        backend: AmqpBackend,
        client_id: str = "d1",
        *,
        version: int = 5,
        will: Will | None = None,
        expiry: int = 0,
        login: dict[str, Any] | None = None,
        **more: Any,
    ) -> Device:
        device = Device(**more)
        request = Request(
            client_id=client_id, clean=True, expiry=expiry, version=version, window=20, will=will, **(login or {})
        )
        request = await backend.admit(request, lambda: True, nothing)
        device.session = await backend.open(request, device)
        device.session.start(device, device, device)
        return device


@asynccontextmanager
async def environment(router: Router, configserv: Configserv) -> AsyncIterator[Environment]:
    found = Environment(router, configserv)
    await found.sessions.connect(router.services)
    await found.wills.connect(router.services)
    try:
        yield found
    finally:
        for backend in found.backends:
            await backend.close()
        await found.sessions.leave()
        await found.wills.leave()
