"""Inventory of the brokers, their contents, and the home broker of each address. Pure.

The broker of an address is read from the brokers, not stored. `homes` keeps what was decided or read for as long as
the controller runs, so that a broker that is down keeps its addresses, and an in-memory broker that restarts empty
gets them again.
"""

from __future__ import annotations

from collections.abc import KeysView, Mapping

from enmasse.engines.engine import BrokerEngine
from enmasse.model.names import AddressName, space_of
from services.storage_controller.brokers.broker import ManagedBroker
from services.storage_controller.brokers.broker_contents import EMPTY, BrokerContents, Holding


class Inventory:
    """The brokers and their contents, indexed by address."""

    def __init__(self) -> None:
        self.brokers: dict[str, ManagedBroker] = {}
        self.homes: dict[AddressName, str] = {}
        """Address → broker."""
        self.load: dict[str, int] = {}
        """Broker → number of addresses that have their home there."""
        self._of_space: dict[str, dict[str, int]] = {}
        """Address space → broker → number of its addresses that have their home there."""
        self._holders: dict[AddressName, tuple[str, ...]] = {}
        self._shared: dict[tuple[str, ...], tuple[str, ...]] = {}
        """One shared tuple for equal sets of holders, because thousands of addresses have the same."""

    @property
    def knows_all(self) -> bool:
        """Return True if the contents of every broker are known."""
        return all(broker.is_known for broker in self.brokers.values())

    def add(self, name: str, flavor: str, engine: BrokerEngine, *, fresh: bool = False) -> ManagedBroker:
        """Add a broker that runs or is to run, and return it; `fresh`: it was not requested before."""
        return self.brokers.setdefault(name, ManagedBroker(name, flavor, engine, fresh))

    def remove(self, name: str) -> set[AddressName]:
        """Remove a broker that is no longer needed and held nothing. Return the addresses that this concerns."""
        concerned = self.on(name)
        broker = self.brokers.pop(name, None)
        if broker is not None:
            self._index(name, broker.contents or EMPTY, EMPTY)
        return concerned

    def connected(self, broker: ManagedBroker) -> set[AddressName]:
        """Record the start of the conversation with a broker. Return the addresses that this concerns."""
        broker.connected, broker.detail = True, ""
        return self.on(broker.name)

    def disconnected(self, broker: ManagedBroker, detail: str) -> set[AddressName]:
        """Record the end of the conversation with a broker. Return the addresses that this concerns."""
        broker.disconnect(detail)
        return self.on(broker.name)

    def set_contents(self, broker: ManagedBroker, contents: BrokerContents) -> set[AddressName]:
        """Take a complete listing of a broker. Return the addresses whose contents there have changed."""
        changed = self._index(broker.name, broker.contents or EMPTY, contents)
        broker.contents = contents
        for name in changed:
            if name not in contents.held:
                broker.vanished(name)
        return changed

    def note(self, broker: ManagedBroker, name: AddressName, held: Holding) -> None:
        """Take what was read about one address, if the broker's contents are known."""
        if broker.contents is not None:
            if name not in broker.contents.held:
                self._add_holder(name, broker.name)
            broker.contents.held[name] = held

    def set_home(self, name: AddressName, broker: str | None) -> None:
        """Set the broker on which the address belongs; None: on no broker."""
        old = self.homes.pop(name, None)
        space = space_of(name)
        homes = self._of_space.setdefault(space, {})
        if old is not None:
            self.load[old] -= 1
            homes[old] -= 1
            if not homes[old]:
                del homes[old]
        if broker is not None:
            self.homes[name] = broker
            self.load[broker] = self.load.get(broker, 0) + 1
            homes[broker] = homes.get(broker, 0) + 1
        if not homes:
            del self._of_space[space]

    def homes_of_space(self, space: str) -> Mapping[str, int]:
        """Return broker → number of the addresses of an address space that belong there."""
        return self._of_space.get(space, {})

    def at_home(self, broker: str) -> list[AddressName]:
        """Return the addresses that belong on a broker."""
        return [name for name, home in self.homes.items() if home == broker]

    def on(self, broker: str) -> set[AddressName]:
        """Return the addresses that a broker holds or that belong there."""
        known = self.brokers.get(broker)
        held = known.contents.held if known is not None and known.contents is not None else {}
        return {*held, *self.at_home(broker)}

    def held(self) -> KeysView[AddressName]:
        """Return every name that at least one broker holds."""
        return self._holders.keys()

    def holders(self, name: AddressName) -> list[tuple[ManagedBroker, Holding]]:
        """Return the brokers that hold this name, and their holdings, with `ours` set as far as marks were read."""
        found = []
        for broker in map(self.brokers.__getitem__, self._holders.get(name, ())):
            held = broker.holding(name)
            assert held is not None
            if held.ours is None and name in broker.marked:
                held = held._replace(ours=True)
            elif held.ours is None and name in broker.foreign:
                held = held._replace(ours=False)
            found.append((broker, held))
        return found

    def _index(self, broker: str, old: BrokerContents, new: BrokerContents) -> set[AddressName]:
        changed = set()
        for name, held in new.held.items():
            before = old.held.get(name)
            if before is not held and before != held:
                changed.add(name)
            if before is None:
                self._add_holder(name, broker)
        for name in old.held:
            if name not in new.held:
                changed.add(name)
                self._remove_holder(name, broker)
        return changed

    def _add_holder(self, name: AddressName, broker: str) -> None:
        found = self._holders.get(name, ())
        if broker not in found:
            both = (*found, broker)
            self._holders[name] = self._shared.setdefault(both, both)

    def _remove_holder(self, name: AddressName, broker: str) -> None:
        left = tuple(b for b in self._holders.get(name, ()) if b != broker)
        if left:
            self._holders[name] = self._shared.setdefault(left, left)
        else:
            self._holders.pop(name, None)
