"""Feeds of changes: whatever happens between the service and its followers, they end with all that it has."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import pytest

from enmasse.control import ControlConnection, Delivery, connect, listen
from enmasse.control.feeds import decode_body, encode_message
from enmasse.http.health import Health
from enmasse.model import feeds
from enmasse.model.feeds import AddressChanges, PlacementChanges
from enmasse.model.names import AddressName
from services.configserv.drivers import Contents
from services.configserv.service import ConfigService
from services.configserv.state.store import ConfigStore
from services.ragent import desired as agent
from services.storage_controller import desired as storage
from tests.configserv.running import FLAVORS
from tests.kit.marks import first_soon
from tests.kit.running import asyncio_test
from tests.kit.waiting import until

NAMES = "abcdefgh"
B = TypeVar("B")


class Follower(Generic[B]):
    """A receiver that gives credit when the test wants it, loses its connection, and rejects messages."""

    def __init__(self, port: int, feed: str, kind: type[B], received: Callable[[B], object]) -> None:
        self.rejects = 0
        self.fulls = self.changes = 0
        self._port, self._feed, self._kind, self._received = port, feed, kind, received
        self._connection: ControlConnection | None = None

    async def connect(self) -> None:
        """Begin again, over a new connection."""
        if self._connection is not None:
            self._connection.abort()
        self._connection = await connect("127.0.0.1", self._port, container="follower", max_message_size=1 << 20)
        self._receiver = self._connection.receiver(self._feed, window=0)
        self._receiver.on_message = self._on_message

    def grant(self) -> None:
        """Give credit for one message more, if there is none."""
        if self._receiver.proton_link.credit == 0:
            self._receiver.grant(1)

    def _on_message(self, delivery: Delivery) -> None:
        body = decode_body(delivery, self._kind)
        if self.rejects:
            self.rejects -= 1
            delivery.reject("amqp:not-allowed", "not this one")
            return
        self.fulls += getattr(body, "full", False)
        self.changes += not getattr(body, "full", True)
        self._received(body)
        delivery.accept()

    def close(self) -> None:
        assert self._connection is not None
        self._connection.abort()


class Views:
    """What each kind of follower has made of its messages."""

    def __init__(self, service: ConfigService) -> None:
        self._service = service
        self.completed: dict[str, Any] = {}
        self.agent = agent.Desired(())
        self.storage = storage.Desired()

    def followers(self, port: int) -> list[Follower[Any]]:
        def keep(kept: dict[str, Any], feed: str) -> Callable[[Any], None]:
            return lambda body: kept.__setitem__(feed, body)

        return [
            Follower(port, "addresses/changes", AddressChanges, feeds.completed(keep(self.completed, "addresses"))),
            Follower(port, "placements/changes", PlacementChanges, feeds.completed(keep(self.completed, "placements"))),
            Follower(port, "addresses/changes", AddressChanges, self.agent.set_addresses),
            Follower(port, "placements/changes", PlacementChanges, self.agent.set_placements),
            Follower(port, "addresses/changes", AddressChanges, self._stored),
        ]

    def _stored(self, body: AddressChanges) -> None:
        removed = None if body.full else body.removed
        self.storage.set_addresses(body.addresses, body.forced, body.invalid or (), removed)

    def agree(self) -> bool:
        """Whether all have the same. Names that are invalid now count nowhere: what they were before may stay."""
        addresses = msgspec.json.decode(self._service._address_changes(None) or b"", type=AddressChanges)
        placements = msgspec.json.decode(self._service._placement_changes(None) or b"", type=PlacementChanges)
        fields = ("revision", "addresses", "forced", "invalid"), ("revision", "brokers", "addresses", "invalid")
        for feed, body, names in zip(("addresses", "placements"), (addresses, placements), fields, strict=True):
            found = self.completed[feed]
            if any(getattr(found, name) != getattr(body, name) for name in names):
                return False
        invalid = addresses.invalid or ()
        known = {n: self.agent.type(n) for n in self.agent.addresses if n not in invalid}
        if known != {n: a.type for n, a in addresses.addresses.items()}:
            return False
        placed = {n: self.agent.placements(n) for n in map(AddressName, NAMES) if self.agent.placements(n)}
        if placed != {name: tuple(entries) for name, entries in placements.addresses.items()}:
            return False
        stored = {n: a for n, a in addresses.addresses.items() if a.stored}
        direct = {n: a.type for n, a in addresses.addresses.items() if not a.stored}
        known_stored = {n: a for n, a in self.storage.addresses.items() if n not in invalid}
        return (known_stored, self.storage.direct) == (stored, direct)


class World:
    """A service whose files and reports change at random."""

    def __init__(self, service: ConfigService, dice: random.Random) -> None:
        self.entries: dict[str, Any] = {}
        self.brokers: dict[str, Any] | None = None
        self._placed: dict[str, Any] = {}
        self._service, self._dice = service, dice

    def publish(self) -> None:
        files = {"addresses.json": self.entries, "flavors.json": FLAVORS, "brokers.json": self.brokers}
        contents: Contents = {n: json.dumps(c).encode() if c is not None else None for n, c in files.items()}
        self._service.take(self._service.compute(contents))

    def edit(self) -> None:
        """Add, change, spoil and remove entries, of which there may be none."""
        for name in self._dice.sample(NAMES, self._dice.randrange(4)):
            kind = self._dice.choice((*KINDS, None))
            if kind is None:
                self.entries.pop(name, None)
            else:
                self.entries[name] = kind
        self.publish()

    def place_by_hand(self) -> None:
        """Write brokers.json, or remove it."""
        carried = self._dice.sample(NAMES, 3)
        hand = {"host": "127.0.0.1", "port": self._dice.randrange(1, 4), "addresses": carried}
        self.brokers = {"hand": hand} if self._dice.random() < 0.5 else None
        self.publish()

    async def report(self, port: int) -> None:
        """Placements as the storage controller reports them; the first report over a link is full."""
        connection = await connect("127.0.0.1", port, container="storage_controller")
        sender = connection.sender("placements", name="storage_controller/placements")
        for full in (True, False, False):
            changed = {n: self._entry() for n in self._dice.sample(NAMES, self._dice.randrange(1, 4))}
            removed = sorted(self._placed.keys() - changed.keys())[: self._dice.randrange(2)]
            self._placed = {n: e for n, e in (self._placed | changed).items() if n not in removed}
            brokers = {f"b-{n}": {"host": "h", "port": self._dice.randrange(1, 3)} for n in range(2)}
            body = {"brokers": brokers, "addresses": self._placed if full else changed, "removed": removed}
            outcome = await sender.deliver(encode_message("full" if full else "change", body))
            assert outcome.accepted, outcome.description
        connection.abort()

    def _entry(self) -> list[dict[str, str]]:
        return [{"broker": f"b-{self._dice.randrange(2)}", "state": self._dice.choice(("active", "draining"))}]


KINDS: tuple[Any, ...] = (
    {"type": "anycast"},
    {"type": "multicast"},
    {"type": "queue", "flavor": "q"},
    {"type": "topic", "flavor": "t"},
    {"type": "nonsense"},
)


@pytest.mark.parametrize("seed", first_soon(range(8), 3))
def test_followers_of_changes_have_all_that_the_service_has(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)

    @asyncio_test
    async def run() -> None:
        service = ConfigService(ConfigStore(str(tmp_path)), (), Health("127.0.0.1:0"))
        world, views = World(service, dice), Views(service)
        listener = await listen("127.0.0.1", 0, service.accepted, container="configuration-service")
        followers = views.followers(listener.port)
        for follower in followers:
            await follower.connect()
        for _ in range(120):
            one = dice.choice(followers)
            match dice.randrange(12):
                case 0 | 1 | 2:
                    world.edit()
                case 3:
                    world.place_by_hand()
                case 4 | 5 if world.brokers is None:
                    await world.report(listener.port)
                case 6:
                    service.forced.add(map(AddressName, dice.sample(NAMES, 2)))
                case 7:
                    one.rejects = dice.randrange(1, 3)
                case 8:
                    await one.connect()
                case _:
                    one.grant()
            # pause: the moment of the next change, which is drawn
            await asyncio.sleep(dice.choice((0, 0, 0.002)))

        world.brokers = None
        world.publish()
        for follower in followers:
            follower.rejects = 0
            follower.grant()
        # A message that was rejected counts as sent until the next change.
        world.entries["a"] = {"type": dice.choice(("anycast", "multicast"))}
        world.entries["new"] = {"type": "anycast"}
        world.publish()
        await world.report(listener.port)
        await world.report(listener.port)

        def converged() -> bool:
            for follower in followers:
                follower.grant()
            return {"addresses", "placements"} <= views.completed.keys() and views.agree()

        await until(converged)
        assert AddressName("new") in views.agent.addresses
        assert any(follower.changes for follower in followers)
        for follower in followers:
            follower.close()
        service.close()
        await listener.close()

    run()


def test_a_change_of_placements_without_a_full_report_over_its_link_is_refused(tmp_path: Path) -> None:
    """What it changes is not known: another process may have sent the placements that there are."""

    @asyncio_test
    async def run() -> None:
        service = ConfigService(ConfigStore(str(tmp_path)), (), Health("127.0.0.1:0"))
        listener = await listen("127.0.0.1", 0, service.accepted, container="configuration-service")
        body = {"brokers": {"b": {"host": "h", "port": 1}}, "addresses": {"q": [{"broker": "b"}]}}
        for _ in range(2):
            connection = await connect("127.0.0.1", listener.port, container="storage_controller")
            sender = connection.sender("placements", name="storage_controller/placements")
            outcome = await sender.deliver(encode_message("change", body))
            assert (outcome.condition, outcome.description[:24]) == ("amqp:not-allowed", "send a full report first")
            assert (await sender.deliver(encode_message("full", body))).accepted
            assert (await sender.deliver(encode_message("change", body))).accepted
            connection.abort()
        service.close()
        await listener.close()

    run()
