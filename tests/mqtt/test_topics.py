"""Filters and topics: every way to match them agrees with the ten lines that say it plainest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.mqtt.topics import Share, fault_of_filter, fault_of_topic, matches, parse_share

_level = st.sampled_from(["a", "b", "", "$x", "+"])
_filters = st.builds(
    lambda parts, many: "/".join(parts + ["#"] * many), st.lists(_level, max_size=4), st.booleans()
).filter(lambda f: fault_of_filter(f) is None)
_topics = st.lists(st.sampled_from(["a", "b", "", "$x"]), min_size=1, max_size=4).map("/".join).filter(bool)


def _plainly(wanted: list[str], found: list[str]) -> bool:
    if wanted[:1] == ["#"]:
        return True
    if not wanted or not found:
        return not wanted and not found
    return wanted[0] in ("+", found[0]) and _plainly(wanted[1:], found[1:])


def plainly(filter: str, topic: str) -> bool:
    if topic.startswith("$") and filter[0] in "+#":
        return False
    return _plainly(filter.split("/"), topic.split("/"))


@given(_filters, _topics)
def test_matching_agrees_with_the_definition(filter: str, topic: str) -> None:
    assert matches(filter, topic) == plainly(filter, topic)


@pytest.mark.clause("v3.1.1", "MQTT-4.7.1-2", "MQTT-4.7.1-3", "MQTT-4.7.2-1", "MQTT-4.7.3-1", "MQTT-4.7.3-4")
@pytest.mark.clause("v5", "MQTT-4.7.1-1", "MQTT-4.7.1-2", "MQTT-4.7.2-1", "MQTT-4.7.3-1", "MQTT-4.7.3-4")
def test_the_examples_of_the_specifications() -> None:
    for topic in ("sport/tennis/player1", "sport/tennis/player1/ranking", "sport/tennis/player1/score/wimbledon"):
        assert matches("sport/tennis/player1/#", topic)
    assert matches("sport/#", "sport")
    assert matches("#", "sport") and not matches("#", "$SYS/monitor")
    for filter in ("sport/tennis#", "sport/tennis/#/ranking", "sport+", "", "a/b+/c", "##"):
        assert fault_of_filter(filter)
    for filter in ("+", "+/tennis/#", "sport/+/player1", "/", "/+", "//#", "$SYS/#"):
        assert fault_of_filter(filter) is None
    assert matches("sport/tennis/+", "sport/tennis/player1") and not matches("sport/tennis/+", "sport/tennis/player1/x")
    assert matches("sport/+", "sport/") and not matches("sport/+", "sport")
    assert matches("+/+", "/finance") and matches("/+", "/finance") and not matches("+", "/finance")
    assert matches("$SYS/#", "$SYS/monitor/x") and matches("$SYS/monitor/+", "$SYS/monitor/Clients")
    assert not matches("+/monitor/Clients", "$SYS/monitor/Clients")
    assert not matches("ACCOUNTS", "Accounts") and not matches("/a", "a")
    for topic in ("a+", "#", "", "a\0", "\ud800", "x" * 65536):
        assert fault_of_topic(topic)
    assert fault_of_topic("Accounts payable/€") is None


@pytest.mark.clause("v5", "MQTT-4.8.2-1", "MQTT-4.8.2-2")
def test_shared_subscriptions() -> None:
    assert parse_share("$share/g/a/+/#") == Share("g", "a/+/#")
    assert parse_share("$share/g//") == Share("g", "/")
    assert parse_share("$shared/g/a") is None and parse_share("a") is None
    for wrong in ("$share", "$share/", "$share//a", "$share/g", "$share/g/", "$share/g+/a", "$share/#"):
        with pytest.raises(ValueError, match=r"has (no|a) "):
            parse_share(wrong)
