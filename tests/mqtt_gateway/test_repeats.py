"""What is lost with a link while the client has it is not sent to it twice."""

from __future__ import annotations

from typing import Any

from services.mqtt_gateway.amqp.repeats import Repeats
from services.mqtt_gateway.interfaces import Delivery


class Source:
    def __init__(self) -> None:
        self.accepted: list[int] = []

    def accept(self, link: Any, delivery_id: int) -> bool:
        self.accepted.append(delivery_id)
        return True


def delivery(holder: Source, number: int, link: str, **more: Any) -> Delivery:
    given = {"qos": 1, "identity": f"{number:016x}", "source": "q", **more}
    return Delivery("t", b"", handle=(holder, link, number, b""), **given)


def test_what_the_client_has_goes_on_with_the_new_delivery() -> None:
    source, repeats = Source(), Repeats()
    has = [delivery(source, number, "first") for number in range(3)]
    repeats.lost("q", [*has, delivery(source, 3, "first", source="other"), delivery(source, 4, "first", identity=None)])
    assert repeats.unsure("q") and not repeats.unsure("other")
    repeats.settled(has[1])
    again = [delivery(source, number, "second") for number in range(5)]
    assert [repeats.goes_on(each) for each in again] == [True, True, True, False, False]
    assert [each.handle[1] for each in has] == ["second", "first", "second"]
    assert source.accepted == [1]
    assert not repeats.unsure("q")
    assert not repeats.goes_on(again[0])


def test_what_did_not_come_again_is_not_expected_any_more() -> None:
    source, repeats = Source(), Repeats()
    repeats.lost("q", [delivery(source, 1, "first")])
    repeats.lost("other", [delivery(source, 1, "first", source="other")])
    repeats.drained("q")
    assert not repeats.goes_on(delivery(source, 1, "second"))
    assert repeats.goes_on(delivery(source, 1, "second", source="other"))
