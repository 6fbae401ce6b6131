"""`mqttDefault` moves to another address: a gateway publishes there once subscribers are bound there."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from enmasse.bridge.client_access import ClientAccess
from enmasse.model.addresses import Address
from enmasse.model.names import DEFAULT_SPACE, AddressName
from enmasse.model.sessions import BindDefault, Done
from enmasse.model.topic_map import TopicMap
from services.mqtt_gateway.amqp import gateway_state
from services.mqtt_gateway.amqp.gateway_state import Shared
from services.mqtt_gateway.amqp.session_service import Control, RequestFailed
from tests.kit.running import asyncio_test
from tests.kit.waiting import until


class Service:
    """The subscription service; a test gives its answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: asyncio.Queue[Exception | None] = asyncio.Queue()

    async def request(self, subject: str, body: BindDefault, kind: type[Done]) -> Done:
        assert (subject, kind) == ("bind_default", Done)
        assert body.space == DEFAULT_SPACE
        self.asked.append(body.name)
        if (error := await self.answers.get()) is not None:
            raise error
        return Done(count=1)


def topics(default: str, *more: str) -> TopicMap:
    names = ["old", "new", "other", *more]
    return TopicMap({AddressName(name): Address(type="topic", mqtt_default=name == default) for name in names})


@asyncio_test
async def test_a_gateway_publishes_to_a_new_default_once_it_is_bound(monkeypatch: Any) -> None:
    monkeypatch.setattr(gateway_state, "AGAIN", 0)
    service = Service()
    shared = Shared(cast(Control, service), cast(ClientAccess, None))

    def way(topic: str) -> str | None:
        found = shared.publishing.way(topic)
        return None if found is None else found.route.to

    shared.set_topics(topics("old"))
    assert (way("x"), service.asked) == ("old/x", [])
    shared.set_topics(topics("new"))
    shared.set_topics(topics("new", "more"))
    assert (way("x"), way("more/x"), way("new/x")) == ("old/x", "more/x", "new/x")
    assert shared.reader is not None and shared.topics.spellings("new/x") == ("x", "new/x")
    service.answers.put_nowait(RequestFailed(0x80, "the broker is away"))
    await until(lambda: service.asked == ["new", "new"])
    assert way("x") == "old/x"
    shared.set_topics(topics("other"))
    service.answers.put_nowait(None)
    await until(lambda: service.asked == ["new", "new", "other"])
    assert way("x") == "old/x"
    service.answers.put_nowait(None)
    await until(lambda: way("x") == "other/x")
    shared.set_topics(topics(""))
    assert way("x") is None
    shared.set_topics(topics("old"))
    assert way("x") is None
    shared.set_topics(topics(""))
    service.answers.put_nowait(None)
    await until(lambda: not shared.tasks)
    assert way("x") is None
