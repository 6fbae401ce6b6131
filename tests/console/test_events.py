"""To whom events belong, without a process."""

from __future__ import annotations

from services.console.following.process_events import Events


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
