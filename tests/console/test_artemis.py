"""What the console concludes from the listings of Artemis, without a broker, and from those of one that lies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import proton
import pytest

from enmasse.control import ControlError, ControlLink, ControlSender, Delivery, RequestFailed, connect, listen
from enmasse.control.listings import (
    LARGEST,
    AddressRow,
    ConnectionRow,
    ConsumerRow,
    ListingPage,
    ProducerRow,
    QueueRow,
)
from enmasse.engines.artemis.client_rows import CONNECTIONS, LINKS, NOTHING, ClientListings, ClientTable, Listed, moment
from enmasse.engines.artemis.live import ReportedState, poll_broker
from enmasse.engines.messages.artemis import Content, Row, distinct
from enmasse.engines.messages.selector import both, origin_is, translated
from enmasse.live_state import Merged
from tests.kit.running import asyncio_test

Rows = dict[str, list[dict[str, Any]]]
ENDS = {"localAddress": "10.0.0.1:5672", "remoteAddress": "10.0.0.2:40000"}
QUEUES: Rows = {"listQueues": [{"name": "q", "address": "q", "messagesAdded": "3"}], "listAddresses": []}
CLIENTS: Rows = {
    "listConnections": [{"connectionID": "c1", **ENDS, "users": "u", "protocol": "CORE", "clientID": "app"}],
    "listConsumers": [{"id": "4", **ENDS, "queue": "q", "address": "q", "messagesInTransit": "2"}],
    "listProducers": [{"id": "4", **ENDS, "name": "l", "address": "ANONYMOUS", "msgSent": 5, "msgSizeSent": 70}],
}


def row(id: int, message_id: str | None, priority: int = 4) -> Row:
    return Row(id, True, priority, 0, message_id, None)


def content(text: str, message_id: str | None, priority: int = 4) -> Content:
    return Content(text.encode(), len(text), 0, False, 0, (True, priority, message_id, None))


def test_messages_that_are_alike_get_no_content_in_a_queue_that_changes() -> None:
    rows = [row(1, "a"), row(2, None), row(3, "b"), row(4, "b"), row(5, "b", priority=5), row(6, "gone")]
    contents = [content("A", "a"), content("?", None), content("B", "b"), content("B5", "b", 5), content("new", "n")]
    assert {id: each.payload for id, each in distinct(rows, contents).items()} == {1: b"A", 5: b"B5"}


def test_only_what_has_changed_is_told_after_the_first_look() -> None:
    state, merged = ReportedState("b0"), Merged()
    queues = {"q": QueueRow("q", "q", messageCount="2", messagesAdded="2"), "r": QueueRow("r", "r", messagesAdded="1")}
    connections = {id: {"user": id} for id in ("c1", "c2")}
    clients = {"connections": connections, "links": {}}
    first = state.news(queues, {"t": AddressRow("t", routedMessageCount="7")}, clients)
    merged.apply(first)
    assert first["full"] and merged.component == "b0"
    assert {id: each["messages"] for id, each in merged.kinds["queues"].items()} == {"q": 2, "r": 0}
    assert merged.kinds["addresses"] == {"t": {"in": 7}}
    later = state.news({"q": QueueRow("q", "q", messageCount="1", messagesAdded="2", messagesAcked="1")}, {}, {
        "connections": {"c2": {"user": "c2"}}, "links": {"in-1": {"connection": "c2"}}
    })  # fmt: skip
    assert (later["full"], list(later["queues"]), later["addresses"]) == (False, ["q"], {})
    assert later["removed"] == {"queues": ["r"], "addresses": ["t"], "connections": ["c1"], "links": []}
    assert (later["connections"], list(later["links"])) == ({}, ["in-1"])
    merged.apply(later)
    assert list(merged.kinds["connections"]) == ["c2"]
    assert (list(merged.kinds["queues"]), merged.kinds["queues"]["q"]["out"]) == (["q"], 1)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("JMSPriority > 4 AND color = 'JMSPriority'", "AMQPriority > 4 AND color = 'JMSPriority'"),
        ("JMSDeliveryMode <> 'PERSISTENT'", "AMQDurable <> 'DURABLE'"),
        ("mode = 'PERSISTENT' OR it = 'it''s'", "mode = 'PERSISTENT' OR it = 'it''s'"),
        ("", ""),
    ],
)
def test_selectors_have_the_names_of_its_management(given: str, found: str) -> None:
    assert translated(given) == found


def test_a_name_that_chooses_nothing_is_refused() -> None:
    with pytest.raises(RequestFailed, match="JMSReplyTo"):
        translated("a = 1 OR JMSReplyTo = 'x'")


def test_dead_letters_of_several_addresses_are_chosen() -> None:
    assert both(origin_is(["a", "it's"]), "n = 1") == (
        "(_AMQ_ORIG_ADDRESS = 'a' OR _AMQ_ORIG_ADDRESS = 'it''s') AND (n = 1)"
    )
    assert both("", "n = 1") == both("n = 1", "") == "n = 1"


def listed(
    connections: list[ConnectionRow], consumers: list[ConsumerRow], producers: list[ProducerRow], *, more: int = 0
) -> Listed:
    return Listed(
        ListingPage(connections, len(connections)),
        ListingPage(consumers, len(consumers) + more),
        ListingPage(producers, len(producers)),
    )


def one(consumers: list[ConsumerRow], producers: list[ProducerRow], *, more: int = 0) -> Listed:
    return listed([ConnectionRow("c1", "there:1", "here:2")], consumers, producers, more=more)


def consumer(id: str, delivered: int) -> ConsumerRow:
    return ConsumerRow(id, "q", "q", "here:2", "there:1", messagesDelivered=str(delivered), messagesDeliveredSize="9")


def producer(id: str, sent: int) -> ProducerRow:
    return ProducerRow(id, "l", "q", "here:2", "there:1", msgSent=sent, msgSizeSent=7 * sent)


def carried(table: ClientTable, now: Listed) -> tuple[int, int]:
    row = table.rows(now)["connections"]["c1"]
    return row["in"], row["out"]


def test_a_connection_has_what_its_links_have_carried_also_those_that_are_gone() -> None:
    table = ClientTable(inside=False)
    assert carried(table, one([consumer("1", 4)], [producer("1", 5)])) == (5, 4)
    assert carried(table, one([consumer("1", 6), consumer("2", 1)], [])) == (5, 7)
    assert carried(table, one([], [producer("2", 1)])) == (6, 7)
    assert table.rows(listed([], [], []))["connections"] == {}
    assert carried(table, one([], [producer("2", 3)])) == (3, 0), "another connection with this number"


def test_a_part_of_the_links_is_not_taken_for_all_of_them() -> None:
    table = ClientTable(inside=False)
    assert carried(table, one([consumer("1", 4)], [])) == (0, 4)
    assert carried(table, one([consumer("2", 900)], [], more=3000)) == (0, 4)
    assert carried(table, one([consumer("1", 5)], [])) == (0, 5)


def test_links_belong_to_the_connection_with_their_addresses_if_there_is_one() -> None:
    table = ClientTable(inside=True)
    within = [ConnectionRow(id, "invm:0", "invm:0") for id in ("c2", "c3")]
    found = table.rows(
        listed(
            [ConnectionRow("c1", "there:1", "here:2"), *within],
            [
                consumer("1", 1),
                ConsumerRow("2", "q", "q", "invm:0", "invm:0"),
                ConsumerRow("3", "q", "q", "a:1", "b:2"),
            ],
            [],
        )
    )
    assert {id: row["inside"] for id, row in found["connections"].items()} == {"c1": True, "c2": True, "c3": True}
    assert {id: row["connection"] for id, row in found["links"].items()} == {"out-1": "c1"}


def test_times_are_known_in_utc_and_in_the_zone_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    try:
        texts = [f"Fri Nov 27 {hour} {zone} 2026" for hour, zone in (("23:46:07", "UTC"), ("23:46:07", "GMT"))]
        assert {moment(each) for each in texts} == {1795823167.0}
        assert moment("Sat Nov 28 00:46:07 CET 2026") == 1795823167.0
        assert moment("Mon Jul 27 01:46:07 CEST 2026") == moment("Sun Jul 26 23:46:07 UTC 2026")
        assert [moment(each) for each in ("Fri Nov 27 15:46:07 PST 2026", "", "1795823167", "x" * 10_000)] == [None] * 4
    finally:
        monkeypatch.undo()
        time.tzset()


class Lying:
    """A management node that answers each operation with what it is told to. `asked`: arguments of the requests."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, list[Any]]] = []
        self._replies: dict[str, ControlSender] = {}

    def accepted(self, connection: Any) -> None:
        connection.on_attach = self._attach

    def _attach(self, link: ControlLink) -> None:
        if isinstance(link, ControlSender):
            name = f"reply-{len(self._replies)}"
            self._replies[name] = link
            link.proton_link.source.address = name
            link.proton_link.open()
            link.connection.wake()
            return
        link.accept()
        link.on_message = self._take  # type: ignore[attr-defined]  # the other kind of link
        link.grant(1000)  # type: ignore[attr-defined]  # the other kind of link

    def _take(self, delivery: Delivery) -> None:
        delivery.accept()
        request = delivery.message
        operation = request.properties.get("_AMQ_OperationName") or request.properties["_AMQ_Attribute"]
        self.asked.append((operation, json.loads(request.body)))
        body = self.answers.get(operation)
        if isinstance(body, list):  # rows, as Artemis answers
            body = json.dumps([json.dumps({"data": body, "count": len(body)})])
        self._replies[request.reply_to].send(
            proton.Message(
                correlation_id=request.correlation_id, properties={"_AMQ_OperationSucceeded": True}, body=body
            ),
            settled=True,
        )


@contextlib.asynccontextmanager
async def lying(answers: dict[str, Any]) -> AsyncIterator[tuple[Lying, Any]]:
    node = Lying(answers)
    listener = await listen("127.0.0.1", 0, node.accepted, container="broker")
    connection = await connect("127.0.0.1", listener.port, container="console", max_message_size=1 << 20)
    try:
        yield node, connection
    finally:
        connection.close()
        await listener.close()


async def first(connection: Any) -> dict[str, Any]:
    """Return the first message of live state."""
    found: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    polling = asyncio.ensure_future(poll_broker(connection, "b", _once(found), inside=False))
    try:
        await asyncio.wait((found, polling), return_when=asyncio.FIRST_COMPLETED)
        if polling.done():
            polling.result()
        return found.result()
    finally:
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)


def _once(found: asyncio.Future[Any]) -> Callable[[Any], None]:
    return lambda body: None if found.done() else found.set_result(body)


@asyncio_test
async def test_connections_and_links_are_told_with_the_queues() -> None:
    async with lying({**QUEUES, **CLIENTS}) as (node, connection):
        body = await first(connection)
    assert body["queues"]["q"]["in"] == 3
    assert body["connections"] == {
        "c1": {
            "protocol": "core", "container": "app", "user": "u", "peer": "10.0.0.2:40000", "inside": False,
            "opened": None, "in": 5, "bytesIn": 70, "out": 0, "bytesOut": 0,
        }
    }  # fmt: skip
    assert set(body["links"]) == {"in-4", "out-4"} and body["links"]["in-4"]["address"] is None
    assert body["links"]["out-4"]["unsettled"] == 2
    pages = {name: given[1:] for name, given in node.asked if name in CLIENTS}
    assert pages == {"listConnections": [1, CONNECTIONS], "listConsumers": [1, LINKS], "listProducers": [1, LINKS]}


WRONG: dict[str, Any] = {
    "nothing": None,
    "no text": json.dumps([7]),
    "no JSON": json.dumps(["{"]),
    "no rows": json.dumps(["{}"]),
    "another type": json.dumps([json.dumps({"data": {"a": 1}, "count": 1})]),
    "nested": "[" * 100_000,
    "nested in a text": json.dumps(["[" * 100_000]),
    "nested in a row": json.dumps(['{"data": [{"connectionID": "c", "id": "1", "x": ' + "[" * 50_000]),
    "a number that is none": [{"connectionID": "c1", "id": "1", **ENDS, "msgSent": "many", "messagesDelivered": "1e9"}],
    "many digits": [{"connectionID": "c1", "id": "1", **ENDS, "msgSent": "9" * 5000, "messagesDelivered": "9" * 5000}],
    "a list for a number": [{"connectionID": "c1", "id": "1", **ENDS, "msgSent": [], "messagesDelivered": []}],
    "larger than the limit": [{"connectionID": "c1", "id": "1", "clientID": "x" * (2 << 20)}],
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("listing", CLIENTS)
@asyncio_test
async def test_a_listing_of_connections_that_cannot_be_read_leaves_the_queues(listing: str, wrong: str) -> None:
    answer = WRONG[wrong]
    if listing == "listConnections" and wrong in ("a number that is none", "many digits", "a list for a number"):
        answer = [{"connectionID": 7, **ENDS}]
    async with lying({**QUEUES, **CLIENTS, listing: answer}) as (_, connection):
        body = await first(connection)
    assert (body["queues"]["q"]["in"], body["connections"], body["links"]) == (3, {}, {})


@pytest.mark.parametrize("wrong", WRONG)
@asyncio_test
async def test_queues_that_cannot_be_read_end_the_look_with_an_error(wrong: str) -> None:
    rows = [{"name": "q", "messagesAdded": "many"}] if isinstance(WRONG[wrong], list) else WRONG[wrong]
    async with lying({**QUEUES, **CLIENTS, "listQueues": rows}) as (_, connection):
        with pytest.raises(ControlError):
            await first(connection)


@asyncio_test
async def test_fewer_rows_are_asked_for_while_their_texts_are_long_and_more_again_afterwards() -> None:
    async with lying({**CLIENTS}) as (node, connection):
        clients = ClientListings(connection, "b", inside=False)
        short, long = node.answers["listConnections"], WRONG["larger than the limit"]
        node.answers["listConnections"] = long
        assert await clients.look() == NOTHING
        node.answers["listConnections"] = short
        for _ in range(3):
            assert set((await clients.look())["connections"]) == {"c1"}
        sizes = [given[2] for name, given in node.asked if name == "listConnections"]
        assert sizes == [CONNECTIONS, CONNECTIONS // 4, CONNECTIONS // 2, CONNECTIONS]
        clients.close()


def test_what_peers_state_is_cut_and_numbers_are_bounded() -> None:
    row = ConnectionRow("c1", "there:1", "here:2", "u" * 9999, None, "P" * 9999, "x" * 9999)
    huge = ProducerRow(2**63, "n" * 9999, "a" * 9999, "here:2", "there:1", 10**25, -4)
    found = ClientTable(inside=False).rows(listed([row], [], [huge]))
    assert len(json.dumps(found)) < 2500
    connection, link = found["connections"]["c1"], next(iter(found["links"].values()))
    assert (link["count"], link["bytes"], connection["in"]) == (LARGEST, 0, LARGEST)
