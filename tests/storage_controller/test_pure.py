"""Names, settings, views: what needs no broker."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.control.listings import address_rows, queue_rows
from enmasse.engines.artemis.broker import BROKER as ARTEMIS
from enmasse.engines.embedded import BROKER as EMBEDDED
from enmasse.model.addresses import Address, Redelivery, Ttl
from enmasse.model.flavors import Flavor, Parameters
from enmasse.model.names import AddressName
from services.storage_controller import fleet, naming, policies, texts, unsupported
from services.storage_controller.brokers.broker_contents import Holding, contents, root_of
from services.storage_controller.drivers import Manifest, RunningBroker
from services.storage_controller.drivers.local import LocalDriver, LocalSettings
from services.storage_controller.drivers.objects import IDENTITY_VOLUME, Place, objects
from services.storage_controller.drivers.pod_status import seen
from services.storage_controller.placement import Placer

B, C, Q, T = (AddressName(name) for name in "bcqt")
ORDERS_EU = AddressName("Orders/EU")
PERSISTED = Flavor(type="queue", template_name="queue-persisted")
IN_MEMORY = Flavor(type="queue", template_name="queue-inmemory")
TEXT = st.text(min_size=1, max_size=80)


@pytest.mark.parametrize(("policy", "words"), [("DISK", "has no room"), ("STORE", "was deleted or replaced")])
def test_an_address_that_stores_nothing_says_why(policy: str, words: str) -> None:
    found = texts.full("f-0", policy, Address(type="queue", flavor="f"))
    assert words in found and ("full" in found) == (policy == "DISK")


def test_names_of_brokers_are_stable_and_readable() -> None:
    assert naming.pooled("small-persisted-queue", 2) == "small-persisted-queue-2"
    assert naming.pooled("router", 0) != "router-0", "that is the name of another process of the suite"
    assert naming.dedicated("f", ORDERS_EU) == naming.dedicated("f", AddressName("Orders/EU"))
    assert naming.dedicated("f", ORDERS_EU).startswith("f-orders-eu-")


@given(TEXT, TEXT, TEXT.map(AddressName), TEXT.map(AddressName))
def test_names_of_brokers_are_legal_and_tell_apart(f1: str, f2: str, a1: AddressName, a2: AddressName) -> None:
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
        AddressName("a"): Address(type="queue", flavor="pool"),
        B: Address(type="queue", flavor="alone"),
        C: Address(type="queue", flavor="alone"),
        AddressName("d"): Address(type="queue", flavor="gone"),
        AddressName("e"): Address(type="anycast"),
    }
    found = fleet.wanted(addresses, flavors)
    assert {name for name, flavor in found.items() if flavor == "pool"} == {"pool-0", "pool-1", "pool-2"}
    assert {name for name, flavor in found.items() if flavor == "alone"} == {
        naming.dedicated("alone", B),
        naming.dedicated("alone", C),
    }
    assert len(found) == 5
    assert fleet.least_loaded(["x", "y", "z"], {"x": 2, "y": 1, "z": 1}) == "y"
    assert fleet.least_loaded([], {}) is None


def test_settings_of_an_address() -> None:
    plain = Address(type="queue", flavor="f")
    assert policies.address_settings(Q, plain, EMBEDDED) == {}
    full = Address(
        type="queue",
        flavor="f",
        message_ttl=Ttl(minimum=1, maximum=2),
        message_redelivery=Redelivery(redelivery_delay=3, redelivery_delay_multiplier=1.5, maximum_delivery_delay=9),
        deadletter=AddressName("dead"),
        expiry=AddressName("late"),
        max_size=1000,
    )
    (match, settings), *others = policies.address_settings(Q, full, EMBEDDED).items()
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
    assert all(not policies.holds({}, {key: value}, {}) for key, value in settings.items()), "each is looked for"
    topic = policies.address_settings(T, Address(type="topic", flavor="f", message_ttl=Ttl(maximum=5)), EMBEDDED)
    assert topic == {"t": {policies.MARK_KEY: policies.MARK}, "t/#": {"maxExpiryDelay": 5}}


def test_settings_hold_if_they_are_the_desired_ones_and_no_others_of_ours() -> None:
    wanted, none = {"q": {"deadLetterAddress": "dead", "maxDeliveryAttempts": 3}}, {"maxExpiryDelay": -1}
    assert policies.holds(wanted, {**none, "DLA": "dead", "maxDeliveryAttempts": 3, "more": 1}, none)
    assert policies.holds(wanted, {**none, "deadLetterAddress": "dead", "maxDeliveryAttempts": 3}, none)
    assert not policies.holds(wanted, {**none, "deadLetterAddress": "dead", "maxDeliveryAttempts": 4}, none)
    assert not policies.holds(wanted, {**none, "maxDeliveryAttempts": 3}, none)
    assert not policies.holds(wanted, {"maxExpiryDelay": 5, "DLA": "dead", "maxDeliveryAttempts": 3}, none)
    assert policies.holds({}, none, none)
    assert not policies.holds({}, {**none, "DLA": "dead"}, none)


def local(folder: Path) -> LocalDriver:
    return LocalDriver(LocalSettings(str(folder / "desired"), str(folder / "actual.json")))


def manifest(flavor: Flavor) -> Manifest:
    return local(Path()).manifest(policies.desired_broker("f-0", "f", flavor))


def test_settings_of_a_broker() -> None:
    assert manifest(PERSISTED).content["data_dir"] == "f-0"
    assert manifest(IN_MEMORY).content["data_dir"] is None
    parameters = Parameters(storage_capacity=10**9, memory=10**7)
    large = msgspec.structs.replace(PERSISTED, template_parameters=parameters)
    settings = manifest(large).content
    assert settings["global_max_size"] == 10**7
    assert settings["settings"]["pageLimitBytes"] == settings["capacity"] == 10**9
    assert settings["capacity_policy"] == "FAIL"
    assert settings["settings"]["maxDeliveryAttempts"] == -1, "giving up without a dead letter address is losing"
    block = msgspec.structs.replace(
        PERSISTED, template_parameters=Parameters(storage_capacity=100, full_policy="BLOCK")
    )
    settings = manifest(block).content
    assert (settings["capacity"], settings["capacity_policy"]) == (100, "BLOCK")
    assert settings["settings"]["addressFullMessagePolicy"] == "PAGE", "memory is not what is full"
    assert "pageLimitBytes" not in settings["settings"]
    assert "max_subscriptions" not in settings
    few = msgspec.structs.replace(PERSISTED, template_parameters=Parameters(max_subscriptions=7))
    assert manifest(few).content["max_subscriptions"] == 7


def listing(*found: dict[str, Any]) -> str:
    return json.dumps({"data": list(found), "count": len(found)})


def queue(name: str, address: str = "", kind: str = "ANYCAST", **more: str) -> dict[str, str]:
    return {"name": name, "address": address or name, "routingType": kind, "unknown": "x", **more}


def test_contents_sum_up_what_lies_there() -> None:
    queues = listing(
        queue("q", user="enmasse", messageCount="3", consumerCount="2"),
        queue("theirs", user="bob"),
        queue("!!team/q", user="enmasse", messageCount="2"),
        queue("s4", "!!team/t/a", "MULTICAST", messageCount="1"),
        queue("s1", "t", "MULTICAST", messageCount="4", consumerCount="1"),
        queue("s2", "t/a/b", "MULTICAST", messageCount="5", messagesLost="2"),
        queue("s3", "t/#", "MULTICAST", messageCount="6", messagesLost="1", stalled="true"),
        queue("volatile", "t", "MULTICAST", messageCount="7", consumerCount="1", durable="false", temporary="true"),
        queue("other", "elsewhere", "MULTICAST", messageCount="8"),
        queue("reply", temporary="true", messageCount="9"),
        queue("activemq.x", messageCount="9"),
        queue("inner", internalQueue="true", messageCount="9"),
        queue("$sub/b/mqtt.one", user="subserv", messageCount="10", maxConsumers="1"),
        queue("$sys.other", messageCount="9"),
    )
    addresses = listing(
        {"name": "q", "routingTypes": '["ANYCAST"]', "autoCreated": "true"},
        {"name": "t", "routingTypes": '["MULTICAST"]', "autoCreated": "false"},
        {"name": "t/a/b", "routingTypes": '["MULTICAST"]', "autoCreated": "true"},
        {"name": "!!team/t", "routingTypes": '["MULTICAST"]', "autoCreated": "false"},
        {"name": "activemq.notifications", "routingTypes": '["MULTICAST"]'},
    )
    found = contents(queue_rows(queues), address_rows(addresses))
    assert found.held == {
        "q": Holding("queue", True, 3, 2, 0),
        "theirs": Holding("queue", False, 0, 0, 0),
        "!!team/q": Holding("queue", True, 2, 0, 0),
        "!!team/t": Holding("topic", None, 1, 0, 1),
        "t": Holding("topic", None, 15, 2, 3, lost=3, stalled=True),
    }
    assert (found.stored, found.durable_subscriptions) == (3 + 4 + 5 + 6 + 8 + 10 + 2 + 1, 5)


def test_contents_of_spaces_are_apart() -> None:
    names = ("q", "!!one/q", "!!two/q")
    queues = listing(
        *(queue(name, user="enmasse", messageCount=str(count)) for count, name in enumerate(names, 1)),
        queue("s1", "!!one/t", "MULTICAST", messageCount="4"),
        queue("s2", "!!two/t/a/b", "MULTICAST", messageCount="5"),
    )
    topics = ("!!one/t", "!!two/t")
    rows = ({"name": name, "routingTypes": '["MULTICAST"]', "autoCreated": "false"} for name in topics)
    found = contents(queue_rows(queues), address_rows(listing(*rows)))
    assert {name: held.messages for name, held in found.held.items()} == {
        "q": 1,
        "!!one/q": 2,
        "!!two/q": 3,
        "!!one/t": 4,
        "!!two/t": 5,
    }
    assert found.stored == 15


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"data":[{}]}', '{"data":[{"name":1}]}', '{"data":{}}'])
def test_a_listing_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        queue_rows(text)
    with pytest.raises(ValueError, match=r"."):
        contents(queue_rows(listing(queue("q", messageCount="many"))), ())


def test_the_root_of_an_address() -> None:
    topics = {T, AddressName("t/a")}
    assert [root_of(name, topics) for name in ("t", "t/x", "t/a", "t/a/b", "tt", "", "x/t")] == [
        "t",
        "t",
        "t/a",
        "t/a",
        None,
        None,
        None,
    ]


def test_the_driver_keeps_manifests_in_files(tmp_path: Path) -> None:
    async def scenario() -> None:
        driver = local(tmp_path)
        assert await driver.applied() == ({}, {})
        wanted = manifest(IN_MEMORY)
        await driver.apply("f-0", wanted)
        assert await driver.applied() == ({"f-0": wanted}, {})
        assert json.loads((tmp_path / "desired" / "f-0.json").read_text()) == {
            "schema": 1,
            "name": "f-0",
            "kind": "broker",
            "flavor": "f",
            "settings": wanted.content,
        }
        await driver.delete("f-0")
        assert await driver.applied() == ({}, {})
        assert list((tmp_path / "desired").iterdir()) == []

    asyncio.run(scenario())


def test_the_file_of_a_broker_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    """What a newer controller writes for the same flavor must not restart brokers that run."""
    parameters = Parameters(storage_capacity=100, max_subscriptions=7)
    flavor = msgspec.structs.replace(PERSISTED, template_parameters=parameters)
    asyncio.run(local(tmp_path).apply("f-0", manifest(flavor)))
    assert (
        (tmp_path / "desired" / "f-0.json").read_text()
        == """{
  "schema": 1,
  "name": "f-0",
  "kind": "broker",
  "flavor": "f",
  "settings": {
    "data_dir": "f-0",
    "global_max_size": 67108864,
    "page_dir": "f-0-pages",
    "capacity": 100,
    "capacity_policy": "FAIL",
    "max_subscriptions": 7,
    "settings": {
      "maxDeliveryAttempts": -1,
      "autoCreateQueues": false,
      "autoCreateAddresses": false,
      "addressFullMessagePolicy": "PAGE",
      "pageLimitBytes": 100,
      "pageFullMessagePolicy": "FAIL"
    }
  }
}"""
    )


@pytest.mark.parametrize("text", ["{", "", "[]", '{"settings": {}}', "[" * 100_000, None])
def test_a_file_that_cannot_be_read_is_not_a_broker_that_is_not_desired(tmp_path: Path, text: str | None) -> None:
    async def scenario() -> None:
        driver, wanted, desired = local(tmp_path), manifest(IN_MEMORY), tmp_path / "desired"
        await driver.apply("f-1", wanted)
        if text is None:
            os.mkfifo(desired / "f-0.json")
        else:
            (desired / "f-0.json").write_text(text)
        found, damaged = await driver.applied()
        assert found == {"f-1": wanted} and list(damaged) == ["f-0"]
        assert damaged["f-0"].startswith(f"{desired / 'f-0.json'}: ")

    asyncio.run(scenario())


def test_what_somebody_else_has_altered_is_seen(tmp_path: Path) -> None:
    async def scenario() -> None:
        driver, wanted, desired = local(tmp_path), manifest(IN_MEMORY), tmp_path / "desired"
        for name in ("a", "b", "c"):
            await driver.apply(name, wanted)
        assert await driver.altered() == []
        (desired / "a.json").unlink()
        (desired / "b.json").write_text("something else")
        assert await driver.altered() == ["a", "b"]
        again = local(tmp_path)
        assert list((await again.applied())[0]) == ["c"] and await again.altered() == []
        shutil.rmtree(desired)
        await driver.delete("b")
        assert await driver.altered() == ["a", "c"]
        await driver.apply("a", wanted)
        assert await driver.altered() == ["c"]

    asyncio.run(scenario())


def test_what_runs_is_what_the_supervisor_wrote_last(tmp_path: Path) -> None:
    async def scenario() -> None:
        driver, actual = local(tmp_path), tmp_path / "actual.json"
        assert await driver.running() == {}
        wanted = manifest(IN_MEMORY)
        entry = {"name": "f-0", "kind": "broker", "host": "h", "port": 5, "ready": True, "detail": "", "pid": 1}
        actual.write_text(json.dumps({"schema": 1, "components": [entry, {**entry, "kind": "router", "name": "r"}]}))
        assert await driver.running() == {"f-0": RunningBroker("h", 5, True, "", "1")}
        actual.write_text("{")
        assert await driver.running() == {}
        await driver.apply("f-0", wanted)
        for settings, is_current in ((wanted.content, True), ({**wanted.content, "data_dir": "f-0"}, False)):
            (tmp_path / "new").write_text(json.dumps({"schema": 1, "components": [{**entry, "settings": settings}]}))
            (tmp_path / "new").replace(actual)
            assert await driver.running() == {"f-0": RunningBroker("h", 5, True, "", "1", is_current)}

    asyncio.run(scenario())


def test_what_an_engine_does_not_have_is_not_set() -> None:
    address = Address(type="queue", flavor="f", duplicates="message-id")
    assert "duplicateDetectionByMessageId" in policies.address_settings(Q, address, EMBEDDED)["q"]
    assert policies.address_settings(Q, address, ARTEMIS) == {}


def test_what_a_product_has_not_is_refused() -> None:
    copies = Address(type="queue", flavor="f", duplicates="message-id")
    assert unsupported.cannot_store(EMBEDDED, copies) == ""
    assert "duplicates" in unsupported.cannot_store(ARTEMIS, copies)
    assert unsupported.cannot_store(ARTEMIS, Address(type="queue", flavor="f")) == ""
    limited = topic_flavor(max_subscriptions=5)
    assert unsupported.cannot_run(EMBEDDED, "f", limited) == ""
    assert "flavor f: MAX_SUBSCRIPTIONS" in unsupported.cannot_run(ARTEMIS, "f", limited)
    waiting = topic_flavor(storage_capacity=1 << 30, full_policy="BLOCK")
    assert unsupported.cannot_run(EMBEDDED, "f", waiting) == ""
    assert "FULL_POLICY BLOCK" in unsupported.cannot_run(ARTEMIS, "f", waiting)
    for fine in (topic_flavor(full_policy="BLOCK"), topic_flavor(storage_capacity=1 << 30, full_policy="DROP")):
        assert unsupported.cannot_run(ARTEMIS, "f", fine) == ""


def topic_flavor(**parameters: Any) -> Flavor:
    return Flavor(type="topic", template_name="topic-persisted", template_parameters=Parameters(**parameters))


def test_levels_below_a_topic_are_made_if_the_product_does_not_have_them() -> None:
    plain = Address(type="topic", flavor="f")
    assert policies.address_settings(T, plain, EMBEDDED) == {"t": {policies.MARK_KEY: policies.MARK}}
    below = policies.address_settings(T, plain, ARTEMIS)["t/#"]
    assert below["autoCreateAddresses"] is True
    assert below["autoDeleteAddresses"] is False, "with a level go the ids of what came there"
    itself = policies.address_settings(T, plain, ARTEMIS)["t"]
    assert itself["autoCreateAddresses"] is False, "the match of the levels covers the topic, too"
    assert policies.holds({"t/#": below, "t": itself}, {**below, **itself}, {})
    assert policies.holds(policies.address_settings(T, plain, ARTEMIS), {**below, **itself}, {})


def test_the_local_driver_takes_over_only_brokers_of_its_product(tmp_path: Path) -> None:
    async def scenario() -> None:
        ours = LocalSettings(str(tmp_path / "desired"), str(tmp_path / "actual.json"))
        artemis = LocalDriver(msgspec.structs.replace(ours, engine="artemis"))
        assert artemis.engine is ARTEMIS
        broker = policies.desired_broker("f-0", "f", Flavor(type="queue", template_name="queue-persisted"))
        await artemis.apply("f-0", artemis.manifest(broker))
        assert json.loads((tmp_path / "desired" / "f-0.json").read_bytes())["kind"] == "artemis"
        assert (await artemis.applied())[0].keys() == {"f-0"}
        found, damaged = await LocalDriver(ours).applied()
        assert not found and "kind: expected broker" in damaged["f-0"]

    asyncio.run(scenario())


def test_an_address_that_no_broker_can_have_is_failed_and_placed_nowhere() -> None:
    placer = Placer(ARTEMIS)
    placer.set_flavors({"f": Flavor(type="queue", template_name="queue-persisted")})
    placer.set_addresses({Q: Address(type="queue", flavor="f", duplicates="message-id")}, ())
    placer.inventory.add("f-0", "f", ARTEMIS, fresh=True)
    decision = placer.decide(Q)
    assert not decision.ready and not decision.entries and not decision.keep
    assert "duplicates" in decision.message and placer.refused(Q)
    placer.set_addresses({Q: Address(type="queue", flavor="f")}, ())
    assert placer.decide(Q).keep == ("f-0",) and not placer.refused(Q)


@pytest.mark.parametrize("engine", ["embedded", "artemis"])
def test_only_embedded_brokers_have_the_variables_of_traces(engine: str) -> None:
    template = {"image": "i", "traces": {"OTEL_A": "b"}, "tracesSecret": "collector"}
    settings = {"persisted": True, "global_max_size": 1, "capacity": 0, "settings": {}}
    content = {"engine": engine, "settings": settings, "template": template}
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "o", "uid": "u"}}
    made = objects(Place("enmasse", "messaging", owner), "b", Manifest("f", "data-b-0", content), None)
    found = {kind.name: body for kind, body in made}
    (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    embedded = engine == "embedded"
    assert container.get("envFrom") == ([{"secretRef": {"name": "collector"}}] if embedded else None)
    assert ("OTEL_A" in str(found["ConfigMap"]["data"])) is embedded


@pytest.mark.parametrize("engine", ["embedded", "artemis"])
def test_a_broker_in_a_pod_has_the_certificate_of_its_template(engine: str) -> None:
    settings = {"persisted": True, "global_max_size": 1, "capacity": 0, "settings": {}}

    def made(template: dict[str, Any]) -> tuple[Any, Any]:
        content = {"engine": engine, "settings": settings, "template": {"image": "i", **template}}
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "o", "uid": "u"}}
        place = Place("enmasse", "messaging", owner)
        found = {kind.name: body for kind, body in objects(place, "b", Manifest("f", "data-b-0", content), None)}
        return found["ConfigMap"]["data"], found["StatefulSet"]

    for template, certified in (({}, False), ({"identitySecret": "theirs"}, True)):
        files, stateful_set = made(template)
        assert ("/etc/enmasse-identity" in str(files)) is certified
        spec = stateful_set["spec"]["template"]["spec"]
        mounts = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
        assert mounts.get("identity") == ("/etc/enmasse-identity" if certified else None)
        secrets = [volume["secret"] for volume in spec["volumes"] if volume["name"] == "identity"]
        assert secrets == ([{"secretName": "theirs"}] if certified else [])
        pod = {"metadata": {"uid": "x"}, "spec": spec, "status": {"phase": "Running"}}
        assert seen(stateful_set, pod, "applied", IDENTITY_VOLUME).authenticates is certified
    assert not seen(made({"identitySecret": "theirs"})[1], None, "applied", IDENTITY_VOLUME).authenticates
