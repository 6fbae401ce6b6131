"""Meshes of simulated routers converge, whatever happens to routers, connections and messages.

`python -m tests.router.mesh.test_simulation BEGIN END` runs seeds with 64 routers and prints figures.
"""

from __future__ import annotations

import statistics
import sys
import time
from functools import partial

import pytest

from services.router.mesh.control_messages import Treatment
from services.router.mesh.known_routers import LINK_STATE_SECONDS
from tests.kit.marks import first_soon
from tests.router.mesh.simulation import SHAPES, Network, build, names

CONVERGED = 40.0
"""Most seconds until all routers agree. Numbers that go back are believed at the second advertisement that states them,
and advertisements come at intervals of 30 s when nothing changes."""
SHARED = ("M0all", "M0some", "C0route")
"""Addresses with receivers at several routers."""


class Story:
    """What happens to one network. `times`: seconds until it had converged after each change."""

    def __init__(self, seed: int, number: int) -> None:
        self.network = Network(seed, reorder=0.05, repeat=0.05, encoded=number <= 16 and seed == 2)
        self.rng = self.network.rng
        self.names = names(number)
        self.times: dict[str, float] = {}
        self.instances = dict.fromkeys(self.names, 1000)
        build(self.network, SHAPES[seed % len(SHAPES)], number)

    def converge(self, after: str) -> None:
        """Wait until all routers agree with what is, and send messages by what they know."""
        network, rng = self.network, self.rng
        self.times[after] = network.run_until_converged(CONVERGED)
        alive = sorted(network.routers)
        for origin in rng.sample(alive, min(6, len(alive))):
            reachable = network.component(origin)
            for to in rng.sample(sorted(reachable), min(6, len(reachable))):
                if to != origin:
                    network.way(origin, to)
            for key in SHARED:
                copies = network.copies(origin, key)
                receivers = {to for to in reachable if to != origin and key in network.routers[to].local}
                assert {to: copies[to] for to in receivers} == dict.fromkeys(receivers, 1)
                assert max(copies.values(), default=1) == 1

    def start(self, name: str) -> None:
        network = self.network
        network.start(name, self.instances[name])
        network.add_address(name, f"M0{name}", Treatment.CLOSEST)
        for key in SHARED:
            if self.rng.random() < 0.3:
                network.add_address(name, key, Treatment.MULTICAST_ONCE)

    def restart(self, name: str) -> None:
        """Start a router again: later, within the same second, or with a clock that was set back."""
        self.instances[name] += self.rng.choice((7, 7, 0, -5))
        self.start(name)

    def change_addresses(self, count: int) -> None:
        """Let receivers come and go."""
        network, rng = self.network, self.rng
        for _ in range(count):
            name = rng.choice(sorted(network.routers))
            key = rng.choice((*SHARED, f"M0{rng.randrange(9)}"))
            if key in network.routers[name].local:
                network.remove_address(name, key)
            else:
                network.add_address(name, key, rng.choice((Treatment.BALANCED, Treatment.CLOSEST)))

    def tell(self) -> None:
        network, rng = self.network, self.rng
        for name in self.names:
            network.at(rng.random(), partial(self.start, name))
        network.run(1.0)
        self.converge("start")

        network.kill(rng.choice(self.names))
        self.converge("a kill")

        cut = rng.sample(network.edges, len(network.edges) // 8)
        for edge in cut:
            rng.choice((network.cut, network.silence))(edge)
        gone = rng.sample(sorted(network.routers), len(self.names) // 10)
        for name in gone:
            network.run(rng.random())
            network.kill(name, silent=rng.random() < 0.5)
            self.change_addresses(3)
        self.converge("lost connections and routers")

        for edge in cut:
            network.speak(edge)
            network.connect(edge)
        for name in sorted(set(self.names) - network.routers.keys()):
            network.run(rng.random())
            self.restart(name)
            self.change_addresses(3)
        self.converge("their return")

        half = set(self.names[::2])
        between = [edge for edge in network.edges if (edge.ends[0] in half) != (edge.ends[1] in half)]
        for edge in between:
            network.cut(edge)
        network.run(rng.choice((2.0, 70.0)))
        self.change_addresses(10)
        self.converge("a partition")
        dead = rng.choice(sorted(network.routers))
        network.kill(dead, silent=True)
        for edge in between:
            network.connect(edge)
        self.converge("its end")

        # The last advertisement of the dead goes round for some seconds, and counts at each router that it reaches.
        network.run(LINK_STATE_SECONDS + 5)
        assert network.difference() is None
        for router in network.routers.values():
            known = router.engine.routers.get(dead)
            assert known is None or not (known.peers or known.addresses.addresses)


@pytest.mark.parametrize("seed", first_soon(range(len(SHAPES)), 4))
def test_mesh_of_16_routers_converges(seed: int) -> None:
    Story(seed, 16).tell()


def main(begin: int, end: int) -> None:
    times: dict[str, list[float]] = {}
    sent, processor = [], []
    for seed in range(begin, end):
        story, before = Story(seed, 64), time.process_time()
        story.tell()
        processor.append(time.process_time() - before)
        sent.append(story.network.sent)
        for after, seconds in story.times.items():
            times.setdefault(after, []).append(seconds)
        print(seed, SHAPES[seed % len(SHAPES)], story.times, f"{processor[-1]:.1f} s", sent[-1], flush=True)
    for after, seconds_of in times.items():
        print(f"{after}: median {statistics.median(seconds_of):.2f} s, most {max(seconds_of):.2f} s")
    print(f"processor: median {statistics.median(processor):.1f} s, messages: median {statistics.median(sent):.0f}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
