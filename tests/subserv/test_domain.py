"""What sessions, retained messages and names are, without any connection."""

from __future__ import annotations

import string
import tracemalloc
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from enmasse.identity.principal import Principal
from enmasse.model.addresses import Address
from enmasse.model.feeds import Addresses, Placement, Placements
from enmasse.model.names import AddressName
from enmasse.model.sessions import PacketChange, Subscription
from enmasse.mqtt.topics import matches
from services.subserv import broker_names as names
from services.subserv import records
from services.subserv.records import OutgoingRecord, SessionRecord
from services.subserv.retained.tree import PORTION, Retained, RetainedIndex
from services.subserv.sessions.qos2_owners import Qos2Owners
from services.subserv.sessions.sessions import PacketTable, Sessions, undone
from services.subserv.subscription_placement import LEAVE_BOUND, Desired, Subscriber

LEVEL = st.sampled_from(["a", "b", "", "$x"])
NAMES = st.lists(LEVEL, min_size=1, max_size=4).map("/".join)
PATTERNS = st.lists(st.sampled_from(["a", "b", "", "+"]), min_size=1, max_size=4).flatmap(
    lambda levels: st.sampled_from(["/".join(levels), "/".join([*levels, "#"]), "#"])
)
IDS = st.text(string.ascii_letters + "./|%$+# é", min_size=1, max_size=300)


@given(st.lists(st.tuples(NAMES, st.booleans(), st.integers(0, 50))), st.lists(PATTERNS), st.integers(0, 60))
def test_retained_messages_are_found_by_what_covers_them(
    changes: list[tuple[str, bool, int]], patterns: list[str], now: int
) -> None:
    index, model = RetainedIndex(), dict[str, tuple[int, int]]()
    for number, (name, put, expires) in enumerate(changes):
        if put:
            index.put(Retained(name, "b", number, 10, 1, 0, expires))
            model[name] = number, expires
        else:
            assert (index.remove(name) is not None) == (model.pop(name, None) is not None)
    for entry in index.expired(now):
        index.remove(entry.name)
        assert model.pop(entry.name)[0] == entry.number
    assert all(not expires or expires > now for _, expires in model.values())
    assert index.count == len(model) and index.bytes.used == 10 * len(model)
    for pattern in patterns:
        found = [entry.name for entry in index.match(pattern)]
        # a tree of names knows no $: whoever asks for an MQTT filter leaves those out
        wanted = [name for name in model if matches(pattern.replace("$", "_"), name.replace("$", "_"))]
        assert found == sorted(wanted, key=lambda name: model[name][0])


def test_others_have_their_turn_while_a_wide_pattern_is_looked_for() -> None:
    """And messages come, are replaced and go meanwhile."""
    index, count = RetainedIndex(), 3 * PORTION
    for number in range(count):
        index.put(Retained(f"t/{number % 10}/{number}", "b", number, 10, 1, 0, 0))
    assert list(index.looks("t/+/+/miss")) == [None] * 3
    found, turns = list[str](), 0
    for entry in index.looks("t/+/#"):
        if entry is not None:
            found.append(entry.name)
            continue
        turns += 1
        for number in range(0, count, 7):
            index.remove(f"t/{number % 10}/{number}")
            index.put(Retained(f"t/{number % 10}/new{turns}.{number}", "b", count + number, 10, 1, 0, 0))
    assert turns >= 3 and len(found) == len(set(found))
    assert {name for name in found if "new" not in name} >= {f"t/{n % 10}/{n}" for n in range(count) if n % 7}


def test_replaced_ends_do_not_gather() -> None:
    """A device that is retained again every second, a client that comes and goes: memory for one of each."""
    index, sessions = RetainedIndex(), Sessions()
    tracemalloc.start()
    for number in range(20_000):
        index.put(Retained("a", "b", number, 10, 1, 0, 10**12 + number))
        sessions.put(record("c", ends=1e9 + number))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 1_000_000
    assert len(index.expired(10**13)) == len(sessions.over(1e10)) == 1


def record(client: str, **more: Any) -> SessionRecord:
    fields = {"created": 1, "epoch": 1, "protocol": 5, "expiry": 9, "connected": False, "gateway": "g", **more}
    return SessionRecord(client=client, peer="", will=False, since=0.0, **fields)


OPERATIONS = st.tuples(
    st.sampled_from(["in", "in-", "out", "rel", "out-", "end"]),
    st.integers(1, 4),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["$sub/b/mqtt.c", "$sub/b/share.g.1"]),
    st.binary(max_size=2),
)


@given(st.lists(OPERATIONS), st.lists(OPERATIONS))
def test_packet_ids_are_in_the_store_as_in_memory(
    stored: list[tuple[Any, int, str, str, bytes]], failed: list[tuple[Any, int, str, str, bytes]]
) -> None:
    given = Qos2Owners()
    table, store = PacketTable(given), dict[tuple[str, str], bytes]()
    for each in stored:
        for change in table.change("c", packet_change(*each), []):
            if change.value is not None:
                store[change.table, change.key] = change.value
            else:
                del store[change.table, change.key]
    before = dict(table.received), table.messages(), table.held(), state(given)
    undo: list[Any] = []
    for each in failed:
        table.change("c", packet_change(*each), undo)
    undone(undo)
    assert (dict(table.received), table.messages(), table.held(), state(given)) == before
    again, held = Qos2Owners(), set[int]()
    recovered = PacketTable(again)
    for (name, key), value in store.items():
        if name == records.HELD:
            held.add(int(key.split()[0]))
        elif name == records.ENDED:
            again.ended[records.ended_message(key)] = True
        elif records.packet_key(key)[0] == "in":
            recovered.received[records.packet_key(key)[1]] = value.decode()
        else:
            recovered.put_sent("c", msgspec.msgpack.decode(value, type=OutgoingRecord))
    assert (recovered.received, recovered.messages(), recovered.held(), state(again)) == before
    assert held == set(table.held())


def packet_change(op: Any, pid: int, key: str, source: str, message: bytes) -> PacketChange:
    return PacketChange("c", 1, op, pid, f"{key}{pid}", source, message if op == "out" else b"")


def state(given: Qos2Owners) -> Any:
    return dict(given.owners), dict(given.ended), given.bytes


SHARED = st.sampled_from(["a", "a/#", "$share/g/a", "$share/g/b", "$share/h/a"])


@given(st.lists(st.tuples(st.sampled_from("cde"), st.sets(SHARED), st.booleans())))
def test_shares_live_as_long_as_their_members(changes: list[tuple[str, set[str], bool]]) -> None:
    sessions, model = Sessions(), dict[str, set[str]]()
    for client, filters, ends in changes:
        if ends:
            if client in sessions.by_client:
                sessions.remove(sessions.by_client[client])
            model.pop(client, None)
        else:
            session = sessions.put(record(client, connected=client == "c"))
            sessions.unsubscribe(session, [filter for filter in session.subscriptions if filter not in filters])
            sessions.subscribe(session, [Subscription(filter=filter, qos=1) for filter in filters])
            assert session.filters == {filter for filter in filters if not filter.startswith("$share")}
            model[client] = filters
    shared = {filter for filters in model.values() for filter in filters if filter.startswith("$share")}
    assert {share.name for share in sessions.shares.values()} == shared
    for share in sessions.shares.values():
        assert share.members == {client for client, filters in model.items() if share.name in filters}
    assert sessions.subscriptions.used == sum(map(len, model.values()))
    assert sessions.connected == ("c" in model)


@given(IDS, IDS)
def test_ids_name_one_subscriber(one: str, other: str) -> None:
    assert names.share_id("g", "a") == names.share_id("g", "a", Principal("anonymous"))
    users = Principal("alice"), Principal("alice", space="team"), Principal("anonymous", space="team")
    assert len({names.share_id("g", "a"), *(names.share_id("g", "a", user) for user in users)}) == 4
    made = [names.session_id(one), names.amqp_id(one), names.share_id(one, other), names.session_id(other)]
    assert (made[0] == made[3]) == (one == other) and len(set(made[:3])) == 3
    for id in made:
        assert "|" not in id and "/" not in id and id != names.FEED
        assert names.divert_parts(names.divert_name(id, "a|b/#")) == (id, "a|b/#")
        assert names.id_of("b.1", names.queue_name("b.1", id)) == id
        assert names.id_of("b", names.queue_name("b.1", id)) is None
        own = names.of_suite(id, "suite")
        assert (names.plain(own), names.suite_of(own), names.suite_of(id)) == (id, "suite", "")
        assert names.marked(names.mark(own, 7)) == names.marked(names.mark(id, 7)) == 7
    assert names.marked("subserver:7") is None and names.marked("subserv:") is None


TREE = ["a", "a/b", "c", "d"]
FILTERS = st.sets(st.sampled_from(["#", "a", "a/#", "a/b/#", "+/b", "c", "c/x", "+", "unknown/x"]))


@given(st.lists(st.one_of(FILTERS, st.dictionaries(st.sampled_from(TREE), st.sampled_from(["b1", "b2", "-b1"])))))
def test_what_is_desired_does_not_depend_on_the_way_to_it(steps: list[Any]) -> None:
    """A subscriber that was followed through all changes is to have what a new one is to have."""
    desired = Desired()
    desired.set_addresses(Addresses(addresses={AddressName(n): Address(type="topic", flavor="t") for n in TREE}))
    subscriber = Subscriber("s", 1)
    for step in steps:
        if isinstance(step, dict):
            places = {
                AddressName(name): [Placement(broker=home[-2:], state="draining" if home[0] == "-" else "active")]
                for name, home in step.items()
            }
            desired.set_placements(Placements(brokers={}, addresses=places))
        else:
            subscriber.filters = frozenset(step)
        fresh = Subscriber("s", 1, subscriber.filters)
        for broker in ("b1", "b2"):
            new = desired.patterns(broker, fresh, held=False)
            held = desired.patterns(broker, fresh, held=True)
            assert desired.patterns(broker, subscriber, held=False) == new <= held
            assert desired.patterns(broker, subscriber, held=True) == held
            assert (broker in desired.brokers(subscriber)) == bool(new)


POOL = [
    "a",
    "a/b",
    "a.b",
    "a/b/c",
    "b",
    "b/+",
    "#",
    "+",
    "+/b",
    "a/#",
    "a/+/c",
    "b/a/b",
    "c",
    "c/a",
    "c.a",
    "a.b/c",
    "+/+",
]
TOPICS_OF_POOL = ["a", "a/b", "a.b", "b", "c", "c/a"]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sets(st.sampled_from(TOPICS_OF_POOL)), st.sampled_from(["", *TOPICS_OF_POOL])),
            st.dictionaries(st.sampled_from(TOPICS_OF_POOL), st.sampled_from(["b1", "b2"])),
            st.lists(st.sampled_from(POOL), unique=True),
        ),
        max_size=12,
    ),
    st.booleans(),
)
@example([({"c"}, "c"), ["a"], {"c": "b1"}], False)  # the default moves
@example([({"c"}, "c"), {"c": "b1", "c/a": "b2"}, ["a"], ({"c", "c/a"}, "c")], False)  # takes what it had
def test_a_subscriber_is_placed_as_if_the_addresses_had_always_been_as_they_are(steps: list[Any], amqp: bool) -> None:
    desired, subscriber = Desired(), Subscriber("s", 1, amqp=amqp)
    addresses, placements = Addresses(addresses={}), Placements(brokers={}, addresses={})
    for step in steps:
        if isinstance(step, tuple):
            names, default = step
            kept = {n: Address(type="topic", flavor="t", mqtt_default=n == default) for n in names}
            addresses = Addresses(addresses={AddressName(name): address for name, address in kept.items()})
            desired.set_addresses(addresses)
        elif isinstance(step, dict):
            places = {AddressName(name): [Placement(broker=home)] for name, home in step.items()}
            placements = Placements(brokers={}, addresses=places)
            desired.set_placements(placements)
        else:
            subscriber.filters = frozenset(step)
        fresh = Desired()
        fresh.set_addresses(addresses)
        fresh.set_placements(placements)
        other = Subscriber("s", 1, subscriber.filters, amqp=amqp)
        for broker in ("b1", "b2"):
            assert desired.patterns(broker, subscriber, held=False) == fresh.patterns(broker, other, held=False)


def test_a_new_address_costs_subscribers_that_it_does_not_concern_nothing() -> None:
    desired = Desired()
    names = {AddressName(f"t{number}"): Address(type="topic", flavor="f") for number in range(50)}
    desired.set_addresses(Addresses(addresses=names))
    desired.set_placements(Placements(brokers={}, addresses={name: [Placement(broker="b")] for name in names}))
    subscribers = [Subscriber(str(n), n, [f"t{(n + m) % 50}/{m}/#" for m in range(20)]) for n in range(100)]
    before = [desired.patterns("b", each, held=True) for each in subscribers]
    looked_up: list[str] = []
    targets = desired.targets
    desired.targets = lambda filter, **more: looked_up.append(filter) or targets(filter, **more)  # type: ignore[method-assign, func-returns-value]  # replaced by the test
    new = {**names, AddressName("t7/7"): Address(type="topic", flavor="f")}
    desired.set_addresses(Addresses(addresses=new))
    assert [desired.patterns("b", each, held=True) for each in subscribers] == before
    concerned = [each for each in subscribers if "t7/7/#" in each.filters]
    assert sorted(looked_up) == sorted(filter for each in concerned for filter in each.filters)
    assert concerned


def test_a_queue_stays_bound_for_a_while_to_names_that_other_addresses_take() -> None:
    """A gateway that learns later of the addresses still sends there."""
    now = [0.0]
    desired, subscriber = Desired(lambda: now[0]), Subscriber("s", 1, ["x/#"])
    names = [AddressName("old"), AddressName("new")]

    def mark(marked: str) -> None:
        topics = {name: Address(type="topic", flavor="t", mqtt_default=name == marked) for name in names}
        desired.set_addresses(Addresses(addresses=topics))

    def patterns(*, held: bool = True) -> set[str]:
        return desired.patterns("b", subscriber, held=held)

    mark("old")
    places = {AddressName("old"): [Placement(broker="b")]}
    desired.set_placements(Placements(brokers={}, addresses=places))
    assert patterns() == {"old/x/#"}
    mark("new")
    assert patterns() == {"old/x/#"}
    desired.set_placements(Placements(brokers={}, addresses={**places, names[1]: [Placement(broker="b")]}))
    assert patterns() == {"old/x/#", "new/x/#"}
    assert patterns(held=False) == {"new/x/#"}
    now[0] = LEAVE_BOUND
    assert patterns() == {"new/x/#"}
    mark("old")
    assert patterns() == {"old/x/#", "new/x/#"}
    subscriber.filters = frozenset({"y"})
    assert patterns() == {"old/y"}


def test_long_filters_are_not_remembered() -> None:
    """A client may ask for one of 64 KiB again and again; brokers take no such names."""
    desired = Desired()
    desired.set_addresses(Addresses(addresses={AddressName("t"): Address(type="topic", flavor="f")}))
    tracemalloc.start()
    for number in range(200):
        for name in ("t", "nowhere"):
            assert desired.where(f"{name}/{number}/{'x' * 60_000}") == {}
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 1_000_000
