"""The chart installed on the real node, and what a user of it does: clients by Service, clients from outside."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from proton import SSLDomain
from proton.utils import BlockingConnection

from enmasse.testing import free_port, wait_for
from tests import one_program
from tests.images import bases, dispatch
from tests.kubernetes.binaries import binary
from tests.kubernetes.controlplane import Refused
from tests.kubernetes.node import Node
from tests.kubernetes.on_node import sockets
from tests.kubernetes.processes import Server

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "enmasse"
RELEASE = "enmasse"
HOSTS = {"amqps": "messages.example.com", "mqtts": "devices.example.com"}
"""By port: the names by which clients from outside come, over TLS."""
PATIENCE = 400.0
"""Seconds for whatever a loaded machine takes long for: eleven Pods start on two cores."""
VALUES: dict[str, Any] = {
    "image": {"repository": "localhost/enmasse", "pullPolicy": "Never"},
    "redis": {"image": bases.REDIS, "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}}},
    "routes": {"enabled": True, "hosts": HOSTS},
    "users": {"allowAnonymous": True},
    **{
        service: {"resources": {"requests": {"cpu": "10m", "memory": "64Mi"}}}
        for service in (
            "router", "broker", "storageController", "configserv", "ragent", "mqttGateway", "subserv", "mqttLwt",
        )
    },
}  # fmt: skip


DOCUMENTED = "messaging"
"""The namespace in docs/kubernetes.md."""
PROCESSES = {
    "artemis": "org.apache.activemq.artemis.cli.Artemis",
    "qdrouterd": f"{dispatch.PLACE}/{dispatch.PROGRAM}",
    "spark-pipeline": "spark.pipeline",
    "spark-executor": "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
}
"""What runs in a Pod, where it is not `services.COMPONENT`."""


class Installation:
    """A release of the chart in a namespace of its own, one at a time. `values`: beside VALUES; None: without them."""

    def __init__(self, node: Node, chart: Path = CHART, **values: Any) -> None:
        self.node = node
        self.chart = chart
        self.namespace = node.namespace("enmasse")
        self.values = {name: value for name, value in {**VALUES, **values}.items() if value is not None}
        self.addresses: dict[str, Any] = json.loads(one_program.FILES["addresses.json"])
        self.proxy_port = free_port()
        self.proxy: Server | None = None

    # what an operator does

    def install(self) -> None:
        self.helm("install")
        for name, content in one_program.FILES.items():
            self.configure(name, content)
        self.wait_addresses()

    def add(self, **addresses: Any) -> None:
        """Further addresses; returns when all are ready."""
        self.addresses |= addresses
        self.configure("addresses.json", json.dumps(self.addresses))
        self.wait_addresses()

    def wait_addresses(self) -> None:
        wait_for("all addresses are ready", self._ready, PATIENCE)

    def helm(self, verb: str, *options: str) -> None:
        """`helm install` or `helm upgrade`; returns when all Pods are ready."""
        file = self.node.folder / "values.json"
        file.write_text(json.dumps(self.values))
        place = ("--namespace", self.namespace, "--values", str(file), "--wait", f"--timeout={PATIENCE:.0f}s")
        try:
            self.node.helm(verb, RELEASE, str(self.chart), *place, *options)
        except Refused as error:
            raise Refused(f"{error}\n{self.explain()}") from None

    def tested(self, address: str) -> set[str]:
        """`helm test`: the schemes by which a message came back from the address; empty: from a reply address."""
        try:
            self.node.helm("test", RELEASE, "--namespace", self.namespace, f"--timeout={PATIENCE:.0f}s")
        except Refused as error:
            raise Refused(f"{error}\n{self.explain()}") from None
        said = self.kubectl("logs", f"pod/{RELEASE}-test", "--all-containers")
        came = rf"^(amqps?|operators)://\S+: 'round trip' came back from '{address or '.+'}'"
        return set(re.findall(came, said, re.MULTILINE))

    def uninstall(self) -> None:
        """Returns when no Pod is left but that of `helm test`: Helm leaves hooks."""
        self.node.helm("uninstall", RELEASE, "--namespace", self.namespace)
        others = {"namespace": self.namespace, "selector": "app.kubernetes.io/component!=test"}
        wait_for("its pods end", lambda: not self.node.get("pods", **others), PATIENCE)

    def restart(self, workload: str) -> None:
        """A rolling restart of `deployment/NAME` or `statefulset/NAME`; returns when it is complete."""
        self.kubectl("rollout", "restart", workload)
        self.kubectl("rollout", "status", workload, f"--timeout={PATIENCE:.0f}s")

    def workloads(self) -> list[str]:
        """Everything that can be restarted, the brokers too."""
        return self.kubectl("get", "deployments,statefulsets", "--output=name").split()

    def configure(self, name: str, content: str) -> None:
        """The content of `addresses.json` or `flavors.json`, as the chart's notes say it."""
        patch = {"data": {name: content}}
        self.kubectl("patch", "configmap", config_map(name), "--type=merge", f"--patch={json.dumps(patch)}")

    def files(self) -> dict[str, str]:
        """`addresses.json` and `flavors.json` as the cluster has them."""
        return {
            name: self.node.get("configmap", config_map(name), namespace=self.namespace)["data"][name]
            for name in one_program.FILES
        }

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.node.kubectl("--namespace", self.namespace, *arguments, stdin=stdin)

    def shell(self, script: str, folder: Path) -> str:
        """What commands of the documentation, typed in `folder`, write to stdout. Its namespace stands for ours."""
        programs = (binary("kubectl"), binary("helm"), sys.executable)
        path = ":".join([*(str(Path(each).parent) for each in programs), os.environ["PATH"]])
        environment = {**self.node.environment(), "PATH": path}
        words = script.replace(DOCUMENTED, self.namespace)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", words], cwd=folder, env=environment, capture_output=True, text=True
        )
        if done.returncode:
            raise Refused(f"{words}: exit status {done.returncode}\n{done.stdout}{done.stderr}\n{self.explain()}")
        return done.stdout

    def status(self) -> Any:
        """What the status beside the addresses says; {} if there is none yet."""
        found = self.node.get(
            "configmaps", namespace=self.namespace, selector=f"enmasse.io/status-of={RELEASE}-addresses"
        )
        return json.loads(found[0]["data"]["status.json"]) if found else {}

    def _ready(self) -> bool:
        states = {one["name"]: one.get("ready") for one in self.status().get("addresses", ())}
        return states == dict.fromkeys(self.addresses, True)

    # its pods

    def pods(self, component: str) -> list[Any]:
        label = f"app.kubernetes.io/component={component}"
        return list(self.node.get("pods", namespace=self.namespace, selector=label))

    def uids(self) -> set[str]:
        """Of all its Pods."""
        return {pod["metadata"]["uid"] for pod in self.node.get("pods", namespace=self.namespace)}

    def wait_ready(self, component: str, count: int | None = None) -> None:
        def ready() -> bool:
            pods = [pod for pod in self.pods(component) if "deletionTimestamp" not in pod["metadata"]]
            return bool(pods) and count in (None, len(pods)) and all(map(is_ready, pods))

        wait_for(f"{component} is ready", ready, PATIENCE)

    def kill(self, component: str, program: str = "") -> None:
        """SIGKILL to the process in each of its Pods; the kubelet starts it again. Returns when that is ready."""
        before = self.restarts(component)
        self.kill_processes(program or component)
        wait_for(f"{component} was started again", lambda: self.restarts(component) > before, PATIENCE)
        self.wait_ready(component)

    def kill_processes(self, program: str) -> None:
        """SIGKILL to each process of a component or program."""
        for pid in _processes(PROCESSES.get(program, f"services.{program.replace('-', '_')}")):
            os.kill(pid, signal.SIGKILL)

    def restarts(self, component: str) -> int:
        """How often the containers of its Pods were started again."""
        states = (one for pod in self.pods(component) for one in pod["status"].get("containerStatuses", ()))
        return sum(one["restartCount"] for one in states)

    def explain(self, *components: str) -> str:
        """Pods, what the cluster says of them, and the end of what those say themselves that are not ready, or of these
        components."""
        told = [self.kubectl("get", "pods", "--output=wide"), self.kubectl("get", "events", "--sort-by=.lastTimestamp")]
        for pod in self.node.get("pods", namespace=self.namespace):
            name, labels = pod["metadata"]["name"], pod["metadata"]["labels"]
            if not is_ready(pod) or labels.get("app.kubernetes.io/component") in components:
                with contextlib.suppress(Refused):
                    told.append(f"{name}:\n{self.kubectl('logs', name, '--all-containers', '--tail=15')}")
        return "\n".join(told)

    # certificates of its processes

    def certificate(self, component: str, folder: Path) -> Path:
        """A folder with those of a component, as its pods have them."""
        secret = self.node.get("secret", f"{RELEASE}-{component}-identity", namespace=self.namespace)
        folder.mkdir()
        for name, content in secret["data"].items():
            (folder / name).write_bytes(base64.b64decode(content))
        return folder

    def identities(self, key: str = "tls.crt") -> dict[str, str]:
        """Component → what its Secret has."""
        found = self.node.get("secrets", namespace=self.namespace, selector="app.kubernetes.io/component=identity")
        ends = {one["metadata"]["name"].removeprefix(f"{RELEASE}-"): one["data"] for one in found}
        return {
            name.removesuffix("-identity"): base64.b64decode(data[key]).decode()
            for name, data in ends.items()
            if name.endswith("-identity")
        }

    def replace_certificates(self) -> None:
        """As docs/kubernetes.md says it: their Secrets are deleted. Returns when all pods have the new ones."""
        self.kubectl("delete", "secrets", *(f"{RELEASE}-{component}-identity" for component in self.identities()))
        self.helm("upgrade")
        self.wait_mounted()

    def wait_mounted(self) -> None:
        """Until the files of all pods are those of the Secrets."""
        keys = ("tls.crt", "ca.crt")

        def mounted() -> bool:
            wanted = {key: self.identities(key) for key in keys}
            for pod in self.node.get("pods", namespace=self.namespace):
                component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
                for key in keys if component in wanted["tls.crt"] else ():
                    content = [each / "root/etc/enmasse-identity" / key for each in sockets.processes(pod)]
                    found = {each.read_text() for each in content if each.exists()}
                    if found != {wanted[key][component]}:
                        return False
            return True

        wait_for("all pods have the files of their Secrets", mounted, PATIENCE)

    # its clients

    def address(self, service: str) -> str:
        """The virtual address of a Service."""
        return str(self.node.get("service", f"{RELEASE}-{service}", namespace=self.namespace)["spec"]["clusterIP"])

    @property
    def url(self) -> str:
        return f"amqp://{self.address('router')}:5672"

    def connect_from_outside(self) -> BlockingConnection:
        """AMQP over TLS, through the door, by host name."""
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(str(self.authority()))
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
        return BlockingConnection(f"amqps://{HOSTS['amqps']}:{self.proxy_port}", ssl_domain=domain, timeout=PATIENCE)

    def authority(self) -> Path:
        """Who signed the certificates of the release."""
        name = f"{RELEASE}-tls"
        data = self.node.get("secret", name, namespace=self.namespace)["data"]
        file = self.node.folder / "ca.crt"
        file.write_bytes(base64.b64decode(data["ca.crt"]))
        return file

    def resolve(self, address: str, *hosts: str) -> None:
        """Give these names an address, for the tests."""
        names = self.node.folder / "hosts"
        names.write_text(f"127.0.0.1 localhost\n{address} {' '.join(hosts)}\n")
        subprocess.run(["mount", "--bind", str(names), "/etc/hosts"], check=True)

    def open_door(self) -> None:
        """As routers of OpenShift and controllers of Ingresses do it for Routes and Ingresses with pass-through: TLS is
        forwarded by the host name in it. All names of these lead to the door."""
        backends, rules, hosts = [], [], []
        for host, service, wanted in (*self._routes(), *self._ingresses()):
            spec = self.node.get("service", service, namespace=self.namespace)["spec"]
            port = next(one["port"] for one in spec["ports"] if one["name"] == wanted)
            rules.append(f" use_backend {host} if {{ req_ssl_sni -i {host} }}")
            backends.append(f"backend {host}\n server one {spec['clusterIP']}:{port}")
            hosts.append(host)
        if self.proxy is None:
            limits = "defaults\n mode tcp\n timeout connect 10s\n timeout client 5m\n timeout server 5m"
            hello = " tcp-request inspect-delay 5s\n tcp-request content accept if { req_ssl_hello_type 1 }"
            door = "\n".join([f"frontend door\n bind *:{self.proxy_port}", hello, *rules])
            file = self.node.folder / "haproxy.cfg"
            file.write_text("\n".join([limits, door, *backends]) + "\n")
            self.proxy = Server("haproxy", ["/usr/sbin/haproxy", "-db", "-f", str(file)], self.node.folder)
            self.proxy.start()
        self.resolve("127.0.0.1", *hosts)

    def _routes(self) -> Iterator[tuple[str, str, str]]:
        """Host, Service and port of each Route."""
        for route in self.node.get("routes.route.openshift.io", namespace=self.namespace):
            spec = route["spec"]
            assert spec["tls"]["termination"] == "passthrough"
            yield spec["host"], spec["to"]["name"], spec["port"]["targetPort"]

    def _ingresses(self) -> Iterator[tuple[str, str, str]]:
        """Host, Service and port of each Ingress."""
        for ingress in self.node.get("ingresses", namespace=self.namespace):
            assert ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/ssl-passthrough"] == "true"
            (rule,) = ingress["spec"]["rules"]
            backend = rule["http"]["paths"][0]["backend"]["service"]
            yield rule["host"], backend["name"], backend["port"]["name"]

    def close(self) -> None:
        if self.proxy is not None:
            self.proxy.kill()
        self.uninstall()


class Device:
    """An MQTT 5 client that publishes numbers until `stop`, whatever happens to its connection."""

    def __init__(
        self, host: str, port: int, topic: str, name: str, authority: Path | None = None, qos: int = 1
    ) -> None:
        self.topic, self.qos = topic, qos
        self.acknowledged: set[int] = set()
        self._numbers: dict[int, int] = {}
        # By packet id, from paho's thread, which holds locks that `publish` takes: it may wait for none of ours.
        self._answers: deque[tuple[int, bool]] = deque()
        self._end = threading.Event()
        self.client = session(name)
        self.connected = 0
        """How often."""
        self.client.on_connect = self._was_connected
        self.client.on_publish = lambda client, data, mid, reason, properties: self._answers.append(
            (mid, not reason.is_failure)
        )
        if authority is not None:
            self.client.tls_set(str(authority))
        connect(self.client, host, port)
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self._thread.start()

    def _was_connected(self, *_: Any) -> None:
        self.connected += 1

    def _publish(self) -> None:
        number = 0
        while not self._end.wait(0.05):
            self._take_answers()
            if len(self._numbers) < 50:
                self._numbers[self.client.publish(self.topic, str(number), qos=self.qos).mid] = number
                number += 1

    def _take_answers(self) -> None:
        while self._answers:
            mid, accepted = self._answers.popleft()
            number = self._numbers.pop(mid)
            if accepted:
                self.acknowledged.add(number)

    def wait_acknowledged(self, more: int) -> None:
        count = len(self.acknowledged) + more
        wait_for(f"{count} acknowledged for {self.topic}", lambda: len(self.acknowledged) >= count, PATIENCE)

    def stop(self) -> None:
        self._end.set()
        self._thread.join()
        self.client.disconnect()
        self.client.loop_stop()
        self._take_answers()


class Listener:
    """An MQTT 5 client with a session that lasts: what it has received of a topic with QoS 2, in order."""

    def __init__(self, host: str, port: int, topic: str, name: str) -> None:
        self.seen: list[int] = []
        self.client = session(name)
        self.client.on_message = lambda client, data, message: self.seen.append(int(message.payload))
        subscribed = threading.Event()
        self.client.on_subscribe = lambda *_: subscribed.set()
        connect(self.client, host, port)
        self.client.subscribe(topic, qos=2)
        assert subscribed.wait(PATIENCE)

    def stop(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def documented(heading: str) -> list[str]:
    """The blocks of commands below a heading of docs/kubernetes.md."""
    text = (ROOT / "docs" / "kubernetes.md").read_text()
    section = re.split(r"^#+ ", text.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    return [block.replace("\n    ", "\n").strip() for block in re.findall(r"(?:^    \S.*\n)+", section, re.MULTILINE)]


def session(name: str) -> Client:
    client = Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=MQTTv5)
    client.reconnect_delay_set(1, 2)
    return client


def connect(client: Client, host: str, port: int) -> None:
    """With a session that outlives its connection."""
    properties: Any = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = 3600
    client.connect(host, port, clean_start=False, properties=properties)
    client.loop_start()


def config_map(name: str) -> str:
    """Which of the release's has this file."""
    return f"{RELEASE}-{name.removesuffix('.json')}"


def is_ready(pod: Any) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _processes(module: str) -> list[int]:
    """Of these namespaces, in which only Pods run a service."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if module.encode() in words:
            found.append(int(place.parent.name))
    return found
