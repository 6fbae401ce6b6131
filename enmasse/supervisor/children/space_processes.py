"""Processes of the address spaces that have some of their own (`gateways` and `routers` in spaces.json)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from enmasse.supervisor.children.child import Child
from enmasse.supervisor.children.group import ChildGroup
from enmasse.supervisor.errors import StartError


class SpaceProcesses(ChildGroup[str]):
    """Name → child. `make_child(name, space)` makes one; `gone(name, space)` is called after its removal, with the
    space if this was its last; `changed` after every change; `report` gets a line for users."""

    def __init__(
        self, make_child: Callable[[str, str], Child], gone: Callable[[str, str | None], None],
        changed: Callable[[], None], report: Callable[[str], None],
    ) -> None:  # fmt: skip
        super().__init__()
        self._make_child = make_child
        self._gone = gone
        self._changed = changed
        self._report = report
        self._desired: dict[str, str] = {}
        """Name → space."""
        self._made: dict[str, str] = {}
        """Name → space, of children and of those that are being ended."""
        self._ending = False

    @property
    def desired(self) -> Mapping[str, str]:
        """Return name → address space."""
        return self._desired

    def spaces_with(self, desired: Mapping[str, str]) -> dict[str, str]:
        """Return name → address space of `desired`, and of processes that are not gone yet."""
        return {**desired, **self._made}

    def want(self, desired: Mapping[str, str]) -> None:
        """Have these processes, name → address space, and no other ones."""
        if desired != self._desired:
            self._desired = dict(desired)
            self._start()

    def by_space(self) -> Iterator[tuple[Child, str]]:
        """Yield the children with their address spaces."""
        yield from ((child, self._made[name]) for name, child in self._children.items())

    def _start(self) -> None:
        if self._ending:
            return
        for name in [name for name in self._children if self._made[name] != self._desired.get(name)]:
            self._leave(name, partial(self._ended, name))
        for name, space in self._desired.items():
            if name not in self._children and name not in self._leaving:
                try:
                    self._children[name] = self._make_child(name, space)
                except StartError as error:
                    self._report(str(error))
                    continue
                self._made[name] = space
                self._children[name].start()
        self._changed()

    async def all_left(self) -> None:
        """Wait for the children that are being ended, and start no others: the suite ends."""
        self._ending = True
        await super().all_left()

    def _ended(self, name: str, child: Child) -> None:
        space = self._made.pop(name)
        if self._desired.get(name) != space:
            self._gone(name, None if space in {*self._desired.values(), *self._made.values()} else space)
        self._start()  # it may be desired again
