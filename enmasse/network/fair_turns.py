"""Turns by tenant: the connections of one share a bounded amount of work, and what waits is taken tenant by tenant, so
that the number of connections, queues or links of one does not matter to another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, Protocol, TypeVar

T = TypeVar("T")

SHARE: Final = 0.0005
"""Seconds of work for the connections of one tenant, before others have a go."""
LONG: Final = 0.005
"""Seconds of work for what waits, before the sockets are looked at again, while there are no tenants."""


class InTurn(Generic[T]):
    """Queue that gives the first item of one tenant, then the first of the next one."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: dict[Hashable, deque[T]] = {}

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[T]:
        for line in self._lines.values():
            yield from line

    def add(self, tenant: Hashable, item: T) -> None:
        """Add behind what waits of this tenant. Whatever belongs to no tenant has one in common, None."""
        line = self._lines.get(tenant)
        if line is None:
            line = self._lines[tenant] = deque()
        line.append(item)

    def add_first(self, tenant: Hashable, item: T) -> None:
        """Add before what waits of this tenant."""
        line = self._lines.get(tenant)
        if line is None:
            line = self._lines[tenant] = deque()
        line.appendleft(item)

    def take(self) -> T:
        """Take out the first of the tenant whose turn it is; the turn passes on. Raises StopIteration if nothing
        waits."""
        lines = self._lines
        tenant = next(iter(lines))
        line = lines[tenant]
        item = line.popleft()
        if not line:
            del lines[tenant]
        elif len(lines) > 1:
            lines[tenant] = lines.pop(tenant)  # behind the others
        return item


class Tenant:
    """Owner of connections that share their turns. `used`: seconds of work in this turn of the loop."""

    __slots__ = ("connections", "name", "used")

    def __init__(self, name: str) -> None:
        self.name = name
        self.used = 0.0
        self.connections = 0


class TurnTaker(Protocol):
    """A connection whose input waits for its turn."""

    @property
    def tenant(self) -> Tenant | None:
        """Owner, if it has one."""

    def proceed(self) -> None:
        """Process input: it is this connection's turn. Does not raise."""


class Turns:
    """Turns of the connections of one loop. `call_soon` is the loop's, `clock` has seconds; `begins` is called at the
    begin of each turn that was asked for, `ends` after the work of it."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Callable[[], float],
        *,
        begins: Callable[[], None] | None = None,
        ends: Callable[[], None] | None = None,
    ) -> None:
        self.clock = clock
        self.tenants: dict[str, Tenant] = {}
        self._call_soon = call_soon
        self._begins = begins
        self._ends = ends
        self._waiting: InTurn[TurnTaker] = InTurn()
        self._served: list[Tenant] = []  # have used a part of their share in this turn
        self._due = False

    def own(self, name: str) -> Tenant:
        """Return the tenant of a further connection."""
        tenant = self.tenants.get(name)
        if tenant is None:
            tenant = self.tenants[name] = Tenant(name)
        tenant.connections += 1
        return tenant

    def disown(self, tenant: Tenant) -> None:
        """Forget a connection of this tenant."""
        tenant.connections -= 1
        if not tenant.connections:
            del self.tenants[tenant.name]

    def serve(self, tenant: Tenant, seconds: float) -> None:
        """Count work for a connection of this tenant."""
        if not tenant.used:
            self._served.append(tenant)
            self.soon()
        tenant.used += seconds

    def wait(self, member: TurnTaker) -> None:
        """Call `proceed` of this one when it is its turn, once for each call."""
        self._waiting.add(member.tenant, member)
        self.soon()

    def soon(self) -> None:
        """Ask for another turn."""
        if not self._due:
            self._due = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        """Another turn of the loop: the shares are new, and those that wait proceed, one after the other."""
        self._due = False
        if self._begins is not None:
            self._begins()
        served, self._served = self._served, []
        for tenant in served:
            tenant.used = 0.0
        waiting = self._waiting
        if not waiting:
            return
        stop = self.clock() + (SHARE if self.tenants else LONG)
        while True:
            waiting.take().proceed()
            if not waiting or self.clock() >= stop:
                break
        if self._ends is not None:
            self._ends()
        if waiting:
            self.soon()
