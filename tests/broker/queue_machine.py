"""A model of one queue: random clients, every message is in one place, and the counts agree with it."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.broker.sansio import Core, QueueConsumer, more, outlet


class QueueMachine(RuleBasedStateMachine):
    """Random clients of one queue: every message is in one place, and the counts say so."""

    def __init__(self) -> None:
        super().__init__()
        self.core = self.begin()
        self.core.broker.catalogue.put_settings("q", {"maxDeliveryAttempts": -1})
        self.q = self.core.queue()
        self.consumers: list[QueueConsumer] = []
        self.held: dict[QueueConsumer, list[Any]] = {}
        self.sent = 0
        self.done: set[int] = set()

    def begin(self) -> Core:
        return Core()

    def durable(self) -> bool:
        """Whether the next message is."""
        return False

    def collect(self) -> None:
        for consumer in self.consumers:
            self.held[consumer] += [token for _, token in outlet(consumer).take()]

    @rule(priority=st.sampled_from([4, 4, 4, 9, 0]), odd=st.booleans(), delay=st.sampled_from([0, 0, 50]))
    def send(self, priority: int, odd: bool, delay: int) -> None:
        annotations = {"x-opt-delivery-delay": delay} if delay else None
        properties = {"odd": odd}
        self.core.send(
            self.sent, durable=self.durable(), priority=priority, properties=properties, annotations=annotations
        )
        self.sent += 1
        self.sent_some()
        self.collect()

    def sent_some(self) -> None:
        """Messages were sent."""

    @precondition(lambda self: len(self.consumers) < 4)
    @rule(
        selector=st.sampled_from([None, None, "odd = TRUE"]),
        priority=st.sampled_from([0, 0, 3]),
        credit=st.integers(0, 5),
    )
    def attach(self, selector: str | None, priority: int, credit: int) -> None:
        consumer = self.core.consumer(self.q, 0, selector, priority=priority)
        self.consumers.append(consumer)
        self.held[consumer] = []
        more(consumer, credit)
        self.collect()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), credit=st.integers(1, 5))
    def grant(self, data: st.DataObject, credit: int) -> None:
        more(data.draw(st.sampled_from(self.consumers)), credit)
        self.collect()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), outcome=st.sampled_from(["accept", "release", "failed", "elsewhere", "reject"]))
    def settle(self, data: st.DataObject, outcome: str) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        held = self.held[consumer]
        chosen = [message for message in held if data.draw(st.booleans())]
        self.held[consumer] = [message for message in held if message not in chosen]
        if outcome == "accept":
            self.q.outcomes.accept(consumer, chosen)
        elif outcome == "release":
            self.q.outcomes.release(consumer, chosen)
        elif outcome == "reject":
            self.q.outcomes.reject(consumer, chosen)
        else:
            self.q.outcomes.modify(consumer, chosen, failed=outcome == "failed", elsewhere=outcome == "elsewhere")
        if outcome in ("accept", "reject"):
            self.done |= {message.id for message in chosen}
        self.collect()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def detach(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        self.consumers.remove(consumer)
        del self.held[consumer]
        self.q.detach(consumer)
        self.core.broker.run_pending()
        self.collect()

    @rule(milliseconds=st.integers(1, 60))
    def wait(self, milliseconds: int) -> None:
        self.core.tick(milliseconds)
        self.collect()

    @invariant()
    def everything_is_somewhere(self) -> None:
        ready = [message.id for message in self.q.messages()]
        scheduled = [message.id for message in self.q.schedule.messages()]
        held = [message.id for messages in self.held.values() for message in messages]
        everywhere = [*ready, *scheduled, *held]
        assert len(set(everywhere)) == len(everywhere), "in one place only"
        assert len(everywhere) + len(self.done) + self.q.arriving == self.sent
        assert self.q.count == len(everywhere) + self.q.arriving
        assert self.core.broker.catalogue.addresses["q"].count == self.q.count
        for consumer, messages in self.held.items():
            assert set(consumer.unsettled) == {message.id for message in messages}
        if self.q.order.levels is None:
            assert ready == sorted(ready)

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        for consumer in self.consumers:
            if outlet(consumer).credit > 0:
                wanted = [m for m in self.q.messages() if self.q.dispatcher.selection.suits(consumer, m)]
                assert not wanted, "a consumer with credit and a message for it"

    def teardown(self) -> None:
        self.core.commit()
        self.collect()
        self.q.disposal.purge()
        for consumer in list(self.consumers):
            self.q.outcomes.accept(consumer, self.held[consumer])
        assert (self.q.count, self.core.broker.ledger.size, self.core.broker.ledger.resident) == (0, 0, 0)
