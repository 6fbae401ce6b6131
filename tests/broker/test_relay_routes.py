"""Routes of messages to the anonymous relay: what is remembered of earlier messages decides about none that differs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from proton import Message, byte, symbol

from services.broker.producers import RelayProducer


class Catalogue:
    """Every address has a route."""

    def __init__(self) -> None:
        self.routes: dict[tuple[str, str | None], Any] = {}

    def route(self, name: str, kind: str | None) -> Any:
        return self.routes.setdefault((name, kind), SimpleNamespace(name=name, kind=kind, stale=False))


def relay() -> RelayProducer:
    nodes: Any = SimpleNamespace(
        broker=SimpleNamespace(catalogue=Catalogue()), check_send=lambda address: None, check_name=lambda address: None
    )
    nothing: Any = None
    return RelayProducer(nodes, nothing, nothing, "", nothing)


_MESSAGES = st.builds(
    lambda to, durable, kind, more: bytes(
        Message(
            b"x",
            address=to,
            durable=durable,
            annotations={
                **({symbol("x-opt-jms-dest"): byte(kind)} if kind is not None else {}),
                **{symbol("x-opt-mqtt-qos"): each for each in more},
            },
        ).encode()
    ),
    st.sampled_from(("a", "b/c", "l" * 300)),
    st.booleans(),
    st.sampled_from((None, None, 0, 1)),
    st.lists(st.integers(0, 2), max_size=1),
)


@given(st.lists(_MESSAGES, max_size=12))
def test_a_route_is_that_of_its_message_alone(messages: list[bytes]) -> None:
    producer = relay()
    for message in messages:
        found, alone = producer._route_of(message), relay()._route_of(message)
        assert found is not None and alone is not None
        assert (found.name, producer.routing_type) == (alone.name, alone.kind)  # type: ignore[attr-defined]  # Catalogue's
