"""To whom events belong, without a process."""

from __future__ import annotations

from enmasse.live_state import MAX_EVENTS
from enmasse.live_state import Rows as ProcessRows
from services.console.following.process_events import EVENTS, Events
from services.console.rest.connections import names_of_client


def test_events_of_an_mqtt_client_are_found_by_its_identifier() -> None:
    assert "kitchen" in names_of_client("~alice/kitchen") and "~alice/kitchen" in names_of_client("~alice/kitchen")
    assert set(names_of_client("container")) == {"container"}


def test_events_at_a_broker_belong_to_none_of_the_suite_s_users() -> None:
    events = Events()
    for component, kind in (("router-0", "router"), ("mqtt-0", "mqtt_gateway"), ("by-hand", "broker")):
        event = {"at": 1.0, "user": "alice"}
        state = {"component": component, "kind": kind, "run": "1", "full": True, "complete": True, "events": [event]}
        events.take(state)
    found = {row.component: (row.user, events.owner(row)) for _, row in events.rows}
    assert found == {
        "router-0": ("alice", "alice"), "mqtt-0": ("alice", "alice"), "by-hand": ("alice", None),
    }  # fmt: skip


def test_refusals_of_one_space_take_no_room_of_another_s() -> None:
    process, events = ProcessRows("gateway-0", "mqtt_gateway", lambda: 1.0), Events()
    every = [{"space": "quiet", "address": "mine"}, *({"space": "loud", "address": str(n)} for n in range(EVENTS + 9))]
    for event in every:
        process.event(event)
    kept = [row for _, kind, _, row in process.since(0) if kind == "events"]
    assert len(kept) == MAX_EVENTS and kept[0] == {"at": 1.0, **every[0]} and kept[-1] == {"at": 1.0, **every[-1]}
    for at, event in enumerate(every):
        state = {"component": "gateway-0", "kind": "mqtt_gateway", "run": "1", "full": False, "complete": True}
        events.take({**state, "events": [{"at": float(at), **event}]})
    found = [(events.space_of(id), row.address) for id, row in events.rows]
    assert len(found) == EVENTS and ("quiet", "mine") in found and ("loud", "0") not in found
