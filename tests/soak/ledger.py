"""Who sent what, what was accepted, and who has received it: the counts that a soak is judged by. Knows no network.

A *flow* is what one sender puts on an address: numbers 0, 1, 2 … A *taker* is whoever shares the messages of some
flows: the consumers of a queue together, or one subscription. Times are seconds of the monotonic clock.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

GRACE = 5.0
"""Seconds before a fault in which an acknowledgement may still be on its way."""
MOST = 255
OVERTAKEN = 100


class Flow:
    """What one sender has put on an address, by number."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.accepted_at = array("d")
        """When it was accepted; 0 where it was not yet."""
        self.copies = bytearray()
        """How often it was sent without being given back: so many may be there."""
        self.accepted = 0

    @property
    def sent(self) -> int:
        """Numbers below this one have been sent at least once."""
        return len(self.copies)


class Missing(NamedTuple):
    """Accepted, and not received."""

    taker: str
    flow: str
    number: int
    accepted_at: float


class Taker:
    """Whoever shares the messages of these flows.

    `strict`: what was accepted near a fault has to come, too. `behind`: always far behind; what was overtaken
    by many later ones should have come. `each`: sometimes each of them gets a copy.
    """

    def __init__(
        self, name: str, flows: Sequence[Flow], *, strict: bool = True, behind: bool = False, exact: bool = False,
        each: bool = False,
    ) -> None:  # fmt: skip
        self.name = name
        self.exact = exact
        """No fault allows a second copy."""
        self.each = each
        self.strict, self.behind = strict, behind
        self.receipts = 0
        self.flows = {flow.name: flow for flow in flows}
        self.counts = {flow.name: bytearray() for flow in flows}
        self.last = {flow.name: array("d") for flow in flows}
        self.given_up: set[tuple[str, int]] = set()
        """Reported as lost already."""
        self.rejected: set[tuple[str, int]] = set()
        """Rejected by a receiver, to be received from the dead letter."""
        self.done = dict.fromkeys(self.flows, 0)
        """All numbers of a flow below this one are accepted and received."""

    def count(self, flow: str, number: int) -> int:
        counts = self.counts[flow]
        return counts[number] if number < len(counts) else 0


class Ledger:
    """All flows and takers. Safe for threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.takers: list[Taker] = []
        self.doubles: Counter[str] = Counter()
        """Second and further copies, by what allows them."""
        self.violations: list[str] = []
        """What no fault allows: copies without a reason, contents that were changed, messages nobody sent."""
        self.found_late = 0
        """Received after they were reported as lost."""
        self._clock = clock
        self._lock = threading.Lock()
        self._breaks: list[tuple[float, float, str]] = []

    def taker(
        self, name: str, flows: Sequence[Flow], *, strict: bool = True, behind: bool = False, exact: bool = False,
        each: bool = False,
    ) -> Taker:  # fmt: skip
        made = Taker(name, flows, strict=strict, behind=behind, exact=exact, each=each)
        self.takers.append(made)
        return made

    # What senders say

    def fresh(self, flow: Flow) -> int:
        """The next number, to be sent for the first time."""
        with self._lock:
            flow.copies.append(0)
            flow.accepted_at.append(0.0)
            return len(flow.copies) - 1

    def sends(self, flow: Flow, number: int) -> None:
        with self._lock:
            flow.copies[number] = min(MOST, flow.copies[number] + 1)

    def given_back(self, flow: Flow, number: int) -> None:
        """Released or rejected: this copy is nowhere."""
        with self._lock:
            flow.copies[number] -= 1

    def accepts(self, flow: Flow, number: int) -> None:
        with self._lock:
            if not flow.accepted_at[number]:
                flow.accepted_at[number] = self._clock()
                flow.accepted += 1

    # What receivers say

    def received(self, taker: Taker, flow: str, number: int) -> None:
        """It was received, and is accepted now."""
        with self._lock:
            now = self._clock()
            origin = taker.flows.get(flow)
            if origin is None or number >= origin.sent:
                self.violations.append(f"{taker.name} received {flow} {number}, which nobody sent there")
                return
            counts, last = taker.counts[flow], taker.last[flow]
            if number >= len(counts):
                more = origin.sent - len(counts)
                counts.extend(bytes(more))
                last.extend([0.0] * more)
            if counts[number]:
                self._double(taker, origin, number, last[number], now)
            else:
                taker.receipts += 1
                self.found_late += (flow, number) in taker.given_up
            counts[number] = min(MOST, counts[number] + 1)
            last[number] = now

    def _double(self, taker: Taker, flow: Flow, number: int, before: float, now: float) -> None:
        if taker.exact:
            self.violations.append(f"{taker.name} received {flow.name} {number} twice, {now - before:.1f} s apart")
        elif taker.each:
            self.doubles["from a topic, which has one for each"] += 1
        elif taker.counts[flow.name][number] < flow.copies[number]:
            self.doubles["sent again, for the first copy was not answered"] += 1
        elif self._disturbed(before, before):
            self.doubles["delivered again after a fault that cut off its acknowledgement"] += 1
        else:
            self.violations.append(
                f"{taker.name} received {flow.name} {number} again {now - before:.1f} s after it had accepted it, "
                "and no fault was near"
            )

    def broken(self, what: str) -> None:
        """Somebody saw what must not be."""
        with self._lock:
            self.violations.append(what)

    # Faults

    def begin_break(self, what: str) -> None:
        with self._lock:
            self._breaks.append((self._clock(), float("inf"), what))

    def end_break(self) -> None:
        """Everything is ready again."""
        with self._lock:
            begin, _, what = self._breaks[-1]
            self._breaks[-1] = (begin, self._clock(), what)

    def _disturbed(self, begin: float, end: float) -> bool:
        return any(b - GRACE <= end and begin <= e + GRACE for b, e, _ in reversed(self._breaks))

    # The counts

    def accepted(self) -> int:
        return sum(flow.accepted for flow in self._flows())

    def receipts(self) -> int:
        return sum(taker.receipts for taker in self.takers)

    def missing(self, accepted_before: float, takers: Sequence[Taker] | None = None) -> list[Missing]:
        """What was accepted before that time, has not been received, and was not given up yet."""
        with self._lock:
            return [
                one
                for taker in (self.takers if takers is None else takers)
                for flow in taker.flows.values()
                for one in self._missing(taker, flow, accepted_before)
            ]

    def _missing(self, taker: Taker, flow: Flow, accepted_before: float) -> list[Missing]:
        found = []
        low = taker.done[flow.name]
        end = flow.sent
        if taker.behind:
            end = len(taker.counts[flow.name].rstrip(b"\0")) - OVERTAKEN
        for number in range(low, end):
            at = flow.accepted_at[number]
            if at and (taker.count(flow.name, number) or (flow.name, number) in taker.given_up):
                if number == low:
                    low += 1
            elif at and not taker.strict and self._disturbed(at - GRACE, at):
                if number == low and self._clock() > at + GRACE:
                    low += 1
            elif at and at < accepted_before:
                found.append(Missing(taker.name, flow.name, number, at))
        taker.done[flow.name] = low
        return found

    def give_up(self, lost: Sequence[Missing]) -> None:
        """They are reported as lost: nobody waits for them any more."""
        with self._lock:
            takers = {taker.name: taker for taker in self.takers}
            for one in lost:
                takers[one.taker].given_up.add((one.flow, one.number))

    def _flows(self) -> list[Flow]:
        return list({id(flow): flow for taker in self.takers for flow in taker.flows.values()}.values())
