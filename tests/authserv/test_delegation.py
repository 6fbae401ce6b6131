"""The SASL delegation contract, asked by python-qpid-proton."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from proton import Array, Data, symbol

from enmasse.amqp.sasl.layer import PlainClient
from enmasse.identity.processes.relays import relayed_client, relayed_host_name
from enmasse.identity.processes.scram import ScramClient
from enmasse.identity.proofs.failures import Failures
from enmasse.logs import log
from enmasse.model.users import Permission, User
from services.authserv import authenticator
from tests.authserv.running import Running, ask, ask_engine, begun_scram, user
from tests.kit.clock import Clock
from tests.kit.waiting import wait_for

ALICE = user(
    "right",
    groups=("staff", "gone"),
    permissions=(Permission(effect="allow", operations=("send", "recv"), addresses=("orders", "own/${user}/#")),),
)
STAFF = User(
    permissions=(
        Permission(effect="allow", operations=("recv",), addresses=("news", "one/*", "half/#")),
        Permission(effect="deny", operations=("recv",), addresses=("half/secret",)),
    )
)

USERS = {"alice": ALICE, "@staff": STAFF}


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with Running() as running, pytest.MonkeyPatch.context() as patch:
        patch.setattr(authenticator, "DELAY", 0.0)
        running.users(USERS)
        yield running


def test_a_right_password_gets_the_identity(service: Running) -> None:
    answer = ask(service.port, "alice", "right")
    assert (answer.opened, answer.mechanism, answer.outcome) == (True, "PLAIN", 0)
    identity = answer.properties[symbol("authenticated-identity")]
    assert identity == {"sub": "alice", "preferred_username": "alice"}
    assert {type(text) for pair in identity.items() for text in pair} == {str}
    groups = answer.properties[symbol("groups")]
    assert (type(groups), groups) == (list, ["staff", "gone"])
    assert symbol("address-authz") not in answer.properties
    assert {type(key) for key in answer.properties} == {symbol}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_proves_both_sides(mechanism: str, service: Running) -> None:
    answer = ask_engine(service.port, ScramClient("alice", "right", mechanism))
    assert answer.properties["authenticated-identity"]["sub"] == "alice"


@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("bob", "right"), ("@staff", "right")])
def test_a_wrong_password_and_an_unknown_user_are_refused_alike(name: str, password: str, service: Running) -> None:
    answer = ask(service.port, name, password)
    assert (answer.opened, answer.outcome) == (False, 1)
    assert "amqp:unauthorized-access" in answer.error
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        answer = ask_engine(service.port, ScramClient(name, password, mechanism))
        assert (answer.opened, answer.error) == (
            False,
            f"amqp:unauthorized-access: authentication by {mechanism} failed: wrong credentials",
        )


def test_permissions_if_they_are_desired(service: Running) -> None:
    answer = ask(service.port, "alice", "right", authz=True)
    assert answer.capabilities == ["ADDRESS-AUTHZ"]
    authz = answer.properties[symbol("address-authz")]
    assert {type(key) for key in authz} == {str}
    assert all(isinstance(value, Array) and value.type == Data.STRING for value in authz.values())
    assert {key: list(value.elements) for key, value in authz.items()} == {
        "orders": ["send", "recv"],
        "own/alice": ["send", "recv"],
        "own/alice/*": ["send", "recv"],
        "own/alice.*": ["send", "recv"],
        "news": ["recv"],
    }


def test_an_anonymous_client_needs_the_entry(service: Running) -> None:
    assert not ask(service.port, mechanism="ANONYMOUS").opened
    service.users({**USERS, "anonymous": User()})
    try:
        answer = ask(service.port, mechanism="ANONYMOUS", authz=True)
        assert answer.properties[symbol("authenticated-identity")]["sub"] == "anonymous"
        assert answer.properties[symbol("address-authz")] == {}
        assert not ask(service.port, "anonymous", "anonymous", "PLAIN").opened
    finally:
        service.users(USERS)


def test_without_users_everybody_is_anonymous() -> None:
    with Running() as running:
        assert ask(running.port, "alice", "right").outcome != 0  # there are no users yet
        running.users()
        for mechanism in ("ANONYMOUS", "PLAIN"):
            answer = ask(running.port, "alice", "anything", mechanism)
            assert answer.properties[symbol("authenticated-identity")]["sub"] == "anonymous"
        running.users({})
        assert not ask(running.port, "alice", "anything").opened


def test_a_changed_password_and_a_removed_user_take_effect_at_once() -> None:
    with Running(relays=()) as running:
        running.users({"alice": user("old")})
        assert ask(running.port, "alice", "old").opened
        running.users({"alice": user("new")})
        assert not ask(running.port, "alice", "old").opened
        assert ask(running.port, "alice", "new").opened
        running.users({})
        assert not ask(running.port, "alice", "new").opened


def test_mechanisms_that_are_not_configured_are_refused() -> None:
    with Running(mechanisms=("SCRAM-SHA-512",)) as running:
        running.users({"alice": ALICE})
        assert not ask(running.port, "alice", "right", "PLAIN").opened
        assert ask_engine(running.port, ScramClient("alice", "right", "SCRAM-SHA-512")).opened


def stop_clock(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no wait end: the first takes a second, which a loaded machine takes for an attempt."""
    monkeypatch.setattr(running.service.logins, "_failures", Failures(Clock()))


def test_an_address_with_many_failures_has_to_wait(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The audit log tells the wait from a wrong password; the answer does not."""
    audit = tmp_path / "audit.log"
    monkeypatch.setattr(log, "_audit_file", str(audit))
    monkeypatch.setattr(authenticator, "DELAY", 0.0)
    with Running(relays=()) as running:
        stop_clock(running, monkeypatch)
        running.users({"alice": ALICE, "bob": user("bob's")})
        for _ in range(8):
            assert not ask(running.port, "alice", "wrong").opened
        waits = ask(running.port, "alice", "right")
        assert not waits.opened and waits.error == ask(running.port, "nobody", "right").error
        assert not ask_engine(running.port, ScramClient("alice", "right")).opened
        assert ask(running.port, "bob", "bob's").opened
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    outcomes = [(line["what"], line["outcome"]) for line in lines if line["who"] == "alice"]
    assert outcomes == [
        ("login by PLAIN", "refused"), ("login by PLAIN", "waiting"), ("login by SCRAM-SHA-256", "waiting"),
    ]  # fmt: skip


def test_a_router_that_states_no_address_locks_nobody_out(service: Running) -> None:
    for _ in range(8):
        assert not ask(service.port, "alice", "wrong").opened
    assert ask(service.port, "alice", "right").opened


def test_a_user_without_hashes_has_no_password(service: Running) -> None:
    service.users({**USERS, "empty": User(), "half": User(scram=ALICE.scram)})
    for name, password in (("empty", ""), ("empty", "x"), ("half", "right"), ("half", ""), ("@staff", "")):
        assert not ask(service.port, name, password).opened
        assert not ask_engine(service.port, PlainClient(name, password)).opened
    assert not ask_engine(service.port, ScramClient("empty", "x")).opened
    service.users(USERS)


def test_the_address_that_a_router_states_counts(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_clock(service, monkeypatch)

    def attempt(password: str, address: str) -> bool:
        return ask_engine(service.port, PlainClient("alice", password), f"default?client={address}").opened

    for _ in range(8):
        assert not attempt("wrong", "192.0.2.7")
    assert not attempt("right", "192.0.2.7")
    assert attempt("right", "192.0.2.8")


def test_an_address_that_is_stated_without_proof_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    proven = relayed_host_name("default", "192.0.2.7", "key")
    stolen = proven.replace("192.0.2.7", "192.0.2.8")
    others = [relayed_host_name("default", "192.0.2.7", key) for key in ("", "another key")]
    with Running(relay_key="key") as running:
        stop_clock(running, monkeypatch)
        running.users(USERS)

        def attempt(password: str, host_name: str) -> bool:
            return ask_engine(running.port, PlainClient("alice", password), host_name).opened

        with ThreadPoolExecutor() as pool:
            wrong = [pool.submit(attempt, "wrong", each) for each in [*others, stolen] * 8]
        assert not any(each.result() for each in wrong)
        assert all(attempt("right", relayed_host_name("default", f"192.0.2.{n}", "key")) for n in (7, 8))
        for _ in range(8):
            assert not attempt("wrong", proven)
        assert not attempt("right", proven)


@pytest.mark.parametrize("stated", ["", "alice", "192.0.2.7\n{}", "999.1.1.1", "192.0.2.7:1", "x" * 3000])
def test_only_addresses_are_addresses(stated: str) -> None:
    for key in ("", "key"):
        assert relayed_client(relayed_host_name("default", stated, key), key) is None


def test_logins_that_succeed_are_not_limited_where_the_address_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticator, "AT_ONCE", 2)
    with Running() as running:
        running.users(USERS)
        assert all(ask_engine(running.port, PlainClient("alice", "right")).opened for _ in range(5))


def test_attempts_at_once_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticator, "DELAY", 0.0)
    monkeypatch.setattr(authenticator, "AT_ONCE", 2)
    with Running(relays=()) as running:
        running.users({"alice": ALICE})
        waiting = [begun_scram(running.port) for _ in range(2)]
        assert not ask(running.port, "alice", "right").opened
        waiting.pop().close()
        wait_for(lambda: ask(running.port, "alice", "right").opened, "one attempt has ended")
        waiting.pop().close()
        wait_for(lambda: not running.service.logins._under_way, "no attempt is under way")


def test_a_user_who_is_removed_before_the_open_may_do_nothing(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dispatch lets a client in after the outcome, and everything is allowed without the property."""
    monkeypatch.setattr(service.service.logins, "principal", lambda _: None)
    answer = ask_engine(service.port, ScramClient("alice", "right"))
    assert answer.properties["address-authz"] == {}
    assert "authenticated-identity" not in answer.properties
