"""One phase per address, from the configuration and what the reporters report. No sockets, no clock.

The status of each address is kept as JSON: a change of one address costs the work for one.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping

import msgspec

from enmasse.model import feeds
from enmasse.model.address_types import TYPES
from enmasse.model.addresses import Address
from enmasse.model.configuration import ADDRESSES, Applied
from enmasse.model.flavors import IN_MEMORY, Flavor
from enmasse.model.names import AddressName, LocalName, full_name, split_name
from enmasse.model.tenants.space_files import Failed
from enmasse.model.tenants.spaces import split_file
from services.configserv.reported_readiness import ReadinessSummary, ReportedReadiness
from services.configserv.revisions import Revisions

ROUTER_AGENT = "ragent"
"""The only reporter that addresses without storage need."""


class Merger:
    """The status of every address, kept up to date. `reporters`: those whose reports queues and topics need."""

    def __init__(self, reporters: Collection[str]) -> None:
        self.revisions = Revisions(reporters)
        self.needed = stored = tuple(reporters)
        direct = tuple(name for name in reporters if name == ROUTER_AGENT)
        self._routers = direct
        self._needs = {name: stored if traits.stored else direct for name, traits in TYPES.items()}
        self._complete = False
        self._addresses: Mapping[AddressName, Address] = {}
        self._in_memory: frozenset[str] = frozenset()
        """Flavors that keep messages in memory."""
        self._failed: Mapping[AddressName, Failed] = {}
        self._flavors: Mapping[str, Flavor] = {}
        self._changed_at: dict[AddressName, int] = {}
        """Address → revision of its last change (also of flavor or placement), until every reporter has seen it."""
        self._awaiting: set[AddressName] = set()
        """Addresses whose phase changes as soon as a reporter has seen their last change."""
        self._notes: dict[AddressName, str] = {}
        self._gone: dict[AddressName, Address] = {}
        """Addresses that were removed from the file and are still terminating, with their last configuration."""
        self._readiness = ReportedReadiness()
        self._pieces: dict[AddressName, bytes] = {}
        self._phases: dict[AddressName, feeds.Phase] = {}
        self._encoder = msgspec.json.Encoder()

    @property
    def pieces(self) -> Iterable[bytes]:
        """The JSON of each feeds.AddressStatus: in the order of the file, then those that were removed."""
        order: Iterable[AddressName] = self._addresses
        if len(self._pieces) != len(self._addresses):
            order = dict.fromkeys(itertools.chain(self._addresses, self._failed, self._pieces))
        return [self._pieces[name] for name in order]

    def piece(self, name: AddressName) -> bytes | None:
        """Return the JSON of one feeds.AddressStatus."""
        return self._pieces.get(name)

    def phase(self, name: AddressName) -> feeds.Phase | None:
        """Phase of the address; None if it is neither configured nor known to a reporter."""
        return self._phases.get(name)

    def known(self) -> Iterable[AddressName]:
        """Return the addresses that have a status."""
        return self._phases.keys()

    def counts(self) -> dict[str, int]:
        """Phase → number of addresses."""
        found: dict[str, int] = {}
        for phase in self._phases.values():
            found[phase] = found.get(phase, 0) + 1
        return found

    def reporting(self) -> Collection[str]:
        """Reporters that have sent a full report."""
        return self._readiness.reporters

    def configure(self, applied: Applied) -> set[AddressName]:
        """Set the configuration of the newest revision. Returns the addresses whose status changed."""
        before, failed_before, notes_before = self._addresses, self._failed, self._notes
        changed = applied.changed
        others = self._note_changes(applied, changed)
        self._addresses, self._failed = applied.state.addresses, applied.failed
        self._notes = {}
        sources = _by_source(applied) if applied.origins and applied.problems else {}
        for problem in applied.problems:
            if problem.entry is None:
                continue
            space, file = split_file(problem.file)
            full = full_name(space, LocalName(problem.entry)) if file == ADDRESSES else None
            name = full or sources.get((problem.file, problem.entry))
            if name is not None and name in self._addresses:
                self._notes[name] = str(problem) if problem.applies else f"{problem}; the last valid entry applies"
        touched = {*changed, *others}
        if applied.state.complete != self._complete:
            self._complete = applied.state.complete
            touched.update(self._readiness.addresses)
        in_memory = frozenset(name for name, flavor in applied.state.flavors.items() if flavor.in_memory)
        if moved := in_memory ^ self._in_memory:
            self._in_memory = in_memory
            touched.update(name for name, address in self._addresses.items() if address.flavor in moved)
        self._gone.update((name, before[name]) for name in changed if name not in self._addresses)
        touched.update(name for name, failed in self._failed.items() if failed_before.get(name) != failed)
        touched.update(name for name in failed_before if name not in self._failed)
        touched.update(name for name, note in self._notes.items() if notes_before.get(name) != note)
        touched.update(name for name in notes_before if name not in self._notes)
        return self._merge(touched)

    def _note_changes(self, applied: Applied, changed: Iterable[AddressName]) -> set[AddressName]:
        """Record the revision of each change. Returns the addresses of which the flavor changed."""
        addresses = applied.state.addresses
        flavors, flavors_before = applied.state.flavors, self._flavors
        self._flavors = flavors
        others: set[AddressName] = set()
        altered = {name for name in flavors if name in flavors_before and flavors_before[name] != flavors[name]}
        if altered:
            others.update(name for name, address in addresses.items() if address.flavor in altered)
        configured = (name for name in itertools.chain(changed, others) if name in addresses)
        self._changed_at.update(dict.fromkeys(configured, self.revisions.number))
        return others

    def placed(self, names: Collection[AddressName]) -> set[AddressName]:
        """Record that the newest revision moves these to other brokers, or none. Return those whose status changed."""
        self._changed_at.update(dict.fromkeys(names, self.revisions.number))
        return self._merge(name for name in names if self._phases.get(name) == "Active")

    def review(self) -> set[AddressName]:
        """Evaluate the addresses that wait for a reporter again. Returns those whose status changed."""
        changed = self._merge(list(self._awaiting))
        if self._changed_at and self.revisions.floor >= max(self._changed_at.values()):
            self._changed_at.clear()
        return changed

    def report(self, reporter: str, report: feeds.ReadinessReport, *, full: bool) -> set[AddressName]:
        """Enters a report of all addresses of a reporter (`full`) or of some. Returns those whose status changed.

        Raises TooMany.
        """
        touched = self._readiness.receive(reporter, report, full=full)
        is_further = self.revisions.report(reporter, report.seen, report.pending)
        changed = self._merge(touched)
        return changed | self.review() if is_further else changed

    def forget(self, reporter: str) -> set[AddressName]:
        """Drop a disconnected reporter and its reports. Returns the addresses whose status changed."""
        self.revisions.forget(reporter)
        return self._merge(self._readiness.forget(reporter))

    def _merge(self, names: Iterable[AddressName]) -> set[AddressName]:
        changed: set[AddressName] = set()
        for name in names:
            self._awaiting.discard(name)
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
        """Status of the address; None if it is neither configured nor known to a reporter."""
        address = self._addresses.get(name)
        reported = self._readiness.summary(name)
        shown: Address | Failed | None
        if address is not None:
            shown, phase = address, self._phase_of_configured(name, address, reported)
        elif failed := self._failed.get(name):
            shown, phase = failed, "Failed"
            reported.texts.insert(0, failed.reason)
        elif reported.reporters and not self._complete:
            shown, phase = None, "Pending"
            reported.texts = ["its configuration is not known: the configuration files cannot be used"]
        elif reported.reporters:
            shown, phase = self._gone.get(name), "Terminating"
        elif name in self._gone and (behind := self._behind(name, self._routers)):
            shown, phase = self._gone[name], "Terminating"
            reported.texts = [f"its removal waits for {', '.join(behind)}"]
            self._awaiting.add(name)
        else:
            return None
        return feeds.AddressStatus(
            name=name,
            type=shown.type if shown is not None else None,
            flavor=shown.flavor if shown is not None else None,
            ready=phase == "Active",
            phase=phase,
            message="; ".join(reported.texts),
            components=reported.components,
            messages=reported.messages,
            consumers=reported.consumers,
        )

    def _phase_of_configured(self, name: AddressName, address: Address, reported: ReadinessSummary) -> feeds.Phase:
        """Return the phase; add its reasons to `reported.texts`."""
        texts, needed = reported.texts, self._needs[address.type]
        if name in self._notes:
            texts.append(self._notes[name])
        if address.flavor in self._in_memory:
            texts.append(IN_MEMORY)
        if reported.broken:
            return "Failed"
        if missing := [reporter for reporter in needed if reporter not in reported.reporters]:
            texts.insert(0, f"waits for {', '.join(missing)}")
            return "Pending"
        if not reported.ready:
            return "Configuring"
        if behind := self._behind(name, needed):
            texts.insert(0, f"its last change waits for {', '.join(behind)}")
            self._awaiting.add(name)
            return "Configuring"
        return "Active"

    def _behind(self, name: AddressName, needed: Iterable[str]) -> list[str]:
        """Return the reporters that have not seen the last change of the address."""
        changed_at = self._changed_at.get(name)
        if changed_at is None:
            return []
        return [reporter for reporter in needed if self.revisions.horizon(reporter) < changed_at]


def _by_source(applied: Applied) -> dict[tuple[str, str], AddressName]:
    """Return (source, name as written there) → address."""
    return {(origin, split_name(name).local): name for name, origin in applied.origins.items()}
