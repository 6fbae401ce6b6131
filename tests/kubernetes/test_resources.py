"""Custom resources as configuration, against a real API server: what they become, and their status."""

from __future__ import annotations

import base64
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from enmasse.identity.proofs.passwords import proves
from enmasse.testing import wait_for
from tests.kit.waiting import DEADLINE
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.controlplane import Refused
from tests.kubernetes.resources import define
from tests.kubernetes.running import FLAVORS, Pod, config_map, grant, pods

ROOT = Path(__file__).parents[2]
FLAVORS_OF_ALL = {**FLAVORS, "t": {"type": "topic", "templateName": "topic-persisted"}}
ENMASSE, USERS, ADMIN = "enmasse.io/v1beta1", "user.enmasse.io/v1beta1", "admin.enmasse.io/v1beta2"
WITHOUT_DEFINITIONS = ("--set=customResources.definitions=false",)
CERTIFICATE = b"-----BEGIN CERTIFICATE-----\n"
AMQP = {"amqp": 5672, "amqps": 5671}
ENDPOINTS = {
    "messaging": {
        "host": "enmasse-router.x.svc",
        "ports": AMQP,
        "external_host": "mq.example.com",
        "external_ports": {"amqps": 443},
    }
}
PASSWORD = "cGFzc3dvcmQ="
"""`password`, in base64."""


@pytest.fixture(scope="module")
def defined(cluster: Cluster) -> Cluster:
    """The cluster, which knows the custom resources."""
    define(cluster)
    return cluster


@pytest.fixture
def pod(defined: Cluster, tmp_path: Path) -> Iterator[Pod]:
    """A configserv that reads them, with users and spaces; not started."""
    namespace = defined.namespace()
    options = ["--set=customResources.enabled=true", "--set=customResources.passwordSecrets={shop-stock}"]
    (tmp_path / "ca.crt").write_bytes(CERTIFICATE)
    options.append("--set=users.enabled=true")
    user = grant(defined, namespace, "configserv", options=options)
    grant(defined, namespace, "authserv", "Secret", options=options)
    defined.apply(
        config_map("enmasse-flavors", "flavors", {"flavors.json": FLAVORS_OF_ALL}),
        config_map("enmasse-addresses", "addresses", {}),
        namespace=namespace,
    )
    users = tmp_path / "users"
    users.mkdir()
    with pods(tmp_path, defined, namespace, "one", user=user) as (one,):
        driver = {"kind": "kubernetes", "namespace": namespace, "users": str(users / "users.json")}
        resources = {"endpoints": ENDPOINTS, "authority": str(tmp_path / "ca.crt"), "hosts": ["enmasse-router.x.svc"]}
        one.settings["driver"] = {**driver, "custom_resources": resources}
        one.file.write_text(json.dumps(one.settings))
        yield one


def resource(kind: str, name: str, version: str = ENMASSE, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def space(name: str, **spec: Any) -> dict[str, Any]:
    return resource("AddressSpace", name, type="standard", **spec)


def address(name: str, kind: str = "queue", **spec: Any) -> dict[str, Any]:
    return resource("Address", name, type=kind, **spec)


def statuses(pod: Pod, kind: str) -> dict[str, dict[str, Any]]:
    """Name of each object → its status."""
    found = pod.cluster.get(kind, namespace=pod.namespace)
    return {each["metadata"]["name"]: each.get("status", {}) for each in found}


def text(status: dict[str, Any]) -> str:
    return "; ".join(status.get("messages", ())) or str(status.get("message", ""))


def wait_phases(pod: Pod, kind: str, **phases: str) -> dict[str, dict[str, Any]]:
    """Wait for objects (`_` for `.` in their names), and return the statuses."""
    wanted = {name.replace("_", "."): phase for name, phase in phases.items()}

    def reached() -> bool:
        pod.again()
        found = statuses(pod, kind)
        return all(found.get(name, {}).get("phase") == phase for name, phase in wanted.items())

    wait_for(f"{kind} are {wanted}: {statuses(pod, kind)}", reached)
    return statuses(pod, kind)


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def test_the_examples_apply_and_are_shown_as_users_of_the_original_expect(pod: Pod) -> None:
    cluster, namespace = pod.cluster, pod.namespace
    example = str(ROOT / "docs" / "examples" / "custom-resources.yaml")
    cluster.kubectl("apply", "--namespace", namespace, f"--filename={example}")
    pod.start()
    pod.wait_ready()
    found = wait_phases(pod, "addresses", shop_orders="Active", shop_news="Active", shop_prices="Active")
    assert found["shop.lost"]["phase"] == "Active" or "0.3 broker credits" in text(found["shop.lost"])
    orders = found["shop.orders"]
    assert orders["isReady"] is True and orders["planStatus"] == {"name": "small-queue", "partitions": 1}
    assert orders["messageTtl"] == {"maximum": 3600000}
    assert conditions(orders) == {
        "Ready": ("True", "Active"),
        "Quota": ("True", "Within"),
        "Placed": ("False", "NoBroker"),
    }
    wait_phases(pod, "addressspaces", shop="Active")
    wait_phases(pod, "addressplans", **{"small-queue": "Active", "small-topic": "Active", "direct": "Active"})
    wait_phases(pod, "addressspaceplans", small="Active")
    users = wait_phases(pod, "messagingusers", shop_till="Active", shop_stock="Active")
    assert "the password can be read in this object" in text(users["shop.till"]) and not text(users["shop.stock"])

    feed = pod.feed("addresses")["addresses"]
    assert feed["!!shop/orders"]["plan"] == "small-queue" and feed["!!shop/orders"]["flavor"] == "q"
    assert feed["!!shop/orders"]["deadletter"] == "!!shop/lost" and feed["!!shop/lost"]["type"] == "queue"
    permissions = pod.feed("permissions/changes")["in_spaces"]
    assert set(permissions) == {"!!shop/till", "!!shop/stock"}
    assert permissions["!!shop/till"]["permissions"][0]["addresses"] == ["orders", "news/#"]
    # Hashes of both passwords, and none of the passwords, are kept.
    state = json.dumps(cluster.get("secrets", "enmasse-configserv-state", namespace=namespace))
    assert "correct horse" not in state

    table = cluster.kubectl("get", "addresses", "--namespace", namespace).splitlines()
    assert table[0].split() == ["NAME", "ADDRESS", "READY", "PHASE", "AGE"]
    assert [line.split()[:4] for line in table[1:] if "orders" in line] == [["shop.orders", "orders", "true", "Active"]]
    wide = cluster.kubectl("get", "msgaddr", "--output=wide", "--namespace", namespace).splitlines()[0]
    assert wide.split() == ["NAME", "ADDRESS", "TYPE", "PLAN", "READY", "PHASE", "STATUS", "AGE"]
    everything = cluster.kubectl("get", "enmasse", "--namespace", namespace, "--output=name")
    assert len(everything.split()) == 4 + 1 + 3 + 1 + 2


def test_what_is_not_there_is_refused_with_the_remedy(pod: Pod) -> None:
    cluster, namespace = pod.cluster, pod.namespace
    cluster.apply(
        resource("AddressPlan", "plan-s", ADMIN, addressType="subscription"),
        resource("AddressPlan", "parts", ADMIN, addressType="queue", partitions=3),
        resource("AddressSpacePlan", "brokered", ADMIN, addressSpaceType="brokered", addressPlans=["parts"]),
        resource("AddressSpacePlan", "own", ADMIN, addressSpaceType="standard", addressPlans=[], infraConfigRef="mine"),
        resource("AddressSpacePlan", "p", ADMIN, addressSpaceType="standard", addressPlans=["parts", "plan-s"]),
        space("one", plan="p", networkPolicy={"ingress": []}),
        space("two", authenticationService={"name": "corporate"}),
        space("three", connectors=[{"name": "remote"}]),
        resource("AddressSpace", "four", type="brokered", plan="brokered"),
        address("four.one", plan="parts"),
        address("four.cast", "multicast"),
        address("one.sub", "subscription", topic="news"),
        address("one.forwarding", forwarders=[{"name": "x"}]),
        address("one.unknown", plan="nothing"),
        address("five.stray"),
        address("two.waits"),
        resource("MessagingUser", "one.robot", USERS, username="robot", authentication={"type": "serviceaccount"}),
        resource(
            "MessagingUser",
            "one.alice",
            USERS,
            username="alice",
            authentication={"type": "password", "passwordFrom": {"secretKeyRef": {"name": "secret-of-another"}}},
        ),
        resource(
            "MessagingUser",
            "one.bob",
            USERS,
            username="bob",
            authentication={"type": "password", "password": PASSWORD},
            authorization=[{"operations": ["send"], "addresses": ["topic*", "a"]}],
        ),
        namespace=namespace,
    )
    pod.start()
    pod.wait_ready()
    plans = wait_phases(pod, "addressplans", **{"plan-s": "Failed", "parts": "Active"})
    assert "durable subscriptions themselves" in text(plans["plan-s"]) and "one broker has" in text(plans["parts"])
    plans = wait_phases(pod, "addressspaceplans", brokered="Active", own="Failed", p="Active")
    assert "routers and brokers of all spaces" in text(plans["own"])
    assert "'plan-s' is left out" in text(plans["p"])
    spaces = wait_phases(pod, "addressspaces", one="Active", two="Failed", three="Failed", four="Active")
    assert "networkPolicy has no effect" in text(spaces["one"])
    assert "there is no authentication service 'corporate': write 'standard'" in text(spaces["two"])
    assert "spec.connectors: connections to other brokers" in text(spaces["three"])
    failed = {f"one_{name}": "Failed" for name in ("sub", "forwarding", "unknown")}
    found = wait_phases(pod, "addresses", **failed, five_stray="Failed", two_waits="Failed", four_cast="Failed")
    assert "must be queue or topic" in text(found["four.cast"])
    assert "'news' themselves" in text(found["one.sub"]) and len(found["one.sub"]["messages"]) == 1
    assert "forwarders" in text(found["one.forwarding"])
    assert "no address plan 'nothing' for this space; there are parts" in text(found["one.unknown"])
    assert "as in SPACE.NAME; there are four, one, three, two" in text(found["five.stray"])
    assert "the address space 'two' is not in force" in text(found["two.waits"])
    users = wait_phases(pod, "messagingusers", one_robot="Failed", one_alice="Failed", one_bob="Active")
    assert "issuers.json" in text(users["one.robot"])
    assert "customResources.passwordSecrets" in text(users["one.alice"])
    assert "the pattern 'topic*' gives nothing" in text(users["one.bob"])
    assert set(pod.feed("permissions/changes")["in_spaces"]) == {"!!one/bob"}


@pytest.mark.parametrize(
    ("made", "change", "reason"),
    [
        (address("a", address="a"), {"type": "topic"}, "the type cannot change"),
        (address("a", address="a"), {"address": "b"}, "the address cannot change"),
        (address("a", messageTtl={"minimum": 2, "maximum": 1}), None, "minimum is larger than maximum"),
        (space("one"), {"type": "brokered"}, "the type cannot change"),
        (space("One.two"), None, "small letters"),
        (
            resource("MessagingUser", "u", USERS, username="u", authentication={"type": "password"}),
            None,
            "either password or passwordFrom",
        ),
        (resource("Address", "a", type="queues"), None, "Unsupported value"),
    ],
)
def test_the_api_server_refuses_what_can_never_be_right(
    defined: Cluster, made: dict[str, Any], change: dict[str, Any] | None, reason: str
) -> None:
    namespace = defined.namespace()
    if change is not None:
        defined.apply(made, namespace=namespace)
        made = {**made, "spec": {**made["spec"], **change}}
    with pytest.raises(Refused, match=reason):
        defined.apply(made, namespace=namespace)


def test_an_entry_that_is_a_resource_and_in_a_configmap_is_an_error_that_names_both(pod: Pod) -> None:
    cluster, namespace = pod.cluster, pod.namespace
    cluster.apply(
        address("default.a", "anycast"),
        config_map("enmasse-addresses", "addresses", {"addresses.json": {"a": {"type": "multicast"}}}),
        config_map("plans", "plans", {"plans.json": {"p": {"kind": "address", "type": "anycast"}}}),
        resource("AddressPlan", "p", ADMIN, addressType="anycast"),
        namespace=namespace,
    )
    pod.start()
    pod.wait_ready()
    found = wait_phases(pod, "addresses", default_a="Failed")["default.a"]
    assert text(found) == "the address 'a' is in configmap/enmasse-addresses/addresses.json too; remove one of the two"
    (error,) = pod.status("enmasse-addresses")["errors"]
    assert error["reason"].startswith("is in address/default.a") and error["file"] == (
        "configmap/enmasse-addresses/addresses.json"
    )
    plan = wait_phases(pod, "addressplans", p="Failed")["p"]
    assert "is in configmap/plans/plans.json too; remove one of the two" in text(plan)

    cluster.apply(config_map("enmasse-addresses", "addresses", {"addresses.json": {}}), namespace=namespace)
    wait_phases(pod, "addresses", default_a="Active")
    assert pod.feed("addresses")["addresses"] == {"a": {"type": "anycast"}}
    wait_for("a resource is in no ConfigMap's status", lambda: pod.status("enmasse-addresses").get("addresses") == [])


def test_a_wrong_change_keeps_what_was_in_force_and_a_removed_object_goes(pod: Pod) -> None:
    cluster, namespace = pod.cluster, pod.namespace
    robot = resource(
        "MessagingUser", "one.bob", USERS, username="bob", authentication={"type": "password", "password": PASSWORD}
    )
    cluster.apply(space("one"), address("one.a", address="a"), address("b", "anycast"), robot, namespace=namespace)
    pod.start()
    pod.wait_ready()
    found = wait_phases(pod, "addresses", one_a="Active", b="Active")["one.a"]
    assert set(pod.feed("addresses")["addresses"]) == {"!!one/a", "!!one/b"}, "the prefix may be left out"
    wait_phases(pod, "messagingusers", one_bob="Active")
    before = pod.feed("permissions/changes")["revision"]
    # Wrong now: the last version stays, and the object says so, also after a restart.
    cluster.apply(address("one.a", address="a", flavor="gone"), namespace=namespace)

    def said() -> bool:
        status = statuses(pod, "addresses")["one.a"]
        return "the last valid entry applies" in text(status) and status["observedGeneration"] == 2

    wait_for("the object says what is wrong", said)
    assert conditions(found)["Ready"] == ("True", "Active")
    assert pod.feed("addresses")["addresses"]["!!one/a"] == {"type": "queue", "flavor": "q"}
    at = next(each for each in found["conditions"] if each["type"] == "Ready")["lastTransitionTime"]
    now = statuses(pod, "addresses")["one.a"]
    assert next(each for each in now["conditions"] if each["type"] == "Ready")["lastTransitionTime"] == at
    versions = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in objects(pod, "addresses")}
    pod.kill()
    pod.start()
    pod.wait_ready()
    cluster.apply(address("one.c", "anycast"), namespace=namespace)
    wait_phases(pod, "addresses", one_c="Active")
    after = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in objects(pod, "addresses")}
    assert {name: after[name] for name in versions} == versions, "what has not changed is not written again"
    assert pod.feed("permissions/changes")["revision"] >= before

    cluster.kubectl("delete", "address", "one.a", "--namespace", namespace)
    wait_for("it goes", lambda: set(pod.feed("addresses")["addresses"]) == {"!!one/b", "!!one/c"})
    cluster.kubectl("delete", "addressspace", "one", "--namespace", namespace)
    wait_for("all of the space goes", lambda: not pod.feed("addresses")["addresses"])
    assert "as in SPACE.NAME; there are none" in text(wait_phases(pod, "addresses", b="Failed")["b"])
    assert not pod.feed("permissions/changes").get("in_spaces")


def objects(pod: Pod, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pod.cluster.get(kind, namespace=pod.namespace)
    return found


def test_resources_of_the_default_space(pod: Pod) -> None:
    cluster, namespace = pod.cluster, pod.namespace
    cluster.apply(
        resource("AddressPlan", "small", ADMIN, addressType="queue", messageTtl={"maximum": 1000}),
        space("default", plan="unlimited"),
        address("default.a", plan="small"),
        address("default.b", plan="q"),
        address("default.c", "anycast", plan="none-such"),
        address("default.d", plan="none-such"),
        resource(
            "MessagingUser",
            "default.bob",
            USERS,
            username="bob",
            authentication={"type": "password", "password": PASSWORD},
        ),
        namespace=namespace,
    )
    pod.start()
    pod.wait_ready()
    assert "no effect in the default" in text(wait_phases(pod, "addressspaces", default="Active")["default"])
    ready = {f"default_{name}": "Active" for name in "abc"}
    found = wait_phases(pod, "addresses", **ready, default_d="Failed")
    assert "neither an AddressPlan nor a flavor 'none-such'" in text(found["default.d"])
    assert pod.feed("addresses")["addresses"] == {
        "a": {"type": "queue", "flavor": "q", "messageTtl": {"maximum": 1000}},
        "b": {"type": "queue", "flavor": "q"},
        "c": {"type": "anycast"},
    }
    wait_phases(pod, "messagingusers", default_bob="Active")
    assert list(pod.feed("permissions/changes")["users"]) == ["bob"]


def exporting(name: str, *exports: tuple[str, str]) -> dict[str, Any]:
    endpoint = {"name": "messaging", "service": "messaging"}
    asked = [{"kind": kind, "name": name} for kind, name in exports]
    mqtt = {"name": "mqtt", "service": "mqtt", "cert": {"provider": "selfsigned"}}
    return space(name, endpoints=[{**endpoint, "exports": asked}, mqtt])


def granted(cluster: Cluster, namespace: str, *names: str, account: str) -> None:
    """Let an account export to these objects, as docs/custom-resources.md shows it."""
    page = (ROOT / "docs" / "custom-resources.md").read_text()
    (text,) = (block for block in page.split("\n\n") if block.startswith("    apiVersion: rbac"))
    role, binding = yaml.safe_load_all(textwrap.dedent(text))
    role["rules"][1]["resourceNames"] = list(names)
    (subject,) = binding["subjects"]
    assert subject["name"] == "enmasse-configserv"
    subject["namespace"] = account
    cluster.apply(role, binding, namespace=namespace)


def test_endpoints_are_shown_and_exported_to_objects_of_the_namespace(pod: Pod) -> None:
    cluster, namespace = pod.cluster, pod.namespace
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "foreign"}, "data": {"of": "others"}}
    exports = ("ConfigMap", "where"), ("Secret", "where"), ("Service", "where"), ("ConfigMap", "foreign")
    cluster.apply(foreign, exporting("one", *exports, ("ConfigMap", "enmasse-addresses")), namespace=namespace)
    pod.start()
    pod.wait_ready()
    shown = wait_phases(pod, "addressspaces", one="Active")["one"]
    ports = [{"name": name, "port": port} for name, port in AMQP.items()]
    messaging, mqtt = shown["endpointStatuses"]
    certificate = base64.b64encode(CERTIFICATE).decode()
    messages = messaging.pop("messages", [])
    assert messaging == {
        "name": "messaging",
        "cert": certificate,
        "serviceHost": "enmasse-router.x.svc",
        "servicePorts": ports,
        "externalHost": "mq.example.com",
        "externalPorts": [{"name": "amqps", "port": 443}],
    }
    assert shown["caCert"] == certificate
    assert mqtt["name"] == "mqtt" and "set the value mqtt.enabled" in mqtt["messages"][0]

    def messages_of(endpoint: int) -> list[str]:
        pod.again()
        found: list[str] = statuses(pod, "addressspaces")["one"]["endpointStatuses"][endpoint].get("messages", [])
        return found

    # In the namespace of the release it may make ConfigMaps.
    wait_for("rights are missing", lambda: len(messages_of(0)) == 4)
    messages = messages_of(0)
    for missing in messages[:2]:
        assert "allow the service account enmasse-configserv of the namespace" in missing
    assert "names of the release itself begin so" in messages[-1]
    assert sum("spec.endpoints" in each for each in statuses(pod, "addressspaces")["one"]["messages"]) == 6

    granted(cluster, namespace, "where", "foreign", account=namespace)
    cluster.apply(exporting("one", *exports), namespace=namespace)
    wait_for("one is left", lambda: len(messages_of(0)) == 1)
    assert "'foreign': it is there already and not an export of this object" in messages_of(0)[0]
    assert cluster.get("configmaps", "foreign", namespace=namespace)["data"] == {"of": "others"}
    data = {
        "service.host": "enmasse-router.x.svc",
        "service.port.amqp": "5672",
        "service.port.amqps": "5671",
        "external.host": "mq.example.com",
        "external.port.amqps": "443",
        "ca.crt": CERTIFICATE.decode(),
    }
    made = cluster.get("configmaps", "where", namespace=namespace)
    assert made["data"] == data and made["metadata"]["ownerReferences"][0]["kind"] == "AddressSpace"
    secret = cluster.get("secrets", "where", namespace=namespace)["data"]
    assert {key: base64.b64decode(value).decode() for key, value in secret.items()} == data
    service = cluster.get("services", "where", namespace=namespace)["spec"]
    assert service["externalName"] == "enmasse-router.x.svc.cluster.local"
    assert [(each["name"], each["port"]) for each in service["ports"]] == list(AMQP.items())
    assert pod.feed("permissions/changes")["spaces"]["one"]["hosts"] == [
        f"where.{namespace}", f"where.{namespace}.svc", f"where.{namespace}.svc.cluster.local"
    ]  # fmt: skip

    cluster.kubectl("delete", "configmap", "foreign", "--namespace", namespace)
    pod.kill()
    resources = pod.settings["driver"]["custom_resources"]
    resources["endpoints"] = {"messaging": {"host": "other.x.svc", "ports": {"amqps": 5671}}}
    pod.file.write_text(json.dumps(pod.settings))
    pod.start()
    pod.wait_ready()
    changed = {"service.host": "other.x.svc", "service.port.amqps": "5671", "ca.crt": CERTIFICATE.decode()}

    def are_changed() -> bool:
        found = {each["metadata"]["name"]: each.get("data") for each in objects(pod, "configmaps")}
        return found.get("where") == found.get("foreign") == changed

    wait_for("they are updated", are_changed)
    wait_for("and shown", lambda: not messages_of(0))
    assert "externalHost" not in statuses(pod, "addressspaces")["one"]["endpointStatuses"][0]
    service = cluster.get("services", "where", namespace=namespace)["spec"]
    assert service["externalName"] == "other.x.svc.cluster.local" and len(service["ports"]) == 1


def test_a_space_with_gateways_of_its_own_shows_them(pod: Pod) -> None:
    own = {"one": {"mqtt": {"host": "own.x.svc", "ports": {"mqtt": 1883}}}}
    pod.settings["driver"]["custom_resources"]["own"] = own
    pod.file.write_text(json.dumps(pod.settings))
    pod.cluster.apply(exporting("one"), exporting("two"), namespace=pod.namespace)
    pod.start()
    pod.wait_ready()
    found = wait_phases(pod, "addressspaces", one="Active", two="Active")
    shown = found["one"]["endpointStatuses"][1]
    assert shown["serviceHost"] == "own.x.svc" and shown["servicePorts"] == [{"name": "mqtt", "port": 1883}]
    assert "serviceHost" not in found["two"]["endpointStatuses"][1]


def test_a_tenant_takes_no_host_of_the_release_or_of_another_tenant(defined: Cluster, tmp_path: Path) -> None:
    namespace, one, two = (defined.namespace() for _ in range(3))
    assigned = {one: ["one"], two: ["two", "three", "four"]}

    def at(name: str, host: str) -> dict[str, Any]:
        return space(name, endpoints=[{"name": "messaging", "service": "messaging", "host": host}])

    defined.apply(
        config_map("enmasse-flavors", "flavors", {"flavors.json": FLAVORS_OF_ALL}),
        config_map("enmasse-addresses", "addresses", {}),
        namespace=namespace,
    )
    defined.apply(
        at("two", "shop.example.com"), at("three", "MQ.example.com"), at("four", "one.mq.example.com"), namespace=two
    )
    made = defined.get("addressspaces", "two", namespace=two)["metadata"]["creationTimestamp"]
    defined.apply(later := at("one", "shop.example.com"), namespace=one)
    while defined.get("addressspaces", "one", namespace=one)["metadata"]["creationTimestamp"] == made:
        defined.kubectl("delete", "addressspace", "one", "--namespace", one)
        defined.apply(later, namespace=one)
    with pods(tmp_path, defined, namespace, "one") as (pod,):
        resources = {"namespaces": assigned, "hosts": ["mq.example.com", "*.mq.example.com"]}
        pod.settings["driver"] = {"kind": "kubernetes", "namespace": namespace, "custom_resources": resources}
        pod.file.write_text(json.dumps(pod.settings))
        pod.start()
        pod.wait_ready()
        pod.namespace = two
        found = wait_phases(pod, "addressspaces", two="Active", three="Failed", four="Failed")
        assert "'mq.example.com' is a host of the release" in text(found["three"])
        assert "'one.mq.example.com' is a host of the release" in text(found["four"])
        pod.namespace = one
        found = wait_phases(pod, "addressspaces", one="Failed")
        assert "is a host of the address space 'two'" in text(found["one"])


def test_a_namespace_of_a_tenant_is_apart_from_others_and_can_be_deleted_at_any_time(
    defined: Cluster, tmp_path: Path
) -> None:
    namespace, one, two = (defined.namespace() for _ in range(3))
    assigned = {one: ["shop"], two: ["mill"]}
    options = ["--set=customResources.enabled=true", f"--set-json=customResources.namespaces={json.dumps(assigned)}"]
    user = grant(defined, namespace, "configserv", options=options)
    grant(defined, namespace, "custom-resources", "ClusterRole", options=[*options, *WITHOUT_DEFINITIONS])
    defined.apply(
        config_map("enmasse-flavors", "flavors", {"flavors.json": FLAVORS_OF_ALL}),
        config_map("enmasse-addresses", "addresses", {}),
        namespace=namespace,
    )
    defined.apply(space("shop"), address("shop.a"), address("b"), namespace=one)
    with pods(tmp_path, defined, namespace, "one", user=user) as (pod,):
        driver = {"kind": "kubernetes", "namespace": namespace}
        pod.settings["driver"] = {**driver, "custom_resources": {"namespaces": assigned}}
        pod.file.write_text(json.dumps(pod.settings))
        pod.start()
        pod.wait_ready()
        wait_for("they are read", lambda: set(pod.feed("addresses")["addresses"]) == {"!!shop/a", "!!shop/b"})
        # A name goes with what is stored under it: no other namespace has that space, nor the default one.
        defined.apply(
            space("shop"),
            space("mill"),
            address("shop.mine"),
            address("default.mine"),
            address("mill.a"),
            namespace=two,
        )
        pod.namespace = two
        stolen = wait_phases(pod, "addressspaces", shop="Failed")["shop"]
        assert "its namespace may not have an address space of this name" in text(stolen)
        wait_phases(pod, "addresses", shop_mine="Failed", default_mine="Failed")
        wait_phases(pod, "addresses", mill_a="Active")
        assert set(pod.feed("addresses")["addresses"]) == {"!!shop/a", "!!shop/b", "!!mill/a"}

        defined.kubectl("delete", "namespace", one, f"--timeout={DEADLINE}s")
        wait_for("its addresses are gone", lambda: set(pod.feed("addresses")["addresses"]) == {"!!mill/a"})
        assert wait_phases(pod, "addressspaces", shop="Failed"), "also then its name is no other's"


def test_hashes_of_a_password_are_its_own() -> None:
    """What `proves` is asked when a process is started again."""
    from enmasse.identity.proofs.passwords import hashed

    found = hashed("correct horse").password
    assert proves(found, "correct horse") and not proves(found, "wrong horse")
