"""Clients of a suite that present certificates (`enmasse up --tls-client-ca`), by AMQP and MQTT libraries."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion
from proton import ConnectionException, Message, SSLDomain
from proton.utils import BlockingConnection

from enmasse.aio.client import connect
from enmasse.amqp.codec.errors import AmqpError
from enmasse.testing import Suite, wait_for
from tests.certificates import Authority
from tests.kit.running import asyncio_test
from tests.system.mqtt_users import PATIENCE
from tests.system.users import allow, entry, with_users, write_users

ADDRESSES = {"devices": {"type": "topic", "flavor": "small-persisted-topic"}, "chat": {"type": "anycast"}}
DEVICE = {"permissions": [allow("devices/${user}/#", "chat")]}
"""Has no password."""
USERS: dict[str, Any] = {"device-1": DEVICE, "alice": entry("pw-a", allow("chat", "devices/${user}/#"))}
Files = tuple[Path, Path]
WHY = ("tls: tlsv1 alert unknown ca", "tls: no client hello")
"""Conditions of failed handshakes."""
CODES = {MQTTv311: "Not authorized", MQTTv5: "Not authorized"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("clients"))


@pytest.fixture(scope="module")
def trusted(authority: Authority) -> Path:
    """The file of --tls-client-ca, which a test may replace."""
    copy = authority.folder / "trusted.pem"
    shutil.copy(authority.file, copy)
    return copy


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory, trusted: Path) -> Iterator[Suite]:
    options = ("--tls", "auto", "--tls-client-ca", str(trusted))
    with with_users(tmp_path_factory.mktemp("suite"), ADDRESSES, USERS, options=options) as found:
        yield found


@pytest.fixture(scope="module")
def device(authority: Authority) -> Files:
    return authority.issue("device-1")


@pytest.fixture
def refused(authority: Authority, tmp_path: Path) -> dict[str, Files | None]:
    """Certificates with which nobody is let in."""
    return {
        "none": None,
        "unknown user": authority.issue("stranger"),
        "two names": authority.issue("both", names=("device-1", "alice")),
        "of another authority": Authority(tmp_path / "other").issue("device-1"),
        "expired": authority.issue("expired", names=("device-1",), hours=(-2, -1)),
    }


def ca(suite: Suite) -> str:
    return str(suite.data / "tls" / "ca.crt")


def context(suite: Suite, files: Files | None) -> ssl.SSLContext:
    found = ssl.create_default_context(cafile=ca(suite))
    if files is not None:
        found.load_cert_chain(*files)
    return found


def url(suite: Suite) -> str:
    return f"amqps://localhost:{5671 + suite.offset}"


def proton(suite: Suite, files: Files | None, mechanism: str = "EXTERNAL", **more: Any) -> BlockingConnection:
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(ca(suite))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    if files is not None:
        domain.set_credentials(*map(str, files), None)
    return BlockingConnection(
        url(suite), timeout=PATIENCE, ssl_domain=domain, sasl_enabled=True, allowed_mechs=mechanism, **more
    )


# --- AMQP -------------------------------------------------------------------------------------------------------------


def test_failed_handshakes_are_events_of_each_listener(suite: Suite, authority: Authority) -> None:
    """The first test here: a component tells of a host's refusals twenty times a minute."""
    ports = {"router-0": (5671,), "mqtt_gateway-0": (8883, 8084)}
    for port in (port for each in ports.values() for port in each):
        with socket.create_connection(("localhost", port + suite.offset)) as sock, pytest.raises(ssl.SSLError):
            authority.client_context().wrap_socket(sock, server_hostname="localhost")
        with socket.create_connection(("localhost", port + suite.offset)) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert sock.recv(1)

    def seen() -> bool:
        lines = suite.command("events", "--json", "--port-offset", str(suite.offset)).stdout.splitlines()
        found = {(row["component"], row["condition"]) for row in map(json.loads, lines) if ":" in row["peer"]}
        return found >= {(each, why) for each in ports for why in WHY}

    wait_for("the events", seen)


def test_the_event_of_another_user_name_says_that_it_is_not_the_certificates(suite: Suite, device: Files) -> None:
    assert answer(suite, device, user="alice") == "Bad user name or password"
    said, offset = "not that of the certificate: send 'device-1'", str(suite.offset)
    wait_for("the event", lambda: said in suite.command("events", "--port-offset", offset).stdout)


def test_proton_logs_in_by_certificate(suite: Suite, device: Files) -> None:
    connection = proton(suite, device)
    sender = connection.create_sender("devices/device-1/x")
    sender.send(Message(body="x"))
    with pytest.raises(Exception, match="user device-1 may not send to devices/alice/x"):
        connection.create_sender("devices/alice/x")
    connection.close()


def test_a_password_decides_although_a_certificate_is_presented(suite: Suite, device: Files) -> None:
    connection = proton(suite, device, "PLAIN", user="alice", password="pw-a")
    connection.create_sender("devices/alice/x")
    connection.close()
    with pytest.raises(ConnectionException):
        proton(suite, device, "PLAIN", user="alice", password="wrong")


def test_proton_is_refused_with_unsuitable_certificates(suite: Suite, refused: dict[str, Files | None]) -> None:
    for files in refused.values():
        with pytest.raises(ConnectionException):
            proton(suite, files)


@asyncio_test
async def test_our_client_logs_in_by_certificate(suite: Suite, device: Files, refused: dict[str, Files | None]) -> None:
    async with connect(url(suite), ssl=context(suite, device), external=True, timeout=PATIENCE) as client:
        await client.sender("chat")
    for files in refused.values():
        with pytest.raises((AmqpError, OSError)):
            await connect(url(suite), ssl=context(suite, files), external=True, timeout=PATIENCE).open(PATIENCE)


# --- MQTT -------------------------------------------------------------------------------------------------------------

VERSIONS = pytest.mark.parametrize("version", [MQTTv311, MQTTv5])


class Paho:
    """A client that connects once."""

    def __init__(
        self, suite: Suite, files: Files | None, version: int = MQTTv5, user: str | None = None,
        password: str | None = None, transport: Any = "tcp",
    ) -> None:  # fmt: skip
        self.answer = ""
        self.ended = threading.Event()
        self.client = Client(
            CallbackAPIVersion.VERSION2, protocol=version, transport=transport, reconnect_on_failure=False
        )
        self.client.tls_set_context(context(suite, files))
        if user is not None:
            self.client.username_pw_set(user, password)
        self.client.on_connect = self._connected
        self.client.connect_timeout = PATIENCE  # 5 s by itself, in which a busy machine may not answer
        self.client.on_disconnect = lambda *_: self.ended.set()
        port = 8883 if transport == "tcp" else 8084
        try:
            self.client.connect("localhost", port + suite.offset)
        except OSError:
            self.ended.set()
            return
        self.client.loop_start()
        wait_for("an answer to CONNECT", lambda: self.answer or self.ended.is_set())

    def _connected(self, client: Client, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        self.answer = str(reason)

    def publish(self, topic: str) -> str:
        """The outcome of a PUBLISH of MQTT 5."""
        outcome: list[str] = []
        self.client.on_publish = lambda client, data, mid, reason, properties: outcome.append(str(reason))
        self.client.publish(topic, b"x", 1)
        wait_for("PUBACK", lambda: outcome)
        return outcome[0]

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def answer(suite: Suite, files: Files | None, version: int = MQTTv5, **more: Any) -> str:
    """The reason of CONNACK; empty if the connection has ended without it."""
    paho = Paho(suite, files, version, **more)
    paho.close()
    return paho.answer


@VERSIONS
@pytest.mark.parametrize("transport", ["tcp", "websockets"])
def test_paho_logs_in_by_certificate(
    suite: Suite, device: Files, refused: dict[str, Files | None], version: int, transport: str
) -> None:
    assert answer(suite, device, version, transport=transport) == "Success"
    assert answer(suite, device, version, user="device-1", transport=transport) == "Success"
    answers = {name: answer(suite, files, version, transport=transport) for name, files in refused.items()}
    assert answers == {
        "none": "Not authorized",
        "unknown user": "Not authorized",
        "two names": "Not authorized",
        "of another authority": "",
        "expired": "",
    }


def test_a_session_belongs_to_the_user_of_the_certificate(suite: Suite, device: Files) -> None:
    paho = Paho(suite, device)
    assert paho.publish("devices/device-1/x") in ("Success", "No matching subscribers")
    assert paho.publish("devices/alice/x") == "Not authorized"
    paho.close()


@VERSIONS
def test_user_name_and_password_decide_if_both_are_given(suite: Suite, device: Files, version: int) -> None:
    assert answer(suite, device, version, user="alice", password="pw-a") == "Success"
    bad = "Bad user name or password"
    assert answer(suite, device, version, user="alice", password="wrong") == bad
    assert answer(suite, device, version, user="device-1", password="") == bad
    assert answer(suite, device, version, user="alice") == bad
    paho = Paho(suite, device, user="alice", password="pw-a")
    assert paho.publish("devices/device-1/x") == "Not authorized"
    paho.close()


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_mosquitto_pub_logs_in_by_certificate(suite: Suite, authority: Authority, device: Files, version: str) -> None:
    def publish(files: Files) -> int:
        command = ["mosquitto_pub", "-h", "localhost", "-p", str(8883 + suite.offset), "-V", version]
        certificate = ["--cafile", ca(suite), "--cert", str(files[0]), "--key", str(files[1])]
        message = ["-q", "1", "-t", "devices/device-1/m", "-m", "x"]
        return subprocess.run([*command, *certificate, *message], timeout=PATIENCE).returncode

    assert publish(device) == 0
    assert publish(authority.issue("mallory")) != 0


# --- commands ---------------------------------------------------------------------------------------------------------


def test_commands_log_in_by_certificate(suite: Suite, authority: Authority, device: Files, tmp_path: Path) -> None:
    trust = ("--ca", ca(suite))
    cert, key = map(str, device)
    own = ("--cert", cert, "--key", key)
    both = tmp_path / "both.pem"
    both.touch(mode=0o600)
    both.write_bytes(device[0].read_bytes() + device[1].read_bytes())
    amqps, mqtts = f"{url(suite)}/devices/device-1/c", ("--server", f"mqtts://localhost:{8883 + suite.offset}")
    other = f"{url(suite)}/devices/alice/c"

    def run(*arguments: str) -> tuple[int, str]:
        done = suite.command(*arguments, *trust)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stderr

    assert run("send", "-a", amqps, "x", *own) == (0, "")
    assert run("send", "-a", amqps, "x", "--cert", str(both)) == (0, "")
    assert run("publish", "devices/device-1/c", "x", "--qos", "1", *mqtts, *own) == (0, "")
    assert run("bench", "-a", f"{url(suite)}/chat", "--seconds", "0.1", *own) == (0, "")
    status, said = run("send", "-a", other, "x", *own)
    assert status == 4 and "server.operation.denied" in said
    stranger = ("--cert", *map(str, authority.issue("stranger")))
    stranger = (*stranger[:2], "--key", stranger[2])
    for command in (("send", "-a", amqps, "x"), ("publish", "devices/device-1/c", "x", "--qos", "1", *mqtts)):
        status, said = run(*command, *stranger)
        assert status == 4 and "server.login.refused" in said
        status, said = run(*command)
        assert status == 4 and "server.login.missing" in said
        for wrong in (("--key", key), ("--cert", cert), ("--cert", cert, "--key", ca(suite)), ("--cert", "missing")):
            status, said = run(*command, *wrong)
            assert status == 2 and "--cert" in said
    # A user of the URL goes before the certificate.
    alice = f"amqps://alice:pw-a@localhost:{5671 + suite.offset}/devices/alice/c"
    assert run("send", "-a", alice, "x", *own) == (0, "")


# --- changes ----------------------------------------------------------------------------------------------------------


def test_an_anonymous_user_does_not_let_unknown_certificates_in(suite: Suite, authority: Authority) -> None:
    write_users(suite, {**USERS, "anonymous": {"permissions": [allow("chat")]}})
    try:
        wait_for("the anonymous user", lambda: answer(suite, None) == "Success")
        assert answer(suite, authority.issue("stranger")) == "Not authorized"
    finally:
        write_users(suite, USERS)
    wait_for("the users of before", lambda: answer(suite, None) == "Not authorized")


def test_a_removed_user_is_disconnected(suite: Suite, device: Files, authority: Authority) -> None:
    other = Paho(suite, authority.issue("alice"))
    paho, connection = Paho(suite, device), proton(suite, device)
    sender = connection.create_sender("devices/device-1/x")
    try:
        write_users(suite, {"alice": entry("another", allow("#"))})
        assert paho.ended.wait(PATIENCE)

        def ended() -> bool:
            try:
                sender.send(Message(body="x"), timeout=PATIENCE)
            except Exception:  # of any kind
                return True
            return False

        wait_for("the end of the AMQP connection", ended)
        assert answer(suite, device) == "Not authorized"
        # Another password is no other certificate.
        assert other.publish("chat") != "Not authorized" and not other.ended.is_set()
    finally:
        paho.close()
        other.close()
        write_users(suite, USERS)
    wait_for("the user", lambda: answer(suite, device) == "Success")


def test_a_replaced_authority_takes_effect_for_new_connections(
    suite: Suite, authority: Authority, trusted: Path, device: Files, tmp_path: Path
) -> None:
    paho, connection = Paho(suite, device), proton(suite, device)
    try:
        other = Authority(tmp_path / "new")
        new = other.issue("device-1")
        other.file.rename(trusted)
        wait_for("the new authority", lambda: answer(suite, new) == "Success")
        assert answer(suite, device) == ""
        proton(suite, new).close()
        with pytest.raises(ConnectionException):
            proton(suite, device)
        connection.create_sender("devices/device-1/x").send(Message(body="x"))
        assert paho.publish("devices/device-1/x") != "Not authorized" and not paho.ended.is_set()
    finally:
        paho.close()
        connection.close()
        copy = authority.folder / "copy.pem"
        shutil.copy(authority.file, copy)
        copy.rename(trusted)


def test_logins_by_certificate_are_audited(suite: Suite, device: Files) -> None:
    proton(suite, device).close()
    assert answer(suite, device) == "Success"
    lines = (suite.data / "logs" / "audit.log").read_text().splitlines()
    found = [line for line in lines if "login by EXTERNAL" in line and '"who": "device-1"' in line]
    assert any('"service": "router-0"' in line for line in found)
    assert any('"service": "mqtt_gateway-' in line for line in found)


def test_a_command_works_in_a_space_as_the_user_of_its_certificate(suite: Suite, device: Files) -> None:
    """The last test here: the suite has an address space from then on."""
    folder = suite.config / "spaces" / "one"
    folder.mkdir(parents=True)
    (folder / "addresses.json").write_text('{"kept": {"type": "queue", "flavor": "small-persisted-queue"}}')
    (folder / "users.json").write_text(json.dumps({"device-1": {"permissions": [allow("kept")]}}))
    (folder / "users.json").chmod(0o600)
    (suite.config / "spaces.json").write_text('{"one": {}}')
    cert, key = map(str, device)
    where = f"amqps://localhost:{5671 + suite.offset}/kept"

    def run(command: str, space: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        files = ("--ca", ca(suite), "--cert", cert, "--key", key)
        return suite.command(command, "-a", where, *arguments, *files, "--space", space)

    wait_for("the space", lambda: run("send", "one", "from a device").returncode == 0, PATIENCE)
    assert run("receive", "one", "--count", "1", "--timeout", str(PATIENCE)).stdout == "from a device\n"
    for command in ("send", "bench"):
        refused = run(command, "none", *(["x"] if command == "send" else []))
        assert refused.returncode == 4 and "[server.login.refused]" in refused.stderr, refused
