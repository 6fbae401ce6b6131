"""The files' rules: what is valid, and what is told of what is not, with its line."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.model import edits, feeds
from enmasse.model.addresses import Address, Redelivery, Ttl
from enmasse.model.brokers import place
from enmasse.model.configuration import ADDRESSES, BROKERS, FLAVORS, Applied, AppliedState, apply, sha256
from enmasse.model.flavors import Flavor, Parameters, parse_flavors
from enmasse.model.jsonfile import locate, parse
from enmasse.model.merged import Unreadable
from enmasse.model.names import AddressName, address_error, router_form

FLAVOR_FILE = {
    "q": {"type": "queue", "templateName": "queue-persisted", "templateParameters": {"BROKERS": "3", "MEMORY": "1Mi"}},
    "q2": {"type": "queue", "templateName": "queue-inmemory"},
    "t": {"type": "topic", "templateName": "topic-inmemory"},
}


def applied(
    addresses: Any, flavors: Any = FLAVOR_FILE, last: AppliedState | None = None, brokers: Any = None
) -> Applied:
    def content(value: Any) -> Any:
        return value if value is None or isinstance(value, (bytes, Unreadable)) else json.dumps(value).encode()

    files = {ADDRESSES: content(addresses), FLAVORS: content(flavors), BROKERS: content(brokers)}
    return apply(files, Applied(state=last or AppliedState()))


def told(addresses: Any, **more: Any) -> list[str]:
    return [str(problem) for problem in applied(addresses, **more).problems]


def test_what_a_topic_could_not_deliver_goes_to_a_queue_of_any_flavor() -> None:
    addresses = {
        "t": {"type": "topic", "flavor": "t", "deadletter": "dead", "expiry": "late"},
        "dead": {"type": "queue", "flavor": "q"},
        "late": {"type": "queue", "flavor": "q2"},
    }
    assert told(addresses) == []
    (problem,) = told({**addresses, "dead": {"type": "topic", "flavor": "t"}})
    assert "t.deadletter: 'dead' must be a queue, not topic" in problem


def test_both_spellings_of_the_types() -> None:
    found = applied(
        {
            "myqueue": {"store_and_forward": True, "multicast": False, "flavor": "q"},
            "mytopic": {"store_and_forward": True, "multicast": True, "flavor": "t"},
            "anycast": {"store_and_forward": False, "multicast": False},
            "broadcast": {"store_and_forward": False, "multicast": True},
            "other": {"type": "queue", "flavor": "q", "store_and_forward": True},
        }
    )
    assert not found.problems
    assert found.state.addresses == {
        "myqueue": Address(type="queue", flavor="q"),
        "mytopic": Address(type="topic", flavor="t"),
        "anycast": Address(type="anycast"),
        "broadcast": Address(type="multicast"),
        "other": Address(type="queue", flavor="q"),
    }


def test_routers_have_no_flavors_and_what_earlier_versions_have_stored_stays() -> None:
    wide = Flavor(type="router", template_name="router")
    direct = Address(type="anycast", flavor="wide")
    before = AppliedState(addresses={AddressName("direct"): direct}, flavors={"wide": wide})
    contents = {
        "flavors.json": json.dumps({"wide": {"type": "router", "templateName": "router"}}).encode(),
        "addresses.json": json.dumps({"direct": {"type": "anycast", "flavor": "wide"}}).encode(),
    }
    found = apply(contents, Applied(state=before))
    assert found.state.addresses == before.addresses
    assert {(each.file, each.field) for each in found.problems} == {
        ("flavors.json", "templateName"), ("addresses.json", "flavor"),
    }  # fmt: skip
    assert any("remove the entry, and the key flavor" in each.reason for each in found.problems)
    contents = {"flavors.json": b"{}", "addresses.json": json.dumps({"direct": {"type": "anycast"}}).encode()}
    after = apply(contents, found)
    assert not after.problems and after.state.addresses == {"direct": Address(type="anycast")}


def test_all_that_is_wrong_with_an_entry_is_reported_at_once() -> None:
    entry = {
        "type": "queue", "maxSize": "much", "messageTtl": {"minimum": 0, "maximum": "1 h"}, "color": "red",
        "mqttDefault": True, "fullPolicy": "MAYBE",
    }  # fmt: skip
    found = applied({"a": entry})
    fields = ["maxSize", "messageTtl.minimum", "messageTtl.maximum", "color", "mqttDefault", "fullPolicy", "flavor"]
    assert [(each.entry, each.field) for each in found.problems] == [("a", field) for field in fields]
    assert found.failed[AddressName("a")].reason.startswith("maxSize: ")
    flavor = {"type": "queue", "templateName": "queue-inmemory", "templateParameters": {"PORT": 1, "MEMORY": "x"}}
    good, problems = parse_flavors(parse("flavors.json", json.dumps({"f": flavor}).encode()))
    assert not good and [each.field for each in problems] == ["templateParameters.PORT", "templateParameters.MEMORY"]
    many = {"type": "anycast", **{f"key{number}": 1 for number in range(100)}}
    assert len(applied({"a": many}).problems) == 20


def test_further_properties_have_one_canonical_form() -> None:
    entry = {
        "type": "queue",
        "flavor": "q",
        "messageTtl": {"maximum": 1000},
        "messageRedelivery": {"maximumDeliveryAttempts": -1, "redeliveryDelay": 5, "redeliveryDelayMultiplier": 2},
        "deadletter": "dead",
        "expiry": "dead",
        "maxSize": "10Mi",
        "fullPolicy": "block",
        "duplicates": "message-id",
    }
    found = applied({"a": entry, "dead": {"type": "queue", "flavor": "q"}})
    assert not found.problems
    assert found.state.addresses[AddressName("a")] == Address(
        type="queue",
        flavor="q",
        message_ttl=Ttl(maximum=1000),
        message_redelivery=Redelivery(
            maximum_delivery_attempts=-1, redelivery_delay=5, redelivery_delay_multiplier=2.0
        ),
        deadletter=AddressName("dead"),
        expiry=AddressName("dead"),
        max_size=10 * 2**20,
        full_policy="BLOCK",
        duplicates="message-id",
    )
    body = msgspec.json.encode(feeds.Addresses(addresses=found.state.addresses))
    assert json.loads(body)["addresses"]["a"] == {**entry, "maxSize": 10 * 2**20, "fullPolicy": "BLOCK"} | {
        "messageRedelivery": {
            "maximumDeliveryAttempts": -1,
            "redeliveryDelay": 5,
            "redeliveryDelayMultiplier": 2.0,
        }
    }
    assert msgspec.json.decode(body, type=feeds.Addresses).addresses == found.state.addresses


def test_flavors_have_one_canonical_form() -> None:
    found = applied({}).state.flavors
    assert found["q"] == Flavor(
        type="queue", template_name="queue-persisted", template_parameters=Parameters(brokers=3, memory=2**20)
    )
    assert json.loads(msgspec.json.encode(found["q"])) == {
        "type": "queue",
        "templateName": "queue-persisted",
        "templateParameters": {"BROKERS": 3, "MEMORY": 2**20},
    }
    assert found["q"].persisted and not found["t"].persisted


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (1, "must be an object"),
        ({}, ".store_and_forward: is missing"),
        ({"store_and_forward": True}, ".multicast: is missing"),
        ({"store_and_forward": "true", "multicast": False}, ".store_and_forward: must be true or false, not a string"),
        ({"type": "quue"}, ".type: must be one of queue, topic, anycast, multicast"),
        ({"type": ["queue"]}, ".type: must be one of"),
        ({"type": "queue", "flavor": "q", "multicast": True}, ".multicast: contradicts type 'queue'"),
        ({"type": "topic", "store_and_forward": False}, ".store_and_forward: contradicts type 'topic'"),
        ({"type": "queue"}, ".flavor: is missing: a queue needs one; flavors for it are q, q2"),
        ({"type": "queue", "flavor": "nix"}, ".flavor: unknown flavor 'nix'; flavors for it are q, q2"),
        ({"type": "queue", "flavor": "t"}, ".flavor: 't' is a flavor for topic, not for queue"),
        (
            {"type": "anycast", "flavor": "q"},
            ".flavor: addresses of type anycast have no flavor, routers carry them; remove this",
        ),
        ({"type": "queue", "flavor": 7}, ".flavor: must be a string, not a number"),
        ({"type": "queue", "flavor": "q", "flavour": "q"}, ".flavour: unknown key; known are type"),
        ({"type": "anycast", "messageTtl": {}}, ".messageTtl: does not apply to anycast"),
        ({"type": "queue", "flavor": "q", "messageTtl": 5}, ".messageTtl: must be an object with minimum, maximum"),
        ({"type": "queue", "flavor": "q", "messageTtl": {"max": 5}}, ".messageTtl.max: unknown key"),
        ({"type": "queue", "flavor": "q", "messageTtl": {"maximum": 0}}, ".messageTtl.maximum: must be a whole number"),
        (
            {"type": "queue", "flavor": "q", "messageTtl": {"minimum": 2, "maximum": 1}},
            "minimum is larger than maximum",
        ),
        ({"type": "queue", "flavor": "q", "messageTtl": {"maximum": 10**30}}, ".messageTtl.maximum: must be a whole"),
        (
            {"type": "queue", "flavor": "q", "messageRedelivery": {"maximumDeliveryAttempts": 0}},
            ".messageRedelivery.maximumDeliveryAttempts: must be 1 or more, or -1",
        ),
        (
            {"type": "queue", "flavor": "q", "messageRedelivery": {"redeliveryDelayMultiplier": 0.5}},
            ".redeliveryDelayMultiplier: must be a number from 1",
        ),
        ({"type": "queue", "flavor": "q", "maxSize": "10 MB"}, ".maxSize: '10 MB' is no size"),
        ({"type": "queue", "flavor": "q", "maxSize": True}, ".maxSize: must be a whole number of bytes"),
        ({"type": "queue", "flavor": "q", "fullPolicy": "EXPLODE"}, ".fullPolicy: must be one of FAIL, BLOCK, DROP"),
        ({"type": "queue", "flavor": "q", "duplicates": True}, '.duplicates: must be "message-id"'),
        ({"type": "queue", "flavor": "q", "deadletter": "a"}, ".deadletter: an address cannot be its own"),
        ({"type": "queue", "flavor": "q", "expiry": "nix"}, ".expiry: there is no valid address 'nix'"),
        ({"type": "queue", "flavor": "q2", "expiry": "good"}, ".expiry: 'good' must be of flavor 'q2' too"),
        ({"type": "queue", "flavor": "q", "mqttDefault": True}, ".mqttDefault: applies to a topic"),
        ({"type": "topic", "flavor": "t", "mqttDefault": 1}, ".mqttDefault: must be true or false"),
    ],
)
def test_an_invalid_address_is_told_and_the_others_apply(entry: Any, expected: str) -> None:
    found = applied({"good": {"type": "queue", "flavor": "q"}, "a": entry})
    (problem,) = found.problems
    assert str(problem).startswith("addresses.json:1: a")
    assert expected in str(problem)
    assert list(found.state.addresses) == ["good"]
    assert list(found.failed) == ["a"]
    assert found.state.config == {
        ADDRESSES: sha256(json.dumps({"good": {"type": "queue", "flavor": "q"}, "a": entry}).encode()),
        FLAVORS: sha256(json.dumps(FLAVOR_FILE).encode()),
    }


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ([], "f: must be an object"),
        ({"type": "queue"}, "f.templateName: is missing"),
        ({"type": "queue", "templateName": "queue"}, "f.templateName: is unknown; write one of queue-inmemory"),
        ({"templateName": "queue-inmemory"}, "f.type: is missing; write 'queue'"),
        ({"type": "topic", "templateName": "queue-inmemory"}, "f.type: 'topic' contradicts templateName"),
        ({"type": "queue", "templateName": "queue-inmemory", "replicas": 1}, "f.replicas: unknown key"),
        ({"BROKERS": 0}, "f.templateParameters.BROKERS: must be a whole number from 1 to 64"),
        ({"BROKERS": "many"}, "f.templateParameters.BROKERS: must be a whole number, not a string"),
        ({"BROKERS": 1.5}, "f.templateParameters.BROKERS: must be a whole number, not a fraction"),
        ({"DEDICATED": "yes"}, "f.templateParameters.DEDICATED: must be true or false"),
        ({"MAX_SUBSCRIPTIONS": 5}, "f.templateParameters.MAX_SUBSCRIPTIONS: not a parameter of queue-inmemory"),
        ({"STORAGE_CAPACITY": "1Gi"}, "f.templateParameters.STORAGE_CAPACITY: not a parameter of queue-inmemory"),
        ({"MEMORY": "1 GiB"}, "f.templateParameters.MEMORY: '1 GiB' is no size"),
        ({"FULL_POLICY": "wait"}, "f.templateParameters.FULL_POLICY: must be one of FAIL, BLOCK, DROP, PAGE"),
        ({"BROKER": 1}, "f.templateParameters.BROKER: unknown parameter"),
    ],
)
def test_an_invalid_flavor_is_told(entry: Any, expected: str) -> None:
    if isinstance(entry, dict) and not {"type", "templateName"} & entry.keys():
        entry = {"type": "queue", "templateName": "queue-inmemory", "templateParameters": entry}
    (problem,) = told({}, flavors={"f": entry})
    assert problem.startswith(f"flavors.json:1: {expected}")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a b",
        "a\tb",
        "a\u00a0b",
        "a\u200bb",
        "a::b",
        "a*",
        "a/+/b",
        "#",
        "$a",
        "_a",
        "!!a",
        "/a",
        ".a",
        "amqp:a",
        "x" * 513,
    ],
)
def test_illegal_names(name: str) -> None:
    (problem,) = told({name: {"type": "anycast"}})
    assert problem.startswith(f"addresses.json:1: {name}: a")


@pytest.mark.parametrize("name", ["a", "a/b/c", "a.b", "A-1_x", "!a", "größe/°C", "a$b", "a:b", "x" * 512, "a//b"])
def test_legal_names(name: str) -> None:
    assert address_error(name) is None


def test_names_that_routers_cannot_tell_apart() -> None:
    both: dict[str, Any] = {"a.b.c": {"type": "anycast"}, "a/b.c": {"type": "multicast"}}
    first = applied(both)
    assert list(first.state.addresses) == ["a.b.c"]
    assert "cannot tell it from 'a.b.c'" in str(first.problems[0])
    # the one that was there before stays, wherever it stands in the file
    last = applied({"a/b.c": {"type": "multicast"}}).state
    assert list(applied(both, last=last).state.addresses) == ["a/b.c"]


def test_only_topics_lie_below_a_topic() -> None:
    topic = {"type": "topic", "flavor": "t"}
    found = applied({"a/x/y": {"type": "anycast"}, "a": topic, "a.deeper": topic, "ax": {"type": "anycast"}})
    assert list(found.state.addresses) == ["a", "a.deeper", "ax"]
    assert "below the topic 'a'" in str(found.problems[0])
    # the one that was there before stays
    last = applied({"a/x": {"type": "multicast"}}).state
    found = applied({"a": topic, "a/x": {"type": "multicast"}}, last=last)
    assert list(found.state.addresses) == ["a/x"]
    assert "covers all names below it" in str(found.problems[0])


def test_what_is_far_too_long_is_shown_cut_off() -> None:
    long = "x" * 1_000_000
    found = applied({long: {"type": "anycast"}, "a": {"type": "queue", "flavor": long, long: 1}})
    assert not found.state.addresses
    assert list(found.failed) == ["x" * 1000 + "…", "a"]
    assert found.failed[AddressName("x" * 1000 + "…")].reason == "a name may have 512 bytes at most; shorten it"
    assert len(str(found.problems) + str(found.failed)) < 20_000


def test_one_default_for_mqtt() -> None:
    topic = {"type": "topic", "flavor": "t", "mqttDefault": True}
    found = applied({"one": topic, "two": topic})
    assert list(found.state.addresses) == ["one"]
    assert "'one' is the default already" in str(found.problems[0])


def test_topics_whose_mark_of_the_default_moves_are_remembered() -> None:
    topic = {"type": "topic", "flavor": "t"}
    marked = {**topic, "mqttDefault": True}
    state = None
    for entries, remarked in (
        ({"a": marked, "b": topic}, []),
        ({"a": topic, "b": topic, "c": marked}, ["a"]),
        ({"a": topic, "b": marked}, ["a", "b", "c"]),
        ({"a": marked, "b": topic}, ["a", "b", "c"]),
    ):
        state = applied(entries, last=state).state
        assert sorted(state.remarked) == remarked, entries


def test_duplicates_and_lines() -> None:
    text = b"""{
  "a": {"type": "anycast"},
  "b": {"type": "queue",
        "flavor": "q",
        "flavor": "t"},
  "c": {"type": "queue",
        "flavor": "nix"},
  "a": {"type": "multicast"}
}"""
    found = applied(text)
    assert [(p.entry, p.field, p.line) for p in found.problems] == [
        ("a", None, 8),
        ("b", "flavor", 5),
        ("c", "flavor", 7),
    ]
    assert not found.state.addresses and list(found.failed) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"a": {}', "addresses.json:1: is not JSON"),
        (b'{\n"a": {"type": "anycast"},\n}', "addresses.json:2: is not JSON"),
        (b"", "addresses.json: is empty; an empty configuration is {}"),
        (b"[]", "addresses.json:1: must be an object"),
        (b'{"a":\n"\xff"}', "addresses.json:2: is not UTF-8"),
        (b'{"a \\" NaN": 1,\n"b": NaN}', "addresses.json:2: NaN is not JSON; write a number"),
        (b'{"\\ud800": 1}', "addresses.json: has half of a surrogate pair"),
        (b"[" * 100_000, "addresses.json: is nested too deeply"),
        (
            b'{"' + b"9" * 5000 + b'":\n' + b"9" * 5000 + b"}",
            "addresses.json:2: is not JSON that can be read: a number",
        ),
        (None, "addresses.json: is missing"),
        (Unreadable("Permission denied"), "addresses.json: cannot be read: Permission denied"),
    ],
)
def test_a_file_that_does_not_parse_changes_nothing(text: Any, expected: str) -> None:
    first = applied(text)
    assert str(first.problems[0]).startswith(expected)
    assert str(first.problems[0]).endswith("nothing is served before it can be used")
    assert not first.state.complete and ADDRESSES not in first.state.config
    last = applied({"a": {"type": "anycast"}}).state
    again = applied(text, last=last)
    assert again.state == last
    assert str(again.problems[0]).startswith(expected)
    assert str(again.problems[0]).endswith("what applied before stays")


def test_escapes_and_a_byte_order_mark_are_read() -> None:
    assert list(applied(b'{"\\u0061\\ud83d\\ude00": {"type": "anycast"}}').state.addresses) == ["a\U0001f600"]
    assert list(applied(b'\xef\xbb\xbf{"a": {"type": "anycast"}}').state.addresses) == ["a"]


def test_an_invalid_entry_keeps_its_last_good_version() -> None:
    last = applied({"a": {"type": "anycast"}, "b": {"type": "anycast"}}).state
    found = applied({"a": {"type": "nix"}, "c": {"type": "nix"}, "d": {"type": "multicast"}}, last=last)
    assert found.state.addresses == {"a": Address(type="anycast"), "d": Address(type="multicast")}
    assert list(found.failed) == ["c"]
    assert len(found.problems) == 2


def test_a_flavor_that_vanishes_stays_while_it_is_used() -> None:
    queue = {"type": "queue", "flavor": "q"}
    last = applied({"a": queue, "b": queue}).state
    rest = {name: flavor for name, flavor in FLAVOR_FILE.items() if name != "q"}
    found = applied({"a": {**queue, "maxSize": 5}, "new": queue}, flavors=rest, last=last)
    assert found.state.addresses == {"a": Address(type="queue", flavor="q", max_size=5)}
    assert found.state.flavors["q"] == last.flavors["q"]
    assert [str(problem) for problem in found.problems] == [
        "flavors.json: q: is still used by 'a'; it stays until they have another flavor. Put it back, or move them",
        "addresses.json:1: new.flavor: the flavor 'q' is no longer in flavors.json",
    ]
    done = applied({"a": {"type": "queue", "flavor": "q2"}}, flavors=rest, last=found.state)
    assert not done.problems and "q" not in done.state.flavors


def test_a_flavor_in_use_changes_its_type_only_together_with_its_addresses() -> None:
    last = applied({"a": {"type": "queue", "flavor": "q"}}).state
    retyped = {**FLAVOR_FILE, "q": {"type": "topic", "templateName": "topic-inmemory"}}
    found = applied({"a": {"type": "queue", "flavor": "q"}}, flavors=retyped, last=last)
    assert found.state.flavors["q"].type == "queue"
    assert "its type cannot change while addresses use it ('a')" in str(found.problems[0])
    both = applied({"a": {"type": "topic", "flavor": "q"}}, flavors=retyped, last=last)
    assert not both.problems and both.state.addresses[AddressName("a")].type == "topic"
    # nor while the addresses cannot be read
    kept = applied(b"{", flavors=retyped, last=last)
    assert kept.state.flavors["q"].type == "queue" and kept.state.addresses == last.addresses


def test_an_invalid_flavor_keeps_its_last_good_version() -> None:
    last = applied({"a": {"type": "queue", "flavor": "q"}}).state
    found = applied({"a": {"type": "queue", "flavor": "q"}}, flavors={**FLAVOR_FILE, "q": {"type": "queue"}}, last=last)
    assert found.state.flavors == last.flavors and found.state.addresses == last.addresses
    assert [problem.file for problem in found.problems] == [FLAVORS]


def test_brokers_made_by_hand() -> None:
    addresses = {"a": {"type": "queue", "flavor": "q"}, "b": {"type": "queue", "flavor": "q"}, "x": {"type": "anycast"}}
    brokers = {
        "one": {"host": "h", "port": 5672, "flavors": ["q"]},
        "two": {"host": "h", "port": 5673, "addresses": ["b"]},
        "bad": {"host": "h"},
    }
    found = applied(addresses, brokers=brokers)
    assert [str(problem) for problem in found.problems] == [
        'brokers.json:1: bad.port: is missing; write an object such as {"host": "127.0.0.1", "port": 5672, '
        '"flavors": ["small-persisted-queue"]}'
    ]
    assert found.state.brokers is not None
    placed = place(found.state.brokers, found.state.addresses)
    one, two = (feeds.BrokerEndpoint(host="h", port=port, by_hand=True) for port in (5672, 5673))
    assert placed.brokers == {"one": one, "two": two}
    assert {name: [p.broker for p in where] for name, where in placed.addresses.items()} == {"a": ["one"], "b": ["two"]}
    assert applied(addresses, brokers=b"{", last=found.state).state.brokers == found.state.brokers
    assert told(addresses, brokers=b"{")[0].endswith("; placements go on without it")
    assert applied(addresses, last=found.state).state.brokers is None


EXTERNAL = {"type": "queue", "templateName": "queue-external", "templateParameters": {"HOST": "amqp.example"}}


def test_a_flavor_that_names_its_broker() -> None:
    topic = {"type": "topic", "templateName": "topic-external", "templateParameters": {"HOST": "::1", "PORT": "5673"}}
    found = applied({}, flavors={"q": EXTERNAL, "t": topic})
    assert found.problems == []
    q, t = found.state.flavors["q"], found.state.flavors["t"]
    assert (q.template_parameters.host, q.template_parameters.port) == ("amqp.example", 5672)
    assert (t.template_parameters.host, t.template_parameters.port) == ("::1", 5673)
    assert q.by_hand and t.by_hand and not applied({}).state.flavors["q"].by_hand


@pytest.mark.parametrize(
    ("template", "parameters", "expected"),
    [
        ("queue-external", {}, "HOST: is missing: write where the broker is"),
        ("queue-external", {"HOST": "h", "DEDICATED": True}, "DEDICATED: not a parameter of queue-external; it takes"),
        ("queue-external", {"HOST": "h", "PORT": 0}, "PORT: must be a whole number from 1 to 65535"),
        ("queue-external", {"HOST": ""}, "HOST: must be the name or address of a host"),
        ("queue-external", {"HOST": "amqp://h"}, "HOST: must be the name or address of a host"),
        ("queue-external", {"HOST": "h:5672"}, "HOST: must be the name or address of a host; the port has a key"),
        ("queue-persisted", {"HOST": "h"}, "HOST: not a parameter of queue-persisted; it takes BROKERS"),
    ],
)
def test_what_such_a_flavor_takes(template: str, parameters: dict[str, Any], expected: str) -> None:
    flavor = {"type": "queue", "templateName": template, "templateParameters": parameters}
    (problem,) = told({}, flavors={"x": flavor})
    assert f"x.templateParameters.{expected}" in problem


def test_what_a_broker_managed_by_hand_is_not_given() -> None:
    """It applies, and is said: a person may have set it there."""
    addresses = {
        "a": {"type": "queue", "flavor": "x", "maxSize": 1, "deadletter": "b"},
        "b": {"type": "queue", "flavor": "x"},
    }
    found = applied(addresses, flavors={"x": EXTERNAL})
    assert [(each.entry, each.field) for each in found.problems] == [("a", "deadletter"), ("a", "maxSize")]
    assert all("has no effect" in each.reason and each.applies for each in found.problems)
    assert found.state.addresses.keys() == addresses.keys()


def test_a_flavor_that_names_its_broker_beside_brokers_json() -> None:
    brokers: dict[str, Any] = {"one": {"host": "h", "port": 5672, "flavors": []}}
    (problem,) = told({}, flavors={"x": EXTERNAL}, brokers=brokers)
    assert "x.templateParameters.HOST: has no effect while there is a brokers.json: name the flavor there" in problem
    brokers["one"]["flavors"] = ["x"]
    assert told({}, flavors={"x": EXTERNAL}, brokers=brokers) == []


def test_what_a_broker_names_and_is_not_there() -> None:
    addresses = {"a": {"type": "queue", "flavor": "q"}, "x": {"type": "anycast"}, "odd": {"type": "queue"}}
    brokers = {"one": {"host": "h", "port": 5672, "addresses": ["a", "x", "odd", "none"], "flavors": ["q", "gone"]}}
    found = applied(addresses, brokers=json.dumps(brokers, indent=1).encode())
    assert [str(problem) for problem in found.problems if problem.file == "brokers.json"] == [
        "brokers.json:5: one.addresses: 'x' is of type anycast, which no broker carries: remove it here",
        "brokers.json:5: one.addresses: no address 'none' in addresses.json: put it there, or remove it here",
        "brokers.json:11: one.flavors: no flavor 'gone' in flavors.json: put it there, or remove it here",
    ]
    assert found.state.brokers is not None and found.state.brokers["one"].addresses == ("a", "x", "odd", "none")
    assert applied(b"{", brokers=brokers).problems  # of addresses that nobody knows yet nothing is said
    assert all(problem.file != "brokers.json" for problem in applied(b"{", brokers=brokers).problems)


def test_a_number_of_brokers_that_has_no_effect() -> None:
    flavors = {
        name: {"type": "queue", "templateName": "queue-persisted", "templateParameters": parameters}
        for name, parameters in (("a", {"BROKERS": 2, "DEDICATED": True}), ("b", {"BROKERS": 1, "DEDICATED": True}))
    }
    found = applied({}, flavors=flavors)
    assert [str(problem) for problem in found.problems] == [
        "flavors.json:1: a.templateParameters.BROKERS: has no effect: with DEDICATED each address has one broker of "
        "its own; remove one of the two"
    ]
    assert found.state.flavors.keys() == {"a", "b"}


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('{\n "a": {"type": "anycast"},\n\n}', 2, "a comma before the closing }: remove it (column 26)"),
        ('{\n "a": {"type": "anycast",\n }\n}', 2, "a comma before the closing }: remove it (column 25)"),
        ('{\n "a": {"x": [1,\n ]}\n}', 2, "a comma before the closing ]: remove it (column 15)"),
        (
            '{\n "a": {"type": "anycast"}\n\n "b": {"type": "anycast"}\n}',
            2,
            "a comma is missing behind this (column 25)",
        ),
        ('{\n "a": {"type": "anycast"},\n', 3, "Expecting property name"),
    ],
)
def test_a_comma_is_blamed_where_it_is(text: str, line: int, said: str) -> None:
    (problem,) = applied(text.encode()).problems
    assert (problem.file, problem.line) == (ADDRESSES, line) and said in problem.reason
    with pytest.raises(ValueError, match=f"line {line} "):
        edits.parse(text)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
keys = st.sampled_from(
    ["type", "flavor", "store_and_forward", "messageTtl", "templateName", "templateParameters", "port"]
)
entries = st.dictionaries(st.text(max_size=6), st.dictionaries(keys, values, max_size=4) | values, max_size=4)


@given(entries, entries, entries, st.sampled_from([None, 0, 1]))
def test_whatever_is_written_there_is_an_answer(addresses: Any, flavors: Any, brokers: Any, indent: int | None) -> None:
    files = (addresses, flavors, brokers)
    texts = [json.dumps(value, indent=indent).encode() for value in files]
    found = applied(texts[0], texts[1], None, texts[2])
    assert set(found.state.config) == {ADDRESSES, FLAVORS, BROKERS}
    assert set(found.state.addresses) | set(found.failed) == set(addresses)
    for problem in found.problems:
        assert problem.line is not None and problem.reason
    again = applied(texts[0], texts[1], found.state, texts[2])
    assert again.state == found.state
    assert msgspec.json.decode(msgspec.json.encode(found.state), type=AppliedState) == found.state


@given(entries, st.sampled_from([None, 0, 2]))
def test_lines_are_found(entries: Any, indent: int | None) -> None:
    text = json.dumps(entries, indent=indent)
    found = locate(text)
    lines = text.split("\n")
    for name, entry in entries.items():
        for path in [(name,), *((name, key) for key in (entry if isinstance(entry, dict) else ()))]:
            assert json.dumps(path[-1]) in lines[found[path][0] - 1]
    assert not parse("f", text.encode()).duplicates


def written(value: Any) -> str:
    """The JSON of a value in which objects are lists of pairs, so that a key may occur twice."""
    if isinstance(value, tuple):
        return "{" + ", ".join(f"{json.dumps(key)} : {written(inner)}" for key, inner in value) + "}"
    return "[" + ",".join(map(written, value)) + "]" if isinstance(value, list) else json.dumps(value)


def repeats(value: Any) -> bool:
    if isinstance(value, tuple):
        return len({key for key, _ in value}) < len(value) or any(repeats(inner) for _, inner in value)
    return isinstance(value, list) and any(map(repeats, value))


pairs = st.recursive(
    st.sampled_from([None, 1, "", ":", "a:b", '":']),
    lambda inner: (
        st.lists(st.tuples(st.sampled_from(["a", "b", "c:", ":"]), inner), max_size=4).map(tuple)
        | st.lists(inner, max_size=2)
    ),
)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d:"]), pairs), max_size=5).map(tuple))
def test_each_repeated_key_is_found(value: Any) -> None:
    text = written(value)
    found = parse("f", text.encode())
    assert found.entries == json.loads(text)
    if not repeats(value):
        assert found.duplicates == []
    assert {path[0] for path in found.duplicates if len(path) == 1} == {
        key for at, (key, _) in enumerate(value) if key in [other for other, _ in value[:at]]
    }


trees = st.dictionaries(
    st.sampled_from(["a", "a/b", "a.b/c", "a/b/d", "b", "b/a"]),
    st.sampled_from([{"type": "topic", "flavor": "t"}, {"type": "anycast"}, {"type": "queue", "flavor": "q"}]),
)


@given(st.lists(trees, max_size=4))
def test_nothing_but_topics_is_ever_below_a_topic(files: list[Any]) -> None:
    last = AppliedState()
    for file in files:
        last = applied(file, last=last).state
        forms = {router_form(name): address for name, address in last.addresses.items()}
        topics = [form for form, address in forms.items() if address.type == "topic"]
        below = [form for form in forms if any(form.startswith(f"{topic}/") for topic in topics)]
        assert all(forms[form].type == "topic" for form in below)
