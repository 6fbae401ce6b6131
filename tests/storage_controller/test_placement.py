"""Decisions: what lies where, what is made, kept, drained or refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from enmasse.engines.embedded import BROKER as EMBEDDED
from enmasse.model.addresses import Address
from enmasse.model.feeds import BoundChanges, Placement
from enmasse.model.flavors import Flavor, Parameters
from enmasse.model.names import AddressName, in_space
from services.storage_controller import fleet, preparing
from services.storage_controller.brokers.broker import ManagedBroker
from services.storage_controller.brokers.broker_contents import BrokerContents, Holding
from services.storage_controller.placement import PlacementDecision, Placer


def flavor(kind: str = "queue", brokers: int = 1, dedicated: bool = False) -> Flavor:
    parameters = Parameters(brokers=brokers, dedicated=dedicated)
    return Flavor(type=kind, template_name=f"{kind}-persisted", template_parameters=parameters)  # type: ignore[arg-type]  # a type from the test's table


def external(kind: str, host: str = "hand") -> Flavor:
    parameters = Parameters(host=host)
    return Flavor(type=kind, template_name=f"{kind}-external", template_parameters=parameters)  # type: ignore[arg-type]  # a type from the test's table


HAND = "hand:5672"
BY_HAND = Address(type="queue", flavor="x")
FLAVORS = {
    "f": flavor(brokers=2),
    "g": flavor(),
    "t": flavor("topic"),
    "u": flavor("topic"),
    "x": external("queue"),
    "y": external("topic"),
}
BROKERS = {"f-0": "f", "f-1": "f", "g-0": "g", "t-0": "t", "u-0": "u"}
A, B, Q, R, T, X = (AddressName(name) for name in "abqrtx")
Q0, Q3, Q7 = AddressName("q0"), AddressName("q3"), AddressName("q7")
DEAD, GONE, NEW = AddressName("dead"), AddressName("gone"), AddressName("new")
REMOVED, UNCLEAR = AddressName("removed"), AddressName("unclear")
QUEUE = Address(type="queue", flavor="f")
TOPIC = Address(type="topic", flavor="t")


def placer(
    addresses: dict[AddressName, Address], held: dict[str, dict[AddressName, Holding]] | None = None, **more: Any
) -> Placer:
    """A placer that has received everything; `held`: broker → address → what lies there."""
    found = Placer()
    found.set_addresses(addresses, more.get("forced", ()))
    found.set_flavors(FLAVORS)
    for name, of in BROKERS.items():
        broker = found.inventory.add(name, of, EMBEDDED)
        found.inventory.connected(broker)
        if name not in more.get("silent", ()):
            look(found, name, (held or {}).get(name, {}))
    return found


def look(found: Placer, broker: str, held: dict[AddressName, Holding]) -> set[AddressName]:
    """The broker shows that, and the settings are found to be as they should."""
    known = found.inventory.brokers[broker]
    known.settled.update({name: found.desired.addresses[name] for name in held if name in found.desired.addresses})
    stored = sum(each.messages for each in held.values())
    return found.set_contents(found.inventory.brokers[broker], BrokerContents(dict(held), stored, 0))


def look_held(found: Placer, broker: str) -> None:
    """The broker has new durable subscriptions to the topic wait, and was listed then."""
    known = found.inventory.brokers[broker]
    known.hold(X)
    known.looks += 1


def made(found: Placer, broker: str, name: AddressName, held: Holding) -> None:
    """The address has been made there, with its settings."""
    known = found.inventory.brokers[broker]
    found.note(known, name, held)
    known.settled[name] = found.desired.addresses[name]


def bind(found: Placer, name: AddressName) -> set[AddressName]:
    """All that must be bound for a topic is bound at the broker that is prepared for it."""
    epochs = {each.broker: each.epoch for each in found.decide(name).entries if isinstance(each.epoch, int)}
    assert epochs
    return found.preparations.take(BoundChanges(addresses={name: epochs}, binders=["subserv"]))


def states(decision: PlacementDecision) -> list[tuple[str, str, str | None]]:
    return [(entry.broker, entry.state, entry.type) for entry in decision.entries]


MINE = Holding("queue", True)


def test_a_new_address_goes_to_the_least_loaded_broker_of_its_flavor() -> None:
    found = placer({AddressName(f"q{i}"): QUEUE for i in range(6)})
    homes = [found.decide(AddressName(f"q{i}")).keep for i in range(6)]
    assert sorted(homes) == [("f-0",)] * 3 + [("f-1",)] * 3
    decision = found.decide(Q0)
    assert decision.entries == (), "it is placed when it is there, not before"
    assert not decision.ready
    assert "is being made" in decision.message
    made(found, decision.keep[0], Q0, MINE)
    decision = found.decide(Q0)
    assert (decision.ready, decision.message) == (True, "")
    assert states(decision) == [(decision.keep[0], "active", "queue")]


def test_all_addresses_of_a_brokered_space_go_to_one_broker() -> None:
    queue, topic = Address(type="queue", flavor="f", brokered=True), Address(type="topic", flavor="f", brokered=True)
    wanted = {
        AddressName(f"!!{space}/{name}"): topic if name == "t" else queue for space in ("one", "two") for name in "abt"
    }
    found = placer({**wanted, A: QUEUE})
    for name in wanted:
        found.decide(name)
    homes = found.inventory.homes
    assert {homes[name] for name in wanted if name.startswith("!!one/")} == {"f-0"}
    assert {homes[name] for name in wanted if name.startswith("!!two/")} == {"f-1"}  # the one with less
    late = AddressName("!!one/late")
    found.set_addresses({**wanted, A: QUEUE, late: queue}, ())
    assert found.decide(late).keep == ("f-0",)
    for name in wanted:
        found.inventory.set_home(name, None)
    assert found.inventory.homes_of_space("two") == {}


def test_a_brokered_space_may_have_a_broker_of_its_own() -> None:
    own = flavor(dedicated=True)
    queue = Address(type="queue", flavor="own", brokered=True)
    wanted = {AddressName(f"!!{space}/{name}"): queue for space in ("one", "two") for name in "ab"}
    assert len(fleet.wanted(wanted, {"own": own})) == 2
    found = {name: fleet.brokers_for(name, "own", own, brokered=True) for name in wanted}
    assert len({tuple(each) for name, each in found.items() if name.startswith("!!one/")}) == 1


def test_ready_is_what_has_its_settings() -> None:
    found = placer({Q: QUEUE}, {"f-0": {Q: MINE}})
    assert found.decide(Q).ready
    bounded = msgspec.structs.replace(QUEUE, max_size=1000)
    assert found.set_addresses({Q: bounded}, ()) == {"q"}
    decision = found.decide(Q)
    assert (decision.ready, states(decision)) == (False, [("f-0", "active", "queue")])
    assert decision.message == "its settings on broker f-0 are being corrected"
    found.inventory.brokers["f-0"].settled[Q] = bounded
    assert found.decide(Q).ready
    # What differs is of no interest to the broker.
    found.set_addresses({Q: msgspec.structs.replace(bounded, flavor="f")}, ())
    assert found.decide(Q).ready
    # A broker that was away may have been changed meanwhile, or be another one.
    found.inventory.disconnected(found.inventory.brokers["f-0"], "away")
    found.inventory.connected(found.inventory.brokers["f-0"])
    assert not found.decide(Q).ready


def test_damage_is_told_and_does_not_change_what_is_ready() -> None:
    found = placer({Q: QUEUE}, {"f-0": {Q: Holding("queue", True, lost=2)}})
    decision = found.decide(Q)
    assert (decision.ready, decision.message) == (True, "broker f-0: 2 messages lost by damage to its files")
    assert look(found, "f-0", {Q: Holding("queue", True, lost=2, stalled=True)}) == {"q"}
    assert "cannot be read at the moment" in found.decide(Q).message
    look(found, "f-0", {Q: MINE})
    assert found.decide(Q).message == ""


def test_nothing_is_made_before_every_broker_was_heard() -> None:
    found = placer({Q: QUEUE}, silent=("u-0",))
    decision = found.decide(Q)
    assert decision.keep == ()
    assert "u-0" in decision.message
    assert look(found, "u-0", {}) == {"q"}
    assert found.decide(Q).keep == ("f-0",)


def test_a_broker_that_did_not_exist_before_need_not_be_heard() -> None:
    found = placer({Q: QUEUE})
    found.inventory.add("h-0", "h", EMBEDDED, fresh=True)
    found.set_flavors({**FLAVORS, "h": flavor()})
    found.set_addresses({Q: QUEUE, NEW: Address(type="queue", flavor="h")}, ())
    assert found.inventory.knows_all
    assert found.decide(Q).keep == ("f-0",)
    decision = found.decide(NEW)
    assert (decision.keep, decision.entries, decision.ready) == (("h-0",), (), False)


def test_where_it_lies_is_read_from_the_brokers() -> None:
    found = placer({Q: QUEUE}, {"f-1": {Q: MINE}})
    decision = found.decide(Q)
    assert (decision.keep, decision.ready) == (("f-1",), True)


def test_a_broker_that_is_down_keeps_its_addresses() -> None:
    found = placer({Q: QUEUE}, {"f-1": {Q: MINE._replace(messages=3)}})
    found.decide(Q)
    assert "q" in found.inventory.disconnected(found.inventory.brokers["f-1"], "connection refused")
    decision = found.decide(Q)
    assert states(decision) == [("f-1", "active", "queue")]
    assert not decision.ready
    assert decision.message == "broker f-1 cannot be reached: connection refused"


def test_after_a_restart_an_earlier_report_says_what_a_silent_broker_holds() -> None:
    found = placer({Q: QUEUE, R: QUEUE}, silent=("f-1",))
    found.hint(Q, [Placement(broker="f-1")])
    found.patient = False
    assert states(found.decide(Q)) == [("f-1", "active", "queue")]
    assert found.decide(R).keep == ("f-0",)


def test_a_queue_deleted_by_hand_is_made_again_where_it_was() -> None:
    found = placer({Q: QUEUE}, {"f-1": {Q: MINE}})
    found.decide(Q)
    assert look(found, "f-1", {}) == {"q"}
    decision = found.decide(Q)
    assert (decision.keep, decision.ready, decision.entries) == (("f-1",), False, ())


def test_an_address_that_is_removed_drains() -> None:
    found = placer({Q: QUEUE}, {"f-0": {Q: MINE._replace(messages=2)}})
    assert found.set_addresses({}, ()) == {"q"}
    decision = found.decide(Q)
    assert (decision.keep, decision.retire) == ((), ("f-0",))
    assert states(decision) == [("f-0", "draining", "queue")]
    assert "2 messages on broker" in decision.message
    look(found, "f-0", {})
    assert found.decide(Q) == PlacementDecision(None, (), (), (), False, "", None, None)


@pytest.mark.parametrize("ours", [None, False])
def test_what_is_not_ours_is_not_drained_when_it_is_not_wanted(ours: bool | None) -> None:
    found = placer({}, {"f-0": {X: Holding("topic", ours, 2)}})
    decision = found.decide(X)
    assert (decision.entries, decision.message) == ((), "")
    assert decision.retire == (("f-0",) if ours is None else ()), "a topic's mark has to be looked up"
    found.inventory.brokers["f-0"].marked.add(X)
    assert (states(found.decide(X)) == [("f-0", "draining", "topic")]) == (ours is None)


def test_what_somebody_made_serves_when_it_is_wanted() -> None:
    found = placer({Q: QUEUE}, {"f-0": {Q: Holding("queue", False)}})
    assert states(found.decide(Q)) == [("f-0", "active", "queue")]
    found.set_addresses({}, ())
    assert found.decide(Q).retire == ()


def test_a_retyped_address_is_drained_before_it_changes() -> None:
    found = placer({Q: TOPIC}, {"f-0": {Q: MINE._replace(messages=1)}})
    decision = found.decide(Q)
    assert (decision.keep, decision.retire) == ((), ("f-0",))
    assert states(decision) == [("f-0", "draining", "queue")]
    assert decision.message == (
        "retyped from queue to topic: still holds 1 message on broker f-0; consume them, or discard them: "
        "`enmasse address remove q --force`, then add it again"
    )
    look(found, "f-0", {})
    assert states(found.decide(Q)) == [("t-0", "prepared", "topic")]
    bind(found, Q)
    assert found.decide(Q).keep == ("t-0",)


def test_a_stored_address_that_becomes_a_direct_one_is_drained() -> None:
    found = placer({Q: QUEUE}, {"f-0": {Q: MINE._replace(messages=1)}})
    assert found.set_addresses({Q: Address(type="anycast")}, ()) == {"q"}
    assert states(found.decide(Q)) == [("f-0", "draining", "queue")]
    assert found.decide(Q).message.startswith("retyped from queue to anycast: still holds 1 message on broker f-0; ")
    assert found.set_addresses({Q: Address(type="multicast")}, ()) == {"q"}
    assert found.decide(Q).message.startswith("retyped from queue to multicast: ")
    assert found.set_addresses({}, ()) == {"q"}
    assert found.decide(Q).message == (
        "was removed: still holds 1 message on broker f-0; consume them, or discard them: "
        "`enmasse address remove q --force`"
    )
    look(found, "f-0", {Q: MINE})
    assert found.decide(Q).message == (
        "was removed: is empty on broker f-0 and goes as soon as no producer can reach it there"
    )


def test_the_command_for_a_removed_queue_of_a_space_states_the_space() -> None:
    # The operator reads the message with the names of the space: without --space it is a queue of the default one.
    orders = AddressName("!!two/orders")
    found = placer({orders: QUEUE}, {"f-0": {orders: MINE._replace(messages=2)}})
    assert found.set_addresses({}, ()) == {orders}
    assert "`enmasse address remove orders --force --space two`" in in_space("two", found.decide(orders).message)


def test_a_queue_with_another_flavor_moves_and_leaves_a_drain_behind() -> None:
    found = placer({Q: QUEUE}, {"f-1": {Q: MINE._replace(messages=5)}})
    found.decide(Q)
    found.set_addresses({Q: Address(type="queue", flavor="g")}, ())
    decision = found.decide(Q)
    assert (decision.keep, decision.retire) == (("g-0",), ())
    assert states(decision) == [("f-1", "active", "queue")], "it serves where it is until it can where it belongs"
    assert decision.message == "is being made on broker g-0"
    made(found, "g-0", Q, MINE)
    decision = found.decide(Q)
    assert decision.retire == ("f-1",)
    assert states(decision) == [("g-0", "active", "queue"), ("f-1", "draining", "queue")]
    assert decision.ready
    assert decision.message == (
        "given flavor g instead of f: still holds 5 messages on broker f-1, which consumers get too; it leaves there "
        "when they have"
    )
    assert decision.messages == 5
    assert found.inventory.load == {"f-1": 0, "g-0": 1}


def test_a_topic_does_not_move_under_its_subscribers() -> None:
    held = Holding("topic", None, 0, 0, 1)
    found = placer({X: TOPIC}, {"t-0": {X: held}})
    found.decide(X)
    moved = {X: Address(type="topic", flavor="u")}
    found.set_addresses(moved, ())
    decision = found.decide(X)
    assert states(decision) == [("t-0", "active", "topic")]
    assert (decision.ready, decision.retire) == (True, ())
    assert (
        "given flavor u instead of t: stays on broker t-0, where it has 1 durable subscription with" in decision.message
    )
    found.set_addresses(moved, [X])
    assert states(found.decide(X)) == [("t-0", "active", "topic"), ("u-0", "prepared", "topic")]


EMPTY = Holding("topic", None)
MOVED = {X: Address(type="topic", flavor="u")}


def moving() -> Placer:
    """A placer of a topic that is to leave t-0 for u-0."""
    found = placer({X: TOPIC}, {"t-0": {X: EMPTY}})
    assert states(found.decide(X)) == [("t-0", "active", "topic")]
    found.set_addresses(MOVED, ())
    return found


def test_a_topic_moves_once_everything_is_bound() -> None:
    found = moving()
    decision = found.decide(X)
    assert (decision.keep, decision.retire, decision.ready) == ((), (), False)
    assert states(decision) == [("t-0", "active", "topic"), ("u-0", "prepared", "topic")]
    assert bind(found, X) == {X}
    assert found.decide(X).keep == (), "a subscription may have been made at t-0 since it was listed"
    assert found.preparations.to_look == {"t-0": {X}}
    assert found.decide(X).message == "waits until subserv has bound subscriptions on broker u-0"
    found.inventory.brokers["t-0"].looks += 1
    assert found.decide(X).keep == (), "one may still be made there"
    look_held(found, "t-0")
    decision = found.decide(X)
    assert (decision.keep, decision.retire) == (("u-0",), ())
    assert states(decision) == [("t-0", "active", "topic"), ("u-0", "prepared", "topic")], "it is not there yet"
    made(found, "u-0", X, EMPTY)
    decision = found.decide(X)
    assert (decision.keep, decision.retire, decision.ready) == (("u-0",), ("t-0",), True)
    assert states(decision) == [("u-0", "active", "topic"), ("t-0", "draining", "topic")]


def test_another_epoch_is_not_bound_by_an_earlier_report() -> None:
    found = moving()
    found.decide(X)
    (epoch,) = [each.epoch for each in found.decide(X).entries if each.state == "prepared"]
    assert isinstance(epoch, int)
    found.preparations.take(BoundChanges(addresses={X: {"u-0": epoch - 1}}))
    assert found.preparations.to_look == {}
    found.preparations.take(BoundChanges(addresses={X: {"t-0": epoch}}))
    found.decide(X)
    assert found.preparations.to_look == {}


def test_who_is_waited_for_is_reported_when_it_becomes_known() -> None:
    """A controller that starts may decide before it has read the feed, which changes nothing else."""
    found = moving()
    found.preparations.binders = ()
    assert "waits until the configuration service has bound" in found.decide(X).message
    assert X in found.preparations.take(BoundChanges(addresses={}, binders=["subserv"], full=True))
    assert "waits until subserv has bound" in found.decide(X).message


def test_a_topic_that_gets_a_durable_subscription_while_another_broker_is_prepared_stays() -> None:
    found = moving()
    bind(found, X)
    found.decide(X)
    look(found, "t-0", {X: EMPTY._replace(subscriptions=1)})
    look_held(found, "t-0")
    decision = found.decide(X)
    assert (states(decision), decision.retire) == ([("t-0", "active", "topic")], ())
    assert "stays on broker t-0" in decision.message


def test_a_topic_that_moves_back_is_prepared_once_more() -> None:
    """Its old broker still has it, but subscriptions may have been made since."""
    found = moving()
    bind(found, X)
    found.decide(X)
    look_held(found, "t-0")
    found.decide(X)
    made(found, "u-0", X, EMPTY)
    found.decide(X)
    found.set_addresses({X: TOPIC}, ())
    decision = found.decide(X)
    assert states(decision) == [("u-0", "active", "topic"), ("t-0", "prepared", "topic")]
    assert decision.retire == ()


def test_a_topic_that_is_back_before_its_broker_is_rid_of_it_is_prepared() -> None:
    found = placer({X: TOPIC}, {"t-0": {X: EMPTY}})
    found.inventory.brokers["t-0"].marked.add(X)
    found.decide(X)
    found.set_addresses({}, ())
    assert states(found.decide(X)) == [("t-0", "draining", "topic")]
    found.set_addresses({X: TOPIC}, ())
    assert states(found.decide(X)) == [("t-0", "prepared", "topic")]
    bind(found, X)
    assert states(found.decide(X)) == [("t-0", "active", "topic")]


def test_a_topic_that_its_broker_has_lost_is_bound_before_it_is_made_again() -> None:
    """A broker in memory that has restarted has no subscriptions either."""
    found = placer({X: TOPIC}, {"t-0": {X: EMPTY}})
    found.decide(X)
    look(found, "t-0", {})
    decision = found.decide(X)
    assert (states(decision), decision.keep) == ([("t-0", "prepared", "topic")], ())
    bind(found, X)
    assert found.decide(X).keep == ("t-0",)


def test_a_controller_that_starts_takes_a_topic_as_bound_where_it_was_made() -> None:
    """Because it is made only then. If two brokers have it, the one where it belongs was made last."""
    found = placer({X: TOPIC}, {"t-0": {X: EMPTY}})
    assert states(found.decide(X)) == [("t-0", "active", "topic")]
    found = placer(MOVED, {"t-0": {X: EMPTY}})
    assert states(found.decide(X)) == [("t-0", "active", "topic"), ("u-0", "prepared", "topic")]
    found = placer(MOVED, {"t-0": {X: EMPTY}, "u-0": {X: EMPTY}})
    assert states(found.decide(X)) == [("u-0", "active", "topic"), ("t-0", "draining", "topic")]


def test_a_smaller_pool_moves_what_lies_on_brokers_that_go() -> None:
    found = placer({Q: QUEUE}, {"f-1": {Q: MINE._replace(messages=1)}})
    found.decide(Q)
    assert found.set_flavors({**FLAVORS, "f": flavor(brokers=1)}) == {"q"}
    assert found.decide(Q).keep == ("f-0",)
    made(found, "f-0", Q, MINE)
    assert (found.decide(Q).keep, found.decide(Q).retire) == (("f-0",), ("f-1",))


def test_a_flavor_that_vanishes_leaves_its_addresses_where_they_are() -> None:
    found = placer({Q: QUEUE, NEW: Address(type="queue", flavor="gone")}, {"f-1": {Q: MINE}})
    found.decide(Q)
    found.set_flavors({})
    assert states(found.decide(Q)) == [("f-1", "active", "queue")]
    assert found.decide(NEW).message == "there is no flavor gone"


def test_a_dead_letter_queue_is_on_every_broker_that_needs_it() -> None:
    dead = Address(type="queue", flavor="f")
    wants = Address(type="queue", flavor="f", deadletter=AddressName("dead"))
    found = placer({DEAD: dead, A: wants, B: wants}, {"f-0": {A: MINE, DEAD: MINE}, "f-1": {B: MINE}})
    for name in (A, B):
        found.decide(name)
    assert found.decide(DEAD).keep == ("f-0", "f-1")
    made(found, "f-1", DEAD, MINE)
    decision = found.decide(DEAD)
    assert states(decision) == [("f-0", "active", "queue"), ("f-1", "draining", "queue")]
    assert decision.ready
    assert "dead" in found.set_addresses({DEAD: dead, A: wants}, ())
    found.decide(B)
    decision = found.decide(DEAD)
    assert (decision.keep, decision.retire) == (("f-0",), ("f-1",))


def test_a_change_concerns_only_what_it_changes() -> None:
    addresses = {AddressName(f"q{i}"): QUEUE for i in range(100)}
    found = placer(addresses)
    assert found.set_addresses({**addresses, Q7: Address(type="queue", flavor="g")}, ()) == {"q7"}
    assert found.set_addresses({**addresses, Q7: Address(type="queue", flavor="g")}, ()) == set()
    assert found.set_flavors({**FLAVORS, "u": flavor("topic", brokers=3)}) == set()
    held = dict.fromkeys(addresses, MINE)
    assert look(found, "f-0", held) == set(addresses)
    assert look(found, "f-0", {**held, Q3: MINE._replace(messages=1)}) == {"q3"}


def test_a_refusal_of_the_broker_is_told() -> None:
    found = placer({Q: QUEUE})
    assert found.decide(Q).keep == ("f-0",)
    found.inventory.brokers["f-0"].refused[Q] = "AMQ1: no"
    assert found.decide(Q).message == "broker f-0: AMQ1: no"
    assert found.refused(Q)


def test_a_broker_that_is_given_up_is_forgotten() -> None:
    found = placer({}, {"f-0": {X: Holding("queue", False)}})
    found.inventory.remove("f-0")
    assert "f-0" not in found.inventory.brokers
    assert found.decide(X) == PlacementDecision(None, (), (), (), False, "", None, None)
    assert isinstance(found.inventory.add("f-0", "f", EMBEDDED), ManagedBroker)


def test_what_nobody_knows_any_more_goes_on_as_it_lies() -> None:
    """Its entry is invalid and its last valid version was lost: it was not removed."""
    lies = {Q: Holding("queue", True, 3), T: Holding("topic", True, 2, 1, 1), GONE: MINE}
    held = {"f-0": {Q: lies[Q], GONE: lies[GONE]}, "t-0": {T: lies[T]}}
    found = placer({}, held)
    assert found.decide(Q).retire == ("f-0",)
    assert found.set_addresses({}, [Q], [Q, T, NEW]) >= {"q", "t"}
    decision = found.decide(Q)
    assert (decision.keep, decision.retire, decision.ready, decision.messages) == ((), (), False, 3)
    assert states(decision) == [("f-0", "active", "queue")]
    assert "until the entry is corrected" in decision.message
    assert states(found.decide(T)) == [("t-0", "active", "topic")] and found.decide(T).retire == ()
    assert found.decide(NEW) == PlacementDecision(None, (), (), (), False, "", None, None)
    assert found.decide(GONE).retire == ("f-0",)
    assert found.set_addresses({}, [], []) >= {"q", "t"}
    assert found.decide(Q).retire == ("f-0",)


def test_what_it_still_knows_of_an_invalid_entry_holds() -> None:
    found = placer({Q: QUEUE}, {"f-0": {Q: MINE}})
    before = found.decide(Q)
    assert before.ready
    found.set_addresses({}, [], [Q])
    assert found.decide(Q) == before
    found.set_addresses({Q: Address(type="queue", flavor="g")}, [])
    assert found.decide(Q).keep == ("g-0",)


@pytest.mark.parametrize("last", ["addresses", "flavors"])
def test_what_was_heard_before_the_feeds_is_decided_with_the_last_of_them(last: str) -> None:
    """Also what is wanted no more, and what nobody knows any more: else they would be told to nobody."""
    found = Placer()
    broker = found.inventory.add("f-0", "f", EMBEDDED)
    found.inventory.connected(broker)
    look(found, "f-0", {Q: MINE, REMOVED: MINE._replace(messages=1), UNCLEAR: MINE})
    if last == "addresses":
        found.set_flavors(FLAVORS)
    changed = found.set_addresses({Q: QUEUE}, (), [UNCLEAR])
    if last == "flavors":
        changed = found.set_flavors(FLAVORS)
    assert changed == {"q", "removed", "unclear"}
    assert states(found.decide(REMOVED)) == [("f-0", "draining", "queue")]
    assert states(found.decide(UNCLEAR)) == [("f-0", "active", "queue")]


def test_an_address_on_a_broker_managed_by_hand() -> None:
    """Nothing is made or read there. Flavors that name the same one have one broker."""
    found = placer({A: BY_HAND, T: Address(type="topic", flavor="y")})
    assert states(found.decide(T)) == [(HAND, "prepared", "topic")]
    bind(found, T)
    for name, kind in ((A, "queue"), (T, "topic")):
        decision = found.decide(name)
        assert decision.ready
        assert not decision.message
        assert (states(decision), decision.retire) == ([(HAND, "active", kind)], ())
        assert (decision.messages, decision.consumers) == (None, None)
    found.set_addresses({}, ())
    assert (found.decide(A).entries, found.decide(A).kind) == ((), None)


def test_from_a_made_broker_to_one_managed_by_hand_and_back() -> None:
    found = placer({A: QUEUE}, {"f-0": {A: Holding("queue", True, messages=3)}})
    assert states(found.decide(A)) == [("f-0", "active", "queue")]
    found.set_addresses({A: BY_HAND}, ())
    decision = found.decide(A)
    assert states(decision) == [(HAND, "active", "queue"), ("f-0", "draining", "queue")]
    assert decision.retire == ("f-0",)
    assert "still holds 3 messages on broker f-0, which consumers get too" in decision.message
    look(found, "f-0", {})
    assert states(found.decide(A)) == [(HAND, "active", "queue")]
    found.set_addresses({A: QUEUE}, ())
    (home,) = found.decide(A).keep
    assert home in ("f-0", "f-1")
    made(found, home, A, MINE)
    assert states(found.decide(A)) == [(home, "active", "queue")], "what lies on the other stays there"


def test_a_topic_stays_bound_at_a_broker_managed_by_hand_until_routers_can_know_that_it_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While configserv is away they send there, for however long that is."""
    monkeypatch.setattr(preparing, "LINGER", 0.0)
    found = placer({T: Address(type="topic", flavor="y")})
    bind(found, T)
    found.decide(T)
    found.set_addresses({T: TOPIC}, ())
    bind(found, T)
    (home,) = found.decide(T).keep
    made(found, home, T, EMPTY)
    there = [(home, "active", "topic"), (HAND, "draining", "topic")]
    assert states(found.decide(T)) == there
    assert found.preparations.end_lingering(lambda name: True) == []
    assert states(found.decide(T)) == there
    assert found.preparations.end_lingering(lambda name: False) == [T]
    assert states(found.decide(T)) == there[:1]


def test_a_topic_with_subscriptions_does_not_move_to_a_broker_managed_by_hand() -> None:
    found = placer({T: TOPIC}, {"t-0": {T: Holding("topic", True, subscriptions=1)}})
    found.decide(T)
    found.set_addresses({T: Address(type="topic", flavor="y")}, ())
    decision = found.decide(T)
    assert states(decision) == [("t-0", "active", "topic")]
    assert "stays on broker t-0, where it has 1 durable subscription" in decision.message


def test_dead_letters_and_brokers_managed_by_hand() -> None:
    """Such a queue is made for the topics of made brokers; for addresses of a broker managed by hand nothing is."""
    topic = Address(type="topic", flavor="t", deadletter=DEAD)
    foreign = Address(type="topic", flavor="y", deadletter=GONE)
    wants = {T: topic, DEAD: BY_HAND, X: foreign, GONE: QUEUE}
    found = placer(wants, {"t-0": {T: Holding("topic", True)}})
    for name in wants:
        found.decide(name)
    assert found.decide(DEAD).keep == (HAND, "t-0")
    made(found, "t-0", DEAD, MINE)
    assert states(found.decide(DEAD)) == [(HAND, "active", "queue"), ("t-0", "draining", "queue")]
    assert HAND not in found.decide(GONE).keep


def test_a_flavor_that_names_another_broker_now() -> None:
    found = placer({A: BY_HAND})
    found.decide(A)
    assert found.set_flavors({**FLAVORS, "x": external("queue", "::1")}) == {A}
    name = "[0000:0000:0000:0000:0000:0000:0000:0001]:5672"
    assert states(found.decide(A)) == [(name, "active", "queue")]
    assert found.desired.by_hand[name].host == "::1"
    found.set_flavors({**FLAVORS, "x": flavor()})
    assert "no broker of flavor x runs yet" in found.decide(A).message
    assert found.decide(A).entries == ()
