"""Traces of messages through gateway, router and broker, as a collector of OpenTelemetry gets them."""

from __future__ import annotations

import json
import os
import queue
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions
from proton import Delivery, Message, symbol
from proton.utils import BlockingConnection, SendException

from enmasse.testing import Suite, running
from tests.kit.collector import Collector, Received
from tests.kit.waiting import DEADLINE, wait_for

ADDRESSES = {
    "orders": {"type": "queue", "flavor": "small-persisted-queue"},
    "news": {"type": "topic", "flavor": "small-persisted-topic"},
    "direct": {"type": "anycast"},
}
ORDERS = ("router: send orders", "broker: store orders", "broker: deliver orders", "router: deliver orders")
HOP = ("router: send direct", "router: deliver direct")
PARENT = "b7ad6b7169203331"
BAD = (Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED)
STATE = "congo=lZWRzIHRoNhcm5hbCBwbGVhc3VyZS4,rojo=00f067aa0ba902b7"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


@contextmanager
def tracing(folder: Path, collector: Collector, *more: str) -> Iterator[Suite]:
    """Run a suite with traces, of which each begins with the first message that has no context. `more`: options."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        patch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        patch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_on")
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        patch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "64")
        patch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "16")
        with running(folder, ADDRESSES, options=("--traces", *more)) as suite:
            suite.up()
            yield suite
            assert suite.down() == 0


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Suite]:
    with tracing(tmp_path_factory.mktemp("traced"), collector) as suite:
        yield suite


@pytest.fixture
def connection(traced: Suite) -> Iterator[BlockingConnection]:
    with closing(BlockingConnection(traced.url, timeout=DEADLINE)) as connection:
        yield connection


def traceparent(trace: str, flags: str = "01") -> str:
    return f"00-{trace}-{PARENT}-{flags}"


def new_trace() -> str:
    return os.urandom(16).hex()


def through(connection: BlockingConnection, address: str, *messages: Message) -> list[Message]:
    """Send messages to an address, each accepted before the next, and return what is received from there."""
    receiver, sender = connection.create_receiver(address, credit=1), connection.create_sender(address)
    received = []
    for message in messages:
        sender.send(message)
        received.append(receiver.receive(DEADLINE))
        receiver.accept()
    receiver.close()  # which sends the last disposition
    sender.close()
    return received


def annotation(message: Message, name: str) -> Any:
    return (message.annotations or {}).get(symbol(name))


def test_one_trace_from_the_sender_to_the_receiver(connection: BlockingConnection, collector: Collector) -> None:
    trace = new_trace()
    properties = {"traceparent": traceparent(trace), "tracestate": STATE}
    [message] = through(connection, "orders", Message(id="m-1", body="x", durable=True, properties=properties))
    assert message.properties == properties and annotation(message, "traceparent") is None
    spans = collector.wait(trace, *ORDERS)
    assert len(spans) == len(ORDERS)
    assert {span.parent for span in spans} == {PARENT}
    assert {span.attributes["enmasse.outcome"] for span in spans} == {"accepted"}
    assert {span.attributes["messaging.message.id"] for span in spans} == {"m-1"}
    assert {span.attributes["messaging.destination.name"] for span in spans} == {"orders"}
    assert not any(span.error for span in spans)
    named = {(span.service, span.name.partition(" ")[0]): span for span in spans}
    sent, stored = named["router", "send"], named["broker", "store"]
    assert sent.begin <= stored.begin and stored.end <= sent.end  # accepted after it was stored
    assert stored.end <= named["router", "deliver"].begin


def test_annotations_come_before_application_properties(connection: BlockingConnection, collector: Collector) -> None:
    """Also in the binary form of the draft."""
    trace, binary, ignored = new_trace(), new_trace(), new_trace()
    encoded = bytes.fromhex(f"0000{binary}01{PARENT}0201")
    for value in (traceparent(trace), encoded):
        annotations, properties = {symbol("traceparent"): value}, {"traceparent": traceparent(ignored)}
        through(connection, "orders", Message(body="x", annotations=annotations, properties=properties))
    collector.wait(trace, *ORDERS)
    collector.wait(binary, *ORDERS)
    assert collector.of(ignored) == []


def test_a_trace_begins_with_a_message_without_context(connection: BlockingConnection, collector: Collector) -> None:
    [message] = through(connection, "orders", Message(body="begins", properties={"kept": 1}))
    assert message.body == "begins" and message.properties == {"kept": 1}
    found = re.fullmatch(r"00-([0-9a-f]{32})-([0-9a-f]{16})-0[13]", annotation(message, "traceparent"))
    assert found is not None
    first, *others = collector.wait(found[1], *ORDERS)
    assert (first.service, first.name, first.id, first.parent) == ("router", "send orders", found[2], "")
    assert {span.parent for span in others} == {first.id}


def test_a_rejected_message_and_a_lost_connection(traced: Suite, collector: Collector) -> None:
    rejected, lost = new_trace(), new_trace()
    outcomes: list[int] = []

    def send(trace: str) -> None:
        with closing(BlockingConnection(traced.url, timeout=DEADLINE)) as other:
            sender = other.create_sender("direct")
            try:
                sender.send(Message(body="x", properties={"traceparent": traceparent(trace)}), error_states=BAD)
            except SendException as error:
                outcomes.append(error.state)

    for trace in (rejected, lost):
        with closing(BlockingConnection(traced.url, timeout=DEADLINE)) as connection:
            receiver = connection.create_receiver("direct")
            thread = threading.Thread(target=send, args=(trace,))
            thread.start()
            receiver.receive(DEADLINE)
            if trace == rejected:
                receiver.reject()
        thread.join(DEADLINE)
    assert outcomes == [Delivery.REJECTED, Delivery.MODIFIED]
    for trace, outcome in ((rejected, "rejected"), (lost, "modified")):
        sent, delivered = collector.wait(trace, "router: send direct", "router: deliver direct")
        assert (sent.attributes["enmasse.outcome"], sent.error) == (outcome, trace == rejected)
        assert delivered.attributes["enmasse.outcome"] == ("rejected" if trace == rejected else "lost")


def test_a_large_message_in_many_frames(connection: BlockingConnection, collector: Collector) -> None:
    trace = new_trace()
    properties = {"traceparent": traceparent(trace)}
    [message] = through(connection, "orders", Message(body="x" * 1_000_000, durable=True, properties=properties))
    assert message.properties == properties
    assert len(collector.wait(trace, *ORDERS)) == len(ORDERS)


def subscriber(suite: Suite, topic: str) -> tuple[Client, queue.Queue[Any]]:
    got: queue.Queue[Any] = queue.Queue()
    granted = threading.Event()
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
    client.on_message = lambda _client, _data, message: got.put(message)
    client.on_subscribe = lambda *_: granted.set()
    client.connect("127.0.0.1", suite.mqtt_port)
    client.loop_start()
    client.subscribe(topic, options=SubscribeOptions(qos=1))
    assert granted.wait(DEADLINE)
    return client, got


def test_from_a_device_to_amqp_and_mqtt(traced: Suite, connection: BlockingConnection, collector: Collector) -> None:
    trace = new_trace()
    given = [("traceparent", traceparent(trace)), ("tracestate", STATE), ("unit", "C")]
    receiver = connection.create_receiver("news/room")
    client, got = subscriber(traced, "news/#")
    try:
        properties: Any = Properties(PacketTypes.PUBLISH)
        properties.UserProperty = given
        client.publish("news/room", "21", qos=1, properties=properties).wait_for_publish(60)
        assert receiver.receive(DEADLINE).properties == dict(given)
        receiver.accept()
        receiver.close()
        assert got.get(timeout=DEADLINE).properties.UserProperty == given
    finally:
        client.disconnect()
        client.loop_stop()
    spans = collector.wait(
        trace, "mqtt-gateway: send news/room", "router: send news/room", "broker: store news/room",
        "mqtt-gateway: deliver news/room", "router: deliver news/room", "router: deliver news/room",
    )  # fmt: skip
    assert {span.parent for span in spans} == {PARENT}
    published = next(span for span in spans if span.name.startswith("send") and span.service == "mqtt-gateway")
    stored = next(span for span in spans if span.name.startswith("store"))
    assert published.begin <= stored.begin and stored.end <= published.end


def test_from_amqp_to_a_device(traced: Suite, connection: BlockingConnection, collector: Collector) -> None:
    """A context in annotations becomes user properties; one that the router has begun, too."""
    trace = new_trace()
    client, got = subscriber(traced, "news/#")
    try:
        sending = connection.create_sender("news/room")
        annotations = {symbol("traceparent"): traceparent(trace), symbol("tracestate"): STATE}
        sending.send(Message(body="x", annotations=annotations, properties={"unit": "C"}))
        expected = [("unit", "C"), ("traceparent", traceparent(trace)), ("tracestate", STATE)]
        assert got.get(timeout=DEADLINE).properties.UserProperty == expected
        sending.send(Message(body="x"))
        [(name, begun)] = got.get(timeout=DEADLINE).properties.UserProperty
    finally:
        client.disconnect()
        client.loop_stop()
    assert name == "traceparent"
    for each in (trace, begun.split("-")[1]):
        collector.wait(each, "router: send news/room", "mqtt-gateway: deliver news/room")


HOSTILE: list[Any] = [
    "", "00", "x" * 55, traceparent("0" * 32), "ff" + traceparent("ab" * 16)[2:], traceparent("ab" * 16) + "-more",
    traceparent("AB" * 16), "traceparent" * 1000, 17, True, None, 1.5, b"\xff" * 29, b"\0" * 55, ["a", "b"], {"a": 1},
]  # fmt: skip


@pytest.mark.parametrize("where", ["annotations", "properties"])
def test_an_invalid_context_changes_nothing(connection: BlockingConnection, collector: Collector, where: str) -> None:
    states: list[Any] = ["=" * 100_000, ",".join(f"k{n}=v" for n in range(10_000)), {"a": ["b"]}, b"\xff", 5]
    trace, last = new_trace(), new_trace()
    contexts = [{"traceparent": value} for value in HOSTILE if not isinstance(value, list | dict) or where[0] == "a"]
    contexts += [{"traceparent": traceparent(trace), "tracestate": value} for value in states if where[0] == "a"]
    begun = time.time()
    given: list[dict[Any, Any]] = [
        {symbol(key): value for key, value in context.items()} if where == "annotations" else context
        for context in contexts
    ]
    received = through(connection, "orders", *(Message(body="x", durable=True, **{where: values}) for values in given))
    assert [(message.body, getattr(message, where)) for message in received] == [("x", values) for values in given]
    through(connection, "orders", Message(body="last", properties={"traceparent": traceparent(last)}))
    collector.wait(last, *ORDERS)
    mine = {trace, last}
    assert [span for span in collector.spans if span.begin > begun and span.trace not in mine] == []
    assert len(collector.of(trace)) == (len(states) if where[0] == "a" else 0) * len(ORDERS)


def test_a_sender_that_does_not_sample_is_obeyed(connection: BlockingConnection, collector: Collector) -> None:
    trace, last = new_trace(), new_trace()
    given = [{"traceparent": traceparent(trace, "00")}, {"traceparent": traceparent(last)}]
    received = through(connection, "orders", *(Message(body="x", properties=properties) for properties in given))
    assert [(message.properties, message.annotations or {}) for message in received] == [(each, {}) for each in given]
    collector.wait(last, *ORDERS)
    assert collector.of(trace) == []


def spans_counted(suite: Suite, process: str) -> dict[str, int]:
    health = json.loads((suite.data / "run" / f"{process}.json").read_text())["health"]
    request = Request(f"http://{health}/metrics", headers=suite.operator_headers)
    with urlopen(request, timeout=DEADLINE) as answer:
        text = answer.read().decode()
    found = re.findall(r'^enmasse_trace_spans_total\{result="(\w+)"\} ([0-9.]+)', text, re.MULTILINE)
    return {result: int(float(count)) for result, count in found}


def test_a_collector_that_hangs_costs_spans_and_no_message(
    traced: Suite, connection: BlockingConnection, collector: Collector
) -> None:
    before = spans_counted(traced, "router-0")
    collector.hanging = True
    try:
        received = through(connection, "orders", *(Message(body=n, durable=True) for n in range(200)))
        assert [message.body for message in received] == list(range(200))
        for result in ("dropped", "failed"):
            wait_for(lambda: spans_counted(traced, "router-0")[result] > before[result], result)
    finally:
        collector.release()
    trace = new_trace()

    def again() -> list[Received]:
        through(connection, "orders", Message(body="x", properties={"traceparent": traceparent(trace)}))
        return [span for span in collector.of(trace) if span.service == "router"]

    wait_for(again, "spans after the collector is back")
    log = (traced.data / "logs" / "router-0.log").read_text()
    assert log.count('"traces.export.failed"') == log.count('"traces.export.resumed"') == 1


@pytest.mark.slow
def test_a_hop_between_two_routers(tmp_path: Path, collector: Collector) -> None:
    """The first router has the span of the arrival, the last one that of the delivery; none tells of the hop."""
    with tracing(tmp_path, collector, "--routers", "2") as suite, ExitStack() as stack:
        at: dict[str | None, BlockingConnection] = {}
        while len(at) < 2:
            connection = stack.enter_context(closing(BlockingConnection(suite.url, timeout=DEADLINE)))
            at[connection.conn.remote_container] = connection
        sending, receiving = at.values()
        first, last = new_trace(), new_trace()
        receiver, sender = receiving.create_receiver("direct", credit=2), sending.create_sender("direct")

        def send() -> None:
            for trace in (first, last):
                sender.send(Message(body="x", properties={"traceparent": traceparent(trace)}))

        thread = threading.Thread(target=send)
        thread.start()
        for _ in range(2):
            receiver.receive(DEADLINE)
            receiver.accept()
        receiver.close()
        thread.join(DEADLINE)
    collector.wait(last, *HOP)  # each router exports its spans in their order
    spans = collector.of(first)
    assert sorted(f"{span.service}: {span.name}" for span in spans) == sorted(HOP)
    assert {(span.parent, span.attributes["enmasse.outcome"]) for span in spans} == {(PARENT, "accepted")}
