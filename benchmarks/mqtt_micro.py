"""Cost of one packet in the MQTT codec: bytes to packet and packet to bytes, no sockets.

    python -m benchmarks.mqtt_micro [--size BYTES]

Beside it amqtt's codec (3.1.1), which is bound to streams: it reads from memory here.
"""

from __future__ import annotations

import argparse
import asyncio
import timeit
from collections.abc import Callable

from amqtt.adapters import BufferReader
from amqtt.mqtt.packet import MQTTFixedHeader
from amqtt.mqtt.publish import PublishPacket

from enmasse.mqtt import encode
from enmasse.mqtt.packets import V5, V311, Connect, Properties, Publish
from enmasse.mqtt.reader import Reader

MANY = 100
TOPIC = "telemetry/site-7/temperature"


def cost(work: Callable[[], object], each: int = 1) -> float:
    """Microseconds, the least of many runs: others use the machine too."""
    return min(timeit.repeat(work, number=10, repeat=200)) / 10 / each * 1e6


def row(name: str, reading: float, writing: float) -> None:
    print(f"{name:36} {reading:8.2f} {writing:8.2f}")


def ours(version: int, qos: int, size: int) -> None:
    reader = Reader()
    reader.feed(encode.encode(Connect("c", version=version), version, True))
    topic, none, payload = encode.topic_field(TOPIC), b"\0" if version == V5 else b"", b"x" * size
    data = b"".join(encode.publish(qos << 1, topic, number, none, payload) for number in range(1, MANY + 1))
    reading = cost(lambda: reader.feed(data), MANY)
    writing = cost(lambda: [encode.publish(qos << 1, topic, 1000, none, payload) for _ in range(MANY)], MANY)
    row(f"PUBLISH, QoS {qos}, {'5' if version == V5 else '3.1.1'}", reading, writing)


def acknowledgements() -> None:
    reader = Reader()
    reader.feed(encode.encode(Connect("c"), V5, True))
    data = b"".join(encode.ack(encode.PUBACK, number) for number in range(1, MANY + 1))
    writing = cost(lambda: [encode.ack(encode.PUBACK, 1000) for _ in range(MANY)], MANY)
    row("PUBACK", cost(lambda: reader.feed(data), MANY), writing)


def with_properties(size: int) -> None:
    reader = Reader()
    reader.feed(encode.encode(Connect("c"), V5, True))
    values = Properties(content_type="application/json", message_expiry=60, user_properties=(("site", "7"),))
    topic, payload = encode.topic_field(TOPIC), b"x" * size
    data = encode.encode(Publish(TOPIC, payload, 1, packet_id=1, properties=values), V5, True) * MANY
    writing = cost(
        lambda: [encode.publish(2, topic, 1, encode.publish_properties(values), payload) for _ in range(MANY)], MANY
    )
    row("PUBLISH, QoS 1, 5, three properties", cost(lambda: reader.feed(data), MANY), writing)


def of_amqtt(qos: int, size: int) -> None:
    payload = b"x" * size
    one = encode.encode(Publish(TOPIC, payload, qos, packet_id=qos and 1), V311)

    async def read() -> None:
        reader = BufferReader(one * MANY)
        for _ in range(MANY):
            header = await MQTTFixedHeader.from_stream(reader)
            await PublishPacket.from_stream(reader, fixed_header=header)

    loop = asyncio.new_event_loop()
    reading = cost(lambda: loop.run_until_complete(read()), MANY)
    loop.close()
    writing = cost(lambda: PublishPacket.build(TOPIC, payload, qos and 1, False, qos, False).to_bytes())
    row(f"PUBLISH, QoS {qos}, 3.1.1, amqtt", reading, writing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100, help="payload bytes")
    size = parser.parse_args().size
    print(f"{'microseconds, payload ' + str(size):36} {'read':>8} {'write':>8}")
    for version in (V311, V5):
        for qos in (0, 1):
            ours(version, qos, size)
    with_properties(size)
    acknowledgements()
    for qos in (0, 1):
        of_amqtt(qos, size)


if __name__ == "__main__":
    main()
