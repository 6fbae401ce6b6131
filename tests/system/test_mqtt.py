"""MQTT in the running suite, as operators see it: who is there, what is kept, how many gateways there are."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from enmasse.identity.processes.credentials import read_credential
from enmasse.identity.processes.relayed_client import ConnectedClient
from enmasse.process.places import Places
from enmasse.process.settings import host_port
from enmasse.testing import Suite, running, wait_for
from services.mqtt_gateway.network.amqp_relay import AmqpRelay, NotRelayed
from tests import one_program
from tests.certificates import Authority
from tests.kit.processes import COMMAND, run
from tests.kit.relayed import RelayedClient
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until
from tests.redis_server import RedisServer
from tests.system.mqtt_devices import Device, exactly_once
from tests.system.seeing import kill, wait_process

PATIENCE = DEADLINE


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with running(tmp_path_factory.mktemp("mqtt"), options=()) as found:
        found.up()
        yield found
        assert found.down() == 0


class Mqtt:
    """An MQTT 5 client with a session that lasts. `authority`: file of who signed the server's certificate, for TLS.
    `present`: the session was there. `reason`: why it was disconnected."""

    def __init__(self, name: str, port: int, *, authority: Path | None = None, web: bool = False) -> None:
        self.client = Client(
            CallbackAPIVersion.VERSION2, client_id=name, protocol=MQTTv5, reconnect_on_failure=False,
            transport="websockets" if web else "tcp",
        )  # fmt: skip
        self.client.connect_timeout = PATIENCE  # of TLS and WebSocket handshakes, too
        if authority is not None:
            self.client.tls_set(str(authority))
        self.present: bool | None = None
        self.reason: Any = None
        self._answered, self.gone = threading.Event(), threading.Event()
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = lambda *_: self._answered.set()
        self.client.on_disconnect = self._on_disconnect
        properties: Any = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 3600
        self.client.connect("localhost", port, clean_start=False, properties=properties)
        self.client.loop_start()
        assert self._answered.wait(PATIENCE)

    def _on_connect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        assert not reason.is_failure, reason
        self.present = flags.session_present
        self._answered.set()

    def _on_disconnect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        self.reason = reason
        self.gone.set()

    def subscribe(self, topic: str) -> None:
        self._answered.clear()
        self.client.subscribe(topic, qos=1)
        assert self._answered.wait(PATIENCE)

    def publish(self, topic: str, payload: str, *, retain: bool = False) -> None:
        self.client.publish(topic, payload, qos=1, retain=retain).wait_for_publish(PATIENCE)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.mark.parametrize(("host", "status"), [("localhost", 101), ("rebound.example", 403)])
def test_pages_of_this_machine_may_connect_and_no_page_whose_name_resolves_to_it(
    suite: Suite, host: str, status: int
) -> None:
    port = 8083 + suite.offset
    page = {"Host": f"{host}:{port}", "Origin": f"http://{host}:{port}"}
    upgrade = {
        "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Protocol": "mqtt",
        "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    asking = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with contextlib.closing(asking):
        asking.request("GET", "/mqtt", headers=page | upgrade)
        assert asking.getresponse().status == status


def ask(suite: Suite, *words: str, status: int = 0) -> str:
    """The output of a command for this suite: on stderr, if another exit status than 0 is expected."""
    done = run(COMMAND, *words, "--port-offset", str(suite.offset))
    assert done.returncode == status, (done.stdout, done.stderr)
    return done.stderr if status else done.stdout


def listed(suite: Suite, *words: str) -> Any:
    return json.loads(ask(suite, *words, "--json"))


def counts(suite: Suite) -> dict[str, int]:
    """Of all components together."""
    found: dict[str, int] = {}
    for component in suite.status()["components"]:
        for name, number in component["counts"].items():
            found[name] = found.get(name, 0) + number
    return found


def subscription(suite: Suite, client: str) -> Any:
    rows = listed(suite, "subscription", "list")["subscriptions"]
    return next((row for row in rows if row["client"] == client), None)


def test_clients_sessions_and_their_subscriptions(suite: Suite) -> None:
    pump = Mqtt("pump", suite.mqtt_port)
    pump.subscribe("mytopic/commands/#")
    row = next(row for row in listed(suite, "mqtt", "clients")["clients"] if row["client"] == "pump")
    assert (row["connected"], row["gateway"], row["protocol"]) == (True, "mqtt_gateway-0", 5)
    session = subscription(suite, "pump")
    assert session["kind"] == "mqtt" and session["filters"] == {"mytopic/commands/#": "1"} and session["connected"]
    assert "is connected" in ask(suite, "subscription", "delete", session["id"], status=1)
    wait_for("the counts", lambda: counts(suite).get("clients") == 1 and counts(suite).get("sessions") == 1)

    assert ask(suite, "mqtt", "disconnect", "pump") == "disconnected pump\n"
    assert pump.gone.wait(PATIENCE) and pump.reason.value == 0x98
    pump.client.loop_stop()
    assert "pump is away" in ask(suite, "mqtt", "disconnect", "pump", status=1)
    wait_for("it is away", lambda: not subscription(suite, "pump")["connected"])
    assert listed(suite, "mqtt", "clients")["clients"] == []
    assert listed(suite, "mqtt", "clients", "--all")["clients"][0]["client"] == "pump"

    ask(suite, "send", "mytopic/commands/start", "now")
    wait_for("the message waits", lambda: subscription(suite, "pump")["depth"] == 1)
    assert "holds 1 message;" in ask(suite, "subscription", "delete", session["id"], status=1)
    assert subscription(suite, "pump") == listed(suite, "subscription", "show", session["id"])
    ask(suite, "subscription", "delete", session["id"], "--force")
    assert subscription(suite, "pump") is None
    again = Mqtt("pump", suite.mqtt_port)
    assert again.present is False
    again.close()
    ask(suite, "subscription", "delete", session["id"], "--force")


@pytest.mark.parametrize("command", ["connection close mqtt_gateway-0/", "mqtt disconnect ", "subscription delete "])
def test_a_connection_that_an_operator_closes_is_no_refusal(suite: Suite, command: str) -> None:
    name = f"to-{command.split()[1]}"
    client = Mqtt(name, suite.mqtt_port)
    ends_session = command.startswith("subscription")
    wait_for("its connection is listed", lambda: name in ask(suite, "connection", "list"))
    ask(suite, *f"{command}{name}".split(), *(["--force"] if ends_session else []))
    assert client.gone.wait(PATIENCE)
    client.client.loop_stop()
    found = wait_for("its event", lambda: ask(suite, "events", "--client", name, "--json"), PATIENCE)
    events = [json.loads(line) for line in found.splitlines()]
    assert [(event["kind"], event["description"]) for event in events] == [("client.closed", "closed by operator")]
    if not ends_session:
        ask(suite, "subscription", "delete", name, "--force")


def test_durable_subscriptions_of_amqp_clients_are_listed_too(suite: Suite) -> None:
    ask(suite, "receive", "mytopic", "--durable", "mine", "--container", "me", "--timeout", "0.5")
    ask(suite, "send", "mytopic", "hello")
    rows = [row for row in listed(suite, "subscription", "list")["subscriptions"] if row["kind"] == "durable"]
    assert len(rows) == 1 and "mine" in rows[0]["id"] and rows[0]["depth"] == 1
    ask(suite, "subscription", "delete", rows[0]["id"], "--force")
    assert [row for row in listed(suite, "subscription", "list")["subscriptions"] if row["kind"] == "durable"] == []


def test_retained_messages(suite: Suite) -> None:
    client = Mqtt("keeper", suite.mqtt_port)
    for room in ("kitchen", "bath"):
        client.publish(f"mytopic/{room}", "21", retain=True)
    client.close()

    def topics(*filters: str) -> set[str]:
        return {row["topic"] for row in listed(suite, "retained", "list", *filters)["retained"]}

    wait_for("both are retained", lambda: topics() == {"mytopic/kitchen", "mytopic/bath"})
    assert topics("mytopic/kitchen") == {"mytopic/kitchen"}
    wait_for("the count", lambda: counts(suite).get("retained") == 2)
    assert ask(suite, "retained", "clear", "mytopic/bath") == "cleared 1 retained message\n"
    assert topics() == {"mytopic/kitchen"}
    assert "matches 1 retained message" in ask(suite, "retained", "clear", "#", status=1)
    ask(suite, "retained", "clear", "#", "--force")
    assert topics() == set()


def test_retained_messages_go_with_their_topics(suite: Suite) -> None:
    """To an address that is added, to another default, and to the default when the address is removed."""
    file = suite.config / "addresses.json"
    before = file.read_bytes()
    topic = {"type": "topic", "flavor": "large-persisted-topic"}
    client = Mqtt("metro-keeper", suite.mqtt_port)
    seen = 0

    def check(filter: str, **expected: str) -> None:
        nonlocal seen
        seen += 1
        device = Device(f"metro-{seen}", suite.mqtt_port)
        topics: dict[str, str] = {}
        device.client.on_message = lambda c, d, message: topics.update({message.topic: message.payload.decode()})
        device.connect()
        device.subscribe(filter, 1)
        wanted = {f"metro/{name}": text for name, text in expected.items()}
        wait_for(f"{wanted} of {filter}", lambda: {n: t for n, t in topics.items() if "metro" in n} == wanted, PATIENCE)
        device.end()

    def configure(**entries: Any) -> None:
        suite.edit("addresses.json", entries, remove=[] if "metro" in entries else ["metro"])
        ask(suite, "status", "--wait", "60")

    for name in ("1", "2", "3"):
        client.publish(f"metro/{name}", "first", retain=True)
    configure(metro=topic)
    check("metro/#", **{"1": "first", "2": "first", "3": "first"})
    check("#", **{"1": "first", "2": "first", "3": "first"})
    client.publish("metro/1", "second", retain=True)
    client.publish("metro/2", "", retain=True)
    check("metro/+", **{"1": "second", "3": "first"})
    rows = listed(suite, "retained", "list", "metro/#")["retained"]
    assert sorted((row["topic"], row["name"]) for row in rows) == [("metro/1", "metro/1"), ("metro/3", "mqtt/metro/3")]
    default = {"type": "topic", "flavor": "small-persisted-topic"}
    configure(mqtt=default, other={**default, "mqttDefault": True})
    check("metro/#", **{"1": "second", "3": "first"})
    ask(suite, "retained", "clear", "metro/#", "--force")
    check("metro/#")
    client.close()
    file.with_suffix(".new").write_bytes(before)
    file.with_suffix(".new").rename(file)
    ask(suite, "status", "--wait", "60")


@pytest.mark.parametrize("share", ["", "$share/all/"])
def test_what_a_session_has_stored_outlives_a_new_address_of_its_topics(suite: Suite, share: str) -> None:
    name = f"tram{len(share)}"
    file = suite.config / "addresses.json"
    before = file.read_bytes()
    devices = [(version, qos, Device(f"{name}-{version}-{qos}", suite.mqtt_port, version))
               for version in (4, 5) for qos in (1, 2)]  # fmt: skip
    for version, qos, device in devices:
        device.connect()
        device.subscribe(f"{share.replace('all', f'{version}-{qos}')}{name}/#", qos)
        device.close()
    for qos in (1, 2):
        ask(suite, "publish", f"{name}/1", f"sent with {qos}", "--qos", str(qos))
    suite.edit("addresses.json", {name: {"type": "topic", "flavor": "small-persisted-topic"}})
    ask(suite, "status", "--wait", "60")
    ask(suite, "publish", f"{name}/1", "sent later")
    for version, qos, device in devices:
        expected = dict.fromkeys(["sent with 1", "sent with 2", "sent later"], f"{name}/1")
        wait_for_topics(device, expected, f"all of MQTT {version} with QoS {qos}")
        device.end()
    file.with_suffix(".new").write_bytes(before)  # to the byte: another test compares
    file.with_suffix(".new").rename(file)


def test_what_a_session_has_stored_outlives_a_default_that_moves(suite: Suite) -> None:
    """The mark goes to a topic that is there, to one that is made with it on another broker, and back; messages are
    published as soon as the suite is ready."""
    file = suite.config / "addresses.json"
    before = file.read_bytes()
    small = {"type": "topic", "flavor": "small-persisted-topic"}
    suite.edit("addresses.json", {"was/there": small})
    ask(suite, "status", "--wait", "60")
    filters = ["bus/#", "+/1", "$share/all/bus/#"]
    devices = [(filter, qos, Device(f"bus-{at}-{qos}", suite.mqtt_port, version))
               for at, filter in enumerate(filters) for version, qos in ((4, 1), (5, 2))]  # fmt: skip
    for filter, qos, device in devices:
        device.connect()
        device.subscribe(filter.replace("all", str(qos)), qos)
        device.close()
    expected: dict[str, str] = {}
    for marked in ("mqtt", "was/there", "new", "mqtt"):
        topics = {name: {**small, "mqttDefault": name == marked} for name in ("mqtt", "was/there")}
        if marked == "new":
            topics["new"] = {"type": "topic", "flavor": "large-persisted-topic", "mqttDefault": True}
        suite.edit("addresses.json", topics, remove=[] if marked == "new" else ["new"])
        ask(suite, "status", "--wait", "60")
        for level in ("1", "2"):
            expected[f"{marked} {level} {len(expected)}"] = "bus/1"
            ask(suite, "publish", "bus/1", list(expected)[-1], "--qos", level)
    for filter, qos, device in devices:
        wait_for_topics(device, expected, f"all of {filter} with QoS {qos}")
        device.end()
    file.with_suffix(".new").write_bytes(before)
    file.with_suffix(".new").rename(file)
    ask(suite, "status", "--wait", "60")


def wait_for_topics(device: Device, expected: dict[str, str], what: str) -> None:
    """Connect the device, and wait until it has got these payloads by these topics."""
    topics: dict[str, str] = {}

    def note(client: Any, data: Any, message: Any) -> None:
        topics[message.payload.decode()] = message.topic

    device.client.on_message = note
    device.connect()
    wait_for(what, lambda: topics == expected, PATIENCE)


def test_a_client_finds_its_session_at_another_gateway(suite: Suite) -> None:
    ask(suite, "scale", "mqtt_gateway=2")
    suite.wait_ready()
    gateways = [c for c in suite.status()["components"] if c["kind"] == "mqtt_gateway"]
    ports = [int(c["endpoints"]["own"].rpartition(":")[2]) for c in gateways]
    first = Mqtt("roamer", ports[0])
    first.subscribe("mytopic/roamer")
    os.kill(gateways[0]["pid"], signal.SIGKILL)
    assert first.gone.wait(PATIENCE)
    first.client.loop_stop()
    second = Mqtt("roamer", ports[1])
    assert second.present is True
    suite.wait_ready()
    third = Mqtt("roamer", ports[0])  # while the second one is connected
    assert third.present is True and second.gone.wait(PATIENCE)
    assert second.reason.getName() == "Session taken over"
    second.client.loop_stop()
    third.close()
    ask(suite, "scale", "mqtt_gateway=1")
    suite.wait_ready()
    assert "exactly one" in ask(suite, "scale", "subserv=2", status=1)
    ask(suite, "subscription", "delete", subscription(suite, "roamer")["id"], "--force")


@pytest.mark.slow  # test_kills_of_gateway_and_subscription_service
def test_sessions_have_everything_once_over_the_death_of_each_process(suite: Suite) -> None:
    """Publishers and readers are at any of three gateways behind one port, and after a kill at another one."""
    ask(suite, "scale", "mqtt_gateway=3")
    suite.wait_ready()
    gateways = [f"mqtt_gateway-{number}" for number in range(3)]
    exactly_once(suite, "mytopic", lambda name: wait_process(suite, name, kill(suite, name)), gateways)
    request = urllib.request.Request(f"http://127.0.0.1:{8079 + suite.offset}/metrics", headers=suite.operator_headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        shown = answer.read().decode()
    assert all(f'enmasse_mqtt_clients{{name="{name}"}}' in shown for name in gateways)
    ask(suite, "scale", "mqtt_gateway=1")
    suite.wait_ready()


@asyncio_test
async def test_who_passes_clients_on_and_which_clients_have_to_log_in(suite: Suite) -> None:
    """A gateway does, a service that is none does not; a page of any site is no anonymous client."""
    run = suite.data / "run"
    routers = Places(*map(host_port, json.loads((run / "mqtt_gateway-0.json").read_text())["router"]))

    def relay(name: str) -> AmqpRelay:
        return AmqpRelay(routers, name, read_credential(str(run / f"{name}.credential")))

    for any_site in (False, True):
        known = ConnectedClient("192.0.2.7:4711", any_site=any_site)
        client = RelayedClient(await relay("mqtt_gateway-0").dial(known))
        await until(lambda client=client: client.router, "the router has answered")  # type: ignore[misc]  # mypy infers no type of a lambda's default
        if any_site:
            await until(lambda client=client: client.gone, "the router has closed")  # type: ignore[misc]  # as above
            assert client.error is not None and "log in" in client.error.description
        client.close()
    with pytest.raises(NotRelayed):
        await relay("subserv").dial(ConnectedClient("192.0.2.7:4711"))


@pytest.mark.slow  # test_store_away.py of subserv, and test_mqtt_services.py of cli
def test_redis_is_waited_for_and_every_entry_serves(tmp_path: Path) -> None:
    """Without its Redis server the suite says so; once that is there, MQTT works over TCP, TLS and WebSocket."""
    redis = RedisServer(tmp_path / "redis", start=False)
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")
    tls = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with running(tmp_path, options=("--store", redis.url, *tls)) as suite:
        starting = threading.Thread(target=suite.up)
        starting.start()

        def tell() -> bool:
            details = [c["detail"] for c in suite.status()["components"] if c["kind"] in ("subserv", "mqtt_lwt")]
            return len(details) == 2 and all(f"redis 127.0.0.1:{redis.port}" in detail for detail in details)

        wait_for("both services name the store", tell)
        assert not suite.status()["ready"]
        ask(suite, "send", "myqueue", "AMQP works all the same")
        redis.start()
        try:
            starting.join(PATIENCE)
            entries = {
                "tcp": Mqtt("tcp", suite.mqtt_port),
                "ws": Mqtt("ws", 8083 + suite.offset, web=True),
                "tls": Mqtt("tls", 8883 + suite.offset, authority=authority.file),
                "wss": Mqtt("wss", 8084 + suite.offset, authority=authority.file, web=True),
            }
            for name, client in entries.items():
                client.publish(f"mytopic/{name}", "1", retain=True)
                client.close()
            wait_for("all are retained", lambda: counts(suite).get("retained") == len(entries))
            assert suite.down() == 0
        finally:
            redis.stop()


def test_one_program_for_every_engine(suite: Suite) -> None:
    one_program.check_files(suite.config)
    one_program.check(suite.url, f"mqtt://127.0.0.1:{suite.mqtt_port}")
