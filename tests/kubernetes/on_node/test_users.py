"""Users on the real node: an exposed release, the first user as the chart's notes say it, and who is refused."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from enmasse.aio.client import connect
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.messages.message import Message
from enmasse.testing import wait_for
from tests.certificates import Authority
from tests.console.client import Client as ConsoleClient
from tests.console.client import of
from tests.images.build import names
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until
from tests.kubernetes import stranger
from tests.kubernetes.controlplane import Refused
from tests.kubernetes.node import Node
from tests.kubernetes.on_node.installation import HOSTS, PATIENCE, RELEASE, ROOT, Installation, documented, is_ready
from tests.kubernetes.on_node.sockets import listening
from tests.kubernetes.test_cluster import CONFINED

pytestmark = pytest.mark.timeout(1800)

USER = "alice"
INNER = {
    ("configserv", 5672), ("ragent", 5672), ("broker", 5672), ("router", 5673), ("router", 5674), ("authserv", 5671),
    ("authserv", 5673), ("redis", 6379),
}  # fmt: skip
"""Ports of processes: component and port."""
AMQP = {("router", 5672): None, ("router", 5671): "tls"}
MQTT = {
    ("mqtt-gateway", 1883): ("tcp", False), ("mqtt-gateway", 8883): ("tcp", True),
    ("mqtt-gateway", 8083): ("websockets", False), ("mqtt-gateway", 8084): ("websockets", True),
}  # fmt: skip
"""Ports of clients, with their transport, and whether with TLS."""
CONSOLE = ("console", 8443)
CONSOLE_HOSTS = {"route": "console.example.com", "ingress": "console.example.net"}
HEALTH = 8080
"""Of every service: liveness, readiness and metrics by GET, for anybody (docs/kubernetes.md, "Network")."""
OUTSIDE = "10.77.0.2"
"""The address that a provider of load balancers would give."""
NAME = "mq.example.com"


class Provider(threading.Thread):
    """Gives each Service of the type LoadBalancer the address OUTSIDE, which Helm waits for."""

    def __init__(self, node: Node, namespace: str) -> None:
        super().__init__(daemon=True)
        self.node, self.place = node, ("--namespace", namespace)
        self._end = threading.Event()

    def run(self) -> None:
        given = json.dumps({"status": {"loadBalancer": {"ingress": [{"ip": OUTSIDE}]}}})
        while not self._end.wait(1):  # limit: of one round
            with contextlib.suppress(Refused):  # the Service has gone
                for service in json.loads(self.node.kubectl("get", "services", *self.place, "--output=json"))["items"]:
                    if service["spec"]["type"] == "LoadBalancer" and not service["status"]["loadBalancer"]:
                        name = service["metadata"]["name"]
                        self.node.kubectl(
                            "patch", "service", name, *self.place, "--subresource=status", f"--patch={given}"
                        )

    def stop(self) -> None:
        self._end.set()
        self.join()


@pytest.fixture(scope="module")
def installed(node: Node) -> Iterator[Installation]:
    """Exposed by Routes, an Ingress and load balancers, which is for users only, with a console. Before there is a
    user, all pods are ready."""
    node.define_routes()
    resources = {"resources": {"requests": {"cpu": "10m", "memory": "64Mi"}}}
    exposed: dict[str, Any] = {
        "loadBalancer": {"enabled": True, "hosts": [NAME]},
        "routes": {"enabled": True, "hosts": {**HOSTS, "https": CONSOLE_HOSTS["route"]}},
        "ingress": {"enabled": True, "hosts": {"https": CONSOLE_HOSTS["ingress"]}},
    }
    console = {"enabled": True, **resources}
    made = Installation(node, users={"enabled": True}, authserv=resources, console=console, **exposed)
    provider = Provider(node, made.namespace)
    provider.start()
    try:
        made.install()
        yield made
    finally:
        provider.stop()
        made.close()


@pytest.fixture(scope="module")
def password(installed: Installation, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of the first user, made by the commands in the notes of the release."""
    notes = installed.node.helm("get", "notes", RELEASE, "--namespace", installed.namespace)
    first = re.search(r"The first one:\n((?:  \S.*\n)+)", notes)
    assert first is not None, notes
    assert not asyncio.run(let_in(installed, USER, "any")), "nobody is let in before"
    script = first[1].replace("NAME", USER).replace("ADDRESS", "myqueue mytopic")
    said = installed.shell(script, tmp_path_factory.mktemp("users"))
    generated = said.splitlines()[0]
    # Logins before would be failures, which make her wait, and each process counts its own.
    wait_for("the user is known", lambda: all(users_of(each) == 1 for each in installed.pods("authserv")), PATIENCE)
    wait_for("she is let in", lambda: asyncio.run(let_in(installed, USER, generated)), PATIENCE)
    return generated


def users_of(authserv: Any) -> int:
    """Of how many users this Pod knows."""
    with urllib.request.urlopen(f"http://{authserv['status']['podIP']}:{HEALTH}/metrics", timeout=DEADLINE) as answer:
        found = re.search(r"^enmasse_users(?:{.*})? (\d+)", answer.read().decode(), re.MULTILINE)
    assert found is not None
    return int(found[1])


async def let_in(installed: Installation, user: str | None, password: str | None = None, **where: Any) -> bool:
    place = {"host": installed.address("router"), "port": 5672, **where}
    try:
        async with connect(user=user, password=password, timeout=DEADLINE, **place):
            return True
    except AmqpError:
        return False


def mqtt_code(
    host: str, port: int, password: str | None, *, transport: Any = "tcp", tls: ssl.SSLContext | None = None
) -> int:
    """Return the reason code of CONNACK for USER, or for a client without a name."""
    codes: list[int] = []
    client = Client(CallbackAPIVersion.VERSION2, client_id="device", protocol=MQTTv5, transport=transport)
    if password is not None:
        client.username_pw_set(USER, password)
    if tls is not None:
        client.tls_set_context(tls)
    client.on_connect = lambda client, data, flags, reason, properties: codes.append(reason.value)
    client.connect(host, port)
    client.loop_start()
    wait_for("CONNACK", lambda: codes, PATIENCE)
    client.disconnect()
    client.loop_stop()
    return codes[0]


@asyncio_test
async def test_the_first_user_is_made_as_the_notes_say(installed: Installation, password: str) -> None:
    assert not await let_in(installed, None) and not await let_in(installed, USER, "wrong")
    own: dict[str, Any] = {"user": USER, "password": password}
    async with connect(host=installed.address("router"), port=5672, timeout=DEADLINE, **own) as client:
        receiver, sender = await client.receiver("myqueue"), await client.sender("myqueue")
        assert await sender.send(Message("hello"), timeout=DEADLINE) is ACCEPTED
        delivery = await receiver.receive(DEADLINE)
        assert delivery.message.body == "hello"
        await delivery.accept()
        with pytest.raises(AmqpError, match="alice may not send to anycast"):
            await client.sender("anycast", timeout=DEADLINE)
    gateway = installed.address("mqtt-gateway")
    assert mqtt_code(gateway, 1883, password) == 0
    assert mqtt_code(gateway, 1883, "wrong") == 0x86


def outside(installed: Installation) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(installed.authority()))


@asyncio_test
async def test_users_come_through_load_balancers_over_tls(installed: Installation, password: str) -> None:
    """By name."""
    services = {
        each["metadata"]["name"]: {port["port"] for port in each["spec"]["ports"]}
        for each in installed.node.get("services", namespace=installed.namespace)
        if each["spec"]["type"] != "ClusterIP"
    }
    assert services == {
        "enmasse-router-external": {5671},
        "enmasse-mqtt-gateway-external": {8883, 8084},
        "enmasse-console-external": {8443},
    }
    for port in (5671, 8883, 8084, 8443):
        wait_for(f"{OUTSIDE}:{port} is reached", partial(stranger.listens, OUTSIDE, port), PATIENCE)
    installed.resolve(OUTSIDE, NAME)
    there: dict[str, Any] = {"host": NAME, "port": 5671, "ssl": outside(installed)}
    assert await let_in(installed, USER, password, **there)
    assert not await let_in(installed, USER, "wrong", **there) and not await let_in(installed, None, **there)
    assert not await let_in(installed, USER, password, host=NAME, port=5671), "plain text where TLS is spoken"
    for port, transport in ((8883, "tcp"), (8084, "websockets")):
        for given_password, code in ((password, 0), ("wrong", 0x86), (None, 0x87)):
            assert mqtt_code(NAME, port, given_password, transport=transport, tls=outside(installed)) == code, port


@asyncio_test
async def test_users_come_through_routes_over_tls(installed: Installation, password: str) -> None:
    installed.open_door()
    there: dict[str, Any] = {"host": HOSTS["amqps"], "port": installed.proxy_port, "ssl": outside(installed)}
    assert await let_in(installed, USER, password, **there)
    assert not await let_in(installed, USER, "wrong", **there) and not await let_in(installed, None, **there)
    for given_password, code in ((password, 0), ("wrong", 0x86), (None, 0x87)):
        assert mqtt_code(HOSTS["mqtts"], installed.proxy_port, given_password, tls=outside(installed)) == code


PEOPLE = {"carol": "view,manage '#'", "dave": "view myqueue"}
"""Users of the console, with what they are allowed."""


@pytest.fixture(scope="module")
def people(installed: Installation, password: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Password of each of PEOPLE, added to the file in the cluster as docs/kubernetes.md says it."""
    before = r"kubectl -n messaging get secret enmasse-users -o jsonpath='{.data.users\.json}' | base64 -d"
    assert f"`{before}`" in (ROOT / "docs" / "kubernetes.md").read_text()
    add = "; ".join(
        f"enmasse user add {name} --config . --generate; enmasse user allow {name} {what} --config . >&2"
        for name, what in PEOPLE.items()
    )
    after = documented("Users")[0].splitlines()[-1]
    assert "create secret" in after
    folder = tmp_path_factory.mktemp("people")
    given = installed.shell(f"{before} > users.json\n{add}\n{after} >&2\n", folder).splitlines()
    many = len(PEOPLE) + 1
    wait_for("they are known", lambda: all(users_of(each) == many for each in installed.pods("authserv")), PATIENCE)
    return dict(zip(PEOPLE, given, strict=True))


def console(installed: Installation, host: str, port: int) -> ConsoleClient:
    return ConsoleClient(http.client.HTTPSConnection(host, port, timeout=DEADLINE, context=outside(installed)))


def logged_in(installed: Installation, people: dict[str, str], name: str) -> ConsoleClient:
    """At the console's Service, by its name."""
    service = f"{RELEASE}-console"
    installed.resolve(installed.address("console"), service)
    client = console(installed, service, 8443)
    wait_for(f"{name} logs in", lambda: client.log_in(name, people[name]).status == 200, PATIENCE)
    return client


def test_the_console_is_reached_over_tls_from_inside_and_outside(
    installed: Installation, people: dict[str, str]
) -> None:
    """By its Service, a Route, an Ingress and a load balancer: the page for everybody, all else for users."""
    logged_in(installed, people, "carol")  # from here on it knows the users
    installed.open_door()
    doors = dict.fromkeys(CONSOLE_HOSTS.values(), installed.proxy_port)
    for host, port, address in (
        *((host, port, "") for host, port in doors.items()),
        (f"{RELEASE}-console", 8443, installed.address("console")),
        (NAME, 8443, OUTSIDE),
    ):
        if address:
            installed.resolve(address, host)
        with console(installed, host, port) as client:
            page = client.at("GET", "/")
            assert page.status == 200 and "<!doctype html>" in page.body.lower(), host
            assert "default-src 'none'" in page.headers["Content-Security-Policy"]
            assert client("GET", "addresses").status == 401, host
            logged = client.log_in("carol", people["carol"])
            assert logged.status == 200 and "Secure" in logged.headers["Set-Cookie"], host
            assert {each["name"] for each in client.items("addresses")} == set(installed.addresses)
            origin = f"https://{host}:{port}"
            assert client("POST", "logout", Origin="https://evil.example").status == 403
            assert client("POST", "logout", Origin=origin).status == 204, host
    with console(installed, NAME, 8443) as client:
        assert client.log_in("carol", f"{people['carol']}x").status == 401


def test_an_address_made_with_the_console_becomes_active(installed: Installation, people: dict[str, str]) -> None:
    """It stands in the ConfigMap, whose other bytes stay, until it is removed with the console."""
    before = installed.files()["addresses.json"]
    with logged_in(installed, people, "carol") as client:
        path = f"addresses/{of('made/here')}"
        made = client("PUT", path, installed.addresses["myqueue"])
        assert made.status == 201, made
        wait_for("the address is active", lambda: client("GET", path).body["phase"] == "Active", PATIENCE)
        now = json.loads(installed.files()["addresses.json"])
        assert now == {**json.loads(before), "made/here": installed.addresses["myqueue"]}
        assert client("DELETE", path, If_Match=client("GET", path).etag).status == 204
        wait_for("it is gone", lambda: client("GET", path).status == 404, PATIENCE)
    assert installed.files()["addresses.json"] == before


def test_a_user_of_the_console_sees_what_it_may_view_and_nothing_else(
    installed: Installation, people: dict[str, str]
) -> None:
    hidden = set(installed.addresses) - {"myqueue"}
    with logged_in(installed, people, "dave") as client:
        assert [each["name"] for each in client.items("addresses")] == ["myqueue"]
        assert client("PUT", f"addresses/{of('made/here')}", {"type": "anycast"}).status in (403, 404)
        text = "".join(json.dumps(client("GET", path).body) for path in ("addresses", "overview", "config", "users"))
        assert not {name for name in (*hidden, "carol", USER) if f'"{name}"' in text}
    assert "made/here" not in installed.files()["addresses.json"]


def test_helm_test_needs_no_user(installed: Installation) -> None:
    assert installed.tested("") == {"operators"}


def pod(name: str) -> dict[str, Any]:
    """One that belongs to no release, with our packages and without any certificate."""
    container = {
        "name": "stranger", "image": names("router")[0], "imagePullPolicy": "Never", "securityContext": CONFINED,
        "command": ["python3", "-c", "import signal; signal.pause()"],
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }  # fmt: skip
    spec = {"containers": [container], "volumes": [{"name": "tmp", "emptyDir": {}}], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_without_network_policies_strangers_are_refused_at_every_port(
    installed: Installation, password: str, tmp_path: Path
) -> None:
    """From a Pod of another namespace, at whatever the kernel shows that the release's Pods listen on."""
    installed.helm("upgrade", "--set=networkPolicy.enabled=false")
    node = installed.node
    assert not node.get("networkpolicies", namespace=installed.namespace)
    places: dict[tuple[str, int], set[str]] = {}
    for each in node.get("pods", namespace=installed.namespace):
        component = each["metadata"]["labels"]["app.kubernetes.io/component"]
        if component != "test" and is_ready(each):
            for port in listening(each):
                places.setdefault((component, port), set()).add(each["status"]["podIP"])
    for service in node.get("services", namespace=installed.namespace):
        component = service["metadata"]["labels"]["app.kubernetes.io/component"]
        if service["spec"]["clusterIP"] != "None":
            for entry in service["spec"]["ports"]:
                places.setdefault((component, entry["port"]), set()).add(service["spec"]["clusterIP"])
    assert {place for place in places if place[1] != HEALTH} == INNER | AMQP.keys() | MQTT.keys() | {CONSOLE}, (
        "a port is forgotten"
    )

    elsewhere = node.namespace("stranger")
    node.apply(pod("stranger"), namespace=elsewhere)
    node.kubectl("wait", "--for=condition=Ready", "pod/stranger", "--namespace", elsewhere, "--timeout=300s")
    forged = Authority(tmp_path / "ca").issue_folder(tmp_path / "forged", "router/enmasse-router")
    right = installed.certificate("operator", tmp_path / "operator")
    told = {
        "places": [(address, port) for place in (INNER, AMQP) for c, port in place for address in places[c, port]],
        "folders": {each.name: {file.name: file.read_text() for file in each.iterdir()} for each in (forged, right)},
    }
    source = Path(stranger.__file__).read_text()
    run = ("exec", "stranger", "--namespace", elsewhere, "--", "python3", "-c", source, json.dumps(told))
    found = json.loads(node.kubectl(*run))
    for component, port in INNER | AMQP.keys():
        # With the certificate that a process has: what refuses the others is that they have none.
        expected = (
            ["operator"] if (component, port) in {("configserv", 5672), ("broker", 5672), ("router", 5673)} else []
        )
        for address in places[component, port]:
            assert found[f"{address}:{port}"] == expected, (component, port)
    for (component, port), (transport, tls) in MQTT.items():
        for address in places[component, port]:
            context = stranger.trusting_all() if tls else None
            assert mqtt_code(address, port, None, transport=transport, tls=context) == 0x87, port
    for address in places[CONSOLE]:
        context = stranger.trusting_all()
        with ConsoleClient(
            http.client.HTTPSConnection(address, CONSOLE[1], timeout=DEADLINE, context=context)
        ) as client:
            assert client("GET", "addresses").status == 401
    installed.helm("upgrade")


class Logins:
    """A client that logs in, sends a numbered message and leaves, again and again."""

    def __init__(self, installed: Installation, password: str) -> None:
        self.own: dict[str, Any] = {"user": USER, "password": password, "timeout": 60}
        self.place: dict[str, Any] = {"host": installed.address("router"), "port": 5672}
        self.sent = 0
        self.failures: list[str] = []

    async def run(self) -> None:
        while True:
            try:
                async with connect(**self.place, **self.own) as client:
                    sender = await client.sender("myqueue", timeout=DEADLINE)
                    assert await sender.send(Message(self.sent, durable=True), timeout=DEADLINE) is ACCEPTED
            except AmqpError as error:
                self.failures.append(str(error))
            else:
                self.sent += 1
            # pause: the rate of its logins
            await asyncio.sleep(0.1)

    async def more(self) -> None:
        wanted = self.sent + 10

        async def come() -> bool:
            return self.sent >= wanted

        await until(come, "more logins", PATIENCE)


@asyncio_test
async def test_users_log_in_while_certificates_are_replaced(installed: Installation, password: str) -> None:
    """New connections between all processes that a login needs, by the new certificates of all services."""
    logins = Logins(installed, password)
    task = asyncio.create_task(logins.run())
    await logins.more()
    before = installed.identities()
    await asyncio.to_thread(installed.replace_certificates)
    assert not before.items() & installed.identities().items()
    await logins.more()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert logins.failures == []
    async with connect(**logins.place, **logins.own) as client:
        receiver = await client.receiver("myqueue")
        seen = {(await receiver.receive(DEADLINE)).message.body for _ in range(logins.sent)}
    assert seen == set(range(logins.sent))
