"""Cost of operations over a long queue for other clients: the time in which a durable message passes through another
queue while the broker counts, lists, removes, moves and purges, and deletes queues.

`python -m benchmarks broker_jobs`; COUNT=200000 makes the queues shorter."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

from proton import Message
from proton.utils import BlockingConnection

from benchmarks.harness import free_port, running
from services.broker.core.broker import Broker
from services.broker.core.publisher import publish_run
from services.broker.storage.store import Store

COUNT = int(os.environ.get("COUNT", "500000"))
OPERATIONS: dict[str, tuple[str, str, list[object]]] = {
    "count with a filter": ("queue.long", "countMessages", ["n = 7"]),
    "list with a filter": ("queue.long", "listMessages", ["n = 7"]),
    "remove a quarter": ("queue.long", "removeMessages", ["n = 1"]),
    "move a quarter": ("queue.long", "moveMessages", ["n = 2", "target"]),
    "purge": ("queue.long", "removeAllMessages", []),
    "delete": ("broker", "destroyQueue", ["gone"]),
}


class _Waiting:
    """A producer to which nothing is reported."""

    def stored(self, first: int, count: int) -> None: ...
    def not_stored(self, first: int, count: int) -> None: ...
    def not_taken(self, delivery_id: int, error: Exception | None) -> None: ...


def fill(data: Path) -> None:
    """Queues `long` and `gone` with COUNT messages each; `other` and `target` are empty."""
    store = Store.open(data)
    broker = Broker("b", clock=lambda: int(time.time() * 1000), store=store)
    payloads = [bytes(Message(body="x" * 100, durable=True, properties={"n": n % 4}).encode()) for n in range(1000)]
    for name in ("long", "gone", "other", "target"):
        broker.catalogue.create_queue(name, name, "ANYCAST", durable=True, auto_create_address=True)
        route = broker.catalogue.route(name, None)
        assert route is not None
        for _ in range(COUNT // 1000 if name in ("long", "gone") else 0):
            publish_run(broker, route, payloads, _Waiting(), 0)
            broker.commit()
            store.flush()
    broker.commit()
    store.close()


class Others:
    """A client of queue `other`, in a thread: `seconds` that each of its messages took."""

    def __init__(self, port: int) -> None:
        self.seconds: list[float] = []
        self._ended = threading.Event()
        self._connection = BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=600)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        sender = self._connection.create_sender("other")
        receiver = self._connection.create_receiver("other", credit=10)
        while not self._ended.is_set():
            began = time.perf_counter()
            sender.send(Message(body="x", durable=True))
            receiver.receive()
            receiver.accept()
            self.seconds.append(time.perf_counter() - began)
        self._connection.close()

    def stop(self) -> list[float]:
        """The times, sorted."""
        self._ended.set()
        self._thread.join()
        return sorted(self.seconds)


class Management:
    """Requests to the management of the broker."""

    def __init__(self, port: int) -> None:
        connection = BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=600)
        self._receiver = connection.create_receiver(None, dynamic=True)
        self._sender = connection.create_sender("activemq.management")

    def ask(self, resource: str, operation: str, parameters: list[object]) -> None:
        """Returns when the request is answered. Raises RuntimeError."""
        properties = {"_AMQ_ResourceName": resource, "_AMQ_OperationName": operation}
        reply_to = self._receiver.link.remote_source.address
        self._sender.send(Message(reply_to=reply_to, properties=properties, body=json.dumps(parameters)))
        reply = self._receiver.receive()
        self._receiver.accept()
        if not reply.properties["_AMQ_OperationSucceeded"]:
            raise RuntimeError(f"{operation}: {reply.body}")


def measure(port: int) -> None:
    """Prints a line for each operation."""
    management = Management(port)
    for name, (resource, operation, parameters) in {"nothing": ("", "", []), **OPERATIONS}.items():
        others = Others(port)
        while len(others.seconds) < 20:
            time.sleep(0.01)
        began = time.perf_counter()
        if operation:
            management.ask(resource, operation, parameters)
        took = time.perf_counter() - began
        time.sleep(1)  # the broker may continue to work after its answer
        found = others.stop()
        p99 = found[len(found) * 99 // 100]
        print(f"{name:22} {took:6.2f} s   others: p99 {1000 * p99:7.1f} ms, longest {1000 * found[-1]:7.1f} ms")


def main() -> None:
    """One run against a broker of this checkout."""
    with tempfile.TemporaryDirectory() as directory:
        fill(Path(directory) / "data")
        port = free_port()
        config = {"name": "b", "health": "127.0.0.1:0", "listen": f"127.0.0.1:{port}", "data_dir": f"{directory}/data"}
        (Path(directory) / "broker.json").write_text(json.dumps(config))
        command = [sys.executable, "-m", "services.broker", "--config", f"{directory}/broker.json"]
        with running("broker", command, port):
            measure(port)
