"""Readiness of each address as the reporters have reported it. No sockets, no clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain

from enmasse.model.feeds import Readiness, ReadinessReport
from enmasse.model.names import AddressName

MAX_REPORTED = 250_000
"""Number of addresses that one reporter may name."""

MAX_SHARED = 1000
"""Number of different states that are kept for sharing."""


class TooMany(ValueError):
    """Raised for a report that names more addresses than MAX_REPORTED."""


class ReadinessSummary:
    """Readiness of one address by all reporters together."""

    __slots__ = ("broken", "components", "consumers", "messages", "ready", "reporters", "texts")

    def __init__(self) -> None:
        self.reporters: list[str] = []
        self.texts: list[str] = []
        self.components: list[str] = []
        self.messages: int | None = None
        self.consumers: int | None = None
        self.ready = True
        self.broken = False

    def add(self, reporter: str, readiness: Readiness) -> None:
        """Add the report of one reporter: the address is ready only if all report it ready."""
        self.reporters.append(reporter)
        self.ready = self.ready and readiness.ready
        self.broken = self.broken or readiness.failed
        if readiness.message and readiness.message not in self.texts:
            self.texts.append(readiness.message)
        for component in readiness.components:
            if component not in self.components:
                self.components.append(component)
        # Usually one reporter counts messages; of several numbers the largest is taken.
        if readiness.messages is not None and (self.messages is None or self.messages < readiness.messages):
            self.messages = readiness.messages
        if readiness.consumers is not None and (self.consumers is None or self.consumers < readiness.consumers):
            self.consumers = readiness.consumers


class ReportedReadiness:
    """Reporter → address → readiness."""

    def __init__(self) -> None:
        self._reports: dict[str, dict[AddressName, Readiness]] = {}
        self._shared: dict[Readiness, Readiness] = {}
        """One object for each state: thousands of addresses have equal ones."""

    @property
    def reporters(self) -> Collection[str]:
        """Reporters that have sent a full report."""
        return self._reports.keys()

    @property
    def addresses(self) -> Iterable[AddressName]:
        """Every address that a reporter names; some more than once."""
        return chain.from_iterable(self._reports.values())

    def receive(self, reporter: str, report: ReadinessReport, *, full: bool) -> set[AddressName]:
        """Take over a report. Return the addresses whose readiness it changes. Raises TooMany."""
        known = self._reports.get(reporter, {})
        if len(report.addresses) + (0 if full else len(known)) > MAX_REPORTED:
            raise TooMany(f"a reporter may name {MAX_REPORTED} addresses at most")
        self._reports[reporter] = known
        touched: set[AddressName] = set()
        if full:
            touched.update(name for name in known if name not in report.addresses)
        else:
            touched.update(report.removed)
        for name in touched:
            known.pop(name, None)
        for name, readiness in report.addresses.items():
            if known.get(name) != readiness:
                known[name] = self._shared.setdefault(readiness, readiness)
                touched.add(name)
        if len(self._shared) > MAX_SHARED:
            self._shared.clear()
        return touched

    def forget(self, reporter: str) -> Iterable[AddressName]:
        """Drop the report of a disconnected reporter. Return the addresses that it named."""
        return self._reports.pop(reporter, {})

    def summary(self, name: AddressName) -> ReadinessSummary:
        """Summarize the readiness of one address."""
        found = ReadinessSummary()
        for reporter, report in self._reports.items():
            readiness = report.get(name)
            if readiness is not None:
                found.add(reporter, readiness)
        return found
