"""Messages without a message-id: they are counted, and a warning is logged once."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from proton import Message as ProtonMessage

from enmasse.amqp.messages.message import Message
from enmasse.spark.receiver.missing_ids import MissingIds
from enmasse.spark.receiver.unsettled import key_of
from enmasse.spark.source.source import AmqpStreamReader
from enmasse.spark.versions import ReadAllAvailable
from enmasse.testing import wait_for
from tests.spark.conftest import DEADLINE, Broker


def test_messages_that_have_no_key_are_counted_however_they_begin() -> None:
    plain = [Message("x", durable=durable, subject=subject) for durable in (True, False) for subject in (None, "s")]
    long = [Message("x", subject="s" * 300), Message("x", message_id=7, subject="s" * 300)]
    named = [Message("x", message_id=name, to="t") for name in ("", "a", 1, 0)]
    messages = [each.encode() for each in (*plain, *named, *long, *plain)]
    messages += [b"", b"\0", b"no message", messages[0][:7], b"\x00\x53\x73\x45\x00\x53\x77\x40"]
    for order in (messages, messages[::-1], messages * 2):
        counter = MissingIds()
        counter.add(order)
        assert counter.count == sum(key_of(each) is None for each in order)


def stated(reader: AmqpStreamReader, count: int) -> bool:
    return bool(reader.reportLatestOffset()["withoutId"] == count)


def test_a_query_states_how_many_have_no_id_and_warns_once(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker.queue("nameless")
    reader = AmqpStreamReader({"url": broker.url, "address": "nameless", "spool": str(tmp_path / "spool")})
    try:
        start = reader.initialOffset()
        for each in (1, 2):
            broker.send("nameless", [ProtonMessage(body="x", durable=True), ProtonMessage(id=f"{each}", body="x")])
            counted = partial(stated, reader, each)
            wait_for("the count of messages without an id", counted, DEADLINE)
        assert reader.latestOffset(start, ReadAllAvailable())["record"] == 4
    finally:
        reader.stop()
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith(f"spark.source.ids-missing source='nameless' at {broker.url} reason=messages have no ")
