"""Topics and filters over addresses: against a slow model, and the names that they get on AMQP."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from enmasse.model.address_types import AddressType
from enmasse.model.addresses import Address
from enmasse.model.names import AddressName, LocalName, address_error, full_name
from enmasse.model.topic_map import MAX_LEVELS, FilterRefused, FilterTarget, TopicMap, TopicMaps, escape, unescape
from enmasse.name_tries import NameTrie
from services.router.routing.address_text import strip, tokens

KINDS: list[AddressType] = ["queue", "anycast", "multicast", *["topic"] * 5]  # type: ignore[list-item]  # mypy widens the repeated ones to str
words = st.sampled_from(["a", "b", "c", "d.e", "$x"])
legal = st.characters(blacklist_characters="+#\0/", blacklist_categories=["Cs"])
topics = st.lists(st.text(legal, max_size=6), min_size=1, max_size=5).map("/".join).filter(bool)
short_topics = (
    st.lists(st.sampled_from(["a", "b", "c", "d.e", "$x", ""]), min_size=1, max_size=5).map("/".join).filter(bool)
)


@st.composite
def filters(draw: st.DrawFn) -> str:
    """At least one character [MQTT-4.7.3-1] (v3.1.1, v5)."""
    levels = draw(st.lists(st.sampled_from(["a", "b", "c", "d.e", "+", ""]), min_size=0, max_size=4))
    everything: bool = draw(st.booleans())
    return "/".join([*levels, "#"] if everything else levels) or "#"


@st.composite
def maps(draw: st.DrawFn) -> dict[AddressName, Address]:
    """Addresses as configserv lets them through: nothing but topics below topics, names that routers can tell."""
    names = draw(st.lists(st.lists(words, min_size=1, max_size=3).map("/".join), max_size=6, unique=True))
    found: dict[AddressName, Address] = {}
    for name in names:
        kind = draw(st.sampled_from(KINDS))
        if name.startswith("$") or any(name.replace(".", "/") == other.replace(".", "/") for other in found):
            continue
        above = [kind for other, kind in found.items() if name.startswith(other + "/")]
        below = [kind for other, kind in found.items() if other.startswith(name + "/")]
        if kind != "topic" and any(each.type == "topic" for each in above):
            continue
        if kind == "topic" and any(each.type != "topic" for each in below):
            continue
        found[AddressName(name)] = Address(type=kind, flavor=None)
    candidates: list[AddressName] = [name for name, address in found.items() if address.type == "topic"]
    marked: bool = draw(st.booleans())
    if candidates and marked:
        default: AddressName = draw(st.sampled_from(candidates))
        found[default] = Address(type="topic", mqtt_default=True)
    return found


def covers(filter: str, topic: str) -> bool:
    """MQTT's rule [MQTT-4.7.1-2] and following (v5), by a regular expression."""
    if topic.startswith("$") and filter[0] in "+#":
        return False
    expression = "/".join("[^/]*" if level == "+" else re.escape(level) for level in filter.split("/"))
    if filter == "#":
        expression = ".*"
    elif filter.endswith("/#"):
        expression = expression[: -len(re.escape("/#"))] + "(/.*)?"
    return re.fullmatch(expression, topic, re.DOTALL) is not None


@given(topics)
def test_an_escaped_topic_is_read_back(topic: str) -> None:
    assert unescape(escape(topic)) == topic


@given(topics)
def test_names_of_topics_are_names_that_router_broker_and_dispatch_can_hold(topic: str) -> None:
    name = "t/" + escape(topic)
    levels = name.split("/")
    assert len(levels) == topic.count("/") + 2, "a level stays a level"
    assert all(levels), "none is empty"
    assert tokens(name) == levels and strip(name) == name, "routers see the same levels"
    assert "::" not in name and not set("*+#.") & set(name)
    assert all(character.isprintable() and not character.isspace() for character in name)


@given(st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=20))
@example("%00")  # of a level that is empty
def test_any_name_on_amqp_has_a_topic_that_mqtt_can_hold(name: str) -> None:
    topic = TopicMap({AddressName("t"): Address(type="topic")}).topic_of(name)
    assert topic and not set("+#\0") & set(topic)
    assert topic.count("/") == name.count("/")


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("a/b", "a/b"),
        ("", "%00"),
        ("a//b/", "a/%00/b/%00"),
        ("/", "%00/%00"),
        ("1.5", "1%2E5"),
        ("aa:bb", "aa:bb"),
        ("a::b", "a%3A%3Ab"),
        ("50%", "50%25"),
        ("%2E", "%252E"),
        ("my room", "my%20room"),
        ("tab\t*", "tab%09%2A"),
        ("münchen/\u200b", "münchen/%E2%80%8B"),
    ],
)
def test_the_escaped_form(topic: str, name: str) -> None:
    assert escape(topic) == name
    assert unescape(name) == topic


@pytest.mark.parametrize(
    ("name", "topic"),
    [("a+b", "a%2Bb"), ("#", "%23"), ("%FF", "%FF"), ("%2e", "%2e"), ("%2F", "%2F"), ("a\0", "a%00"), ("%2B", "%2B")],
)
def test_names_that_no_topic_has(name: str, topic: str) -> None:
    assert unescape(name) == topic


@given(maps(), st.sampled_from(["!!a", "!!a/b", "!!", "!!a/+", "!!/#"]))
def test_no_client_names_an_address_in_an_address_space(addresses: dict[AddressName, Address], text: str) -> None:
    topics = TopicMap(addresses)
    with pytest.raises(FilterRefused):
        topics.targets(text)
    if "+" not in text and "#" not in text:
        assert topics.owner(text) is None
        for name in (text, f"{topics.default}/{text}"):  # what an AMQP client sends there
            owner = topics.owner(topics.topic_of(name))
            assert owner is None or owner.to == name


def targets_of(topics: TopicMap, filter: str) -> list[FilterTarget] | str:
    try:
        return topics.targets(filter)
    except FilterRefused as refused:
        return str(refused)


@given(maps(), maps(), topics, filters())
def test_addresses_of_other_spaces_take_no_topics(
    own: dict[AddressName, Address], others: dict[AddressName, Address], topic: str, filter: str
) -> None:
    alone = TopicMap(own)
    beside = TopicMap({**own, **{full_name("one", LocalName(name)): each for name, each in others.items()}})
    assert beside.default == alone.default
    assert beside.owner(topic) == alone.owner(topic)
    assert targets_of(beside, filter) == targets_of(alone, filter)
    for wire in (topic, f"!!one/{topic}"):
        assert beside.owner_of_wire(wire) == alone.owner_of_wire(wire)
        assert beside.spellings(wire) == alone.spellings(wire)


@given(maps(), short_topics)
def test_the_owner_is_the_nearest_address(addresses: dict[AddressName, Address], topic: str) -> None:
    map = TopicMap(addresses)
    levels = topic.split("/")
    above = [name for name in addresses if name.split("/") == levels[: name.count("/") + 1]]
    owner = map.owner(topic)
    if above:
        expected: str = max(above, key=len)
    elif map.default is not None:
        expected = map.default
    else:
        assert owner is None
        return
    if owner is None:  # routers read dots as separators: the name is another address's there
        assert any("." in name for name in addresses)
        return
    assert owner.type == addresses[owner.name].type
    if owner.type == "topic":
        assert owner.name == expected or owner.name.startswith(f"{map.default}/")
        assert owner.to == owner.wire
        assert map.owner_of_wire(owner.wire) == owner
    else:
        assert owner.name == expected
        assert owner.wire == str(expected)
    named = map.topic_of(owner.to)
    assert named == topic or f"{map.default}/{named}" == topic
    assert topic in map.spellings(owner.to)
    assert map.owner(named) == owner


@settings(max_examples=300)
@given(maps(), short_topics, filters())
def test_a_filter_matches_if_a_pattern_matches(addresses: dict[AddressName, Address], topic: str, filter: str) -> None:
    map = TopicMap(addresses)
    owner = map.owner(topic)
    if owner is None or owner.type != "topic":
        return
    spellings = map.spellings(owner.wire)
    if map.spells_default(spellings[0]) and not map.spells_default(filter):
        return  # only by its full name
    try:
        targets = map.targets(filter)
    except FilterRefused:
        targets = []
        first = next((at for at, level in enumerate(filter.split("/")) if level in "+#" and level), 99)
        start = "/".join(filter.split("/")[:first])
        if any(start == name or start.startswith(name + "/") for name in addresses):
            return  # a part of a queue or anycast address
    wire = NameTrie()
    wire.add(owner.wire)
    found = any(t.name == owner.name and wire.covered(t.pattern) for t in targets)
    full = [each for each in spellings if map.spells_default(each)]
    expected = covers(filter, full[0] if full and map.spells_default(filter) else spellings[0])
    if spellings[0].startswith("$") and filter[0] in "+#":
        assert not expected
        return
    assert found == expected


@given(maps(), filters())
def test_targets_are_topics_or_the_address_that_the_filter_begins_with(
    addresses: dict[AddressName, Address], filter: str
) -> None:
    try:
        targets = TopicMap(addresses).targets(filter)
    except FilterRefused as refused:
        assert str(refused)
        return
    assert targets
    assert len(targets) == len(set(targets))
    for target in targets:
        assert addresses[target.name].type == target.type
        assert target.pattern == target.name or target.type == "topic"


HOUSE = {
    AddressName("telemetry"): Address(type="topic"),
    AddressName("telemetry/critical"): Address(type="topic"),
    AddressName("jobs"): Address(type="queue"),
    AddressName("ask"): Address(type="anycast"),
    AddressName("news"): Address(type="multicast"),
    AddressName("rest"): Address(type="topic", mqtt_default=True),
}


@pytest.mark.parametrize(
    ("filter", "targets"),
    [
        ("telemetry", ["telemetry telemetry"]),
        ("telemetry/+", ["telemetry telemetry/+", "telemetry/critical telemetry/critical"]),
        ("telemetry/#", ["telemetry telemetry/#", "telemetry/critical telemetry/critical/#"]),
        ("telemetry/a.b/+", ["telemetry telemetry/a%2Eb/+"]),
        ("+", ["rest rest", "rest rest/+", "telemetry telemetry"]),
        ("#", ["rest rest", "rest rest/#", "telemetry telemetry/#", "telemetry/critical telemetry/critical/#"]),
        ("+/x", ["rest rest/+/x", "telemetry telemetry/x"]),
        ("else/#", ["rest rest/else/#"]),
        ("rest/else", ["rest rest/else"]),
        ("/x", ["rest rest/%00/x"]),
        ("jobs", ["jobs jobs"]),
        ("jobs/#", ["jobs jobs"]),
        ("ask/#", ["ask ask"]),
        ("news/#", ["news news"]),
        ("news/+/x", ["news news"]),
        ("news/x", ["news news"]),
    ],
)
def test_what_a_filter_covers(filter: str, targets: list[str]) -> None:
    found = TopicMap(HOUSE).targets(filter)
    assert sorted(f"{target.name} {target.pattern}" for target in found) == targets


@pytest.mark.parametrize("filter", ["jobs/x", "jobs/+", "jobs/+/#", "ask/x", "ask/+"])
def test_a_part_of_what_competing_consumers_share_is_refused(filter: str) -> None:
    with pytest.raises(FilterRefused, match=r"other messages would be lost: subscribe to '(jobs|ask)'"):
        TopicMap(HOUSE).targets(filter)


def test_the_shared_form_of_emqx_is_refused_with_that_of_mqtt() -> None:
    with pytest.raises(FilterRefused, match=r"subscribe to '\$share/GROUP/x/\+'"):
        TopicMap(HOUSE).targets("$queue/x/+")


def test_without_a_default_other_filters_are_refused() -> None:
    house = {name: address for name, address in HOUSE.items() if not address.mqtt_default}
    map = TopicMap(house)
    assert map.owner("else") is None
    with pytest.raises(FilterRefused, match="no address takes 'else/#'"):
        map.targets("else/#")
    assert map.targets("#")
    assert TopicMap({}).owner("a") is None


def test_the_default_has_two_spellings() -> None:
    map = TopicMap(HOUSE)
    short, long = map.owner("x/y"), map.owner("rest/x/y")
    assert short is not None
    assert short == long
    assert short.wire == "rest/x/y"
    assert map.spellings("rest/x/y") == ("x/y", "rest/x/y")
    assert map.spellings("rest") == ("rest",)
    assert map.spellings("rest/rest/y") == ("rest/rest/y",)


def test_a_message_older_than_the_address_of_its_topic_has_its_topic_last() -> None:
    assert TopicMap(HOUSE).spellings("rest/jobs/y") == ("rest/jobs/y", "jobs/y")


def test_a_message_older_than_the_mark_of_the_default_has_the_topic_of_then() -> None:
    remarked = [AddressName("telemetry"), AddressName("gone"), AddressName("!!one/jobs")]
    map = TopicMap(HOUSE, remarked=remarked)
    assert map.spellings("telemetry/a%2Eb") == ("telemetry/a.b", "a.b")
    assert map.spellings("gone/y") == ("gone/y", "y")
    assert map.spellings("rest/gone/y") == ("gone/y", "rest/gone/y")
    assert map.spellings("telemetry") == ("telemetry",)
    assert not map.default_is_remarked
    back = TopicMap(HOUSE, remarked=[AddressName("rest")])
    assert back.spellings("rest/x") == ("x", "rest/x")
    assert back.default_is_remarked
    in_space = {full_name("one", LocalName(name)): each for name, each in HOUSE.items()}
    assert TopicMaps(in_space, remarked=remarked).of("one").spellings("!!one/jobs/y") == ("jobs/y", "y")


def test_a_topic_that_routers_take_for_another_address_has_no_owner() -> None:
    map = TopicMap({AddressName("a"): Address(type="topic"), AddressName("a.b"): Address(type="topic")})
    assert map.owner("a/b/c") is None
    dotted = map.owner("a.b/c")
    assert dotted is not None
    assert dotted.name == "a.b"
    named = map.owner_of_wire("a/b/c")
    assert named is not None
    assert named.name == "a.b"


def test_too_many_levels_belong_to_nobody() -> None:
    map = TopicMap(HOUSE)
    assert map.owner("/".join("x" * MAX_LEVELS)) is not None
    assert map.owner("/".join("x" * (MAX_LEVELS + 1))) is None
    with pytest.raises(FilterRefused, match="levels"):
        map.targets("/" * MAX_LEVELS)


def test_a_filter_of_one_address_is_one_target() -> None:
    many = {AddressName(f"t{n}"): Address(type="topic") for n in range(1000)}
    assert all(address_error(name) is None for name in many)
    assert TopicMap(many).targets("t7/+/x") == [FilterTarget(AddressName("t7"), "topic", "t7/+/x")]
    assert len(TopicMap(many).targets("#")) == 1000


def test_topics_of_a_name_that_leaves_are_nobodys() -> None:
    """They do not become the default's while a broker still has the address."""
    house = {**HOUSE}
    del house[AddressName("jobs")]
    away = TopicMap(house, [AddressName("jobs")])
    gone = TopicMap(house)
    for topic in ("jobs", "jobs/1"):
        assert away.owner(topic) is None
        found = gone.owner(topic)
        assert found is not None and found.wire == f"rest/{topic}"
        assert away.topic_of(topic) == topic
    assert away.owner_of_wire("jobs") is None
    with pytest.raises(FilterRefused, match="no address takes"):
        away.targets("jobs/#")
    assert away.targets("#") == gone.targets("#")
    assert TopicMap(HOUSE, [AddressName("jobs")]).owner("jobs") == TopicMap(HOUSE).owner("jobs"), "it is back"


def test_each_space_has_its_topics_under_the_same_names() -> None:
    names = {"news": "topic", "all": "topic", "jobs": "queue", "cast": "multicast"}
    addresses = {
        AddressName(prefix + name): Address(type=kind, mqtt_default=name == "all")  # type: ignore[arg-type]  # the four words
        for prefix in ("", "!!one/", "!!two/")
        for name, kind in names.items()
    }
    maps = TopicMaps(addresses, [AddressName("!!one/gone")])
    plain = maps.of("default")
    for space in ("one", "two"):
        topics, prefix = maps.of(space), f"!!{space}/"
        assert topics is maps.of_name(f"{prefix}news/#") and topics.default == "all"
        for topic in ("news", "news/a.b", "x/y", "jobs", "jobs/1", "cast/x", "$data/x"):
            there, here = topics.owner(topic), plain.owner(topic)
            assert there is not None and here is not None
            assert there == (prefix + here.name, here.type, prefix + here.wire, here.to)
            for stated in (here.to, prefix + here.to):
                assert topics.topic_of(stated) == plain.topic_of(here.to)
                assert topics.spellings(stated) == plain.spellings(here.to)
        for filter in ("news/#", "#", "+/a", "jobs", "cast/a/#", "all/x", "news/a.b/+"):
            assert topics.targets(filter) == [(prefix + n, k, prefix + p) for n, k, p in plain.targets(filter)]
            assert topics.wire_filters(filter) == plain.wire_filters(filter)
        assert topics.owner("!!two/news") is topics.owner("!!one/news") is None
    assert maps.of("one").owner("gone/x") is None and maps.of("two").owner("gone/x") is not None
    assert maps.of("none").owner("news") is None
