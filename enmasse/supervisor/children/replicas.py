"""Scalable processes of a kind: their number is the last `enmasse scale KIND=N`, also after a restart of the suite."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from enmasse.process.process_bounds import ProcessBounds
from enmasse.storage.files import write_json
from enmasse.supervisor.children.child import Child
from enmasse.supervisor.children.group import ChildGroup
from enmasse.supervisor.plan import process_count


class Replicas(ChildGroup[int]):
    """The number of processes of a kind, and a child for each, `KIND-0` and so on. `file` stores the number;
    `make_child(name)` creates a child, `gone(name)` is called after its removal, `changed` after every change.
    """

    def __init__(
        self, kind: str, most: int, file: Path, make_child: Callable[[str], Child],
        gone: Callable[[str], None], changed: Callable[[], None],
    ) -> None:  # fmt: skip
        super().__init__()
        self.kind = kind
        self._most = most
        self._file = file
        self._make_child = make_child
        self._gone = gone
        self._changed = changed
        self._count = process_count.stored(file, kind, most)
        self.bounds = process_count.stored_bounds(file, kind, most)
        self._ending = False

    def start(self) -> None:
        """Start or end processes until the desired number is reached."""
        if self._ending:
            return
        for number in range(self._count):
            if number not in self._children and number not in self._leaving:
                self._children[number] = self._make_child(f"{self.kind}-{number}")
                self._children[number].start()
        for number in sorted(self._children.keys() - range(self._count)):
            self._leave(number, partial(self._ended, number))
        self._changed()

    @property
    def count(self) -> int:
        """Return the desired number."""
        return self._count

    def scale(self, bounds: ProcessBounds) -> tuple[bool, str]:
        """Set the desired number, or bounds for it. Return whether they were accepted, and a sentence. Processes start
        and end in the background."""
        if bounds.most > self._most:
            return False, f"a suite runs at most {self._most} processes of {self.kind}"
        if bounds.least < 1:
            return False, f"the suite cannot run without {self.kind}"
        if bounds == self.bounds:
            return True, f"{self.kind} runs {_processes(bounds)} already"
        count = bounds.nearest(self._count)
        try:
            self._store(count, bounds)
        except OSError as error:
            return False, f"{error.filename or self._file}: {error.strerror}; nothing was changed"
        self._count, self.bounds = count, bounds
        self.start()
        return True, f"{self.kind} runs {_processes(bounds)} from now on"

    def adapt(self, count: int) -> None:
        """Set the desired number within the bounds. After a restart it counts if it could be stored."""
        self._count = self.bounds.nearest(count)
        with contextlib.suppress(OSError):
            self._store(self._count, self.bounds)
        self.start()

    def _store(self, count: int, bounds: ProcessBounds) -> None:
        write_json(self._file, process_count.content(self.kind, count, bounds), durable=True)

    async def all_left(self) -> None:
        """Wait for the children that are being ended, and start no others: the suite ends."""
        self._ending = True
        await super().all_left()

    def _ended(self, number: int, child: Child) -> None:
        if number >= self._count:
            self._gone(child.spec.name)
        self.start()  # it may be desired again


def _processes(bounds: ProcessBounds) -> str:
    if bounds.fixed:
        return f"{bounds} process{'' if bounds.least == 1 else 'es'}"
    return f"{bounds} processes, as their load needs"
