"""Wills of users: published only if the user may send there at that moment."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from proton import Delivery

from enmasse.identity import authors
from enmasse.identity.authors import Author
from enmasse.identity.login import Login
from enmasse.identity.permissions import Permissions
from enmasse.identity.principal import Principal
from enmasse.model.feeds import GrantedUser
from enmasse.model.users import Permission
from enmasse.stores import SqliteSettings
from enmasse.testing import wait_for
from tests.mqtt_lwt.house import QUEUE, House
from tests.system.users import allow


def entry(*addresses: str, groups: tuple[str, ...] = ()) -> dict[str, Any]:
    """A user that may send there and proves its identity elsewhere."""
    return {"groups": list(groups), "permissions": [allow(*addresses, operations=["send"])] if addresses else []}


STAFF = {"@staff": {"permissions": [allow(QUEUE, operations=["send"])]}}
USERS = {"alice": entry(QUEUE), "bob": entry(groups=("staff",)), **STAFF}
SENDS = Permission(effect="allow", operations=("send",), addresses=("q",))


@pytest.mark.parametrize(
    ("author", "address", "refusal"),
    [
        (Author("alice"), "q", ""),
        (Author("alice"), "other", "user alice may not send to other"),
        (Author("alice", ("none",)), "q", ""),  # the entry counts
        (Author("bob"), "q", "there is no user bob"),
        (Author("bob", ("staff",)), "q", ""),
        (Author("bob", ()), "q", "user bob may not send to q"),
        (Author("@staff"), "q", "there is no user @staff"),
        (Author(), "q", "there is no user anonymous"),
    ],
)
def test_authors(author: Author, address: str, refusal: str) -> None:
    users = {"alice": GrantedUser(permissions=(SENDS,)), "@staff": GrantedUser(permissions=(SENDS,))}
    assert authors.refusal(Permissions(users), author, address) == refusal
    assert authors.refusal(Permissions({}, anonymous=True), author, address) == ""


def test_the_author_of_a_login() -> None:
    alice = Principal("alice", ("staff",))
    assert authors.of_login(Login(alice, "1")) == authors.of_login(Login(alice, "")) == Author("alice")
    assert authors.of_login(Login(alice, None, 99)) == Author("alice", ("staff",))
    assert authors.of_login(Login(alice, certified=True)) == Author("alice")
    assert authors.of_login(Login(Principal("anonymous"))) == Author()


class Users:
    """users.json of a house, whose service runs."""

    def __init__(self, house: House) -> None:
        self.house = house
        self._number = 0

    def write(self, entries: dict[str, Any], *anonymous: str) -> None:
        """Put these users in force. `anonymous`: addresses to which clients without a user may send."""
        self._number += 1
        probe = f"probe-{self._number}"
        self.house.configserv.write("users.json", {**entries, "anonymous": entry(probe, *anonymous)})
        client = self.house.client("probe")
        wait_for("there are users", lambda: client.ask("will", "x", "none") == Delivery.REJECTED)
        wait_for("they are in force", lambda: client.ask("will", "x", probe) == Delivery.ACCEPTED)
        client.insist("will-clear", "x")
        client.detach()


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Users]:
    folder: Path = tmp_path_factory.mktemp("house")
    house = House(folder, SqliteSettings(str(folder / "wills.sqlite")))
    try:
        house.service.start()
        yield Users(house)
    finally:
        house.close()


@pytest.fixture
def house(users: Users) -> House:
    users.write(USERS)
    return users.house


def dropped(house: House) -> float:
    return house.service.metric("lwt_not_allowed_total")


def test_without_permission_a_will_is_dropped(house: House) -> None:
    gateway, before = house.gateway(), dropped(house)
    stated: list[tuple[str, dict[str, Any]]] = [
        ("may", {"x_opt_user": "alice"}),
        ("group", {"x_opt_user": "bob"}),
        ("token", {"x_opt_user": "carol", "x_opt_user_groups": ["staff"]}),
        ("removed", {"x_opt_user": "carol"}),
        ("of-no-group", {"x_opt_user": "carol", "x_opt_user_groups": []}),
        ("without-user", {}),
    ]
    for client, author in stated:
        gateway.will(client, body=client.encode(), **author)
        gateway.insist("will-publish", client)
    gateway.will("elsewhere", "telemetry/x", x_opt_user="alice")
    gateway.insist("will-publish", "elsewhere")
    assert sorted(house.published()) == [b"group", b"may", b"token"]
    gateway.detach()
    assert dropped(house) - before == 4
    log = house.service.log.read_text()
    for reason in ("there is no user carol", "user alice may not send to telemetry/x"):
        assert reason in log
    assert "audit.will.dropped" in log


@pytest.mark.parametrize("killed", [False, True])
def test_a_right_that_is_taken_away_while_the_client_is_away(users: Users, house: House, killed: bool) -> None:
    """The gateway is lost, and the service killed: nobody tells it anything more of the clients."""
    gateway, before = house.gateway(), dropped(house)
    gateway.will("removed", body=b"removed", x_opt_user="alice", x_opt_will_delay=10)
    gateway.will("stays", body=b"stays", x_opt_user="bob", x_opt_will_delay=10)
    gateway.vanish()
    users.write({**USERS, "alice": entry()})
    if killed:
        house.service.kill()
        house.service.start()
    assert house.published() == [b"stays"]
    assert dropped(house) - (0 if killed else before) == 1


@pytest.mark.parametrize("allowed", [False, True])
def test_wills_that_an_earlier_version_has_stored_are_the_anonymous_users(
    users: Users, house: House, allowed: bool
) -> None:
    gateway = house.gateway()
    gateway.will("~alice/device", body=b"old", x_opt_user="alice")
    gateway.vanish()
    users.write(USERS, *([QUEUE] if allowed else []))
    house.service.stop()
    _forget_authors(house)
    house.service.start()
    assert house.published() == ([b"old"] if allowed else [])


def _forget_authors(house: House) -> None:
    """Leave of the stored wills what an earlier version has written: neither users nor groups."""
    with sqlite3.connect(house.configserv.config.parent / "wills.sqlite") as connection:
        rows = connection.execute("SELECT key, value FROM entries WHERE tab = 'wills'").fetchall()
        assert rows
        for key, value in rows:
            earlier = msgspec.msgpack.encode(msgspec.msgpack.decode(value)[:5])
            connection.execute("UPDATE entries SET value = ? WHERE tab = 'wills' AND key = ?", (earlier, key))
    connection.close()


def test_amqp_clients_are_told(users: Users, house: House) -> None:
    """Here the router has no users: its clients are the anonymous user, whatever they state."""
    client = house.client()
    assert client.ask("will", None, QUEUE, b"bye", x_opt_user="alice") == Delivery.REJECTED
    users.write(USERS, QUEUE)
    assert client.ask("will", None, QUEUE, b"bye") == Delivery.ACCEPTED
    users.write(USERS)
    client.detach("my:failure")
    assert house.published() == []
