"""Storage of an address space at one broker: its share is a limit to the byte, and costs nobody else anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.broker.app import keep_shares
from services.broker.core.errors import BrokerError
from services.broker.core.limits.space_storage import StorageShare
from services.broker.core.publisher import publish_moved
from services.broker.core.publishing.verdict import RELEASE, WAIT
from tests.broker.sansio import Core, encoded

BODY = b"x" * 900
SIZE = len(encoded(BODY, durable=True))


class Producer:
    """A link that sends: whether it has credit."""

    def __init__(self) -> None:
        self.credit = True

    def block(self) -> None:
        self.credit = False

    def unblock(self) -> None:
        self.credit = True

    def closed(self, condition: str, description: str) -> None:
        raise AssertionError(description)


class Spaces(Core):
    """Two queues of the space one, one of the space two, one of the default space."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.queues = {name: self.queue(name) for name in ("!!one/a", "!!one/b", "!!two/a", "a")}
        self.producers = {name: Producer() for name in self.queues}
        for name, producer in self.producers.items():
            self.broker.catalogue.addresses[name].producers[producer] = None

    def share(self, share: int, *, refused: int = 0) -> None:
        self.broker.catalogue.share_storage({"one": StorageShare(share, 10_000, refused)})

    def put(self, to: str) -> Any:
        verdict = self.send(BODY, to, durable=True)
        self.commit()
        return verdict

    @property
    def looked(self) -> dict[str, tuple[int, int, int, bool]]:
        return self.broker.ledger.spaces.looked()


def test_a_share_is_a_limit_to_the_byte_over_all_addresses_of_the_space(tmp_path: Path) -> None:
    core = Spaces(tmp_path)
    core.share(4 * SIZE)
    for name in ("!!one/a", "!!one/b", "!!one/a", "!!one/b"):
        assert core.put(name) is WAIT
    assert core.put("!!one/a") is RELEASE, "another broker may have room to spare"
    assert not core.producers["!!one/a"].credit, "and its producers wait"
    assert core.looked["one"] == (4 * SIZE, SIZE, 4 * SIZE, True)
    assert core.looked["one"] == (4 * SIZE, 0, 4 * SIZE, True), "it is reported once"
    core.share(5 * SIZE)
    core.share(6 * SIZE)
    assert core.producers["!!one/a"].credit
    assert core.put("!!one/a") is WAIT and core.put("!!one/b") is WAIT
    core.share(6 * SIZE, refused=1)
    with pytest.raises(
        BrokerError, match="the 10000 bytes of storage that the plan of the space allows are used: receive or"
    ) as it:
        core.put("!!one/b")
    assert it.value.condition == "amqp:resource-limit-exceeded"
    for name in ("!!two/a", "a"):
        for _ in range(20):
            assert core.put(name) is WAIT
    assert core.producers["!!two/a"].credit and core.producers["a"].credit


def test_only_messages_that_fit_nowhere_are_refused(tmp_path: Path) -> None:
    """Another broker has room for a smaller one: it is asked for."""
    core = Spaces(tmp_path)
    core.share(SIZE // 2, refused=SIZE + 1)
    assert core.put("!!one/a") is RELEASE
    core.share(SIZE // 2, refused=SIZE)
    with pytest.raises(BrokerError):
        core.put("!!one/b")


def test_a_message_larger_than_the_storage_of_the_space_is_refused_at_once(tmp_path: Path) -> None:
    """Nobody waits for room that never comes, also with the policy BLOCK."""
    core = Spaces(tmp_path)
    core.share(0)
    for policy in ("FAIL", "BLOCK"):
        core.broker.catalogue.put_settings("!!one/#", {"addressFullMessagePolicy": policy})
        with pytest.raises(BrokerError, match="are more than the 10000 bytes of storage that the plan of the space"):
            core.send(b"x" * 10_001, "!!one/a", durable=True)
    assert core.producers["!!one/a"].credit and core.looked["one"][1] == 0


def test_what_an_administrator_moves_or_restores_is_taken_beyond_the_share(tmp_path: Path) -> None:
    """A restored space is new: its shares are nothing until its brokers have asked for more."""
    core = Spaces(tmp_path)
    core.share(0, refused=1)
    for policy in ("FAIL", "BLOCK"):
        core.broker.catalogue.put_settings("!!one/#", {"addressFullMessagePolicy": policy})
        route = core.broker.catalogue.route("!!one/a", None)
        assert route is not None
        payload = encoded(BODY, durable=True)
        assert publish_moved(core.broker, route, payload, core, 1, policy.encode()) is WAIT
        core.commit()
    assert core.looked["one"][0] == 2 * SIZE


def test_with_the_policy_block_producers_wait_and_nothing_is_refused(tmp_path: Path) -> None:
    core = Spaces(tmp_path)
    core.broker.catalogue.put_settings("!!one/#", {"addressFullMessagePolicy": "BLOCK"})
    core.share(2 * SIZE, refused=1)
    assert [core.put("!!one/a") for _ in range(3)] == [WAIT, WAIT, RELEASE]
    assert not core.producers["!!one/a"].credit and core.producers["!!one/b"].credit
    core.share(9 * SIZE, refused=1)
    assert core.producers["!!one/a"].credit


def test_a_smaller_share_drops_nothing_and_messages_that_leave_make_room(tmp_path: Path) -> None:
    core = Spaces(tmp_path)
    core.share(4 * SIZE)
    for _ in range(4):
        core.put("!!one/a")
    core.share(SIZE, refused=1)
    with pytest.raises(BrokerError):
        core.put("!!one/b")
    assert core.queues["!!one/a"].count == 4
    core.share(4 * SIZE, refused=1)
    core.ask(core.queues["!!one/a"], "removeMessages", "")
    assert core.looked["one"][0] == 0
    assert core.put("!!one/b") is WAIT


def test_without_a_share_there_is_no_limit_and_what_was_stored_is_counted_at_the_start(tmp_path: Path) -> None:
    core = Spaces(tmp_path)
    for _ in range(30):
        assert core.put("!!one/a") is WAIT
    core.restart()
    assert core.looked["one"][0] == 30 * SIZE
    core.share(SIZE)
    assert core.put("!!one/a") is RELEASE
    core.broker.catalogue.share_storage({})
    assert core.put("!!one/a") is WAIT


def test_a_share_holds_after_a_restart_until_the_broker_is_told_another_one(tmp_path: Path) -> None:
    core = Spaces(tmp_path)
    keep_shares(core.broker, tmp_path)
    core.share(SIZE, refused=1)
    assert core.put("!!one/a") is WAIT
    core.restart()
    keep_shares(core.broker, tmp_path)
    assert core.put("!!one/a") is RELEASE, "others may have room meanwhile"
    core.broker.catalogue.share_storage({})
    core.restart()
    keep_shares(core.broker, tmp_path)
    assert core.put("!!one/a") is WAIT


def test_messages_that_came_together_do_not_pass_the_share_together(tmp_path: Path) -> None:
    core = Spaces(tmp_path)
    core.share(10 * SIZE)
    owner = core.broker.catalogue.addresses["!!one/a"]
    assert core.broker.ledger.has_room(owner, 10, 10 * SIZE)
    assert not core.broker.ledger.has_room(owner, 11, 11 * SIZE)
