"""The revision of a broker's listings: clients that read these repeatedly ask for it first."""

from __future__ import annotations

from collections.abc import Callable

from services.broker.core.legal_names import ANYCAST
from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.limits.usage import BrokerTotals
from services.broker.core.queues.queue import Queue
from services.broker.core.queues.stalls import Stalls


class Revision:
    """Counts changes of queues and addresses, other than temporary queues, such as those for replies. `followed`:
    whether the live state looks at what was touched, once a second."""

    def __init__(self, ledger: BrokerTotals, stalls: Stalls) -> None:
        self.followed: Callable[[], bool] = lambda: False
        self._ledger = ledger
        self._stalls = stalls
        self._changes = 0

    def removed(self) -> None:
        """Note that a queue or an address is gone."""
        self._changes += 1

    def seen(self, each: Queue | BrokerAddress) -> None:
        """Note that a reader of what was touched looks at this one now."""
        each.seen()
        self._changes += _lasts(each)

    def text(self) -> str:
        """Return a text that is another one after each change of messages, consumers, attributes or fullness that
        listings show; empty while that is not known, because queues stand still. Of a queue's messages, how many are
        with consumers does not count: that changes with each credit and release, and controllers do not read it."""
        ledger = self._ledger
        if self._stalls:
            return ""
        if self.followed():  # which is the one to look
            self._changes += any(map(_lasts, ledger.touched))
        else:
            for each in list(ledger.touched):
                self.seen(each)
        full = ledger.disk_behind, ledger.size > ledger.capacity, ledger.size >= ledger.size_limit
        return f"{self._changes}:{ledger.disk_policy}{''.join(str(int(each)) for each in full)}"


def _lasts(each: Queue | BrokerAddress) -> bool:
    """Return False for a temporary queue, and for the address that exists with it."""
    if isinstance(each, Queue):
        return not (each.temporary and each.routing_type == ANYCAST)
    return each.explicit or ANYCAST not in each.routing_types
