from __future__ import annotations

import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Message, SSLDomain
from proton.utils import BlockingConnection

from tests.certificates import Authority
from tests.kit.processes import run, service
from tests.router.harness import (
    ADDRESS,
    CONNECTOR,
    DEADLINE,
    LISTENER,
    PREFIX,
    Broker,
    Management,
    RouterProcess,
    free_port,
    post,
    wait_for,
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> tuple[Path, Path]:
    """A certificate for localhost, and its key."""
    return authority.issue("server", ["localhost"])


@pytest.fixture
def profile(management: Management, certificate: tuple[Path, Path], authority: Authority) -> Iterator[str]:
    cert, key = certificate
    management.create(
        PREFIX + "sslProfile",
        "tls",
        certFile=str(cert),
        keyFile=str(key),
        caCertFile=str(authority.file),
        protocols="TLSv1.2",
    )
    yield "tls"
    management.delete(PREFIX + "sslProfile", "tls")


def test_tls(management: Management, authority: Authority, profile: str) -> None:
    port = free_port()
    management.create(LISTENER, "amqps", host="127.0.0.1", port=str(port), sslProfile=profile, requireSsl=True)
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(authority.file))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    connection = BlockingConnection(f"amqps://localhost:{port}", timeout=DEADLINE, ssl_domain=domain)
    receiver = connection.create_receiver("any", credit=1)
    post(connection.create_sender("any"), Message(body="secret"))
    assert receiver.receive().body == "secret"
    row = next(
        r for r in management.query(PREFIX + "connection") if r["container"] == connection.container.container_id
    )
    assert row["isEncrypted"] is True and row["ssl"] is True
    connection.close()
    management.delete(LISTENER, "amqps")


def test_a_router_dials_with_tls(management: Management, profile: str) -> None:
    port = free_port()
    management.create(LISTENER, "amqps", host="127.0.0.1", port=str(port), sslProfile=profile, requireSsl=True)
    management.create(CONNECTOR, "to-itself", host="localhost", port=str(port), sslProfile=profile)
    wait_for(lambda: management.one(CONNECTOR, "to-itself")["connectionStatus"] == "SUCCESS")
    management.delete(CONNECTOR, "to-itself")
    management.create(CONNECTOR, "wrong-name", host="127.0.0.1", port=str(port), sslProfile=profile)
    row = wait_for(lambda: failed(management, "wrong-name")) or {}
    assert "certificate" in row["connectionMsg"].lower(), row
    management.delete(CONNECTOR, "wrong-name")
    management.create(CONNECTOR, "any-name", host="127.0.0.1", port=str(port), sslProfile=profile, verifyHostName="no")
    wait_for(lambda: management.one(CONNECTOR, "any-name")["connectionStatus"] == "SUCCESS")
    management.delete(CONNECTOR, "any-name")
    management.delete(LISTENER, "amqps")


def failed(management: Management, name: str) -> dict[str, Any] | None:
    row = management.one(CONNECTOR, name)
    return row if row["connectionStatus"] == "FAILED" else None


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"sslProfile": "nobody", "requireSsl": True}, "there is no sslProfile 'nobody'"),
        ({"sslProfile": "broken", "requireSsl": True}, "sslProfile 'broken': certFile '/nowhere.pem' cannot be used"),
        ({"port": "no-such-service"}, "port 'no-such-service' is neither a number nor a known service"),
        ({"host": "192.0.2.1"}, "listener 'bad' on 192.0.2.1"),
        ({"saslPlugin": "auth", "http": True}, "saslPlugin with http is not supported by this router"),
        ({"saslPlugin": "auth", "role": "route-container"}, "saslPlugin of a listener that is not for clients"),
        ({"sslProfile": "broken"}, "sslProfile without requireSsl"),
        ({"multiTenant": True}, "multiTenant is not supported by this router"),
    ],
)
def test_listeners_that_cannot_be(management: Management, body: dict[str, Any], text: str) -> None:
    """A port that would be less protected than was asked for is not opened."""
    management.create(PREFIX + "sslProfile", "broken", certFile="/nowhere.pem")
    status, description, _ = management.call(
        "CREATE", {"host": "127.0.0.1", "port": str(free_port()), **body}, type=LISTENER, name="bad"
    )
    assert status in (500, 501) and text in description, description
    assert "bad" not in [row["name"] for row in management.query(LISTENER)]
    management.delete(PREFIX + "sslProfile", "broken")


def test_an_authentication_service_that_cannot_be(management: Management) -> None:
    """A listener needs the service that it names, and a router that follows users."""
    body = {"host": "127.0.0.1", "port": str(free_port()), "saslPlugin": "auth"}
    plugin = PREFIX + "authServicePlugin"
    status, text, _ = management.call("CREATE", body, type=LISTENER, name="bad")
    assert (status, text.endswith("there is no authServicePlugin 'auth'")) == (400, True), text
    made = management.create(plugin, "auth", host="127.0.0.1", port="5678", realm="space")
    assert (made["host"], made["port"], made["realm"], made["sslProfile"]) == ("127.0.0.1", "5678", "space", None)
    status, text, _ = management.call("CREATE", body, type=LISTENER, name="bad")
    assert (status, "needs the setting configserv" in text) == (400, True), text
    status, text, _ = management.call("CREATE", {"sslProfile": "none"}, type=plugin, name="other")
    assert (status, "there is no sslProfile 'none'" in text) == (400, True), text
    management.delete(plugin, "auth")


def test_http_listener(management: Management) -> None:
    port = free_port()
    management.create(
        LISTENER,
        "ragent-0.0.0.0-8080",
        host="127.0.0.1",
        port=str(port),
        authenticatePeer=False,
        http=True,
        metrics=True,
        healthz=True,
        websockets=False,
        httpRootDir="invalid",
    )
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=DEADLINE) as response:
        assert response.read() == b"OK\n"

    def one_connection() -> str:
        """The metrics when the connections of earlier tests are gone."""
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE) as response:
            found: str = response.read().decode()
        return found if "# TYPE qdr_connections_total gauge\nqdr_connections_total 1.0\n" in found else ""

    text = wait_for(one_connection, "one connection is counted")
    assert "# TYPE qdr_accepted_deliveries_total counter\n" in text
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=DEADLINE)
    row = management.one(LISTENER, "ragent-0.0.0.0-8080")
    assert (row["http"], row["metrics"], row["healthz"], row["websockets"]) == (True, True, True, False)
    assert (row["httpRootDir"], row["port"]) == ("invalid", str(port))
    management.delete(LISTENER, "ragent-0.0.0.0-8080")
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=DEADLINE)


def test_a_connector_tries_again_until_somebody_is_there(management: Management) -> None:
    port = free_port()
    management.create(CONNECTOR, "patient", host="127.0.0.1", port=str(port), role="normal")
    row = wait_for(lambda: failed(management, "patient")) or {}
    assert f"127.0.0.1:{port}" in row["connectionMsg"] and "refused" in row["connectionMsg"].lower()
    with socket.create_server(("127.0.0.1", port)) as server:
        server.settimeout(DEADLINE)
        server.accept()[0].close()
    management.delete(CONNECTOR, "patient")
    assert "patient" not in [row["name"] for row in management.query(CONNECTOR)]


def test_peers_that_were_dialled_may_use_management(management: Management, broker: Broker) -> None:
    """The router agent is dialled, and then opens an anonymous sender and a dynamic receiver."""
    management.create(CONNECTOR, "agent", host="127.0.0.1", port=str(broker.port), role="normal")
    wait_for(lambda: broker.connections)
    got: list[Any] = []

    def ask() -> None:
        session = broker.connections[0].session()
        session.open()
        inbox = session.receiver("inbox")
        inbox.source.dynamic = True
        inbox.open()
        inbox.flow(10)
        sender = session.sender("requests")
        sender.open()
        got.extend([inbox, sender])

    broker.do(ask)
    wait_for(lambda: broker.do(lambda: got[1].credit == 250 and got[0].remote_source.address))

    def request() -> None:
        got[1].send(
            Message(
                address="$management",
                reply_to=got[0].remote_source.address,
                correlation_id="$management0",
                properties={"operation": "QUERY", "entityType": ADDRESS},
                body={"attributeNames": []},
            )
        )

    broker.do(request)
    wait_for(lambda: None in broker.stored)
    body = broker.stored[None][0]  # type: ignore[index]  # without an address: None
    assert len(body["attributeNames"]) == 11 and len(body["results"]) >= 5
    management.delete(CONNECTOR, "agent")
    wait_for(lambda: not broker.connections)


def test_a_silent_peer_is_dropped(management: Management) -> None:
    port = free_port()
    management.create(LISTENER, "short", host="127.0.0.1", port=str(port), idleTimeoutSeconds=1)
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as peer:
        peer.sendall(
            b"AMQP\x00\x01\x00\x00\x00\x00\x00\x1a\x02\x00\x00\x00\x00\x53\x10\xc0\x0d\x02\xa1\x07silence\xa1\x01h"
        )
        said = b""
        while chunk := peer.recv(65536):
            said += chunk
    assert b"amqp:resource-limit-exceeded" in said
    management.delete(LISTENER, "short")


def test_a_peer_that_never_opens_is_dropped(management: Management) -> None:
    port = free_port()
    management.create(LISTENER, "short", host="127.0.0.1", port=str(port), initialHandshakeTimeoutSeconds=1)
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as peer:
        peer.sendall(b"AMQP")
        while peer.recv(65536):
            pass
    management.delete(LISTENER, "short")


@pytest.mark.parametrize(
    ("entities", "text"),
    [
        ([["router", {"id": "a b"}]], "entities[0] (router): id 'a b' must not have white space"),
        ([["router", {"nonsense": 1}]], "entities[0] (router): unknown attribute 'nonsense'"),
        ([["router", {"mode": "sleepy"}]], "entities[0] (router): Invalid value for attribute 'mode'"),
        ([["router", {"mode": "edge"}]], "entities[0] (router): mode 'edge' is not supported"),
        ([["router", {}], ["router", {}]], "entities[1]: there is more than one router entity"),
        ([["nonsense", {}]], "entities[0]: unknown type 'nonsense'"),
        ([["listener", {"nonsense": 1}]], "entities[0] (listener): Unknown attribute 'nonsense'"),
        ([["address", {"name": "x"}]], "entities[0] (router.config.address): Either a 'prefix' or 'pattern'"),
        ([["listener", {"host": "192.0.2.1", "port": "1"}]], "entities[0] (listener): listener 'listener/192.0.2.1:1'"),
        ("nonsense", "field entities: expected `array`, got `str`"),
    ],
)
def test_a_bad_configuration_ends_the_router_with_one_line(tmp_path: Path, entities: Any, text: str) -> None:
    config = tmp_path / "router.json"
    config.write_text(json.dumps({"name": "r", "health": f"127.0.0.1:{free_port()}", "entities": entities}))
    ended = run(service("router"), "--config", config, seconds=DEADLINE)
    assert ended.returncode in (1, 2)
    assert text in ended.stderr, ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_what_the_file_names_is_there(tmp_path: Path) -> None:
    router = RouterProcess(
        [
            ["linkRoute", {"prefix": "t", "direction": "in", "connection": "x"}],
            ["autoLink", {"addr": "q", "dir": "out", "connection": "x"}],
            ["log", {"module": "DEFAULT", "enable": "info+"}],
            ["connector", {"name": "x", "host": "127.0.0.1", "port": "1", "role": "route-container"}],
        ],
        router_id="from-file",
    )
    management = router.management()
    assert management.query("linkRoute")[0]["prefix"] == "t"
    assert management.query("autoLink")[0]["address"] == "q"
    assert management.query("log")[0]["enable"] == "info+"
    assert management.query("router", "id", "mode")[0] == {"id": "from-file", "mode": "interior"}
    management.close()
    router.stop()


def test_ssl_context_is_strict() -> None:
    from services.router.network.port_settings import SslProfile
    from services.router.network.tls import ProfileError, client_context, server_context

    with pytest.raises(ProfileError, match="needs certFile"):
        server_context(SslProfile(name="p"), authenticate=False)
    context = client_context(SslProfile(name="p"), verify_hostname=True)
    assert context.verify_mode == ssl.CERT_REQUIRED and context.check_hostname


def test_a_port_can_be_taken_again_at_once(router: RouterProcess) -> None:
    """DELETE and CREATE of a listener, sent without waiting: the agent's way to change one."""
    port = str(free_port())
    connection = router.connect()
    inbox = connection.create_receiver(None, dynamic=True, credit=50)
    sender = connection.create_sender("$management")
    reply_to = inbox.link.remote_source.address
    statuses = []
    for round_ in range(10):
        for operation in ("CREATE", "DELETE"):
            post(
                sender,
                Message(
                    properties={"operation": operation, "type": LISTENER, "name": "again"},
                    reply_to=reply_to,
                    correlation_id=f"{operation}{round_}",
                    body={"host": "127.0.0.1", "port": port} if operation == "CREATE" else {},
                ),
            )
            if operation == "CREATE":
                statuses.append(inbox.receive().properties["statusCode"])
    for _ in range(10):
        statuses.append(inbox.receive().properties["statusCode"])
    assert sorted(statuses) == [201] * 10 + [204] * 10
    connection.close()


def test_listeners_share_a_port_only_if_all_of_them_say_so(management: Management) -> None:
    port = str(free_port())

    def state(name: str, **more: Any) -> str:
        status, _, _ = management.call("CREATE", {"host": "127.0.0.1", "port": port, **more}, type=LISTENER, name=name)
        return str(management.one(LISTENER, name)["operStatus"]) if status == 201 else "refused"

    assert [state("one", shared=True), state("two", shared=True), state("three")] == ["up", "up", "refused"]
    for name in ("one", "two"):
        management.delete(LISTENER, name)
