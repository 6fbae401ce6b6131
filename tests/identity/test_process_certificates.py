"""Processes with certificates: at each inner listener the role is that of the certificate, and nothing else gets in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from enmasse.aio.client import Client, connect
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.messages.message import Message
from enmasse.control import ConnectionLost, listen
from enmasse.control import connect as control_connect
from enmasse.identity.processes import roles
from enmasse.identity.processes.process_certificates import Certificate, CertifiedPeers, common_name, peer_of
from enmasse.identity.processes.roles import GATEWAYS, TABLE, Listener, Peer, Role
from enmasse.process.settings import ServiceSettingsError
from enmasse.testing import free_port
from tests.certificates import Authority
from tests.identity.kit import (
    AMQP_HEADER,
    DEADLINE,
    REFUSED,
    SASL_HEADER,
    Service,
    answer_to,
    attach_refused,
    end_of,
    manage_broker,
    message_refused,
    query,
    refused_events,
)
from tests.identity.test_diallers import DIALLERS, ROUTED, Stub, running, settings
from tests.kit.running import asyncio_test
from tests.kit.waiting import until, wait_for

PROFILE = "identity"
WRONG = ("another authority", "expired", "no role", "unknown role", "no name", "two names", "nothing")


class Certified:
    """One service for each role, named `ROLE-s`, with certificates of one authority."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "ca")
        self.other = Authority(folder / "other")
        self.made: dict[str, Path] = {}

    def of(self, role: Role) -> Path:
        """Return the folder with the certificate of a role."""
        return self.named(f"{role}/{role}-s")

    def named(self, *names: str, hours: tuple[int, int] = (-1, 1)) -> Path:
        key = ",".join((*names, str(hours)))
        if key not in self.made:
            folder = self.folder / str(len(self.made))
            self.made[key] = self.authority.issue_folder(folder, *names, hours=hours)
        return self.made[key]

    def wrong(self, kind: str) -> Path | None:
        """Return a certificate that must not be accepted anywhere; None: none at all."""
        if kind == "another authority":
            return self.other.issue_folder(self.folder / "wrong", "router/router-s", ca=self.authority.file)
        names = {
            "expired": ["router/router-s"], "no role": ["router"], "unknown role": ["king/router-s"],
            "no name": ["router/"], "two names": ["router/router-s", "operator/operator-s"], "nothing": [],
        }[kind]  # fmt: skip
        return self.named(*names, hours=(-2, -1) if kind == "expired" else (-1, 1)) if names else None

    def profile(self, role: Role) -> list[Any]:
        """Return the entity of a router's TLS profile."""
        folder = self.of(role)
        files = {"certFile": "tls.crt", "privateKeyFile": "tls.key", "caCertFile": "ca.crt"}
        return ["sslProfile", {"name": PROFILE, **{key: str(folder / file) for key, file in files.items()}}]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Certified:
    return Certified(tmp_path_factory.mktemp("certified"))


class Places:
    """The ports of the inner listeners, and the services that have them."""

    def __init__(self) -> None:
        self.ports = {listener: free_port() for listener in Listener}
        self.services: dict[Listener, Service] = {}

    def port(self, listener: Listener) -> int:
        return self.ports[listener]

    def refusals(self, listener: Listener) -> list[dict[str, Any]]:
        return refused_events(self.services[listener].log())


def inner(listener: Listener, port: int, **more: Any) -> list[Any]:
    tls = {"sslProfile": PROFILE, "requireSsl": True, "saslMechanisms": "EXTERNAL", "authenticatePeer": True}
    return ["listener", {"name": listener, "host": "127.0.0.1", "port": str(port), "access": listener, **tls, **more}]


PLACES = (Listener.CONFIGSERV, Listener.BROKER, Listener.SERVICES, Listener.OPERATORS)


@pytest.fixture(scope="module")
def places(suite: Certified, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """Run configserv, broker, router and authserv."""
    places, folder = Places(), tmp_path_factory.mktemp("configserv")
    (folder / "config").mkdir()
    (folder / "config" / "addresses.json").write_text(json.dumps({"a": {"type": "anycast"}}))
    (folder / "config" / "flavors.json").write_text("{}")
    port, services = places.ports, places.services

    def start(listener: Listener, kind: str, role: Role, **more: Any) -> Service:
        if kind != "router":
            more |= {"listen": f"127.0.0.1:{port[listener]}", "peers": str(suite.of(role))}
        services[listener] = stack.enter_context(Service(kind, **more))
        return services[listener]

    with contextlib.ExitStack() as stack:
        files = {"config_dir": str(folder / "config"), "data_dir": str(folder / "data")}
        start(Listener.CONFIGSERV, "configserv", Role.CONFIGSERV, **files)
        start(Listener.BROKER, "broker", Role.BROKER)
        to_broker = {"name": "b", "host": "127.0.0.1", "port": str(port[Listener.BROKER]), "role": "route-container"}
        route = {"prefix": "events", "connection": "b"}
        routes = (["linkRoute", {"name": d, "direction": d, **route}] for d in ("in", "out"))
        entities = [
            ["router", {"id": "router-s-0", "mode": "standalone", "defaultDistribution": "unavailable"}],
            suite.profile(Role.ROUTER),
            ["address", {"name": "orders", "prefix": "orders", "distribution": "balanced"}],
            inner(Listener.SERVICES, port[Listener.SERVICES], role="route-container", management=False),
            inner(Listener.OPERATORS, port[Listener.OPERATORS]),
            ["connector", {**to_broker, "sslProfile": PROFILE, "saslMechanisms": "EXTERNAL"}],
            *routes,
        ]
        services[Listener.OPERATORS] = start(Listener.SERVICES, "router", Role.ROUTER, entities=entities)
        feed = {"configserv": f"127.0.0.1:{port[Listener.CONFIGSERV]}", "credential": str(suite.of(Role.AUTHSERV))}
        logins = f"127.0.0.1:{port[Listener.LOGINS]}"
        services[Listener.LOGINS] = start(Listener.AUTHSERV, "authserv", Role.AUTHSERV, logins=logins, **feed)
        yield places


def dial(port: int, folder: Path, **more: Any) -> Client:
    return connect(host="127.0.0.1", port=port, credential=Certificate(folder), timeout=DEADLINE, **more)


async def refused(port: int, folder: Path | None, **more: Any) -> str:
    """Return the condition with which a listener ends a connection, "tls" if TLS does; "": it can be used. Without a
    certificate the client takes any from the server."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    client = connect(host="127.0.0.1", port=port, ssl=context, **more) if folder is None else dial(port, folder, **more)
    try:
        return await end_of(client)
    except OSError:
        return "tls"


def test_role_and_name_are_read_from_the_common_name() -> None:
    def subject(*names: str) -> dict[str, Any]:
        return {"subject": tuple((("commonName", name),) for name in names)}

    assert peer_of(subject("router/a-router")) == Peer("a-router", Role.ROUTER, of_service=True)
    assert peer_of(subject("mqtt_gateway/a/b")) == Peer("a/b", Role.GATEWAY, of_service=True)
    for names in ([], ["router"], ["router/"], ["/a"], ["Router/a"], [" router/a"], ["router/a", "router/a"]):
        assert peer_of(subject(*names)) is None
    assert peer_of(None) is None and peer_of({}) is None
    assert common_name(subject("x")) == "x" and common_name(subject("x", "y")) == ""


def test_names_of_processes_begin_with_the_name_in_the_certificate() -> None:
    peer = Peer("edge", Role.ROUTER, of_service=True)
    assert all(peer.may_be(name) for name in ("edge", "edge-0", "edge-a-b"))
    assert not any(peer.may_be(name) for name in ("edges", "edg", "", "-0", "Edge-0"))
    assert not Peer("edge", Role.ROUTER).may_be("edge-0")


def test_an_unusable_folder_is_reported_in_one_line_with_its_path(suite: Certified, tmp_path: Path) -> None:
    suite.authority.issue_folder(tmp_path, "router/r")
    (tmp_path / "tls.key").write_bytes((suite.of(Role.ROUTER) / "tls.key").read_bytes())
    for kind in (Certificate, CertifiedPeers):
        with pytest.raises(ServiceSettingsError) as mismatched:
            kind(tmp_path)
        assert str(tmp_path) in str(mismatched.value) and "\n" not in str(mismatched.value)
    (tmp_path / "ca.crt").unlink()
    with pytest.raises(ServiceSettingsError):
        Certificate(tmp_path)


@pytest.mark.parametrize("listener", PLACES)
@pytest.mark.parametrize("role", Role)
@asyncio_test
async def test_a_role_may_do_exactly_what_the_table_lists(
    places: Places, suite: Certified, listener: Listener, role: Role
) -> None:
    access, port = TABLE[listener].get(role), places.port(listener)
    assert await refused(port, suite.of(role)) == ("" if access is not None else REFUSED)
    if access is None:
        return
    async with dial(port, suite.of(role)) as c:
        for address in ("orders", "$lwt", "addresses/changes", "users", "force", "$sub/b0/mqtt.c1@s"):
            if listener is not Listener.CONFIGSERV or address == "force":
                assert await attach_refused(c, address, send=True) is not roles.may_send(access, address), address
            if listener is not Listener.CONFIGSERV or address in ("addresses/changes", "users"):
                assert await attach_refused(c, address, send=False) is not roles.may_receive(access, address), address
            if listener is not Listener.CONFIGSERV:
                assert await message_refused(c, address) is not roles.may_send(access, address), address


@pytest.mark.parametrize("listener", (*PLACES, Listener.LOGINS))
@pytest.mark.parametrize("kind", WRONG)
@asyncio_test
async def test_other_certificates_are_refused_and_logged(
    places: Places, suite: Certified, listener: Listener, kind: str
) -> None:
    before = len(places.refusals(listener))
    by_tls = kind in ("another authority", "expired", "nothing")
    assert (await refused(places.port(listener), suite.wrong(kind)) != "") is True
    [event] = wait_for(lambda: places.refusals(listener)[before:], "the refusal is logged")
    assert event["peer"].startswith("127.0.0.1:") and event["role"] == ""
    assert event["reason"].startswith("TLS: ") is by_tls
    if not by_tls:
        assert "ROLE/NAME" in event["reason"]


@pytest.mark.parametrize("listener", (*PLACES, Listener.LOGINS))
@asyncio_test
async def test_names_that_a_peer_states_give_no_role(places: Places, suite: Certified, listener: Listener) -> None:
    stated = {"container_id": "router-s-0", "properties": {"product": "qpid-dispatch-router"}}
    wrong = next(role for role in Role if role not in TABLE[listener])
    assert await refused(places.port(listener), suite.of(wrong), **stated) == REFUSED


@pytest.mark.parametrize("role", Role)
@asyncio_test
async def test_gateways_and_the_console_alone_have_passwords_checked(
    places: Places, suite: Certified, role: Role
) -> None:
    port = places.port(Listener.LOGINS)
    assert (await refused(port, suite.of(role)) == "") is (role in (*GATEWAYS, Role.CONSOLE))


@pytest.mark.parametrize("listener", (*PLACES, Listener.AUTHSERV, Listener.LOGINS))
def test_a_listener_answers_nothing_without_tls(places: Places, listener: Listener) -> None:
    for sent in (SASL_HEADER, AMQP_HEADER):
        assert b"AMQP" not in answer_to(places.port(listener), sent)


@asyncio_test
async def test_a_client_reaches_a_broker_by_the_routers_certificate(places: Places, suite: Certified) -> None:
    async with (
        dial(places.port(Listener.BROKER), suite.of(Role.STORAGE_CONTROLLER)) as controller,
        dial(places.port(Listener.OPERATORS), suite.of(Role.OPERATOR), container_id="c1") as client,
    ):
        await manage_broker(controller, "createAddress", "events", "MULTICAST")

        async def connected() -> bool:
            return list(await query(client, "connector", "connectionStatus")) == [["SUCCESS"]]

        await until(connected, "the connector is connected")
        receiver = await client.receiver("events", timeout=DEADLINE)
        sender = await client.sender("events", timeout=DEADLINE)
        assert await sender.send(Message("hello"), timeout=DEADLINE) is ACCEPTED
        assert (await receiver.receive(DEADLINE)).message.body == "hello"
        rows = await query(client, "connection", "dir", "user", "sasl", "isEncrypted")
        assert ["in", "operator-s", "EXTERNAL", True] in rows


@pytest.mark.parametrize("role", Role)
def test_the_authentication_service_answers_routers_brokers_and_gateways_only(
    places: Places, suite: Certified, role: Role
) -> None:
    """The SASL exchange there is that of a user: without users ANONYMOUS is offered, to others nothing at all."""
    port, before = places.port(Listener.AUTHSERV), len(places.refusals(Listener.AUTHSERV))
    with (
        socket.create_connection(("127.0.0.1", port), DEADLINE) as plain,
        Certificate(suite.of(role)).tls().wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        secure.sendall(SASL_HEADER)
        answer = b""
        while len(answer) < 12 or len(answer) < 8 + int.from_bytes(answer[8:12]):
            answer += secure.recv(4096)
    assert (b"ANONYMOUS" in answer) is (role in TABLE[Listener.AUTHSERV])
    assert len(places.refusals(Listener.AUTHSERV)) - before == (role not in TABLE[Listener.AUTHSERV])


# --- processes that dial ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def stub(place: Listener, folder: Path | None) -> AsyncIterator[Stub]:
    made = Stub()
    peers = None if folder is None else (place, CertifiedPeers(folder))
    listener = await listen("127.0.0.1", 0, made.accepted, container="stub", peers=peers)
    made.port = listener.port
    yield made
    await listener.close()


@pytest.mark.parametrize("role", DIALLERS)
@asyncio_test
async def test_a_service_authenticates_by_its_certificate(suite: Certified, tmp_path: Path, role: Role) -> None:
    async with (
        stub(Listener.CONFIGSERV, suite.of(Role.CONFIGSERV)) as configserv,
        stub(Listener.SERVICES, suite.of(Role.ROUTER)) as router,
    ):
        whole = settings(role, tmp_path, configserv.port, router.port)
        whole["credential"] = str(suite.of(role))
        with running(role, tmp_path, whole):
            await until(lambda: configserv.opened)
            await until(lambda: router.opened or role not in ROUTED)
        assert {*configserv.opened, *router.opened} == {Peer(f"{role}-s", role, of_service=True)}


SERVERS = ("another authority", "expired", "another host", "no TLS")


@pytest.mark.parametrize("kind", SERVERS)
@asyncio_test
async def test_clients_open_no_connection_to_a_server_with_a_wrong_certificate(
    suite: Certified, tmp_path: Path, kind: str
) -> None:
    ca, folder = suite.authority.file, tmp_path / "server"
    if kind == "another authority":
        suite.other.issue_folder(folder, "configserv/configserv-s", ca=ca)
    elif kind == "expired":
        suite.authority.issue_folder(folder, "configserv/configserv-s", hours=(-2, -1))
    else:
        suite.authority.issue_folder(folder, "configserv/configserv-s", hosts=("configserv.example",))
    own = Certificate(suite.of(Role.AGENT))
    async with stub(Listener.CONFIGSERV, None if kind == "no TLS" else folder) as server:
        with pytest.raises(ConnectionLost) as lost:
            await control_connect("127.0.0.1", server.port, container="me", credential=own, timeout=DEADLINE)
        assert lost.value.condition == REFUSED or kind == "no TLS"
        with pytest.raises(OSError):
            await connect(host="127.0.0.1", port=server.port, credential=own).open()
        assert server.opened == []


@asyncio_test
async def test_a_refused_client_gets_unauthorized_access(suite: Certified) -> None:
    """With TLS 1.3 the client has done its part of the handshake before the server has verified its certificate."""
    expired = suite.wrong("expired")
    assert expired is not None
    async with stub(Listener.CONFIGSERV, suite.of(Role.CONFIGSERV)) as server:
        with pytest.raises(ConnectionLost) as lost:
            await control_connect("127.0.0.1", server.port, container="me", credential=Certificate(expired))
        assert lost.value.condition == REFUSED


@asyncio_test
async def test_failed_handshakes_do_not_count_as_connections(suite: Certified) -> None:
    listener = await listen("127.0.0.1", 0, lambda _: None, container="stub", max_connections=3,
                            peers=(Listener.CONFIGSERV, CertifiedPeers(suite.of(Role.CONFIGSERV))))  # fmt: skip
    for kind in (*WRONG, *WRONG):
        assert await refused(listener.port, suite.wrong(kind)) != ""
    for _ in range(5):
        with contextlib.suppress(OSError):
            await asyncio.to_thread(answer_to, listener.port, AMQP_HEADER)
    await until(lambda: not listener.connections, "the refused peers are forgotten")
    connection = await control_connect(
        "127.0.0.1", listener.port, container="me", credential=Certificate(suite.of(Role.AGENT))
    )
    with socket.create_connection(("127.0.0.1", listener.port)):  # one that never says anything
        await until(lambda: len(listener.connections) == 2)
        await listener.close()
    await connection.wait_closed()


@asyncio_test
async def test_the_authority_is_replaced_without_ending_open_connections(suite: Certified, tmp_path: Path) -> None:
    """First all get authorities with the new one among them, then certificates of the new one, then the old one
    leaves: as when the authority of a cluster is replaced. A connection from the beginning stays open."""
    old, new, both = suite.authority, suite.other, tmp_path / "both.pem"
    both.write_bytes(old.file.read_bytes() + new.file.read_bytes())
    server, client, outdated = (tmp_path / name for name in ("server", "client", "outdated"))
    for folder, name in ((server, "configserv/c"), (client, "ragent/a"), (outdated, "ragent/o")):
        old.issue_folder(folder, name)
    own, left = Certificate(client), Certificate(outdated)

    async def fits(port: int, certificate: Certificate) -> bool:
        try:
            found = await control_connect("127.0.0.1", port, container="me", credential=certificate)
        except ConnectionLost:
            return False
        found.close()
        return True

    async with stub(Listener.CONFIGSERV, server) as place:
        first = await control_connect("127.0.0.1", place.port, container="me", credential=own)
        old.issue_folder(server, "configserv/c", ca=both)
        old.issue_folder(client, "ragent/a", ca=both)
        assert await fits(place.port, own)
        new.issue_folder(server, "configserv/c", ca=both)
        assert await fits(place.port, own)
        assert not await fits(place.port, left)  # does not know the new authority
        new.issue_folder(client, "ragent/a")
        assert await fits(place.port, own)
        new.issue_folder(server, "configserv/c")
        assert await fits(place.port, own)
        old.issue_folder(outdated, "ragent/o", ca=both)
        assert not await fits(place.port, left)
        assert first.is_open
        first.close()
