"""The Helm chart: what it makes is accepted by an API server, is what the services read, and does what it promises."""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from enmasse.identity.process_certificates import Certificate, CertifiedPeers, peer_of
from enmasse.identity.roles import Peer, Role
from enmasse.settings import ServiceSettings
from enmasse.spark import pods as spark_pods
from enmasse.spark.pipeline import arguments as pipeline_arguments
from enmasse.testing import wait_for
from services.authserv.app import AuthservSettings
from services.configserv.service import ConfigservSettings
from services.console.settings import ConsoleSettings
from services.mqtt_gateway.settings import GatewaySettings
from services.mqtt_lwt.service import LastWillSettings
from services.ragent.agent import RouterAgentSettings
from services.router.config import RouterSettings
from services.storage_controller.controller import ControllerSettings
from services.storage_controller.drivers import Manifest
from services.storage_controller.drivers.objects import Place, read_templates
from services.storage_controller.drivers.objects import objects as objects_of_broker
from services.subserv.app import SubservSettings
from tests.certificates import Authority
from tests.kubernetes.binaries import binary
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.controlplane import Refused
from tests.kubernetes.schemas import check

ROOT = Path(__file__).parent.parent.parent
CHART = ROOT / "charts" / "enmasse"
SETTINGS: dict[str, type[ServiceSettings]] = {
    "configserv": ConfigservSettings,
    "ragent": RouterAgentSettings,
    "router": RouterSettings,
    "storage-controller": ControllerSettings,
    "mqtt-gateway": GatewaySettings,
    "subserv": SubservSettings,
    "mqtt-lwt": LastWillSettings,
    "authserv": AuthservSettings,
    "console": ConsoleSettings,
}
PEOPLE: dict[str, Any] = {
    "developers": [{"kind": "Group", "name": "developers"}],
    "administrators": [{"kind": "User", "name": "bob"}, {"kind": "ServiceAccount", "name": "deployer"}],
}
ROUTES = {port: f"{port}.example.com" for port in ("amqps", "mqtts", "wss", "https")}
INGRESSES = {port: f"{port}.example.net" for port in ROUTES}
EVERYTHING: dict[str, Any] = {
    "logLevel": "debug",
    "image": {"pullSecrets": ["registry"], "repository": "registry.example.com/team", "tag": "1.2.3"},
    "configuration": {"addresses": ["team-a"], "flavors": ["special"]},
    "people": PEOPLE,
    "routes": {"enabled": True, "hosts": ROUTES},
    "ingress": {"enabled": True, "hosts": INGRESSES},
    "loadBalancer": {"enabled": True, "sourceRanges": ["10.0.0.0/8"], "annotations": {"a": "b"}},
    "networkPolicy": {
        "operators": [{"podSelector": {"matchLabels": {"who": "operator"}}}],
        "metrics": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "externalBrokers": [{"ipBlock": {"cidr": "192.0.2.0/24"}}],
        "issuers": [{"ipBlock": {"cidr": "198.51.100.0/24"}}],
        "collectors": [{"ipBlock": {"cidr": "203.0.113.0/24"}}],
    },
    "broker": {
        "storageClass": "fast",
        "templates": {"small": {"storageSize": "1Gi"}, "big": {"nodeSelector": {"disk": "ssd"}}},
    },
    "router": {
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "podLabels": {"x": "y"},
        "podAnnotations": {"x": "y"},
        "priorityClassName": "system-cluster-critical",
    },
    "mqttGateway": {"replicas": None, "limits": {"connections": 5}},
    "users": {"enabled": True},
    "console": {"enabled": True},
    "traces": {
        "enabled": True,
        "environment": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"},
        "existingSecret": "collector",
    },
}
ANONYMOUS: dict[str, Any] = {
    "users": {"allowAnonymous": True},
    "loadBalancer": {"enabled": True},
    "sparkPipeline": {"enabled": True, "subscription": "s"},
}
BY_HAND: dict[str, Any] = {
    "storageController": {"enabled": False},
    "mqtt": {"enabled": False},
    "redis": {"enabled": False},
    "tls": {"enabled": False},
    "identity": {"enabled": False},
    "console": {"enabled": True},
}
DISPATCH: dict[str, Any] = {
    "router": {"engine": "qdrouterd", "replicas": 3, "image": "registry.example.com/qdrouterd:1.19"},
    "broker": {"engine": "artemis"},
    "redis": {"enabled": False, "url": "rediss://user:secret@redis.example.com:6390/1"},
    "tls": {"existingSecret": "ours"},
    "openshift": "true",
}
SPARK: dict[str, Any] = {
    "sparkPipeline": {
        "enabled": True,
        "accessMode": "ReadWriteMany",
        "executors": {"replicas": 3, "nodeSelector": {"a": "b"}, "podLabels": {"x": "y"}, "podAnnotations": {"x": "y"}},
    },
    "image": {"pullSecrets": ["registry"]},
}
"""With executors as pods."""
VALUES = {
    "defaults": {},
    "everything": EVERYTHING,
    "anonymous": ANONYMOUS,
    "executors": SPARK,
    "brokers by hand": BY_HAND,
    "other engines": DISPATCH,
}
values = pytest.mark.parametrize("values", VALUES.values(), ids=list(VALUES))

Object = dict[str, Any]


def rendered(cluster: Cluster, values: Object, *options: str) -> list[Object]:
    """The objects of the release `enmasse`, hooks too."""
    text = cluster.helm("template", "enmasse", str(CHART), "--values=-", *options, stdin=json.dumps(values))
    return [found for found in yaml.safe_load_all(text) if found]


def objects(found: list[Object], kind: str) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in found if each["kind"] == kind}


def pods(found: list[Object]) -> dict[str, Object]:
    """Component → pod, as its workload or hook states it; of brokers what the storage controller makes."""
    made = {}
    for each in found:
        if each["kind"] in ("Deployment", "StatefulSet"):
            made[each["metadata"]["labels"]["app.kubernetes.io/component"]] = each["spec"]["template"]
        elif each["kind"] == "Pod":
            made["test"] = each
    return made


def executor(found: list[Object]) -> Object | None:
    """The template of the pods of executors, if there is one."""
    text = objects(found, "ConfigMap").get("enmasse-spark-pipeline", {"data": {}})["data"].get("executor.yaml")
    return None if text is None else dict(yaml.safe_load(text))


def broker(found: list[Object], values: Object) -> Object | None:
    """A broker's pod as the storage controller makes it of its settings; None without one."""
    controller = objects(found, "ConfigMap").get("enmasse-storage-controller")
    if controller is None:
        return None
    template = json.loads(controller["data"]["templates.json"])["default"]
    settings = {"persisted": True, "global_max_size": 1, "capacity": 0, "settings": {}}
    content = {"engine": values.get("broker", {}).get("engine", "embedded"), "settings": settings, "template": template}
    place = Place(
        "enmasse", "messaging", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "o", "uid": "u"}}
    )
    made = objects_of_broker(place, "b", Manifest("f", "data-b-0", content), None)
    return dict(next(body for kind, body in made if kind.name == "StatefulSet")["spec"]["template"])


def all_pods(found: list[Object], values: Object) -> dict[str, Object]:
    """Component → pod: those of the chart, of the storage controller and of the Spark driver."""
    others = {"broker": broker(found, values), "spark-executor": executor(found)}
    return {**pods(found), **{name: pod for name, pod in others.items() if pod is not None}}


def ports(pod: Object) -> dict[str, int]:
    """Name → number. Spark adds the one port of its executors."""
    own = [port for container in pod["spec"]["containers"] for port in container.get("ports", [])]
    if pod["metadata"]["labels"]["app.kubernetes.io/component"] == "spark-executor":
        own = [{"name": "blockmanager", "containerPort": 7079}]
    return {port["name"]: port["containerPort"] for port in own}


@pytest.fixture(scope="module")
def schemas(cluster: Cluster) -> Path:
    cluster.define_routes()
    return cluster.schemas()


def test_lint(cluster: Cluster) -> None:
    cluster.helm("lint", "--strict", str(CHART))


def test_the_readme_is_made_from_the_values() -> None:
    command = [binary("helm-docs"), "--chart-search-root", str(CHART), "--log-level", "error", "--dry-run"]
    made = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert made.strip() == (CHART / "README.md").read_text().strip(), "`make chart-docs` was not called"


@values
def test_an_api_server_accepts_it_without_a_warning(cluster: Cluster, schemas: Path, values: Object) -> None:
    namespace = cluster.namespace()
    text = cluster.helm(
        "template", "enmasse", str(CHART), "--values=-", f"--namespace={namespace}",
        "--api-versions=route.openshift.io/v1", stdin=json.dumps(values),
    )  # fmt: skip
    assert check(text, schemas) > 20
    assert cluster.warned("apply", "--dry-run=server", "--namespace", namespace, "-f", "-", stdin=text) == ""


@values
def test_services_accept_their_settings(cluster: Cluster, values: Object) -> None:
    found = rendered(cluster, values)
    read = set()
    for each in found:
        text = (each.get("data") or each.get("stringData") or {}).get("settings.json")
        component = each["metadata"].get("labels", {}).get("app.kubernetes.io/component")
        if text is None or (component == "router" and values is DISPATCH):
            continue
        settings = msgspec.json.decode(text, type=SETTINGS[component])
        assert settings.health == "0.0.0.0:8080"
        read.add(component)
    wanted = set(SETTINGS)
    if values is BY_HAND:
        wanted -= {"storage-controller", "mqtt-gateway", "subserv", "mqtt-lwt"}
    if values is not EVERYTHING:
        wanted.remove("authserv")
    if values not in (EVERYTHING, BY_HAND):
        wanted.remove("console")
    assert read == (wanted - {"router"} if values is DISPATCH else wanted)


@values
def test_the_storage_controller_accepts_its_templates(cluster: Cluster, values: Object, tmp_path: Path) -> None:
    controller = objects(rendered(cluster, values), "ConfigMap").get("enmasse-storage-controller")
    if values is BY_HAND:
        assert controller is None
        return
    assert controller is not None
    file = tmp_path / "templates.json"
    file.write_text(controller["data"]["templates.json"])
    found = read_templates(str(file))
    assert set(found) == ({"default", "small", "big"} if values is EVERYTHING else {"default"})
    assert found["default"].get("identitySecret") == "enmasse-broker-identity"
    assert found["default"]["image"].endswith(
        "/artemis:0.1.0" if values is DISPATCH else "/broker:" + ("1.2.3" if values is EVERYTHING else "0.1.0")
    )
    if values is EVERYTHING:
        assert found["default"]["traces"] == {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
        assert (found["small"]["storageSize"], found["small"]["storageClass"]) == ("1Gi", "fast")
        assert found["big"]["nodeSelector"] == {"disk": "ssd"}


ISSUED = {"identity": {"issuer": {"name": "suite", "kind": "ClusterIssuer"}}}
COMPONENTS = {component: component.replace("-", "_") for component in (*SETTINGS, "broker", "operator")}
"""Component → role."""


def folders(found: list[Object], folder: Path) -> dict[str, Path]:
    """Component → the certificate of its processes, as it is mounted."""
    made = {}
    for name, secret in objects(found, "Secret").items():
        component = name.removeprefix("enmasse-").removesuffix("-identity")
        if name.endswith("-identity"):
            assert secret["type"] == "kubernetes.io/tls"
            made[component] = folder / component
            made[component].mkdir()
            for file, data in secret["data"].items():
                (made[component] / file).write_bytes(base64.b64decode(data))
    return made


def test_certificates_of_processes_have_their_roles_and_hosts(cluster: Cluster, tmp_path: Path) -> None:
    """Each service that listens proves itself to the others under the names in their settings; no other one can."""
    found = rendered(cluster, {"users": {"enabled": True}, "console": {"enabled": True}})
    certificates = folders(found, tmp_path)
    assert set(certificates) == set(COMPONENTS)
    dialled = {
        "configserv": "enmasse-configserv", "ragent": "enmasse-ragent", "router": "enmasse-router",
        "broker": "enmasse-orders-0.default.svc", "authserv": "enmasse-authserv",
    }  # fmt: skip
    for component, folder in certificates.items():
        listener = CertifiedPeers(folder).tls
        for other, host in dialled.items():
            peer = handshake(listener, Certificate(certificates["storage-controller"]).tls(), host)
            if component == other:
                assert peer == Peer("enmasse-storage-controller", Role.STORAGE_CONTROLLER, of_service=True)
            else:
                assert peer is None, (component, host)
    listener = CertifiedPeers(certificates["configserv"]).tls
    for component, role in COMPONENTS.items():
        peer = handshake(listener, Certificate(certificates[component]).tls(), "enmasse-configserv")
        assert peer == Peer(f"enmasse-{component}", Role(role), of_service=True)
        assert peer.may_be(f"enmasse-{component}-5d9f-abcde")


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> Peer | None:
    """Return the peer that a listener sees; None if either side refuses the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                return None
    return peer_of(ends[1].getpeercert())


def test_pods_have_the_certificate_of_their_component(cluster: Cluster) -> None:
    """Every pod has the certificate of its own component, read-only, and no other."""
    found = rendered(cluster, {})
    for component, pod in pods(found).items():
        secrets = {v["secret"]["secretName"] for v in pod["spec"]["volumes"] if "secret" in v}
        identities = {name for name in secrets if "identity" in name}
        own = {"test": "enmasse-operator-identity"}.get(component, f"enmasse-{component}-identity")
        assert identities == (set() if component in ("redis", "spark-pipeline") else {own}), component
    executors = executor(rendered(cluster, SPARK))
    assert executors is not None
    assert [each.get("secret") for each in executors["spec"]["volumes"] if "secret" in each] == [
        {"secretName": "enmasse-spark-pipeline"}
    ]
    without = rendered(cluster, {"identity": {"enabled": False}})
    assert "identity" not in json.dumps([each for each in without if each["kind"] != "ConfigMap"])


def test_certificates_of_cert_manager(cluster: Cluster) -> None:
    found = rendered(cluster, {**ISSUED, "users": {"enabled": True}, "console": {"enabled": True}})
    assert not [name for name in objects(found, "Secret") if "identity" in name]
    made = objects(found, "Certificate")
    assert {name.removeprefix("enmasse-").removesuffix("-identity") for name in made} == set(COMPONENTS)
    for each in made.values():
        spec = each["spec"]
        role, _, name = spec["commonName"].partition("/")
        assert spec["secretName"] == each["metadata"]["name"] == f"{name}-identity" and role in COMPONENTS.values()
        assert spec["issuerRef"] == {"name": "suite", "kind": "ClusterIssuer", "group": "cert-manager.io"}
        assert {"server auth", "client auth"} <= set(spec["usages"])
    with pytest.raises(Refused, match="cert-manager allows 64 characters"):
        long = cluster.helm("template", "r" * 30, str(CHART), "--values=-", stdin=json.dumps(ISSUED))
        assert not long


def test_the_password_of_redis_is_in_no_config_map(cluster: Cluster) -> None:
    found = rendered(cluster, DISPATCH)
    with_password = [each for each in found if "secret@redis" in json.dumps(each)]
    assert {each["kind"] for each in with_password} == {"Secret"} and len(with_password) == 2


@values
def test_secret_variables_of_traces_are_in_the_pods_that_trace(cluster: Cluster, values: Object) -> None:
    """Router, gateway and embedded brokers; Dispatch and Artemis make no spans."""
    traces = EVERYTHING["traces"] if values is DISPATCH else values.get("traces", {})
    made = all_pods(rendered(cluster, {**values, "traces": traces}), values)
    found = {
        component: container["envFrom"]
        for component, pod in made.items()
        for container in pod["spec"]["containers"] + pod["spec"].get("initContainers", [])
        if "envFrom" in container
    }
    tracing = ["mqtt-gateway"] if values is DISPATCH else ["router", "broker", "mqtt-gateway"]
    assert found == {each: [{"secretRef": {"name": "collector"}}] for each in tracing if traces}


def test_redis_wants_a_password_that_its_clients_have(cluster: Cluster) -> None:
    """A file of each, from a Secret that others do not have."""
    found = rendered(cluster, {})
    secret = objects(found, "Secret")["enmasse-redis"]["data"]
    password = base64.b64decode(secret["password"]).decode()
    assert len(password) == 40
    assert base64.b64decode(secret["redis.conf"]).decode() == f"requirepass {password}\n"
    have = {}
    for component, pod in pods(found).items():
        for volume in pod["spec"]["volumes"]:
            if volume.get("secret", {}).get("secretName") == "enmasse-redis":
                have[component] = [each["key"] for each in volume["secret"]["items"]]
    assert have == {"redis": ["redis.conf"], "subserv": ["password"], "mqtt-lwt": ["password"]}
    assert "enmasse-redis" not in objects(rendered(cluster, DISPATCH), "Secret")


@values
def test_pods_are_restricted(cluster: Cluster, values: Object) -> None:
    """What the `restricted` standard does not ask for, too: a read-only root, no token without need, any uid."""
    found = rendered(cluster, values)
    with_token = ("configserv", "storage-controller", *(("spark-pipeline",) if values is SPARK else ()))
    for component, pod in all_pods(found, values).items():
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is (component in with_token)
        assert "runAsUser" not in spec["securityContext"] or component == "redis"
        assert ("fsGroup" in spec["securityContext"]) is (values is not DISPATCH)  # left to OpenShift
        for container in spec["containers"] + spec.get("initContainers", []):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert "runAsUser" not in container["securityContext"]
            if component not in ("broker", "spark-executor"):  # by the flavor; by Spark
                assert set(container["resources"]) >= {"requests", "limits"}


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


def test_the_pipeline_is_a_user_where_clients_are(cluster: Cluster) -> None:
    """Its driver, and its executors, which send results, have the password as a file, and nothing else has it."""
    release = {**SPARK, "users": {"enabled": True}}
    for own, name, secret in (
        ({}, "spark-pipeline", "enmasse-spark-pipeline-user"),
        ({"user": {"name": "meter", "secret": "ours"}}, "meter", "ours"),
    ):
        found = rendered(cluster, {**release, "sparkPipeline": {**SPARK["sparkPipeline"], **own}})
        (driver,) = pods(found)["spark-pipeline"]["spec"]["containers"]
        given = pipeline_arguments(driver["args"])
        assert given.user == name
        have = {}
        for component, pod in all_pods(found, release).items():
            for volume in pod["spec"]["volumes"]:
                if volume.get("secret", {}).get("secretName") == secret:
                    (container,) = pod["spec"]["containers"]
                    (place,) = [
                        each["mountPath"] for each in container["volumeMounts"] if each["name"] == volume["name"]
                    ]
                    have[component] = [f"{place}/{item['path']}" for item in volume["secret"]["items"]]
        assert have == {each: [given.password_file] for each in ("spark-pipeline", "spark-executor")}
        assert secret not in objects(found, "Secret"), "it is made by the commands in docs/kubernetes.md"
    (driver,) = pods(rendered(cluster, SPARK))["spark-pipeline"]["spec"]["containers"]
    assert pipeline_arguments(driver["args"]).user == ""


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


def test_executors_are_described_to_spark(cluster: Cluster) -> None:
    found = rendered(cluster, SPARK)
    config = dict(
        line.split(" ", 1)
        for line in objects(found, "ConfigMap")["enmasse-spark-pipeline"]["data"]["spark.conf"].splitlines()
    )
    driver = pods(found)["spark-pipeline"]["spec"]
    (container,) = driver["containers"]
    assert (config["spark.executor.instances"], config["spark.kubernetes.container.image"]) == ("3", container["image"])
    assert config["spark.authenticate"] == config["spark.network.crypto.enabled"] == "true"
    assert (config["spark.driver.port"], config["spark.blockManager.port"]) == ("7078", "7079")
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    for name in ("spark.authenticate.secret.file", "spark.kubernetes.executor.podTemplateFile"):
        assert str(Path(config[name]).parent) in mounts
    assert f"--flight-port={ports(pods(found)['spark-pipeline'])['spool']}" in container["args"]
    variables = {each["name"]: each.get("value", "") for each in container["env"]}
    assert f"--master {variables['SPARK_MASTER']} " in variables["PYSPARK_SUBMIT_ARGS"]
    made = executor(found)
    assert made is not None
    labels = dict(pair.split("=") for pair in variables[spark_pods.EXECUTORS].split(","))
    assert labels.items() <= made["metadata"]["labels"].items()
    (theirs,) = made["spec"]["containers"]
    assert [each["subPath"] for each in theirs["volumeMounts"] if each["name"] == "state"] == ["pipeline/checkpoint"]
    assert "affinity" in made["spec"] and "podAffinity" not in made["spec"]["affinity"]
    once = {**SPARK, "sparkPipeline": {**SPARK["sparkPipeline"], "accessMode": "ReadWriteOnce"}}
    beside = executor(rendered(cluster, once))
    assert beside is not None
    assert list(beside["spec"]["affinity"]) == ["podAffinity"], "on the driver's node, which has the volume"


def test_an_executor_has_the_command_that_its_environment_describes() -> None:
    environment = {
        "JAVA_HOME": "/java", "SPARK_HOME": "/spark", "SPARK_EXECUTOR_MEMORY": "512m", "SPARK_JAVA_OPT_10": "-Dlast",
        "SPARK_JAVA_OPT_2": "-Dmiddle", "SPARK_JAVA_OPT_0": "-Dfirst",
        **{name: name.lower() for name in spark_pods.ARGUMENTS.values()},
    }  # fmt: skip
    command = spark_pods.executor(environment)
    assert command[2:7] == ["-Dfirst", "-Dmiddle", "-Dlast", "-Xms512m", "-Xmx512m"]
    assert command[command.index("--hostname") + 1] == "spark_executor_pod_ip"
    del environment["SPARK_DRIVER_URL"]
    with pytest.raises(KeyError, match="SPARK_DRIVER_URL"):
        spark_pods.executor(environment)


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


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"router": {"replicas": 2}}, "/router/replicas"),
        ({"router": {"engine": "qdrouterd"}}, "/router/image"),
        ({"ragent": {"replicas": 2}}, "/ragent/replicas"),
        ({"subserv": {"replicas": 2}}, "/subserv/replicas"),
        ({"console": {"replicas": 2}}, "/console/replicas"),
        ({"mqttLwt": {"replicas": 2}}, "/mqttLwt/replicas"),
        ({"tls": {"enabled": False}, "routes": {"enabled": True}}, "/tls/enabled"),
        ({"tls": {"enabled": False}, "ingress": {"enabled": True}}, "/tls/enabled"),
        ({"tls": {"enabled": False}, "loadBalancer": {"enabled": True}}, "/tls/enabled"),
        ({"redis": {"enabled": False}}, "/redis/url"),
        ({"redis": {"url": "redis://elsewhere:6379"}}, "/redis/enabled"),
        ({"redis": {"enabled": False, "url": "http://elsewhere"}}, "/redis/url"),
        ({"routes": {"hosts": {"amqps": "no host"}}}, "/routes/hosts/amqps"),
        ({"broker": {"engine": "rabbit"}}, "/broker/engine"),
        ({"broker": {"templates": {"default": {}}}}, "propertyName 'default'"),
        ({"broker": {"storageSize": "10K"}}, "/broker/storageSize"),
        ({"router": {"resources": {"limits": {"memory": "much"}}}}, "/router/resources/limits/memory"),
        ({"router": {"replicsa": 1}}, "replicsa"),
        ({"users": {"enabled": True}, "identity": {"enabled": False}}, "/identity/enabled"),
        ({"users": {"enabled": True}, "router": {"engine": "qdrouterd", "image": "i"}}, "/router/engine"),
        ({"sparkPipeline": {"user": {"name": ""}}}, "/sparkPipeline/user/name"),
        ({"identity": {"issuer": {"kind": "Secret"}}}, "/identity/issuer/kind"),
        ({"sparkPipeline": {"executors": {"replicas": -1}}}, "/sparkPipeline/executors/replicas"),
        ({"sparkPipeline": {"executors": {"memory": "1Gi"}}}, "/sparkPipeline/executors/memory"),
        ({"sparkPipeline": {"accessMode": "ReadOnlyMany"}}, "/sparkPipeline/accessMode"),
    ],
)
def test_the_schema_refuses(cluster: Cluster, wrong: Object, field: str) -> None:
    with pytest.raises(Refused, match=field):
        rendered(cluster, wrong)


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


def test_configserv_writes_the_releases_configuration_only_for_a_console(cluster: Cluster) -> None:
    for enabled in (True, False):
        values = {"console": {"enabled": enabled}, "configuration": {"addresses": ["team-a"]}}
        rules = objects(rendered(cluster, values), "Role")["enmasse-configserv"]["rules"]
        updated = [
            rule["resourceNames"] for rule in rules if "update" in rule["verbs"] and "configmaps" in rule["resources"]
        ]
        assert updated == ([["enmasse-addresses", "team-a", "enmasse-flavors"]] if enabled else [])


@pytest.mark.parametrize("way", ["routes", "ingress"])
def test_exposure_needs_host_names(cluster: Cluster, way: str) -> None:
    with pytest.raises(Refused, match=f"set {way}.hosts.amqps"):
        rendered(cluster, {way: {"enabled": True}})


@pytest.mark.parametrize(
    "wrong",
    [
        {"addresses": ["enmasse-flavors"]},
        {"addresses": ["team"], "flavors": ["team"]},
        {"addresses": ["enmasse-router"]},
        {"addresses": ["enmasse-flavors-status"]},
    ],
)
def test_developers_get_no_configmap_that_is_not_of_addresses(cluster: Cluster, wrong: Object) -> None:
    with pytest.raises(Refused, match=f"the name {(wrong.get('flavors') or wrong['addresses'])[0]} is taken"):
        rendered(cluster, {"configuration": wrong})


def configured(cluster: Cluster, namespace: str, name: str, file: str, user: str = "admin") -> str:
    """Writes a file into a ConfigMap as docs/kubernetes.md says."""
    made = cluster.kubectl(
        "create",
        "configmap",
        name,
        f"--from-file={file}",
        "--dry-run=client",
        "--output=json",
        "--namespace",
        namespace,
    )
    return cluster.kubectl(
        "apply", "--server-side", "--force-conflicts", "--namespace", namespace, "-f", "-", user=user, stdin=made
    )


def test_notes_name_the_ways_to_the_console(cluster: Cluster) -> None:
    place = ("--dry-run=server", "--namespace", cluster.namespace(), "--values=-")

    def notes(values: Object) -> str:
        shown = cluster.helm("install", "enmasse", str(CHART), *place, stdin=json.dumps(values))
        return shown.partition("NOTES:")[2]

    for_users = notes({"console": {"enabled": True}, "users": {"enabled": True}, "loadBalancer": {"enabled": True}})
    assert "https://enmasse-console:8443" in for_users and "https://HOST:8443" in for_users
    assert "port-forward deployment/enmasse-console 8081" in notes(
        {"console": {"enabled": True}, "tls": {"enabled": False}}
    )
    assert "onsole" not in notes({})


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Iterator[str]:
    """The namespace of a release."""
    namespace = cluster.namespace("chart")
    values = json.dumps({"people": PEOPLE, "configuration": {"addresses": ["team-a"]}})
    cluster.helm("install", "enmasse", str(CHART), "--wait", "--values=-", "--namespace", namespace, stdin=values)
    yield namespace


def test_a_namespace_takes_one_installation(cluster: Cluster, installed: str) -> None:
    with pytest.raises(Refused, match=f"namespace {installed} has configmap/enmasse-addresses of release enmasse"):
        cluster.helm("install", "second", str(CHART), "--namespace", installed)
    relabel = ("label", "configmap", "team-a", "--overwrite", "--namespace", installed)
    cluster.kubectl(*relabel, "app.kubernetes.io/instance=second", user="alice")
    upgrade = ("upgrade", "enmasse", str(CHART), "--reuse-values", "--dry-run=server", "--namespace", installed)
    assert "name: team-a" in cluster.helm(*upgrade), "a developer's label does not keep an administrator from upgrades"
    cluster.kubectl(*relabel, "app.kubernetes.io/instance=enmasse", user="alice")


def test_people_have_the_rights_of_their_role(cluster: Cluster, installed: str, tmp_path: Path) -> None:
    file = tmp_path / "addresses.json"
    file.write_text('{"orders": {"type": "anycast"}}')
    flavors = tmp_path / "flavors.json"
    flavors.write_text("{}")

    for name in ("enmasse-addresses", "team-a"):
        configured(cluster, installed, name, str(file), "alice")
    assert cluster.get("configmap", "team-a", namespace=installed)["data"]["addresses.json"] == file.read_text()
    with pytest.raises(Refused, match="forbidden"):
        configured(cluster, installed, "enmasse-flavors", str(flavors), "alice")
    for name, path in (("enmasse-addresses", file), ("enmasse-flavors", flavors)):
        configured(cluster, installed, name, str(path), "bob")
    # A look at what administrators decide, at the status, and at nothing else.
    assert "flavors.json" in cluster.kubectl(
        "get", "configmap", "enmasse-flavors", "-n", installed, "-o", "json", user="alice"
    )

    def may(user: str, verb: str, what: str) -> bool:
        try:
            return cluster.kubectl("auth", "can-i", verb, what, "--namespace", installed, user=user).strip() == "yes"
        except Refused:  # "no" is also an exit status
            return False

    for user in ("alice", "bob"):
        assert may(user, "get", "configmap/enmasse-addresses-status")
        for verb in ("get", "update", "patch", "delete"):
            assert not may(user, verb, "configmap/enmasse-router")
            assert not may(user, verb, "secret/enmasse-tls")
        assert not may(user, "delete", "configmap/enmasse-addresses")
        assert not may(user, "create", "configmaps")
        assert not may(user, "list", "configmaps")
        assert not may(user, "create", "pods") and not may(user, "get", "pods")


def test_services_have_the_rights_they_need(cluster: Cluster, installed: str) -> None:
    def rights(service: str) -> set[str]:
        text = cluster.kubectl(
            "auth", "can-i", "--list", "--namespace", installed, user=f"{installed}/enmasse-{service}"
        )
        ours = (
            "configmaps",
            "secrets",
            "statefulsets",
            "services",
            "pods",
            "leases",
            "events",
            "persistent",
            "deployments",
        )
        return {line.split()[0] for line in text.splitlines() if line.startswith(ours)}

    assert rights("configserv") == {"configmaps", "leases.coordination.k8s.io", "events"}
    assert rights("storage-controller") == {
        "configmaps", "services", "pods", "persistentvolumeclaims", "statefulsets.apps",
        "leases.coordination.k8s.io", "events",
    }  # fmt: skip
    for service in ("router", "ragent", "mqtt-gateway", "subserv", "mqtt-lwt", "redis", "broker"):
        assert rights(service) == set(), service


def test_a_driver_deletes_the_pods_of_its_executors_and_may_do_nothing_but_with_pods(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its account in its pod; all other pods stay."""
    namespace = cluster.namespace("spark")
    place = ("--namespace", namespace)
    only = ("--set=mqtt.enabled=false", "--set=redis.enabled=false")
    cluster.helm("install", "enmasse", str(CHART), "--values=-", *only, *place, stdin=json.dumps(SPARK))

    def may(account: str) -> list[str]:
        lines = cluster.kubectl("auth", "can-i", "--list", *place, user=f"{namespace}/enmasse-{account}").splitlines()
        return [line for line in lines if not line.startswith(("NAME", "Resources", " ", "selfsubject", "["))]

    (pods_only,) = may("spark-pipeline")
    assert pods_only.split()[0] == "pods" and pods_only.endswith("[get list watch create delete deletecollection]")
    assert may("spark-executor") == []

    template = executor(rendered(cluster, SPARK))
    assert template is not None
    template["spec"]["containers"][0]["image"] = "i"
    for number in (1, 2):
        template["metadata"]["name"] = f"executor-{number}"
        cluster.kubectl("create", "-f", "-", *place, stdin=json.dumps(template))
    (container,) = pods(rendered(cluster, SPARK))["spark-pipeline"]["spec"]["containers"]
    (labels,) = (each["value"] for each in container["env"] if each["name"] == spark_pods.EXECUTORS)
    for name, content in {
        "namespace": namespace,
        "token": cluster.token(f"{namespace}/enmasse-spark-pipeline"),
        "ca.crt": cluster.authority.file.read_text(),
    }.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(spark_pods, "ACCOUNT", tmp_path)
    host, port = cluster.url.removeprefix("https://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)

    def there() -> set[str]:
        return {
            each["metadata"]["labels"]["app.kubernetes.io/component"]
            for each in cluster.get("pods", namespace=namespace)
        }

    wait_for("the pods of the release are made", lambda: {"spark-executor", "spark-pipeline"} <= there())
    spark_pods.delete_executors(labels)
    wait_for("the executors are gone", lambda: "spark-executor" not in there())
    assert "spark-pipeline" in there()
    with pytest.raises(http.client.HTTPException, match="403"):
        (tmp_path / "token").write_text(cluster.token(f"{namespace}/enmasse-spark-executor"))
        spark_pods.delete_executors(labels)


def test_what_people_wrote_outlives_upgrade_rollback_and_uninstall(cluster: Cluster, tmp_path: Path) -> None:
    namespace = cluster.namespace("life")
    place = ("--namespace", namespace)
    file = tmp_path / "addresses.json"
    file.write_text('{"orders": {"type": "anycast"}}')

    def kept() -> bool:
        found = cluster.get("configmap", "enmasse-addresses", namespace=namespace)
        return bool(found["data"] == {"addresses.json": file.read_text()})

    def secret(name: str) -> Any:
        return cluster.get("secret", name, namespace=namespace)["data"]

    cluster.helm("install", "enmasse", str(CHART), "--wait", *place)
    certificate, authority = secret("enmasse-tls"), secret("enmasse-ca")
    own = secret("enmasse-router-identity"), secret("enmasse-identity-ca")
    configured(cluster, namespace, "enmasse-addresses", str(file))
    cluster.helm("upgrade", "enmasse", str(CHART), "--wait", "--set=logLevel=debug", *place)
    assert kept()
    assert (secret("enmasse-tls"), secret("enmasse-ca")) == (certificate, authority)
    assert (secret("enmasse-router-identity"), secret("enmasse-identity-ca")) == own
    cluster.kubectl("delete", "secret", "enmasse-router-identity", *place)
    cluster.helm("upgrade", "enmasse", str(CHART), "--wait", "--set=logLevel=info", *place)
    assert secret("enmasse-router-identity")["tls.crt"] != own[0]["tls.crt"], "made anew where there was none"
    assert secret("enmasse-router-identity")["ca.crt"] == own[1]["tls.crt"]
    cluster.helm("upgrade", "enmasse", str(CHART), "--wait", "--set=tls.hosts={mq.example.com}", *place)
    assert secret("enmasse-tls")["tls.crt"] != certificate["tls.crt"]
    assert secret("enmasse-ca") == authority
    cluster.helm("rollback", "enmasse", "1", "--wait", *place)
    assert kept()
    cluster.helm("uninstall", "enmasse", "--wait", *place)
    assert kept()
    left = cluster.kubectl(
        "get", "deployments,statefulsets,services,secrets,networkpolicies,roles", *place, "-o", "name"
    )
    assert left == ""
    cluster.helm("install", "enmasse", str(CHART), "--wait", *place)
    assert kept()


def test_the_authority_of_processes_is_replaced_in_steps(cluster: Cluster, tmp_path: Path) -> None:
    """Certificates are of the authority in `tls.crt`; pods trust what `ca.crt` beside it has."""
    namespace = cluster.namespace("authority")
    place = ("--namespace", namespace)
    name = "enmasse-identity-ca"

    def upgraded() -> tuple[dict[str, str], dict[str, str]]:
        cluster.helm("upgrade", "enmasse", str(CHART), *place)
        return tuple(
            cluster.get("secret", each, namespace=namespace)["data"] for each in (name, "enmasse-router-identity")
        )

    cluster.helm("install", "enmasse", str(CHART), *place)
    old, first = upgraded()
    file, key = Authority(tmp_path).issue("new authority")  # of no use as one, which Helm does not look at
    new = base64.b64encode(file.read_bytes()).decode()
    both = base64.b64encode(base64.b64decode(old["tls.crt"]) + file.read_bytes()).decode()
    cluster.kubectl("patch", "secret", name, *place, f"--patch={json.dumps({'data': {'ca.crt': both}})}")
    authority, certificate = upgraded()
    assert (authority["tls.crt"], certificate["tls.crt"]) == (old["tls.crt"], first["tls.crt"])
    assert authority["ca.crt"] == certificate["ca.crt"] == both
    changed = {"tls.crt": new, "tls.key": base64.b64encode(key.read_bytes()).decode()}
    cluster.kubectl("patch", "secret", name, *place, f"--patch={json.dumps({'data': changed})}")
    authority, certificate = upgraded()
    assert certificate["tls.crt"] != first["tls.crt"] and certificate["ca.crt"] == both
    second = certificate["tls.crt"]
    cluster.kubectl("patch", "secret", name, *place, f"--patch={json.dumps({'data': {'ca.crt': None}})}")
    for _ in range(2):
        authority, certificate = upgraded()
        assert authority == changed
        assert (certificate["tls.crt"], certificate["ca.crt"]) == (second, new)


def test_a_number_of_gateways_left_to_people_outlives_an_upgrade(cluster: Cluster) -> None:
    namespace = cluster.namespace("scale")
    place = ("--namespace", namespace)
    cluster.helm("install", "enmasse", str(CHART), "--set=mqttGateway.replicas=null", *place)
    cluster.kubectl("scale", "deployment/enmasse-mqtt-gateway", "--replicas=5", *place)
    cluster.helm("upgrade", "enmasse", str(CHART), "--set=mqttGateway.replicas=null,logLevel=debug", *place)
    assert cluster.get("deployment", "enmasse-mqtt-gateway", namespace=namespace)["spec"]["replicas"] == 5


def test_deploy(cluster: Cluster) -> None:
    """`enmasse deploy` into a namespace that is not there, and again with another value."""
    namespace = f"{cluster.namespace('deploy')}-new"
    program = str(Path(sys.executable).with_name("enmasse"))
    command = [program, "deploy", "--namespace", namespace, "--kube-context", "test"]
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.kubeconfig),
        "PATH": f"{Path(binary('helm')).parent}:{os.environ['PATH']}",
        "HELM_CACHE_HOME": str(cluster.folder / "helm"),
    }
    for more in (
        ["--set", "people.developers[0].kind=User,people.developers[0].name=alice"],
        ["--set", "logLevel=debug"],
    ):
        done = subprocess.run([*command, *more], env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert f"enmasse in {namespace} is ready" in done.stdout
        assert "CLIENTS ARE NOT AUTHENTICATED" in done.stdout
        text = cluster.get("configmap", "enmasse-router", namespace=namespace)["data"]["settings.json"]
        assert json.loads(text)["log_level"] == ("debug" if "logLevel=debug" in more else "info")
        assert cluster.get("rolebinding", "enmasse-developers", namespace=namespace)["subjects"][0]["name"] == "alice"
