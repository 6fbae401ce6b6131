"""SUBSCRIBE and UNSUBSCRIBE: filters, granted QoS, overlapping, shared, retained messages."""

from __future__ import annotations

import itertools

import pytest

from enmasse.testing import wait_for
from tests.conformance.conftest import Server
from tests.conformance.marks import clauses
from tests.conformance.test_publishing import ended, session
from tests.conformance.test_sessions import Name, kept
from tests.conformance.wire import (
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIPTION_ID,
    UNSUBACK,
    Packet,
    Raw,
    ack,
    publish,
    subscribe,
    unsubscribe,
)

NO_LOCAL, AS_PUBLISHED, ONLY_NEW, NO_RETAINED = 4, 8, 0x10, 0x20
UNKNOWN = 0x11


def until(raw: Raw, marker: bytes) -> list[Packet]:
    """The messages before the marker."""
    found = []
    while (one := raw.message()).payload != marker:
        found.append(one)
    return found


@clauses(
    v3="2.3.1-7 3.8.4-1 3.8.4-2 3.8.4-4 3.8.4-5 3.9.3-1 3.9.3-2",
    v5="2.2.1-6 3.8.4-1 3.8.4-2 3.8.4-5 3.8.4-6 3.8.4-7 3.9.3-1 3.9.3-2",
)
def test_one_suback_with_a_code_for_each_filter(server: Server, version: int, unique: Name) -> None:
    """A filter below a queue is refused, between others that are granted."""
    topic, raw, sender = unique("t"), server.opened(version, unique("c")), server.opened(version, unique("c"))
    wanted = [(f"{topic}/0", 0), (f"{topic}/1", 1), ("orders/+/x", 2), (f"{topic}/2", 2), (f"{topic}/3", 0)]
    raw.send(subscribe(4321, [*wanted], version))
    answer = raw.expect(SUBACK)
    assert answer.pid == 4321
    refused = answer.codes[2]
    assert refused == 0x80 if version == 4 else refused in (0x80, 0x83, 0x87, 0x8F, 0xA2)
    assert answer.codes == (0, 1, refused, 2, 0)
    for number in range(4):
        sender.publish(f"{topic}/{number}", b"%d" % number)
    assert [raw.message().payload for _ in range(4)] == [b"0", b"1", b"2", b"3"]


@clauses(v3="3.8.4-6", v5="3.8.4-8")
@pytest.mark.parametrize(("published", "granted"), [*itertools.product((0, 1, 2), repeat=2)])
def test_the_lower_qos_counts(server: Server, version: int, unique: Name, published: int, granted: int) -> None:
    topic, raw, sender = unique("t"), server.opened(version, unique("c")), server.opened(version, unique("c"))
    assert raw.subscribe((topic, granted)).codes == (granted,)
    sender.publish(topic, b"x", qos=published)
    assert raw.message().qos == min(published, granted)


@clauses(v3="3.8.4-3", v5="3.8.4-3 3.8.4-4")
def test_the_same_filter_replaces_the_subscription(server: Server, version: int, unique: Name) -> None:
    topic, raw, sender = unique("t"), server.opened(version, unique("c")), server.opened(version, unique("c"))
    sender.publish(f"{topic}/kept", b"kept", retain=True)
    raw.subscribe((f"{topic}/#", 2))
    assert raw.message().payload == b"kept"
    sent = 0
    for granted in (0, 2, 1):
        raw.send(subscribe(raw.pid(), [(f"{topic}/#", granted)], version))
        for _ in range(3):  # while the subscription is being replaced
            sender.publish(f"{topic}/x", b"%d" % sent, qos=2)
            sent += 1
        assert raw.expect(SUBACK).codes == (granted,)
        sender.publish(f"{topic}/x", b"after", qos=2)
        got = until(raw, b"after")
        assert [one.payload for one in got if one.payload != b"kept"] == [b"%d" % n for n in range(sent - 3, sent)]
        again = [one for one in got if one.payload == b"kept"]
        assert [one.retain for one in again] == [True], "retained messages are sent again, once"
    sender.publish(f"{topic}/x", b"last", qos=2)
    assert raw.message().qos == 1
    sender.publish(f"{topic}/kept", b"", retain=True)


@clauses(v3="3.3.5-1", v5="3.3.4-2 3.3.4-3 3.3.4-4")
def test_overlapping_subscriptions(server: Server, version: int, unique: Name) -> None:
    """One copy, with the highest QoS, and all subscription identifiers."""
    topic, raw, sender = unique("t"), server.opened(version, unique("c")), server.opened(version, unique("c"))
    for number, (name, qos) in enumerate(((f"{topic}/#", 0), (f"{topic}/+", 2), (f"{topic}/x", 1)), start=1):
        raw.subscribe((name, qos), props=[(SUBSCRIPTION_ID, number * 100)] if number != 2 else [])
    for qos in (2, 1, 0):
        sender.publish(f"{topic}/x", b"%d" % qos, qos=qos)
        got = raw.message()
        assert (got.payload, got.qos) == (b"%d" % qos, qos)
        assert sorted(got.all(SUBSCRIPTION_ID)) == ([100, 300] if version == 5 else [])
    sender.publish(f"{topic}/x/y", b"deep", qos=2)
    got = raw.message()
    assert (got.payload, got.qos, got.all(SUBSCRIPTION_ID)) == (b"deep", 0, [100] if version == 5 else [])


@clauses(v5="3.3.4-3")
@pytest.mark.parametrize("identifier", [1, 127, 128, 268_435_455])
def test_subscription_identifiers(server: Server, unique: Name, identifier: int) -> None:
    client, topic = unique("c"), unique("t")
    raw, sender = session(server, 5, client, present=0), server.opened(5, unique("c"))
    raw.subscribe((topic, 1), props=[(SUBSCRIPTION_ID, identifier)])
    raw.cut()
    sender.publish(topic, b"x")
    raw = session(server, 5, client)
    assert raw.message().all(SUBSCRIPTION_ID) == [identifier]
    raw.subscribe((topic, 1))
    sender.publish(topic, b"y")
    assert raw.message().all(SUBSCRIPTION_ID) == []
    raw.cut()
    ended(server, 5, client)


MATCHES = {
    "T/#": {"T", "T/a", "T/a/b", "T/", "T//", "T/a/b/c", "T/A", "T/$x", "T/a b"},
    "T/+": {"T/a", "T/", "T/A", "T/$x", "T/a b"},
    "T/+/+": {"T/a/b", "T//"},
    "T/a/#": {"T/a", "T/a/b", "T/a/b/c"},
    "T/+/b/#": {"T/a/b", "T/a/b/c"},
    "T//": {"T//"},
    "T/": {"T/"},
    "T": {"T"},
    "T/a": {"T/a"},
    "+/a/b": {"T/a/b"},
    "T/+/b/+": {"T/a/b/c"},
    "T/a b": {"T/a b"},
}
TOPICS = ["T", "T/a", "T/A", "T/a/b", "T/a/b/c", "T/", "T//", "T/$x", "T/a b"]


@clauses(v3="4.7.1-2 4.7.1-3 4.7.3-4 3.3.2-3", v5="4.7.1-1 4.7.1-2 4.7.3-4 3.3.2-3")
@pytest.mark.parametrize("name", list(MATCHES))
def test_filters(server: Server, version: int, unique: Name, name: str) -> None:
    top, raw, sender = unique("t"), server.opened(version, unique("c")), server.opened(version, unique("c"))
    marker = unique("m")
    raw.subscribe((name.replace("T", top), 1), (marker, 1))
    for topic in TOPICS:
        sender.publish(topic.replace("T", top), topic.encode())
    sender.publish(marker, b"marker")
    got = until(raw, b"marker")
    assert sorted(one.payload.decode() for one in got) == sorted(MATCHES[name])
    assert all(one.topic == one.payload.decode().replace("T", top) for one in got)


@clauses(v3="4.7.2-1 4.7.3-4", v5="4.7.2-1 4.7.3-4")
def test_topics_that_begin_with_a_dollar(server: Server, version: int, unique: Name) -> None:
    top = unique("t")
    wide, exact, sender = (server.opened(version, unique("c")) for _ in range(3))
    wide.subscribe(("#", 0), (f"+/{top}", 0), ("+/#", 0))
    exact.subscribe((f"$x/{top}", 0), (f"$x/{top}/+", 0), (f"/{top}", 0))
    sender.publish(f"$x/{top}", b"dollar")
    sender.publish(f"$x/{top}/y", b"dollar")
    sender.publish(f"/{top}", b"marker")
    assert [exact.message().payload for _ in range(3)] == [b"dollar", b"dollar", b"marker"]
    while (got := wide.message()).payload != b"marker":
        assert not got.topic.startswith("$x"), got


@clauses(
    v3="2.3.1-7 3.10.4-1 3.10.4-2 3.10.4-4 3.10.4-5 3.10.4-6",
    v5="2.2.1-6 3.10.4-1 3.10.4-2 3.10.4-4 3.10.4-5 3.10.4-6 3.11.3-1 3.11.3-2",
)
def test_unsubscribing(server: Server, version: int, unique: Name) -> None:
    """By the filter's characters: a filter that matches a subscription is not that subscription."""
    top, raw, sender = unique("t"), server.opened(version, unique("c")), server.opened(version, unique("c"))
    marker = unique("m")
    raw.subscribe((f"{top}/a/b", 1), (f"{top}/c", 1), (f"{top}/d", 1), (marker, 1))
    raw.send(unsubscribe(77, [f"{top}/#", f"{top}/c", f"{top}/a/+", f"{top}/d", f"{top}/C"], version))
    answer = raw.expect(UNSUBACK)
    assert answer.pid == 77
    assert answer.codes == ((UNKNOWN, 0, UNKNOWN, 0, UNKNOWN) if version == 5 else ())
    for topic in ("a/b", "c", "d"):
        sender.publish(f"{top}/{topic}", topic.encode())
    sender.publish(marker, b"marker")
    assert [one.payload for one in until(raw, b"marker")] == [b"a/b"]
    raw.send(unsubscribe(78, ["never"], version))
    assert raw.expect(UNSUBACK).pid == 78


@clauses(v3="3.10.4-3", v5="3.10.4-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_being_sent_is_completed_after_unsubscribe(
    server: Server, version: int, unique: Name, qos: int
) -> None:
    client, topic = unique("c"), unique("t")
    raw, sender = session(server, version, client, present=0), server.opened(version, unique("c"))
    raw.subscribe((topic, qos))
    sender.publish(topic, b"x", qos=qos)
    first = raw.expect(PUBLISH)
    raw.send(unsubscribe(7, [topic], version))
    raw.expect(UNSUBACK)
    raw.cut()
    raw = session(server, version, client)
    again = raw.expect(PUBLISH)
    assert (again.pid, again.dup, again.payload) == (first.pid, True, b"x")
    raw.send(ack(PUBACK if qos == 1 else PUBREC, first.pid))
    if qos == 2:
        assert raw.expect(PUBREL).pid == first.pid
        raw.send(ack(PUBCOMP, first.pid))
    raw.ping()
    raw.cut()
    ended(server, version, client)


@clauses(v3="3.3.1-5 3.3.1-6 3.3.1-8 3.3.1-9 3.1.2-7", v5="3.3.1-5 3.3.1-9 3.3.1-12")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retained_messages(server: Server, version: int, unique: Name, qos: int) -> None:
    """The last of each topic, only to the new subscriber, though its publisher's session has ended."""
    top, live, sender = unique("t"), server.opened(version, unique("c")), server.opened(version, unique("c"))
    live.subscribe(f"{top}/#")
    for payload in (b"old", b"new"):
        for topic in ("a", "b/c"):
            sender.publish(f"{top}/{topic}", payload, qos=qos, retain=True)
    sender.leave()
    got = [live.message() for _ in range(4)]
    assert [(m.payload, m.retain, m.qos) for m in got] == [(p, False, qos) for p in (b"old", b"old", b"new", b"new")]

    def seen(name: str, granted: int) -> set[tuple[str, bytes, bool, int]]:
        late = server.opened(version, unique("c"))
        late.subscribe((name, granted))
        late.publish(
            name.replace("#", "m").replace("+", "m"), b"marker", qos=qos
        )  # as the retained ones: order is kept for each QoS
        found = until(late, b"marker")
        late.leave()
        assert len(found) == len({one.topic for one in found})
        return {(one.topic.removeprefix(top), one.payload, one.retain, one.qos) for one in found}

    if qos == 0:  # which is acknowledged to nobody
        wait_for("both retained", lambda: {payload for _, payload, *_ in seen(f"{top}/#", 2)} == {b"new"})
    both = {("/a", b"new", True, qos), ("/b/c", b"new", True, qos)}
    assert seen(f"{top}/#", 2) == both
    assert seen(f"{top}/a", 2) == {("/a", b"new", True, qos)}
    assert seen(f"{top}/+/c", 1) == {("/b/c", b"new", True, min(qos, 1))}
    assert seen("+/+", 0) >= {("/a", b"new", True, 0)}
    live.publish(f"{top}/m", b"marker")
    until(live, b"marker")
    for topic in ("a", "b/c"):
        live.publish(f"{top}/{topic}", b"", retain=True)


@clauses(v3="3.3.1-10 3.3.1-11 3.3.1-12 3.3.1-7", v5="3.3.1-6 3.3.1-7 3.3.1-8 3.3.1-5")
def test_replacing_and_removing_a_retained_message(server: Server, version: int, unique: Name) -> None:
    topic, live = unique("t"), server.opened(version, unique("c"))
    live.subscribe(topic)

    def kept_now() -> list[bytes]:
        late = server.opened(version, unique("c"))
        late.subscribe(topic)
        late.publish(topic, b"marker", qos=2)  # as the retained one
        found = [one.payload for one in until(late, b"marker") if one.retain]
        late.leave()
        return found

    sender = server.opened(version, unique("c"))
    sender.publish(topic, b"one", qos=2, retain=True)
    assert kept_now() == [b"one"]
    sender.publish(topic, b"not retained", qos=1)
    sender.publish(topic, b"", qos=1)
    assert kept_now() == [b"one"]
    sender.publish(topic, b"two", qos=0, retain=True)
    wait_for("the one with QoS 0 in its place", lambda: kept_now() == [b"two"])
    sender.publish(topic, b"", qos=1, retain=True)
    assert kept_now() == []
    sender.publish(topic, b"", qos=0, retain=True)
    sender.publish(topic, b"end", qos=1)
    got = [one for one in until(live, b"end") if one.payload != b"marker"]
    assert [one.payload for one in got] == [b"one", b"not retained", b"", b"two", b"", b""]
    assert not any(one.retain for one in got)


@clauses(v5="3.3.1-9 3.3.1-10 3.3.1-11")
def test_retain_handling(server: Server, unique: Name) -> None:
    topic, raw, sender = unique("t"), server.opened(5, unique("c")), server.opened(5, unique("c"))
    sender.publish(topic, b"kept", retain=True)

    def subscribed(options: int) -> list[bytes]:
        raw.subscribe((topic, 1 | options))
        sender.publish(topic, b"marker")
        return [one.payload for one in until(raw, b"marker")]

    assert subscribed(NO_RETAINED) == []
    assert subscribed(ONLY_NEW) == []
    assert subscribed(0) == [b"kept"]
    assert subscribed(0) == [b"kept"]
    raw.send(unsubscribe(99, [topic], 5))
    raw.expect(UNSUBACK)
    assert subscribed(ONLY_NEW) == [b"kept"]
    sender.publish(topic, b"", retain=True)


@clauses(v5="3.3.1-12 3.3.1-13")
def test_retain_as_published(server: Server, unique: Name) -> None:
    topic, sender = unique("t"), server.opened(5, unique("c"))
    as_published, plain = server.opened(5, unique("c")), server.opened(5, unique("c"))
    as_published.subscribe((topic, 1 | AS_PUBLISHED))
    plain.subscribe((topic, 1))
    for retain in (True, False):
        sender.publish(topic, b"%d" % retain, retain=retain)
        assert as_published.message().retain == retain
        assert not plain.message().retain
    sender.publish(topic, b"", retain=True)


@clauses(v5="3.8.3-3")
def test_no_local(server: Server, unique: Name) -> None:
    topic, raw, other = unique("t"), server.opened(5, unique("c")), server.opened(5, unique("c"))
    raw.subscribe((topic, 2 | NO_LOCAL))
    for qos in (0, 1, 2):
        raw.publish(topic, b"own", qos=qos)
    other.publish(topic, b"other")
    assert raw.message().payload == b"other"


@clauses(v5="4.8.2-3")
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_shared_subscription(server: Server, unique: Name, granted: int) -> None:
    """Each message once, and to members only as long as they are; others get all."""
    topic, group, count = unique("t"), unique("g"), 20
    members = [server.opened(5, unique("c")) for _ in range(2)]
    for member in members:
        assert member.subscribe((f"$share/{group}/{topic}/#", granted)).codes == (granted,)
    whole, sender = server.opened(5, unique("c")), server.opened(5, unique("c"))
    whole.subscribe((f"{topic}/#", 2))
    for number in range(count):
        sender.publish(f"{topic}/x", b"%d" % number, qos=2)
    got: list[bytes] = []

    def taken() -> bool:
        for member in members:
            member.ping()
            while member.aside:
                one = member.message()
                assert one.qos == granted
                got.append(one.payload)
        return len(got) >= count

    wait_for("every message at a member", taken)
    assert sorted(got, key=int) == [b"%d" % number for number in range(count)]
    assert [whole.message().payload for _ in range(count)] == [b"%d" % number for number in range(count)]
    for member in members:
        member.send(unsubscribe(9, [f"$share/{group}/{topic}/#"], 5))
        assert member.expect(UNSUBACK).codes == (0,)
    sender.publish(f"{topic}/x", b"nobody's")
    members[0].subscribe((topic + "/y", 1))
    sender.publish(f"{topic}/y", b"marker")
    assert members[0].message().payload == b"marker"


@clauses(v5="4.8.2-4 4.8.2-5")
@pytest.mark.parametrize("comes_back", [True, False])
def test_a_member_that_breaks_off_a_qos_2_exchange(server: Server, unique: Name, comes_back: bool) -> None:
    topic, group, client = unique("t"), unique("g"), unique("c")
    first, sender = server.opened(5, client, clean=False, props=kept(5)), server.opened(5, unique("c"))
    first.subscribe((f"$share/{group}/{topic}", 2))
    sender.publish(topic, b"its own", qos=2)
    message = first.expect(PUBLISH)
    second = server.opened(5, unique("c"))
    second.subscribe((f"$share/{group}/{topic}", 2))
    first.cut()
    if comes_back:
        back = session(server, 5, client)
        again = back.expect(PUBLISH)
        assert (again.pid, again.dup, again.payload) == (message.pid, True, b"its own")
        back.send(ack(PUBREC, again.pid))
        assert back.expect(PUBREL).pid == again.pid
        back.send(ack(PUBCOMP, again.pid))
        back.ping()
        back.send(unsubscribe(8, [f"$share/{group}/{topic}"], 5))
        back.expect(UNSUBACK)
        back.cut()
    ended(server, 5, client)
    sender.publish(topic, b"marker", qos=2)
    assert second.message().payload == b"marker"


@clauses(v5="4.8.2-6")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_member_that_refuses_a_message(server: Server, unique: Name, qos: int) -> None:
    topic, group = unique("t"), unique("g")
    members, sender = [server.opened(5, unique("c"))], server.opened(5, unique("c"))
    members[0].subscribe((f"$share/{group}/{topic}", qos))
    sender.publish(topic, b"refused", qos=qos)
    members[0].send(ack(PUBACK if qos == 1 else PUBREC, members[0].expect(PUBLISH).pid, 0x83))
    members[0].ping()
    members.append(server.opened(5, unique("c")))
    members[1].subscribe((f"$share/{group}/{topic}", qos))
    members[0].leave()
    sender.publish(topic, b"marker", qos=qos)
    assert members[1].message().payload == b"marker"


@clauses(v3="4.5.0-1", v5="4.5.0-1")
def test_every_client_with_a_matching_subscription(server: Server, version: int, unique: Name) -> None:
    top, sender = unique("t"), server.opened(version, unique("c"))
    filters = [f"{top}/#", f"{top}/+", f"{top}/x", f"+/x{top}"]
    raws = [server.opened(version, unique("c")) for _ in filters]
    for raw, name in zip(raws, filters, strict=True):
        raw.subscribe((name, 1))
    raws[3].send(publish(f"{top}/x{top}", b"own", version))
    sender.publish(f"{top}/x", b"x")
    assert [raw.message().payload for raw in raws[2:]] == [b"x", b"own"]
    assert {raw.message().payload for raw in raws[:2] for _ in range(2)} == {b"x", b"own"}


@clauses(v3="4.3.2-1 4.3.3-1 4.4.0-1", v5="4.3.2-1 4.3.3-1 4.4.0-1")
def test_a_first_filter_of_qos_2_repeats_nothing(server: Server, version: int, unique: Name) -> None:
    """Until then the gateway receives from the session's queue in a way that is cheaper, and not enough for QoS 2."""
    topic, client, sender = unique("t"), unique("c"), server.opened(version, unique("c"))
    kept_session = {"clean": False, "props": kept(version)}
    raw = server.opened(version, client, **kept_session)
    raw.subscribe((f"{topic}/one", 1))
    for number in range(5):
        sender.publish(f"{topic}/one", b"%d" % number)
    early = [raw.expect(PUBLISH) for _ in range(5)]
    raw.send(ack(PUBACK, early[1].pid))
    raw.subscribe((f"{topic}/two", 2))
    for number in range(5, 8):
        sender.publish(f"{topic}/two", b"%d" % number, qos=2)
    late = [raw.expect(PUBLISH) for _ in range(3)]
    assert [each.payload for each in late] == [b"5", b"6", b"7"]
    assert [each.qos for each in late] == [2, 2, 2]
    raw.send(*(ack(PUBACK, early[at].pid) for at in (0, 2, 3)), *(ack(PUBREC, each.pid) for each in late))
    assert [raw.expect(PUBREL).pid for _ in late] == [each.pid for each in late]
    raw.send(ack(PUBCOMP, late[0].pid))
    raw.ping()
    raw.cut()
    raw = server.opened(version, client, **kept_session)
    assert sorted(raw.expect_any(PUBREL).pid for _ in late[1:]) == sorted(each.pid for each in late[1:])
    again = raw.expect(PUBLISH)
    assert (again.payload, again.pid, again.dup) == (b"4", early[4].pid, True)
    raw.send(ack(PUBACK, again.pid), *(ack(PUBCOMP, each.pid) for each in late[1:]))
    sender.publish(f"{topic}/one", b"last")
    assert raw.message().payload == b"last"
    raw.leave()
    raw = server.opened(version, client, **kept_session)
    sender.publish(f"{topic}/two", b"end", qos=2)
    assert raw.message().payload == b"end"
    server.opened(version, client, clean=True)
