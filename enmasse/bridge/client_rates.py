"""Limits of what clients of an address space send, by the plan of the space: rates, and the size of a message.

Messages are counted here, where it is known whose they are: at the router they come over the connections that the
gateway has for all clients. A client of a protocol without refusals that has sent more than the rate of its space is
not read until time has paid for it (`count`); where each message has an answer it is refused meanwhile (`admits`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from enmasse.identity.allowances import Allowances
from enmasse.identity.space_rates import SpaceRates


class Metered(Protocol):
    """A client of an address space that has a rate."""

    @property
    def space(self) -> str: ...

    def throttle(self, throttled: bool) -> None:
        """Do not read the client, or read it again. Does not raise."""


class ClientRates:
    """Rates of all spaces that have one, and the clients of those that wait. `now`: a clock in seconds."""

    def __init__(self, allowances: Allowances, now: Callable[[], float]) -> None:
        self.allowances = allowances
        self._rates = SpaceRates(allowances, now)
        self._waiting: dict[str, dict[Metered, None]] = {}

    def count(self, client: Metered, size: int) -> None:
        """Count a message of this size; its client is not read while its space is in debt."""
        account = self._rates.spaces.get(client.space)
        if account is None:
            return
        account.count(1, size)
        if account.in_debt:
            self._waiting.setdefault(client.space, {})[client] = None
            client.throttle(True)

    def admits(self, space: str, size: int) -> bool:
        """Count a message of this size, whichever client it comes from; return False, and count nothing, while the
        space is in debt: it is refused."""
        account = self._rates.spaces.get(space)
        if account is None:
            return True
        if account.in_debt:
            return False
        account.count(1, size)
        return True

    def forget(self, client: Metered) -> None:
        """Forget a client that has left."""
        if (waiting := self._waiting.get(client.space)) is not None:
            waiting.pop(client, None)

    def tick(self) -> None:
        """Let time pay, and read again those that have waited longest, as far as their space is out of debt."""
        self._rates.pass_time()
        for space, waiting in list(self._waiting.items()):
            account = self._rates.spaces.get(space)
            for client in list(waiting):
                if account is not None and account.in_debt:
                    break
                if waiting.pop(client, client) is None:
                    client.throttle(False)
            if not waiting:
                del self._waiting[space]
        self._rates.report()


def too_large(size: int, allowances: Allowances, space: str) -> str:
    """Return why a message of this size is refused."""
    most = allowances.limits(space).max_message_size
    return (
        f"the message has {size} bytes, the plan {allowances.plan(space)!r} allows {most}: send a smaller one, or ask "
        "for another plan of the space"
    )
