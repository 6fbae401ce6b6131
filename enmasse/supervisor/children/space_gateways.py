"""MQTT gateways of the address spaces that have some of their own (`gateways` in spaces.json)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from enmasse.supervisor.children.child import Child
from enmasse.supervisor.children.group import ChildGroup
from enmasse.supervisor.errors import StartError


class SpaceGateways(ChildGroup[str]):
    """Name → child. `make_child(name, space)` makes one; `gone(name, space)` is called after its removal, with the
    space if this was its last; `changed` after every change; `report` gets a line for users."""

    def __init__(
        self, kind: str, make_child: Callable[[str, str], Child], gone: Callable[[str, str | None], None],
        changed: Callable[[], None], report: Callable[[str], None],
    ) -> None:  # fmt: skip
        super().__init__()
        self._kind = kind
        self._make_child = make_child
        self._gone = gone
        self._changed = changed
        self._report = report
        self._desired: dict[str, str] = {}
        """Name → space."""
        self._ending = False

    def want(self, spaces: Mapping[str, int]) -> None:
        """Have this number of gateways in each of these spaces, and in no other one."""
        wanted = {f"{self._kind}-{space}-{n}": space for space, count in spaces.items() for n in range(count)}
        if wanted != self._desired:
            self._desired = wanted
            self._start()

    def by_space(self) -> Iterator[tuple[Child, str]]:
        """Yield the children with their address spaces."""
        yield from ((child, self._desired[name]) for name, child in self._children.items())

    def _start(self) -> None:
        if self._ending:
            return
        for name in self._children.keys() - self._desired.keys():
            self._leave(name, partial(self._ended, self._children[name].spec.name))
        for name, space in self._desired.items():
            if name not in self._children and name not in self._leaving:
                try:
                    self._children[name] = self._make_child(name, space)
                except StartError as error:
                    self._report(str(error))
                    continue
                self._children[name].start()
        self._changed()

    async def all_left(self) -> None:
        """Wait for the children that are being ended, and start no others: the suite ends."""
        self._ending = True
        await super().all_left()

    def _ended(self, name: str, child: Child) -> None:
        if name not in self._desired:
            space = name.removeprefix(f"{self._kind}-").rpartition("-")[0]
            self._gone(name, None if space in self._desired.values() else space)
        self._start()  # it may be desired again
