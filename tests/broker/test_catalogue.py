"""Addresses and queues: what they cost, how levels follow their topic, messages without a taker."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.broker.core.errors import BrokerError
from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.limits.settings import AddressSettings
from services.broker.core.publishing.verdict import Verdict
from tests.broker.sansio import Core


@pytest.mark.parametrize("count", [50, 400])
def test_an_address_costs_work_for_one_address(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core(tmp_path)
    broker = core.broker
    names = [f"t/{n}" for n in range(count)]
    for name in names:
        broker.catalogue.create_address(name, frozenset({"MULTICAST"}))
        broker.catalogue.create_queue(f"{name}/level", f"s{name}", "MULTICAST", durable=True)
    looked: list[str] = []
    apply = BrokerAddress.apply

    def counted(self: BrokerAddress, settings: AddressSettings) -> None:
        looked.append(self.name)
        apply(self, settings)

    monkeypatch.setattr(BrokerAddress, "apply", counted)
    for name in names:
        broker.catalogue.put_settings(name, {"maxDeliveryAttempts": 3})
        broker.catalogue.put_settings(f"{name}/#", {"maxSizeBytes": 5})
    assert all(address.limit == 5 for address in broker.catalogue.addresses.values())
    for name in names:
        broker.catalogue.remove_settings(f"{name}/#")
        broker.catalogue.remove_settings(f"{name}/+/#")
        broker.catalogue.delete_address(name, force=True)
    assert len(looked) <= 7 * count
    assert not broker.catalogue.addresses and not broker.catalogue.queues


def test_a_queues_address_without_its_queue_gives_messages_back() -> None:
    core = Core()
    core.broker.catalogue.create_address("a", frozenset({"ANYCAST"}))
    core.broker.catalogue.create_address("t", frozenset({"MULTICAST"}))
    assert core.send("x", to="a") is Verdict.RELEASE
    assert core.send("x", to="t") is Verdict.ACCEPT
    assert core.broker.ledger.size == 0


def test_levels_follow_their_topic() -> None:
    core = Core()
    broker = core.broker
    broker.catalogue.create_address("t", frozenset({"MULTICAST"}))
    broker.catalogue.put_settings("t", {"maxSizeBytes": 10, "addressFullMessagePolicy": "FAIL"})
    broker.catalogue.create_queue("t/+/x", "s", "MULTICAST", durable=False)
    core.send("x" * 20, to="t/a/x")
    with pytest.raises(BrokerError, match=r"full: it holds \d+ of 10 bytes; receive some, or raise its maxSize"):
        core.send("x", to="t/b")
    with pytest.raises(BrokerError, match="AMQ229218"):
        broker.catalogue.create_address("t/+", frozenset({"MULTICAST"}))
    with pytest.raises(BrokerError, match="AMQ229205"):
        broker.catalogue.delete_address("t")
    broker.catalogue.delete_address("t", force=True)
    assert (broker.catalogue.addresses, broker.catalogue.queues, broker.ledger.size) == ({}, {}, 0)
