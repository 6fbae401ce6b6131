"""What is asked of a broker first, and how much of the rest at a time; and how long a broker is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

import pytest

from enmasse.amqp.messages.message import Message
from enmasse.control import ConnectionLost, Reply
from services.subserv.brokers import binding, conversation
from services.subserv.brokers.binding import while_it_answers
from services.subserv.brokers.broker_requests import BrokerListing
from services.subserv.brokers.brokers import Broker
from services.subserv.brokers.conversation import OPERATIONS, BrokerConversation, QueueOwner, Want
from tests.kit.running import asyncio_test
from tests.kit.waiting import until

DONE = Message("null").encode()


class Management:
    """Takes note of what is asked, and answers when `answer` is called."""

    def __init__(self, *_: Any) -> None:
        self.asked: list[tuple[str, str]] = []
        self._unanswered: list[asyncio.Future[Reply]] = []

    def ask(self, what: str, id: str) -> asyncio.Future[Reply]:
        self.asked.append((what, id))
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._unanswered.append(future)
        return future

    def create(self, id: str, created: int) -> asyncio.Future[Reply]:
        return self.ask("create", id)

    def destroy(self, id: str) -> asyncio.Future[Reply]:
        return self.ask("destroy", id)

    def divert(self, id: str, pattern: str) -> asyncio.Future[Reply]:
        return self.ask("divert", id)

    def undivert(self, id: str, pattern: str) -> asyncio.Future[Reply]:
        return self.ask("undivert", id)

    def answer(self) -> list[tuple[str, str]]:
        """Everything that was asked since, which is answered."""
        asked, self.asked = self.asked, []
        unanswered, self._unanswered = self._unanswered, []
        for future in unanswered:
            future.set_result(Reply({"_AMQ_OperationSucceeded": True}, DONE))
        return asked

    async def opened(self) -> None: ...

    async def configure(self) -> None: ...

    async def listing(self) -> BrokerListing:
        return BrokerListing([], [])

    def close(self) -> None: ...


class Feed:
    attached = False

    async def attach(self, connection: object, address: str) -> None:
        self.attached = True

    def mark(self) -> asyncio.Future[int]:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        future.set_result(0)
        return future

    def lost(self) -> None:
        self.attached = False

    detach = lost


class Owner:
    """Who wants so many patterns."""

    complete = True
    suite = ""
    has_earlier = False

    def claim(self, broker: str, id: str, created: int | None) -> QueueOwner:
        return QueueOwner.OURS

    def is_known(self, created: int) -> bool:
        return True

    def __init__(self) -> None:
        self.wants: dict[str, int] = {}

    def want(self, broker: str, id: str, *, held: bool) -> Want | None:
        return Want(1, {f"p/{n}" for n in range(self.wants[id])}) if id in self.wants else None

    def ids(self) -> Iterable[str]:
        return list(self.wants)

    def placement_changed(self, ids: Iterable[str]) -> None: ...


class Connection:
    is_gone = False


@asyncio_test
async def test_who_waits_comes_before_what_others_have_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    management, owner = Management(), Owner()
    monkeypatch.setattr(conversation, "BrokerManagement", lambda *_: management)
    talk = BrokerConversation("b", owner, cast(Any, Feed()))
    running = asyncio.ensure_future(talk.session(cast(Any, Connection())))
    gone = [f"gone-{n}" for n in range(20)]
    owner.wants = dict.fromkeys(gone, 300)
    talk.touch(gone)
    while len(talk.held) < len(gone):
        assert len(management.answer()) < OPERATIONS + 301
        await asyncio.sleep(0)
    owner.wants = {}
    for id in gone:
        talk.subscriber_ended(id)
    await until(lambda: management.asked)
    owner.wants["new"] = 1
    bound = asyncio.ensure_future(talk.bound("new"))
    await asyncio.sleep(0)
    left = management.answer()
    assert 0 < len(left) < OPERATIONS + 301, "a portion, whose answers are waited for"
    await until(lambda: management.asked)
    asked = management.answer()
    assert asked[:2] == [("create", "new"), ("divert", "new")]
    await bound
    left += asked[2:]
    while len(talk.held) > 1:
        left += management.answer()
        await asyncio.sleep(0)
    assert sorted(id for what, id in left if what == "destroy") == sorted(gone)
    assert len(left) == len(gone) * 301
    running.cancel()
    await asyncio.wait([running])


class SlowManagement(Management):
    """Answers nothing, the question for the queues neither."""

    slow = True

    async def listing(self) -> BrokerListing:
        self.asked.append(("list", ""))
        if self.slow:
            await asyncio.Event().wait()
        return BrokerListing([], [])


@pytest.mark.parametrize("slow", [True, False], ids=["reading", "binding"])
@asyncio_test
async def test_who_waits_for_a_broker_that_goes_learns_it(monkeypatch: pytest.MonkeyPatch, slow: bool) -> None:
    management, owner = SlowManagement(), Owner()
    management.slow = slow
    monkeypatch.setattr(conversation, "BrokerManagement", lambda *_: management)
    talk = BrokerConversation("b", owner, cast(Any, Feed()))
    owner.wants["new"] = 1
    work: Callable[[], Awaitable[Any]] = talk.read_now if slow else lambda: talk.bound("new")
    waiting = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    running = asyncio.ensure_future(talk.session(cast(Any, Connection())))
    await until(lambda: ("list", "") in management.asked if slow else ("create", "new") in management.asked)
    running.cancel()  # as `Broker.close` does: the session ends after the conversation
    talk.close()
    await asyncio.wait([running])
    for each in (waiting, asyncio.ensure_future(work())):
        await until(each.done)
        with pytest.raises(ConnectionLost):
            await each


class Talking:
    """A broker that says something before each look, so many times; half way what it works at is done, if ever."""

    def __init__(self, says: int) -> None:
        self.half = asyncio.Event()
        self._heard, self._says = 0, says

    @property
    def heard(self) -> int:
        self._heard = min(self._heard + 1, self._says)
        if self._heard > self._says // 2:
            self.half.set()
        return self._heard

    async def work(self) -> str:
        await self.half.wait()
        return "done"

    async def hang(self) -> str:
        await asyncio.get_running_loop().create_future()
        return "never"


@asyncio_test
async def test_a_broker_is_waited_for_while_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "PATIENCE", 0.001)
    busy, silent = Talking(1000), Talking(3)
    assert await while_it_answers(cast(Broker, busy), busy.work()) == "done"
    with pytest.raises(TimeoutError):
        await while_it_answers(cast(Broker, silent), silent.hang())
    monkeypatch.setattr(binding, "LONGEST", 0.01)
    endless = Talking(1_000_000_000)
    with pytest.raises(TimeoutError):
        await while_it_answers(cast(Broker, endless), endless.hang())
