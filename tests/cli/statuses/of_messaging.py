"""Exit statuses of commands that send and receive, by AMQP and MQTT."""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import proton

from enmasse.control import ControlLink, ControlReceiver, ControlSender, Delivery
from tests.cli.mqtt_peer import Broker, mqtt_peer
from tests.cli.statuses.cases import Case, case, of
from tests.cli.statuses.of_operators import ANSWERS
from tests.cli.subctrl import answering
from tests.cli.test_client import PASSES, giving, peer, taking

PAYLOAD: dict[str, tuple[str, ...]] = defaultdict(tuple, {"send": ("x",), "publish": ("x",)})
"""What commands are given to send."""


def passing_on() -> Callable[[ControlLink], None]:
    """A peer that gives what it gets to the one who receives."""
    receivers: list[ControlSender] = []

    def attached(link: ControlLink) -> None:
        if isinstance(link, ControlSender):
            receivers.append(link)
            link.accept()
            return
        assert isinstance(link, ControlReceiver)
        link.on_message = passes_on
        link.accept()
        link.window = 10
        link.grant(10)

    def passes_on(delivery: Delivery) -> None:
        receivers[0].send(delivery.message)
        delivery.accept()

    return attached


def refusing(link: ControlLink) -> None:
    link.refuse("amqp:not-found", "no such address")


def asking(link: ControlLink) -> None:
    """A peer that has one request, and accepts its reply."""
    if isinstance(link, ControlSender):
        link.accept()
        link.send(proton.Message(body="?", reply_to="replies", correlation_id="1"))
        return
    assert isinstance(link, ControlReceiver)
    link.on_message = Delivery.accept
    link.accept()
    link.window = 1
    link.grant(1)


@case("request", 0)
def request_answered(folder: Path) -> int:
    with peer(answering(ANSWERS)) as port:
        return of("request", "-a", f"127.0.0.1:{port}/q", "--subject", "sessions", "--timeout", 60)


@case("request", 1)
def request_rejected(folder: Path) -> int:
    with peer(answering({})) as port:
        return of("request", "-a", f"127.0.0.1:{port}/q", "--timeout", 60)


@case("request", 3)
def request_without_reply(folder: Path) -> int:
    def taken(link: ControlLink) -> None:
        if isinstance(link, ControlSender):
            link.proton_link.source.address = "replies"
            link.accept()
        else:
            taking(lambda delivery, _: delivery.accept())(link)

    with peer(taken) as port:
        return of("request", "-a", f"127.0.0.1:{port}/q", "--timeout", PASSES)


@case("reply", 0)
def reply_accepted(folder: Path) -> int:
    with peer(asking) as port:
        return of("reply", "-a", f"127.0.0.1:{port}/q", "--count", 1, "--timeout", 60)


@case("reply", 3)
def no_request(folder: Path) -> int:
    with peer(giving()) as port:
        return of("reply", "-a", f"127.0.0.1:{port}/q", "--count", 1, "--timeout", 0.5)


@case("send", 0)
def accepted(folder: Path) -> int:
    with peer(taking(lambda delivery, _: delivery.accept())) as port:
        return of("send", "-a", f"127.0.0.1:{port}/q", "-m", 5)


@case("send", 1)
def released(folder: Path) -> int:
    with peer(taking(lambda delivery, _: delivery.release())) as port:
        return of("send", "-a", f"127.0.0.1:{port}/q", "-m", 5)


@case("send", 1)
def rejected(folder: Path) -> int:
    with peer(taking(lambda delivery, _: delivery.reject("amqp:not-allowed", "no"))) as port:
        return of("send", "-a", f"127.0.0.1:{port}/q", "-m", 5)


@case("send", 3)
def no_credit(folder: Path) -> int:
    with peer(taking(lambda delivery, _: None, credit=0)) as port:
        return of("send", "-a", f"127.0.0.1:{port}/q", "-m", 5, "--timeout", PASSES)


@case("send", 3)
def no_outcome(folder: Path) -> int:
    with peer(taking(lambda delivery, _: None)) as port:
        return of("send", "-a", f"127.0.0.1:{port}/q", "-m", 5, "--timeout", PASSES)


@case("receive", 0)
def received(folder: Path) -> int:
    with peer(giving("a", "b")) as port:
        return of("receive", "-a", f"127.0.0.1:{port}/q", "--count", 2, "--timeout", 60)


@case("receive", 0)
def received_as_long_as_something_came(folder: Path) -> int:
    with peer(giving("a", "b")) as port:
        return of("receive", "-a", f"127.0.0.1:{port}/q", "--timeout", 1)


@case("receive", 1)
def no_such_subscription(folder: Path) -> int:
    with peer(refusing) as port:  # by a null source: subscriptions are looked for by their names
        return of("receive", "-a", f"127.0.0.1:{port}/t", "--durable", "sub", "--unsubscribe")


@case("receive", 3)
def too_few(folder: Path) -> int:
    with peer(giving("a", "b")) as port:
        return of("receive", "-a", f"127.0.0.1:{port}/q", "--count", 3, "--timeout", 1)


@case("publish", 0)
def acknowledged(folder: Path) -> int:
    with mqtt_peer(Broker()) as port:
        return of("publish", "t", "-m", 5, "--server", f"127.0.0.1:{port}")


@case("publish", 1)
def publications_refused(folder: Path) -> int:
    with mqtt_peer(Broker(reason=0x97)) as port:
        return of("publish", "t", "-m", 5, "--server", f"127.0.0.1:{port}")


@case("publish", 3)
def no_acknowledgement(folder: Path) -> int:
    with mqtt_peer(Broker(acknowledges=False)) as port:
        return of("publish", "t", "-m", 5, "--server", f"127.0.0.1:{port}", "--timeout", PASSES)


@case("subscribe", 0)
def printed(folder: Path) -> int:
    with mqtt_peer(Broker("a", "b")) as port:
        return of("subscribe", "t", "--server", f"127.0.0.1:{port}", "--count", 2, "--timeout", 60)


@case("subscribe", 0)
def printed_as_long_as_something_came(folder: Path) -> int:
    with mqtt_peer(Broker("a", "b")) as port:
        return of("subscribe", "t", "--server", f"127.0.0.1:{port}", "--timeout", 1)


@case("subscribe", 3)
def too_few_messages(folder: Path) -> int:
    with mqtt_peer(Broker("a", "b")) as port:
        return of("subscribe", "t", "--server", f"127.0.0.1:{port}", "--count", 3, "--timeout", 1)


@case("subscribe", 4)
def filter_refused(folder: Path) -> int:
    with mqtt_peer(Broker(reason=0x87)) as port:
        return of("subscribe", "t", "--server", f"127.0.0.1:{port}")


@case("bench", 0)
def measured(folder: Path) -> int:
    with peer(passing_on()) as port:
        return of("bench", "-a", f"127.0.0.1:{port}/q", "--seconds", 0.1)


@case("bench", 1)
def messages_of_others(folder: Path) -> int:
    def attached(link: ControlLink) -> None:
        if isinstance(link, ControlSender):
            giving("somebody else's")(link)
        else:
            taking(lambda delivery, _: delivery.accept())(link)

    with peer(attached) as port:
        return of("bench", "-a", f"127.0.0.1:{port}/q", "--seconds", 0.1)


@case("bench", 3)
def nothing_came_through(folder: Path) -> int:
    def attached(link: ControlLink) -> None:
        if isinstance(link, ControlSender):
            link.accept()
        else:
            taking(lambda delivery, _: delivery.accept())(link)

    with peer(attached) as port:
        return of("bench", "-a", f"127.0.0.1:{port}/q", "--seconds", 0.1)


def no_connection(command: str) -> Case:
    def run(folder: Path) -> int:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            return of(command, "-a", f"127.0.0.1:{nobody.getsockname()[1]}/q", *PAYLOAD[command])

    return run


def no_mqtt_connection(command: str) -> Case:
    def run(folder: Path) -> int:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            return of(command, "t", *PAYLOAD[command], "--server", f"127.0.0.1:{nobody.getsockname()[1]}")

    return run


def client_refused(command: str) -> Case:
    def run(folder: Path) -> int:
        with mqtt_peer(Broker(connack=0x87)) as port:
            return of(command, "t", *PAYLOAD[command], "--server", f"127.0.0.1:{port}")

    return run


def address_refused(command: str) -> Case:
    def run(folder: Path) -> int:
        with peer(refusing) as port:
            return of(command, "-a", f"127.0.0.1:{port}/q", *PAYLOAD[command])

    return run


for name in ("send", "receive", "request", "reply", "bench"):
    case(name, 4)(no_connection(name))
    case(name, 4)(address_refused(name))
for name in ("publish", "subscribe"):
    case(name, 4)(no_mqtt_connection(name))
    case(name, 4)(client_refused(name))
