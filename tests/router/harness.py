"""What the router's system tests stand on: the router as a process, a management client, a broker made of Proton."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import tempfile
import threading
import urllib.request
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from proton import Condition, Delivery, Message
from proton.handlers import MessagingHandler, OutgoingMessageHandler
from proton.reactor import ApplicationEvent, Container, EventInjector
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender, SyncRequestResponse

from enmasse.testing import free_port
from tests.kit import waiting
from tests.kit.processes import Process, start_service
from tests.kit.waiting import wait_for

__all__ = [
    "ADDRESS", "AUTO_LINK", "CONNECTION", "CONNECTOR", "DEADLINE", "LINK_ROUTE", "LISTENER", "PREFIX", "ROOT",
    "SILENCE", "Broker", "DispatchProcess", "Management", "RouterProcess",
    "body_of", "comes", "free_port", "idle", "outcome_of", "post", "pump", "pump_until", "rush", "wait_for",
]  # fmt: skip

PREFIX = "org.apache.qpid.dispatch."
ADDRESS = PREFIX + "router.config.address"
AUTO_LINK = PREFIX + "router.config.autoLink"
LINK_ROUTE = PREFIX + "router.config.linkRoute"
LISTENER = PREFIX + "listener"
CONNECTOR = PREFIX + "connector"
CONNECTION = PREFIX + "connection"
DEADLINE = waiting.DEADLINE
SILENCE = 600
"""Seconds after which the listeners of tests drop a client that sends nothing. A blocking client is silent while the
test does something else, which may take long on a loaded machine: the usual 16 s would be a time limit of their own."""
ROOT = Path(__file__).resolve().parents[2]

T = TypeVar("T")


def post(sender: BlockingSender, message: Message, *, settled: bool = False) -> Any:
    """Send without waiting for the outcome; returns the delivery."""
    sender.connection.wait(lambda: sender.link.credit > 0, msg="credit")
    delivery = sender.link.send(message)
    if settled:
        delivery.settle()
    pump(sender.connection)
    return delivery


def pump(*connections: BlockingConnection) -> None:
    """Read and write what can be read and written now, or within a hundredth of a second."""
    _process(connections, 0.01, 3)


def rush(*connections: BlockingConnection) -> None:
    """As `pump`, without waiting: as much as is there to be read and written now, within bounds."""
    _process(connections, 0, 40)


def _process(connections: Iterable[BlockingConnection], timeout: float, rounds: int) -> None:
    for connection in connections:
        container = connection.container
        before, container.timeout = container.timeout, timeout
        try:
            for _ in range(rounds):
                container.process()
        finally:
            container.timeout = before


def comes(receiver: BlockingReceiver, what: str, *producers: BlockingConnection) -> None:
    """Wait for a message, while the producers go on sending; however large it is, as long as more of it comes."""

    def come() -> bool:
        rush(receiver.connection, *producers)
        return bool(receiver.fetcher.incoming)

    def size() -> int:
        current = receiver.link.current
        return 0 if current is None else int(current.pending)

    wait_for(come, what, moves=size)


def pump_until(condition: Callable[[], T], what: str, *connections: BlockingConnection) -> T:
    """The first true value of `condition`, while all these connections read and write."""

    def pumped() -> T:
        pump(*connections)
        return condition()

    return wait_for(pumped, what)


def outcome_of(connection: BlockingConnection, delivery: Any) -> Any:
    """The state of a delivery of ours once it is settled."""
    connection.wait(lambda: delivery.settled, msg="the outcome")
    return delivery.remote_state


def idle(connection: BlockingConnection) -> None:
    """A round trip: whatever the router had to say before has been read."""
    client = SyncRequestResponse(connection, "$management")
    client.call(Message(properties={"operation": "GET-MGMT-NODES"}, body={}))
    client.sender.close()
    client.receiver.close()


class RouterProcess:
    """`python -m services.router` with a listener for clients (`url`) and one for route containers."""

    def __init__(
        self,
        entities: list[list[Any]],
        *,
        router_id: str = "r1",
        default: str = "unavailable",
        mode: str = "interior",
        settings: Mapping[str, Any] | None = None,
        **attributes: Any,
    ) -> None:
        """`settings`: further ones of the process; `attributes`: of the listener for clients."""
        self._settings = settings or {}
        self.id = router_id
        self.port = free_port()
        self.container_port = free_port()
        self.health_port = free_port()
        self.url = f"127.0.0.1:{self.port}"
        self.folder = tempfile.TemporaryDirectory()
        here = {"host": "127.0.0.1"}
        clients = {"name": "clients", **here, "port": str(self.port), "idleTimeoutSeconds": SILENCE, **attributes}
        containers = {"name": "containers", **here, "port": str(self.container_port), "role": "route-container"}
        self.log = (Path(self.folder.name) / "log").open("w+")
        self._start(
            [
                ["router", {"id": router_id, "mode": mode, "defaultDistribution": default}],
                ["listener", clients],
                ["listener", containers],
                *entities,
            ]
        )
        try:
            wait_for(self._ready, "the router is ready")
        except BaseException:
            self.process.kill()
            self.process.wait()
            print(self.errors())
            raise

    def _start(self, entities: list[list[Any]]) -> None:
        config = Path(self.folder.name) / "router.json"
        health = f"127.0.0.1:{self.health_port}"
        config.write_text(json.dumps({"name": self.id, "health": health, "entities": entities, **self._settings}))
        self.process: Process = start_service("router", config, log=self.log)

    def _ready(self) -> bool:
        assert self.process.poll() is None, self.errors()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}/healthz", timeout=DEADLINE) as response:
                return bool(json.load(response)["ready"])
        except (OSError, http.client.HTTPException):
            return False

    def errors(self) -> str:
        """What it has written to stderr."""
        return Path(self.log.name).read_text()

    def connect(self, **options: Any) -> BlockingConnection:
        return BlockingConnection(self.url, timeout=DEADLINE, **options)

    def management(self) -> Management:
        return Management(self.url)

    def stop(self) -> None:
        """Ends it and checks that nothing went wrong inside."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(DEADLINE) == 0
        text = self.errors()
        self.log.close()
        self.folder.cleanup()
        assert "Traceback" not in text, text


class DispatchProcess(RouterProcess):
    """The same with a real Qpid Dispatch, which is on PATH."""

    def _start(self, entities: list[list[Any]]) -> None:
        config = Path(self.folder.name) / "router.json"
        config.write_text(json.dumps([["log", {"module": "DEFAULT", "enable": "warning+"}], *entities]))
        self.process = subprocess.Popen(["qdrouterd", "--config", str(config)], cwd=ROOT, stderr=self.log)

    def _ready(self) -> bool:
        assert self.process.poll() is None, self.errors()
        for port in (self.port, self.container_port):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except OSError:
                return False
        return True


class Management:
    """Requests to `$management` by Proton's own request-response client."""

    def __init__(self, url: str, address: str = "$management") -> None:
        self.connection = BlockingConnection(url, timeout=DEADLINE)
        self.client = SyncRequestResponse(self.connection, address)

    def call(self, operation: str, body: Any = None, **properties: Any) -> tuple[int, str, Any]:
        """Status, description, body."""
        request = Message(properties={"operation": operation, **properties}, body={} if body is None else body)
        reply = self.client.call(request)
        return int(reply.properties["statusCode"]), str(reply.properties["statusDescription"]), reply.body

    def create(self, kind: str, name: str, **body: Any) -> dict[str, Any]:
        status, text, created = self.call("CREATE", body, type=kind, name=name)
        assert status == 201, (status, text)
        return dict(created)

    def delete(self, kind: str, name: str) -> None:
        status, text, _ = self.call("DELETE", type=kind, name=name)
        assert status == 204, (status, text)

    def clear(self, prefix: str, *kinds: str) -> None:
        """Delete what is named so. Returns when the connections of deleted connectors are closed: if a peer tears one
        of them down, Dispatch crashes."""
        for kind in kinds:
            for row in self.query(kind, "name"):
                if row["name"].startswith(prefix):
                    self.delete(kind, row["name"])
        if CONNECTOR in kinds:
            wait_for(lambda: all(row["dir"] == "in" for row in self.query(CONNECTION, "dir")), "they are closed")

    def query(self, kind: str, *names: str) -> list[dict[str, Any]]:
        status, text, body = self.call("QUERY", {"attributeNames": list(names)}, entityType=kind)
        assert status == 200, (status, text)
        return [dict(zip(body["attributeNames"], row, strict=True)) for row in body["results"]]

    def one(self, kind: str, name: str) -> dict[str, Any]:
        """The row with this name."""
        return next(row for row in self.query(kind) if row["name"] == name)

    def close(self) -> None:
        self.connection.close()


def body_of(message: Message) -> Any:
    """The body, whole, while the message is there."""
    return _copied(message.body)


def _tag(delivery: Any) -> str:
    """Proton reads a tag as text only. A router's own tag is a number: from 128 on it is no UTF-8."""
    try:
        return str(delivery.tag)
    except UnicodeDecodeError:
        return ""


def _copied(body: Any) -> Any:
    """Proton's binary bodies are views that do not last."""
    return bytes(body) if isinstance(body, memoryview) else body


class SeenLink(NamedTuple):
    """A link as the broker saw it; Proton's own objects must not be touched from another thread."""

    name: str
    credit: int
    durability: int
    expiry_policy: int
    filtered: bool


class Broker(MessagingHandler):
    """A double of a broker: takes links in both directions, echoes addresses, keeps messages in lists.

    `stored[address]` are the bodies that came, `annotations[address]` those of the messages; `outbox[address]` is sent
    as credit comes; `refuse[address]` detaches with that condition, and with `reason[address]` where there is one,
    empty: without an error;
    `hold` leaves what comes unsettled. What it saw of links, credit and outcomes is kept.
    """

    def __init__(self, container_id: str, dial: str | None = None) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=True)
        self.container_id = container_id
        self._dial = dial  # a router's listener; without it the broker listens on `port`
        self.port = free_port()
        self.stored: dict[str, list[Any]] = {}
        self.annotations: dict[str, list[Any]] = {}
        self.outbox: dict[str, deque[Message]] = {}
        self.refuse: dict[str, str] = {}
        self.reason: dict[str, str] = {}
        self._refused: dict[str, Condition | None] = {}
        self.hold = False
        self.attaches = 0  # of links that the router has made
        self.held: list[Any] = []
        self.links: list[Any] = []
        self.detached: list[tuple[str, bool, str | None]] = []  # name, closed, condition
        self.outcomes: list[tuple[str, int]] = []  # address, code of the state
        self.connections: list[Any] = []
        self.tags: list[str] = []
        self.window = 100
        self.largest = 0  # bytes of a message that is taken, said in attach; 0: no limit
        self._injector = EventInjector()
        self._started = threading.Event()
        self._container = Container(self)
        self._container.container_id = container_id
        self._thread = threading.Thread(target=self._container.run, daemon=True)
        self._thread.start()
        assert self._started.wait(DEADLINE)

    # from the test's thread

    def do(self, action: Callable[[], Any]) -> Any:
        """Run `action` in the broker's thread."""
        done = threading.Event()
        result: list[Any] = []

        def run() -> None:
            try:
                result.append(action())
            finally:
                done.set()

        event = ApplicationEvent("run")
        event.action = run
        self._injector.trigger(event)
        assert done.wait(DEADLINE)
        return result[0] if result else None

    def settle_outcomes(self, settle: bool) -> None:
        """Whether it settles deliveries for which a receiver has sent a state, as it does at first."""
        for handler in self.handlers:
            if isinstance(handler, OutgoingMessageHandler):
                handler.auto_settle = settle

    def put(self, address: str, *messages: Message) -> None:
        """Messages for whoever takes them from `address`."""

        def put() -> None:
            self.outbox.setdefault(address, deque()).extend(messages)
            for link in self.links:
                if link.is_sender and link.source.address == address:
                    self._send(link)

        self.do(put)

    def link(self, address: str, *, sender: bool) -> SeenLink | None:
        """What is known of the open link for an address; `sender`: the broker sends on it."""

        def look() -> SeenLink | None:
            link = self._find(address, sender)
            if link is None:
                return None
            source = link.remote_source
            source.filter.rewind()
            return SeenLink(
                link.name, link.credit, source.durability, source.expiry_policy, source.filter.next() is not None
            )

        found: SeenLink | None = self.do(look)
        return found

    def names(self) -> list[str]:
        """Names of the open links."""
        return list(self.do(lambda: [link.name for link in self.links]))

    def take_away(self, address: str, *, sender: bool, condition: str, description: str) -> None:
        """Close a link from the broker's side."""

        def close() -> None:
            link = self._find(address, sender)
            link.condition = Condition(condition, description)
            link.close()

        self.do(close)

    def _find(self, address: str, sender: bool) -> Any:
        for link in self.links:
            terminus = link.source if sender else link.target
            if link.is_sender == sender and terminus.address == address:
                return link
        return None

    def credit(self, address: str) -> int:
        """Credit the router gave for messages from `address`; -1: there is no link."""
        link = self.link(address, sender=True)
        return -1 if link is None else link.credit

    def drop_connections(self) -> None:
        self.do(lambda: [c.transport.close_tail() or c.transport.close_head() for c in self.connections])

    def stop(self) -> None:
        if self.connections:
            self.drop_connections()

        def stop() -> None:
            self._injector.close()
            self._container.stop()

        self.do(stop)
        self._thread.join(DEADLINE)

    # events of Proton

    def on_start(self, event: Any) -> None:
        event.container.selectable(self._injector)
        if self._dial is None:
            event.container.listen(f"127.0.0.1:{self.port}")
        else:
            self.connections.append(event.container.connect(self._dial, reconnect=False))
        self._started.set()

    def on_run(self, event: Any) -> None:
        event.action()

    def on_connection_opening(self, event: Any) -> None:
        event.connection.container = self.container_id
        self.connections.append(event.connection)

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        if link.state & 1 == 0:  # already ours
            return
        self.attaches += 1
        address = link.remote_source.address if link.is_sender else link.remote_target.address
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        condition = self.refuse.get(address)
        if condition is not None:
            if link.is_sender:
                link.source.type = 0
            else:
                link.target.type = 0
            reason = self.reason.get(address, f"{address} is refused")
            self._refused[link.name] = Condition(condition, reason) if condition else None
            return
        self.links.append(link)
        link.max_message_size = self.largest
        link.open()
        if link.is_receiver:
            link.flow(self.window)
        else:
            self._send(link)

    def on_link_local_open(self, event: Any) -> None:
        if event.link.name in self._refused:
            event.link.condition = self._refused.pop(event.link.name)
            event.link.close()

    def on_sendable(self, event: Any) -> None:
        self._send(event.link)

    def _send(self, link: Any) -> None:
        box = self.outbox.get(link.source.address)
        while box and link.credit > 0:
            link.send(box.popleft())
        if link.drain_mode:
            link.drained()

    def on_message(self, event: Any) -> None:
        address = event.link.target.address
        self.annotations.setdefault(address, []).append(event.message.annotations)
        self.stored.setdefault(address, []).append(_copied(event.message.body))
        self.tags.append(_tag(event.delivery))
        if self.hold:
            self.held.append(event.delivery)
        else:
            self.settle(event.delivery, Delivery.ACCEPTED)
        event.link.flow(1)

    def settle(self, delivery: Any, state: Any = None) -> None:
        if state is not None:
            delivery.update(state)
        delivery.settle()

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if event.link.is_sender and delivery.updated and delivery.remote_state:
            self.outcomes.append((event.link.source.address, int(delivery.remote_state)))

    def _over(self, event: Any, closed: bool) -> None:
        link = event.link
        if link in self.links:
            self.links.remove(link)
        condition = link.remote_condition
        self.detached.append((link.name, closed, condition.name if condition else None))

    def on_link_closing(self, event: Any) -> None:
        self._over(event, True)
        event.link.close()

    def on_link_error(self, event: Any) -> None:
        self._over(event, True)
        event.link.close()

    def on_link_remote_detach(self, event: Any) -> None:
        self._over(event, False)
        event.link.detach()
        event.link.free()

    def on_connection_closing(self, event: Any) -> None:
        event.connection.close()

    def on_disconnected(self, event: Any) -> None:
        self._forget(event.connection)

    def on_connection_closed(self, event: Any) -> None:
        self._forget(event.connection)

    def _forget(self, connection: Any) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
        self.links = [link for link in self.links if link.connection != connection]
