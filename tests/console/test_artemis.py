"""What the console concludes from the listings of Artemis, without a broker."""

from __future__ import annotations

import pytest

from enmasse.control import RequestFailed
from enmasse.control.listings import AddressRow, QueueRow
from enmasse.engines.artemis.live import State
from enmasse.engines.messages.artemis import Content, Row, distinct
from enmasse.engines.messages.selector import both, origin_is, translated
from enmasse.live import Merged


def row(id: int, message_id: str | None, priority: int = 4) -> Row:
    return Row(id, True, priority, 0, message_id, None)


def content(text: str, message_id: str | None, priority: int = 4) -> Content:
    return Content(text.encode(), len(text), 0, False, 0, (True, priority, message_id, None))


def test_messages_that_are_alike_get_no_content_in_a_queue_that_changes() -> None:
    rows = [row(1, "a"), row(2, None), row(3, "b"), row(4, "b"), row(5, "b", priority=5), row(6, "gone")]
    contents = [content("A", "a"), content("?", None), content("B", "b"), content("B5", "b", 5), content("new", "n")]
    assert {id: each.payload for id, each in distinct(rows, contents).items()} == {1: b"A", 5: b"B5"}


def test_only_what_has_changed_is_told_after_the_first_look() -> None:
    state, merged = State("b0"), Merged()
    queues = {"q": QueueRow("q", "q", messageCount="2", messagesAdded="2"), "r": QueueRow("r", "r", messagesAdded="1")}
    first = state.news(queues, {"t": AddressRow("t", routedMessageCount="7")})
    merged.apply(first)
    assert first["full"] and merged.component == "b0"
    assert {id: each["messages"] for id, each in merged.kinds["queues"].items()} == {"q": 2, "r": 0}
    assert merged.kinds["addresses"] == {"t": {"in": 7}}
    later = state.news({"q": QueueRow("q", "q", messageCount="1", messagesAdded="2", messagesAcked="1")}, {})
    assert (later["full"], list(later["queues"]), later["addresses"]) == (False, ["q"], {})
    assert later["removed"] == {"queues": ["r"], "addresses": ["t"]}
    merged.apply(later)
    assert (list(merged.kinds["queues"]), merged.kinds["queues"]["q"]["out"]) == (["q"], 1)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("JMSPriority > 4 AND color = 'JMSPriority'", "AMQPriority > 4 AND color = 'JMSPriority'"),
        ("JMSDeliveryMode <> 'PERSISTENT'", "AMQDurable <> 'DURABLE'"),
        ("mode = 'PERSISTENT' OR it = 'it''s'", "mode = 'PERSISTENT' OR it = 'it''s'"),
        ("", ""),
    ],
)
def test_selectors_have_the_names_of_its_management(given: str, found: str) -> None:
    assert translated(given) == found


def test_a_name_that_chooses_nothing_is_refused() -> None:
    with pytest.raises(RequestFailed, match="JMSReplyTo"):
        translated("a = 1 OR JMSReplyTo = 'x'")


def test_dead_letters_of_several_addresses_are_chosen() -> None:
    assert both(origin_is(["a", "it's"]), "n = 1") == (
        "(_AMQ_ORIG_ADDRESS = 'a' OR _AMQ_ORIG_ADDRESS = 'it''s') AND (n = 1)"
    )
    assert both("", "n = 1") == both("n = 1", "") == "n = 1"
