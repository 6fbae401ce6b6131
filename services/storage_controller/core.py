"""What is to lie where: addresses, flavors and what the brokers hold become decisions per address. Sans-IO.

Where an address lies is not remembered but read from the brokers; `homes` only keeps, while the controller runs, what
was decided or seen (so that the addresses of a broker that is down stay its own, and an in-memory broker that comes
back empty gets them again).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import NamedTuple, cast

from enmasse import process
from enmasse.model.addresses import Address
from enmasse.model.feeds import Placement, StoredType
from enmasse.model.flavors import Flavor
from enmasse.model.names import AddressName
from enmasse.reconcile import Sources
from enmasse.text import counted
from services.storage_controller import fleet, policies
from services.storage_controller.broker import ManagedBroker
from services.storage_controller.contents import EMPTY, Contents, Holding
from services.storage_controller.engines import Engine


class Decision(NamedTuple):
    """What is to be done with one address, and what is reported of it.

    `keep`: brokers on which it must exist as `kind`; `retire`: brokers from which it is to go once nothing is lost by
    it. `ready` and `message` do not yet know whether the broker's answer is recent (the conversation does).
    """

    kind: str | None
    keep: tuple[str, ...]
    retire: tuple[str, ...]
    entries: tuple[Placement, ...]
    ready: bool
    message: str
    messages: int | None
    consumers: int | None


Holders = list[tuple[ManagedBroker, Holding]]
"""Brokers, and what each of them holds of an address."""


def placed(broker: str, kind: str, *, active: bool) -> Placement:
    """A line of the placements; `kind`: queue or topic."""
    return Placement(broker=broker, state="active" if active else "draining", type=cast(StoredType, kind))


class Core:
    """The state, and the decisions that follow. Methods that take something in give the addresses it concerns."""

    def __init__(self) -> None:
        self.addresses: dict[str, Address] = {}
        self.direct: dict[str, str] = {}
        """Wanted addresses that are stored nowhere, and their types."""
        self.flavors: dict[str, Flavor] = {}
        self.forced: frozenset[str] = frozenset()
        self.invalid: frozenset[str] = frozenset()
        """Names that are wanted, and nobody knows as what: what lies there goes on as it is."""
        self.sources = Sources(("addresses", "flavors"))
        self.brokers: dict[str, ManagedBroker] = {}
        self.homes: dict[str, str] = {}
        self.load: dict[str, int] = {}
        self.patient = True
        """While set, an address that is nowhere is not made anywhere before it is known what every broker holds."""
        self._holders: dict[str, tuple[str, ...]] = {}
        self._shared: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._referring: dict[str, set[str]] = {}
        self._concerned: set[str] = set()

    @property
    def complete(self) -> bool:
        """Both feeds have delivered."""
        return self.sources.complete

    @property
    def knows_all(self) -> bool:
        return all(broker.is_known for broker in self.brokers.values())

    # what comes in

    def set_addresses(
        self,
        addresses: Mapping[str, Address] | Mapping[AddressName, Address],
        forced: Iterable[str],
        invalid: Iterable[str] = (),
    ) -> set[str]:
        """Takes the wanted addresses (all types), those whose messages may be thrown away, and invalid ones."""
        stored: dict[str, Address] = {name: address for name, address in addresses.items() if address.stored}
        direct: dict[str, str] = {name: address.type for name, address in addresses.items() if not address.stored}
        old = self.addresses
        unclear = frozenset(invalid)
        stored |= {name: old[name] for name in unclear if name in old}
        changed = {
            name for name, address in stored.items() if old.get(name) is not address and old.get(name) != address
        }
        changed |= old.keys() - stored.keys()
        changed.update(name for name in self._holders if direct.get(name) != self.direct.get(name))
        now = frozenset(forced)
        changed |= now ^ self.forced
        changed.update(name for name in unclear ^ self.invalid if name in self._holders)
        self.forced, self.invalid = now, unclear
        self.addresses, self.direct = stored, direct
        first = self.sources.deliver("addresses")
        for name in list(changed):
            changed |= self._refer(name, old.get(name), stored.get(name))
        return changed | self._everything() if first and self.complete else changed

    def _everything(self) -> set[str]:
        """What is concerned by the last feed that was awaited: nothing could be decided before."""
        return self.addresses.keys() | self._holders.keys()

    def _refer(self, name: str, old: Address | None, new: Address | None) -> set[str]:
        """Keeps up which addresses name which queue as their dead letter or expiry queue; gives the queues."""
        before = {other for other in (old.deadletter, old.expiry) if other} if old else set()
        after = {other for other in (new.deadletter, new.expiry) if other} if new else set()
        for other in before - after:
            self._referring.get(other, set()).discard(name)
        for other in after - before:
            self._referring.setdefault(other, set()).add(name)
        return before | after

    def set_flavors(self, flavors: Mapping[str, Flavor]) -> set[str]:
        """Takes the flavors; what has an address of a changed one is concerned."""
        changed = {name for name in flavors.keys() | self.flavors.keys() if flavors.get(name) != self.flavors.get(name)}
        first = self.sources.deliver("flavors")
        self.flavors = dict(flavors)
        if first and self.complete:
            return self._everything()
        if not changed:
            return set()
        return {name for name, address in self.addresses.items() if address.flavor in changed}

    def add_broker(self, name: str, flavor: str, engine: Engine, *, fresh: bool = False) -> ManagedBroker:
        """A broker that runs or is to run; `fresh`: it was not asked for before."""
        return self.brokers.setdefault(name, ManagedBroker(name, flavor, engine, fresh))

    def remove_broker(self, name: str) -> set[str]:
        """It is given up (it held nothing)."""
        concerned = self._held_by(name)
        broker = self.brokers.pop(name, None)
        if broker is not None:
            self._index(name, broker.contents or EMPTY, EMPTY)
        return concerned

    def set_contents(self, broker: ManagedBroker, contents: Contents) -> set[str]:
        """Takes a complete listing of a broker."""
        first = broker.contents is None and not broker.fresh
        old = broker.contents or EMPTY
        changed = self._index(broker.name, old, contents)
        broker.contents = contents
        for name in changed:
            held = contents.held.get(name)
            if held is None:  # what comes next under this name may be somebody else's
                broker.marked.discard(name)
                broker.foreign.discard(name)
            self._settle_home(name, broker.name, held)
        if first and self.complete and self.knows_all:
            return set(self.addresses) | changed  # what is nowhere may be placed now
        return changed

    def note(self, broker: ManagedBroker, name: str, held: Holding | None) -> None:
        """Takes the news of one address on a broker."""
        contents = broker.contents
        if contents is None:
            return
        if held is None:
            if contents.held.pop(name, None) is not None:
                self._remove_holder(name, broker.name)
        else:
            if name not in contents.held:
                self._add_holder(name, broker.name)
            contents.held[name] = held
            self._settle_home(name, broker.name, held)

    def connected(self, broker: ManagedBroker) -> set[str]:
        """The conversation with a broker began."""
        broker.connected, broker.detail = True, ""
        return self._held_by(broker.name)

    def disconnected(self, broker: ManagedBroker, detail: str) -> set[str]:
        """The conversation with a broker ended."""
        broker.disconnect(detail)
        return self._held_by(broker.name)

    def hint(self, name: str, broker: str) -> None:
        """An earlier report placed it there: that counts until the broker says what it holds."""
        if broker in self.brokers and self.brokers[broker].contents is None and name not in self.homes:
            self._set_home(name, broker)

    # who holds what

    def _held_by(self, broker: str) -> set[str]:
        known = self.brokers.get(broker)
        held = set(known.contents.held) if known is not None and known.contents is not None else set()
        return held | {name for name, home in self.homes.items() if home == broker}

    def _index(self, broker: str, old: Contents, new: Contents) -> set[str]:
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

    def _add_holder(self, name: str, broker: str) -> None:
        found = self._holders.get(name, ())
        if broker not in found:
            both = (*found, broker)
            self._holders[name] = self._shared.setdefault(both, both)

    def _remove_holder(self, name: str, broker: str) -> None:
        left = tuple(b for b in self._holders.get(name, ()) if b != broker)
        if left:
            self._holders[name] = self._shared.setdefault(left, left)
        else:
            self._holders.pop(name, None)

    def _set_home(self, name: str, broker: str | None) -> None:
        old = self.homes.pop(name, None)
        if old is not None:
            self.load[old] -= 1
        if broker is not None:
            self.homes[name] = broker
            self.load[broker] = self.load.get(broker, 0) + 1
        if self._referring:
            self._concerned.update(self.referred(name))

    def _settle_home(self, name: str, broker: str, held: Holding | None) -> None:
        """What a broker holds and may hold is at home there, unless it has another home already."""
        want = self.addresses.get(name)
        if held is None or want is None or held.kind != want.type or name in self.homes:
            return
        if broker in self._carriers(name, want):
            self._set_home(name, broker)

    def _carriers(self, name: str, want: Address) -> list[str]:
        flavor = self.flavors.get(want.flavor or "")
        return fleet.carriers(name, want.flavor or "", flavor) if flavor is not None else []

    def holdings(self, name: str) -> Holders:
        """The brokers that hold something of ours, or of a wanted address, under this name."""
        found = []
        want = self.addresses.get(name)
        for broker_name in self._holders.get(name, ()):
            broker = self.brokers[broker_name]
            assert broker.contents is not None
            held = broker.contents.held[name]
            if held.ours is None and name in broker.marked:
                held = held._replace(ours=True)
            elif held.ours is None and name in broker.foreign:
                held = held._replace(ours=False)
            if held.ours is False and (want is None or want.type != held.kind):
                continue
            found.append((broker, held))
        return found

    # decisions

    def concerned(self) -> set[str]:
        """Further addresses whose decisions may have changed by the decisions since the last call."""
        found, self._concerned = self._concerned, set()
        return found

    def decide(self, name: str) -> Decision:
        """What to do with the address. Places it, where it is wanted, nowhere yet, and may be placed."""
        want = self.addresses.get(name)
        holdings = self.holdings(name)
        if want is None:
            self._forget_home(name)
            return self._unclear(holdings) if name in self.invalid else self._unwanted(name, holdings)
        others = [(broker, held) for broker, held in holdings if held.kind != want.type]
        if others:
            return self._retyped(name, want, others)
        home, stuck = self._home(name, want, holdings)
        needed = self._needed(name, want)
        keep = tuple(dict.fromkeys(([home] if home else []) + needed))
        retire = tuple(broker.name for broker, _ in holdings if broker.name not in keep)
        if retire and (home is None or self._seen(home, name, want.type) is None):
            # It serves where it is until it can serve where it belongs.
            return self._awaited(name, want, home, keep, holdings)
        entries = []
        problem = ""
        for broker_name in keep:
            held = self._seen(broker_name, name, want.type)
            if held is not None:
                active = broker_name == home and not self.brokers[broker_name].cut
                entries.append(placed(broker_name, want.type, active=active))
            problem = problem or self._problem(broker_name, name, held)
        if want.type == "queue":
            # A topic moves only without subscriptions; whoever subscribes meanwhile must not be led to the old place.
            entries += [placed(broker_name, want.type, active=False) for broker_name in retire]
        if home is None:
            problem = self._unplaced(want)
        leaving = [(broker, held) for broker, held in holdings if broker.name in retire]
        note = stuck or _leaving(want, leaving) or (self.brokers[home].notice if home in self.brokers else "")
        damage = [f"broker {broker.name}: {held.damage}" for broker, held in holdings if held.damage]
        full = next((_full(broker.name, held.full, want) for broker, held in holdings if held.full), "")
        return Decision(
            want.type,
            keep,
            retire,
            tuple(entries),
            not problem,
            problem or "; ".join(filter(None, (note, full, *damage))),
            sum(held.messages for _, held in holdings) if holdings else None,
            _consumers(holdings),
        )

    def _awaited(
        self,
        name: str,
        want: Address,
        home: str | None,
        keep: tuple[str, ...],
        holdings: Holders,
    ) -> Decision:
        """It lies somewhere else, and is not there yet where it belongs."""
        old = next(broker.name for broker, _ in holdings if broker.name not in keep)
        entries = tuple(
            placed(broker.name, want.type, active=broker.name == old and not broker.cut)
            for broker, _ in holdings
            if want.type == "queue" or broker.name == old
        )
        problem = self._unplaced(want) if home is None else self._problem(home, name, None)
        messages = sum(held.messages for _, held in holdings)
        return Decision(want.type, keep, (), entries, False, problem, messages, _consumers(holdings))

    def _forget_home(self, name: str) -> None:
        if name in self.homes:
            self._set_home(name, None)

    def _unclear(self, holdings: Holders) -> Decision:
        entries = tuple(placed(broker.name, held.kind, active=True) for broker, held in holdings)
        messages = sum(held.messages for _, held in holdings)
        text = "what lies there goes on as it is until the entry is put right" if entries else ""
        return Decision(None, (), (), entries, False, text, messages if entries else None, _consumers(holdings))

    def _unwanted(self, name: str, holdings: Holders) -> Decision:
        """It was removed, or has become an address that is stored nowhere."""
        # A topic's mark is not in the listing: before it has been looked up nothing is said or done.
        ours = [(broker, held) for broker, held in holdings if held.ours]
        now = self.direct.get(name)
        what = f"retyped from {ours[0][1].kind} to {now}" if ours and now else "was removed"
        return Decision(
            None,
            (),
            tuple(broker.name for broker, held in holdings),
            tuple(placed(broker.name, held.kind, active=False) for broker, held in ours),
            False,
            f"{what}: {_left(ours)}{_discard(name, ours, again=now is not None)}" if ours else "",
            sum(held.messages for _, held in ours) if ours else None,
            _consumers(ours),
        )

    def _retyped(self, name: str, want: Address, others: Holders) -> Decision:
        """Something of another type lies there: it is emptied first, then the new type comes into being."""
        self._forget_home(name)
        kind = others[0][1].kind
        return Decision(
            want.type,
            (),
            tuple(broker.name for broker, _ in others),
            tuple(placed(broker.name, held.kind, active=False) for broker, held in others if held.ours is not False),
            False,
            f"retyped from {kind} to {want.type}: {_left(others)}{_discard(name, others, again=True)}",
            sum(held.messages for _, held in others),
            _consumers(others),
        )

    def _home(self, name: str, want: Address, holdings: Holders) -> tuple[str | None, str]:
        """The broker it belongs on, and why that is not one of its flavor, where it is not."""
        carriers = self._carriers(name, want)
        home = self.homes.get(name)
        if home is not None and (home in carriers or not carriers):
            return home, ""
        if not carriers:
            # The flavor is gone: it stays where it is.
            self._set_home(name, holdings[0][0].name if holdings else None)
            return self.homes.get(name), ""
        held = next((broker.name for broker, _ in holdings if broker.name in carriers), None)
        if held is not None:
            self._set_home(name, held)
            return held, ""
        if want.type == "topic" and name not in self.forced:
            # A subscriber finds its subscription on one broker only, so a topic does not move under its subscribers.
            for broker, lies in holdings:
                if lies.subscriptions or lies.messages:
                    self._set_home(name, broker.name)
                    return broker.name, (
                        f"given flavor {want.flavor} instead of {broker.flavor}: stays on broker {broker.name}, where "
                        f"it has {counted(lies.subscriptions, 'durable subscription')} with "
                        f"{counted(lies.messages, 'message')}; end them, or discard them: {_force(name)}, then add it "
                        "again"
                    )
        if home is not None and home in self.brokers and not self.brokers[home].connected:
            return home, f"moves to flavor {want.flavor} when {home} can be reached"
        if not self.complete or (self.patient and not self.knows_all):
            return None, ""
        chosen = fleet.least_loaded((b for b in carriers if b in self.brokers), self.load)
        self._set_home(name, chosen)
        return chosen, ""

    def _needed(self, name: str, want: Address) -> list[str]:
        """Brokers on which other addresses need it as their dead letter or expiry queue."""
        if want.type != "queue":
            return []
        homes = {self.homes[other] for other in self._referring.get(name, ()) if other in self.homes}
        return sorted(homes)

    def referred(self, name: str) -> list[str]:
        """The queues that this address names as its dead letter and expiry queue: where it goes, they must be."""
        want = self.addresses.get(name)
        return [other for other in (want.deadletter, want.expiry) if other] if want is not None else []

    def _seen(self, broker_name: str, name: str, kind: str) -> Holding | None:
        broker = self.brokers.get(broker_name)
        if broker is None:
            return None
        if broker.contents is None:
            # Not known in this controller's life, but an earlier report placed it there.
            return Holding(kind, None) if self.homes.get(name) == broker_name and not broker.fresh else None
        held = broker.contents.held.get(name)
        return held if held is not None and held.kind == kind else None

    def _problem(self, broker_name: str, name: str, held: Holding | None) -> str:
        broker = self.brokers.get(broker_name)
        if broker is None:
            return f"broker {broker_name} is being made"
        if not broker.connected:
            return f"broker {broker_name} cannot be reached: {broker.detail}"
        if broker.cut:
            return f"broker {broker_name} is about to be restarted with other settings"
        if name in broker.refused:
            return f"broker {broker_name}: {broker.refused[name]}"
        if held is None:
            return f"is being made on broker {broker_name}"
        return "" if self.is_settled(broker, name) else f"its settings on broker {broker_name} are being put right"

    def is_settled(self, broker: ManagedBroker, name: str) -> bool:
        """Whether the settings of an address on a broker are known to be what is wanted now."""
        settled, want = broker.settled.get(name), self.addresses.get(name)
        if settled is None or want is None:
            return False
        return settled is want or policies.address_settings(name, settled, broker.engine) == policies.address_settings(
            name, want, broker.engine
        )

    def _unplaced(self, want: Address) -> str:
        if want.flavor not in self.flavors:
            return f"there is no flavor {want.flavor}"
        silent = sorted(b.name for b in self.brokers.values() if b.contents is None and not b.fresh)
        if silent:
            return f"waits until it is known what these brokers hold: {', '.join(silent[:5])}"
        return f"no broker of flavor {want.flavor} runs yet"

    def refused(self, name: str) -> bool:
        """Whether a broker that should carry it has refused an operation."""
        return any(name in broker.refused for broker in self.brokers.values() if broker.refused)


def _consumers(holdings: Holders) -> int | None:
    """Consumers of a topic. Those of a queue are behind routers, which count them: here there is a router's link."""
    return (
        sum(held.consumers for _, held in holdings if held.kind == "topic")
        if any(held.kind == "topic" for _, held in holdings)
        else None
    )


def _leaving(want: Address, left: Holders) -> str:
    """What is said of an address of which something lies where it does not belong any more."""
    if not left:
        return ""
    old = left[0][0].flavor
    what = f"given flavor {want.flavor} instead of {old}" if old != want.flavor else f"moved within flavor {old}"
    if any(held.messages for _, held in left):
        return f"{what}: {_left(left)}, which consumers get too; it leaves there when they have"
    return f"{what}: {_left(left)}"


def _left(left: Holders) -> str:
    messages = sum(held.messages for _, held in left)
    brokers = ", ".join(broker.name for broker, held in left if held.messages or not messages)
    if not messages:
        return f"is empty on broker {brokers} and goes as soon as no producer can reach it there"
    return f"still holds {counted(messages, 'message')} on broker {brokers}"


def _discard(name: str, left: Holders, *, again: bool) -> str:
    """What people can do about messages; `again`: the file has the address, and shall go on having it."""
    if not any(held.messages for _, held in left):
        return ""
    return f"; consume them, or discard them: {_force(name)}{', then add it again' if again else ''}"


def _full(broker: str, policy: str, want: Address) -> str:
    """That the address takes no more, what becomes of the next message, and what to do."""
    if policy == "DISK":
        return f"full: the disk of broker {broker} has no room, durable messages are rejected; make room there"
    then = {
        "FAIL": "further messages are rejected",
        "BLOCK": "senders wait for credit",
        "DROP": "further messages are thrown away",
    }.get(policy, policy)
    limit = "its maxSize" if want.max_size is not None else f"STORAGE_CAPACITY or MEMORY of flavor {want.flavor}"
    return f"full: {then}; receive some, or raise {limit}"


def _force(name: str) -> str:
    return process.command(f"address remove {shlex.quote(name)} --force")
