"""CONNECT, CONNACK, sessions, keep-alive, wills."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from enmasse.testing import Suite, wait_for
from tests.conformance.conftest import Server
from tests.conformance.marks import clauses
from tests.conformance.wire import (
    ASSIGNED_ID,
    AUTH_METHOD,
    CONNACK,
    CONTENT_TYPE,
    DISCONNECT,
    PING,
    PINGRESP,
    PUBLISH,
    RESPONSE_INFO,
    RESPONSE_INFO_ASKED,
    SERVER_KEEP_ALIVE,
    SESSION_EXPIRY,
    USER,
    WILL_DELAY,
    Properties,
    Will,
    connect,
    disconnect,
    publish,
)

Name = Callable[[str], str]
NEVER = 0xFFFFFFFF


def kept(version: int, seconds: int = NEVER) -> Properties:
    """With these and `clean=False` a session outlives its connection in both versions."""
    return [(SESSION_EXPIRY, seconds)] if version == 5 else []


@clauses(
    v3="3.1.4-4 3.2.0-1 3.2.2-1 3.2.2-3 3.12.4-1 7.1.1-2",
    v5="3.1.2-28 3.1.4-5 3.2.0-1 3.2.0-2 3.2.2-1 3.2.2-2 3.2.2-3 3.2.2-8 3.12.4-1 4.2-1 4.12.0-6",
)
@pytest.mark.parametrize("clean", [True, False])
def test_one_connack(server: Server, version: int, unique: Name, clean: bool) -> None:
    raw = server.raw(version)
    props: Properties = [(RESPONSE_INFO_ASKED, 0)] if version == 5 else []
    raw.send(connect(unique("c"), version, clean=clean, props=props), PING)
    answer = raw.expect(CONNACK)
    assert (answer.code, answer.present) == (0, 0)
    assert answer.get(AUTH_METHOD) is None and answer.get(RESPONSE_INFO) is None
    raw.expect(PINGRESP)


@clauses(v3="3.1.3-2 3.1.3-5", v5="3.1.3-2 3.1.3-5")
@pytest.mark.parametrize("client", ["0", "abcdefghijklmnopqrstuvw", "ABCDEFGHIJKLMNOPQRSTUVW", "xyzXYZ0123456789"])
def test_client_ids_that_every_server_allows(server: Server, version: int, client: str) -> None:
    server.opened(version, client, clean=False, props=kept(version)).leave()
    assert server.raw(version).open(client, clean=False).present == 1
    assert server.raw(version).open(client + "0" if len(client) < 23 else "1", clean=True).present == 0
    server.opened(version, client, clean=True).leave()


@clauses(v3="3.1.3-6 3.1.3-7", v5="3.1.3-6 3.1.3-7 3.2.2-16")
def test_an_empty_client_id(server: Server, version: int, unique: Name) -> None:
    one, two, topic = server.raw(version), server.raw(version), unique("t")
    given = [raw.open("", props=kept(version, 60)).get(ASSIGNED_ID) for raw in (one, two)]
    for raw in (one, two):
        raw.subscribe(topic)
    one.publish(topic, b"to both")
    assert two.message().payload == b"to both"
    if version == 5:
        assert given[0] and given[1] and given[0] != given[1]
        one.cut()
        assert server.raw(5).open(given[0], clean=False).present == 1
        server.opened(5, given[0], clean=True)


@clauses(v3="3.1.3-7 3.1.3-8 3.1.3-9 3.2.2-4 3.2.2-5")
def test_an_empty_client_id_without_clean_session(server: Server) -> None:
    raw = server.raw(4)
    raw.send(connect("", 4, clean=False))
    answer = raw.expect(CONNACK)
    assert (answer.code, answer.present) == (2, 0)
    raw.refused()


@clauses(v3="3.1.3-9 3.2.2-4 3.2.2-5", v5="3.1.3-8 3.2.2-6 3.2.2-7")
def test_a_client_id_that_is_too_long(server: Server, version: int) -> None:
    raw = server.raw(version)
    raw.send(connect("é" * 15_000, version))  # more would be a CONNECT that is too large
    answer = raw.expect(CONNACK)
    assert (answer.code, answer.present) == (0x85 if version == 5 else 2, 0)
    raw.refused()
    server.opened(version, "é" * 100)


@clauses(v3="3.1.2-22")
def test_a_password_without_a_user_name(server: Server, version: int, unique: Name) -> None:
    """MQTT 5 allows it."""
    raw = server.raw(version)
    raw.send(connect(unique("c"), version, password=b"p"))
    if version == 5:
        assert raw.expect(CONNACK).code == 0
    else:
        raw.refused()


@clauses(v3="3.1.2-19 3.1.2-21 3.1.3-1", v5="3.1.2-17 3.1.2-19 3.1.3-1 3.1.2-9")
def test_all_fields_of_a_connect(server: Server, version: int, unique: Name) -> None:
    topic = unique("t")
    watching = server.opened(version, unique("c"))
    watching.subscribe(topic)
    server.opened(version, unique("c"), will=Will(topic, b"\x00\xff"), user="ü", password=b"\x00\xff").cut()
    assert watching.message().payload == b"\x00\xff"


@clauses(
    v3="3.1.2-4 3.1.2-6 3.1.4-3 3.2.2-1 3.2.2-2 3.2.2-3 4.1.0-1 4.1.0-2",
    v5="3.1.2-4 3.1.2-5 3.1.2-6 3.1.2-23 3.1.4-4 3.2.2-2 3.2.2-3",
)
def test_a_session_is_resumed_or_discarded(server: Server, version: int, unique: Name) -> None:
    client, topic = unique("c"), unique("t")
    sender = server.opened(version, unique("c"))

    def session(clean: bool, present: int) -> None:
        raw = server.raw(version)
        assert raw.open(client, clean=clean, props=kept(version, 0 if clean else NEVER)).present == present
        raw.leave()

    first = server.opened(version, client, clean=False, props=kept(version))
    first.subscribe(topic)
    first.leave()
    session(False, 1)
    sender.publish(topic, b"stored")
    session(True, 0)  # which discards subscription and message
    again = server.raw(version)
    assert again.open(client, clean=False, props=kept(version)).present == 0
    sender.publish(topic, b"without a subscription")
    again.subscribe(topic)
    sender.publish(topic, b"marker")
    assert again.message().payload == b"marker"
    again.leave()
    session(True, 0)


@clauses(v3="3.1.2-5 4.1.0-1 4.5.0-1", v5="3.1.2-5 3.1.2-23 4.5.0-1")
def test_messages_for_a_client_that_is_away(server: Server, version: int, unique: Name) -> None:
    client, topic = unique("c"), unique("t")
    away = server.opened(version, client, clean=False, props=kept(version))
    away.subscribe(topic)
    away.leave()
    sender = server.opened(version, unique("c"))
    for number in range(6):  # a topic is ordered for each QoS
        sender.publish(topic, b"%d" % number, qos=1 + number % 2)
    sender.leave()
    back = server.raw(version)
    assert back.open(client, clean=False).present == 1
    got = [back.message() for _ in range(6)]
    assert [one.payload for one in got if one.qos == 1] == [b"0", b"2", b"4"]
    assert [one.payload for one in got if one.qos == 2] == [b"1", b"3", b"5"]
    assert not any(one.dup for one in got)
    server.opened(version, client, clean=True)


@clauses(v5="4.1.0-1 4.1.0-2 3.1.2-8 3.1.2-23")
def test_a_session_ends_when_its_expiry_has_passed(server: Server, unique: Name) -> None:
    """Its end is seen by the will, whose delay is longer. Another session of one second lasts while it is connected."""
    client, topic = unique("c"), unique("t")
    watching = server.opened(5, unique("c"), props=kept(5, 1))
    watching.subscribe(topic)
    will = Will(topic, b"ended", qos=1, properties=[(WILL_DELAY, 100_000)])
    server.opened(5, client, clean=False, props=kept(5, 1), will=will).cut()
    assert watching.message(90).payload == b"ended"
    assert server.raw(5).open(client, clean=False).present == 0


@clauses(v3="3.1.2-6", v5="4.1.0-2")
def test_a_session_without_expiry_ends_with_its_connection(server: Server, version: int, unique: Name) -> None:
    client = unique("c")
    server.opened(version, client, clean=version == 4).leave()
    assert server.raw(version).open(client, clean=False).present == 0
    server.opened(version, client, clean=True)


@clauses(v5="4.1.0-2")
def test_disconnect_changes_the_expiry(server: Server, unique: Name) -> None:
    client = unique("c")
    for seconds, present in ((0, 0), (60, 1)):
        raw = server.opened(5, client, clean=True, props=kept(5, 100))
        raw.send(disconnect(5, 0, [(SESSION_EXPIRY, seconds)]))
        raw.refused()
        back = server.raw(5)
        assert back.open(client, clean=False).present == present
        back.leave()


@clauses(v3="3.1.4-2 3.1.3-2", v5="3.1.4-3 3.1.3-2 3.14.4-1 3.14.4-2 3.14.2-2 3.14.2-1")
@pytest.mark.parametrize("clean", [True, False])
def test_a_second_connection_ends_the_first(server: Server, version: int, unique: Name, clean: bool) -> None:
    client = unique("c")
    first = server.opened(version, client, clean=clean, props=kept(version, 60))
    second = server.raw(version)
    assert second.open(client, clean=clean, props=kept(version, 60)).present == (not clean)
    if version == 5:
        said = first.expect(DISCONNECT)
        assert said.code == 0x8E and said.get(SESSION_EXPIRY) is None
    first.refused()
    second.ping()
    second.send(disconnect(version, 0, kept(version, 0)))


@clauses(v3="3.1.2-6 3.2.2-3", v5="4.1.0-2 3.2.2-3")
def test_a_clean_session_that_is_taken_over_is_not_gone_on_with(server: Server, version: int, unique: Name) -> None:
    client = unique("c")
    server.opened(version, client, clean=True)
    second = server.raw(version)
    present = second.open(client, clean=False, props=kept(version, 60)).present
    second.leave()
    server.opened(version, client, clean=True).leave()
    assert present == 0


@clauses(v3="3.1.2-24", v5="3.1.2-22 3.2.2-22")
def test_a_silent_client_is_disconnected(server: Server, version: int, unique: Name) -> None:
    topic = unique("t")
    watching = server.opened(version, unique("c"), keep=0)
    watching.subscribe(topic)
    raw = server.raw(version)
    raw.send(connect(unique("c"), version, keep=1, will=Will(topic, b"silent")))
    keep = raw.expect(CONNACK).get(SERVER_KEEP_ALIVE)
    assert keep is None or keep <= 60
    began = time.monotonic()
    raw.refused(0x8D)
    assert time.monotonic() - began >= 1
    assert watching.message().payload == b"silent"


@clauses(v3="3.1.2-8 3.1.2-10 3.1.2-16", v5="3.1.2-7 3.1.2-8 3.1.2-10 3.1.2-14")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_will_is_published_once(server: Server, version: int, unique: Name, qos: int) -> None:
    client, topic = unique("c"), unique("t")
    watching = server.opened(version, unique("c"))
    watching.subscribe(topic)
    server.opened(version, client, will=Will(topic, b"first", qos=qos)).cut()
    got = watching.message()
    assert (got.payload, got.qos, got.retain) == (b"first", qos, False)
    server.opened(version, client).cut()  # without a will: nothing of the old one is left
    server.opened(version, client, will=Will(topic, b"second", qos=qos)).cut()
    assert watching.message().payload == b"second"
    later = server.opened(version, unique("c"))
    later.subscribe(topic)
    later.publish(topic, b"marker")
    assert later.message().payload == b"marker", "the will was retained"


@clauses(v3="3.1.2-17 3.3.1-5", v5="3.1.2-15")
def test_a_retained_will(server: Server, version: int, unique: Name) -> None:
    topic = unique("t")
    watching = server.opened(version, unique("c"))
    watching.subscribe(topic)
    server.opened(version, unique("c"), will=Will(topic, b"gone", qos=1, retain=True)).cut()
    assert not watching.message().retain

    def late() -> bool:
        later = server.opened(version, unique("c"))
        later.subscribe(topic)
        later.publish(topic, b"marker")
        got = later.message()
        later.leave()
        return (got.payload, got.retain) == (b"gone", True)

    wait_for("the will among the retained messages", late)
    watching.publish(topic, b"", retain=True)


@clauses(v3="3.14.4-3 3.1.2-10 3.1.2-12", v5="3.14.4-3 3.1.2-10 3.1.2-8")
def test_no_will_after_disconnect(server: Server, version: int, unique: Name) -> None:
    client, topic = unique("c"), unique("t")
    watching = server.opened(version, unique("c"))
    watching.subscribe(topic)
    server.opened(version, client, will=Will(topic, b"not this")).leave()
    server.opened(version, client).cut()
    server.opened(version, client, will=Will(topic, b"this")).cut()
    assert watching.message().payload == b"this"


@clauses(v5="3.1.2-8")
def test_disconnect_with_a_will(server: Server, unique: Name) -> None:
    topic = unique("t")
    watching, raw = server.opened(5, unique("c")), server.opened(5, unique("c"), will=Will(topic, b"asked for"))
    watching.subscribe(topic)
    raw.send(disconnect(5, 0x04))
    raw.refused()
    assert watching.message().payload == b"asked for"


@clauses(v3="3.1.2-8", v5="3.1.2-8")
def test_a_protocol_error_publishes_the_will(server: Server, version: int, unique: Name) -> None:
    topic = unique("t")
    watching = server.opened(version, unique("c"))
    watching.subscribe(topic)
    raw = server.opened(version, unique("c"), will=Will(topic, b"error", qos=2))
    raw.send(publish("a/#", b"", version))
    assert watching.message().payload == b"error"


@clauses(v5="3.1.3-9 3.1.2-8")
def test_a_client_that_is_back_before_its_will_delay(server: Server, unique: Name) -> None:
    client, topic = unique("c"), unique("t")
    watching = server.opened(5, unique("c"))
    watching.subscribe(topic)
    delayed = Will(topic, b"not this", properties=[(WILL_DELAY, 2)])
    server.opened(5, client, clean=False, props=kept(5, 100), will=delayed).cut()
    back = server.raw(5)
    assert back.open(client, clean=False, props=kept(5, 100)).present == 1
    # Another client's will with a longer delay: when it comes, the delay of the first one has passed.
    other = Will(topic, b"marker", properties=[(WILL_DELAY, 4)])
    server.opened(5, unique("c"), clean=False, props=kept(5, 100), will=other).cut()
    assert watching.message(90).payload == b"marker"
    back.send(disconnect(5, 0, [(SESSION_EXPIRY, 0)]))


@clauses(v5="3.1.3-9 3.1.2-8")
@pytest.mark.parametrize(("at_first", "in_disconnect", "comes"), [(3600, 0, "this"), (1, 3600, "marker")])
def test_an_expiry_in_disconnect_moves_the_end_of_a_wills_delay(
    at_first: int, in_disconnect: int, comes: str, server: Server, unique: Name
) -> None:
    """The delay ends with the session (3.1.3.2.2), whose expiry DISCONNECT may change (3.14.2.2.2)."""
    client, topic = unique("c"), unique("t")
    watching = server.opened(5, unique("c"))
    watching.subscribe(topic)
    delayed = Will(topic, b"this", properties=[(WILL_DELAY, 3600)])
    raw = server.opened(5, client, clean=False, props=kept(5, at_first), will=delayed)
    raw.send(disconnect(5, 0x04, [(SESSION_EXPIRY, in_disconnect)]))
    raw.refused()
    if comes == "marker":  # another client's will, with a longer delay than the session would have lasted
        marker = Will(topic, b"marker", properties=[(WILL_DELAY, 3)])
        server.opened(5, unique("c"), clean=False, props=kept(5, 100), will=marker).cut()
    assert watching.message(90).payload == comes.encode()
    server.raw(5).open(client, clean=True)


@clauses(v5="3.1.3-9 3.1.2-8")
@pytest.mark.parametrize("where", ["away", "connected"])
def test_the_delay_of_a_will_ends_with_a_session_that_is_deleted(
    where: str, server: Server, running_suite: Suite, unique: Name
) -> None:
    client, topic = unique("c"), unique("t")
    watching = server.opened(5, unique("c"))
    watching.subscribe(topic)
    delayed = Will(topic, b"this", properties=[(WILL_DELAY, 3600)])
    raw = server.opened(5, client, clean=False, props=kept(5, 3600), will=delayed)
    if where == "away":
        raw.send(disconnect(5, 0x04))
        raw.refused()
    offset = ("--port-offset", str(running_suite.offset))

    def is_known() -> bool:
        done = running_suite.command("subscription", "list", "--json", *offset)
        rows = json.loads(done.stdout)["subscriptions"]
        return any(row["id"] == f"mqtt.{client}" and row["connected"] == (where == "connected") for row in rows)

    wait_for("the service to know it", is_known)
    done = running_suite.command("subscription", "delete", f"mqtt.{client}", "--force", *offset)
    assert done.returncode == 0, done.stderr
    assert watching.message().payload == b"this"


@clauses(v5="3.1.3-10 3.3.2-17 3.3.2-18")
def test_properties_of_a_will(server: Server, unique: Name) -> None:
    topic = unique("t")
    watching = server.opened(5, unique("c"))
    watching.subscribe(topic)
    entries: Properties = [(CONTENT_TYPE, "text/plain"), (USER, ("b", "1")), (USER, ("a", "2")), (USER, ("b", "3"))]
    server.opened(5, unique("c"), will=Will(topic, b"x", properties=entries)).cut()
    got = watching.expect(PUBLISH)
    assert got.all(USER) == [("b", "1"), ("a", "2"), ("b", "3")]
    assert got.get(CONTENT_TYPE) == "text/plain"


@clauses(v3="3.1.2-1 3.1.2-2", v5="3.1.2-1")
def test_both_versions_on_one_listener(server: Server, unique: Name) -> None:
    topic = unique("t")
    old, new = server.opened(4, unique("c")), server.opened(5, unique("c"))
    for raw in (old, new):
        raw.subscribe(topic)
    old.publish(topic, b"from the old")
    assert new.message().payload == b"from the old"
    assert old.message().payload == b"from the old"
