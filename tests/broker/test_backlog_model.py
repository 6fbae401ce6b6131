"""A queue whose head holds three messages and whose backlog packs two at a time, with random clients, a disk that
fails, compaction and restarts: every message is in one place, in order, readable, and the counts say so."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from services.broker.core import jobs
from services.broker.core.jobs import Work
from services.broker.core.messages.stored_message import STORED, StoredMessage
from services.broker.core.publisher import publish_run
from services.broker.core.queues import backlog
from services.broker.core.queues.browser import Browser
from services.broker.selector import compile_selector
from services.broker.storage.journal import file_operations
from services.broker.storage.paging import Pager
from tests.broker.disks import FailingDisk
from tests.broker.queue_machine import QueueMachine
from tests.broker.sansio import Core, Outlet, decoded, encoded, finished, outlet

ODD = compile_selector("odd = TRUE")


class BacklogMachine(QueueMachine):
    def begin(self) -> Core:
        self.before = backlog.HEAD, backlog.SLICE, file_operations.FILES, jobs.PORTION
        backlog.HEAD, backlog.SLICE, jobs.PORTION = 3, 2, 2
        self.removal: Work[int] | None = None
        self.last = 0
        self.disk = FailingDisk()
        file_operations.FILES = self.disk
        self.directory = Path(tempfile.mkdtemp())
        self.bodies: dict[int, int] = {}  # of messages seen so far
        self.expiring: dict[int, int] = {}
        core = Core(self.directory / "data", segment_size=2048, memory_limit=100, pager=Pager(self.directory / "pages"))
        core.broker.catalogue.put_settings("#", {"redeliveryDelay": 10})
        return core

    def durable(self) -> bool:
        return self.sent % 3 != 0

    # -- more that happens to a queue ----------------------------------------------------------------------------------
    @rule(count=st.integers(1, 6), odd=st.booleans())
    def send_run(self, count: int, odd: bool) -> None:
        route = self.core.broker.catalogue.route("q", None)
        assert route is not None
        payloads = [encoded(self.sent + i, durable=True, properties={"odd": odd}) for i in range(count)]
        assert publish_run(self.core.broker, route, payloads, self.core, 0) == count
        self.sent += count
        self.sent_some()
        self.collect()

    def sent_some(self) -> None:
        if self.sent % 4 and not self.disk.broken:  # else it is on its way until something else is committed
            self.core.commit()

    @rule(ttl=st.integers(1, 40))
    def send_expiring(self, ttl: int) -> None:
        self.core.send(self.sent, durable=self.durable(), ttl=ttl / 1000, properties={"odd": True})
        self.sent += 1
        self.core.commit()
        self.collect()

    @rule(milliseconds=st.integers(1, 60))
    def wait(self, milliseconds: int) -> None:
        super().wait(milliseconds)
        for _ in range(3):  # what was being delivered when it expired is looked for within a second and a half
            super().wait(500)  # limit: milliseconds of the model
        assert not any(0 < message.expires <= self.core.now for message in self.all_waiting())

    def collect(self) -> None:
        super().collect()
        held = [message for messages in self.held.values() for message in messages]
        there = {message.id for message in (*self.all_waiting(), *held)}
        self.done |= {id for id, expires in self.expiring.items() if expires <= self.core.now and id not in there}
        self.expiring = {m.id: m.expires for m in (*self.all_waiting(), *held) if m.expires}

    def all_waiting(self) -> Iterator[StoredMessage]:
        yield from self.q.messages()
        yield from self.q.schedule.messages()

    @rule()
    def commit(self) -> None:
        self.core.commit()
        assert not self.q.arriving
        self.collect()

    @rule()
    def start_housekeeping(self) -> None:
        assert self.core.store is not None
        self.core.store.tick()
        self.commit()

    @precondition(lambda self: not any(outlet(consumer).credit for consumer in self.consumers))
    @rule(count=st.integers(1, 5))
    def fail_to_store(self, count: int) -> None:
        self.commit()
        self.disk.broken = True
        self.send_run(count, False)
        assert self.q.arriving == count
        self.core.commit()
        self.disk.broken = False
        self.done |= set(range(-self.sent, count - self.sent))
        self.commit()

    def is_odd(self, message: StoredMessage) -> bool:
        payload = self.core.broker.payloads.load(message)
        return payload is not None and ODD.matches(self.q.dispatcher.selection.lookup(payload, message))

    @rule()
    def remove_odd(self) -> None:
        odd = {message.id for message in self.all_waiting() if self.is_odd(message)}
        assert finished(self.q.disposal.remove(self.is_odd)) == len(odd)
        self.done |= odd

    @precondition(lambda self: self.removal is None)
    @rule()
    def begin_to_remove_odd(self) -> None:
        """Its portions come between everything else."""
        self.last = max((message.id for message in self.all_waiting()), default=0)
        self.removal = self.q.disposal.remove(self.is_odd)
        self.go_on()

    @precondition(lambda self: self.removal is not None)
    @rule()
    def go_on(self) -> None:
        assert self.removal is not None
        before = {m.id: self.is_odd(m) for m in self.all_waiting()}
        try:
            next(self.removal)
        except StopIteration:
            self.removal = None
        gone = before.keys() - {m.id for m in self.all_waiting()}
        assert all(before[id] and id <= self.last for id in gone)
        self.done |= gone

    @precondition(lambda self: any(True for _ in self.all_waiting()))
    @rule(data=st.data())
    def remove_one(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(message.id for message in self.all_waiting())))
        assert self.core.ask(self.q, "removeMessage", id)
        self.done.add(id)

    @rule()
    def purge(self) -> None:
        self.done |= {message.id for message in self.all_waiting()}
        self.q.disposal.purge()
        assert not list(self.all_waiting())

    @rule(credit=st.integers(1, 3))
    def browse(self, credit: int) -> None:
        browser = Browser(self.q, Outlet(), None)
        expected = [decoded(self.core.broker.payloads.load(m) or b"").body for m in self.q.messages()]
        seen: list[int] = []
        for _ in range(len(expected) + 1):
            browser.outlet.credit = credit  # type: ignore[misc]  # an outlet of this test
            browser.look()
            seen += [decoded(payload).body for payload, _ in browser.outlet.take()]  # type: ignore[attr-defined]  # an outlet of this test
        assert seen == expected

    @rule()
    def restart(self) -> None:
        self.commit()
        everywhere = [*self.all_waiting(), *(m for held in self.held.values() for m in held)]
        stored = sum(bool(m.flags & STORED) for m in everywhere)
        self.core.options["pager"] = Pager(self.directory / "pages")
        self.core.restart()
        self.q = self.core.broker.catalogue.queues["q"]
        self.removal = None
        self.consumers.clear()
        self.held.clear()
        assert self.q.count == stored
        # Ids of what was not durable may be given again: from here on only the number of those that are gone matters.
        self.done = set(range(-1, stored - self.sent - 1, -1))
        self.bodies = {}
        self.expiring = {}
        self.collect()

    # -- what has to be so ---------------------------------------------------------------------------------------------

    @invariant()
    def payloads_are_those_that_were_sent(self) -> None:
        for message in self.all_waiting():
            payload = self.core.broker.payloads.load(message)
            assert payload is not None and len(payload) == message.size
            body = decoded(payload).body
            assert self.bodies.setdefault(message.id, body) == body
        numbers = [body for _, body in sorted(self.bodies.items())]
        assert numbers == sorted(numbers), "ids are as old as their messages"

    @invariant()
    def sums_are_right(self) -> None:
        q, broker = self.q, self.core.broker
        if q.arriving:
            return
        held = [message for consumer in self.consumers for message in consumer.unsettled.values()]
        there = [*self.all_waiting(), *held]
        size = sum(message.size for message in there)
        assert (q.bytes, broker.ledger.size, broker.catalogue.addresses["q"].size) == (size, size, size)
        tail = q.order.backlog
        packed = [m for some in tail.slices for m in some.objects or () if m is not None] if tail is not None else []
        gathered = tail.gathered if tail is not None else []
        levels = [message for level in q.order.levels or (q.order.ready,) for message in level]
        objects = [*levels, *packed, *gathered, *q.schedule.messages(), *held]
        assert broker.ledger.resident == sum(message.size for message in objects if message.payload is not None)
        assert q.expiries.watched == sum(message.expires > 0 for message in there)
        assert self.core.store is not None
        assert len(self.core.store.live.index) == sum(bool(message.flags & STORED) for message in there)

    def teardown(self) -> None:
        super().teardown()
        assert self.core.store is not None
        assert len(self.core.store.live.index) == 0
        self.core.store.close()
        backlog.HEAD, backlog.SLICE, file_operations.FILES, jobs.PORTION = self.before
        shutil.rmtree(self.directory)


TestBacklogMachine = BacklogMachine.TestCase
TestBacklogMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
