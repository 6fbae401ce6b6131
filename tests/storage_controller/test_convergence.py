"""Whatever is changed, consumed, lost and restarted in whatever order: nothing that holds messages is deleted unless
forced, and in the end everything lies where it belongs, once."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from enmasse.engines.embedded import BROKER as EMBEDDED
from enmasse.model.addresses import Address
from enmasse.model.feeds import BoundChanges
from enmasse.model.flavors import Flavor, Parameters
from enmasse.model.names import AddressName
from services.storage_controller import fleet
from services.storage_controller.brokers.broker_contents import BrokerContents, Holding
from services.storage_controller.placement import Placer

A, B, C, D = (AddressName(name) for name in "abcd")
NAMES = st.sampled_from([A, B, C, D])
FLAVOR = st.sampled_from(["pool", "own", "topics", "more-topics"])


def flavor(kind: str, brokers: int = 1, dedicated: bool = False) -> Flavor:
    parameters = Parameters(brokers=brokers, dedicated=dedicated)
    return Flavor(type=kind, template_name=f"{kind}-persisted", template_parameters=parameters)  # type: ignore[arg-type]  # a type from the test's table


class Stored:
    """What one broker has under one name."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.messages = 0
        self.subscriptions = 0


class Convergence(RuleBasedStateMachine):
    """The placer between feeds that change at will and brokers that do what they are told, sometimes late."""

    @initialize()
    def begin(self) -> None:
        self.flavors = {
            "pool": flavor("queue", brokers=2),
            "own": flavor("queue", dedicated=True),
            "topics": flavor("topic"),
            "more-topics": flavor("topic", brokers=2),
        }
        self.addresses: dict[AddressName, Address] = {}
        self.forced: set[AddressName] = set()
        self.brokers: dict[str, dict[AddressName, Stored]] = {}
        self.away: set[str] = set()
        self.placer = Placer()
        self.told()

    def told(self) -> None:
        self.placer.set_addresses(self.addresses, self.forced)
        self.placer.set_flavors(self.flavors)
        for broker, of in fleet.wanted(self.placer.desired.addresses, self.placer.desired.flavors).items():
            if broker not in self.brokers:
                self.brokers[broker] = {}
                self.placer.inventory.add(broker, of, EMBEDDED, fresh=True)

    # what people do

    @rule(name=NAMES, of=FLAVOR)
    def want(self, name: AddressName, of: str) -> None:
        self.addresses[name] = Address(type=self.flavors[of].type, flavor=of)  # type: ignore[arg-type]  # a type from the test's table
        self.told()

    @rule(name=NAMES)
    def want_direct(self, name: AddressName) -> None:
        self.addresses[name] = Address(type="anycast")
        self.told()

    @rule(name=NAMES)
    def remove(self, name: AddressName) -> None:
        self.addresses.pop(name, None)
        self.told()

    @rule(name=NAMES)
    def force(self, name: AddressName) -> None:
        self.forced.add(name)
        self.told()

    @rule(count=st.sampled_from([1, 2, 3]))
    def resize(self, count: int) -> None:
        self.flavors = {**self.flavors, "pool": flavor("queue", brokers=count)}
        self.told()

    # what clients do

    @rule(name=NAMES, count=st.integers(1, 3))
    def produce(self, name: AddressName, count: int) -> None:
        for entry in self.placer.decide(name).entries:
            stored = self.brokers[entry.broker].get(name)
            if entry.state == "active" and stored is not None and entry.broker not in self.away:
                if stored.kind == "topic":
                    stored.subscriptions = 1
                stored.messages += count

    @rule(name=NAMES)
    def consume(self, name: AddressName) -> None:
        for broker, held in self.brokers.items():
            if name in held and broker not in self.away:
                held[name].messages = 0

    @rule(name=NAMES)
    def unsubscribe(self, name: AddressName) -> None:
        for held in self.brokers.values():
            if name in held and held[name].kind == "topic":
                held[name].subscriptions = held[name].messages = 0

    # what fails

    @rule(data=st.data())
    def lose_connection(self, data: st.DataObject) -> None:
        if self.brokers:
            broker = data.draw(st.sampled_from(sorted(self.brokers)))
            self.away.add(broker)
            self.placer.inventory.disconnected(self.placer.inventory.brokers[broker], "away")

    @rule(data=st.data())
    def connect(self, data: st.DataObject) -> None:
        if self.brokers:
            self._come_back(data.draw(st.sampled_from(sorted(self.brokers))))

    def _come_back(self, broker: str) -> None:
        self.away.discard(broker)
        self._look(broker)
        self.placer.inventory.connected(self.placer.inventory.brokers[broker])

    @rule(name=NAMES)
    def delete_by_hand(self, name: AddressName) -> None:
        for held in self.brokers.values():
            if name in held and not held[name].messages:
                del held[name]

    @rule()
    def restart_controller(self) -> None:
        self.placer = Placer()
        for broker in self.brokers:
            self.placer.inventory.add(broker, "", EMBEDDED)
        self.told()
        for broker in set(self.brokers) - self.away:
            self._come_back(broker)

    # what the controller does

    @rule()
    def work(self) -> None:
        for broker in set(self.brokers) - self.away:
            self._look(broker)
            self.placer.inventory.connected(self.placer.inventory.brokers[broker])
        names = {*self.addresses, *(name for held in self.brokers.values() for name in held)}
        for name in sorted(names):
            decision = self.placer.decide(name)
            epochs = {each.broker: each.epoch for each in decision.entries if isinstance(each.epoch, int)}
            if epochs.keys() & self.brokers.keys() - self.away:  # who must bind has connections as the controller has
                self.placer.preparations.take(BoundChanges(full=False, addresses={name: epochs}))
            for broker in decision.keep:
                if broker in self.brokers and broker not in self.away and decision.kind is not None:
                    self.brokers[broker].setdefault(name, Stored(decision.kind))
                    self.placer.inventory.brokers[broker].settled[name] = self.placer.desired.addresses[name]
            for broker in decision.retire:
                stored = self.brokers[broker].get(name)
                if broker in self.away or stored is None:
                    continue
                if not stored.messages or name in self.forced:
                    del self.brokers[broker][name]
        to_look, self.placer.preparations.to_look = self.placer.preparations.to_look, {}
        for broker in set(self.brokers) - self.away:
            for name in to_look.get(broker, ()):
                self.placer.inventory.brokers[broker].hold(name)
            self._look(broker)

    def _look(self, broker: str) -> None:
        known = self.placer.inventory.brokers[broker]
        known.looks += 1
        held = {
            name: Holding(each.kind, each.kind == "queue" or None, each.messages, 0, each.subscriptions)
            for name, each in self.brokers[broker].items()
        }
        known.marked.update(name for name, each in self.brokers[broker].items() if each.kind == "topic")
        self.placer.set_contents(known, BrokerContents(held, sum(each.messages for each in held.values()), 0))

    @invariant()
    def the_load_is_what_lies_there(self) -> None:
        if hasattr(self, "placer"):
            count = dict.fromkeys(self.placer.inventory.load, 0)
            for home in self.placer.inventory.homes.values():
                count[home] += 1
            assert count == self.placer.inventory.load

    @invariant()
    def nothing_is_active_in_two_places_or_as_two_things(self) -> None:
        if hasattr(self, "placer"):
            for name in (*self.addresses, A):
                entries = self.placer.decide(name).entries
                assert sum(entry.state == "active" for entry in entries) <= 1
                assert len({entry.type for entry in entries}) <= 1

    @rule()
    def in_the_end_all_is_well(self) -> None:
        for broker in list(self.away):
            self._come_back(broker)
        for held in self.brokers.values():
            for each in held.values():
                each.messages = each.subscriptions = 0
        for _ in range(8):
            self.work()
        wanted = {name: address for name, address in self.addresses.items() if address.stored}
        for name, address in wanted.items():
            decision = self.placer.decide(name)
            assert (decision.ready, decision.message, len(decision.entries)) == (True, "", 1), (name, decision)
            (entry,) = decision.entries
            assert address.flavor is not None
            assert entry.broker in fleet.brokers_for(name, address.flavor, self.flavors[address.flavor])
        lies = sorted(name for held in self.brokers.values() for name in held)
        assert lies == sorted(wanted)
        self.forced.clear()
        self.told()


TestConvergence = Convergence.TestCase
TestConvergence.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
