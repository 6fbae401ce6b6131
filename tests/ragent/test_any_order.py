"""Everything fails in any order; afterwards the router has what it shall have, and nothing else of ours."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from enmasse.model import feeds
from enmasse.network.backoff import Waits
from enmasse.reconcile import reconciler
from services.ragent import management
from services.ragent.desired import Desired
from services.ragent.entities import ADDRESS_TYPES, CONNECTOR, LISTENER, ClientListener
from tests.ragent.conftest import Scenario, World
from tests.ragent.doubles import until

Play = Callable[[Scenario], None]
KINDS = ("queue", "topic", "anycast", "multicast")


@pytest.mark.parametrize("seed", range(4))
def test_it_converges(play: Play, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(management, "REQUEST_TIMEOUT", 0.15)
    monkeypatch.setattr(reconciler, "AGAIN", Waits(0.02, 0.1))
    dice = random.Random(seed)

    async def scenario(world: World) -> None:
        addresses: dict[str, dict[str, Any]] = {}
        placed: dict[str, list[dict[str, str]]] = {}

        def change() -> None:
            name = dice.choice("abcdefgh")
            kind = dice.choice((*KINDS, None))
            if kind is None:
                addresses.pop(name, None)
            else:
                addresses[name] = {"type": kind}
            publish()

        def place() -> None:
            name = dice.choice("abcdefgh")
            state = dice.choice(("active", "draining", None))
            if state is None:
                placed.pop(name, None)
            else:
                kind = dice.choice(("queue", "topic"))
                placed[name] = [{"broker": f"b-{dice.randrange(3)}", "state": state, "type": kind}]
            publish()

        def publish() -> None:
            world.configserv.place(placed)
            world.configserv.addresses(addresses)

        def lose_replies() -> None:
            world.router.drop_replies = dice.randrange(1, 4)

        def delete_by_hand() -> None:
            table = world.router.tables[dice.choice((*ADDRESS_TYPES, CONNECTOR, LISTENER))]
            if table:
                del table[dice.choice(sorted(table))]

        def tamper() -> None:
            table = world.router.tables[dice.choice(ADDRESS_TYPES)]
            if table:
                table[dice.choice(sorted(table))].update(distribution="closest", direction="in", connection="x")

        def refuse() -> None:
            world.router.refuse = {f"ragent-address/{dice.choice('abcdefgh')}": "no"}

        async def restart_router() -> None:
            world.router = world.router.restarted()
            await world.join(world.router)

        async def cut_connection() -> None:
            world.router.kill()
            await world.join(world.router)

        async def restart_agent() -> None:
            await world.stop_agent()
            await world.start_agent()
            await world.join(world.router)

        async def restart_configserv() -> None:
            await world.configserv.stop()
            await world.configserv.start()

        at_once = (change, change, place, place, lose_replies, delete_by_hand, tamper, refuse)
        later = (restart_router, cut_connection, restart_agent, restart_configserv)
        publish()
        for _ in range(60):
            if dice.random() < 0.85:
                dice.choice(at_once)()
            else:
                await dice.choice(later)()
            # pause: the moment of the next change, which is drawn
            await asyncio.sleep(dice.choice((0, 0, 0.003, 0.03)))
        world.router.refuse = {}
        monkeypatch.setattr(management, "REQUEST_TIMEOUT", 2)  # from now on a late reply is not a lost one
        publish()

        desired = Desired([ClientListener("amqp", "127.0.0.1", world.client_port)])
        desired.set_addresses(msgspec.convert(world.configserv.feeds["addresses"], feeds.Addresses))
        desired.set_placements(msgspec.convert(world.configserv.feeds["placements"], feeds.Placements))
        wanted = {
            entity.type: {e.name: e.attributes for e in group if e.type == entity.type}
            for group in [
                [entity for name in desired.known_names() for entity in desired.of_address("router-0", name)]
                + desired.connectors("router-0")
                + desired.nodes("router-0")
                + desired.listeners("router-0")
            ]
            for entity in group
        }

        def converged() -> bool:
            for type_ in (*ADDRESS_TYPES, CONNECTOR, LISTENER):
                table = world.router.tables[type_]
                want = wanted.get(type_, {})
                if table.keys() != want.keys():
                    return False
                if any(not attributes.items() <= table[name].items() for name, attributes in want.items()):
                    return False
            return True

        await until(converged)
        await until(lambda: world.configserv.readiness.get("ragent", {}).keys() == addresses.keys())

    play(scenario)
