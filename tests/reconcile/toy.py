"""A toy: a shelf of things by name, behind an interface that loses answers, refuses and is changed by others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from enmasse.model.feeds import Readiness
from enmasse.model.names import AddressName
from enmasse.reconcile import ReadinessBook, Reconciler, Sources


class Lost(Exception):
    """No answer: what was done is unknown."""


class Shelf:
    """What is managed: name → value. Requests are counted, by verb and name."""

    def __init__(self) -> None:
        self.things: dict[str, str] = {}
        self.refuses: dict[str, str] = {}
        self.forgets: set[str] = set()
        """Names that are put and are not there afterwards."""
        self.lose_answers = 0
        self.requests: Counter[tuple[str, str]] = Counter()

    def changes(self) -> int:
        return sum(count for (verb, _), count in self.requests.items() if verb in ("put", "take"))

    async def request(self, verb: str, name: str = "", value: str = "") -> dict[str, str]:
        self.requests[verb, name] += 1
        found: dict[str, str] = {}
        if verb == "list":
            found = dict(self.things)
        elif verb == "get":
            found = {name: self.things[name]} if name in self.things else {}
        elif name in self.refuses:
            raise ValueError(self.refuses[name])
        elif verb == "put":
            if name not in self.forgets:
                self.things[name] = value
        elif verb == "take":
            self.things.pop(name, None)
        if self.lose_answers:
            self.lose_answers -= 1
            raise Lost("no answer")
        return found


class ToyController:
    """A whole controller: a desired state from sources, a managed thing, and the book of what it reports (a
    ReadinessReporter sends what that holds). Ours are named `my-…`.
    """

    def __init__(self, shelf: Shelf, *sources: str, sweep: float = 3600.0) -> None:
        self.shelf = shelf
        self.sources = Sources(sources)
        self.desired: dict[str, str] = {}
        self.actual: dict[str, str] = {}
        self.is_gone = False
        self.conversations = 0
        self.failures: list[str] = []
        self.batches: list[int] = []
        self.judged: list[str] = []
        self.lost: list[str] = []
        self.book = ReadinessBook("was lost, and put back")
        self.sweep_every = sweep
        self.reconciler: Reconciler[str] = Reconciler(
            self, changed=self._changed, lost=self._lost, errors=(Lost,), batch=100
        )

    def deliver(self, source: str, things: Mapping[str, str]) -> None:
        """A complete snapshot of one source, which has the names that begin with its own."""
        old = {name: value for name, value in self.desired.items() if name.startswith(f"my-{source}")}
        self.desired = {**{n: v for n, v in self.desired.items() if n not in old}, **things}
        self.reconciler.queue(name for name in old.keys() | things.keys() if old.get(name) != things.get(name))
        if self.sources.deliver(source):
            self.reconciler.read_again()

    def _changed(self, names: Collection[str]) -> None:
        self.judged.extend(names)
        for name in names:
            refused = self.reconciler.refused.get(name, "")
            is_known = name in self.desired or name in self.actual
            state = Readiness(ready=self.ready(name) and not refused, failed=bool(refused), message=refused)
            self.book.put(AddressName(name), state if is_known else None)

    def _lost(self, names: Collection[str]) -> None:
        self.lost.extend(names)
        self.book.lose(map(AddressName, names))

    def ready(self, name: str) -> bool:
        return self.actual.get(name) == self.desired.get(name)

    async def open(self) -> None:
        self.conversations += 1

    async def read(self) -> None:
        self._take_in(await self.shelf.request("list"))
        self.reconciler.queue(self.desired)

    async def apply(self, keys: Sequence[str]) -> Mapping[str, str]:
        self.batches.append(len(keys))
        refused = {}
        for name in keys:
            wanted, there = self.desired.get(name), self.actual.get(name)
            try:
                if wanted is not None and wanted != there:
                    await self.shelf.request("put", name, wanted)
                elif wanted is None and there is not None and self.sources.complete:
                    await self.shelf.request("take", name)
            except ValueError as error:
                refused[name] = str(error)
        return refused

    async def verify(self, keys: Collection[str]) -> Mapping[str, str]:
        wrong = {}
        for name in keys:
            found = await self.shelf.request("get", name)
            self._note(name, found.get(name))
            if name in self.desired and not self.ready(name):
                wrong[name] = "is not there"
        self.reconciler.news(keys)
        return wrong

    async def reread(self, keys: Collection[str]) -> Iterable[str]:
        for name in keys:
            self._note(name, (await self.shelf.request("get", name)).get(name))
        return keys

    async def sweep(self) -> float:
        before = self.actual
        self._take_in(await self.shelf.request("list"))
        self.reconciler.missing(n for n in before if n in self.desired and self.actual.get(n) != before[n])
        return self.sweep_every

    def failed(self, error: Exception) -> None:
        self.failures.append(str(error))

    def _note(self, name: str, value: str | None) -> None:
        self.actual = (
            {**self.actual, name: value}
            if value is not None
            else {other: there for other, there in self.actual.items() if other != name}
        )

    def _take_in(self, things: Mapping[str, str]) -> None:
        self.actual = {name: value for name, value in things.items() if name.startswith("my-")}
        self.reconciler.queue(n for n in self.actual.keys() | self.desired.keys() if not self.ready(n))
        self.reconciler.news(self.actual.keys() | self.desired.keys())
