"""Refusals of clients are logged once at once, then counted, in bounded memory and a bounded number of lines."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse import metrics
from enmasse.identity.login import Certified
from enmasse.identity.processes.refusals import note_handshake
from enmasse.identity.proofs.stated_names import user_in
from enmasse.identity.refused import MAX_CONDITIONS, MOST, MOST_FAILED, MOST_OF_A_PEER, OMITTED, Refusals
from enmasse.identity.user_directory import UserDirectory
from enmasse.model.feeds import GrantedUser, PermissionChanges, ReachedSpace
from enmasse.network.tls_failures import NotAgreed
from tests.kit.logs import logged


class World:
    """Refusals with a clock of the test's own, and what was logged and shown of them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.shown: list[dict[str, Any]] = []
        self.refusals = Refusals(lambda: self.now, self.shown.append)

    def note(self, address: str = "a", peer: str = "10.0.0.1:999", **more: Any) -> None:
        facts: dict[str, Any] = {"condition": "amqp:not-found", "reason": "no such address", "client": "c1"}
        facts |= {"user": "alice"} | more
        self.refusals.note(facts.pop("what", "send"), peer=peer, address=address, **facts)

    def second(self, seconds: float = 1.0) -> None:  # limit: of the clock inside
        self.now += seconds
        self.refusals.tick()

    def total(self) -> int:
        return sum(each["count"] for each in self.shown)


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    with logged() as stream:
        yield stream


def test_the_first_of_a_kind_is_logged_at_once_and_the_others_are_counted_a_minute_later(lines: io.StringIO) -> None:
    world = World()
    for n in range(5):
        world.note(peer=f"10.0.0.1:{n}")  # the port does not matter
    world.note(address="b")
    assert [(each["address"], each["count"]) for each in world.shown] == [("a", 1), ("b", 1)]
    world.second(61)
    assert [(each["address"], each["count"], each["peer"]) for each in world.shown[2:]] == [("a", 4, "10.0.0.1:4")]
    world.second(61)
    assert len(world.shown) == 3
    found = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [(each["event"], each["level"], each["count"]) for each in found] == [
        ("client.refused", "info", count) for count in (1, 1, 4)
    ]
    assert {key: found[0][key] for key in ("what", "peer", "user", "client", "address", "condition", "reason")} == {
        "what": "send", "peer": "10.0.0.1:0", "user": "alice", "client": "c1", "address": "a",
        "condition": "amqp:not-found", "reason": "no such address",
    }  # fmt: skip


def test_two_reasons_of_a_condition_have_lines_of_their_own_and_numbers_make_no_other_reason() -> None:
    world = World()
    for n in range(5):
        world.note(condition="not authorized", reason="no permission to publish to a")
        world.note(condition="not authorized", reason=f"a message of {n} bytes is too large")
    assert [(each["reason"], each["count"]) for each in world.shown] == [
        ("no permission to publish to a", 1),
        ("a message of 0 bytes is too large", 1),
    ]
    world.second(61)
    assert [each["count"] for each in world.shown[2:]] == [4, 4]


def test_failed_handshakes_have_host_and_port_and_equal_ones_are_counted() -> None:
    world = World()
    for port in range(1000):
        note_handshake(world.refusals, None, f"10.0.0.1:{port}", NotAgreed("it left"))
    note_handshake(world.refusals, None, "10.0.0.2:1", ConnectionResetError("a probe"))
    assert [(each["what"], each["condition"], each["peer"]) for each in world.shown] == [
        ("connect", "tls: not agreed", "10.0.0.1:0")
    ]
    world.second(61)
    assert [each["count"] for each in world.shown] == [1, 999]


def test_a_failed_login_names_a_user_that_there_is_with_the_next_tick_and_no_other_name() -> None:
    world = World()
    users = UserDirectory()
    users.take(PermissionChanges(users={"alice": GrantedUser()}, spaces={"one": ReachedSpace()},
                                 in_spaces={"!!one/bob": GrantedUser()}))  # fmt: skip
    world.refusals.tried = users.tried
    facts: dict[str, Any] = {"condition": "login refused", "peer": "10.0.0.1:999"}
    for stated, space in (("alice", "default"), ("hunter2", "default"), ("bob@one", "default"), ("bob", "one")):
        world.refusals.note_failed("connect", stated, space=space, **facts)
    assert not world.shown, "the time of the answer does not tell who is known"
    world.second()
    assert [(each["user"], each.get("space"), each["peer"], each.get("proved")) for each in world.shown] == [
        ("alice", None, "10.0.0.1:999", False),
        ("", None, "10.0.0.1:999", False),
        ("!!one/bob", "one", "10.0.0.1:999", False),
    ]
    assert "hunter2" not in json.dumps(world.shown) and world.refusals.counts.total() == 4
    for number in range(2 * MOST_FAILED):
        world.refusals.note_failed("connect", "alice", **facts | {"peer": f"10.0.0.2:{number}"})
    world.second()
    assert sum(world.refusals.counts.values()) == 4 + 2 * MOST_FAILED


@pytest.mark.parametrize(
    ("mechanism", "first", "user"),
    [
        ("PLAIN", b"\0alice\0secret", "alice"),
        ("PLAIN", b"as\0alice\0secret", "alice"),
        ("PLAIN", b"alice", ""),
        ("SCRAM-SHA-256", b"n,,n=al=2Ci=3Dce,r=abc", "al,i=ce"),
        ("SCRAM-SHA-512", b"\xff", ""),
        ("XOAUTH2", b"user=alice", ""),
        ("PLAIN", None, ""),
    ],
)
def test_the_user_that_a_mechanism_states_first(mechanism: str, first: bytes | None, user: str) -> None:
    assert user_in(mechanism, first) == user


def test_a_refused_client_with_a_certificate_has_the_user_that_this_names() -> None:
    world = World()
    facts: dict[str, Any] = {"condition": "not allowed", "peer": "10.0.0.1:999"}
    expired = Certified("", "the certificate has expired")
    for certificate, stated in ((Certified("bob"), ""), (Certified("eve"), "eve"), (expired, "")):
        world.refusals.note_failed("connect", stated, certificate=certificate, space="one", **facts)
    world.refusals.note_failed("connect", "hunter2", certificate=Certified("bob"), **facts)
    world.second()
    assert [(each["user"], each.get("proved")) for each in world.shown] == [
        ("!!one/bob", None), ("!!one/eve", None), ("", None), ("", False),
    ]  # fmt: skip


def test_a_peer_that_tries_many_addresses_gets_a_bounded_number_of_lines() -> None:
    world = World()
    for n in range(1000):
        world.note(address=f"a{n}")
    world.note(peer="10.0.0.2:1")
    assert len(world.shown) == MOST_OF_A_PEER + 1
    world.second(61)
    omitted = {"id": "client.refusals.omitted", "reason": OMITTED, "count": 1000 - MOST_OF_A_PEER}
    assert world.shown[-1] == omitted


def test_many_peers_get_a_bounded_number_of_lines_together() -> None:
    world = World()
    for n in range(3 * MOST):
        world.note(peer=f"10.0.{n // 250}.{n % 250}:1")
    assert len(world.shown) == MOST


@given(st.lists(st.one_of(st.integers(0, 30), st.none()), max_size=200))
def test_none_is_lost_whatever_comes_when(steps: list[int | None]) -> None:
    world = World()
    sent = 0
    for step in steps:
        if step is None:
            world.second(13)
        else:
            world.note(address=str(step))
            sent += 1
    for _ in range(20):
        world.second(13)
    assert world.total() == sent
    assert world.refusals.counts.total() == sent


def test_texts_of_clients_are_bounded_and_so_are_the_labels_of_the_metric() -> None:
    world = World()
    world.note("a" * 5000, condition="x" * 5000, reason="y" * 5000, client="z" * 5000, user="u" * 5000)
    assert max(len(str(value)) for value in world.shown[0].values()) <= 200
    for n in range(10 * MAX_CONDITIONS):
        world.note(condition=f"app:{n}")
    world.note(condition='evil"}\n')
    assert len(world.refusals.counts) <= MAX_CONDITIONS + 1
    text = metrics.text(world.refusals.families()).decode()
    assert 'enmasse_refusals_total{condition="other",what="send"}' in text
    assert "evil" not in text
