"""`enmasse publish` and `subscribe` against a peer that does as it is told."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import msgspec
import pytest

from enmasse.cli.commands.messaging.publish import FRUITLESS
from enmasse.mqtt.packets import (
    NEVER,
    Connect,
    Disconnect,
    Packet,
    Properties,
    PubAck,
    Publish,
    PubRel,
    Subscribe,
    Subscription,
    Will,
)
from tests.cli.mqtt_peer import Broker, mqtt_peer
from tests.cli.running import ENMASSE, enmasse
from tests.kit.waiting import DEADLINE


def told(broker: Broker, *arguments: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
    with mqtt_peer(broker) as port:
        done = enmasse(*arguments, "--server", f"127.0.0.1:{port}", input=input)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def connects(broker: Broker) -> list[Connect]:
    return [packet for packet in broker.packets if isinstance(packet, Connect)]


def disconnects(broker: Broker) -> list[Disconnect]:
    return [packet for packet in broker.packets if isinstance(packet, Disconnect)]


def lines(done: subprocess.CompletedProcess[str]) -> list[Any]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_everything_that_can_be_said_of_a_message() -> None:
    broker = Broker()
    done = told(
        broker,
        *("publish", "a/b", "hello", "-q", "2", "-r", "--ttl", "30", "--content-type", "text/plain"),
        *("--response-topic", "answers", "--correlation-data", "7", "--property", "b=1", "--property", "a=x=y"),
        *("--client-id", "me", "--will-topic", "w", "--will-message", "gone", "--will-retain", "--will-delay", "5"),
        "--json",
    )
    assert done.returncode == 0
    assert lines(done) == [
        {"topic": "a/b", "sent": 1, "acknowledged": 1, "no_subscribers": 0, "refused": 0, "error": None}
    ]
    (publish,) = broker.of(Publish)
    connect = broker.of(Connect)[-1]
    assert isinstance(connect, Connect) and isinstance(publish, Publish)
    assert connect.will == Will("w", b"gone", 2, True, Properties(will_delay=5)) and connect.client_id == "me"
    assert (publish.topic, publish.payload, publish.qos, publish.retain) == ("a/b", b"hello", 2, True)
    assert publish.properties == Properties(
        message_expiry=30,
        content_type="text/plain",
        response_topic="answers",
        correlation_data=b"7",
        user_properties=(("b", "1"), ("a", "x=y")),
    )


def test_lines_of_stdin_and_numbers() -> None:
    broker = Broker()
    assert told(broker, "publish", "t", input="a\r\n\nlast").returncode == 0
    assert [p.payload for p in broker.of(Publish)] == [b"a", b"", b"last"]  # type: ignore[union-attr]  # of() gives packets of this type only
    broker = Broker()
    assert told(broker, "publish", "t", "-m", "2", "-q", "0", "--mqtt", "3.1.1").returncode == 0
    assert broker.of(Publish) == [Publish("t", b'{"sequence": 1}'), Publish("t", b'{"sequence": 2}')]


def test_more_messages_than_packet_ids_are_waiting() -> None:
    broker = Broker()
    done = told(broker, "publish", "t", "x", "-m", "1200")
    assert done.stdout.endswith("topic t: 1200 acknowledged\n")


@pytest.mark.parametrize("qos", ["1", "2"])
def test_a_refusal_is_told_with_its_reason(qos: str) -> None:
    done = told(Broker(reason=0x97, text="the queue is full"), "publish", "t", "x", "-q", qos)
    assert done.returncode == 1
    assert "t: refused: quota exceeded (the queue is full)" in done.stderr
    assert done.stdout.endswith("0 acknowledged, 1 refused\n")
    done = told(Broker(reason=0x10), "publish", "t", "x", "-q", qos)
    assert done.returncode == 0 and "1 of them had no subscriber" in done.stdout


def test_messages_are_printed_once_each_and_acknowledged() -> None:
    values = Properties(content_type="x/y", correlation_data=b"\xff", message_expiry=9, user_properties=(("k", "v"),))
    broker = Broker("plain", Publish("t/é", "é".encode(), 2, True, properties=values), Publish("t", b"\xff\xfe", 1))
    done = told(broker, "subscribe", "t/#", "-m", "3", "-q", "2", "--json")
    assert done.returncode == 0
    assert lines(done) == [
        {"topic": "t", "body": "plain", "qos": 1, "retain": False},
        {
            "topic": "t/é",
            "body": "é",
            "qos": 2,
            "retain": True,
            "content_type": "x/y",
            "correlation_data": {"base64": "/w=="},
            "ttl": 9,
            "properties": [["k", "v"]],
        },
        {"topic": "t", "body": {"base64": "//4="}, "qos": 1, "retain": False},
    ]
    (subscribe,) = broker.of(Subscribe)
    assert isinstance(subscribe, Subscribe) and subscribe.subscriptions == (Subscription("t/#", 2),)
    assert told(Broker("a", "b"), "subscribe", "t", "-v", "-m", "2").stdout == "t a\nt b\n"


@pytest.mark.parametrize(
    ("options", "present", "said"),
    [
        ((), False, "may be missing: --client-id with --session-expiry has them stored"),
        (("-i", "me", "--session-expiry", "60"), False, "may be missing: the server has not kept the session"),
        (("-i", "me", "--session-expiry", "60"), True, "no message that was published with QoS 1 or 2 is missing"),
        (("-i", "me", "--session-expiry", "60", "-q", "0"), True, "may be missing: --qos 1 has them stored"),
    ],
)
def test_it_says_after_a_loss_whether_messages_may_be_missing(
    options: tuple[str, ...], present: bool, said: str
) -> None:
    done = told(Broker("a", "b", close_after=1, present=present), "subscribe", "t", "-m", "2", *options)
    assert (done.returncode, done.stdout) == (0, "a\nb\n")
    lost, back = done.stderr.splitlines()[-2:]
    assert lost.endswith("connecting again") and "connected again; " in back and back.endswith(said)


def test_it_connects_again_and_goes_on_with_its_session() -> None:
    broker = Broker("a", "b", "c", close_after=1, present=False)
    with mqtt_peer(broker) as port:
        command = [ENMASSE, "subscribe", "t", "--server", f"127.0.0.1:{port}", "-m", "3", "-i", "me"]
        done = subprocess.run([*command, "--session-expiry", "never"], capture_output=True, text=True, timeout=DEADLINE)
    assert (done.returncode, done.stdout) == (0, "a\nb\nc\n")
    assert "connecting again" in done.stderr
    first, second = broker.of(Connect)
    assert isinstance(first, Connect) and first == second
    assert not first.clean and first.properties.session_expiry == NEVER
    assert len(broker.of(PubAck)) == 3


class Closing(Broker):
    """Closes its first connections at the second PUBLISH, and at the second PUBREL."""

    def __init__(self, *, present: bool) -> None:
        super().__init__(present=present)
        self.closes = [Publish, PubRel]
        self.at: list[tuple[int, Packet]] = []

    def answer(self, packet: Packet) -> list[Packet] | None:
        self.at.append((len(self.of(Connect)), msgspec.structs.replace(packet)))
        answers = super().answer(packet)
        if self.closes and isinstance(packet, self.closes[0]) and len(self.of(self.closes[0])) == 2:
            self.closes.pop(0)
            return None
        return answers


@pytest.mark.parametrize("present", [True, False])
def test_publish_connects_again_and_publishes_what_is_not_acknowledged(present: bool) -> None:
    """A message whose PUBREC is lost is sent again; one that the server has taken is released, if its session stays."""
    broker = Closing(present=present)
    done = told(broker, "publish", "t", "-q", "2", input="a\nb\nc\n")
    assert done.returncode == 0 and "published 3 to" in done.stdout, done.stderr
    assert done.stderr.count("connecting again") == 2 and done.stdout.endswith("topic t: 3 acknowledged\n")
    first, *others = connects(broker)
    assert first.clean and not any(each.clean for each in others) and first.properties.session_expiry == 10
    assert {each.client_id for each in others} == {first.client_id} != {""}
    assert disconnects(broker)[-1].properties.session_expiry == 0
    sent = [(at, p.payload, p.dup) for at, p in broker.at if isinstance(p, Publish)]
    assert sent[:2] == [(1, b"a", False), (1, b"b", False)]
    assert (2, b"b", present) in sent and {payload for _, payload, _ in sent} == {b"a", b"b", b"c"}
    last = [p for at, p in broker.at if at == 3]
    assert isinstance(last[1], PubRel if present else Publish)


def test_publish_gives_up_with_a_server_that_closes_at_each_message() -> None:
    class Refusing(Broker):
        def answer(self, packet: Packet) -> list[Packet] | None:
            return None if isinstance(packet, Publish) else super().answer(packet)

    broker = Refusing()
    done = told(broker, "publish", "t", "x", "--mqtt", "3.1.1")
    assert done.returncode == 4 and len(connects(broker)) == FRUITLESS
    assert "1 without an answer" in done.stdout


def test_a_session_is_deleted_by_a_clean_one() -> None:
    broker = Broker("a", present=True)
    assert (
        told(broker, "subscribe", "t", "-m", "1", "-i", "me", "--session-expiry", "60", "--unsubscribe").returncode == 0
    )
    last = broker.of(Connect)[-1]
    assert isinstance(last, Connect) and last.clean and last.properties is not None and last.client_id == "me"
    assert last.properties.session_expiry is None


@pytest.mark.parametrize("version", ["5", "3.1.1"])
@pytest.mark.parametrize("command", [("publish", "t", "x"), ("subscribe", "t", "-m", "1")], ids=lambda c: c[0])
def test_a_stored_session_is_continued_and_kept_unless_clean_is_given(command: tuple[str, ...], version: str) -> None:
    broker = Broker("a", present=True)
    done = told(broker, *command, "-i", "me", "--mqtt", version)
    assert done.returncode == 0 and "continuing the session that the server keeps for me" in done.stderr
    assert [(c.clean, c.properties.session_expiry) for c in connects(broker)] == [
        (False, NEVER if version == "5" else None)
    ]
    assert all(packet.properties.session_expiry is None for packet in disconnects(broker))
    broker = Broker("a", present=True)
    done = told(broker, *command, "-i", "me", "--mqtt", version, "--clean")
    assert done.returncode == 0 and done.stderr == ""
    assert [c.clean for c in connects(broker)] == [True]


@pytest.mark.parametrize("command", [("publish", "t", "x"), ("subscribe", "t", "-m", "1")], ids=lambda c: c[0])
def test_a_session_that_did_not_exist_ends_with_the_command(command: tuple[str, ...]) -> None:
    broker = Broker("a", present=False)
    assert told(broker, *command, "-i", "me").returncode == 0
    last = connects(broker)[-1]
    assert last.clean and last.properties.session_expiry is None


def test_unsubscribe_prints_what_a_stored_session_holds_and_then_deletes_it() -> None:
    broker = Broker("a", "b", present=True)
    done = told(broker, "subscribe", "t", "-i", "me", "-m", "2", "--unsubscribe")
    assert (done.returncode, done.stdout) == (0, "a\nb\n")
    first, last = connects(broker)
    assert not first.clean and last.clean and last.properties.session_expiry is None
    assert broker.packets.index(last) > max(broker.packets.index(ack) for ack in broker.of(PubAck))


def test_a_session_that_is_not_there_cannot_be_deleted() -> None:
    done = told(Broker("a"), "subscribe", "t", "-i", "gone", "--unsubscribe")
    assert (done.returncode, done.stdout) == (1, "") and "there is no session 'gone' to delete" in done.stderr


def test_a_clean_session_can_be_kept() -> None:
    broker = Broker("a")
    assert told(broker, "subscribe", "t", "-i", "me", "-m", "1", "--clean", "--session-expiry", "60").returncode == 0
    assert [(c.clean, c.properties.session_expiry) for c in connects(broker)] == [(True, None), (False, 60)]


def test_a_filter_that_no_address_takes_has_its_own_error() -> None:
    done = told(Broker(reason=0x8F), "subscribe", "t")
    assert done.returncode == 4
    assert done.stderr.endswith("t: not subscribed: topic filter invalid [subscription.filter.refused]\n")


def test_a_taken_over_client_does_not_fight_back() -> None:
    done = told(Broker(connack=0x87, text="no"), "subscribe", "t")
    assert done.returncode == 4
    assert "refused: not authorized (no). Set ENMASSE_USER" in done.stderr and "[server.login.missing]" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("publish", "a/#", "x"),
        ("publish", "", "x"),
        ("publish", "t", "x", "--ttl", "3", "--mqtt", "3.1.1"),
        ("publish", "t", "x", "--property", "novalue"),
        ("publish", "t", "x", "--will-message", "x"),
        ("publish", "t", "x", "--will-topic", "+"),
        ("publish", "t", "x", "--server", "amqp://h"),
        ("publish", "t", "x", "--server", "mqtt://h/path"),
        ("publish", "t", "x", "--server", "mqtt://h:99999"),
        ("publish", "t", "x", "--response-topic", "a/+"),
        ("subscribe",),
        ("subscribe", "a#"),
        ("subscribe", "$share/g"),
        ("subscribe", "t", "--session-expiry", "9"),
        ("subscribe", "t", "--unsubscribe"),
        ("subscribe", "t", "--clean"),
        ("publish", "t", "x", "--clean"),
        ("subscribe", "t", "--session-expiry", "soon", "-i", "me"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    done = enmasse(*arguments)
    assert done.returncode == 2
    assert "Error:" in done.stderr
