"""Every pair of protocols at every type of address: what is sent by one is received by the other, by one table."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from enmasse.aio import mqtt
from enmasse.aio.client import connect
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.messages.message import Message
from enmasse.mqtt.packets import NONE, V5, V311, Properties
from enmasse.spark.sink.encoding import Ids
from enmasse.spark.sink.sink import Sink, SinkError
from enmasse.spark.source.source import AmqpStreamReader
from enmasse.testing import Suite, running
from tests.coap_gateway.coap_peer import CoapPeer
from tests.http_gateway.requests_to_suite import Answer, request
from tests.interop.protocol_pairs import PROTOCOLS, SENT, outcomes, passed, table
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, wait_for
from tests.stomp_gateway.stomp_environment import RawClient

TYPES = ("anycast", "multicast", "queue", "topic")
FLAVORS = {"queue": {"flavor": "small-persisted-queue"}, "topic": {"flavor": "small-persisted-topic"}}
ADDRESSES: dict[str, Any] = {kind: {"type": kind, **FLAVORS.get(kind, {})} for kind in TYPES}
ADDRESSES["answers"] = {"type": "anycast"}
OPTIONS = ("--with", "http", "--with", "stomp", "--with", "coap")
Fields = dict[str, Any]
Get = Callable[[], Awaitable[Fields]]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with running(tmp_path_factory.mktemp("pairs"), ADDRESSES, options=OPTIONS) as found:
        found.up()
        yield found
        assert found.down() == 0


class Peers:
    """Clients of each protocol, by its name."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self._port = 8088 + suite.offset

    async def send(self, protocol: str, address: str) -> str:
        """Send the message; return its outcome."""
        if protocol == "AMQP":
            return await self._send_amqp(address)
        if protocol == "HTTP":
            return await self._send_http(address)
        if send := {"STOMP": self._send_stomp, "CoAP": self._send_coap, "Spark": self._send_spark}.get(protocol):
            return await asyncio.to_thread(send, address)
        return await self._send_mqtt(address, V5 if protocol == "MQTT 5" else V311)

    def receive(self, protocol: str, address: str) -> contextlib.AbstractAsyncContextManager[Get]:
        """Subscribe, or wait for the next message."""
        if protocol == "AMQP":
            return self._receive_amqp(address)
        if protocol == "STOMP":
            return self._receive_stomp(address)
        if protocol == "CoAP":
            return self._observe(address)
        if protocol == "HTTP":
            return self._events(address) if address in ("topic", "multicast") else self._next(address)
        return self._receive_mqtt(address, V5 if protocol == "MQTT 5" else V311)

    def _amqp(self) -> Any:
        return connect(host="127.0.0.1", port=5672 + self._suite.offset)

    async def _send_amqp(self, address: str) -> str:
        message = Message(
            SENT["body"], content_type=SENT["type"], application_properties={"unit": SENT["property"]},
            ttl=1000 * SENT["time to live"], reply_to=SENT["reply address"], correlation_id=SENT["correlation"],
            durable=True,
        )  # fmt: skip
        async with self._amqp() as client:
            try:
                sender = await client.sender(address, timeout=DEADLINE)
                state = await sender.send(message, timeout=DEADLINE)
            except AmqpError as error:
                return error.condition
            return "accepted" if state == ACCEPTED else str(state)

    @asynccontextmanager
    async def _receive_amqp(self, address: str) -> AsyncIterator[Get]:
        async with self._amqp() as client:
            receiver = await client.receiver(address, timeout=DEADLINE)

            async def get() -> Fields:
                delivery = await receiver.receive(DEADLINE)
                found = delivery.message
                await delivery.accept()
                return {
                    "body": bytes(found.body),
                    "type": found.content_type,
                    "property": found.application_properties.get("unit"),
                    "time to live": None if found.ttl is None else found.ttl / 1000,
                    "reply address": found.reply_to,
                    "correlation": found.correlation_id,
                }

            yield get

    def _mqtt(self, version: int) -> mqtt.Client:
        return mqtt.connect("127.0.0.1", self._suite.mqtt_port, version=version, timeout=DEADLINE)

    async def _send_mqtt(self, address: str, version: int) -> str:
        properties = Properties(
            content_type=SENT["type"], user_properties=(("unit", SENT["property"]),),
            message_expiry=SENT["time to live"], response_topic=SENT["reply address"],
            correlation_data=SENT["correlation"].encode(),
        )  # fmt: skip
        async with self._mqtt(version) as client:
            try:
                code = await client.publish(address, SENT["body"], 1, properties=properties if version == V5 else NONE)
            except mqtt.Refused as refused:
                code = refused.reason
            except mqtt.Disconnected:
                return "closed"
            return f"PUBACK 0x{code:02X}" if version == V5 else "PUBACK"

    @asynccontextmanager
    async def _receive_mqtt(self, address: str, version: int) -> AsyncIterator[Get]:
        async with self._mqtt(version) as client:
            await client.subscribe(address, qos=1)

            async def get() -> Fields:
                packet = await client.message(DEADLINE)
                found = packet.properties
                return {
                    "body": packet.payload,
                    "type": found.content_type,
                    "property": dict(found.user_properties).get("unit"),
                    "time to live": found.message_expiry,
                    "reply address": found.response_topic,
                    "correlation": None if found.correlation_data is None else found.correlation_data.decode(),
                }

            yield get

    async def _ask(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Answer:
        return await asyncio.to_thread(request, self._suite, method, path, body, headers)

    async def _send_http(self, address: str) -> str:
        headers = {
            "Content-Type": SENT["type"],
            "Enmasse-Properties": json.dumps({"unit": SENT["property"]}),
            "Enmasse-TTL": str(1000 * SENT["time to live"]),
            "Enmasse-Reply-To": SENT["reply address"],
            "Enmasse-Correlation-Id": SENT["correlation"],
        }
        return str((await self._ask("POST", f"/v1/{address}/messages", SENT["body"], headers)).status)

    @asynccontextmanager
    async def _next(self, address: str) -> AsyncIterator[Get]:
        async def taken() -> Answer:
            found = await self._ask("POST", f"/v1/{address}/messages/next?wait=300")
            assert found.status == 200
            assert (await self._ask("DELETE", found.headers["location"])).status == 204
            return found

        task = asyncio.create_task(taken())

        async def get() -> Fields:
            found = await task
            headers = found.headers
            ttl = headers.get("enmasse-ttl")
            return {
                "body": found.body,
                "type": headers.get("content-type"),
                "property": json.loads(headers.get("enmasse-properties", "{}")).get("unit"),
                "time to live": None if ttl is None else int(ttl) / 1000,
                "reply address": headers.get("enmasse-reply-to"),
                "correlation": headers.get("enmasse-correlation-id"),
            }

        yield get

    @asynccontextmanager
    async def _events(self, address: str) -> AsyncIterator[Get]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(f"GET /v1/{address}/events HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())

        async def line(begin: bytes) -> bytes:
            while not (found := await reader.readline()).startswith(begin):
                assert found
            return found

        await line(b"retry")

        async def get() -> Fields:
            return _of_json(json.loads((await line(b"data: ")).removeprefix(b"data: ")))

        yield get
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    def _send_stomp(self, address: str) -> str:
        client = self._stomp()
        client.send(
            "SEND", SENT["body"], destination=address, receipt="r", content_type=SENT["type"], unit=SENT["property"],
            ttl=str(1000 * SENT["time to live"]), reply_to=SENT["reply address"], correlation_id=SENT["correlation"],
        )  # fmt: skip
        found = client.read()
        client.close()
        return found.headers["message"] if found.command == "ERROR" else found.command

    def _stomp(self) -> RawClient:
        client = RawClient(61613 + self._suite.offset)
        client.connect()
        return client

    @asynccontextmanager
    async def _receive_stomp(self, address: str) -> AsyncIterator[Get]:
        client = await asyncio.to_thread(self._stomp)
        await asyncio.to_thread(client.done, "SUBSCRIBE", id="1", destination=address)

        async def get() -> Fields:
            found = await asyncio.to_thread(client.read)
            headers = found.headers
            return {
                "body": found.body,
                "type": headers.get("content-type"),
                "property": headers.get("unit"),
                "time to live": int(headers["ttl"]) / 1000 if "ttl" in headers else None,
                "reply address": headers.get("reply-to"),
                "correlation": headers.get("correlation-id"),
            }

        yield get
        client.close()

    def _send_coap(self, address: str) -> str:
        query = (
            f"content-type={SENT['type']}&property.unit={SENT['property']}&ttl={1000 * SENT['time to live']}"
            f"&reply-to={SENT['reply address']}&correlation-id={SENT['correlation']}"
        )
        with CoapPeer(5683 + self._suite.offset) as peer:
            return peer.code(f"v1/{address}?{query}", SENT["body"])

    def _send_spark(self, address: str) -> str:
        """Send a row with the sink, as a task of Spark does."""
        row = {
            "body": SENT["body"], "content_type": SENT["type"], "application_properties": [("unit", SENT["property"])],
            "ttl": 1000 * SENT["time to live"], "reply_to": SENT["reply address"],
            "correlation_id": SENT["correlation"],
        }  # fmt: skip
        types = pa.schema([("application_properties", pa.map_(pa.string(), pa.string()))])
        columns = [
            pa.array([value], types.field(name).type if name in types.names else None) for name, value in row.items()
        ]
        sink = Sink({"url": self._suite.url, "address": address}, tuple(row))
        try:
            asyncio.run(sink.send(iter([pa.RecordBatch.from_arrays(columns, list(row))]), Ids(address, "pairs")))
        except SinkError:
            return "the query ends"
        return "the batch"

    @asynccontextmanager
    async def _observe(self, address: str) -> AsyncIterator[Get]:
        with CoapPeer(5683 + self._suite.offset) as peer:
            await asyncio.to_thread(peer.observe, f"v1/{address}?form=json")

            async def get() -> Fields:
                return _of_json(json.loads((await asyncio.to_thread(peer.notification)).payload))

            yield get


def _of_json(found: dict[str, Any]) -> Fields:
    """Return the fields of a message as `enmasse receive --json` shows it."""
    return {
        "body": found["body"].encode(),
        "type": found.get("content_type"),
        "property": found["properties"].get("unit"),
        "time to live": None if found.get("ttl") is None else found["ttl"] / 1000,
        "reply address": found.get("reply_to"),
        "correlation": found.get("correlation_id"),
    }


def differences(found: Fields, expected: Fields) -> Fields:
    """Return what is other than expected; what the protocol of the receiver has none of is None."""
    wrong = {}
    for name, value in found.items():
        if name == "time to live" and name in expected:
            if value is None or not 0 < value <= expected[name]:
                wrong[name] = value
        elif value != expected.get(name):
            wrong[name] = value
    return wrong


@pytest.mark.parametrize("kind", TYPES)
def test_pairs(suite: Suite, kind: str) -> None:
    @asyncio_test
    async def test() -> None:
        peers, wrong = Peers(suite), {}
        for sender, receiver in itertools.product(PROTOCOLS, PROTOCOLS[:-1]):
            if receiver == "CoAP" and kind not in ("topic", "multicast"):
                continue  # it observes only
            async with peers.receive(receiver, kind) as get:
                coming = asyncio.ensure_future(get())
                said = await peers.send(sender, kind)
                found = differences(await coming, passed(sender, receiver))
            if said not in outcomes(sender, "outcome: accepted"):
                found["outcome"] = said
            if found:
                wrong[f"{sender} to {receiver}"] = found
        assert wrong == {}

    test()


@pytest.mark.slow  # a receiver of Spark is a process of its own; AMQP's is in test_pairs
@pytest.mark.parametrize("kind", TYPES)
def test_spark_receives_what_each_sends(suite: Suite, kind: str, tmp_path: Path) -> None:
    reader, wrong = AmqpStreamReader({"url": suite.url, "address": kind, "spool": str(tmp_path / "spool")}), {}
    at = reader.initialOffset()
    try:
        reader.started().await_address()

        def rows() -> list[dict[str, Any]]:
            nonlocal at
            end = reader.latestOffset(at, ReadAllAvailable())
            found = [
                row for part in reader.partitions(at, end) for each in reader.read(part) for row in each.to_pylist()
            ]
            reader.commit(at := end)
            return found

        for sender in PROTOCOLS:
            said = asyncio.run(Peers(suite).send(sender, kind))
            (row,) = wait_for(rows, f"the row of {sender}")
            got = {
                "body": row["body"],
                "type": row["content_type"],
                "property": dict(row["application_properties"]).get("unit"),
                "reply address": row["reply_to"],
                "correlation": row["correlation_id"],
            }
            if found := differences(got, passed(sender, "Spark")):
                wrong[sender] = found
            if said not in outcomes(sender, "outcome: accepted"):
                wrong[sender] = {"outcome": said}
    finally:
        reader.stop()
    assert wrong == {}


def test_an_address_that_is_not_there(suite: Suite) -> None:
    @asyncio_test
    async def test() -> None:
        peers = Peers(suite)
        said = {protocol: await peers.send(protocol, "nowhere") for protocol in PROTOCOLS}
        assert said == {protocol: outcomes(protocol, "outcome: no such address")[0] for protocol in PROTOCOLS}

    test()


def test_the_table_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
    assert table() in page, table()
