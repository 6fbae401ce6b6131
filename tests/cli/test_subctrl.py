"""`enmasse subscription`, `retained` and `mqtt` against a stand-in for the subscription service."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from enmasse.cli.commands.live.subscribers import number_without_user
from enmasse.cli.common import OPERATORS_PORT
from tests.cli.running import enmasse, free_offset
from tests.cli.subctrl import RETAINED, ROW, SESSION, Replies, answering
from tests.cli.test_client import peer
from tests.cli.test_completion import complete


class Commands:
    """Runs commands against a service with these replies. `seen`: what it was asked."""

    def __init__(self, offset: int, replies: Replies, seen: list[tuple[str, Any]]) -> None:
        self.offset, self.replies, self.seen = offset, replies, seen

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return enmasse(*words, "--port-offset", self.offset)

    def done(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 1 and done.stdout == ""
        return done.stderr


@contextmanager
def service(replies: Replies) -> Iterator[Commands]:
    seen: list[tuple[str, Any]] = []
    with peer(answering(replies, seen)) as port:
        yield Commands(port - OPERATORS_PORT, replies, seen)


@pytest.fixture(scope="module")
def shared() -> Iterator[Commands]:
    many = {**ROW, "id": "share.g", "kind": "share", "client": "", "filters": {f"f{i}": "0" for i in range(5)}}
    with service(
        {
            "subscriptions": {"subscriptions": [ROW, many]},
            "subscription": ROW,
            "delete": {"count": 1},
            "sessions": {"sessions": [SESSION, {**SESSION, "client": "away", "connected": False}]},
            "disconnect": {"count": 1},
            "retained": {"retained": [RETAINED], "total": 7},
            "clear_retained": {"count": 7},
        }
    ) as found:
        yield found


def asked(commands: Commands) -> tuple[str, Any]:
    """The newest request."""
    return commands.seen[-1]


def test_subscriptions_are_listed_and_shown(shared: Commands) -> None:
    table = shared.done("subscription", "list").splitlines()
    assert table[0].split() == ["subscription", "kind", "client", "connected", "filters", "waiting", "for", "brokers"]
    assert table[1].split()[:4] == ["mqtt.thermo", "mqtt", "thermo", "no"] and "home/#, cmd/thermo" in table[1]
    assert "f0, f1, f2 and 2 more" in table[2]
    assert json.loads(shared.done("subscription", "list", "--json"))["subscriptions"][0] == ROW
    shown = shared.done("subscription", "show", "mqtt.thermo")
    assert "  filter: cmd/thermo (QoS 2)\n" in shown and "  waiting: 3\n" in shown
    assert asked(shared) == ("subscription", {"id": "mqtt.thermo", "by": ""})
    assert json.loads(shared.done("subscription", "show", "mqtt.thermo", "--json")) == ROW


def test_what_holds_messages_or_is_connected_is_deleted_with_force_only(shared: Commands) -> None:
    assert "holds 3 messages" in shared.refused("subscription", "delete", "mqtt.thermo")
    assert asked(shared)[0] == "subscription"
    assert shared.done("subscription", "delete", "mqtt.thermo", "--force") == "deleted mqtt.thermo\n"
    assert asked(shared) == ("delete", {"id": "mqtt.thermo", "by": "operator"})
    replies: Replies = {"subscriptions": {"subscriptions": [ROW]}, "delete": {"count": 1}}
    with service({**replies, "subscription": {**ROW, "depth": 0, "connected": True}}) as other:
        assert "is connected" in other.refused("subscription", "delete", "mqtt.thermo")
        other.replies["subscription"] = {**ROW, "depth": 0}
        assert other.done("subscription", "delete", "mqtt.thermo") == "deleted mqtt.thermo\n"


def test_retained_messages_are_listed_and_cleared(shared: Commands) -> None:
    table = shared.done("retained", "list", "home/+").splitlines()
    assert table[1].split()[:3] == ["home/a", "5", "1"] and table[1].split()[-2:] == ["alice", "!"]
    assert len(table) == 2
    assert asked(shared) == ("retained", {"filter": "home/+", "everywhere": False, "limit": 1000})
    listed = {"items": [RETAINED], "retained": [RETAINED], "total": 7}
    assert json.loads(shared.done("retained", "list", "--limit", "1", "--json")) == listed
    assert shared.done("retained", "clear", "home/a") == "cleared 7 retained messages\n"
    for filter_ in ("#", "a/#", "+/b", "a/+/b", "a/+"):
        assert "matches 7 retained messages" in shared.refused("retained", "clear", filter_)
        assert asked(shared) == ("retained", {"filter": filter_, "everywhere": False, "limit": 1})
    with service({"retained": {"retained": [], "total": 0}}) as other:
        assert other.done("retained", "clear", "x/#") == "no retained message matches x/#\n"
    assert shared.done("retained", "clear", "#", "--force") == "cleared 7 retained messages\n"
    assert asked(shared)[0] == "clear_retained" and asked(shared)[1]["filter"] == "#"


def test_clients_are_listed_and_disconnected(shared: Commands) -> None:
    table = shared.done("mqtt", "clients").splitlines()
    assert table[1].split()[:5] == ["thermo", "yes", "mqtt_gateway-0", "127.0.0.1:4000", "5"] and len(table) == 2
    assert "away" in shared.done("mqtt", "clients", "--all")
    rows = [{**SESSION, "waiting": 3}]
    assert json.loads(shared.done("mqtt", "clients", "--json")) == {"items": rows, "clients": rows, "total": 1}
    assert shared.done("mqtt", "disconnect", "thermo") == "disconnected thermo\n"
    assert asked(shared)[0] == "disconnect" and asked(shared)[1]["client"] == "thermo"


def test_a_client_has_one_name_for_all_commands() -> None:
    def session(name: str, connected: bool = True) -> dict[str, Any]:
        return {**SESSION, "client": name, "connected": connected}

    sessions = [session("~al/one"), session("~al/two"), session("~bo/two"), session("two"), session("~al/away", False)]
    rows = [{**ROW, "id": f"mqtt.{row['client']}".replace("/", "%2F"), "client": row["client"]} for row in sessions]
    replies: Replies = {
        "sessions": {"sessions": sessions[:3] + sessions[4:]}, "subscriptions": {"subscriptions": rows},
        "subscription": ROW, "delete": {"count": 1}, "disconnect": {"count": 1},
    }  # fmt: skip
    with service(replies) as commands:
        for name in ("~al/one", "one"):
            assert commands.done("mqtt", "disconnect", name) == "disconnected ~al/one\n"
            assert asked(commands)[1]["client"] == "~al/one"
            assert commands.done("subscription", "remove", name, "--force") == "deleted mqtt.~al%2Fone\n"
        commands.done("subscription", "show", "away")
        assert asked(commands) == ("subscription", {"id": "mqtt.~al%2Faway", "by": ""})
        assert (
            "2 clients have this identifier: name one of them, or its user with --owner: ~al/two, ~bo/two"
            in commands.refused("mqtt", "disconnect", "two")
        )
        assert commands.done("subscription", "remove", "two", "--force") == "deleted mqtt.two\n"  # a name of its own
        assert commands.refused("mqtt", "disconnect", "away").startswith(
            "~al/away is away and has no connection: `enmasse subscription remove '~al/away' "
        )
        assert all(request != "disconnect" for request, _ in commands.seen[-2:])


def test_completion(shared: Commands) -> None:
    assert complete(f"enmasse subscription show --port-offset {shared.offset} mq") == ["plain,mqtt.thermo"]
    assert complete(f"enmasse mqtt disconnect --port-offset {shared.offset} ") == ["plain,thermo"]
    assert complete(f"enmasse mqtt disconnect --port-offset {free_offset()} ") == []


def test_refusals_and_strange_answers() -> None:
    none_there: Replies = {"sessions": {"sessions": []}, "subscriptions": {"subscriptions": []}}
    with service({"disconnect": {"count": 0}, **none_there}) as commands:
        commands.replies["subscription"] = ValueError("there is no subscription 'x'")
        assert commands.refused("subscription", "show", "x") == (
            "there is no subscription 'x' [subscription.name.unknown]\n"
        )
        assert "there is no such client" in commands.refused("mqtt", "disconnect", "x")
        commands.replies["disconnect"] = ValueError("client 'x' is not connected")
        assert commands.refused("mqtt", "disconnect", "x") == "client 'x' is not connected [mqtt.client.unknown]\n"
        commands.replies["retained"] = ValueError("the filter is empty")
        assert commands.refused("retained", "list", "x") == "the filter is empty [subscription.request.refused]\n"
        commands.replies["sessions"], commands.replies["subscriptions"] = "[]", "no JSON"
        for words in (("mqtt", "clients"), ("subscription", "list")):
            done = commands.run(*words)
            assert done.returncode == 4 and "unexpected answer" in done.stderr
        commands.replies.update(none_there)
        for words, none in ((("mqtt", "clients"), "no client is"), (("subscription", "list"), "there are no")):
            done = commands.run(*words)
            assert (done.returncode, done.stdout) == (0, "") and none in done.stderr


def test_nobody_answers() -> None:
    done = enmasse("retained", "list", "--port-offset", free_offset())
    assert done.returncode == 4 and "Is `enmasse up --port-offset" in done.stderr


@pytest.mark.parametrize("replies", [{}, {"subscriptions": {"subscriptions": []}}])
def test_without_sessions_or_an_answer_none_is_without_a_user(replies: Replies) -> None:
    with service(replies) as commands:
        assert number_without_user(commands.offset) == 0


def test_sessions_of_clients_without_a_user_are_counted() -> None:
    rows = [{**ROW, "client": name} for name in ("thermo", "away", "~alice/thermo", "~@one/thermo")]
    with service({"subscriptions": {"subscriptions": [*rows, {**ROW, "kind": "share", "client": ""}]}}) as commands:
        assert number_without_user(commands.offset) == 2
