"""Which of several consumers gets a delivery, and what a slow one does to the others."""

from __future__ import annotations

from collections import Counter

from proton import Message

from tests.router.harness import RouterProcess, idle, outcome_of, post, pump, pump_until


def test_balanced_spreads_evenly(router: RouterProcess, address: str) -> None:
    connection = router.connect()
    receivers = [connection.create_receiver(address, credit=100, name=f"r{i}") for i in range(4)]
    sender = connection.create_sender(address)
    for i in range(100):
        post(sender, Message(body=i))
    connection.wait(lambda: sum(len(r.fetcher.incoming) for r in receivers) == 100)
    shares = [len(r.fetcher.incoming) for r in receivers]
    assert max(shares) - min(shares) <= 10, shares
    connection.close()


def test_ties_rotate(router: RouterProcess, address: str) -> None:
    connection = router.connect()
    receivers = [connection.create_receiver(address, credit=100, name=f"r{i}") for i in range(3)]
    sender = connection.create_sender(address)
    shares: Counter[int] = Counter()
    for i in range(12):
        delivery = post(sender, Message(body=i))
        connection.wait(lambda: any(r.fetcher.incoming for r in receivers))
        for n, receiver in enumerate(receivers):
            if receiver.fetcher.incoming:
                receiver.receive()
                receiver.accept()
                shares[n] += 1
        outcome_of(connection, delivery)
    assert shares == {0: 4, 1: 4, 2: 4}
    connection.close()


def test_a_slow_consumer_slows_only_its_own_share(router: RouterProcess, address: str) -> None:
    slow, fast, producer = router.connect(), router.connect(), router.connect()
    slow_receiver = slow.create_receiver(address, credit=1000)
    fast_receiver = fast.create_receiver(address, credit=1000)
    sender = producer.create_sender(address)
    done = 0
    for first in range(0, 400, 10):
        for i in range(first, first + 10):
            post(sender, Message(body=i))

        def come() -> bool:
            return done + len(fast_receiver.fetcher.incoming) + len(slow_receiver.fetcher.incoming) == first + 10

        pump_until(come, "the ten have come to one of the two", fast, slow)
        while fast_receiver.fetcher.incoming:
            fast_receiver.receive()
            fast_receiver.accept()
            done += 1
        # The fast one is not slower than the next ten: the router knows what it did.
        pump(fast)
        idle(fast)
    idle(slow)
    assert len(slow_receiver.fetcher.incoming) + done == 400
    assert done > 300, done
    for connection in (slow, fast, producer):
        connection.close()


def test_a_consumer_that_never_settles_holds_only_what_it_has(router: RouterProcess, address: str) -> None:
    stuck, busy, producer = router.connect(), router.connect(), router.connect()
    held = stuck.create_receiver(address, credit=0, name="stuck")
    held.link.flow(10)
    pump(stuck)
    sender = producer.create_sender(address)
    for i in range(250):  # all that the router lets in
        post(sender, Message(body=i))
    stuck.wait(lambda: len(held.fetcher.incoming) == 10)
    receiver = busy.create_receiver(address, credit=50, name="busy")
    got = []
    for _ in range(240):
        got.append(receiver.receive().body)
        receiver.accept()
    assert got == list(range(10, 250))  # what waited for the one that is stuck, in order
    for connection in (stuck, busy, producer):
        connection.close()


def test_later_messages_do_not_overtake_those_that_wait_for_another_consumer(
    router: RouterProcess, address: str
) -> None:
    """Nobody has credit when they come, and the consumer that gets some next is not the one for which others wait."""
    stuck, busy, producer = router.connect(), router.connect(), router.connect()
    stuck.create_receiver(address, credit=0, name="stuck")
    sender = producer.create_sender(address)
    for i in range(100):
        post(sender, Message(body=i))
    idle(producer)  # they wait for the only consumer
    receiver = busy.create_receiver(address, credit=0, name="busy")
    got: list[int] = []

    def take(count: int) -> None:
        receiver.link.flow(count)
        busy.wait(lambda: len(receiver.fetcher.incoming) == count)
        for _ in range(count):
            got.append(receiver.fetcher.pop().body)
            receiver.accept()
        idle(busy)

    take(50)
    for i in range(100, 110):  # it has less to do now than the other one
        post(sender, Message(body=i))
    idle(producer)
    take(60)
    assert got == list(range(110))
    for connection in (stuck, busy, producer):
        connection.close()


def test_closest_takes_turns(router: RouterProcess) -> None:
    connection = router.connect()
    receivers = [connection.create_receiver("near", credit=100, name=f"r{i}") for i in range(2)]
    sender = connection.create_sender("near")
    for i in range(20):
        post(sender, Message(body=i))
    connection.wait(lambda: sum(len(r.fetcher.incoming) for r in receivers) == 20)
    assert [len(r.fetcher.incoming) for r in receivers] == [10, 10]
    connection.close()
