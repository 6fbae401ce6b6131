"""All clients of a soak: who sends what to which address, who receives it, and who is away."""

from __future__ import annotations

import contextlib
import random
from typing import Any

from enmasse.testing import Suite, wait_for
from tests.load import MADE
from tests.soak.ledger import Flow, Ledger, Taker
from tests.soak.load import IDS, Post, Receiver, Sender
from tests.soak.mqtt import TURN, Devices, Publisher

FLAVORS = {
    "soak-queue": {
        "type": "queue", "templateName": "queue-persisted", "templateParameters": {"BROKERS": 2, "MEMORY": "2Mi"},
    },
    "soak-queue-2": {"type": "queue", "templateName": "queue-persisted", "templateParameters": {"MEMORY": "2Mi"}},
    "soak-tight": {"type": "queue", "templateName": "queue-persisted"},
    "soak-topic": {"type": "topic", "templateName": "topic-persisted", "templateParameters": {"MEMORY": "2Mi"}},
    "soak-topic-2": {"type": "topic", "templateName": "topic-persisted", "templateParameters": {"MEMORY": "2Mi"}},
}  # fmt: skip
"""With little memory: most of what waits has to be read from disk again. With enough of it: an address that refuses
what is beyond its size would refuse all while others fill the memory of its broker."""
ADDRESSES: dict[str, Any] = {
    "orders": {"type": "queue", "flavor": "soak-queue"},
    "jobs": {"type": "queue", "flavor": "soak-queue", "deadletter": "jobs-dead"},
    "jobs-dead": {"type": "queue", "flavor": "soak-queue"},
    "bulk": {"type": "queue", "flavor": "soak-queue"},
    "deep": {"type": "queue", "flavor": "soak-queue"},
    "news": {"type": "topic", "flavor": "soak-topic"},
    "once": {"type": "queue", "flavor": "soak-queue"},
    "feed": {"type": "topic", "flavor": "soak-topic"},
    "shape": {"type": "queue", "flavor": "soak-queue"},
    "turn": {"type": "queue", "flavor": "soak-queue"},
    "tight": {"type": "queue", "flavor": "soak-tight", "maxSize": "100Ki", "fullPolicy": "FAIL"},
    "direct": {"type": "anycast"},
    "all": {"type": "multicast"},
}
SENDERS = {"orders": 3, "jobs": 1, "bulk": 1, "deep": 1, "news": 2, "shape": 1, "tight": 1, "direct": 1, "all": 1}
RATE = {"bulk": 8.0, "deep": 30.0}
"""New messages a second of each sender; of all others:"""
USUAL_RATE = 15.0
PACE = {"deep": 8.0, "tight": 8.0}
"""Messages a second that are taken from these: of 1 MiB, and fewer than are sent, so that many are refused."""
FAST = 100.0
"""Messages a second of all senders together, about, at these rates."""


class Crew:
    """Senders, and posts for receivers. `seed` chooses which sender gives which kind of message-id.

    `depth`: so many MiB wait in the queue `deep` all the time, in more files than a broker keeps open. `speed`: so many
    times the usual rates, but for large messages.
    """

    def __init__(self, suite: Suite, ledger: Ledger, seed: int, depth: int, *, mqtt: bool, speed: float = 1.0) -> None:
        self.ledger = ledger
        self.senders: list[Sender | Publisher] = []
        self.posts: list[Post] = []
        self._suite, self._seed = suite, seed
        self._depth = depth
        flows = {name: [Flow(f"{name}/{i}") for i in range(many)] for name, many in SENDERS.items()}
        ids = list(IDS)
        random.Random(seed).shuffle(ids)
        self.deep = ledger.taker("deep", flows["deep"], behind=True)
        for address, some in flows.items():
            for flow in some:
                kind, rate = ids[len(self.senders) % len(ids)], RATE.get(address, USUAL_RATE * speed)
                pauses = self.is_deep if address == "deep" else lambda: False
                self.senders.append(Sender(suite.url, address, ledger, flow, ids=kind, rate=rate, pauses=pauses))
        self._deep_post = self._post("deep", self.deep, stays=True, pace=PACE["deep"])
        self._post("tight", ledger.taker("tight", flows["tight"]), stays=True, pace=PACE["tight"] * speed)
        self._post("shape", ledger.taker("shape", flows["shape"]), stays=True)
        orders, jobs, bulk = (ledger.taker(name, flows[name]) for name in ("orders", "jobs", "bulk"))
        self._post("orders", orders, returns=True)
        self._post("orders", orders)
        self._post("jobs", jobs, returns=True, rejects=True)
        self._post("jobs-dead", jobs, stays=True, dead=True)
        self._post("bulk", bulk)
        for name, stays in (("audit", True), ("away", False)):
            taker = ledger.taker(f"news: {name}", flows["news"])
            self._post("news", taker, stays=stays, returns=True, container_id=f"soak-{name}", subscription=name)
        team = ledger.taker("news: team", flows["news"])
        for member in range(2):
            self._post("news", team, container_id="soak-team", subscription=f"team|{member}", shared=True)
        direct = ledger.taker("direct", flows["direct"])
        for i in range(2):
            self._post("direct", direct, stays=True)
            self._post("all", ledger.taker(f"all: {i}", flows["all"], strict=False), stays=True)

        self.mqtt: Devices | None = None
        if mqtt:
            turn = Flow(f"{TURN}/0")
            self.mqtt = Devices(suite.mqtt_port, ledger, speed, turn)
            sender = Sender(suite.url, TURN, ledger, turn, ids="uuid", rate=USUAL_RATE, pauses=lambda: False)
            self.senders += [sender, *self.mqtt.publishers]
            self._post(TURN, self.mqtt.turn, stays=True)

    def gather(self) -> None:
        """Wait until the backlog of `deep` is there; only then it is received from, which may be as fast as sending."""
        wait_for("the backlog of `deep`", self.is_deep, 600)
        self._deep_post.go()

    def is_deep(self) -> bool:
        """The backlog is there."""
        (flow,) = self.deep.flows.values()
        return flow.accepted - self.deep.receipts >= self._depth

    def hurry(self) -> None:
        """From now on everybody takes what there is."""
        self.deep.behind = False
        for post in self.posts:
            post.pace = 0

    def _post(self, address: str, taker: Taker, *, stays: bool = False, pace: float = 0, **options: Any) -> Post:
        seed = self._seed + len(self.posts)

        def make(pace: float) -> Receiver:
            return Receiver(self._suite.url, address, self.ledger, taker, seed, pace=pace, **options)

        post = Post(make, address, taker, stays=stays, pace=pace)
        self.posts.append(post)
        return post

    def start(self) -> None:
        """Every receiver is attached before the first message is sent: what a subscription gets counts from then on."""
        for post in self.posts:
            if post is not self._deep_post:
                post.go()
        for post in self.posts:
            post.wait_attached()
        if self.mqtt is not None:
            self.mqtt.subscribe()
        for sender in self.senders:
            sender.start()

    def present(self) -> list[Taker]:
        """Those that get everything now: none of the addresses they take from is without one of their receivers."""
        takers = {post.taker.name: post.taker for post in self.posts}
        for post in self.posts:
            mates = [p for p in self.posts if p.taker is post.taker and p.address == post.address]
            if not any(mate.receiver for mate in mates):
                takers.pop(post.taker.name, None)
        return [*takers.values(), *(self.mqtt.takers if self.mqtt is not None else ())]

    def receivers(self) -> str:
        """How all that are there are doing."""
        return "; ".join(post.receiver.describe() for post in self.posts if post.receiver is not None)

    def close(self) -> None:
        """End every client, however it is doing."""
        if self.mqtt is not None:
            self.mqtt.close()
        for client in list(MADE):
            client.stop_trying()
        for client in list(MADE):
            with contextlib.suppress(RuntimeError):
                client.abandon()
        MADE.clear()
