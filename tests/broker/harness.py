"""A real broker process and blocking Proton clients to talk to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from proton import Message
from proton.utils import BlockingConnection, BlockingReceiver

DEADLINE = 20.0


def free_port() -> int:
    """A free port below the ephemeral range."""
    start = 20000 + (os.getpid() * 37) % 10000
    for port in [*range(start, 32000), *range(20000, start)]:
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


def until(condition: Callable[[], Any], what: str = "the condition") -> Any:
    """Waits for a condition; what it returned."""
    end = time.monotonic() + DEADLINE
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"waited too long for {what}"
        time.sleep(0.01)


class BrokerProcess:
    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory = directory
        self.port = free_port()
        self.settings: dict[str, Any] = {"data_dir": str(directory / "data"), **settings}
        self.process: subprocess.Popen[bytes] | None = None
        self.health = 0

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, wrapper: list[str] | None = None) -> BrokerProcess:
        self.health = free_port_but(self.port)
        config = self.directory / "broker.json"
        config.write_text(
            json.dumps({"name": "b0", "health": f"127.0.0.1:{self.health}", "listen": self.url, **self.settings})
        )
        command = [sys.executable, *(wrapper or ["-m", "services.broker"]), "--config", str(config)]
        self.process = subprocess.Popen(command, env=os.environ | {"ENMASSE_PARENT": str(os.getpid())})
        until(self.ready, "the broker to be ready")
        return self

    def ready(self) -> bool:
        assert self.process is not None and self.process.poll() is None, "the broker has ended"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}/healthz", timeout=5) as answer:
                return bool(json.load(answer)["ready"])
        except OSError:
            return False

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.health}/metrics", timeout=5) as answer:
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


def free_port_but(taken: int) -> int:
    port = free_port()
    while port == taken:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = int(s.getsockname()[1])
    return port


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
        return self.ask(
            {"_AMQ_ResourceName": resource, "_AMQ_OperationName": operation}, json.dumps(list(parameters))
        )

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

    def rows(self, operation: str = "listQueues") -> dict[str, dict[str, str]]:
        return {row["name"]: row for row in json.loads(self(operation, "", 1, 2**31 - 1))["data"]}

    def count(self, queue: str) -> int:
        return int(self("getMessageCount", resource=f"queue.{queue}"))


def bodies(receiver: BlockingReceiver, count: int) -> list[Any]:
    """Receives and accepts so many."""
    found = []
    for _ in range(count):
        found.append(receiver.receive(timeout=DEADLINE).body)
        receiver.accept()
    return found


def nothing(receiver: BlockingReceiver) -> None:
    """Drains: the broker has nothing (more) for this receiver."""
    receiver.link.drain(1)
    receiver.connection.wait(lambda: receiver.link.credit == 0 or bool(receiver.fetcher.has_message), timeout=DEADLINE)
    assert not receiver.fetcher.has_message, "there was a message"
    receiver.link.drain_mode = False
