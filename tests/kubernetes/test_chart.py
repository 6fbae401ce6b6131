"""The Helm chart: what it makes is accepted by an API server and is what the services read; what it refuses."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from cryptography import x509

from enmasse import __version__
from services.configserv.service import ConfigservSettings
from services.console.settings import ConsoleSettings
from services.mqtt_gateway.settings import MqttGatewaySettings
from services.ragent.agent import RouterAgentSettings
from services.router.config import RouterSettings
from services.storage_controller.drivers.objects import read_templates
from spark import pods as spark_pods
from tests.kubernetes.binaries import binary
from tests.kubernetes.charts import (
    BY_HAND,
    CHART,
    DISPATCH,
    EVERYTHING,
    ROOT,
    SETTINGS,
    SPARK,
    Object,
    all_pods,
    executor,
    objects,
    pods,
    ports,
    rendered,
    values,
)
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.controlplane import Refused
from tests.kubernetes.schemas import check

Settings = TypeVar("Settings")


@pytest.fixture(scope="module")
def schemas(cluster: Cluster) -> Path:
    cluster.define_routes()
    return cluster.schemas()


def test_lint(cluster: Cluster) -> None:
    cluster.helm("lint", "--strict", str(CHART))


def test_the_domain_of_spaces_is_in_the_certificate_and_no_tenants(cluster: Cluster) -> None:
    given = {
        "configuration": {"spaceDomain": "mq.example.com"}, "tls": {"enabled": True},
        "customResources": {"enabled": True},
    }  # fmt: skip
    found = rendered(cluster, given)
    text = objects(found, "ConfigMap")["enmasse-configserv"]["data"]["settings.json"]
    settings = msgspec.json.decode(text, type=ConfigservSettings)
    assert settings.domain == "mq.example.com" and settings.driver is not None
    assert settings.driver.custom_resources is not None
    assert "*.mq.example.com" in settings.driver.custom_resources.hosts
    content = objects(found, "Secret")["enmasse-tls"]["data"]["tls.crt"]
    certificate = x509.load_pem_x509_certificate(base64.b64decode(content))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "*.mq.example.com" in names.get_values_for_type(x509.DNSName)


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
    of_spaces = {
        f"{kind}-{space}": kind
        for kind, field in (("router", "router"), ("mqtt-gateway", "mqttGateway"))
        for space in values.get(field, {}).get("spaces", {})
    }
    for each in found:
        text = (each.get("data") or each.get("stringData") or {}).get("settings.json")
        component = each["metadata"].get("labels", {}).get("app.kubernetes.io/component")
        component = of_spaces.get(component, component)
        if text is None or (component == "router" and values is DISPATCH):
            continue
        settings = msgspec.json.decode(text, type=SETTINGS[component])
        assert settings.health == "0.0.0.0:8080"
        read.add(component)
    wanted = set(SETTINGS)
    if values is BY_HAND:
        wanted -= {"storage-controller", "mqtt-gateway", "subserv", "mqtt-lwt"}
    if values is not EVERYTHING:
        wanted -= {"authserv", "http-gateway", "stomp-gateway", "coap-gateway"}
    if values not in (EVERYTHING, BY_HAND):
        wanted.remove("console")
    assert read == (wanted - {"router"} if values is DISPATCH else wanted)


def test_clients_of_http_stay_at_a_gateway_and_come_from_outside_by_tls_alone(cluster: Cluster) -> None:
    found = rendered(cluster, {**EVERYTHING, "tls": {"enabled": True}})
    services = objects(found, "Service")
    inside, outside = services["enmasse-http-gateway"]["spec"], services["enmasse-http-gateway-external"]["spec"]
    assert inside["sessionAffinity"] == outside["sessionAffinity"] == "ClientIP"
    assert [(each["port"], each["targetPort"]) for each in inside["ports"]] == [(8088, "http"), (8448, "https")]
    assert [(each["port"], each["targetPort"]) for each in outside["ports"]] == [(8448, "https")]
    route = objects(found, "Route")["enmasse-http"]["spec"]
    assert (route["host"], route["port"], route["to"]["name"]) == (
        "http.example.com", {"targetPort": "https"}, "enmasse-http-gateway",
    )  # fmt: skip
    policies = objects(found, "NetworkPolicy")
    for policy in ("to-router-5674", "to-configserv-5672", "to-authserv-5671", "to-authserv-5673", "out"):
        assert f"enmasse-http-gateway-{policy}" in policies
    ports = policies["enmasse-tls-clients-to-http-gateway"]["spec"]["ingress"][0]["ports"]
    assert [each["port"] for each in ports] == [8448]
    assert not [name for name in objects(rendered(cluster, {}), "Deployment") if "http" in name]


def test_clients_of_stomp_come_from_outside_by_tls_alone(cluster: Cluster) -> None:
    found = rendered(cluster, {**EVERYTHING, "tls": {"enabled": True}})
    services = objects(found, "Service")
    outside = [
        (each["port"], each["targetPort"]) for each in services["enmasse-stomp-gateway-external"]["spec"]["ports"]
    ]
    assert outside == [(61614, "stomps"), (61617, "stompwss")]
    for kind in ("Route", "Ingress"):
        assert {"enmasse-stomps", "enmasse-stompwss"} <= objects(found, kind).keys()
    policies = objects(found, "NetworkPolicy")
    for who, numbers in (("plain", [61613, 61615]), ("tls", [61614, 61617])):
        ports = policies[f"enmasse-{who}-clients-to-stomp-gateway"]["spec"]["ingress"][0]["ports"]
        assert [each["port"] for each in ports] == numbers
    assert not [name for name in objects(rendered(cluster, {}), "Deployment") if "stomp" in name]


def test_coap_is_for_clients_inside_and_over_udp(cluster: Cluster) -> None:
    found = rendered(cluster, {**EVERYTHING, "tls": {"enabled": True}})
    pod = objects(found, "Deployment")["enmasse-coap-gateway"]["spec"]["template"]["spec"]
    assert {"name": "coap", "containerPort": 5683, "protocol": "UDP"} in pod["containers"][0]["ports"]
    assert {"name": "health", "containerPort": 8080} in pod["containers"][0]["ports"]
    services = objects(found, "Service")
    inside = services["enmasse-coap-gateway"]["spec"]
    assert inside["sessionAffinity"] == "ClientIP", "observations and blocks are at one gateway"
    assert inside["ports"] == [{"name": "coap", "port": 5683, "targetPort": "coap", "protocol": "UDP"}]
    assert "enmasse-coap-gateway-external" not in services
    policies = objects(found, "NetworkPolicy")
    ports = policies["enmasse-plain-clients-to-coap-gateway"]["spec"]["ingress"][0]["ports"]
    assert ports == [{"protocol": "UDP", "port": 5683}]
    assert "enmasse-tls-clients-to-coap-gateway" not in policies
    assert not [name for name in objects(rendered(cluster, {}), "Deployment") if "coap" in name]


def test_webhooks_are_a_secret_that_only_the_console_reads(cluster: Cluster) -> None:
    peers = [{"ipBlock": {"cidr": "192.0.2.0/24"}}]
    values = {"console": {"enabled": True, "webhooks": "hooks"}, "networkPolicy": {"webhooks": peers}}
    found = rendered(cluster, values)
    settings = json.loads(objects(found, "ConfigMap")["enmasse-console"]["data"]["settings.json"])
    pods = {name: each["spec"]["template"]["spec"] for name, each in objects(found, "Deployment").items()}
    (volume,) = [each for each in pods["enmasse-console"]["volumes"] if each["name"] == "webhooks"]
    assert volume["secret"]["secretName"] == "hooks" and not volume["secret"]["defaultMode"] & 0o007
    (mount,) = [each for each in pods["enmasse-console"]["containers"][0]["volumeMounts"] if each["name"] == "webhooks"]
    assert settings["webhooks"] == f"{mount['mountPath']}/{volume['secret']['items'][0]['path']}"
    assert settings["webhooks_state"].startswith("/var/lib/enmasse/")
    assert [name for name, pod in pods.items() if "hooks" in json.dumps(pod["volumes"])] == ["enmasse-console"]
    policies = objects(found, "NetworkPolicy")
    assert {"to": peers} in policies["enmasse-console-out"]["spec"]["egress"]
    without = objects(rendered(cluster, {"console": {"enabled": True}}), "ConfigMap")["enmasse-console"]
    assert "webhooks" not in without["data"]["settings.json"]


def test_several_routers_are_a_mesh_that_hands_its_clients_on(cluster: Cluster) -> None:
    found = rendered(cluster, {"router": {"replicas": 3}, "console": {"enabled": True}})
    router = objects(found, "StatefulSet")["enmasse-router"]
    assert router["spec"]["replicas"] == 3 and "annotations" not in router["metadata"]
    settings = {
        name: json.loads(objects(found, "ConfigMap")[f"enmasse-{name}"]["data"]["settings.json"])
        for name in ("router", "console", "ragent")
    }
    (routers,) = [body for kind, body in settings["router"]["entities"] if body.get("role") == "inter-router"]
    assert kind_of(routers) == ("inter-router", True, True, "EXTERNAL")
    assert "inter-router" in settings["ragent"]["static"]
    assert settings["console"]["routers"]["enmasse-router-2"] == (
        "enmasse-router-2.enmasse-router-pods.default.svc:5673"
    )
    (container,) = router["spec"]["template"]["spec"]["containers"]
    assert "lifecycle" not in container, "it is not ready for as long, instead"
    probe, own = container["readinessProbe"], settings["router"]
    assert own["shutdown_delay"] >= probe["periodSeconds"] * probe["failureThreshold"] + 2
    ends = router["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert ends >= own["shutdown_delay"] + own["leave_within"] + 10
    assert objects(found, "PodDisruptionBudget")["enmasse-router"]["spec"]["maxUnavailable"] == 1
    one = objects(rendered(cluster, {}), "StatefulSet")["enmasse-router"]
    assert one["spec"]["template"] == router["spec"]["template"], "to scale it restarts nothing"
    left = objects(rendered(cluster, {"router": {"replicas": None}}), "StatefulSet")["enmasse-router"]
    assert "replicas" not in left["spec"]
    alone = objects(rendered(cluster, {"identity": {"enabled": False}}), "StatefulSet")["enmasse-router"]
    assert alone["metadata"]["annotations"]["enmasse.io/mesh"] == "none", "they could not authenticate each other"


def test_pods_come_and_go_by_load_where_the_values_ask_for_it(cluster: Cluster) -> None:
    """The autoscaler alone decides their number. What is of an address space has the number of its values."""
    found = rendered(cluster, EVERYTHING)
    scaled = objects(found, "HorizontalPodAutoscaler")
    bounds = {name: (each["spec"]["minReplicas"], each["spec"]["maxReplicas"]) for name, each in scaled.items()}
    assert bounds == {"enmasse-router": (2, 9), "enmasse-mqtt-gateway": (2, 4), "enmasse-stomp-gateway": (1, 3)}
    pods_of = {kind: objects(found, kind) for kind in ("StatefulSet", "Deployment")}
    for each in scaled.values():
        target = each["spec"]["scaleTargetRef"]
        assert "replicas" not in pods_of[target["kind"]][target["name"]]["spec"]
    assert pods_of["StatefulSet"]["enmasse-router-one"]["spec"]["replicas"] == 2
    assert pods_of["Deployment"]["enmasse-mqtt-gateway-one"]["spec"]["replicas"] == 3
    console = json.loads(objects(found, "ConfigMap")["enmasse-console"]["data"]["settings.json"])
    assert "enmasse-router-8" in console["routers"], "it follows all that there may be"
    assert objects(rendered(cluster, {}), "HorizontalPodAutoscaler") == {}


def kind_of(listener: Object) -> tuple[object, ...]:
    return tuple(listener[key] for key in ("access", "authenticatePeer", "requireSsl", "saslMechanisms"))


def test_gateways_of_a_spaces_own_are_apart_from_those_of_all(cluster: Cluster) -> None:
    spaces = EVERYTHING["mqttGateway"]["spaces"]
    before = rendered(cluster, {**EVERYTHING, "mqttGateway": {**EVERYTHING["mqttGateway"], "spaces": {}}})
    found = rendered(cluster, EVERYTHING)
    deployments, services = objects(found, "Deployment"), objects(found, "Service")
    for space, replicas, router in (("one", 3, "router-one"), ("three", 2, "router")):
        name = f"enmasse-mqtt-gateway-{space}"
        assert deployments[name]["spec"]["replicas"] == replicas
        (container,) = deployments[name]["spec"]["template"]["spec"]["containers"]
        assert container["image"].endswith("/mqtt-gateway:1.2.3")
        text = objects(found, "ConfigMap")[name]["data"]["settings.json"]
        settings = msgspec.json.decode(text, type=MqttGatewaySettings)
        assert settings.router == f"enmasse-{router}:5674", "that of the space, where it has its own"
        assert {(each.kind, each.space) for each in settings.listeners} == {
            (kind, space) for kind in ("mqtt", "mqtts", "ws", "wss")
        }
        for service in (services[name], services[f"{name}-external"]):
            assert service["spec"]["selector"]["app.kubernetes.io/component"] == f"mqtt-gateway-{space}"
        subject = objects(found, "Secret")[f"{name}-identity"]["metadata"]["annotations"]["enmasse.io/subject"]
        assert subject.startswith(f"mqtt_gateway/{name} ")
        policies = objects(found, "NetworkPolicy")
        assert len([each for each in policies if each.startswith(f"{name}-to-") and each.endswith("-5674")]) == 1
        for policy in (f"to-{router}-5674", "to-configserv-5672", "to-authserv-5671", "to-authserv-5673", "out"):
            assert f"{name}-{policy}" in policies
        for who in ("plain", "tls"):
            assert f"enmasse-{who}-clients-to-mqtt-gateway-{space}" in policies
    resources = {"customResources": {"enabled": True}, "mqttGateway": {"spaces": spaces}}
    text = objects(rendered(cluster, resources), "ConfigMap")["enmasse-configserv"]["data"]["settings.json"]
    driver = msgspec.json.decode(text, type=ConfigservSettings).driver
    assert driver is not None and driver.custom_resources is not None
    own = driver.custom_resources.own["one"]["mqtt"]
    assert own.host.startswith("enmasse-mqtt-gateway-one.") and own.ports["secure-mqtt"] == 8883
    assert driver.custom_resources.endpoints["messaging"].ports == {"amqp": 5672, "amqps": 5671}
    for kind in ("Deployment", "Service", "ConfigMap"):
        name = "enmasse-mqtt-gateway"
        assert objects(found, kind)[name] == objects(before, kind)[name], "those of all stay as they are"


def test_routers_of_a_spaces_own_are_apart_from_those_of_all(cluster: Cluster) -> None:
    before = rendered(cluster, {**EVERYTHING, "router": {**EVERYTHING["router"], "spaces": {}}})
    found = rendered(cluster, EVERYTHING)
    sets, services, budgets = (objects(found, kind) for kind in ("StatefulSet", "Service", "PodDisruptionBudget"))
    policies = objects(found, "NetworkPolicy")

    def settings(component: str, type_: type[Settings]) -> Settings:
        text = objects(found, "ConfigMap")[f"enmasse-{component}"]["data"]["settings.json"]
        return msgspec.json.decode(text, type=type_)

    for space, replicas, has_gateways in (("one", 2, True), ("two", 1, False)):
        name, selector = f"enmasse-router-{space}", {"app.kubernetes.io/component": f"router-{space}"}
        assert sets[name]["spec"]["replicas"] == replicas and sets[name]["spec"]["serviceName"] == f"{name}-pods"
        (container,) = sets[name]["spec"]["template"]["spec"]["containers"]
        assert container["image"].endswith("/router:1.2.3")
        for made in (services[name], services[f"{name}-external"], services[f"{name}-pods"]):
            assert made["spec"]["selector"].items() >= selector.items()
        assert budgets[name]["spec"]["selector"]["matchLabels"].items() >= selector.items()
        opened = {
            attributes["name"]
            for kind, attributes in settings(f"router-{space}", RouterSettings).entities
            if kind == "listener"
        }
        assert opened == {"operators", "inter-router"} | ({"services"} if has_gateways else set())
        assert [each["port"] for each in services[f"{name}-external"]["spec"]["ports"]] == [5671]
        subject = objects(found, "Secret")[f"{name}-identity"]["metadata"]["annotations"]["enmasse.io/subject"]
        assert subject.startswith(f"router/{name} ") and f"*.{name}-pods.default.svc" in subject
        for who in ("plain-clients", "tls-clients", "operators"):
            assert f"enmasse-{who}-to-router-{space}" in policies
    content = objects(found, "Secret")["enmasse-tls"]["data"]["tls.crt"]
    certificate = x509.load_pem_x509_certificate(base64.b64decode(content))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "enmasse-router-one.default.svc" in names.get_values_for_type(x509.DNSName)
    assert {
        (each.routers, each.router, each.space, each.port) for each in settings("ragent", RouterAgentSettings).listeners
    } == {
        (f"enmasse-router{suffix}", None, space, port)
        for suffix, space in (("", None), ("-one", "one"), ("-two", "two"))
        for port in (5671, 5672)
    }
    assert settings("console", ConsoleSettings).routers["enmasse-router-one-1"] == (
        "enmasse-router-one-1.enmasse-router-one-pods.default.svc:5673"
    )
    for kind in ("StatefulSet", "Service", "ConfigMap", "PodDisruptionBudget"):
        assert objects(found, kind)["enmasse-router"] == objects(before, kind)["enmasse-router"], (
            "they stay as they are"
        )
    text = objects(rendered(cluster, {**EVERYTHING, "customResources": {"enabled": True}}), "ConfigMap")[
        "enmasse-configserv"
    ]["data"]["settings.json"]
    driver = msgspec.json.decode(text, type=ConfigservSettings).driver
    assert driver is not None and driver.custom_resources is not None
    own = driver.custom_resources.own
    assert {space: set(endpoints) for space, endpoints in own.items()} == {
        "one": {"messaging", "mqtt"}, "two": {"messaging"}, "three": {"mqtt"},
    }  # fmt: skip
    assert own["one"]["messaging"].host == "enmasse-router-one.default.svc"
    assert objects(found, "Role").keys() == objects(before, "Role").keys(), "no right is added for them"
    assert not [each["metadata"]["name"] for each in found if "-gone" in each["metadata"]["name"]], "it has none"


@pytest.mark.parametrize(
    ("field", "space", "reason"),
    [
        ("router", "s" * 38, "longer than 52"),
        ("mqttGateway", "s" * 60, "longer than 63"),
        ("router", "pods", "the name enmasse-router-pods is taken"),
        ("mqttGateway", "external", "the name enmasse-mqtt-gateway-external is taken"),
    ],
)
def test_a_space_whose_name_does_not_fit_is_refused(cluster: Cluster, field: str, space: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        rendered(cluster, {field: {"spaces": {space: None}}, "users": {"enabled": True}})


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
        f"/artemis:{__version__}"
        if values is DISPATCH
        else "/broker:" + ("1.2.3" if values is EVERYTHING else __version__)
    )
    if values is EVERYTHING:
        assert found["default"]["traces"] == {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
        assert (found["small"]["storageSize"], found["small"]["storageClass"]) == ("1Gi", "fast")
        assert found["big"]["nodeSelector"] == {"disk": "ssd"}


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


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"router": {"replicas": 2}, "identity": {"enabled": False}}, "/router/replicas"),
        ({"router": {"autoscale": {"min": 1, "max": 2}}, "identity": {"enabled": False}}, "/router/autoscale"),
        ({"router": {"autoscale": {"max": 2}}}, "/router/autoscale"),
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
        ({"router": {"spaces": {"one": None}}}, "/users/enabled"),
        ({"router": {"spaces": {"default": None}}}, "default"),
        ({"router": {"spaces": {"one": {"replicas": -1}}}}, "/router/spaces/one/replicas"),
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


def test_configserv_writes_the_releases_configuration_only_for_a_console(cluster: Cluster) -> None:
    for enabled in (True, False):
        values = {"console": {"enabled": enabled}, "configuration": {"addresses": ["team-a"]}}
        rules = objects(rendered(cluster, values), "Role")["enmasse-configserv"]["rules"]
        updated = [
            rule["resourceNames"] for rule in rules if "update" in rule["verbs"] and "configmaps" in rule["resources"]
        ]
        assert updated == ([["enmasse-addresses", "team-a", "enmasse-flavors"]] if enabled else [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"addresses": ["enmasse-flavors"]},
        {"addresses": ["team"], "flavors": ["team"]},
        {"addresses": ["enmasse-router"]},
        {"addresses": ["enmasse-router-one"]},
        {"addresses": ["enmasse-mqtt-gateway-three"]},
        {"addresses": ["enmasse-flavors-status"]},
    ],
)
def test_developers_get_no_configmap_that_is_not_of_addresses(cluster: Cluster, wrong: Object) -> None:
    with pytest.raises(Refused, match=f"the name {(wrong.get('flavors') or wrong['addresses'])[0]} is taken"):
        rendered(cluster, {**EVERYTHING, "configuration": wrong})


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
