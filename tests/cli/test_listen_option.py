"""`enmasse up --listen`: which addresses are opened, what is refused, and what the suite reports of it."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from enmasse.supervisor.errors import StartError
from enmasse.supervisor.plan.listen_option import Listen, contradiction, listeners, names, parse
from enmasse.supervisor.plan.services import Options, kept_users
from enmasse.supervisor.start import check_exposure
from enmasse.testing import free_offset
from tests.certificates import Authority
from tests.cli.running import Up, enmasse, wait_for
from tests.kit.waiting import DEADLINE

PORTS = {"amqp": 5672, "amqps": 5671, "mqtt": 1883, "mqtts": 8883}
OWN = next((host for host in names([parse("0.0.0.0")]) if not host.startswith("127.")), "")
"""An address of this machine that is not loopback."""
needs_own = pytest.mark.skipif(not OWN, reason="this machine has no address but loopback")


@pytest.mark.parametrize(
    ("text", "host", "protocol", "port"),
    [
        ("192.0.2.1", "192.0.2.1", None, None),
        ("mq.example", "mq.example", None, None),
        ("*", "*", None, None),
        ("::1", "::1", None, None),
        ("[::1]", "::1", None, None),
        ("amqps=192.0.2.1", "192.0.2.1", "amqps", None),
        ("amqps=mq.example:443", "mq.example", "amqps", 443),
        ("mqtt=[::1]:1883", "::1", "mqtt", 1883),
        ("wss=2001:db8::1", "2001:db8::1", "wss", None),
        ("mqtts=[::]:8885@team-a", "::", "mqtts", 8885),
    ],
)
def test_forms_of_an_address(text: str, host: str, protocol: str | None, port: int | None) -> None:
    assert parse(text) == Listen(text, host, protocol, port, text.partition("@")[2] or None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected"),
        ("gopher=192.0.2.1", "no protocol 'gopher'"),
        ("=192.0.2.1", "no protocol ''"),
        ("amqp=", "expected"),
        ("192.0.2.1:5672", "write for example amqps=192.0.2.1:5672"),
        ("amqp=192.0.2.1:0", "1 to 65535"),
        ("amqp=192.0.2.1:65536", "1 to 65535"),
        ("amqp=192.0.2.1:²", "1 to 65535"),
        ("amqp=192.0.2.1:", "missing"),
        ("amqp=[::1]:", "missing"),
        ("[::1", "brackets"),
        ("[192.0.2.1]:1", "brackets"),
        ("[::1]5672", "brackets"),
        ("1:2:3", "no IPv6 address"),
        ("amqp://192.0.2.1", "expected"),
        ("a b", "expected"),
        ("mqtt=192.0.2.1:1884@", "PROTOCOL=HOST:PORT@SPACE"),
        ("mqtt=192.0.2.1:1884@A", "PROTOCOL=HOST:PORT@SPACE"),
        ("mqtt=192.0.2.1@team-a", "a port of its own"),
        ("192.0.2.1@team-a", "a port of its own"),
    ],
)
def test_text_that_is_no_address(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("[", r"\[")):
        parse(text)


def opened(*wanted: str, plaintext: bool = False) -> list[str]:
    found = listeners(PORTS, map(parse, wanted), plaintext=plaintext)
    assert len({each.name for each in found}) == len(found)
    return [f"{each.name} {each.at}" for each in found]


LOCAL = ["amqp 127.0.0.1:5672", "amqps 127.0.0.1:5671", "mqtt 127.0.0.1:1883", "mqtts 127.0.0.1:8883"]


def test_without_the_option_loopback_is_open_only() -> None:
    assert opened() == LOCAL


def test_beyond_loopback_only_protocols_with_tls_are_open_unless_plaintext_is_allowed() -> None:
    assert set(opened("192.0.2.1")) - set(LOCAL) == {"amqps-2 192.0.2.1:5671", "mqtts-2 192.0.2.1:8883"}
    more = {"amqp-2 192.0.2.1:5672", "mqtt-2 192.0.2.1:1883"}
    assert more <= set(opened("192.0.2.1", plaintext=True))
    assert set(opened("::1")) - set(LOCAL) == {
        "amqp-2 [::1]:5672", "amqps-2 [::1]:5671", "mqtt-2 [::1]:1883", "mqtts-2 [::1]:8883",
    }  # fmt: skip


def test_one_protocol_and_port_of_its_own() -> None:
    assert set(opened("amqps=mq.example:443")) - set(LOCAL) == {"amqps-2 mq.example:443"}


def test_all_addresses_of_a_family_have_those_of_loopback_too() -> None:
    assert set(opened("0.0.0.0", "192.0.2.1")) - set(LOCAL) == {"amqps 0.0.0.0:5671", "mqtts 0.0.0.0:8883"}
    assert opened("amqps=::", "amqps=::1")[1:3] == ["amqps 127.0.0.1:5671", "amqps-2 [::]:5671"]
    assert opened("127.0.0.1", "localhost")[0] == LOCAL[0]


def options(tmp_path: Path, *wanted: str, tls: bool = True, without: str = "", allow: str = "") -> Options:
    return Options(
        tmp_path,
        tmp_path,
        listen=tuple(map(parse, wanted)),
        tls_auto=tls,
        without=frozenset(without.split()),
        allow_anonymous=allow == "anonymous",
        allow_plaintext=allow == "plaintext",
    )


@pytest.mark.parametrize(
    ("given", "id"),
    [
        (("192.0.2.1",), "start.listen.anonymous"),
        (("localhost", "192.0.2.1"), "start.listen.anonymous"),
        (("mq.example",), "start.listen.anonymous"),
        (("amqps=*",), "start.listen.anonymous"),
    ],
)
def test_other_machines_are_refused_without_users(given: tuple[str, ...], id: str, tmp_path: Path) -> None:
    with pytest.raises(StartError, match=rf"enmasse user add.*\[{id}\]"):
        check_exposure(options(tmp_path, *given))
    check_exposure(options(tmp_path, *given, allow="anonymous"))
    for file in ("users.json", "issuers.json"):
        (tmp_path / file).write_text("{}")
        check_exposure(options(tmp_path, *given))
        (tmp_path / file).unlink()
    (tmp_path / "users.json").write_text('{"alice": {}, "anonymous": {}}')
    with pytest.raises(StartError, match=rf"enmasse user remove anonymous.*\[{id}\]"):
        check_exposure(options(tmp_path, *given))
    check_exposure(options(tmp_path, *given, allow="anonymous"))


def test_dispatch_asks_for_users_that_were_there_at_the_start(tmp_path: Path) -> None:
    later = replace(options(tmp_path, "192.0.2.1"), router="qdrouterd")
    assert later.insecure(users=True) == ["anonymous"]
    assert replace(later, users=True).insecure(users=True) == []
    assert replace(later, listen=(parse("mqtts=192.0.2.1"),)).insecure(users=True) == []
    assert options(tmp_path, "192.0.2.1").insecure(users=True) == []


def test_users_that_are_kept_count(tmp_path: Path) -> None:
    assert not kept_users(tmp_path)
    (tmp_path / "configserv").mkdir()
    file = tmp_path / "configserv" / "configuration.json"
    for content, kept in (("{", False), ('{"config": {"users.json": "x"}}', True), ('{"config": {}}', False),
                          ('{"config": {"issuers.json": "x"}}', True)):  # fmt: skip
        file.write_text(content)
        assert kept_users(tmp_path) is kept


def test_plaintext_is_refused_beyond_loopback(tmp_path: Path) -> None:
    (tmp_path / "users.json").write_text("{}")
    for given, tls in (("192.0.2.1", False), ("amqp=192.0.2.1", True), ("ws=*", True)):
        with pytest.raises(StartError, match=r"--tls auto.*\[start\.listen\.plaintext\]"):
            check_exposure(options(tmp_path, given, tls=tls))
        check_exposure(options(tmp_path, given, tls=tls, allow="plaintext"))
    check_exposure(options(tmp_path, "192.0.2.1"))


def test_loopback_is_never_refused(tmp_path: Path) -> None:
    for given in ("localhost", "::1", "127.0.0.2", "amqp=[::ffff:127.0.0.1]:5000"):
        check_exposure(options(tmp_path, given, tls=False))
        assert options(tmp_path, given, tls=False).insecure(users=False) == []


def test_protocols_that_are_not_served_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"amqps needs --tls auto .*\[start\.listen\.not-served\]"):
        check_exposure(options(tmp_path, "amqps=::1", tls=False))
    with pytest.raises(StartError, match="mqtt needs MQTT"):
        check_exposure(options(tmp_path, "mqtt=::1", without="mqtt"))


def test_the_console_is_opened_with_tls_and_for_users_only(tmp_path: Path) -> None:
    given = replace(options(tmp_path, "192.0.2.1"), users=True)
    assert [each.at for each in given.listeners() if each.protocol == "console"] == [
        "127.0.0.1:8443", "192.0.2.1:8443"
    ]  # fmt: skip
    own = replace(given, listen=(parse("console=192.0.2.1:443"),))
    assert {each.protocol for each in own.listeners() if each.host == "192.0.2.1"} == {"console"}
    for less in ({"users": False}, {"tls_auto": False}, {"listen": ()}, {"listen": (parse("amqps=192.0.2.1"),)}):
        assert not replace(given, **less).public_ports.of_console()
    with pytest.raises(StartError, match=r"console needs users .*\[start\.listen\.not-served\]"):
        check_exposure(replace(own, users=False))


def test_what_is_insecure(tmp_path: Path) -> None:
    assert options(tmp_path).insecure(users=False) == []
    assert options(tmp_path, "192.0.2.1").insecure(users=True) == []
    assert options(tmp_path, "192.0.2.1").insecure(users=False) == ["anonymous"]
    assert options(tmp_path, "192.0.2.1", allow="plaintext").insecure(users=True) == ["plaintext"]
    assert options(tmp_path, "amqps=192.0.2.1", allow="plaintext").insecure(users=True) == []


# The real suite


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A suite with TLS and without users, at all addresses of IPv4 and at loopback of IPv6."""
    folder = tmp_path_factory.mktemp("suite")
    assert enmasse("init", folder / "config").returncode == 0
    given = ("--tls", "auto", "--listen", "0.0.0.0", "--listen", "::1", "--allow-anonymous")
    with Up(folder / "config", folder / "data", fake=False, options=given) as up:
        yield up.until_ready()


def connects(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 60).close()
    except ConnectionRefusedError:
        return False
    return True


@needs_own
def test_other_machines_reach_the_protocols_with_tls_and_nothing_else(suite: Up) -> None:
    served = {"amqps": 5671, "mqtts": 8883, "wss": 8084}
    inner = {"amqp": 5672, "mqtt": 1883, "ws": 8083, "operators": 5673, "http": 8080, "admin": 8079}
    assert {name: connects(OWN, port + suite.offset) for name, port in served.items()} == dict.fromkeys(served, True)
    assert {name: connects(OWN, port + suite.offset) for name, port in inner.items()} == dict.fromkeys(inner, False)
    inside = {**served, **inner}
    assert {name: connects("127.0.0.1", port + suite.offset) for name, port in inside.items()} == dict.fromkeys(
        inside, True
    )
    ports = json.loads((suite.data / "run" / "ports.json").read_text())
    assert not [key for key, port in ports.items() if connects(OWN, port)]


@needs_own
def test_users_reach_the_console_from_other_machines_with_tls(tmp_path: Path) -> None:
    assert enmasse("init", tmp_path / "config").returncode == 0
    password = tmp_path / "password"
    password.write_text("correct horse battery")
    for edit in (("add", "root", "--password-file", str(password)), ("allow", "root", "view,manage", "#")):
        assert enmasse("user", *edit, "--config", tmp_path / "config").returncode == 0
    given = ("--tls", "auto", "--listen", "0.0.0.0", "--without", "mqtt")
    with Up(tmp_path / "config", tmp_path / "data", fake=False, options=given) as up:
        up.until_ready()
        url = f"https://{OWN}:{8443 + up.offset}"
        context = ssl.create_default_context(cafile=str(up.data / "tls" / "ca.crt"))

        def asked(path: str, **headers: str) -> tuple[int, str, bytes]:
            request = urllib.request.Request(url + path, headers=headers)
            with contextlib.closing(opener.open(request, timeout=DEADLINE)) as answer:
                return answer.status, answer.headers.get("Content-Type", ""), answer.read()

        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), Refusals())
        root = "Basic " + base64.b64encode(b"root:correct horse battery").decode()
        assert asked("/api/v1/me")[0] == 401
        assert json.loads(asked("/api/v1/me", Authorization=root)[2])["user"] == "root"
        assert asked("/")[1].startswith("text/html")
        assert not connects(OWN, 8080 + up.offset)
        assert up.http("/healthz")[0] == 200, "HTTP stays on loopback"
        line = f"CONSOLE https://0.0.0.0:{8443 + up.offset}"
        wait_for(lambda: line in up.lines, "the lines after the one that the suite is ready")
        assert line in enmasse("status", "--port-offset", up.offset).stdout


class Refusals(urllib.request.HTTPErrorProcessor):
    """Answers of any status are answers."""

    def http_response(self, request: urllib.request.Request, response: http.client.HTTPResponse) -> Any:
        return response

    https_response = http_response


@needs_own
def test_the_certificate_has_the_addresses_of_the_machine(suite: Up) -> None:
    ca = suite.data / "tls" / "ca.crt"
    for scheme, port in (("amqps", 5671), ("mqtts", 8883), ("wss", 8084)):
        for host in (OWN, "127.0.0.1", "::1"):
            context = ssl.create_default_context(cafile=str(ca))
            with (
                socket.create_connection((host, port + suite.offset), 60) as plain,
                context.wrap_socket(plain, server_hostname=host) as connection,
            ):
                assert connection.version() == "TLSv1.3", scheme
    done = enmasse("send", "-a", f"amqps://{OWN}:{5671 + suite.offset}/myqueue", "from far", "--ca", ca)
    assert done.returncode == 0, done.stderr
    done = enmasse("receive", "-a", f"amqp://[::1]:{5672 + suite.offset}/myqueue", "--count", 1, "--timeout", 60)
    assert done.stdout == "from far\n"


def test_it_is_reported_at_once_in_the_status_and_as_a_metric(suite: Up) -> None:
    line = "INSECURE: clients of other machines may connect without credentials"
    assert suite.lines[1] == line
    wanted = {f"AMQPS   amqps://0.0.0.0:{5671 + suite.offset}", f"MQTT    mqtt://[::1]:{1883 + suite.offset}"}
    wait_for(lambda: wanted <= set(suite.lines), "the lines after the one that the suite is ready")
    assert suite.status()["insecure"] == ["anonymous"]
    assert suite.component("mqtt_gateway-0")["endpoints"]["mqtt-2"] == f"[::1]:{1883 + suite.offset}"
    shown = enmasse("status", "--port-offset", suite.offset).stdout
    assert f"{line}\n" in shown and f"AMQP    amqp://[::1]:{5672 + suite.offset}\n" in shown
    metrics = suite.http("/metrics")[1]
    assert 'enmasse_insecure{what="anonymous"} 1.0' in metrics and 'enmasse_insecure{what="plaintext"} 0.0' in metrics


@needs_own
def test_plaintext_is_reported_and_the_first_user_ends_anonymous(tmp_path: Path) -> None:
    assert enmasse("init", tmp_path / "config").returncode == 0
    given = ("--without", "mqtt", "--listen", OWN, "--allow-anonymous", "--allow-plaintext")
    with Up(tmp_path / "config", tmp_path / "data", fake=False, options=given) as up:
        up.until_ready()
        assert [line.split(":")[0] for line in up.lines[:2]] == ["INSECURE", "INSECURE"]
        assert connects(OWN, 5672 + up.offset) and not connects(OWN, 5673 + up.offset)
        assert up.status()["insecure"] == ["anonymous", "plaintext"]
        added = enmasse("user", "add", "alice", "--generate", "--config", tmp_path / "config")
        assert added.returncode == 0, added.stderr
        wait_for(lambda: up.status()["insecure"] == ["plaintext"])
        added = enmasse("user", "add", "anonymous", "--no-password", "--config", tmp_path / "config")
        assert added.returncode == 0, added.stderr
        wait_for(lambda: up.status()["insecure"] == ["anonymous", "plaintext"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--listen", "0.0.0.0"), "[start.listen.anonymous]"),
        (("--listen", "0.0.0.0", "--allow-anonymous"), "[start.listen.plaintext]"),
        (("--listen", "amqps=::1"), "[start.listen.not-served]"),
        (("--listen", "amqp=::1:1:"), "is no IPv6 address"),
        (("--listen", "198.51.100.77", "--allow-anonymous", "--allow-plaintext"), "[start.listen.not-available]"),
        (("--listen", "no.such.invalid", "--allow-anonymous", "--allow-plaintext"), "[start.listen.not-available]"),
    ],
)
def test_a_start_that_is_refused_makes_no_folder(given: tuple[str, ...], said: str, tmp_path: Path) -> None:
    assert enmasse("init", tmp_path / "config").returncode == 0
    folders = ("--config", tmp_path / "config", "--data", tmp_path / "data", "--port-offset", free_offset())
    done = enmasse("up", *folders, *given)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()


@needs_own
def test_a_port_in_use_is_named_with_its_address(tmp_path: Path) -> None:
    assert enmasse("init", tmp_path / "config").returncode == 0
    cert, key = Authority(tmp_path).issue("server")
    offset = free_offset()
    given = ("--tls-cert", cert, "--tls-key", key, "--allow-anonymous", "--port-offset", offset)
    folders = ("--config", tmp_path / "config", "--data", tmp_path / "data")
    with socket.create_server((OWN, 5671 + offset)):
        done = enmasse("up", *folders, *given, "--listen", OWN)
        assert done.returncode == 2 and f"port {5671 + offset} of {OWN} (AMQPS) is in use by" in done.stderr
    done = enmasse("up", *folders, *given, "--listen", f"amqps=127.0.0.1:{5672 + offset}")  # AMQP is there
    assert done.returncode == 2 and f"port {5672 + offset} (AMQPS) is in use" in done.stderr


def test_a_listener_of_one_space_has_a_port_that_no_other_has() -> None:
    found = [
        (each.name, each.port, each.space)
        for each in listeners(PORTS, [parse("mqtts=127.0.0.1:8885@a")], plaintext=False)
    ]
    assert ("mqtts", 8883, None) in found and ("mqtts-2", 8885, "a") in found
    for wanted in (
        ["mqtts=127.0.0.1:8883@a"], ["mqtts=0.0.0.0:8883@a"], ["mqtts=[::]:8885", "mqtts=[::1]:8885@a"],
        ["mqtts=192.0.2.1:8885@a", "mqtts=192.0.2.1:8885@b"], ["mqtts=192.0.2.1:8885@a", "amqps=192.0.2.1:8885@a"],
    ):  # fmt: skip
        wrong = contradiction(PORTS, listeners(PORTS, map(parse, wanted), plaintext=False), map(parse, wanted))
        assert wrong is not None and wrong.space is not None, wanted
    for wanted in (["mqtts=192.0.2.1:8885@a", "mqtts=192.0.2.2:8885@b"], ["mqtts=0.0.0.0:8885@a"]):
        found_ = listeners(PORTS, map(parse, wanted), plaintext=False)
        assert contradiction(PORTS, found_, map(parse, wanted)) is None, wanted
