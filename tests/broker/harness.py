"""A real broker process and blocking Proton clients to talk to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proton import UNDESCRIBED, Array, Condition, Data, Delivery, Described, Message, symbol
from proton import Terminus as PTerminus
from proton.reactor import ReceiverOption
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached

from enmasse.testing import free_port
from tests.kit import waiting
from tests.kit.processes import Process, Program, start_service
from tests.kit.waiting import wait_for

DEADLINE = waiting.DEADLINE


until = wait_for


class Reachable:
    """A broker that listens at `url` (host:port)."""

    url: str

    @contextlib.contextmanager
    def connect(self, container: str | None = None, **options: Any) -> Iterator[BlockingConnection]:
        connection = BlockingConnection(
            self.url, timeout=DEADLINE, **({"container": named(container)} if container else {}), **options
        )
        try:
            yield connection
        finally:
            with contextlib.suppress(Exception):
                connection.close()

    @contextlib.contextmanager
    def manage(self) -> Iterator[Management]:
        with self.connect() as connection:
            yield Management(connection)


class BrokerProcess(Reachable):
    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory = directory
        self.port = free_port()
        self.url = f"127.0.0.1:{self.port}"
        self.settings: dict[str, Any] = {"data_dir": str(directory / "data"), **settings}
        self.process: Process | None = None
        self.health = 0

    def start(self, wrapper: list[str] | None = None) -> BrokerProcess:
        self.launch(wrapper)
        until(self.ready, "the broker to be ready")
        return self

    def launch(self, wrapper: list[str] | None = None) -> None:
        """Starts it; `health_says` tells how far it is."""
        self.health = free_port()
        config = self.directory / "broker.json"
        config.write_text(
            json.dumps({"name": "b0", "health": f"127.0.0.1:{self.health}", "listen": self.url, **self.settings})
        )
        self.process = start_service(Program(tuple(wrapper), ()) if wrapper else "broker", config)

    def ready(self) -> bool:
        return bool(self.health_says().get("ready"))

    def health_says(self) -> dict[str, Any]:
        """Return the answer of /healthz; empty without an answer."""
        assert self.process is not None and self.process.poll() is None, "the broker has ended"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}/healthz", timeout=DEADLINE) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            return dict(json.load(error))
        except (OSError, http.client.HTTPException):
            return {}

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.health}/metrics", timeout=DEADLINE) as answer:
            return str(answer.read().decode())

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(DEADLINE) == 0

    def restart(self) -> None:
        self.stop()
        self.start()


def named(container: str) -> Any:
    """A Proton container with this container-id."""
    from proton.reactor import Container

    made = Container()
    made.container_id = container
    return made


class ManagementFailure(Exception):
    pass


class Management:
    """Requests to `activemq.management`, answered on a dynamic address."""

    def __init__(self, connection: BlockingConnection) -> None:
        self.receiver = connection.create_receiver(None, dynamic=True, credit=100)
        self.sender = connection.create_sender("activemq.management")
        self.reply_to = self.receiver.link.remote_source.address
        self._count = 0

    def __call__(self, operation: str, *parameters: Any, resource: str = "broker") -> Any:
        return self.ask({"_AMQ_ResourceName": resource, "_AMQ_OperationName": operation}, json.dumps(list(parameters)))

    def attribute(self, resource: str, name: str) -> Any:
        return self.ask({"_AMQ_ResourceName": resource, "_AMQ_Attribute": name}, None)

    def ask(self, properties: dict[str, Any], body: Any) -> Any:
        self._count += 1
        request = Message(reply_to=self.reply_to, properties=properties, body=body, correlation_id=self._count)
        self.sender.send(request)
        reply = self.receiver.receive(timeout=DEADLINE)
        self.receiver.accept()
        assert reply.correlation_id == self._count
        result = json.loads(reply.body)[0] if reply.body else None
        if not reply.properties["_AMQ_OperationSucceeded"]:
            raise ManagementFailure(result)
        return result

    def queue(self, name: str, **configuration: Any) -> None:
        """A durable anycast queue with its address."""
        given = {"name": name, "address": name, "routing-type": "ANYCAST", "durable": True, "auto-create-address": True}
        self("createQueue", json.dumps(given | {key.replace("_", "-"): v for key, v in configuration.items()}))

    def settings(self, match: str, **values: Any) -> None:
        self("addAddressSettings", match, json.dumps(values))

    def rows(self, operation: str = "listQueues") -> dict[str, dict[str, str]]:
        return {row["name"]: row for row in json.loads(self(operation, "", 1, 2**31 - 1))["data"]}

    def count(self, queue: str) -> int:
        return int(self("getMessageCount", resource=f"queue.{queue}"))


def attach(c: BlockingConnection, address: str, credit: int, **options: Any) -> BlockingReceiver:
    """A receiver with so much credit and no more (create_receiver's `credit` is topped up)."""
    receiver = c.create_receiver(address, credit=0, **options)
    if credit:
        receiver.link.flow(credit)
        flush(receiver)
    return receiver


def take(receiver: BlockingReceiver) -> Message:
    """The next message. Grants no credit, as `receiver.receive` does where none is left."""
    receiver.connection.wait(lambda: receiver.fetcher.has_message, timeout=DEADLINE)
    return receiver.fetcher.pop()


def bodies(receiver: BlockingReceiver, count: int) -> list[Any]:
    """Receives and accepts so many, granting credit for those that come after what was granted."""
    found = []
    for _ in range(count):
        if not receiver.link.credit and not receiver.fetcher.has_message:
            receiver.link.flow(1)
        found.append(take(receiver).body)
        receiver.accept()
    flush(receiver)
    return found


def nothing(receiver: BlockingReceiver) -> None:
    """Drains the receiver's credit: the broker has nothing more for it."""
    link = receiver.link
    if not link.credit:
        link.flow(1)
    link.drain(0)
    receiver.connection.wait(lambda: not link.draining() or receiver.fetcher.has_message, timeout=DEADLINE)
    assert not receiver.fetcher.has_message, "there was a message"


def modify(receiver: BlockingReceiver, *, failed: bool = False, elsewhere: bool = False, **annotations: Any) -> None:
    """The oldest unsettled message goes back as modified, with these annotations."""
    delivery = receiver.fetcher.unsettled.popleft()
    delivery.local.annotations = {symbol(key): value for key, value in annotations.items()}
    delivery.local.failed = failed
    delivery.local.undeliverable = elsewhere
    delivery.update(Delivery.MODIFIED)
    delivery.settle()
    flush(receiver)


def reject(receiver: BlockingReceiver, condition: str, description: str) -> None:
    """The oldest unsettled message is rejected with this error."""
    delivery = receiver.fetcher.unsettled.popleft()
    delivery.local.condition = Condition(condition, description)
    delivery.update(Delivery.REJECTED)
    delivery.settle()
    flush(receiver)


def flush(link: Any) -> None:
    """Waits until the broker has seen what was sent so far: it answers an attach after it."""
    connection = link.connection
    with contextlib.suppress(LinkDetached):
        connection.create_receiver("no such address", credit=0, name=f"flush-{random.random()}")


class Terminus(ReceiverOption):
    """Capabilities, durability and filters of a source; properties of the link."""

    def __init__(
        self,
        *capabilities: str,
        durable: bool = False,
        filters: dict[str, Any] | None = None,
        properties: dict[str, Any] | None = None,
        copy: bool = False,
    ) -> None:
        self.capabilities = capabilities
        self.durable = durable
        self.filters = filters or {}
        self.properties = properties
        self.copy = copy

    def apply(self, receiver: Any) -> None:
        source = receiver.source
        if self.capabilities:
            source.capabilities.put_object(Array(UNDESCRIBED, Data.SYMBOL, *map(symbol, self.capabilities)))
        if self.durable:
            source.durability = PTerminus.DELIVERIES
            source.expiry_policy = PTerminus.EXPIRE_NEVER
        if self.filters:
            source.filter.put_object({symbol(key): value for key, value in self.filters.items()})
        if self.properties:
            receiver.properties = {symbol(key): value for key, value in self.properties.items()}
        if self.copy:
            source.distribution_mode = PTerminus.DIST_MODE_COPY


def selector(text: str) -> dict[str, Any]:
    return {"jms-selector": Described(symbol("apache.org:selector-filter:string"), text)}
