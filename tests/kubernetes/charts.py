"""The Helm chart in tests: sets of values, and the objects that it makes of them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from enmasse.process.settings import ServiceSettings
from services.authserv.app import AuthservSettings
from services.coap_gateway.settings import CoapGatewaySettings
from services.configserv.service import ConfigservSettings
from services.console.settings import ConsoleSettings
from services.http_gateway.settings import HttpGatewaySettings
from services.mqtt_gateway.settings import MqttGatewaySettings
from services.mqtt_lwt.service import LastWillSettings
from services.ragent.agent import RouterAgentSettings
from services.router.config import RouterSettings
from services.stomp_gateway.settings import StompGatewaySettings
from services.storage_controller.controller import ControllerSettings
from services.storage_controller.drivers import Manifest
from services.storage_controller.drivers.objects import Place
from services.storage_controller.drivers.objects import objects as objects_of_broker
from services.subserv.app import SubservSettings
from tests.kubernetes.cluster import Cluster

ROOT = Path(__file__).parent.parent.parent
CHART = ROOT / "charts" / "enmasse"
SETTINGS: dict[str, type[ServiceSettings]] = {
    "configserv": ConfigservSettings,
    "ragent": RouterAgentSettings,
    "router": RouterSettings,
    "storage-controller": ControllerSettings,
    "mqtt-gateway": MqttGatewaySettings,
    "http-gateway": HttpGatewaySettings,
    "stomp-gateway": StompGatewaySettings,
    "coap-gateway": CoapGatewaySettings,
    "subserv": SubservSettings,
    "mqtt-lwt": LastWillSettings,
    "authserv": AuthservSettings,
    "console": ConsoleSettings,
}
PEOPLE: dict[str, Any] = {
    "developers": [{"kind": "Group", "name": "developers"}],
    "administrators": [{"kind": "User", "name": "bob"}, {"kind": "ServiceAccount", "name": "deployer"}],
}
ROUTES = {port: f"{port}.example.com" for port in ("amqps", "mqtts", "wss", "http", "stomps", "stompwss", "https")}
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
        "replicas": 3,
        "autoscale": {"min": 2, "max": 9},
        "spaces": {"one": {"replicas": 2}, "two": None, "gone": {"replicas": 0}},
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "podLabels": {"x": "y"},
        "podAnnotations": {"x": "y"},
        "priorityClassName": "system-cluster-critical",
    },
    "mqttGateway": {
        "replicas": None,
        "limits": {"connections": 5},
        "autoscale": {"min": 2, "max": 4},
        "spaces": {"one": {"replicas": 3}, "three": None, "gone": {"replicas": 0}},
    },
    "http": {"enabled": True},
    "stomp": {"enabled": True},
    "coap": {"enabled": True},
    "httpGateway": {"replicas": 3, "allowedOrigins": ["https://example.org"]},
    "stompGateway": {"allowedOrigins": ["https://example.org"], "autoscale": {"min": 1, "max": 3}},
    "users": {"enabled": True},
    "console": {"enabled": True, "webhooks": "hooks"},
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
    text = _rendered(cluster, json.dumps(values), *options)
    return [found for found in yaml.load_all(text, yaml.CSafeLoader) if found]


@cache
def _rendered(cluster: Cluster, values: str, *options: str) -> str:
    return cluster.helm("template", "enmasse", str(CHART), "--values=-", *options, stdin=values)


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
