"""A router whose anonymous terminus does not reach topics, as Qpid Dispatch: each topic has a link, and few stay."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from enmasse.amqp.codec.performatives import Target
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.sender import Sender
from enmasse.bridge.publishing import MAX_LINKS, Publishing
from enmasse.model.addresses import Address
from enmasse.model.names import RELAYS_TO_TOPICS, AddressName
from enmasse.model.topic_map import TopicMap
from services.mqtt_gateway.amqp.mapping import TopicRoute

TOPICS = TopicMap({AddressName("t"): Address(type="topic", flavor="f"), AddressName("q"): Address(type="anycast")})


class FakeLink(Sender):
    """The end of a link that the router has accepted."""

    def __init__(self, address: str | None, router: FakeRouter) -> None:
        self.remote_target = Target(address=address)
        self._router = router

    @property
    def unsettled(self) -> Any:
        return ()

    def detach(self, *_: Any, **__: Any) -> None:
        del self._router.there[cast(Target, self.remote_target).address]


class FakeRouter:
    """What a gateway attaches, and that it is attached at once."""

    def __init__(self, *offered: str) -> None:
        self.there: dict[str | None, FakeLink] = {}
        self.remote_open = SimpleNamespace(offered_capabilities=tuple(map(Symbol, offered)))
        self.ended = False

    def begin(self) -> Any:
        return self

    def attach_sender(self, name: str | None, source: Any, target: Any, properties: Any = None) -> FakeLink:
        self.there[target.address] = FakeLink(target.address, self)
        return self.there[target.address]


def uses(publishing: Publishing[TopicRoute], router: FakeRouter, topic: str) -> str | None:
    """Which link a message to the topic takes."""
    way = publishing.way(topic)
    assert way is not None
    if way.lane.link is None:
        way.lane.on_attached(router.there[way.lane.address])
    return way.lane.address


def test_one_link_for_all_topics_or_one_for_each() -> None:
    publishing = Publishing(TOPICS, TopicRoute.find)
    ours, dispatch = FakeRouter("ANONYMOUS-RELAY", RELAYS_TO_TOPICS), FakeRouter("ANONYMOUS-RELAY")
    publishing.up(cast(Any, ours))
    assert [uses(publishing, ours, topic) for topic in ("t/a", "t/b")] == [None, None]
    publishing.up(cast(Any, dispatch))
    assert [uses(publishing, dispatch, topic) for topic in ("t/a", "t/b", "q")] == ["t/a", "t/b", "q"]


def test_topics_without_end_have_few_links_and_no_memory() -> None:
    publishing, router = Publishing(TOPICS, TopicRoute.find), FakeRouter()
    publishing.up(cast(Any, router))
    uses(publishing, router, "q")
    for number in range(3 * MAX_LINKS):
        uses(publishing, router, f"t/{number}")
        uses(publishing, router, "q")
    assert publishing.links == len(router.there.keys() - {None}) == MAX_LINKS
    assert "q" in router.there, "what is used stays"
    assert "t/0" not in router.there
    assert uses(publishing, router, "t/0") == "t/0"
    assert "t/0" in router.there
