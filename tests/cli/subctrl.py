"""A stand-in for `$mqtt/control` of a suite: gives the replies it was made with."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import proton

from enmasse.control import ControlLink, ControlReceiver, ControlSender, Delivery

Replies = dict[str, Any]
"""Subject → body of the reply, or an exception with whose text the request is rejected."""

ROW = {
    "id": "mqtt.thermo", "kind": "mqtt", "client": "thermo", "filters": {"home/#": "1", "cmd/thermo": "2"}, "depth": 3,
    "names": ["home/#", "cmd/thermo"],
    "since": "2026-01-02T03:04:05Z", "brokers": ["b-0"], "connected": False,
}  # fmt: skip
SESSION = {
    "client": "thermo", "connected": True, "gateway": "mqtt_gateway-0", "peer": "127.0.0.1:4000", "protocol": 5,
    "since": "2026-01-02T03:04:05Z", "expiry": 60, "subscriptions": 2, "in_flight": 1,
}  # fmt: skip
RETAINED = {
    "topic": "home/a",
    "name": "home/a",
    "size": 5,
    "qos": 1,
    "since": "2026-01-02T03:04:05Z",
    "expires": "",
    "broker": "b-0",
    "user": "alice",
    "withheld": "user alice may not send to home/a",
}


def answering(replies: Replies, seen: list[tuple[str, Any]] | None = None) -> Callable[[ControlLink], None]:
    """A peer for `test_client.peer`. `seen`: gets subject and body of each request."""
    senders: list[ControlSender] = []

    def attached(link: ControlLink) -> None:
        if isinstance(link, ControlSender):
            link.proton_link.source.address = "replies"
            senders.append(link)
            link.accept()
            return
        assert isinstance(link, ControlReceiver)
        link.on_message = answer
        link.accept()
        link.window = 1
        link.grant(1)

    def answer(delivery: Delivery) -> None:
        message = delivery.message
        if seen is not None:
            seen.append((message.subject, json.loads(message.body) if message.body else None))
        reply = replies.get(message.subject)
        if reply is None or isinstance(reply, Exception):
            delivery.reject("amqp:not-found", str(reply or "unknown subject"))
            return
        body = reply if isinstance(reply, str) else json.dumps(reply)
        senders[-1].send(
            proton.Message(subject=message.subject, correlation_id=message.correlation_id, body=body), settled=True
        )
        delivery.accept()

    return attached
