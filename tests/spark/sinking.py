"""What the sink promises through the entry of a suite, whichever engines are behind it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from proton.utils import BlockingConnection

from enmasse.spark.sink.encoding import Ids
from enmasse.spark.sink.sink import Sent, Sink, SinkError
from tests.kit.waiting import DEADLINE

PATIENCE = DEADLINE
"""Seconds until a wait is given up."""


def send(rows: list[dict[str, Any]], prefix: str, **options: str) -> Sent:
    sink = Sink({name.lower(): value for name, value in options.items()}, tuple(rows[0]))
    return asyncio.run(sink.send(iter([pa.RecordBatch.from_pylist(rows)]), Ids(prefix, "query")))


def received(connection: BlockingConnection, address: str, count: int) -> list[Any]:
    receiver = connection.create_receiver(address, credit=count)
    found = []
    for _ in range(count):
        found.append(receiver.receive(PATIENCE))
        receiver.accept()
    receiver.close()
    return found


def check(connection: BlockingConnection, queue: str, dead: str, **login: str) -> None:
    """Check the sink by two empty queues. connection: of a client that may receive from them; login: options."""
    rows: list[dict[str, Any]] = [{"body": f"b{n % 20}", "message_id": None} for n in range(60)]
    prefix = f"q-{random.getrandbits(64):x}"
    for _ in range(3):
        random.shuffle(rows)
        assert send(rows, prefix, address=queue, duplicateId="true", **login) == Sent(60)
    last = [{"body": "last"}]
    send(last, f"{prefix}-last", address=queue, duplicateId="true", **login)
    found = Counter(bytes(message.body).decode() for message in received(connection, queue, 61))
    assert found == {**{f"b{n}": 3 for n in range(20)}, "last": 1}, "a batch in another order is stored once"

    routed: list[dict[str, Any]] = [{"body": f"r{n}", "address": queue} for n in range(10)]
    routed[4]["address"] = "no-such-address"
    with pytest.raises(SinkError, match=r"row 4 of partition 0.*'no-such-address'"):
        send(routed, f"{prefix}-r", duplicateId="true", **login)
    dead_letters = {"onReject": "deadletter", "deadLetterAddress": dead}
    assert send(routed, f"{prefix}-r", duplicateId="true", **dead_letters, **login) == Sent(9, 1)
    assert {bytes(m.body) for m in received(connection, queue, 9)} == {b"r%d" % n for n in range(10) if n != 4}
    (one,) = received(connection, dead, 1)
    assert bytes(one.body) == b"r4" and one.properties["DeadLetterSource"] == "no-such-address"


def refused(**options: str) -> str:
    """Return why the sink cannot send."""
    with pytest.raises(SinkError) as caught:
        send([{"body": "never"}], "q", **options)
    return str(caught.value)
