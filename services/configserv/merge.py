"""One phase per address, from the configuration and what the reporters say. No sockets, no clock.

Every address has its piece of the status ready as JSON: one that changes costs the work for one.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping

import msgspec

from enmasse.model import feeds
from enmasse.model.addresses import Address
from enmasse.model.configuration import ADDRESSES, Applied, Failed
from enmasse.model.flavors import IN_MEMORY, Flavor
from enmasse.model.names import AddressName
from services.configserv.revisions import Revisions

MAX_REPORTED = 250_000
"""Addresses that one reporter may name."""
ROUTER_AGENT = "ragent"
"""The one reporter that addresses which store nothing need."""


class TooMany(ValueError):
    """A report that names more addresses than anybody has."""


class Merger:
    """The status of every address, kept up to date. `reporters`: whose word queues and topics need."""

    def __init__(self, reporters: Collection[str]) -> None:
        self.revisions = Revisions(reporters)
        stored = tuple(reporters)
        direct = tuple(name for name in reporters if name == ROUTER_AGENT)
        self._needs = {"queue": stored, "topic": stored, "anycast": direct, "multicast": direct}
        self._complete = False
        self._addresses: Mapping[AddressName, Address] = {}
        self._in_memory: frozenset[str] = frozenset()
        """Flavors that keep messages in memory."""
        self._failed: Mapping[AddressName, Failed] = {}
        self._flavors: Mapping[str, Flavor] = {}
        self._marks: dict[AddressName, int] = {}
        """Address → revision at which it, its flavor or its placement changed, as long as somebody may not know it."""
        self._held: set[AddressName] = set()
        """Those that would be Active if what was said of them were known to be up to date."""
        self._notes: dict[AddressName, str] = {}
        self._gone: dict[AddressName, Address] = {}
        """Addresses that are no longer wanted and not yet gone, as they were."""
        self._reports: dict[str, dict[AddressName, feeds.Readiness]] = {}
        self._pieces: dict[AddressName, bytes] = {}
        self._phases: dict[AddressName, feeds.Phase] = {}
        self._encoder = msgspec.json.Encoder()

    @property
    def pieces(self) -> Iterable[bytes]:
        """The JSON of each feeds.AddressStatus: in the order of the file, then those that are wanted no longer."""
        order: Iterable[AddressName] = self._addresses
        if len(self._pieces) != len(self._addresses):
            order = dict.fromkeys(itertools.chain(self._addresses, self._failed, self._pieces))
        return [self._pieces[name] for name in order]

    def piece(self, name: AddressName) -> bytes | None:
        """The JSON of one feeds.AddressStatus."""
        return self._pieces.get(name)

    def phase(self, name: AddressName) -> feeds.Phase | None:
        """None: neither wanted nor known to any reporter."""
        return self._phases.get(name)

    def counts(self) -> dict[str, int]:
        """Phase → number of addresses."""
        found: dict[str, int] = {}
        for phase in self._phases.values():
            found[phase] = found.get(phase, 0) + 1
        return found

    def reporting(self) -> Collection[str]:
        """The reporters that have told everything they know."""
        return self._reports.keys()

    def configure(self, applied: Applied) -> set[AddressName]:
        """Another configuration, in the newest revision. Gives the addresses whose status changed."""
        others = self._mark_changes(applied)
        before, failed_before, notes_before = self._addresses, self._failed, self._notes
        self._addresses, self._failed = applied.state.addresses, applied.failed
        self._notes = {}
        for problem in applied.problems:
            if problem.file == ADDRESSES and problem.entry in self._addresses:
                self._notes[AddressName(problem.entry)] = f"{problem}; the last valid entry applies"
        touched = {name for name, address in self._addresses.items() if before.get(name) != address} | others
        if applied.state.complete != self._complete:
            self._complete = applied.state.complete
            touched.update(itertools.chain.from_iterable(self._reports.values()))
        in_memory = frozenset(name for name, flavor in applied.state.flavors.items() if flavor.in_memory)
        if moved := in_memory ^ self._in_memory:
            self._in_memory = in_memory
            touched.update(name for name, address in self._addresses.items() if address.flavor in moved)
        gone = {name: address for name, address in before.items() if name not in self._addresses}
        self._gone.update(gone)
        touched.update(gone)
        touched.update(name for name, failed in self._failed.items() if failed_before.get(name) != failed)
        touched.update(name for name in failed_before if name not in self._failed)
        touched.update(name for name, note in self._notes.items() if notes_before.get(name) != note)
        touched.update(name for name in notes_before if name not in self._notes)
        return self._merge(touched)

    def _mark_changes(self, applied: Applied) -> set[AddressName]:
        """Remembers in which revision they are what they are now. Gives those of which only the flavor changed."""
        addresses, before = applied.state.addresses, self._addresses
        flavors, flavors_before = applied.state.flavors, self._flavors
        self._flavors = flavors
        changed = [name for name, address in addresses.items() if before.get(name) != address]
        others: set[AddressName] = set()
        altered = {name for name in flavors if name in flavors_before and flavors_before[name] != flavors[name]}
        if altered:
            others.update(name for name, address in addresses.items() if address.flavor in altered)
        self._marks.update(dict.fromkeys(itertools.chain(changed, others), self.revisions.number))
        return others

    def placed(self, names: Collection[AddressName]) -> set[AddressName]:
        """These lie elsewhere, or nowhere, in the newest revision. Gives the addresses whose status changed."""
        self._marks.update(dict.fromkeys(names, self.revisions.number))
        return self._merge(name for name in names if self._phases.get(name) == "Active")

    def review(self) -> set[AddressName]:
        """Somebody may be further than before. Gives the addresses whose status changed."""
        changed = self._merge(list(self._held))
        if self._marks and self.revisions.floor >= max(self._marks.values()):
            self._marks.clear()
        return changed

    def report(self, reporter: str, report: feeds.ReadinessReport, *, full: bool) -> set[AddressName]:
        """What a reporter says, of all its addresses or of some. Gives the addresses whose status changed.

        Raises TooMany.
        """
        known = self._reports.get(reporter, {})
        if len(report.addresses) + (0 if full else len(known)) > MAX_REPORTED:
            raise TooMany(f"a reporter may name {MAX_REPORTED} addresses at most")
        self._reports[reporter] = known
        is_further = self.revisions.tell(reporter, report.seen, report.pending)
        touched: set[AddressName] = set()
        if full:
            touched.update(name for name in known if name not in report.addresses)
        else:
            touched.update(report.removed)
        for name in touched:
            known.pop(name, None)
        for name, readiness in report.addresses.items():
            if known.get(name) != readiness:
                known[name] = readiness
                touched.add(name)
        changed = self._merge(touched)
        return changed | self.review() if is_further else changed

    def forget(self, reporter: str) -> set[AddressName]:
        """The reporter is gone, and with it what it said."""
        self.revisions.forget(reporter)
        return self._merge(self._reports.pop(reporter, {}))

    def _merge(self, names: Iterable[AddressName]) -> set[AddressName]:
        changed: set[AddressName] = set()
        for name in names:
            self._held.discard(name)
            status = self._status(name)
            if status is None:
                self._phases.pop(name, None)
                self._gone.pop(name, None)
                if self._pieces.pop(name, None) is not None:
                    changed.add(name)
                continue
            piece = self._encoder.encode(status)
            if self._pieces.get(name) != piece:
                self._pieces[name] = piece
                self._phases[name] = status.phase
                changed.add(name)
        return changed

    def _status(self, name: AddressName) -> feeds.AddressStatus | None:
        # One pass and no helpers: this runs for every change of every address.
        address = self._addresses.get(name)
        shown: Address | Failed | None = address
        naming: list[str] = []
        told: list[str] = []
        components: list[str] = []
        messages: int | None = None
        consumers: int | None = None
        ready, broken = True, False
        for reporter, report in self._reports.items():
            said = report.get(name)
            if said is None:
                continue
            naming.append(reporter)
            ready = ready and said.ready
            broken = broken or said.failed
            if said.message and said.message not in told:
                told.append(said.message)
            for component in said.components:
                if component not in components:
                    components.append(component)
            # Only one reporter counts; where several do, the largest is the one that is up to date.
            if said.messages is not None and (messages is None or messages < said.messages):
                messages = said.messages
            if said.consumers is not None and (consumers is None or consumers < said.consumers):
                consumers = said.consumers
        phase: feeds.Phase
        if address is None:
            shown = failed = self._failed.get(name)
            if failed is not None:
                phase, told = "Failed", [failed.reason, *told]
            elif naming and not self._complete:
                phase, told = "Pending", ["what it is to be is not known: the configuration files cannot be used"]
            elif naming:
                phase, shown = "Terminating", self._gone.get(name)
            elif name in self._gone and (late := self._late(name, self._needs["anycast"])):
                phase, shown, told = "Terminating", self._gone[name], [f"that it is gone waits for {', '.join(late)}"]
                self._held.add(name)
            else:
                return None
        else:
            if name in self._notes:
                told.append(self._notes[name])
            if address.flavor in self._in_memory:
                told.append(IN_MEMORY)
            missing = [need for need in self._needs[address.type] if need not in naming]
            if broken:
                phase = "Failed"
            elif missing:
                phase = "Pending"
                told.insert(0, f"waits for {', '.join(missing)}")
            elif not ready:
                phase = "Configuring"
            elif late := self._late(name, self._needs[address.type]):
                phase = "Configuring"
                told.insert(0, f"what has changed waits for {', '.join(late)}")
                self._held.add(name)
            else:
                phase = "Active"
        return feeds.AddressStatus(
            name=name,
            type=shown.type if shown is not None else None,
            flavor=shown.flavor if shown is not None else None,
            ready=phase == "Active",
            phase=phase,
            message="; ".join(told),
            components=components,
            messages=messages,
            consumers=consumers,
        )

    def _late(self, name: AddressName, needed: Iterable[str]) -> list[str]:
        """Who of these has not seen yet what has changed about the address."""
        mark = self._marks.get(name)
        return [need for need in needed if self.revisions.horizon(need) < mark] if mark is not None else []
