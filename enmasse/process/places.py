"""Places of processes that are equal to whoever connects: one of them is dialled, and on its loss the next one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

T = TypeVar("T")
Address = tuple[str, int]
"""Host and port."""
SILENCE: Final = 3.0
"""Seconds without a frame after which a process is taken for gone and another one is dialled. Clients wait meanwhile;
routers take each other for lost as early."""


class Places:
    """Addresses in the order in which they are preferred. Connections that share the object lead to one process
    while it lives."""

    def __init__(self, *addresses: Address) -> None:
        if not addresses:
            raise ValueError("there must be one address")
        self._addresses = addresses
        self._at = 0

    @property
    def first(self) -> Address:
        """The address that is dialled first."""
        return self._addresses[self._at]

    def lost(self, address: Address) -> None:
        """Note that a connection to this address was lost: another one is dialled first from now on."""
        if address == self.first:
            self._at = (self._at + 1) % len(self._addresses)

    async def dial(self, connect: Callable[[Address], Awaitable[T]], failures: tuple[type[Exception], ...]) -> T:
        """Return what `connect` returns for the first address where it raises none of `failures`, each of which is
        tried once. Raises the failure of the one that was preferred."""
        problem: Exception | None = None
        for _ in self._addresses:
            address = self.first
            try:
                return await connect(address)
            except failures as error:
                problem = problem or error
                self.lost(address)
        assert problem is not None
        raise problem
