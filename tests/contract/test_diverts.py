"""Diverts and selectors as the subscription service uses them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from proton import Message, symbol
from proton.utils import BlockingConnection

from services.subserv.brokers.broker_requests import FEED_ONLY, RETAINED_ONLY, retained_as
from tests.broker.harness import Management, attach, bodies, nothing, take, until
from tests.contract.conftest import Expected

ORIGIN = symbol("x-opt-ORIG-ADDRESS")


@pytest.fixture
def session(m: Management) -> Iterator[str]:
    """A session's queue; the diverts to it go with it."""
    name = f"$sub/b0/{uuid.uuid4()}"
    m.queue(name, user="subserv:1", max_consumers=1)
    yield name
    for divert in m("getDivertNames"):
        if divert.startswith(name):
            m("destroyDivert", divert)
    m("destroyQueue", name, True, True)


def divert(m: Management, session: str, pattern: str, filter: str | None = None) -> str:
    name = f"{session}|{pattern}"
    m("createDivert", name, name, pattern, session, False, filter, None, "ANYCAST")
    return name


def publish(c: BlockingConnection, address: str, body: object, **fields: object) -> None:
    sender = c.create_sender(address, name=str(uuid.uuid4()))
    sender.send(Message(body=body, address=address, durable=True, **fields))
    sender.close()


def test_one_queue_of_many_topics_in_order(c: BlockingConnection, m: Management, t: str, session: str) -> None:
    for pattern in (f"{t}/+/temperature", f"{t}/#/humidity"):
        divert(m, session, pattern)
        divert(m, session, pattern)  # it is there already: no error
    for n, below in enumerate(("a/temperature", "humidity", "a/b/temperature", "b/temperature", "x/humidity")):
        publish(c, f"{t}/{below}", n)
    receiver = attach(c, session, 5)
    assert bodies(receiver, 4) == [0, 1, 3, 4]
    nothing(receiver)
    publish(c, f"{t}/humidity", "waits")
    until(lambda: m.rows()[session]["messageCount"] == "1", "the acknowledgements")
    row = m.rows()[session]
    assert (row["messageCount"], row["internalQueue"], row["user"]) == ("1", "false", "subserv:1"), "`$` hides nothing"
    assert bodies(receiver, 1) == ["waits"]
    name = f"{session}|{t}/+/temperature"
    assert name in m("getDivertNames")
    m("destroyDivert", name)
    publish(c, f"{t}/a/temperature", "no more")
    publish(c, f"{t}/humidity", "more")
    assert bodies(receiver, 1) == ["more"]


def test_a_diverted_message_names_its_topic(
    c: BlockingConnection, m: Management, t: str, session: str, expected: Expected
) -> None:
    """In `to`, or in an annotation."""
    divert(m, session, f"{t}/#")
    publish(c, f"{t}/a", "x")
    publish(c, t, "y")
    receiver = attach(c, session, 2)
    for topic in (f"{t}/a", t):
        message = take(receiver)
        assert (message.address == topic) is expected(embedded=True, artemis=False)
        assert ((message.annotations or {}).get(ORIGIN) == topic) is expected(embedded=False, artemis=True)


def test_a_message_that_two_diverts_cover(
    c: BlockingConnection, m: Management, t: str, session: str, expected: Expected
) -> None:
    divert(m, session, f"{t}/#")
    divert(m, session, f"{t}/a")
    publish(c, f"{t}/a", "x")
    assert m.count(session) == expected(embedded=1, artemis=2)


def test_wildcards_of_diverts_at_the_first_level(
    c: BlockingConnection, m: Management, t: str, q: str, session: str, expected: Expected
) -> None:
    """Topics, or every address, those to which diverts lead among them."""
    divert(m, session, "+", "n = 1")
    publish(c, q, "to a queue", properties={"n": 1})
    publish(c, t, "to a topic", properties={"n": 1})
    assert m.count(session) == expected(embedded=1, artemis=2)


def test_a_divert_when_its_destination_goes(
    c: BlockingConnection, m: Management, t: str, session: str, expected: Expected
) -> None:
    name = divert(m, session, t)
    m("destroyQueue", session, True, True)
    assert (name in m("getDivertNames")) is expected(embedded=False, artemis=True)
    publish(c, t, "is accepted all the same")
    m.queue(session)
    assert m.count(session) == 0


def test_a_divert_to_what_does_not_exist(m: Management, t: str, expected: Expected) -> None:
    def made() -> bool:
        try:
            m("createDivert", f"{t}|x", f"{t}|x", t, f"{t}-missing", False, None, None, "ANYCAST")
        except Exception as error:
            assert "AMQ229203" in str(error)
            return False
        m("destroyDivert", f"{t}|x")
        return True

    assert made() is expected(embedded=False, artemis=True)


def test_filters_by_annotations(c: BlockingConnection, m: Management, t: str, session: str) -> None:
    retained, copy = symbol("x-opt-retain-message"), symbol("x-opt-retained-for")
    divert(m, session, f"{t}/#", RETAINED_ONLY)
    publish(c, f"{t}/a", "live")
    publish(c, f"{t}/a", "retained", annotations={retained: True})
    publish(c, session, "a copy", annotations={retained: True, copy: "t/#"})
    assert m("countMessages", RETAINED_ONLY, resource=f"queue.{session}") == 1
    receiver = attach(c, session, 3)
    assert bodies(receiver, 2) == ["retained", "a copy"]
    nothing(receiver)
    for to in (f"{t}/it's", f"{t}/b"):
        sender = c.create_sender(to)
        sender.send(Message(body="x", address=f"{t}/it's", durable=True, annotations={retained: True}))
        sender.close()
    for name, count in ((f"{t}/it's", 1), (f"{t}/b", 1), (f"{t}/a", 0)):
        assert m("countMessages", retained_as(name), resource=f"queue.{session}") == count, name


def test_the_feed_of_all_retained_messages(
    c: BlockingConnection, m: Management, t: str, q: str, session: str, expected: Expected
) -> None:
    """A divert of everything, which covers the queue that it leads to, and other sessions', too."""
    feed = f"{session}.feed"
    m.queue(feed)
    m("createDivert", f"{session}|feed", f"{session}|feed", "#", feed, False, FEED_ONLY, None, "ANYCAST")
    divert(m, session, f"{t}/#")
    retained = {symbol("x-opt-retain-message"): True}
    for n, address in enumerate((t, f"{t}/a/b", q)):
        publish(c, address, n, annotations=retained)
        publish(c, address, "live")
    assert m.count(session) == 4
    receiver = attach(c, feed, 5)
    of_topics = bodies(receiver, 2)
    assert of_topics == [0, 1]
    receiver.close()
    until(lambda: m.count(feed) == expected(embedded=0, artemis=1), "nothing else, or what was sent to the queue")
    m("destroyDivert", f"{session}|feed")
    m("destroyQueue", feed, True, True)


@pytest.mark.parametrize(
    "full",
    [
        {"addressFullMessagePolicy": "DROP"},
        {"addressFullMessagePolicy": "PAGE", "pageLimitBytes": 20_000, "pageFullMessagePolicy": "DROP"},
    ],
)
def test_a_full_session_drops_the_oldest(
    c: BlockingConnection, m: Management, t: str, session: str, expected: Expected, full: dict[str, Any]
) -> None:
    """A ring by number; by size the oldest go too, or the newest."""
    m.settings(session, maxSizeBytes=20_000, pageSizeBytes=10_000, **full)
    divert(m, session, t)
    for n in range(40):
        publish(c, t, f"{n:02}" + "x" * 1000)
    receiver = attach(c, session, 1)
    oldest = take(receiver).body[:2]
    assert (oldest == "00") is expected(embedded=False, artemis=True)


def test_a_diverted_message_comes_from_where_it_was_sent_whatever_it_states(
    c: BlockingConnection, m: Management, t: str, session: str
) -> None:
    divert(m, session, f"{t}/#")
    stated = {ORIGIN: "elsewhere", symbol("x-opt-ORIG-MESSAGE-ID"): 7, symbol("x-opt-ORIG-QUEUE"): "elsewhere"}
    publish(c, f"{t}/a", "x", annotations=stated)
    found = take(attach(c, session, 1))
    written = found.annotations or {}
    assert (written.get(ORIGIN) or found.address) == f"{t}/a"
    assert written.get(symbol("x-opt-ORIG-QUEUE")) != "elsewhere"
