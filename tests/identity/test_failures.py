"""Failed logins and the wait that follows."""

from __future__ import annotations

import pytest

from enmasse.identity.proofs import failures
from enmasse.identity.proofs.failures import FORGOTTEN, FREE, FREE_ADDRESS, LONGEST, Failures
from enmasse.network.host import counted_host
from tests.kit.clock import Clock


def test_waits_double_up_to_the_longest_and_are_forgotten() -> None:
    clock = Clock()
    known = Failures(clock)
    waits = []
    for _ in range(FREE + 9):
        known.failed("alice", "192.0.2.1")
        waits.append(known.wait("alice", "192.0.2.1"))
    assert waits == [0.0] * (FREE - 1) + [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, 60.0]
    clock.now += LONGEST
    assert known.wait("alice", "192.0.2.1") == 0.0
    clock.now += FORGOTTEN
    known.failed("alice", "192.0.2.1")
    assert known.wait("alice", "192.0.2.1") == 0.0


def test_a_user_is_not_locked_out_from_elsewhere() -> None:
    known = Failures(Clock())
    for number in range(1000):
        known.failed("alice", f"192.0.2.{number % 200}")
    assert known.wait("alice", "198.51.100.1") == 0.0


def test_failures_of_many_users_count_for_their_address_but_not_for_users_who_have_logged_in_there() -> None:
    known = Failures(Clock())
    known.succeeded("alice", "192.0.2.1")
    for number in range(FREE_ADDRESS):
        known.failed(f"user{number}", "192.0.2.1")
    assert known.wait("bob", "192.0.2.1") > 0
    assert known.wait("alice", "192.0.2.1") == 0.0


def test_a_success_forgets_the_failures_of_this_user() -> None:
    known = Failures(Clock())
    for _ in range(FREE):
        known.failed("alice", "192.0.2.1")
    known.succeeded("alice", "192.0.2.1")
    assert known.wait("alice", "192.0.2.1") == 0.0


def test_clients_that_state_no_user_wait_only_for_the_failures_of_their_address() -> None:
    known = Failures(Clock())
    for number in range(FREE_ADDRESS):
        assert known.wait("", "192.0.2.1") == 0.0
        known.failed(f"user{number}", "192.0.2.1")
    assert known.wait("", "192.0.2.1") > 0.0


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("host", "host"),
    ],
)
def test_addresses_count_by_their_network(address: str, expected: str) -> None:
    assert counted_host(address) == expected


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "MAX_KEYS", 10)
    known = Failures(Clock())
    for number in range(100):
        known.failed(f"user{number}" * 1000, f"192.0.2.{number}")
        known.succeeded(f"user{number}", f"192.0.2.{number}")
    assert len(known._failed) <= 10
    assert len(known._good) <= 10
