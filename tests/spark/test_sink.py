"""The sink's message-ids: a repeated batch is recognised in whatever order it comes, and nothing else is."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.spark.sink import AmqpStreamWriter, Ids, message_of
from tests.spark.conftest import LIMIT, Broker

pytestmark = pytest.mark.timeout(LIMIT)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"body": st.sampled_from(["a", "b", b"a", ""]), "subject": st.sampled_from([None, "s"])},
        optional={"application_properties": st.sampled_from([[("k", "1"), ("l", "2")], [("l", "2"), ("k", "1")], []])},
    ),
    max_size=12,
)


def ids(rows: list[dict[str, Any]], query: str = "q", batch: str = "3", partition: int = 0) -> list[Any]:
    named = Ids(query, batch, partition)
    return [named.named(message_of(row)).message_id for row in rows]


@given(rows=ROWS, seed=st.integers(0))
def test_ids_are_the_same_set_in_any_order_and_no_two_are_equal(rows: list[dict[str, Any]], seed: int) -> None:
    found = ids(rows)
    assert len(set(found)) == len(rows)
    other = rows.copy()
    random.Random(seed).shuffle(other)
    assert set(ids(other)) == set(found)


@given(rows=ROWS)
def test_no_other_query_batch_or_partition_has_the_same_ids(rows: list[dict[str, Any]]) -> None:
    places = [("q", "3", 0), ("r", "3", 0), ("q", "4", 0), ("q", "3", 1), ("q", "31", 0), ("q-3", "3", 0)]
    found = [one for place in places for one in ids(rows, *place)]
    assert len(set(found)) == len(found)


def test_a_message_id_of_the_row_wins() -> None:
    rows: list[dict[str, Any]] = [
        {"body": "a", "message_id": "mine"},
        {"body": "a", "message_id": None},
        {"body": "a", "message_id": ""},
    ]
    first, second, third = ids(rows)
    assert first == "mine"
    assert len({first, second, third}) == 3
    assert {second, third} == set(ids([{"body": "a"}] * 2)), "rows with an id of their own are not counted"


def test_a_batch_that_is_repeated_in_another_order_is_stored_once(broker: Broker) -> None:
    queue = broker.queue_without_duplicates("repeated")
    rows = [{"body": body, "message_id": i} for body, i in [("a", None), ("b", None), ("a", None), ("c", "c1")] * 5]
    writer = AmqpStreamWriter({"url": broker.url, "address": queue})
    for seed in range(3):
        random.Random(seed).shuffle(rows)
        parts = [pa.RecordBatch.from_pylist(rows[:7]), pa.RecordBatch.from_pylist(rows[7:])]
        assert asyncio.run(writer.send(iter(parts), Ids("q", "0", 0))) == len(rows)
    found = Counter(bytes(message.body) for message in broker.receive(queue, 16))
    assert found == {b"a": 10, b"b": 5, b"c": 1}
