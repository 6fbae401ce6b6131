"""One phase per address, from the configuration and what the reporters say. No sockets, no clock.

Every address has its piece of the status ready as JSON: one that changes costs the work for one.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping

import msgspec

from enmasse.model import feeds
from enmasse.model.addresses import Address
from enmasse.model.configuration import Applied, Failed

MAX_REPORTED = 250_000
"""Addresses that one reporter may name."""
ROUTER_AGENT = "ragent"
"""The one reporter that addresses which store nothing need."""


class TooMany(ValueError):
    """A report that names more addresses than anybody has."""


class Merger:
    """The status of every address, kept up to date. `reporters`: whose word queues and topics need."""

    def __init__(self, reporters: Collection[str]) -> None:
        stored = tuple(reporters)
        direct = tuple(name for name in reporters if name == ROUTER_AGENT)
        self._needs = {"queue": stored, "topic": stored, "anycast": direct, "multicast": direct}
        self._addresses: Mapping[str, Address] = {}
        self._failed: Mapping[str, Failed] = {}
        self._notes: dict[str, str] = {}
        self._gone: dict[str, Address] = {}
        """Addresses that are no longer wanted and not yet gone, as they were."""
        self._reports: dict[str, dict[str, feeds.Readiness]] = {}
        self._pieces: dict[str, bytes] = {}
        self._phases: dict[str, feeds.Phase] = {}
        self._encoder = msgspec.json.Encoder()

    @property
    def pieces(self) -> Iterable[bytes]:
        """The JSON of each feeds.AddressStatus: in the order of the file, then those that are wanted no longer."""
        order: Iterable[str] = self._addresses
        if len(self._pieces) != len(self._addresses):
            order = dict.fromkeys(itertools.chain(self._addresses, self._failed, self._pieces))
        return [self._pieces[name] for name in order]

    def piece(self, name: str) -> bytes | None:
        """The JSON of one feeds.AddressStatus."""
        return self._pieces.get(name)

    def phase(self, name: str) -> feeds.Phase | None:
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

    def configure(self, applied: Applied) -> set[str]:
        """Another configuration. Gives the addresses whose status changed."""
        before, failed_before, notes_before = self._addresses, self._failed, self._notes
        self._addresses, self._failed = applied.state.addresses, applied.failed
        self._notes = {}
        for problem in applied.problems:
            if problem.entry in self._addresses and problem.entry is not None and problem.file == "addresses.json":
                self._notes[problem.entry] = f"{problem}; the last valid entry applies"
        touched = {name for name, address in self._addresses.items() if before.get(name) != address}
        gone = {name: address for name, address in before.items() if name not in self._addresses}
        self._gone.update(gone)
        touched.update(gone)
        touched.update(name for name, failed in self._failed.items() if failed_before.get(name) != failed)
        touched.update(name for name in failed_before if name not in self._failed)
        touched.update(name for name, note in self._notes.items() if notes_before.get(name) != note)
        touched.update(name for name in notes_before if name not in self._notes)
        return self._merge(touched)

    def report(self, reporter: str, report: feeds.ReadinessReport, *, full: bool) -> set[str]:
        """What a reporter says, of all its addresses or of some. Gives the addresses whose status changed.

        Raises TooMany.
        """
        known = self._reports.get(reporter, {})
        if len(report.addresses) + (0 if full else len(known)) > MAX_REPORTED:
            raise TooMany(f"a reporter may name {MAX_REPORTED} addresses at most")
        self._reports[reporter] = known
        touched: set[str] = set()
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
        return self._merge(touched)

    def forget(self, reporter: str) -> set[str]:
        """The reporter is gone, and with it what it said."""
        return self._merge(self._reports.pop(reporter, {}))

    def _merge(self, names: Iterable[str]) -> set[str]:
        changed: set[str] = set()
        for name in names:
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

    def _status(self, name: str) -> feeds.AddressStatus | None:
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
                phase, told = "Failed", [failed.reason]
            elif naming:
                phase, shown = "Terminating", self._gone.get(name)
            else:
                return None
        else:
            if name in self._notes:
                told.append(self._notes[name])
            missing = [need for need in self._needs[address.type] if need not in naming]
            if broken:
                phase = "Failed"
            elif missing:
                phase = "Pending"
                told.insert(0, f"waits for {', '.join(missing)}")
            else:
                phase = "Active" if ready else "Configuring"
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
