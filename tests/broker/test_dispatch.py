"""Which consumer gets which message: turns, credit, selectors, drains."""

from __future__ import annotations

from typing import Any

from enmasse.amqp.limits import Limits
from enmasse.amqp.link import Sender
from services.broker.core.queues.queue import Queue
from tests.amqp.engine_kit import Pair, Recorder
from tests.broker.sansio import Core, Outlet, QueueConsumer, more, outlet, taken


def test_consumers_take_turns_by_credit() -> None:
    core = Core()
    q = core.queue()
    a, b = core.consumer(q, 2), core.consumer(q, 10)
    for n in range(6):
        core.send(n)
    assert taken(a) == [0, 2]
    assert taken(b) == [1, 3, 4, 5]
    core.send(6)
    assert taken(a) == []
    more(a, 1)
    core.send(7)
    assert sorted([*taken(a), *taken(b)]) == [6, 7]


def test_what_comes_back_keeps_its_place() -> None:
    core = Core()
    q = core.queue()
    a = core.consumer(q, 4)
    for n in range(6):
        core.send(n)
    messages = [token for _, token in outlet(a).take()]
    q.outcomes.release(a, [messages[2], messages[0]])
    b = core.consumer(q, 10)
    assert taken(b) == [0, 2, 4, 5]


def test_selectors_do_not_hold_each_other_up() -> None:
    core = Core()
    q = core.queue()
    red = core.consumer(q, 1, "colour = 'red'")
    blue = core.consumer(q, 5, "colour = 'blue'")
    for n, colour in enumerate(["red", "red", "blue", "green", "red", "blue"]):
        core.send(n, properties={"colour": colour})
    assert taken(red) == [0]
    assert taken(blue) == [2, 5]
    more(red, 5)
    assert taken(red) == [1, 4]
    assert taken(core.consumer(q, 5)) == [3]


def test_a_search_goes_on_where_it_was_among_priorities() -> None:
    core = Core()
    q = core.queue()
    for n in range(2000):
        core.send(n, properties={"n": n}, priority=4 if n % 2 else 7)
    found = core.consumer(q, 3, "n >= 1997")
    for _ in range(20):
        core.broker.run_pending()
    assert taken(found) == [1998, 1997, 1999]
    turns: list[int] = []
    core.broker.on_pending = lambda: turns.append(1)
    core.broker.run_pending()
    assert not turns, "nothing is left to look for"


def test_a_long_search_lets_others_have_their_turn() -> None:
    core = Core()
    q = core.queue()
    for n in range(2000):
        core.send(n, properties={"n": n})
    turns: list[int] = []
    core.broker.on_pending = lambda: turns.append(1)
    found = core.consumer(q, 3, "n >= 1990")
    assert taken(found) == []
    while len(turns) < 50 and not (got := taken(found)):
        core.broker.run_pending()
    assert got == [1990, 1991, 1992]
    assert len(turns) >= 3


def test_a_drain_is_answered_after_everything_was_sent() -> None:
    core = Core()
    q = core.queue()
    for n in range(3):
        core.send(n)
    consumer = core.consumer(q)
    outlet(consumer).drain = True
    more(consumer, 10)
    assert (taken(consumer), outlet(consumer).credit, outlet(consumer).drain) == ([0, 1, 2], 0, False)


def test_a_drain_is_answered_after_more_messages_than_the_window_of_the_session_takes() -> None:
    core = Core()
    q = core.queue()
    for n in range(40):
        core.send(n)
    consumer = QueueConsumer(q, 0)

    class Server(Recorder):
        def on_flow(self, link: Sender) -> None:
            consumer.outlet = link
            q.flow(consumer)

    pair = Pair(server=Server(), client_fields={"limits": Limits(incoming_window=8)})
    q.dispatcher.attach(consumer)
    receiver = pair.receiver(window=0)
    receiver.grant(50)
    receiver.drain_credit()
    pair.run()
    assert (len(pair.client.received), pair.client.names()[-1], receiver.credit) == (40, "drained", 0)


class AsksAgain(Outlet):
    """A link that has been waiting for room: as soon as a large message has left, it asks for more, within `send`."""

    def __init__(self, queue: Queue, credit: int) -> None:
        super().__init__(credit)
        self.queue = queue
        self.consumer: QueueConsumer

    def send(self, payload: bytes, token: Any = None, *, settled: bool = False) -> int:
        number = super().send(payload, token, settled=settled)
        self.queue.flow(self.consumer)
        return number


def test_who_asks_for_more_while_it_is_sent_to_gets_each_message_once() -> None:
    core = Core()
    q = core.queue()
    for n in range(200):
        core.send(n)
    link = AsksAgain(q, 0)
    consumer = QueueConsumer(q, 0)
    consumer.outlet, link.consumer = link, consumer
    q.dispatcher.attach(consumer)
    got: list[Any] = []
    for credit in (1, 30, 7, 100, 200):
        link.credit = credit
        q.flow(consumer)
        got += taken(consumer)
    core.send(200)
    got += taken(consumer)
    assert got == list(range(201))
    assert len(consumer.unsettled) == 201 and q.count == 201


def test_a_message_that_waits_is_in_its_queue_only() -> None:
    core = Core()
    queues = [core.queue(name) for name in ("normal", "urgent", "returned", "many", "empty")]
    core.send("n", "normal")
    core.send("u", "urgent", priority=9)
    core.send("u", "urgent")
    consumer = core.consumer(queues[2], 1)
    core.send("r", "returned")
    queues[2].detach(consumer)
    for n in range(3000):  # more than are kept beside each other in memory
        core.send(n, "many")
    assert [len(list(queue.order.messages())) for queue in queues] == [1, 2, 1, 3000, 0]
    assert [queue.count for queue in queues] == [1, 2, 1, 3000, 0]
