"""Decides for each address where it is placed, by the desired state and the brokers' contents. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

from enmasse.engines import embedded
from enmasse.engines.engine import BrokerEngine
from enmasse.model.address_types import StoredType
from enmasse.model.addresses import Address
from enmasse.model.feeds import Placement
from enmasse.model.flavors import Flavor
from enmasse.model.names import AddressName, space_of
from enmasse.text import counted
from services.storage_controller import fleet, naming, policies, texts, unsupported
from services.storage_controller.brokers.broker import ManagedBroker
from services.storage_controller.brokers.broker_contents import BrokerContents, Holding
from services.storage_controller.brokers.inventory import Inventory
from services.storage_controller.desired import Desired
from services.storage_controller.preparing import NOWHERE, Preparations
from services.storage_controller.texts import Holders


class PlacementDecision(NamedTuple):
    """Actions for one address, and its report.

    `keep`: brokers on which it must exist as `kind`; `retire`: brokers from which it is removed once nothing is lost by
    that. `ready` and `message` do not consider whether the broker's answer is recent (the conversation does).
    """

    kind: str | None
    keep: tuple[str, ...]
    retire: tuple[str, ...]
    entries: tuple[Placement, ...]
    ready: bool
    message: str
    messages: int | None
    consumers: int | None


def placed(broker: str, kind: str, *, active: bool) -> Placement:
    """Return an entry of the placements; `kind`: queue or topic."""
    return Placement(broker=broker, state="active" if active else "draining", type=cast(StoredType, kind))


class Placer:
    """Decides the placement of each address by the desired state and the inventory. Methods that take input return the
    addresses to decide on.
    """

    def __init__(self, engine: BrokerEngine = embedded.BROKER) -> None:
        self._engine = engine
        self.desired = Desired()
        self.inventory = Inventory()
        self.preparations = Preparations()
        self.patient = True
        """While set, an address that no broker holds is not placed until the contents of every broker are known."""
        self._concerned: set[AddressName] = set()

    @property
    def complete(self) -> bool:
        """Return True if both feeds have delivered: until then nothing is decided."""
        return self.desired.sources.complete

    @property
    def knows_all(self) -> bool:
        """Return True if enough is known to place addresses."""
        return self.complete and (self.inventory.knows_all or not self.patient)

    # what comes in

    def set_addresses(
        self,
        addresses: Mapping[AddressName, Address],
        forced: Iterable[AddressName],
        invalid: Iterable[AddressName] = (),
        removed: Iterable[AddressName] | None = None,
    ) -> set[AddressName]:
        """Take the desired addresses (all types), those whose messages may be discarded, and invalid ones; with
        `removed` only the addresses that have changed, and those that are gone."""
        changed, others = self.desired.set_addresses(addresses, forced, invalid, removed)
        return self._delivered("addresses") | changed | (others & self.inventory.held())

    def set_flavors(self, flavors: Mapping[str, Flavor]) -> set[AddressName]:
        """Take the flavors."""
        changed = self.desired.set_flavors(flavors)
        return self._delivered("flavors") | changed

    def _delivered(self, source: str) -> set[AddressName]:
        """Return all addresses if this was the last missing feed: nothing could be decided before."""
        if self.desired.sources.deliver(source) and self.complete:
            return self.desired.addresses.keys() | self.inventory.held()
        return set()

    def set_contents(self, broker: ManagedBroker, contents: BrokerContents) -> set[AddressName]:
        """Take a complete listing of a broker."""
        first = not broker.is_known
        changed = self.inventory.set_contents(broker, contents)
        for name in changed:
            self._settle_home(name, broker)
        if first and self.complete and self.inventory.knows_all:
            return set(self.desired.addresses) | changed  # addresses that no broker holds can be placed now
        return changed

    def note(self, broker: ManagedBroker, name: AddressName, held: Holding) -> None:
        """Take what was read about one address on a broker."""
        self.inventory.note(broker, name, held)
        self._settle_home(name, broker)

    def hint(self, name: AddressName, entries: Iterable[Placement]) -> None:
        """Take placements from an earlier report: they are valid until the brokers' contents are known."""
        entries = list(entries)
        if any(entry.type == "topic" for entry in entries):
            self.preparations.hint(name, entries)
        for entry in entries:
            known = self.inventory.brokers.get(entry.broker)
            unread = entry.active and known is not None and known.contents is None
            if unread and name not in self.inventory.homes:
                self._set_home(name, entry.broker)

    # where addresses are at home

    def _set_home(self, name: AddressName, broker: str | None) -> None:
        self.inventory.set_home(name, broker)
        self._concerned.update(self.desired.referred(name))

    def _settle_home(self, name: AddressName, broker: ManagedBroker) -> None:
        """Make the broker the home of an address that it holds and may carry, unless the address has a home already."""
        want, held = self.desired.addresses.get(name), broker.holding(name)
        if held is None or want is None or held.kind != want.entity or name in self.inventory.homes:
            return
        if broker.name in self._possible(name, want):
            self._set_home(name, broker.name)

    def _possible(self, name: AddressName, want: Address) -> list[str]:
        """Return the brokers that may carry an address: of a brokered space the one that has most of it."""
        found = self.desired.brokers_for(name, want)
        if not want.brokered or len(found) < 2:
            return found
        used = self.inventory.homes_of_space(space_of(name))
        broker = max(found, key=lambda each: used.get(each, 0))
        return [broker] if used.get(broker) else found

    def holdings(self, name: AddressName) -> Holders:
        """Return the brokers that hold this name, where we made it or it has the type of the desired address."""
        want = self.desired.addresses.get(name)
        return [
            (broker, held)
            for broker, held in self.inventory.holders(name)
            if held.ours is not False or (want is not None and want.entity == held.kind)
        ]

    # decisions

    def concerned(self) -> set[AddressName]:
        """Return further addresses that the decisions since the last call may affect."""
        found, self._concerned = self._concerned, set()
        return found

    def decide(self, name: AddressName) -> PlacementDecision:
        """Decide what to do with the address. Gives it a home if it is desired, has none yet, and may be placed."""
        want = self.desired.addresses.get(name)
        holdings = self.holdings(name)
        if want is None:
            self._forget_home(name)
            if name not in self.desired.invalid:
                self.preparations.close(name, is_gone=not holdings)
            return self._unclear(holdings) if name in self.desired.invalid else self._unwanted(name, holdings)
        others = [(broker, held) for broker, held in holdings if held.kind != want.entity]
        if others:
            return self._retyped(name, want, others)
        unable = self.unable(want)
        home, stuck = self._home(name, want, holdings) if holdings or not unable else (None, "")
        if want.traits.levels and home is not None and not self._is_carried(name, home):
            return self._prepared(name, want, home, holdings, stuck)
        needed = self._needed(name, want)
        keep = tuple(dict.fromkeys(([home] if home else []) + needed))
        retire = tuple(broker.name for broker, _ in holdings if broker.name not in keep)
        if retire and (home is None or self._seen(home, name, want.entity) is None):
            # The address stays in use on its old broker until the new one has it.
            return self._awaited(name, want, home, keep, holdings)
        entries = []
        problem = ""
        for broker_name in keep:
            held = self._seen(broker_name, name, want.entity)
            if held is not None:
                active = broker_name == home and not self._is_cut(broker_name)
                entries.append(placed(broker_name, want.entity, active=active))
            problem = problem or self._problem(broker_name, name, held)
        entries += [placed(broker_name, want.entity, active=False) for broker_name in retire]
        if (left := self.preparations.left(name)) not in (NOWHERE, home):
            entries.append(placed(left, want.entity, active=False))
        if home is None or unable:
            problem = unable or self._unplaced(want)
        leaving = [(broker, held) for broker, held in holdings if broker.name in retire]
        note = stuck or texts.leaving(want, leaving) or self._notice(home)
        damage = [f"broker {broker.name}: {held.damage}" for broker, held in holdings if held.damage]
        full = next((texts.full(broker.name, held.full, want) for broker, held in holdings if held.full), "")
        return PlacementDecision(
            want.entity,
            keep,
            retire,
            tuple(entries),
            not problem,
            problem or "; ".join(filter(None, (note, full, *damage))),
            sum(held.messages for _, held in holdings) if holdings else None,
            texts.consumers(holdings),
        )

    def _is_cut(self, broker_name: str) -> bool:
        broker = self.inventory.brokers.get(broker_name)
        return broker is not None and broker.cut

    def _notice(self, home: str | None) -> str:
        broker = self.inventory.brokers.get(home or "")
        return broker.notice if broker is not None else ""

    def _awaited(
        self,
        name: AddressName,
        want: Address,
        home: str | None,
        keep: tuple[str, ...],
        holdings: Holders,
    ) -> PlacementDecision:
        """Decide on an address that another broker holds while its home does not have it yet."""
        old = next(broker.name for broker, _ in holdings if broker.name not in keep)
        entries = tuple(
            placed(broker.name, want.entity, active=broker.name == old and not broker.cut) for broker, _ in holdings
        )
        problem = self._unplaced(want) if home is None else self._problem(home, name, None)
        messages = sum(held.messages for _, held in holdings)
        return PlacementDecision(want.entity, keep, (), entries, False, problem, messages, texts.consumers(holdings))

    def _is_carried(self, name: AddressName, home: str) -> bool:
        """Return True if messages of a topic may go to its home: they did before, or the topic was made there, which
        is done only after everything was bound."""
        preparations, carrier = self.preparations, self.preparations.carrier(name)
        seen, by_hand = self._seen(home, name, "topic") is not None, home in self.desired.by_hand
        if carrier is None and seen and not by_hand:
            preparations.carry(name, home)
            return True
        if carrier == home and not seen:
            preparations.close(name, is_gone=False)  # an in-memory broker has restarted
        return carrier == home and seen

    def _prepared(
        self, name: AddressName, want: Address, home: str, holdings: Holders, stuck: str
    ) -> PlacementDecision:
        """Decide on a topic that stays in use on its old broker until everything is bound at its home."""
        preparations, carrier = self.preparations, self.preparations.carrier(name)
        epoch = preparations.begin(name, home)
        others = [broker for broker, _ in holdings if broker.name != home]
        done = preparations.is_done(name, others)
        if done and self._seen(home, name, want.entity) is not None:
            preparations.carry(name, home)
            return self.decide(name)
        old = carrier if carrier is not None else next((broker.name for broker in others), NOWHERE)
        entries = [placed(b.name, want.entity, active=b.name == old and not b.cut) for b in others]
        if naming.is_by_hand(old) and old != home:
            entries.append(placed(old, want.entity, active=True))
        if home in self.inventory.brokers or home in self.desired.by_hand:
            entries.append(Placement(broker=home, state="prepared", type="topic", epoch=epoch))
        broker = self.inventory.brokers.get(home)
        problem = self._problem(home, name, None)
        if not done and (home in self.desired.by_hand or (broker is not None and broker.connected)):
            binders = ", ".join(preparations.binders) or "the configuration service"
            problem = f"waits until {binders} has bound subscriptions on broker {home}"
        messages = sum(held.messages for _, held in holdings) if holdings else None
        return PlacementDecision(
            want.entity,
            (home,) if done else (),
            tuple(broker.name for broker in others if broker.name != old),
            tuple(entries),
            False,
            "; ".join(filter(None, (stuck, problem))),
            messages,
            texts.consumers(holdings),
        )

    def _forget_home(self, name: AddressName) -> None:
        if name in self.inventory.homes:
            self._set_home(name, None)

    def _unclear(self, holdings: Holders) -> PlacementDecision:
        entries = tuple(placed(broker.name, held.kind, active=True) for broker, held in holdings)
        messages = sum(held.messages for _, held in holdings)
        text = "the existing queue or topic stays unchanged until the entry is corrected" if entries else ""
        return PlacementDecision(
            None, (), (), entries, False, text, messages if entries else None, texts.consumers(holdings)
        )

    def _unwanted(self, name: AddressName, holdings: Holders) -> PlacementDecision:
        """Decide on an address that was removed, or retyped to one that is not stored."""
        # A listing does not show a topic's mark: until the mark has been read, nothing is reported or done.
        ours = [(broker, held) for broker, held in holdings if held.ours]
        now = self.desired.direct.get(name)
        what = f"retyped from {ours[0][1].kind} to {now}" if ours and now else "was removed"
        return PlacementDecision(
            None,
            (),
            tuple(broker.name for broker, held in holdings),
            tuple(placed(broker.name, held.kind, active=False) for broker, held in ours),
            False,
            f"{what}: {texts.remains(ours)}{texts.discard(name, ours, again=now is not None)}" if ours else "",
            sum(held.messages for _, held in ours) if ours else None,
            texts.consumers(ours),
        )

    def _retyped(self, name: AddressName, want: Address, others: Holders) -> PlacementDecision:
        """Decide on an address that a broker holds with another type: it is drained before the new type is created."""
        self._forget_home(name)
        self.preparations.close(name, is_gone=False)
        kind = others[0][1].kind
        return PlacementDecision(
            want.entity,
            (),
            tuple(broker.name for broker, _ in others),
            tuple(placed(broker.name, held.kind, active=False) for broker, held in others if held.ours is not False),
            False,
            f"retyped from {kind} to {want.type}: {texts.remains(others)}{texts.discard(name, others, again=True)}",
            sum(held.messages for _, held in others),
            texts.consumers(others),
        )

    def _home(self, name: AddressName, want: Address, holdings: Holders) -> tuple[str | None, str]:
        """Return the home of the address, and the reason if that broker is not one of its flavor."""
        possible = self._possible(name, want)
        home = self.inventory.homes.get(name)
        if possible and (stays := self._stays(name, want, possible, holdings)):
            return stays
        if home is not None and (home in possible or not possible):
            return home, ""
        if not possible:
            # The flavor was removed: the address stays on its broker.
            self._set_home(name, holdings[0][0].name if holdings else None)
            return self.inventory.homes.get(name), ""
        held = next((broker.name for broker, _ in holdings if broker.name in possible), None)
        if held is not None:
            self._set_home(name, held)
            return held, ""
        if home is not None and home in self.inventory.brokers and not self.inventory.brokers[home].connected:
            return home, f"moves to flavor {want.flavor} when {home} can be reached"
        if not self.knows_all:
            return None, ""
        there = [b for b in possible if b in self.inventory.brokers or b in self.desired.by_hand]
        chosen = fleet.least_loaded(there, self.inventory.load)
        self._set_home(name, chosen)
        return chosen, ""

    def _stays(
        self, name: AddressName, want: Address, possible: Sequence[str], holdings: Holders
    ) -> tuple[str, str] | None:
        """Return the broker on which a topic stays because of its subscriptions, and why; None: it may move. A
        subscriber finds its subscription on one broker only."""
        if not want.traits.levels or name in self.desired.forced:
            return None
        carrier = self.preparations.carrier(name)
        if carrier is None and any(broker.name in possible for broker, _ in holdings):
            return None
        for broker, lies in holdings:
            is_old = broker.name not in possible and carrier in (None, NOWHERE, broker.name)
            if is_old and (lies.subscriptions or lies.messages):
                if self.inventory.homes.get(name) != broker.name:
                    self._set_home(name, broker.name)
                return broker.name, (
                    f"given flavor {want.flavor} instead of {broker.flavor}: stays on broker {broker.name}, where "
                    f"it has {counted(lies.subscriptions, 'durable subscription')} with "
                    f"{counted(lies.messages, 'message')}; end them, or discard them: {texts.force(name)}, "
                    "then add it again"
                )
        return None

    def _needed(self, name: AddressName, want: Address) -> list[str]:
        """Return the brokers on which other addresses need this queue as their dead letter or expiry queue."""
        if not want.traits.takes_dead_letters:
            return []
        homes = {self.inventory.homes[other] for other in self.desired.referring(name) if other in self.inventory.homes}
        return sorted(homes - self.desired.by_hand.keys())

    def _seen(self, broker_name: str, name: AddressName, kind: str) -> Holding | None:
        """Return the broker's holding of the address, if known. Brokers managed by hand are read by the router
        agent."""
        if broker_name in self.desired.by_hand:
            return Holding(kind, None)
        broker = self.inventory.brokers.get(broker_name)
        if broker is None:
            return None
        if broker.contents is None:
            # Not read during this controller's life, but an earlier report placed the address there.
            return Holding(kind, None) if self.inventory.homes.get(name) == broker_name and not broker.fresh else None
        held = broker.contents.held.get(name)
        return held if held is not None and held.kind == kind else None

    def _problem(self, broker_name: str, name: AddressName, held: Holding | None) -> str:
        if broker_name in self.desired.by_hand:
            return ""
        broker = self.inventory.brokers.get(broker_name)
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
        return "" if self.is_settled(broker, name) else f"its settings on broker {broker_name} are being corrected"

    def is_settled(self, broker: ManagedBroker, name: AddressName) -> bool:
        """Return True if the settings of the address on the broker are known to equal the desired ones."""
        settled, want = broker.settled.get(name), self.desired.addresses.get(name)
        if settled is None or want is None:
            return False
        return settled is want or policies.address_settings(name, settled, broker.engine) == policies.address_settings(
            name, want, broker.engine
        )

    def unable(self, want: Address) -> str:
        """Return why brokers of this product cannot provide the address; empty if they can."""
        flavor = self.desired.flavors.get(want.flavor or "")
        if flavor is not None and flavor.by_hand:
            return ""  # the error is reported for the configuration file
        refused = unsupported.cannot_run(self._engine, want.flavor or "", flavor) if flavor is not None else ""
        return refused or unsupported.cannot_store(self._engine, want)

    def _unplaced(self, want: Address) -> str:
        if want.flavor not in self.desired.flavors:
            return f"there is no flavor {want.flavor}"
        silent = sorted(b.name for b in self.inventory.brokers.values() if b.contents is None and not b.fresh)
        if silent:
            return f"waits until the contents of these brokers are known: {', '.join(silent[:5])}"
        return f"no broker of flavor {want.flavor} runs yet"

    def refused(self, name: AddressName) -> bool:
        """Return True if a broker that should carry the address refused an operation, or no broker can provide it."""
        want = self.desired.addresses.get(name)
        if want is not None and self.unable(want):
            return True
        return any(name in broker.refused for broker in self.inventory.brokers.values() if broker.refused)
