"""Full addresses. The sizes of a message differ between engines: the embedded broker counts its bytes."""

from __future__ import annotations

import contextlib

import pytest
from proton import Delivery, Message
from proton.utils import BlockingConnection, SendException

from tests.broker.harness import Management, attach, bodies, flush, until
from tests.contract.conftest import Expected

KIB = "x" * 1000
ROOM = 20_000


def limit(m: Management, name: str, policy: str) -> None:
    m.settings(name, maxSizeBytes=ROOM, pageSizeBytes=ROOM // 2, addressFullMessagePolicy=policy)


def test_fail_rejects_what_has_no_room(c: BlockingConnection, m: Management, q: str, expected: Expected) -> None:
    limit(m, q, "FAIL")
    sender = c.create_sender(q)
    sent = 0
    with pytest.raises(SendException) as caught:
        for sent in range(50):  # noqa: B007 - counted after the loop
            sender.send(Message(body=KIB, durable=True))
    assert caught.value.state == Delivery.REJECTED
    assert 5 < sent <= 20
    assert (sent >= 19) is expected(embedded=True, artemis=False)
    delivery = sender.link.send(Message(body=KIB))
    c.wait(lambda: delivery.settled)
    assert delivery.remote.condition.name == "amqp:resource-limit-exceeded"
    assert f'Address "{q}" is full' in delivery.remote.condition.description
    assert m.count(q) == sent
    bodies(attach(c, q, sent), sent)

    def accepted() -> bool:
        with contextlib.suppress(SendException):  # acknowledgements may take their time
            sender.send(Message(body=KIB, durable=True))
            return True
        return False

    until(accepted, "room")


def test_drop_accepts_and_forgets(c: BlockingConnection, m: Management, q: str) -> None:
    limit(m, q, "DROP")
    sender = c.create_sender(q)
    for _ in range(50):
        sender.send(Message(body=KIB))
    assert 5 < m.count(q) < 30


def test_page_takes_what_memory_does_not_hold(c: BlockingConnection, m: Management, q: str) -> None:
    limit(m, q, "PAGE")
    sender = c.create_sender(q)
    for n in range(60):
        sender.send(Message(body=f"{n}{KIB}", durable=n % 2 == 0))
    assert m.count(q) == 60
    assert [body[: -len(KIB)] for body in bodies(c.create_receiver(q, credit=10), 60)] == [str(n) for n in range(60)]


def test_block_stops_credit_until_there_is_room(
    c: BlockingConnection, m: Management, q: str, expected: Expected
) -> None:
    """What was granted before it was full may still come: a thousand messages, or what has room."""
    limit(m, q, "BLOCK")
    sender = c.create_sender(q)
    c.wait(lambda: sender.link.credit)
    sent = 0
    while sender.link.credit and sent < 3000:
        sender.link.send(Message(body=KIB))
        sent += 1
        if not sender.link.credit or sent % 100 == 0:
            flush(sender)
    assert (sent < 500, sent <= 1000) == expected(embedded=(True, True), artemis=(False, True))
    until(lambda: m.count(q) == sent, "all that was granted")
    assert m("removeMessages", None, resource=f"queue.{q}") == sent
    c.wait(lambda: sender.link.credit, msg="credit again")
    sender.send(Message(body=KIB))
