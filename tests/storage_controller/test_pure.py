"""Names, settings, views: what needs no broker."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.model.addresses import Address, Redelivery, Ttl
from enmasse.model.flavors import Flavor, Parameters
from enmasse.model.names import AddressName
from services.storage_controller import fleet, naming, policies
from services.storage_controller.driver import LocalDriver, Running, Wish
from services.storage_controller.view import Held, root_of, rows, view

PERSISTED = Flavor(type="queue", template_name="queue-persisted")
IN_MEMORY = Flavor(type="queue", template_name="queue-inmemory")
TEXT = st.text(min_size=1, max_size=80)


def test_names_of_brokers_are_stable_and_readable() -> None:
    assert naming.pooled("small-persisted-queue", 2) == "small-persisted-queue-2"
    assert naming.pooled("router", 0) != "router-0", "that is the name of another process of the suite"
    assert naming.dedicated("f", "Orders/EU") == naming.dedicated("f", "Orders/EU")
    assert naming.dedicated("f", "Orders/EU").startswith("f-orders-eu-")


@given(TEXT, TEXT, TEXT, TEXT)
def test_names_of_brokers_are_legal_and_tell_apart(f1: str, f2: str, a1: str, a2: str) -> None:
    first, second = naming.dedicated(f1, a1), naming.dedicated(f2, a2)
    assert (first == second) == ((f1, a1) == (f2, a2))
    assert (naming.pooled(f1, 1) == naming.pooled(f2, 1)) == (f1 == f2)
    for name in (first, naming.pooled(f1, 63)):
        assert len(name) <= 100
        assert name.isascii()
        assert "/" not in name
        assert name[0].isalnum()


def test_which_brokers_a_flavor_has() -> None:
    pool = Flavor(type="queue", template_name="queue-persisted", template_parameters=Parameters(brokers=3))
    alone = Flavor(type="queue", template_name="queue-inmemory", template_parameters=Parameters(dedicated=True))
    flavors = {"pool": pool, "alone": alone, "unused": pool}
    addresses = {
        "a": Address(type="queue", flavor="pool"),
        "b": Address(type="queue", flavor="alone"),
        "c": Address(type="queue", flavor="alone"),
        "d": Address(type="queue", flavor="gone"),
        "e": Address(type="anycast"),
    }
    found = fleet.wanted(addresses, flavors)
    assert {name for name, flavor in found.items() if flavor == "pool"} == {"pool-0", "pool-1", "pool-2"}
    assert {name for name, flavor in found.items() if flavor == "alone"} == {
        naming.dedicated("alone", "b"),
        naming.dedicated("alone", "c"),
    }
    assert len(found) == 5
    assert fleet.least_loaded(["x", "y", "z"], {"x": 2, "y": 1, "z": 1}) == "y"
    assert fleet.least_loaded([], {}) is None


def test_settings_of_an_address() -> None:
    plain = Address(type="queue", flavor="f")
    assert policies.address_settings("q", plain) == {}
    full = Address(
        type="queue",
        flavor="f",
        message_ttl=Ttl(minimum=1, maximum=2),
        message_redelivery=Redelivery(redelivery_delay=3, redelivery_delay_multiplier=1.5, maximum_delivery_delay=9),
        deadletter=AddressName("dead"),
        expiry=AddressName("late"),
        max_size=1000,
    )
    (match, settings), *others = policies.address_settings("q", full).items()
    assert (match, others) == ("q", [])
    assert settings == {
        "minExpiryDelay": 1,
        "maxExpiryDelay": 2,
        "redeliveryDelay": 3,
        "redeliveryMultiplier": 1.5,
        "maxRedeliveryDelay": 9,
        "maxDeliveryAttempts": 10,
        "deadLetterAddress": "dead",
        "expiryAddress": "late",
        "maxSizeBytes": 1000,
        "pageSizeBytes": 500,
        "addressFullMessagePolicy": "FAIL",
        policies.MARK_KEY: policies.MARK,
    }
    topic = policies.address_settings("t", Address(type="topic", flavor="f", message_ttl=Ttl(maximum=5)))
    assert topic == {"t": {policies.MARK_KEY: policies.MARK}, "t/#": {"maxExpiryDelay": 5}}


def test_settings_hold_when_the_broker_shows_them_among_others() -> None:
    wanted = {"q": {"deadLetterAddress": "dead", "maxDeliveryAttempts": 3}}
    assert policies.holds(wanted, {"DLA": "dead", "maxDeliveryAttempts": 3, "more": 1})
    assert policies.holds(wanted, {"deadLetterAddress": "dead", "maxDeliveryAttempts": 3})
    assert not policies.holds(wanted, {"deadLetterAddress": "dead", "maxDeliveryAttempts": 4})
    assert not policies.holds(wanted, {"maxDeliveryAttempts": 3})
    assert policies.holds({}, {})


def test_settings_of_a_broker() -> None:
    assert policies.broker_settings("f-0", PERSISTED)["data_dir"] == "f-0"
    assert policies.broker_settings("f-0", IN_MEMORY)["data_dir"] is None
    parameters = Parameters(storage_capacity=10**9, memory=10**7)
    large = msgspec.structs.replace(PERSISTED, template_parameters=parameters)
    settings = policies.broker_settings("f-0", large)
    assert settings["global_max_size"] == 10**7
    assert settings["settings"]["pageLimitBytes"] == settings["capacity"] == 10**9
    assert settings["capacity_policy"] == "FAIL"
    assert settings["settings"]["maxDeliveryAttempts"] == -1, "giving up without a dead letter address is losing"
    block = msgspec.structs.replace(
        PERSISTED, template_parameters=Parameters(storage_capacity=100, full_policy="BLOCK")
    )
    settings = policies.broker_settings("f-0", block)
    assert (settings["capacity"], settings["capacity_policy"]) == (100, "BLOCK")
    assert settings["settings"]["addressFullMessagePolicy"] == "PAGE", "memory is not what is full"
    assert "pageLimitBytes" not in settings["settings"]
    assert "max_subscriptions" not in settings
    few = msgspec.structs.replace(PERSISTED, template_parameters=Parameters(max_subscriptions=7))
    assert policies.broker_settings("f-0", few)["max_subscriptions"] == 7


def listing(*found: dict[str, Any]) -> str:
    return json.dumps({"data": list(found), "count": len(found)})


def queue(name: str, address: str = "", kind: str = "ANYCAST", **more: str) -> dict[str, str]:
    return {"name": name, "address": address or name, "routingType": kind, "unknown": "x", **more}


def test_a_view_sums_up_what_lies_there() -> None:
    queues = listing(
        queue("q", user="enmasse", messageCount="3", consumerCount="2"),
        queue("theirs", user="bob"),
        queue("s1", "t", "MULTICAST", messageCount="4", consumerCount="1"),
        queue("s2", "t/a/b", "MULTICAST", messageCount="5", messagesLost="2"),
        queue("s3", "t/#", "MULTICAST", messageCount="6", messagesLost="1", stalled="true"),
        queue("volatile", "t", "MULTICAST", messageCount="7", consumerCount="1", durable="false", temporary="true"),
        queue("other", "elsewhere", "MULTICAST", messageCount="8"),
        queue("reply", temporary="true", messageCount="9"),
        queue("activemq.x", messageCount="9"),
        queue("inner", internalQueue="true", messageCount="9"),
    )
    addresses = listing(
        {"name": "q", "routingTypes": '["ANYCAST"]', "autoCreated": "true"},
        {"name": "t", "routingTypes": '["MULTICAST"]', "autoCreated": "false"},
        {"name": "t/a/b", "routingTypes": '["MULTICAST"]', "autoCreated": "true"},
        {"name": "activemq.notifications", "routingTypes": '["MULTICAST"]'},
    )
    found = view(*rows(queues, addresses))
    assert found.held == {
        "q": Held("queue", True, 3, 2, 0),
        "theirs": Held("queue", False, 0, 0, 0),
        "t": Held("topic", None, 15, 2, 3, lost=3, stalled=True),
    }
    assert (found.stored, found.durable_subscriptions) == (3 + 4 + 5 + 6 + 8, 4)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"data":[{}]}', '{"data":[{"name":1}]}', '{"data":{}}'])
def test_a_listing_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        rows(text, listing())
    with pytest.raises(ValueError, match=r"."):
        view(*rows(listing(queue("q", messageCount="many")), listing()))


def test_the_root_of_an_address() -> None:
    topics: set[str] = {"t", "t/a"}
    assert [root_of(name, topics) for name in ("t", "t/x", "t/a", "t/a/b", "tt", "", "x/t")] == [
        "t",
        "t",
        "t/a",
        "t/a",
        None,
        None,
        None,
    ]


def test_the_driver_keeps_wishes_in_files(tmp_path: Path) -> None:
    driver = LocalDriver(str(tmp_path / "desired"), str(tmp_path / "actual.json"))
    assert driver.wishes() == ({}, {})
    wish = Wish("f", {"data_dir": None, "settings": {"maxDeliveryAttempts": -1}})
    driver.wish("f-0", wish)
    assert driver.wishes() == ({"f-0": wish}, {})
    assert json.loads((tmp_path / "desired" / "f-0.json").read_text()) == {
        "schema": 1,
        "name": "f-0",
        "kind": "broker",
        "flavor": "f",
        "settings": wish.settings,
    }
    driver.unwish("f-0")
    assert driver.wishes() == ({}, {})
    assert list((tmp_path / "desired").iterdir()) == []


@pytest.mark.parametrize("text", ["{", "", "[]", '{"settings": {}}', "[" * 100_000, None])
def test_a_wish_that_cannot_be_read_is_not_a_broker_that_is_not_wanted(tmp_path: Path, text: str | None) -> None:
    driver = LocalDriver(str(tmp_path), str(tmp_path / "actual"))
    wish = Wish("f", {})
    driver.wish("f-1", wish)
    if text is None:
        os.mkfifo(tmp_path / "f-0.json")
    else:
        (tmp_path / "f-0.json").write_text(text)
    found, damaged = driver.wishes()
    assert found == {"f-1": wish} and list(damaged) == ["f-0"]
    assert damaged["f-0"].startswith(f"{tmp_path / 'f-0.json'}: ")


def test_wishes_that_somebody_else_has_altered_are_seen(tmp_path: Path) -> None:
    driver = LocalDriver(str(tmp_path / "desired"), str(tmp_path / "actual"))
    for name in ("a", "b", "c"):
        driver.wish(name, Wish("f", {}))
    assert driver.altered() == []
    (tmp_path / "desired" / "a.json").unlink()
    (tmp_path / "desired" / "b.json").write_text("something else")
    assert driver.altered() == ["a", "b"]
    again = LocalDriver(str(tmp_path / "desired"), str(tmp_path / "actual"))
    assert list(again.wishes()[0]) == ["c"] and again.altered() == []
    shutil.rmtree(tmp_path / "desired")
    driver.unwish("b")
    assert driver.altered() == ["a", "c"]
    driver.wish("a", Wish("f", {}))
    assert driver.altered() == ["c"]


def test_what_runs_is_read_when_it_changes(tmp_path: Path) -> None:
    actual = tmp_path / "actual.json"
    driver = LocalDriver(str(tmp_path), str(actual))
    assert driver.running() is None
    entry = {"name": "f-0", "kind": "broker", "host": "h", "port": 5, "ready": True, "detail": "", "pid": 1}
    actual.write_text(json.dumps({"schema": 1, "components": [entry, {**entry, "kind": "router", "name": "r"}]}))
    assert driver.running() == {"f-0": Running("h", 5, True, "", None, "1")}
    assert driver.running() is None
    actual.write_text("{")
    assert driver.running() is None
    entry["port"] = 6
    (tmp_path / "new").write_text(json.dumps({"schema": 1, "components": [entry]}))
    (tmp_path / "new").replace(actual)
    assert driver.running() == {"f-0": Running("h", 6, True, "", None, "1")}
