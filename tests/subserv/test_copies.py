"""What is read from the messages of a broker's feed of retained messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from enmasse.amqp.codec.types import Int, Symbol, Timestamp
from enmasse.amqp.messages.message import AmqpSequence, Message
from enmasse.stores import Change, Store
from services.subserv.retained import message_forms
from services.subserv.retained.retained_messages import RetainedMessages


def test_what_is_read_can_be_stored() -> None:
    """A gateway writes the QoS as an int of AMQP and the expiry as a timestamp."""
    message = Message(
        b"21.5",
        to="mytopic/kitchen",
        durable=True,
        absolute_expiry_time=Timestamp(2_000_000_000_000),
        annotations={Symbol("x-opt-retain-message"): True, Symbol("x-opt-mqtt-qos"): Int(1)},
    )
    found = message_forms.read(bytes(message.encode()), now=0)
    assert found is not None
    assert (found.name, found.qos, found.expires) == ("mytopic/kitchen", 1, 2_000_000_000_000)
    assert msgspec.msgpack.encode((found.name, found.qos, found.expires))
    del message.annotations[Symbol("x-opt-mqtt-qos")]  # an AMQP client's: its clock may be wrong
    message.ttl = 60_000
    found = message_forms.read(bytes(message.encode()), now=5)
    assert found is not None and found.expires == 60_005


MESSAGES = st.builds(
    Message,
    st.one_of(st.binary(max_size=20), st.text(max_size=20), st.just(AmqpSequence([1, "a"])), st.none()),
    to=st.sampled_from([None, "news/a", "elsewhere"]),
    durable=st.booleans(),
    ttl=st.sampled_from([None, 1, 2**32 - 1]),
    absolute_expiry_time=st.sampled_from([None, Timestamp(5), Timestamp(2**62)]),
    subject=st.sampled_from([None, "s"]),
    message_id=st.sampled_from([None, "m", 7, b"x"]),
    annotations=st.dictionaries(
        st.sampled_from([Symbol("x-opt-retain-message"), Symbol("x-opt-ORIG-ADDRESS"), Symbol("x-opt-mqtt-qos")]),
        st.sampled_from([True, "news/a", Int(2), Int(7)]),
    ),
    application_properties=st.dictionaries(st.sampled_from(["a", "_AMQ_DUPL_ID"]), st.sampled_from(["x", 1, True])),
    footer=st.dictionaries(st.just(Symbol("f")), st.just("x")),
)


@given(MESSAGES, st.integers(0, 2**63 - 1))
def test_a_copy_is_the_message_but_for_what_says_that_it_is_one(message: Message, expires: int) -> None:
    copy = Message.decode(message_forms.copy_for(bytes(message.encode()), "news/a", "news/#", "id", expires, 1))
    assert (copy.priority, copy.annotations.get("x-opt-retained-for")) == (9, "news/#")
    assert copy.application_properties.pop("_AMQ_DUPL_ID") == "id"
    application = dict(message.application_properties)
    application.pop("_AMQ_DUPL_ID", None)
    assert copy.application_properties == application
    original = Message.decode(bytes(message.encode()))
    for field in ("body", "to", "subject", "message_id", "durable", "absolute_expiry_time", "footer"):
        assert getattr(copy, field) == getattr(original, field)
    assert copy.to == "news/a" or copy.annotations["x-opt-ORIG-ADDRESS"] == "news/a"


HOSTILE = st.one_of(
    st.binary(max_size=60),
    MESSAGES.map(lambda message: bytes(message.encode())),
    st.tuples(MESSAGES, st.integers(0, 80)).map(lambda pair: bytes(pair[0].encode())[: pair[1]]),
)


def test_no_message_stops_the_feed() -> None:
    @given(st.lists(HOSTILE, max_size=5))
    def feed(messages: list[bytes]) -> None:
        asyncio.run(retained.take("b", list(enumerate(messages))))
        assert retained.index.count == len(store.tables)

    store = ToyStore()
    retained = RetainedMessages(store)
    feed()
    large = bytes(Message(b"x", to="a" * 70_000, annotations={Symbol("x-opt-retain-message"): True}).encode())
    refused, count = retained.refused, retained.index.count
    asyncio.run(retained.take("b", [(1, large)]))
    assert (retained.refused, retained.index.count) == (refused + 1, count)


class ToyStore(Store):
    """Remembers what is in the one table."""

    def __init__(self) -> None:
        self.tables: dict[str, bytes] = {}

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None]:
        for _, key, value in changes:
            if value is None:
                self.tables.pop(key, None)
            else:
                self.tables[key] = value
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done
