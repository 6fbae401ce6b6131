"""`enmasse mqtt` in an address space: a client is found before its gateway has shown its connection; what is in flight
there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from enmasse.cli.commands.live import subscribers

CONNECTION = {"id": "gw-0/device", "component": "gw-0", "user": "alice", "container": "device"}
SESSION = {"id": "~alice@one/device", "gateway": "gw-0"}


@pytest.mark.parametrize(
    ("connected", "shown", "closed"),
    [(True, [[], [], [CONNECTION]], 1), (False, [[]], 0), (True, [[{**CONNECTION, "user": "bob"}], [CONNECTION]], 1)],
    ids=["shown later", "not connected", "another one is shown first"],
)
def test_a_connection_that_is_not_shown_yet_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, connected: bool, shown: list[list[Any]], closed: int
) -> None:
    looks: Iterator[list[Any]] = iter(shown)
    orders: list[tuple[str, str]] = []

    def items(offset: int, what: str) -> list[Any]:
        return [{**SESSION, "connected": connected}] if what == "sessions" else next(looks)

    monkeypatch.setattr(subscribers, "items", items)
    monkeypatch.setattr(subscribers, "space", lambda: "one")
    monkeypatch.setattr(subscribers, "LOOK", 0)
    monkeypatch.setattr(subscribers, "ask", lambda offset, method, where: orders.append((method, where)))
    assert subscribers.disconnect(0, "~alice@one/device") == closed == len(orders)
    assert not list(looks)


def test_messages_of_both_qualities_are_in_flight_and_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    session = {
        **SESSION, "connected": True, "peer": "a:1", "protocol": 5, "since": "", "expiry": 0, "subscriptions": 1,
        "inFlight": 1, "waiting": 0,
    }  # fmt: skip
    away = {**session, "id": "~alice@one/away", "connected": False, "waiting": 7}
    mqtt = {"inFlightIn": 2, "inFlightOut": 3}
    lists = {
        "sessions": [session, away],
        "connections?protocol=mqtt*": [{**CONNECTION, "mqtt": mqtt}, {**CONNECTION, "component": "b", "mqtt": None}],
    }
    monkeypatch.setattr(subscribers, "items", lambda offset, what: lists[what])
    monkeypatch.setattr(subscribers, "space", lambda: "one")
    monkeypatch.setattr(subscribers, "_console_answers", lambda offset: True)
    assert [(row["in_flight"], row["waiting"]) for row in subscribers.clients(0)] == [(5, 0), (1, 7)]
