"""The options file of `enmasse up`, and reading it again while clients are connected."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import pty
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import click
import pytest

from enmasse.aio.client import connect
from enmasse.amqp.messages.message import Message
from enmasse.cli import registry
from enmasse.cli.commands.suite.up import _Stated
from enmasse.cli.configuration.options_file import OPTIONS_FILE
from enmasse.supervisor.errors import StartError
from enmasse.supervisor.plan.listen_option import listeners, parse
from enmasse.supervisor.reloading import LIVE, compared
from enmasse.testing import free_offset, free_port
from tests.cli.running import ENMASSE, Up, configured, enmasse
from tests.kit.waiting import DEADLINE, wait_for

command = cast(click.Command, registry.group.get_command(click.Context(registry.group), "up"))


def stated(folder: Path, content: object, *arguments: str) -> _Stated:
    """Options of a command line, with this file in the configuration folder."""
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / OPTIONS_FILE).write_text(text)
    found: dict[str, Any] = {}
    words = ["--config", str(folder), "--data", str(folder / "data"), *arguments]
    context = command.make_context("up", words)
    found.update(context.params)
    return _Stated(context, found)


def test_the_file_has_what_the_command_line_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENMASSE_ROUTERS", "2")
    content = {
        "listen": ["localhost"], "mqtt-limit": ["connections=5"], "allow_plaintext": True, "gateways": "1..3",
        "tls-cert": "server.crt", "with": ["spark=jobs/p.toml", "http"], "metrics-addresses": 7, "routers": 4,
    }  # fmt: skip
    found = stated(tmp_path, content, "--listen", "::1", "--metrics-addresses", "9").options()
    assert [each.text for each in found.listen] == ["::1"]
    assert (found.metrics_addresses, found.mqtt_limits.connections, found.allow_plaintext) == (9, 5, True)
    assert str(found.gateways) == "1..3" and str(found.routers) == "2"
    assert found.tls_cert == tmp_path / "server.crt" and found.pipeline == tmp_path / "jobs" / "p.toml"
    assert found.doors == {"http"} and not found.traces


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "up.json:1: is not JSON"),
        ("[]", "up.json:1: must be an object"),
        ('{\n"listne": ["x"]}', "up.json:2: listne: is no option of `enmasse up`. Did you mean 'listen'?"),
        ('{"listen": [], "listen": []}', "up.json:1: listen: occurs twice"),
        ({"listen": "localhost"}, "listen: may be repeated: write a list"),
        ({"listen": ["gopher=x"]}, "listen: 'gopher=x': there is no protocol 'gopher'"),
        ({"listen": [["x"]]}, "listen: must be a text"),
        ({"traces": 1}, "traces: is a flag: write true or false"),
        ({"gateways": True}, "gateways: must be a text"),
        ({"gateways": "0"}, "gateways: 0 is not in the range"),
        ({"mqtt-limit": ["connections=0"]}, "mqtt-limit: connections: Expected"),
        ({"webhooks": "none"}, "webhooks: File"),
        ({"store": None}, "store: must be a text"),
        ({"config": "x"}, "config: stands on the command line"),
        ({"options": "x"}, "options: stands on the command line"),
        ({"space": "x"}, "space: is no option"),
        ({"tls": "auto", "tls-cert": "x"}, "--tls auto makes its own certificate"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(content: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(StartError) as caught:
        stated(tmp_path, content).again()
    assert said in str(caught.value) and "[start.options.invalid]" in str(caught.value)


def test_a_file_that_is_named_must_be_there_and_may_have_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "o.json"
    context = command.make_context("up", ["--options", str(file)])
    with pytest.raises(StartError, match="No such file"):
        _Stated(context, context.params).again()
    file.write_text(json.dumps({"config": "c", "data": "d", "port-offset": 7}))
    found = _Stated(context, context.params).again()
    assert (found.config, found.data, found.offset) == (tmp_path / "c", tmp_path / "d", 7)


def test_each_option_takes_effect_or_is_said_to_need_a_restart(tmp_path: Path) -> None:
    running = stated(tmp_path, {}).options()
    changed = {"listen": ["localhost"], "log-level": ["debug"], "store": "redis://x:1", "with": ["http"], "tls": "auto"}
    found = compared(running, stated(tmp_path, changed).options())
    assert (found.changed, set(found.later)) == (["log-level", "listen"], {"tls", "store", "with"})
    assert found.options.listen and found.options.store is None and not found.options.tls_auto
    assert {each.name for each in command.params if each.name in LIVE} == LIVE


def test_what_the_command_line_states_otherwise_is_named(tmp_path: Path) -> None:
    line = ("--with", "http", "--log-level", "debug")
    running = stated(tmp_path, {}, *line).options()
    found = compared(running, stated(tmp_path, {"with": ["http", "stomp"], "log-level": ["debug"]}, *line).options())
    assert str(found) == "nothing has changed; not in force, as the command line of `enmasse up` states them: with"
    assert not compared(running, stated(tmp_path, {"with": ["http"]}, *line).options()).options.overridden


def test_a_listener_keeps_its_name_as_long_as_it_is_there() -> None:
    ports = {"amqp": 5672}
    one, two = "amqp=192.0.2.1", "amqp=192.0.2.2"
    first = listeners(ports, map(parse, (one, two)), plaintext=True)
    known = {each.place: each.name for each in first}
    second = listeners(ports, [parse(two), parse("amqp=192.0.2.3")], plaintext=True, known=known)
    assert [(each.name, each.host) for each in second] == [
        ("amqp", "127.0.0.1"), ("amqp-3", "192.0.2.2"), ("amqp-4", "192.0.2.3"),
    ]  # fmt: skip


# A suite with clients

PROTOCOLS = ("amqp", "mqtt", "http", "stomp", "coap")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("reloaded")
    assert enmasse("init", folder / "config").returncode == 0
    parts = tuple(word for part in ("http", "stomp", "coap") for word in ("--with", part))
    with Up(folder / "config", folder / "data", fake=False, options=parts) as up:
        yield up.until_ready()


def options(suite: Up, **more: Any) -> None:
    content = {name.replace("_", "-"): value for name, value in more.items()}
    (suite.config / OPTIONS_FILE).write_text(json.dumps(content))


def reload(suite: Up, status: int = 0) -> str:
    done = enmasse("reload", "--port-offset", suite.offset)
    assert done.returncode == status, done
    return done.stdout + done.stderr


def listens(port: int, kind: int = socket.SOCK_STREAM) -> bool:
    """Whether somebody listens at a port of loopback."""
    with socket.socket(type=kind) as trying:
        if kind == socket.SOCK_STREAM:
            return trying.connect_ex(("127.0.0.1", port)) == 0
        try:
            trying.bind(("127.0.0.1", port))
        except OSError:
            return True
        return False


@contextlib.contextmanager
def publishing(port: int) -> Iterator[Any]:
    """A client of MQTT, which counts its losses."""
    import paho.mqtt.client as paho

    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    lost: list[object] = []
    client.on_disconnect = lambda *facts: lost.append(facts)
    client.connect("127.0.0.1", port)
    client.loop_start()
    wait_for(client.is_connected)
    yield client
    assert not lost
    client.disconnect()
    client.loop_stop()


def test_connections_stay_with_their_traffic_while_listeners_come_and_go(suite: Up) -> None:
    asyncio.run(_traffic_while_listeners_come_and_go(suite))


async def _traffic_while_listeners_come_and_go(suite: Up) -> None:
    ports = {protocol: free_port() for protocol in PROTOCOLS}
    place = [f"{protocol}=127.0.0.1:{port}" for protocol, port in ports.items()]
    options(suite, listen=place, log_level=["info"])
    assert "listen" in await asyncio.to_thread(reload, suite)
    names = {c["name"]: c["pid"] for c in suite.status()["components"]}
    web = http.client.HTTPConnection("127.0.0.1", ports["http"], timeout=DEADLINE)
    stomp = socket.create_connection(("127.0.0.1", ports["stomp"]), timeout=DEADLINE)
    old = ports["amqp"]
    got: list[int] = []
    sent = 0
    async with connect(host="127.0.0.1", port=old) as client:
        sender, receiver = await client.sender("myqueue"), await client.receiver("myqueue")

        async def receive() -> None:
            async for delivery in receiver:
                got.append(delivery.message.body)
                await delivery.accept()

        async def send() -> None:
            nonlocal sent
            while True:
                await sender.send(Message(sent))
                sent += 1

        work = [asyncio.create_task(receive()), asyncio.create_task(send())]
        with publishing(ports["mqtt"]) as mqtt:
            web.request("GET", "/v1/openapi.json")
            answer = web.getresponse()
            answer.read()
            # Others in their place: the former ones no longer listen, and what came by them goes on.
            ports = {protocol: free_port() for protocol in PROTOCOLS}
            before = dict(zip(ports, place, strict=True))
            options(suite, listen=[f"{p}=127.0.0.1:{port}" for p, port in ports.items()], log_level=["error"])
            assert "in force: " in await asyncio.to_thread(reload, suite)
            for protocol in PROTOCOLS:
                kind = socket.SOCK_DGRAM if protocol == "coap" else socket.SOCK_STREAM
                assert listens(ports[protocol], kind), protocol
                assert not listens(int(before[protocol].rpartition(":")[2]), kind), protocol
            done = mqtt.publish("mytopic/a", "x", qos=1)
            await asyncio.to_thread(done.wait_for_publish, DEADLINE)
            assert done.is_published()
            web.request("GET", "/v1/openapi.json")
            assert web.getresponse().status == answer.status
            stomp.sendall(b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0")
            assert (await asyncio.to_thread(stomp.recv, 100)).startswith(b"CONNECTED")
        count = sent
        await asyncio.to_thread(wait_for, lambda: sent > count + 100)
        for task in work[1:]:
            task.cancel()
        await asyncio.to_thread(wait_for, lambda: len(got) >= sent)
        assert got[:sent] == list(range(sent))
        work[0].cancel()
    web.close()
    stomp.close()
    assert {c["name"]: c["pid"] for c in suite.status()["components"]} == names, "no process was restarted"
    assert all(c["restarts"] == 0 for c in suite.status()["components"])


def test_limits_and_origins_of_connected_gateways_change(suite: Up) -> None:
    options(suite, mqtt_limit=["connections=1"], allowed_origin=["https://page.example"])
    assert "in force: allowed-origin, mqtt-limit" in reload(suite)
    port = 1883 + suite.offset
    with publishing(port):
        done = enmasse("publish", "mytopic/a", "x", "--server", f"mqtt://127.0.0.1:{port}", "--timeout", "5")
        assert done.returncode == 4 and "1 clients are connected already" in done.stderr
        log = suite.data / "logs" / "mqtt_gateway-0.log"
        wait_for(lambda: "client.refused" in log.read_text(), "a line: before, only errors had one")
        web = http.client.HTTPConnection("127.0.0.1", 8088 + suite.offset, timeout=DEADLINE)
        for origin, status in (("https://page.example", 200), ("https://other.example", 403)):
            web.request("GET", "/v1/openapi.json", headers={"Origin": origin})
            answer = web.getresponse()
            answer.read()
            assert (answer.status == 403) == (status == 403), (origin, answer.status)
        options(suite)
        assert "mqtt-limit" in reload(suite)
        done = enmasse("publish", "mytopic/a", "x", "--server", f"mqtt://127.0.0.1:{port}", "--timeout", "60")
        assert done.returncode == 0, done


def test_a_bad_reload_leaves_everything(suite: Up) -> None:
    options(suite)
    reload(suite)
    before = {c["name"]: (c["pid"], c["endpoints"]) for c in suite.status()["components"]}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for listen, said in (
            (["amqp=127.0.0.1:1", f"mqtt=127.0.0.1:{taken.getsockname()[1]}"], "is in use by"),
            (["mqtt=192.0.2.1:8885"], "[start.listen."),
            (["0.0.0.0"], "[start.listen.anonymous]"),
            (["mqtts=127.0.0.1"], "[start.listen.not-served]"),
        ):
            options(suite, listen=listen, log_level=["debug"], gateways=2)
            assert said in reload(suite, 1)
    options(suite, listen=["localhost"], gatewys=2)
    assert "gatewys: is no option" in reload(suite, 1)
    assert {c["name"]: (c["pid"], c["endpoints"]) for c in suite.status()["components"]} == before
    options(suite, store="redis://127.0.0.1:1/0", gateways=2)
    assert "in force: gateways; after a restart of `enmasse up` only: store" in reload(suite, 3)
    wait_for(lambda: suite.runs("mqtt_gateway-1"))
    options(suite)
    reload(suite)


def test_the_data_folder_leads_to_the_suite(suite: Up, tmp_path: Path) -> None:
    options(suite, port_offset=suite.offset + 1)
    done = enmasse("reload", "--data", suite.data)
    assert (done.returncode, done.stderr) == (0, ""), "the command line wins over the file"
    done = enmasse("reload", "--data", tmp_path, env={"ENMASSE_PORT_OFFSET": str(suite.offset)})
    assert done.returncode == 4 and f"no suite has run with the data folder {tmp_path}" in done.stderr
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "suite.json").write_text(json.dumps({"port-offset": suite.offset}))
    done = enmasse("reload", "--data", tmp_path)  # another suite has its ports now
    assert done.returncode == 4 and f"no suite runs with the data folder {tmp_path}" in done.stderr
    done = enmasse("reload", "--port-offset", suite.offset, env={"ENMASSE_DATA": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, ""), "the command line wins over the variable"


def test_sighup_reads_the_file(suite: Up) -> None:
    options(suite, listen=["localhost", "nowhere="])
    suite.process.send_signal(signal.SIGHUP)
    suite.reports("options: nothing was changed")
    options(suite, metrics_addresses=5)
    suite.process.send_signal(signal.SIGHUP)
    suite.reports("options: nothing has changed; after a restart of `enmasse up` only: metrics-addresses")
    options(suite)
    assert suite.status()["ready"]


def test_the_end_of_its_terminal_ends_it(tmp_path: Path) -> None:
    words = ["--config", str(configured(tmp_path)), "--data", str(tmp_path / "data"), "--without", "mqtt"]
    child, master = pty.fork()
    if not child:
        os.execv(ENMASSE, [ENMASSE, "up", *words, "--port-offset", str(free_offset())])
    shown = b""
    while b"EnMasse is ready" not in shown:
        shown += os.read(master, 65536)
    os.kill(child, signal.SIGHUP)  # the terminal is there: the options are read
    while b"options: nothing has changed" not in shown:
        shown += os.read(master, 65536)
    os.close(master)
    assert os.waitpid(child, 0) == (child, 0)


def test_a_listener_of_an_unknown_space_is_told_until_the_space_is_there(suite: Up) -> None:
    place = f"mqtt=127.0.0.1:{free_port()}@ghost"
    said = f"--listen {place}: there is no address space 'ghost', so no client can log in there."

    def problems() -> list[str]:
        return [each["problem"] for each in suite.status()["listeners"]]

    options(suite, listen=[place])
    assert f"{said} Make it with `enmasse space add ghost --port-offset {suite.offset}`" in reload(suite)
    suite.reports(said)
    status = enmasse("status", "--port-offset", suite.offset).stdout
    assert "of the address space ghost" in status and said in status
    assert "ready, but 1 listener of an address space that is not there" in status
    assert enmasse("space", "add", "ghost", "--port-offset", suite.offset).returncode == 0
    wait_for(lambda: problems() == [""])
    suite.errors.clear()
    removed = enmasse("space", "remove", "ghost", "--port-offset", suite.offset)
    assert (removed.returncode, f"warning: {said}" in removed.stderr) == (0, True), removed.stderr
    suite.reports(said)
