"""A store beside a model of it: what may be on disk is one of the states since the last commit, nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from services.broker.storage.journal.file_operations import Files
from services.broker.storage.journal.records import KEY_COST, STATE_COST
from services.broker.storage.store import Store

from .disks import LossyFiles, PowerCutError


@dataclass
class State:
    queues: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)  # message -> deliveries, not before
    values: dict[int, bytes] = field(default_factory=dict)
    keys: set[tuple[int, bytes]] = field(default_factory=set)

    def copy(self) -> State:
        return State({q: m.copy() for q, m in self.queues.items()}, self.values.copy(), self.keys.copy())

    def __eq__(self, other: object) -> bool:
        """Order counts in queues."""
        assert isinstance(other, State)
        return (
            self.values == other.values
            and self.keys == other.keys
            and {q: list(m.items()) for q, m in self.queues.items()}
            == {q: list(m.items()) for q, m in other.queues.items()}
        )


def _differences(expected: State, found: State) -> list[str]:
    differences = [f"definition {each}" for each in expected.values.items() ^ found.values.items()]
    differences += [f"key {each}" for each in expected.keys ^ found.keys]
    for q in expected.queues.keys() | found.queues.keys():
        these, those = expected.queues.get(q, {}), found.queues.get(q, {})
        for message, state in these.items() ^ those.items():
            differences.append(f"queue {q}: {'lost' if message in these else 'too many'}: message {message} {state}")
        if these == those and list(these) != list(those):
            differences.append(f"queue {q}: order")
    return differences


Op = Callable[[State], None]


def _remove(message: int, queue: int, s: State) -> None:
    s.queues.get(queue, {}).pop(message, None)


class LoudLog:
    """In place of a module's log: a failing callback fails the test."""

    def exception(self, event: str, **_: object) -> None:
        raise

    def info(self, event: str, **_: object) -> None: ...
    def warning(self, event: str, **_: object) -> None: ...
    def error(self, event: str, **_: object) -> None: ...


class Pair:
    """The store under test and its model. Every method does the same to both."""

    def __init__(self, directory: Path, disk: Callable[[], Files], segment_size: int = 2048) -> None:
        self.directory = directory
        self.disk = disk
        self.segment_size = segment_size
        self.payloads: dict[int, bytes] = {}
        self.base = State()
        self.now = State()
        self.log: list[tuple[int, Op]] = []  # (message added or 0, operation) since the last commit
        self.since: list[State] = [self.base]
        self.failures = 0
        self.files: Files
        self.store: Store
        self._open()

    def _open(self) -> None:
        self.files = self.disk()
        self.store = Store.open(self.directory, files=self.files, segment_size=self.segment_size)

    def _do(self, op: Op, added: int = 0) -> None:
        op(self.now)
        self.log.append((added, op))
        self.since.append(self.now.copy())

    # -- operations ----------------------------------------------------------------------------------------------------
    def define(self, value: bytes, id: int = 0) -> int:
        id = id or self.store.new_id()
        self.store.define(id, value)

        def op(s: State) -> None:
            s.values[id] = value
            s.queues.setdefault(id, {})

        self._do(op)
        return id

    def undefine(self, id: int) -> None:
        self.store.undefine(id)
        for message in self.now.queues[id]:
            self.store.discard(message, id)

        def op(s: State) -> None:
            s.values.pop(id, None)
            s.queues.pop(id, None)
            s.keys = {k for k in s.keys if k[0] != id}

        self._do(op)

    def add(self, payload: bytes, queues: list[int], key: tuple[int, bytes] | None = None, not_before: int = 0) -> int:
        message = self.store.add(payload, queues, duplicate=key, not_before=not_before)
        self._added(message, payload, queues, key, not_before)
        return message

    def add_run(self, payloads: list[bytes], queue: int) -> None:
        first = self.store.add_run(payloads, queue, 4)
        for n, payload in enumerate(payloads):
            self._added(first + n, payload, [queue])

    def _added(
        self, message: int, payload: bytes, queues: list[int], key: tuple[int, bytes] | None = None, not_before: int = 0
    ) -> None:
        self.payloads[message] = payload

        def op(s: State) -> None:
            for q in queues:
                if q in s.queues:
                    s.queues[q][message] = (0, not_before)
            if key and key[0] in s.values:
                s.keys.add(key)

        self._do(op, message)

    def remove(self, message: int, queue: int) -> None:
        self.store.remove(message, queue)
        self._do(lambda s: s.queues.get(queue, {}).pop(message, None) and None)

    def remove_many(self, messages: list[int], queue: int) -> None:
        self.store.remove_many(messages, queue)
        for message in messages:  # in order, but not all or nothing
            self._do(partial(_remove, message, queue))

    def move(self, message: int, source: int, target: int) -> None:
        self.store.move(message, source, target)

        def op(s: State) -> None:
            if message in s.queues.get(source, {}) and source != target:
                del s.queues[source][message]
                s.queues.get(target, {}).setdefault(message, (0, 0))

        self._do(op)

    def reference(self, message: int, queue: int) -> None:
        self.store.reference(message, queue)

        def op(s: State) -> None:
            if any(message in m for m in s.queues.values()):
                s.queues.get(queue, {}).setdefault(message, (0, 0))

        self._do(op)

    def update(self, message: int, queue: int, count: int, not_before: int) -> None:
        self.store.update(message, queue, delivery_count=count, not_before=not_before)

        def op(s: State) -> None:
            if message in s.queues.get(queue, {}):
                s.queues[queue][message] = (count, not_before)

        self._do(op)

    @contextmanager
    def group(self) -> Iterator[None]:
        """What is done inside is one step: the disk has all of it or nothing, also after a commit that fails."""
        with self.store.group(100):
            log, since, self.log, self.since = self.log, self.since, [], []
            yield
        ops = [op for _, op in self.log]

        def op(s: State) -> None:
            for each in ops:
                each(s)

        self.log, self.since = [*log, (0, op)], [*since, self.now.copy()]

    def commit(self) -> OSError | None:
        answers: list[OSError | None] = []
        self.store.commit(answers.append)
        self.store.flush()
        assert len(answers) == 1
        if answers[0] is None:
            self._committed()
        else:
            self._failed()
        return answers[0]

    def _committed(self) -> None:
        self.base = self.now.copy()
        self.log.clear()
        self.since = [self.base]

    def _failed(self) -> None:
        """Messages since the last success are gone; the rest is to be written with the next commit."""
        self.failures += 1
        self.log = [(added, op) for added, op in self.log if not added]
        self.now = self.base.copy()
        self.since = [self.base]
        for _, op in self.log:
            op(self.now)
            self.since.append(self.now.copy())

    def tick(self, flush: bool = True) -> None:
        """Housekeeping; unless `flush`, the copies of a compaction stay uncommitted while other things happen."""
        self.store.tick()
        if not flush:
            return
        answers: list[OSError | None] = []
        if self.store.journal.gathered:
            self.store.commit(answers.append)
            self.store.flush()
            if answers[0] is None:
                self._committed()
            else:
                self._failed()

    def settle(self) -> None:
        """Housekeeping until nothing changes."""
        for _ in range(1000):
            before = (self.store.journal.segments.keys() | set(), self.store.journal.syncs)
            self.tick()
            if before == (self.store.journal.segments.keys() | set(), self.store.journal.syncs):
                return
        raise AssertionError("housekeeping does not come to rest")

    # -- ends ----------------------------------------------------------------------------------------------------------
    def crash(self, cut: Callable[[], None]) -> None:
        """The power goes; opens again until an opening is not itself cut off; checks."""
        cut()
        while True:
            try:
                self._open()
                break
            except PowerCutError:
                self.files.power_cut()  # type: ignore[attr-defined]  # files of this test have it
        self.check()

    def close(self) -> None:
        self.store.close()
        if isinstance(self.files, LossyFiles):
            self.files.power_cut()  # what an orderly end leaves is on disk

    def restart(self) -> None:
        self.close()
        self._committed()
        self._open()
        self.check()

    def found(self) -> State:
        store = self.store
        values = store.recovered.definitions
        queues = {
            q: {r.message: (r.delivery_count, r.not_before) for r in store.recovered.references(q)} for q in values
        }
        return State(queues, dict(values), {(c, k) for c, keys in store.live.keys.items() for k, _ in keys.items()})

    def check(self) -> None:
        """What was found is a state that may be; the store agrees with itself. The model goes on from there."""
        found = self.found()
        if found not in self.since:
            each = [_differences(state, found) for state in self.since]
            nearest = min(range(len(each)), key=lambda number: len(each[number]))
            raise AssertionError(f"nearest is state {nearest} of {len(each)}: {'; '.join(each[nearest])}")
        assert not self.store.recovered.damaged
        self.base, self.now, self.since = found, found.copy(), [found]
        self.log.clear()
        self.check_payloads()
        self.check_usage()

    def check_payloads(self) -> None:
        for queue in self.now.queues.values():
            for message in queue:
                assert self.store.load(message) == self.payloads[message]

    def check_memory(self) -> None:
        """The running store agrees with the model of now."""
        held: dict[int, set[int]] = {}
        for queue, messages in self.now.queues.items():
            for message in messages:
                held.setdefault(message, set()).add(queue)
        assert {m: set(self.store.live.index.queues(m)) for m in held} == held
        assert {(c, k) for c, keys in self.store.live.keys.items() for k, _ in keys.items()} == self.now.keys
        self.check_payloads()
        self.check_usage()

    def check_usage(self) -> None:
        """The books of live bytes agree with what is live."""
        store = self.store
        live: dict[int, int] = {}

        def count(location: int, size: int) -> None:
            live[location >> 32] = live.get(location >> 32, 0) + size

        messages = {m for q in self.now.queues.values() for m in q}
        assert len(store.live.index) == len(messages)
        for message in messages:
            found = store.live.index.find(message)
            assert found
            count(*found)
        for (message, _), state in store.live.states.items():
            found = store.live.index.find(message)
            assert found
            if state.location != found[0]:
                count(state.location, STATE_COST)
        for location, size, _ in store.live.definitions.values():
            count(location, size)
        for keys in store.live.keys.values():
            for key, (_, location) in keys.items():
                count(location, KEY_COST + len(key))
        assert {n: u.live for n, u in store.live.usages.items() if u.live} == live

    # -- random work ---------------------------------------------------------------------------------------------------
    def random_step(self, rng: random.Random) -> None:
        queues = list(self.now.queues)
        held = [(m, q) for q in queues for m in self.now.queues[q]]
        choice = rng.random()
        if queues and choice > 0.97:
            with suppress(OSError), self.group():  # a full disk takes none
                for _ in range(rng.randrange(6)):
                    self.add(rng.randbytes(rng.choice((0, 10, 300))), rng.sample(queues, 1), self._new_key(rng, queues))
                for message, queue in rng.sample(held, min(len(held), rng.randrange(5))):
                    self.remove(message, queue)
                if held:
                    self.update(*rng.choice(held), rng.randrange(1, 9), 0)
        elif not queues or choice < 0.03:
            self.define(rng.randbytes(rng.randrange(40)))
        elif choice < 0.05:
            self.define(rng.randbytes(rng.randrange(40)), rng.choice(queues))
        elif choice < 0.06 and len(queues) > 2:
            self.undefine(rng.choice(queues))
        elif choice < 0.12:
            self.add_run(
                [rng.randbytes(rng.choice((0, 10, 300))) for _ in range(rng.randrange(1, 9))], rng.choice(queues)
            )
        elif choice < 0.40 or not held:
            some = rng.sample(queues, min(len(queues), rng.choice((1, 1, 1, 2, 3))))
            key = self._new_key(rng, queues)
            size = rng.choice((0, 10, 100, 300, 3000 if rng.random() < 0.1 else 50))
            self.add(rng.randbytes(size), some, key, rng.choice((0, 0, 5)))
        elif choice < 0.57:
            self.remove(*rng.choice(held))
        elif choice < 0.62:
            queue = rng.choice(queues)
            some = list(self.now.queues[queue])
            if rng.random() < 0.5:
                self.remove_many(some[: rng.randrange(9)], queue)  # often without a gap
            else:
                self.remove_many([*rng.sample(some, rng.randrange(min(8, len(some)) + 1)), *some[:1], 10**9], queue)
        elif choice < 0.67:
            self.remove(*held[0])
        elif choice < 0.72:
            self.update(*rng.choice(held), rng.randrange(1, 9), rng.choice((0, 7)))
        elif choice < 0.76:
            self.move(*rng.choice(held), rng.choice(queues))
        elif choice < 0.79:
            self.reference(rng.choice(held)[0], rng.choice(queues))
        elif choice < 0.9:
            self.commit()
        else:
            self.tick(rng.random() < 0.5)

    def _new_key(self, rng: random.Random, queues: list[int]) -> tuple[int, bytes] | None:
        key = (rng.choice(queues), rng.randbytes(2))
        return key if rng.random() < 0.2 and not self.store.seen(*key) else None
