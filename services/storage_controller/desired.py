"""What is desired of addresses and flavors, kept up to date from the feeds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from enmasse.model.addresses import Address
from enmasse.model.feeds import BrokerEndpoint
from enmasse.model.flavors import Flavor
from enmasse.model.names import AddressName
from enmasse.reconcile import Sources
from services.storage_controller import fleet


class Desired:
    """The desired state. What takes a snapshot gives the addresses whose desired state differs by it."""

    def __init__(self) -> None:
        self.addresses: dict[AddressName, Address] = {}
        """Those that are stored on brokers."""
        self.direct: dict[AddressName, str] = {}
        """Those that are stored nowhere, and their types."""
        self.flavors: dict[str, Flavor] = {}
        self.by_hand: dict[str, BrokerEndpoint] = {}
        """The brokers that flavors name: nothing is made there, and nobody asks them here."""
        self.forced: frozenset[AddressName] = frozenset()
        """Those whose messages may be thrown away."""
        self.invalid: frozenset[AddressName] = frozenset()
        """Names that are desired, and nobody knows as what: what lies there goes on as it is."""
        self.sources = Sources(("addresses", "flavors"))
        self._referring: dict[AddressName, set[AddressName]] = {}

    def set_addresses(
        self,
        addresses: Mapping[AddressName, Address],
        forced: Iterable[AddressName],
        invalid: Iterable[AddressName] = (),
    ) -> tuple[set[AddressName], set[AddressName]]:
        """Takes a snapshot of all addresses: changed ones, and names that only concern brokers that hold them."""
        stored: dict[AddressName, Address] = {name: address for name, address in addresses.items() if address.stored}
        direct: dict[AddressName, str] = {
            name: address.type for name, address in addresses.items() if not address.stored
        }
        old, unclear, now = self.addresses, frozenset(invalid), frozenset(forced)
        stored |= {name: old[name] for name in unclear if name in old}
        changed = {
            name for name, address in stored.items() if old.get(name) is not address and old.get(name) != address
        }
        changed |= old.keys() - stored.keys()
        changed |= now ^ self.forced
        others = {n for n in direct.keys() | self.direct.keys() if direct.get(n) != self.direct.get(n)}
        others |= unclear ^ self.invalid
        self.addresses, self.direct, self.forced, self.invalid = stored, direct, now, unclear
        for name in list(changed):
            changed |= self._refer(name, old.get(name), stored.get(name))
        return changed, others

    def _refer(self, name: AddressName, old: Address | None, new: Address | None) -> set[AddressName]:
        """Keeps up which addresses name which queue as their dead letter or expiry queue; gives the queues."""
        before, after = set(_named_by(old)), set(_named_by(new))
        for other in before - after:
            self._referring.get(other, set()).discard(name)
        for other in after - before:
            self._referring.setdefault(other, set()).add(name)
        return before | after

    def set_flavors(self, flavors: Mapping[str, Flavor]) -> set[AddressName]:
        """Takes a snapshot of the flavors."""
        changed = {name for name in flavors.keys() | self.flavors.keys() if flavors.get(name) != self.flavors.get(name)}
        self.flavors, self.by_hand = dict(flavors), fleet.by_hand(flavors)
        if not changed:
            return set()
        return {name for name, address in self.addresses.items() if address.flavor in changed}

    def referring(self, name: AddressName) -> Iterable[AddressName]:
        """The addresses that name this queue as their dead letter or expiry queue."""
        return self._referring.get(name, ())

    def referred(self, name: AddressName) -> list[AddressName]:
        """The queues that this address names as its dead letter and expiry queue: where it goes, they must be."""
        return _named_by(self.addresses.get(name)) if self._referring else []

    def brokers_for(self, name: AddressName, want: Address) -> list[str]:
        """The brokers that may carry an address; none if its flavor is gone."""
        flavor = self.flavors.get(want.flavor or "")
        return fleet.brokers_for(name, want.flavor or "", flavor) if flavor is not None else []


def _named_by(address: Address | None) -> list[AddressName]:
    return [other for other in (address.deadletter, address.expiry) if other] if address is not None else []
