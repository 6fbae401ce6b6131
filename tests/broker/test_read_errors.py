"""A message that cannot be read now stays in its place; one that is damaged is finished, counted and shown."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from services.broker.app import health_of
from services.broker.core.errors import BrokerError
from services.broker.core.queues.browser import Browser
from services.broker.core.queues.queue import Queue
from services.broker.core.queues.stalls import FIRST, LONGEST
from services.broker.selector import compile_selector
from services.broker.storage.paging import Pager

from .disks import DeafFiles
from .harness import BrokerProcess, until
from .load import Receiver, Sender
from .sansio import Core, Outlet, decoded, more, outlet, taken

FAULTS: dict[str, Callable[[DeafFiles], None]] = {
    "gone": lambda disk: setattr(disk, "error", OSError(errno.ENOENT, "No such file or directory")),
    "descriptors": lambda disk: setattr(disk, "error", OSError(errno.EMFILE, "Too many open files")),
    "input": lambda disk: setattr(disk, "error", OSError(errno.EIO, "Input/output error")),
    "short": lambda disk: setattr(disk, "short", 20),
    "empty": lambda disk: setattr(disk, "short", 0),
}


def well(disk: DeafFiles) -> None:
    disk.error = disk.short = disk.fails = None


@pytest.fixture
def core(tmp_path: Path) -> Iterator[Core]:
    """A queue `q` with 40 messages, each of some 1 KB, in several segments; their payloads are on disk."""
    core = Core(tmp_path, segment_size=8192, files=DeafFiles(), memory_limit=0)
    core.queue()
    for n in range(40):
        core.send(n, durable=True, properties={"n": n, "fill": "x" * 1000})
    core.commit()
    core.restart()
    yield core
    if core.store is not None:
        core.store.close()


def disk_of(core: Core) -> DeafFiles:
    assert isinstance(core.files, DeafFiles)
    return core.files


def held(queue: Queue) -> int:
    assert queue.count == len(list(queue.messages())) + queue.dispatcher.delivering + len(queue.schedule)
    return queue.count


@pytest.mark.parametrize("selector", [None, "n >= 0"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_queue_stands_still_until_it_can_be_read(core: Core, fault: str, selector: str | None) -> None:
    q = core.broker.catalogue.queues["q"]
    disk = disk_of(core)
    consumer = core.consumer(q, 10, selector=selector)
    assert taken(consumer) == list(range(10))
    FAULTS[fault](disk)
    more(consumer, 100)
    core.broker.run_pending()
    got = taken(consumer)  # what was read ahead
    assert q.dispatcher.stalled and held(q) == 40 and not q.attempts and not q.lost
    assert "q" in core.broker.stalls.reasons()
    tries = disk.refused
    for _ in range(20):
        core.tick(LONGEST)
    assert tries + 20 <= disk.refused <= tries + 100, "it is tried again, and not all the time"
    assert not taken(consumer) and held(q) == 40
    core.send(40, durable=True, properties={"n": 40})  # what comes now waits behind the others
    core.commit()
    assert not taken(consumer)
    well(disk)
    core.tick(LONGEST)
    core.broker.run_pending()
    got += taken(consumer)
    assert got == list(range(10, 41)) and not core.broker.stalls
    assert held(q) == 41 and not q.attempts and not q.lost
    q.outcomes.accept(consumer, list(consumer.unsettled.values()))
    core.commit()
    core.restart()
    assert core.broker.catalogue.queues["q"].count == 0


@pytest.mark.parametrize("fault", FAULTS)
def test_browsing_goes_on_where_it_stood(core: Core, fault: str) -> None:
    q = core.broker.catalogue.queues["q"]
    out = Outlet(5)
    browser = Browser(q, out, compile_selector("n >= 0"))
    q.browsers.append(browser)
    browser.look()
    FAULTS[fault](disk_of(core))
    out.credit, out.drain = 100, True
    browser.look()
    core.tick(FIRST)
    assert out.drain, "the end was reported, and it is not known"
    assert not q.dispatcher.stalled, "a browser stalls only itself"
    well(disk_of(core))
    core.tick(LONGEST)
    assert [decoded(payload).body for payload, _ in out.take()] == list(range(40))
    assert not out.drain and held(q) == 40


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("way", ["rejected", "used up", "expired", "expired and waiting"])
def test_what_cannot_be_read_is_not_lost_on_its_way_elsewhere(tmp_path: Path, fault: str, way: str) -> None:
    core = Core(tmp_path, segment_size=8192, files=DeafFiles(), memory_limit=0)
    broker, disk = core.broker, disk_of(core)
    broker.catalogue.settings.put(
        "q", {"DLA": "dead", "expiryAddress": "dead", "maxDeliveryAttempts": 1, "expiryDelay": -1}
    )
    q = core.queue()
    dead = core.queue("dead")
    ttl: dict[str, Any] = {"ttl": 5} if way.startswith("expired") else {}
    for n in range(20):
        core.send(n, durable=True, properties={"fill": "x" * 1000}, **ttl)
    core.commit()
    consumer = core.consumer(q, 0 if ttl else 20)
    FAULTS[fault](disk)
    messages = list(consumer.unsettled.values())
    if way == "rejected":
        q.outcomes.reject(consumer, messages)
    elif way == "used up":
        q.outcomes.modify(consumer, messages, failed=True, elsewhere=False)
    elif way == "expired":
        core.now += 6000
        more(consumer, 20)
    else:
        core.tick(6000)
    core.commit()
    assert q.dispatcher.stalled and held(q) + dead.count == 20 and held(q) > 0
    well(disk)
    outlet(consumer).take()
    for _ in range(30):
        core.tick(LONGEST)
        if way == "rejected":  # they are delivered once more
            q.outcomes.reject(consumer, list(consumer.unsettled.values()))
        more(consumer, 1)
    core.commit()
    assert held(q) == 0 and dead.count == 20 and not q.lost
    assert sorted(taken(core.consumer(dead, 100))) == list(range(20))
    if way == "used up":
        assert not taken(consumer), "its last delivery was over"
    assert core.store is not None
    core.store.close()


@pytest.mark.parametrize("operation", ["move", "dead", "expire", "remove", "retry"])
@pytest.mark.parametrize("filter", [None, "n < 30"])
def test_management_loses_nothing_that_cannot_be_read(core: Core, operation: str, filter: str | None) -> None:
    broker, disk = core.broker, disk_of(core)
    broker.catalogue.settings.put("q", {"DLA": "other", "expiryAddress": "other"})
    broker.catalogue.addresses["q"].apply(broker.catalogue.settings.get("q"))
    q = broker.catalogue.queues["q"]
    other = core.queue("other")
    calls: dict[str, tuple[str, list[Any]]] = {
        "move": ("moveMessages", [filter, "other"]),
        "dead": ("sendMessagesToDeadLetterAddress", [filter]),
        "expire": ("expireMessages", [filter]),
        "remove": ("removeMessages", [filter or "n >= 0"]),
        "retry": ("retryMessages", []),
    }
    name, arguments = calls[operation]
    disk.error = OSError(errno.EIO, "Input/output error")
    left = iter(range(3))
    disk.fails = lambda: next(left, None) is None  # the first few reads still work
    try:
        core.ask(q, name, *arguments)
    except BrokerError as error:
        assert "cannot be read" in str(error)
    gone = other.count if operation != "remove" else 40 - held(q)
    assert held(q) == 40 - gone and not q.lost
    well(disk)
    core.tick(LONGEST)
    core.ask(q, name, *arguments)
    expected = 30 if filter and operation != "retry" else 40
    if operation == "retry":
        assert held(q) == 40
    else:
        assert held(q) == 40 - expected and (operation == "remove" or other.count == expected)
    core.commit()
    core.restart()
    assert core.broker.catalogue.queues["q"].count == (40 if operation == "retry" else 40 - expected)


@pytest.mark.parametrize("fault", FAULTS)
def test_paged_messages_wait_as_well(tmp_path: Path, fault: str) -> None:
    disk = DeafFiles()
    core = Core(pager=Pager(tmp_path, file_size=4096, files=disk), memory_limit=0)
    q = core.queue()
    for n in range(300):
        core.send(n, properties={"fill": "x" * 1000})
    FAULTS[fault](disk)
    consumer = core.consumer(q, 400)
    core.broker.run_pending()
    got = taken(consumer)
    assert q.dispatcher.stalled and held(q) == 300
    well(disk)
    core.tick(LONGEST)
    core.broker.run_pending()
    assert got + taken(consumer) == list(range(300)) and not q.lost


def test_a_damaged_message_is_counted_and_the_others_go_on(core: Core) -> None:
    q = core.broker.catalogue.queues["q"]
    assert core.store is not None
    places = [core.store.live.index.find(message.id) for message in q.messages()]
    for number in (5, 6, 30):
        place = places[number]
        assert place is not None
        path = core.store.journal.segments[place[0] >> 32].path
        data = bytearray(path.read_bytes())
        data[(place[0] & 0xFFFFFFFF) + place[1] // 2] ^= 1
        path.write_bytes(data)
    consumer = core.consumer(q, 100)
    core.broker.run_pending()
    assert taken(consumer) == [n for n in range(40) if n not in (5, 6, 30)]
    assert q.lost == 3 and held(q) == 37 and not q.dispatcher.stalled
    assert "3 of queue q" in health_of(core.broker)[1]
    assert health_of(core.broker)[0], "it is over: nothing stands still"


def test_health_says_what_stands_still_and_what_to_do(core: Core) -> None:
    assert core.store is not None
    disk_of(core).error = OSError(errno.EMFILE, "Too many open files")
    core.consumer(core.broker.catalogue.queues["q"], 100)
    ready, detail = health_of(core.broker)
    assert not ready and "queue q" in detail and "Too many open files" in detail and "ulimit -n" in detail
    well(disk_of(core))
    core.tick(LONGEST)
    assert health_of(core.broker) == (True, "")


@pytest.mark.parametrize("fault", FAULTS)
def test_compaction_waits_for_a_segment_that_cannot_be_read(core: Core, fault: str) -> None:
    store, disk = core.store, disk_of(core)
    assert store is not None
    q = core.broker.catalogue.queues["q"]
    keep = [message.id for message in q.messages()][::10]
    for message in list(q.messages()):
        if message.id not in keep:
            store.remove(message.id, q.id)
    store.flush()
    FAULTS[fault](disk)
    for _ in range(200):
        store.tick()
        store.flush()
    well(disk)
    for _ in range(200):
        store.tick()
        store.flush()
    core.restart()
    assert [message.id for message in core.broker.catalogue.queues["q"].messages()] == keep


WRAPPER = """
import runpy, services.broker.storage.journal.segment_files as segment_files
segment_files.READERS = 1
runpy.run_module("services.broker", run_name="__main__")
"""


@pytest.mark.parametrize("fault", ["moved away", pytest.param("descriptors", marks=pytest.mark.slow)])
def test_a_broker_whose_files_are_not_to_be_had_loses_nothing(tmp_path: Path, fault: str) -> None:
    """The process: it goes on serving, says what is wrong, and delivers everything once it can, each message once and
    with a delivery count of 0."""
    data = tmp_path / "data"
    broker = BrokerProcess(tmp_path, global_max_size=1 << 20).start(["-c", WRAPPER])
    with broker.manage() as m:
        m.queue("q")
    sender = Sender(broker.url, "q", limit=600, size=100_000)
    until(lambda: len(sender.accepted) == 600, "everything to be accepted", moves=lambda: len(sender.accepted))
    sender.stop()
    broker.stop()
    broker.start(["-c", WRAPPER])
    assert broker.process is not None
    pid = broker.process.pid
    aside = tmp_path / "aside"
    aside.mkdir()
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with broker.manage() as m:
        receiver = Receiver(broker.url, "q")
        until(lambda: receiver.count, "messages to flow")
        if fault == "moved away":
            for path in sorted(data.glob("*.journal"))[1:]:
                shutil.move(path, aside / path.name)

        def stalled() -> bool:
            if fault == "descriptors":  # again and again: one may have been open for a moment only
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), limits[1]))
            return m.rows()["q"]["stalled"] == "true"

        until(stalled, "the queue to stand still")
        assert m.count("q") >= 600 - receiver.count > 0
        if fault == "moved away":
            for path in aside.iterdir():
                shutil.move(path, data / path.name)
        else:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        until(lambda: m.count("q") == 0, "the queue to be empty", moves=lambda: receiver.count)
        assert receiver.got == dict.fromkeys(range(600), 1) and not receiver.counted
        assert m.attribute("queue.q", "messagesLost") == 0
        receiver.stop()
    until(broker.ready, "the broker to be well again")
    broker.stop()
