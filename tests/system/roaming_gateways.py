"""Clients of STOMP, HTTP, CoAP and AMQP over WebSocket while routers and gateways come, go and die: they connect again
at once, and say how long they got nothing.

Each has a number for each message; `check()` says whether what was acknowledged has come.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException
from typing import Final

from enmasse.testing import Suite, wait_for
from enmasse.wire_formats.coap_messages import code
from tests.coap_gateway.coap_peer import CoapPeer
from tests.kit.waiting import DEADLINE
from tests.kit.websocket import Tunnel
from tests.load import Consumer
from tests.stomp_gateway.stomp_environment import RawClient
from tests.system.mqtt_devices import PATIENCE, SOME
from tests.system.roaming import PAUSE, Longest, Steady

STOMP, WEBSOCKET, HTTP, COAP = 61613, 8083, 8088, 5683
ADDRESSES: Final = {
    **{name: {"type": "queue", "flavor": "small-persisted-queue"} for name in ("stomp", "http", "coap", "websocket")},
    "events": {"type": "topic", "flavor": "small-persisted-topic"},
}
WITH: Final = ("--with", "http", "--with", "stomp", "--with", "coap")
"""Options of `enmasse up`."""
AGAIN: Final = 0.05
"""Seconds between two attempts of a client."""
SILENT: Final = 5
"""Seconds after which a client gives a silent connection up."""

_SENDERS: Final = ("STOMP receipts", "HTTP answers", "CoAP answers")


class Worker(threading.Thread):
    """One client: `turn` works over one connection until that is lost, or `over` is set."""

    def __init__(self, kind: str, turn: Callable[[Worker], None]) -> None:
        super().__init__(daemon=True)
        self.kind = kind
        self.longest = Longest()
        self.over = threading.Event()
        self.lost: Counter[str] = Counter()
        """Why attempts ended."""
        self._turn = turn
        self.start()

    def run(self) -> None:
        while not self.over.is_set():
            try:
                self._turn(self)
            except (OSError, EOFError, HTTPException, AssertionError) as error:
                self.lost[type(error).__name__] += 1
            self.over.wait(AGAIN)

    def end(self) -> None:
        self.over.set()
        self.join(DEADLINE)


class Exchange:
    """Numbered messages of one protocol. `accepted`: those with an acknowledgement; `came`: how often each came."""

    def __init__(self) -> None:
        self.accepted: list[int] = []
        self.came: Counter[int] = Counter()
        self._number = 0

    def next(self) -> int:
        """Return a new number; one without an answer is not sent again."""
        self._number += 1
        return self._number


class Mixed:
    """All of them, on the ports of a suite."""

    def __init__(self, suite: Suite) -> None:
        self._offset = suite.offset
        self.stomp, self.http, self.coap, self.events = (Exchange() for _ in range(4))
        self._tunnel = Tunnel(f"ws://127.0.0.1:{WEBSOCKET + suite.offset}")
        self.websocket = Steady(f"amqp://127.0.0.1:{self._tunnel.port}", "websocket")
        self._coap_queue = Consumer(suite.url, "coap")  # CoAP has no receivers of queues
        self._coap_queue.start()
        self.workers = [
            Worker("STOMP receipts", self._stomp_sends),
            Worker("STOMP messages", self._stomp_receives),
            Worker("HTTP answers", self._http_posts),
            Worker("HTTP long poll", self._http_polls),
            Worker("HTTP events", self._http_events),
            Worker("CoAP answers", self._coap_posts),
        ]

    def _stomp(self) -> RawClient:
        client = RawClient(STOMP + self._offset)
        client.socket.settimeout(SILENT)
        client.connect()
        return client

    def _stomp_sends(self, worker: Worker) -> None:
        with contextlib.closing(self._stomp()) as client:
            while not worker.over.wait(PAUSE):
                number = self.stomp.next()
                client.done("SEND", str(number).encode(), destination="stomp", persistent="true")
                self.stomp.accepted.append(number)
                worker.longest.note()

    def _stomp_receives(self, worker: Worker) -> None:
        with contextlib.closing(self._stomp()) as client:
            client.done("SUBSCRIBE", id="1", destination="stomp", ack="client-individual")
            while not worker.over.is_set():
                found = client.read()
                if found.command == "RECEIPT":
                    continue
                assert found.command == "MESSAGE", found
                self.stomp.came[int(found.body)] += 1
                worker.longest.note()
                client.send("ACK", id=found.headers["ack"])

    @contextlib.contextmanager
    def _http(self) -> Iterator[HTTPConnection]:
        with contextlib.closing(HTTPConnection("127.0.0.1", HTTP + self._offset, timeout=SILENT)) as connection:
            yield connection

    def _post(self, worker: Worker, exchange: Exchange, address: str, connection: HTTPConnection) -> None:
        number = exchange.next()
        connection.request("POST", f"/v1/{address}/messages", str(number).encode())
        answer = connection.getresponse()
        answer.read()
        if answer.status == 201:
            exchange.accepted.append(number)
            worker.longest.note()
        else:
            worker.lost[f"status {answer.status}"] += 1

    def _http_posts(self, worker: Worker) -> None:
        with self._http() as connection:
            while not worker.over.wait(PAUSE):
                self._post(worker, self.http, "http", connection)
                self._post(worker, self.events, "events", connection)

    def _http_polls(self, worker: Worker) -> None:
        with self._http() as connection:
            while not worker.over.is_set():
                connection.request("POST", "/v1/http/messages/next?wait=2&lock=2")
                answer = connection.getresponse()
                body = answer.read()
                if answer.status != 200:
                    worker.lost[f"status {answer.status}"] += 1
                    worker.over.wait(AGAIN)
                    continue
                self.http.came[int(body)] += 1
                worker.longest.note()
                connection.request("DELETE", answer.headers["Location"])
                connection.getresponse().read()

    def _http_events(self, worker: Worker) -> None:
        """By a subscription, which has what came meanwhile."""
        with self._http() as connection:
            connection.request("GET", "/v1/events/events?name=reader")
            answer = connection.getresponse()
            if answer.status != 200:
                worker.lost[f"status {answer.status}"] += 1
                return
            while not worker.over.is_set() and (line := answer.readline()):
                if line.startswith(b"data:") and "body" in (found := json.loads(line[5:])):
                    self.events.came[int(found["body"])] += 1
                    worker.longest.note()

    def _coap_posts(self, worker: Worker) -> None:
        with CoapPeer(COAP + self._offset) as peer:
            while not worker.over.wait(PAUSE):
                number = self.coap.next()
                answer = peer.ask("v1/coap", str(number).encode())
                if answer.code == code("2.01"):
                    self.coap.accepted.append(number)
                    worker.longest.note()
                else:
                    worker.lost[f"code {answer.code >> 5}.{answer.code & 31:02}"] += 1

    # what the test asks

    def goes_on(self) -> None:
        """Wait until something more is acknowledged, or has come, of each kind."""
        exchanges = (self.stomp, self.http, self.events, self.coap)
        before = [len(each.accepted) for each in exchanges]
        came = [len(each.came) for each in exchanges[:3]]
        websocket = self.websocket.more()
        wait_for(
            "all go on",
            lambda: (
                websocket()
                and all(len(each.accepted) > least + SOME for each, least in zip(exchanges, before, strict=True))
                and all(len(each.came) > least + SOME for each, least in zip(exchanges, came, strict=False))
            ),
            PATIENCE,
        )

    def gaps(self) -> dict[str, float]:
        """Return the longest gap of each kind since the last call, in seconds."""
        found = {each.kind: round(each.longest.seconds, 2) for each in self.workers}
        found["AMQP over WebSocket"] = round(self.websocket.longest, 2)
        for each in self.workers:
            each.longest.reset()
        self.websocket.longest = 0.0
        return found

    def lost(self) -> dict[str, dict[str, int]]:
        """Return why attempts of each kind ended."""
        return {each.kind: dict(each.lost) for each in self.workers if each.lost}

    def check(self) -> str:
        """All stop sending; what was acknowledged has come. Return the counts."""
        for each in self.workers:
            if each.kind in _SENDERS:
                each.end()
        exchanges = {"STOMP": self.stomp, "HTTP": self.http, "events": self.events}
        for kind, exchange in exchanges.items():
            wait_for(f"all of {kind}", lambda e=exchange: e.came.keys() >= set(e.accepted), PATIENCE)  # type: ignore[misc]  # mypy infers no type of a lambda's default
        wait_for("all of CoAP", lambda: self._coap_queue.seen.keys() >= set(self.coap.accepted), PATIENCE)
        wait_for("all over WebSocket", lambda: self.websocket.came.keys() >= self.websocket.accepted, PATIENCE)
        counts = {kind: len(exchange.accepted) for kind, exchange in exchanges.items()}
        counts |= {"CoAP": len(self.coap.accepted), "WebSocket": len(self.websocket.accepted)}
        return f"acknowledged and come {counts}; attempts that ended: {self.lost()}"

    def end(self) -> None:
        """End all clients."""
        for each in self.workers:
            each.over.set()
        self.websocket.end()
        self._coap_queue.abandon()
        for each in self.workers:
            each.end()
        self._tunnel.close()
