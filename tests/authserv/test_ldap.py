"""Passwords that a directory checks, a real slapd: which logins succeed, what hostile names reach, and the effects of a
directory that is slow, away or another one."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enmasse.amqp.sasl.layer import PlainClient
from enmasse.identity.login import SPACES
from enmasse.model import feeds
from enmasse.model.feeds import ReachedSpace
from enmasse.model.issuers import Issuer, Ldap
from enmasse.model.users import User
from services.authserv import authenticator
from services.authserv.ldap import ldap_source
from tests.authserv.running import Answer, Running, ask, ask_engine, user
from tests.authserv.slapd import GROUPS, PEOPLE, READER, SECRET, Slapd
from tests.certificates import Authority
from tests.kit.waiting import wait_for

REFUSED, TEMPORARY = 1, 4
"""Outcomes of SASL (AMQP 1.0, 5.3.3.6)."""
ODD = "o'(b)*\\é=,+ #x"
"""A name with all that means something in a filter or in the name of an entry."""


@pytest.fixture(scope="module")
def slapd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slapd]:
    directory = Slapd(tmp_path_factory.mktemp("ldap") / "slapd")
    alice = directory.user("alice", "alice's")
    directory.user("carol", "carol's")
    directory.user("locked", None)
    odd = directory.user(ODD, "odd's")
    directory.group("staff", [alice, odd])
    directory.group("ops", [alice])
    directory.group("!!one", [alice])  # no group can be called so
    yield directory
    directory.kill()


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    with Running() as running, pytest.MonkeyPatch.context() as patch:
        patch.setattr(authenticator, "DELAY", 0.01)
        patch.setattr(ldap_source, "RETRY", 0.1)
        yield running


def entry(slapd: Slapd, url: str = "", **more: Any) -> Issuer:
    ldap = {"url": url or slapd.tls_url, "users": PEOPLE, "groups": GROUPS, "bind_dn": READER, "bind_password": SECRET}
    own = {key: more.pop(key) for key in ("ca", "space") if key in more}
    return Issuer(ldap=Ldap(**{**ldap, **more}), **{"ca": slapd.ca, **own})


def use(running: Running, *issuers: Issuer) -> None:
    """Let the service have nothing but these, of which it knows nothing yet."""
    running.users({})
    running.users({"bob": user("bob's"), "cert": User(groups=("devices",))}, *issuers)
    wait_for(lambda: all("not been reached yet" not in each for each in problems(running)), "it was looked for")


@pytest.fixture
def running(shared: Running, slapd: Slapd) -> Running:
    use(shared, entry(slapd))
    assert problems(shared) == []
    return shared


def problems(running: Running) -> list[str]:
    return running.service.logins.issuers.problems()


def names(answer: Answer) -> tuple[str, list[str]]:
    return answer.properties["authenticated-identity"]["sub"], sorted(answer.properties["groups"])


@pytest.mark.parametrize("how", ["ldaps", "starttls", "loopback"])
def test_user_and_groups_are_those_of_the_directory(how: str, shared: Running, slapd: Slapd) -> None:
    use(shared, entry(slapd, slapd.tls_url if how == "ldaps" else slapd.url, starttls=how == "starttls", session=600))
    began = time.time()
    answer = ask(shared.port, "alice", "alice's")
    assert names(answer) == ("alice", ["ops", "staff"])
    assert answer.properties["exp"] - began > 600 * 0.9 - 2 and answer.properties["exp"] <= time.time() + 600
    assert names(ask(shared.port, "carol", "carol's")) == ("carol", [])


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("alice", "wrong"), ("nobody", "alice's"), ("ALICE", "alice's"), ("alice", ""), ("locked", "x"), ("locked", ""),
        ("*", "alice's"), ("al*", "alice's"), ("alice)(uid=*", "alice's"), ("*)(|(uid=*", "alice's"), ("\\2a", "x"),
        ("alice\\00", "alice's"), ("alice)(objectClass=*))(&(uid=alice", "alice's"), ("", "alice's"),
        (f"uid=alice,{PEOPLE}", "alice's"), ("alice", "x" * 2000),
        ("cert", "x"), ("anonymous", "x"), ("@staff", "x"), ("ali  ce", "x"), ("alice", "*"),
    ],
)  # fmt: skip
def test_what_is_no_user_with_its_password_is_refused(name: str, password: str, running: Running) -> None:
    answer = ask_engine(running.port, PlainClient(name, password))
    assert not answer.opened
    assert problems(running) == []


def test_a_name_with_characters_of_filters_is_a_name(running: Running) -> None:
    assert names(ask(running.port, ODD, "odd's")) == (ODD, ["staff"])


def test_a_name_in_users_json_is_never_asked_for(running: Running, slapd: Slapd) -> None:
    slapd.user("bob", "other")
    slapd.user("cert", "other")
    for name in ("bob", "cert"):
        assert ask(running.port, name, "other").outcome == REFUSED
    assert ask(running.port, "bob", "bob's").opened


def test_a_changed_password_and_a_removed_user_count_after_the_memory(
    running: Running, slapd: Slapd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ldap_source, "LIFETIME", 0.0)
    dn = slapd.user("dora", "old")
    assert ask(running.port, "dora", "old").opened
    slapd.change(dn, userPassword="new")
    assert ask(running.port, "dora", "old").outcome == REFUSED
    assert ask(running.port, "dora", "new").opened
    slapd.remove(dn)
    assert ask(running.port, "dora", "new").outcome == REFUSED


def test_a_filter_leaves_users_out(shared: Running, slapd: Slapd) -> None:
    use(shared, entry(slapd, user_filter="(!(sn=carol))"))
    assert ask(shared.port, "alice", "alice's").opened
    assert ask(shared.port, "carol", "carol's").outcome == REFUSED


def test_groups_of_names_by_memberuid(shared: Running, slapd: Slapd) -> None:
    slapd.add(f"cn=unix,{GROUPS}", ["posixGroup"], gidNumber=7, memberUid=["carol"])
    use(shared, entry(slapd, member_attribute="memberUid"))
    assert names(ask(shared.port, "carol", "carol's")) == ("carol", ["unix"])
    assert names(ask(shared.port, "alice", "alice's")) == ("alice", [])


def test_a_directory_that_is_away_costs_its_own_users_alone(running: Running, slapd: Slapd) -> None:
    assert ask(running.port, "alice", "alice's").opened
    slapd.kill()
    try:
        assert ask(running.port, "carol", "carol's").outcome == TEMPORARY
        assert ask(running.port, "nobody", "x").outcome == TEMPORARY
        assert ask(running.port, "alice", "alice's").opened  # remembered
        assert ask(running.port, "bob", "bob's").opened
        assert "directory: does not answer" in problems(running)[0]
    finally:
        slapd.start()
    wait_for(lambda: not problems(running), "it is back")
    assert ask(running.port, "carol", "carol's").opened


def test_a_directory_that_does_not_answer_costs_its_own_users_alone(running: Running, slapd: Slapd) -> None:
    slapd.pause()
    try:
        assert ask(running.port, "carol", "carol's").outcome == TEMPORARY
        asked = running.service.logins.issuers._sources["default"]["issuer-0"]
        assert isinstance(asked, ldap_source.LdapSource) and asked._away
        assert ask(running.port, "alice", "alice's").outcome == TEMPORARY  # at once: nobody asks
        assert ask(running.port, "bob", "bob's").opened
    finally:
        slapd.resume()
    wait_for(lambda: not problems(running), "it answers again")
    assert ask(running.port, "carol", "carol's").opened


def test_a_certificate_of_others_is_not_accepted(shared: Running, slapd: Slapd, tmp_path: Path) -> None:
    other = Authority(tmp_path / "ca").file.read_text()
    for one in (entry(slapd, ca=other), entry(slapd, slapd.url, starttls=True, ca=other), entry(slapd, ca=None)):
        use(shared, one)
        assert ask(shared.port, "alice", "alice's").outcome == TEMPORARY
        assert "certificate" in problems(shared)[0].lower()
        assert SECRET not in problems(shared)[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"users": "ou=nobody,dc=example,dc=com"}, "users: ou=nobody"),
        ({"groups": "ou=nothing,dc=example,dc=com"}, "groups: ou=nothing"),
        ({"bind_password": "hunter2"}, f"the bind of {READER}"),
        ({"bind_dn": None, "bind_password": None}, "users: "),
        ({"user_attribute": "sn", "users": PEOPLE}, "several entries"),
    ],
)
def test_what_is_wrong_in_an_entry_is_said(change: dict[str, Any], said: str, shared: Running, slapd: Slapd) -> None:
    if "user_attribute" in change:
        slapd.user("alice2", "x")
        slapd.change(f"uid=alice2,{PEOPLE}", sn="alice")
    use(shared, entry(slapd, **change))
    assert ask(shared.port, "alice", "alice's").outcome == TEMPORARY
    assert ask(shared.port, "bob", "bob's").opened
    if "user_attribute" not in change:  # that does not hold for others
        assert said in problems(shared)[0]
        assert "hunter2" not in problems(shared)[0]


def test_passwords_are_not_sent_to_servers_that_it_names(running: Running, slapd: Slapd) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as other:
        other.setblocking(False)
        ref = f"ldap://127.0.0.1:{other.getsockname()[1]}/uid=eve,{PEOPLE}"
        slapd.add(f"uid=eve,{PEOPLE}", ["referral", "extensibleObject"], uid="eve", ref=ref)
        assert ask(running.port, "eve", "eve's").outcome == REFUSED
        with pytest.raises(BlockingIOError):
            other.accept()


def test_users_are_those_of_one_address_space(shared: Running, slapd: Slapd) -> None:
    shared.users({})
    shared.replace(
        feeds.Users(
            users={"bob": user("bob's")},
            spaces={"one": ReachedSpace(), "two": ReachedSpace()},
            issuers={"fixed": entry(slapd, space="one")},
            issuers_in_spaces={"two": {"own": entry(slapd, user_filter="(uid=carol)")}},
        )
    )
    wait_for(lambda: not problems(shared), "both were reached")
    desired = (SPACES,)
    for name, password, space in (("alice@one", "alice's", "one"), ("carol@two", "carol's", "two")):
        answer = ask_engine(shared.port, PlainClient(name, password), desired=desired)
        assert (answer.opened, answer.properties["space"]) == (True, space)
    for name in ("alice", "alice@two", "bob@one"):
        assert not ask_engine(shared.port, PlainClient(name, "alice's"), desired=desired).opened
