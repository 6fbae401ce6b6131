"""Who may come in by a listener: client certificates, and attributes that are not supported."""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography.x509.oid import NameOID
from proton import ConnectionException, Message, SSLDomain
from proton.utils import BlockingConnection

from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from tests.router.certificates import Authority, Signed
from tests.router.harness import (
    CONNECTOR,
    DEADLINE,
    LISTENER,
    PREFIX,
    Management,
    free_port,
    post,
    wait_for,
)

PROFILE = PREFIX + "sslProfile"


class Certificates(NamedTuple):
    trusted: str
    server: Signed
    client: Signed
    stranger: Signed


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("tls")
    ours, theirs = Authority(folder, "ours"), Authority(folder, "theirs")
    client = (NameOID.COUNTRY_NAME, "DE"), (NameOID.ORGANIZATION_NAME, "Acme, Inc"), (NameOID.COMMON_NAME, "dora")
    return Certificates(
        ours.certificate,
        ours.sign("server", (NameOID.COMMON_NAME, "localhost")),
        ours.sign("client", *client),
        theirs.sign("stranger", (NameOID.COMMON_NAME, "dora")),
    )


@pytest.fixture
def listener(management: Management, certificates: Certificates) -> Iterator[Any]:
    """Makes a TLS listener with these attributes; returns its port."""
    made: list[str] = []

    def make(uid_format: str | None = None, **attributes: Any) -> int:
        name = f"secure{len(made)}"
        management.create(
            PROFILE,
            f"{name}-tls",
            certFile=certificates.server.certificate,
            privateKeyFile=certificates.server.key,
            caCertFile=certificates.trusted,
            uidFormat=uid_format,
        )
        port = free_port()
        made.append(name)
        body = {"host": "127.0.0.1", "port": str(port), "sslProfile": f"{name}-tls", "requireSsl": True}
        management.create(LISTENER, name, **body, **attributes)
        return port

    yield make
    for name in made:
        management.delete(LISTENER, name)
        management.delete(PROFILE, f"{name}-tls")


def dial(port: int, trusted: str, shown: Signed | None, mechanisms: str | None = None) -> BlockingConnection:
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(trusted)
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    if shown is not None:
        domain.set_credentials(shown.certificate, shown.key, None)
    options = {} if mechanisms is None else {"allowed_mechs": mechanisms}
    return BlockingConnection(f"amqps://localhost:{port}", timeout=DEADLINE, ssl_domain=domain, **options)


def row_of(management: Management, connection: BlockingConnection) -> dict[str, Any]:
    container = connection.container.container_id
    return next(row for row in management.query(PREFIX + "connection") if row["container"] == container)


@pytest.mark.parametrize(
    ("uid_format", "user"),
    [
        (None, r"CN=dora,O=Acme\, Inc,C=DE"),
        ("n", "dora"),
        ("on", "Acme, Inc;dora"),
        ("cs", "DE"),
        ("2n", "{sha256};dora"),
    ],
)
def test_a_client_with_a_certificate(
    management: Management, certificates: Certificates, listener: Any, uid_format: str | None, user: str
) -> None:
    port = listener(uid_format, saslMechanisms="EXTERNAL", authenticatePeer=True)
    connection = dial(port, certificates.trusted, certificates.client)
    receiver = connection.create_receiver("any", credit=1)
    post(connection.create_sender("any"), Message(body="secret"))
    assert receiver.receive().body == "secret"
    row = row_of(management, connection)
    der = ssl.PEM_cert_to_DER_cert(Path(certificates.client.certificate).read_text())
    assert row["user"] == user.replace("{sha256}", hashlib.sha256(der).hexdigest())
    assert (row["sasl"], row["isAuthenticated"], row["isEncrypted"]) == ("EXTERNAL", True, True)
    assert row["sslProto"].startswith("TLSv1.") and row["sslCipher"] and row["sslSsf"] >= 128
    connection.close()


@pytest.mark.parametrize("mechanisms", ["EXTERNAL", "EXTERNAL ANONYMOUS", None])
def test_who_must_show_a_certificate_and_does_not_stays_out(
    certificates: Certificates, listener: Any, mechanisms: str | None
) -> None:
    port = listener(saslMechanisms=mechanisms, authenticatePeer=True)
    with pytest.raises(ConnectionException):
        dial(port, certificates.trusted, None)
    with pytest.raises(ConnectionException):
        dial(port, certificates.trusted, certificates.stranger)
    dial(port, certificates.trusted, certificates.client).close()


def test_where_a_certificate_is_welcome_and_not_wanted(
    management: Management, certificates: Certificates, listener: Any
) -> None:
    port = listener("n")
    connection = dial(port, certificates.trusted, None)
    row = row_of(management, connection)
    assert (row["sasl"], row["user"], row["isAuthenticated"]) == ("ANONYMOUS", "anonymous", True)
    connection.close()
    connection = dial(port, certificates.trusted, certificates.client)
    row = row_of(management, connection)
    assert (row["sasl"], row["user"], row["isAuthenticated"]) == ("EXTERNAL", "dora", True)
    connection.close()


def test_only_the_mechanisms_that_were_named(certificates: Certificates, listener: Any) -> None:
    port = listener(saslMechanisms="EXTERNAL")
    with pytest.raises(ConnectionException, match=r"(?i)mechanism|authentication"):
        dial(port, certificates.trusted, certificates.client, "ANONYMOUS")
    dial(port, certificates.trusted, certificates.client, "EXTERNAL").close()
    port = listener(saslMechanisms="ANONYMOUS")
    with pytest.raises(ConnectionException, match=r"(?i)mechanism|authentication"):
        dial(port, certificates.trusted, certificates.client, "EXTERNAL")


def test_a_router_shows_its_certificate(management: Management, certificates: Certificates, listener: Any) -> None:
    port = listener("n", saslMechanisms="EXTERNAL", authenticatePeer=True)
    management.create(
        PROFILE,
        "own",
        certFile=certificates.client.certificate,
        privateKeyFile=certificates.client.key,
        caCertFile=certificates.trusted,
    )
    body = {"host": "localhost", "port": str(port), "sslProfile": "own"}
    management.create(CONNECTOR, "to-itself", **body, saslMechanisms="EXTERNAL", socketAddressFamily="IPv4")
    wait_for(lambda: management.one(CONNECTOR, "to-itself")["connectionStatus"] == "SUCCESS")

    def both_ends() -> list[dict[str, Any]]:
        found = [row for row in management.query(PREFIX + "connection") if row["container"] == "r1"]
        return found if {row["dir"] for row in found} == {"in", "out"} else []

    rows = wait_for(both_ends, "both ends of the connection")
    assert all(row["sslProto"].startswith("TLSv1.") for row in rows)
    assert next(row["user"] for row in rows if row["dir"] == "in") == "dora"
    management.delete(CONNECTOR, "to-itself")
    management.delete(PROFILE, "own")


SECURE = {"sslProfile": "bare", "requireSsl": True}


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"requireSsl": True}, 400, "requireSsl needs an sslProfile"),
        ({"saslMechanisms": "PLAIN"}, 501, "saslMechanisms: PLAIN is not supported by this router, it knows ANONYMOUS"),
        ({"saslMechanisms": "EXTERNAL"}, 400, "saslMechanisms EXTERNAL needs an sslProfile with caCertFile"),
        ({"saslMechanisms": "EXTERNAL", **SECURE}, 400, "saslMechanisms EXTERNAL needs an sslProfile with caCertFile"),
        ({"authenticatePeer": True}, 400, "authenticatePeer would let no client in"),
        ({"authenticatePeer": True, "saslMechanisms": "ANONYMOUS"}, 400, "authenticatePeer would let no client in"),
        ({"requireEncryption": True}, 501, "requireEncryption (use requireSsl) is not supported by this router"),
        ({"http": True, **SECURE}, 501, "http with sslProfile or authenticatePeer is not supported"),
        ({"http": True, "httpRootDir": "/"}, 501, "httpRootDir (files over HTTP) is not supported"),
        ({"role": "edge"}, 501, "role edge is not supported"),
        ({"trustedCertsFile": "x"}, 501, "trustedCertsFile (use the sslProfile's caCertFile) is not supported"),
        ({"messageLoggingComponents": "all"}, 501, "messageLoggingComponents (messages are not logged)"),
        ({"maxSessions": 0}, 400, "maxSessions must be at least 1, it is 0"),
        ({"linkCapacity": -1}, 400, "linkCapacity must be at least 0, it is -1"),
        ({"openProperties": {"product": "x"}}, 400, "Reserved key 'product' not allowed in openProperties"),
        ({"openProperties": {"qd.x": 1}}, 400, "Reserved key 'qd.x' not allowed in openProperties"),
        ({"authenticatePeers": True}, 400, "Unknown attribute 'authenticatePeers'"),
    ],
)
def test_listeners_that_would_not_be_what_was_asked_for(
    management: Management, certificates: Certificates, body: dict[str, Any], status: int, text: str
) -> None:
    management.create(PROFILE, "bare", certFile=certificates.server.certificate, keyFile=certificates.server.key)
    asked = {"host": "127.0.0.1", "port": str(free_port()), **body}
    answer = management.call("CREATE", asked, type=LISTENER, name="bad")
    assert answer[0] == status and text in answer[1], answer
    assert "bad" not in [row["name"] for row in management.query(LISTENER)]
    management.delete(PROFILE, "bare")


@pytest.mark.parametrize(
    ("kind", "body", "status", "text"),
    [
        (CONNECTOR, {"saslMechanisms": "PLAIN"}, 400, "saslMechanisms PLAIN needs saslUsername and saslPassword"),
        (CONNECTOR, {"saslMechanisms": "EXTERNAL"}, 400, "saslMechanisms EXTERNAL needs an sslProfile"),
        (CONNECTOR, {"saslMechanisms": "GSSAPI"}, 501, "saslMechanisms: GSSAPI is not supported by this router"),
        (CONNECTOR, {"saslMechanisms": "ANONYMOUS", "saslUsername": "u"}, 400, "saslUsername has no use"),
        (CONNECTOR, {"policyVhost": "v"}, 501, "policyVhost (users have permissions instead) is not supported"),
        (PROFILE, {"protocols": "TLSv1.2 TLSv1"}, 501, "protocols: TLSv1 is not supported by this router"),
        (PROFILE, {"uidFormat": "nn"}, 400, "uidFormat 'nn' must be letters of csloun"),
        (PROFILE, {"uidFormat": "12"}, 400, "uidFormat '12' must be letters of csloun"),
        (PROFILE, {"displayNameFile": "x.json"}, 501, "uidNameMappingFile is not supported by this router"),
    ],
)
def test_connectors_and_profiles_that_would_not_be_honoured(
    management: Management, kind: str, body: dict[str, Any], status: int, text: str
) -> None:
    answer = management.call("CREATE", body, type=kind, name="bad")
    assert answer[0] == status and text in answer[1], answer
    assert "bad" not in [row["name"] for row in management.query(kind)]


def test_a_small_session_window_is_kept(management: Management) -> None:
    port = free_port()
    management.create(LISTENER, "narrow", host="127.0.0.1", port=str(port), maxSessionFrames=2, maxFrameSize=512)
    connection = BlockingConnection(f"127.0.0.1:{port}", timeout=DEADLINE)
    receiver = connection.create_receiver("any", credit=100)
    sender = connection.create_sender("any")
    for i in range(20):
        post(sender, Message(body=str(i) * 2000))
    assert [receiver.receive().body[:1] for _ in range(20)] == [str(i)[:1] for i in range(20)]
    connection.close()
    peer = Connection(Handler(), container_id="peer", is_client=True)
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as wire:
        peer.open()
        session = None
        while session is None or session.remote_begin is None:
            wire.sendall(peer.take_output())
            peer.receive(wire.recv(65536))
            if session is None and peer.state == "open":
                session = peer.begin()
    assert session.remote_begin.incoming_window == 2
    management.delete(LISTENER, "narrow")


@pytest.mark.parametrize(("family", "host"), [("IPv4", "localhost"), ("IPv6", "::1"), ("IPv6", "")])
def test_the_family_of_an_address(management: Management, family: str, host: str) -> None:
    port = free_port()
    management.create(LISTENER, "family", host=host, port=str(port), protocolFamily=family)
    peer = "127.0.0.1" if family == "IPv4" else "[::1]"
    BlockingConnection(f"{peer}:{port}", timeout=DEADLINE).close()
    management.delete(LISTENER, "family")
    answer = management.call(
        "CREATE", {"host": "127.0.0.1", "port": str(port), "socketAddressFamily": "IPv6"}, type=LISTENER, name="bad"
    )
    assert answer[0] == 500 and "host '127.0.0.1' has no IPv6 address" in answer[1], answer
