"""A broker for the tests of a file, and where Spark works."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection

from enmasse.spark.receiver import receivers
from enmasse.testing import free_port, wait_for
from tests.kit import waiting
from tests.kit.processes import Process, start_service
from tests.spark import forking

DEADLINE = waiting.DEADLINE
"""Seconds until a wait is given up, also for a whole Spark to start on a slow machine: no assertion of speed."""
LIMIT = 900
"""Seconds for a whole test."""


class Broker:
    """The embedded broker as a process, with queues made by its management."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"amqp://127.0.0.1:{self.port}"
        self.config = folder / "broker.json"
        settings = {
            "name": "spark-broker",
            "health": f"127.0.0.1:{free_port()}",
            "listen": f"127.0.0.1:{self.port}",
            "data_dir": str(folder / "data"),
        }
        self.config.write_text(json.dumps(settings))
        self.process = self.start()

    def start(self) -> Process:
        process = start_service("broker", self.config)
        wait_for("the broker to listen", lambda: process.poll() is not None or self.listens(), DEADLINE)
        assert process.poll() is None, "the broker ended"
        return process

    def listens(self) -> bool:
        with (
            contextlib.suppress(OSError),
            # limit: it is asked again
            socket.create_connection(("127.0.0.1", self.port), timeout=1),
        ):
            return True
        return False

    def manage(self, operation: str, *arguments: Any, resource: str = "broker") -> Any:
        connection = BlockingConnection(self.url, timeout=DEADLINE)
        try:
            replies = connection.create_receiver(None, dynamic=True)
            sender = connection.create_sender("activemq.management")
            request = {"_AMQ_ResourceName": resource, "_AMQ_OperationName": operation}
            reply_to = replies.link.remote_source.address
            sender.send(
                Message(reply_to=reply_to, correlation_id="1", properties=request, body=json.dumps(list(arguments)))
            )
            reply = replies.receive(timeout=DEADLINE)
            assert reply.properties["_AMQ_OperationSucceeded"], reply.body
            return json.loads(reply.body) if reply.body else None
        finally:
            connection.close()

    def queue(self, name: str) -> str:
        self.manage("createQueue", name, "ANYCAST", name, None, True, -1, False, True)
        return name

    def queue_without_duplicates(self, name: str) -> str:
        """A queue that stores a message-id once."""
        self.manage("addAddressSettings", name, json.dumps({"duplicateDetectionByMessageId": True}))
        return self.queue(name)

    def depth(self, queue: str) -> int:
        """The messages in a queue, those that a client has not settled included."""
        (count,) = self.manage("getMessageCount", resource=f"queue.{queue}")
        return int(count)

    def send(self, address: str, messages: list[Message]) -> None:
        connection = BlockingConnection(self.url, timeout=DEADLINE)
        sender = connection.create_sender(address)
        for message in messages:
            sender.send(message)
        connection.close()

    def receive(self, address: str, count: int, timeout: float = DEADLINE) -> list[Message]:
        connection = BlockingConnection(self.url, timeout=timeout)
        receiver = connection.create_receiver(address, credit=count)
        found = []
        for _ in range(count):
            found.append(receiver.receive(timeout=timeout))
            receiver.accept()
        connection.close()
        return found


@pytest.fixture(scope="session", autouse=True)
def scratch(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where Spark and its JVMs put what they need: those that are killed take nothing away."""
    folder = str(tmp_path_factory.mktemp("spark"))
    os.environ["SPARK_LOCAL_DIRS"] = folder
    # The quick compiler alone: the other one takes as much time again, and repays it after minutes. Of the collectors,
    # the one that has no threads of its own.
    quick = "-XX:-UsePerfData -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    os.environ["SPARK_SUBMIT_OPTS"] = f"-Djava.io.tmpdir={folder} {quick}"


@pytest.fixture(scope="session", autouse=True)
def forked_receivers() -> Iterator[None]:
    """Receivers of this process are forked, from its first one on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(receivers, "execute", forking.start)
        yield


@pytest.fixture(autouse=True)
def traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """What enmasse.spark.errors.plainly sets in this process is not inherited by those of the next test."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")


@pytest.fixture(scope="session")
def spark(scratch: None) -> Iterator[Any]:
    """The session of all files `test_in_spark*.py`, which one worker takes."""
    from enmasse.spark.session import session  # PySpark takes a second

    running = session("enmasse-tests")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    running = Broker(tmp_path_factory.mktemp("broker"))
    yield running
    running.process.terminate()
    running.process.wait(DEADLINE)
