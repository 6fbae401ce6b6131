"""The link route that a gateway makes for its live state at Qpid Dispatch, with a router that answers as that does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from enmasse.amqp.codec.encoder import encode
from enmasse.amqp.codec.performatives import Source
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.messages.sections import Properties, Sections, encode_properties
from enmasse.bridge.offering import Offering
from enmasse.model.names import RELAYS_TO_TOPICS
from tests.amqp.engine_kit import Pair, Recorder


class Gateway(Recorder):
    """Passes on what the uplink passes on to the users of links."""

    def on_attached(self, link: Link) -> None:
        link.context.on_attached(link)

    def on_flow(self, link: Sender) -> None:
        link.context.on_flow(link)

    def on_detach(self, link: Link, error: Any, closed: bool) -> None:
        link.context.on_detach(link, error)


class Dispatch(Recorder):
    """Answers each request with this status and description."""

    def __init__(self, status: int, description: str = "") -> None:
        super().__init__()
        self._answer = {"statusCode": status, "statusDescription": description}
        self.requests: list[Sections] = []
        self._replies: Sender | None = None
        self.attach = self._attach

    def _attach(self, link: Link) -> None:
        if isinstance(link, Sender):
            link.accept(Source(address="replies", dynamic=True))
            self._replies = link
        else:
            link.accept()

    def on_delivery(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        super().on_delivery(link, delivery_id, settled, payload, tag, message_format)
        self.requests.append(Sections(payload))
        self._reply()

    def on_flow(self, link: Sender) -> None:
        super().on_flow(link)
        self._reply()

    def _reply(self) -> None:
        if not self.requests or self._replies is None or self._replies.credit <= 0:
            return
        request = self.requests[0]
        answer = encode_properties(Properties(correlation_id=request.properties.correlation_id))
        self._replies.send(answer + b"\x00\x53\x74" + encode(self._answer) + b"\x00\x53\x77\x40", settled=True)
        self._replies = None


def offered(router: Recorder, *capabilities: str) -> None:
    pair = Pair(Gateway(), router, server_fields={"offered_capabilities": capabilities})
    Offering("gateway-0").up(pair.c)
    pair.run()


def logged(capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    """Return what was logged of it: what other tests have left behind may write at any time."""
    lines = (json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{"))
    return [line for line in lines if line["event"] == "gateway.live.not-offered"]


def test_it_is_made_at_dispatch_on_the_connection_and_the_links_end(capsys: pytest.CaptureFixture[str]) -> None:
    router = Dispatch(201)
    offered(router, "ANONYMOUS-RELAY", "qd.streaming-links")
    (request,) = router.requests
    assert request.properties.reply_to == "replies"
    asked = request.application_properties
    assert (asked["operation"], asked["type"]) == ("CREATE", "org.apache.qpid.dispatch.router.connection.linkRoute")
    assert request.body()[1] == [{"pattern": "$live/gateway-0", "direction": "out"}]
    assert router.names().count("detach") == 2
    assert logged(capsys) == []


def test_a_refusal_is_logged_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    offered(Dispatch(403, "Forbidden"))
    assert [line["reason"] for line in logged(capsys)] == ["Forbidden"]


def test_the_embedded_router_is_asked_for_nothing() -> None:
    router = Dispatch(201)
    offered(router, "ANONYMOUS-RELAY", RELAYS_TO_TOPICS)
    assert router.names() == ["open"]
