"""The client against mosquitto: both versions, all QoS, wills, sessions, and refusals."""

from __future__ import annotations

import asyncio

import pytest

from enmasse.aio.mqtt import Client, Disconnected, connect
from enmasse.mqtt import encode
from enmasse.mqtt.packets import (
    V5,
    V311,
    ConnAck,
    Disconnect,
    Properties,
    Subscription,
    Will,
)
from tests.kit.running import run

LARGE = bytes(9 << 20)
"""More than sockets keep."""

versions = pytest.mark.parametrize("version", [V311, V5])


@versions
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_come_in_order_and_once(mosquitto: int, version: int, qos: int) -> None:
    async def work() -> None:
        async with connect(port=mosquitto, version=version) as c, connect(port=mosquitto, version=version) as d:
            await c.subscribe(f"o/{version}/+", qos=qos)
            for number in range(300):
                await d.publish(f"o/{version}/{qos}", str(number), qos)
            got = [await c.message() for _ in range(300)]
            assert [int(m.payload) for m in got] == list(range(300))
            assert {m.qos for m in got} == {qos}

    run(work())


def test_everything_of_a_message_arrives(mosquitto: int) -> None:
    async def work() -> None:
        values = Properties(
            payload_format=1,
            content_type="text/plain",
            response_topic="answers/1",
            correlation_data=b"\0\1",
            user_properties=(("b", "1"), ("a", "2"), ("b", "1")),
        )
        async with connect(port=mosquitto) as c:
            filter = Subscription("full/#", 2, retain_as_published=True)
            assert await c.subscribe(filter, properties=Properties(subscription_ids=(7,))) == (2,)
            await c.publish("full/x", "text", 2, True, values)
            got = await c.message()
            assert (got.topic, got.payload, got.retain) == ("full/x", b"text", True)
            assert got.properties.subscription_ids == (7,)
            assert got.properties.user_properties == values.user_properties
            assert got.properties.correlation_data == b"\0\1" and got.properties.content_type == "text/plain"
            assert await c.unsubscribe("full/#", "never") == (0, 0x11)
            await c.publish("full/x", b"", 1, True)

    run(work())


@versions
def test_a_will_comes_after_a_lost_connection_only(mosquitto: int, version: int) -> None:
    async def work() -> None:
        async with connect(port=mosquitto, version=version) as c:
            await c.subscribe(f"will/{version}", qos=1)
            will = Will(f"will/{version}", b"gone", 1)
            quiet = await connect(port=mosquitto, version=version, will=will).open()
            await quiet.close()
            dying = await connect(port=mosquitto, version=version, will=will).open()
            await dying.abort()
            assert (await c.message()).payload == b"gone"
            await c.publish(f"will/{version}", b"end")
            assert (await c.message()).payload == b"end"

    run(work())


@versions
def test_a_session_goes_on_and_unacknowledged_messages_come_again(mosquitto: int, version: int) -> None:
    async def work() -> None:
        c = connect(
            port=mosquitto, version=version, client_id=f"s{version}", clean=False, session_expiry=60, auto_ack=False
        )
        await c.open()
        assert c.connack is not None and not c.connack.session_present
        await c.subscribe(f"session/{version}", qos=2)
        async with connect(port=mosquitto, version=version) as d:
            for number in range(4):
                await d.publish(f"session/{version}", str(number), 2 if number % 2 else 1)
        first = await c.message()
        c.ack(first)
        c.wire.flush()
        await c.message()
        await c.abort()
        await c.open()
        assert c.connack.session_present
        got = []
        for _ in range(3):
            got.append(await c.message())
            c.ack(got[-1])
        assert [m.payload for m in got] == [b"1", b"2", b"3"]
        c.packet.clean = True
        await c.close()

    run(work())


@versions
def test_a_takeover_and_a_wrong_port_are_noticed(mosquitto: int, version: int) -> None:
    async def work() -> None:
        c = await connect(port=mosquitto, version=version, client_id="twice").open()
        d = await connect(port=mosquitto, version=version, client_id="twice").open()
        await c.lost()
        with pytest.raises(Disconnected):
            await c.publish("x", b"", 1)
        with pytest.raises(Disconnected):
            await c.message()
        await d.close()
        with pytest.raises(OSError):
            await connect(port=1).open()

    run(work())


@versions
def test_a_refusal_has_its_reason(mosquitto: int, version: int) -> None:
    async def work() -> None:
        with pytest.raises(Disconnected) as refused:
            await connect(port=mosquitto, version=V311, clean=False).open()  # no client id: MQTT-3.1.3-8
        assert refused.value.reason == 2
        assert "identifier rejected" in str(refused.value)

    run(work())


def test_the_reason_of_a_disconnect_is_told() -> None:
    async def work() -> None:
        async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            writer.write(encode.encode(ConnAck(), V5))
            writer.write(encode.encode(Disconnect(0x8E, Properties(reason_string="by c2")), V5))
            await reader.read()
            writer.close()

        async with await asyncio.start_server(server, "127.0.0.1", 0) as listening:
            c = await connect(port=listening.sockets[0].getsockname()[1]).open()
            await c.lost()
            assert c.error is not None and c.error.reason == 0x8E
            assert str(c.error).endswith("disconnected by the server: session taken over (by c2)")

    run(work())


@pytest.mark.parametrize(("version", "answer"), [(V311, b"\x70\2\0\7"), (V5, b"\x70\3\0\7\x92")])
def test_pubrel_of_an_unknown_id_is_answered(version: int, answer: bytes) -> None:
    """MQTT 5, 3.7.2.1: packet identifier not found."""

    async def work() -> None:
        found = asyncio.get_running_loop().create_future()

        async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            writer.write(encode.encode(ConnAck(False, 0), version) + encode.ack(encode.PUBREL, 7))
            found.set_result(await reader.readexactly(len(answer)))
            writer.close()

        async with await asyncio.start_server(server, "127.0.0.1", 0) as listening:
            c = await connect(port=listening.sockets[0].getsockname()[1], version=version).open()
            assert await found == answer
            await c.close()

    run(work())


def test_keep_alive_pings_and_notices_a_silent_server() -> None:
    async def work() -> None:
        asked = asyncio.Event()

        async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            writer.write(b"\x20\2\0\0")
            assert await reader.readexactly(2) == b"\xc0\0"
            asked.set()
            await reader.read()
            writer.close()

        async with await asyncio.start_server(server, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            c = await connect(port=port, version=V311, keep_alive=1).open()
            await asked.wait()
            await c.lost()
            assert "PINGREQ" in str(c.error)

    run(work())


def test_a_server_that_reads_what_was_published_is_not_taken_for_a_silent_one() -> None:
    """It has not come to the PINGREQ behind that; once it takes nothing it is."""

    async def work() -> None:
        pings = 0

        async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal pings
            await reader.read(100)
            writer.write(b"\x20\2\0\0")
            await opened.wait()
            for _ in range(2):
                c.publish_nowait("t", LARGE)
                await reader.readuntil(b"t\0")
                await reader.readexactly(len(LARGE) - 1)
                assert await reader.readexactly(2) == b"\xc0\0"
                pings += 1
            c.publish_nowait("t", LARGE)
            await c.lost()
            writer.transport.abort()

        opened = asyncio.Event()
        async with await asyncio.start_server(server, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            c = await connect(port=port, version=V311, keep_alive=2).open()
            opened.set()
            await c.lost()
            assert pings == 2 and "PINGREQ" in str(c.error)

    run(work())


def test_the_receive_maximum_of_the_server_is_kept(mosquitto: int) -> None:
    async def work() -> None:
        c: Client
        async with connect(port=mosquitto) as c:
            most = c.connack.properties.receive_maximum if c.connack else None
            assert most is not None and c.room() == most
            seen = []

            async def one() -> None:
                await c.publish("window", b"x", 1)
                seen.append(c.in_flight)

            await asyncio.gather(*[one() for _ in range(3 * most)])
            assert len(seen) == 3 * most and max(seen) <= most

    run(work())
