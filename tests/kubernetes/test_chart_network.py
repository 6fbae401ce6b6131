"""The Helm chart: ports, services, network policies, and ways in from outside."""

from __future__ import annotations

import json

import pytest

from tests.kubernetes.charts import (
    BY_HAND,
    DISPATCH,
    EVERYTHING,
    ROUTES,
    SPARK,
    Object,
    all_pods,
    objects,
    pods,
    ports,
    rendered,
    values,
)
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.controlplane import Refused


def matches(selector: Object, labels: dict[str, str]) -> bool:
    assert set(selector) <= {"matchLabels", "matchExpressions"}
    for each in selector.get("matchExpressions", []):
        assert each["operator"] == "NotIn"
        if labels.get(each["key"]) in each["values"]:
            return False
    return all(labels.get(key) == value for key, value in selector["matchLabels"].items())


@values
def test_network_policies_name_pods_and_ports_that_there_are(cluster: Cluster, values: Object) -> None:
    found = rendered(cluster, values)
    made = all_pods(found, values)
    labels = {component: pod["metadata"]["labels"] for component, pod in made.items()}
    numbers_of = {component: set(ports(pod).values()) for component, pod in made.items()}
    own = {f"app.kubernetes.io/{key}": value for key, value in (("part-of", "enmasse"), ("instance", "enmasse"))}
    labels.setdefault("broker", {**own, "app.kubernetes.io/component": "broker"})  # one made by hand
    numbers_of.setdefault("broker", {5672})
    for component, of in labels.items():
        assert of["app.kubernetes.io/component"] == component

    policies = objects(found, "NetworkPolicy")
    default = policies.pop("enmasse-default")
    assert all(matches(default["spec"]["podSelector"], of) for of in labels.values())
    inside, outside = set(), set()
    for name, policy in policies.items():
        spec = policy["spec"]
        targets = [each for each in labels if matches(spec["podSelector"], labels[each])]
        assert targets, name
        for rule in spec.get("ingress", []):
            numbers = {port["port"] for port in rule["ports"]}
            assert all(numbers <= numbers_of[target] for target in targets), name
            for peer in rule["from"]:
                sources = [each for each in labels if "matchLabels" in peer.get("podSelector", {})
                           and matches(peer["podSelector"], labels[each])]  # fmt: skip
                inside |= {(source, target, n) for source in sources for target in targets for n in numbers}
        for rule in spec.get("egress", []):
            for peer in rule.get("to", []):
                if "podSelector" in peer:
                    reached = [each for each in labels if matches(peer["podSelector"], labels[each])]
                    assert reached, name
                    numbers = {port["port"] for port in rule["ports"]}
                    outside |= {(source, target, n) for source in targets for target in reached for n in numbers}
    assert inside == outside, "what one end may open the other accepts"
    assert ("router", "ragent", 5672) in inside
    assert ("subserv", "redis", 6379) in inside or values in (BY_HAND, DISPATCH)
    assert (("spark-executor", "spark-pipeline", 7080) in inside) is (values is SPARK)


@values
def test_metrics_are_read_where_pods_have_them(cluster: Cluster, values: Object) -> None:
    """The PodMonitor, and the policy that lets Prometheus in, select each pod with a port `health`, and no others."""
    monitored = {**values, "monitoring": {"enabled": True}}
    monitored["networkPolicy"] = {**values.get("networkPolicy", {}), "metrics": [{"podSelector": {}}]}
    found = rendered(cluster, monitored)
    monitor = objects(found, "PodMonitor")["enmasse"]["spec"]
    policy = objects(found, "NetworkPolicy")["enmasse-metrics"]["spec"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    for component, pod in all_pods(found, values).items():
        labels, has = pod["metadata"]["labels"], endpoint["port"] in ports(pod)
        assert matches(monitor["selector"], labels) is has, component
        assert matches(policy["podSelector"], labels) is has, component
        assert not has or ports(pod)["health"] == policy["ingress"][0]["ports"][0]["port"]


@values
def test_services_lead_to_ports_that_there_are(cluster: Cluster, values: Object) -> None:
    found = rendered(cluster, values)
    made = pods(found)
    services = objects(found, "Service")
    for name, service in services.items():
        targets = [
            pod
            for pod in made.values()
            if matches({"matchLabels": service["spec"]["selector"]}, pod["metadata"]["labels"])
        ]
        assert len(targets) == 1, name
        named = {port["name"] for container in targets[0]["spec"]["containers"] for port in container["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= named
    # What the services dial, by the names in their settings.
    for each in found:
        text = (each.get("data") or each.get("stringData") or {}).get("settings.json", "{}")
        settings = json.loads(text)
        for field in ("router", "configserv"):
            if isinstance(settings, dict) and isinstance(settings.get(field), str):
                host, _, port = settings[field].partition(":")
                assert int(port) in {p["port"] for p in services[host]["spec"]["ports"]}


@values
def test_only_ports_with_tls_lead_outside(cluster: Cluster, values: Object) -> None:
    found = rendered(cluster, values, "--api-versions=route.openshift.io/v1")
    for name, service in objects(found, "Service").items():
        if service["spec"].get("type") != "ClusterIP" and service["spec"].get("clusterIP") != "None":
            assert {port["name"] for port in service["spec"]["ports"]} <= ROUTES.keys(), name
    for route in objects(found, "Route").values():
        assert route["spec"]["tls"] == {"termination": "passthrough", "insecureEdgeTerminationPolicy": "None"}
        assert route["spec"]["port"]["targetPort"] in ROUTES
    for ingress in objects(found, "Ingress").values():
        assert ingress["spec"]["tls"]
        assert ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["port"]["name"] in ROUTES
    assert len(objects(found, "Route")) == (len(ROUTES) if values is EVERYTHING else 0)
    assert len(objects(found, "Ingress")) == (len(ROUTES) if values is EVERYTHING else 0)
    for pod in pods(found).values():
        assert not pod["spec"].get("hostNetwork")
        assert not any("hostPort" in port for c in pod["spec"]["containers"] for port in c.get("ports", []))


@pytest.mark.parametrize("way", ["routes", "ingress", "loadBalancer"])
def test_exposure_needs_users(cluster: Cluster, way: str) -> None:
    hosts = {} if way == "loadBalancer" else {"hosts": {"amqps": "a.example.com"}}
    exposed = {way: {"enabled": True, **hosts}}
    with pytest.raises(Refused, match=r"set users\.enabled=true"):
        rendered(cluster, exposed)
    for users in ({"enabled": True}, {"allowAnonymous": True}):
        assert rendered(cluster, {**exposed, "users": users})


@pytest.mark.parametrize("way", ["routes", "ingress"])
def test_the_console_is_exposed_for_users_only(cluster: Cluster, way: str) -> None:
    """Without users it answers on loopback only: a way that leads to refusals is no way."""
    exposed = {way: {"enabled": True, "hosts": {"https": "c.example.com"}}, "users": {"allowAnonymous": True}}
    for enabled in (True, False):
        with pytest.raises(Refused, match=r"set console\.enabled=true and users\.enabled=true"):
            rendered(cluster, {**exposed, "console": {"enabled": enabled}})
    balanced = {"loadBalancer": {"enabled": True}, "users": {"allowAnonymous": True}, "console": {"enabled": True}}
    assert "enmasse-console-external" not in objects(rendered(cluster, balanced), "Service")


@pytest.mark.parametrize("way", ["routes", "ingress"])
def test_exposure_needs_host_names(cluster: Cluster, way: str) -> None:
    with pytest.raises(Refused, match=f"set {way}.hosts.amqps"):
        rendered(cluster, {way: {"enabled": True}})
