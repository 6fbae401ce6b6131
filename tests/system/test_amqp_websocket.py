"""AMQP over WebSocket in a running suite with users, address spaces and TLS: who is let in and as whom, what the limits
see of a client, and peers that break the rules."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from proton import ConnectionException, Message, ProtonException
from proton.utils import BlockingConnection, LinkDetached

from enmasse.aio.client import connect
from enmasse.amqp.codec.errors import LoginError
from enmasse.amqp.codec.frames import HEADER
from enmasse.amqp.codec.performatives import Open, SaslInit, encode_performative
from enmasse.amqp.codec.types import Symbol
from enmasse.testing import Suite, wait_for
from tests.certificates import Authority
from tests.console.browser import chromium
from tests.identity.kit import AMQP_HEADER, SASL_HEADER
from tests.interop.clients import rhea
from tests.kit.spaces import running_with_spaces
from tests.kit.waiting import DEADLINE
from tests.kit.websocket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, RawWebSocket, Tunnel, frame, tunnel
from tests.system.seeing import kill, wait_process
from tests.system.users import allow, entry

QUEUE, TOPIC = (
    {"type": "queue", "flavor": "small-persisted-queue"},
    {"type": "topic", "flavor": "small-persisted-topic"},
)
ADDRESSES = {"orders": QUEUE, "news": TOPIC, "chat": {"type": "multicast"}, "ask": {"type": "anycast"}}
PASSWORD, HOST = "the-right-one", "shop.example"
USERS = {"alice": entry(PASSWORD, allow("#")), "device-1": {"permissions": [allow("#")]}}
FILES = {
    "users.json": USERS,
    "plans.json": {"small": {"kind": "space", "limits": {"connections": 2}}},
    "spaces.json": {"shop": {"hosts": [HOST], "plan": "small"}},
    "spaces/shop/addresses.json": {"orders": QUEUE},
    "spaces/shop/users.json": {"clerk": entry(PASSWORD, allow("#"))},
}
SUBPROTOCOLS = ["amqp", "AMQPWSB10", "binary"]
OFFER = "Sec-WebSocket-Protocol: amqp"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("clients"))


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Suite]:
    options = ("--tls", "auto", "--tls-client-ca", str(authority.file))
    folder = tmp_path_factory.mktemp("websocket")
    with running_with_spaces(folder, FILES, addresses=ADDRESSES, options=options) as found:
        found.up()
        yield found
        assert found.down() == 0


def port(suite: Suite, *, tls: bool = False) -> int:
    return (8084 if tls else 8083) + suite.offset


def url(suite: Suite, *, tls: bool = False) -> str:
    return f"{'wss' if tls else 'ws'}://127.0.0.1:{port(suite, tls=tls)}"


def trusting(suite: Suite, files: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(suite.data / "tls" / "ca.crt"))
    context.check_hostname = False
    if files is not None:
        context.load_cert_chain(*files)
    return context


def login(through: Tunnel, user: str | None = "alice", password: str = PASSWORD, **more: Any) -> BlockingConnection:
    mechanism = "ANONYMOUS" if user is None else "PLAIN"
    settings = {"allowed_mechs": mechanism, "user": user, "password": password, **more}
    return BlockingConnection(
        f"amqp://127.0.0.1:{through.port}", timeout=DEADLINE, allow_insecure_mechs=True, sasl_enabled=True, **settings
    )


def exchange(connection: BlockingConnection, address: str, body: str) -> None:
    """Send a message and receive it."""
    receiver = connection.create_receiver(address)
    delivery = connection.create_sender(address).link.send(Message(body=body, durable=True))
    assert receiver.receive(DEADLINE).body == body
    if receiver.fetcher.unsettled:
        receiver.accept()
    connection.wait(lambda: delivery.settled)  # of an anycast address, with the receiver's outcome
    receiver.close()


def connections(suite: Suite) -> list[dict[str, Any]]:
    done = suite.command("connection", "list", "--json", "--port-offset", str(suite.offset))
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["items"]
    return found


def is_served(suite: Suite) -> None:
    with tunnel(url(suite)) as through:
        exchange(login(through), "chat", "still served")


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("subprotocol", SUBPROTOCOLS)
def test_each_type_of_address_over_each_subprotocol(suite: Suite, subprotocol: str, tls: bool) -> None:
    with tunnel(url(suite, tls=tls), [subprotocol], tls=trusting(suite) if tls else None) as through:
        connection = login(through)
        for address in ADDRESSES:
            exchange(connection, address, f"{subprotocol} to {address}")
        assert through.chosen == [subprotocol]
        connection.close()


def test_large_messages_in_pieces_of_any_size(suite: Suite) -> None:
    with tunnel(url(suite), record=777) as through:
        exchange(login(through), "orders", "x" * 3_000_000)


def test_every_frame_of_one_byte(suite: Suite) -> None:
    with tunnel(url(suite), record=1) as through:
        exchange(login(through), "orders", "one byte at a time")


def test_the_client_chooses_among_all_subprotocols_of_the_port(suite: Suite) -> None:
    """rhea offers three of AMQP; who offers MQTT first gets MQTT."""
    for offered, chosen in {"binary, AMQPWSB10, amqp": "binary", "soap, amqp": "amqp", "mqtt, amqp": "mqtt"}.items():
        with RawWebSocket(port(suite), f"Sec-WebSocket-Protocol: {offered}", path="/mqtt") as peer:
            assert peer.status == 101 and f"Sec-WebSocket-Protocol: {chosen}" in peer.head


@pytest.mark.parametrize("headers", [(), ("Sec-WebSocket-Protocol: soap",), ("Sec-WebSocket-Protocol: AMQP",)])
def test_without_a_known_subprotocol_there_is_no_websocket(suite: Suite, headers: tuple[str, ...]) -> None:
    with RawWebSocket(port(suite), *headers, path="/mqtt") as peer:
        assert peer.status == 400


def test_a_page_of_another_site_may_not_connect(suite: Suite) -> None:
    for origin, status in {"http://evil.example": 403, f"http://127.0.0.1:{8080 + suite.offset}": 101}.items():
        with RawWebSocket(port(suite), OFFER, f"Origin: {origin}") as peer:
            assert peer.status == status


# --- who a client is --------------------------------------------------------------------------------------------------


def test_a_wrong_password_and_no_user_are_refused(suite: Suite) -> None:
    with tunnel(url(suite)) as through:
        for user in ("alice", None):
            with pytest.raises(ConnectionException):
                login(through, user, "wrong")


def test_what_is_seen_is_the_client_s_address_and_not_what_it_states(suite: Suite) -> None:
    """In the list of connections, and in the audit log, by which failed logins are limited."""
    stated = {"X-Forwarded-For": "192.0.2.1", "Forwarded": "for=192.0.2.1"}
    with tunnel(url(suite), source="127.0.0.7", headers=stated) as through:
        connection = login(through, container_id="seen")
        (row,) = wait_for("the connection", lambda: [r for r in connections(suite) if r["container"] == "seen"])
        assert row["peer"].startswith("127.0.0.7:") and row["user"] == "alice"
        with pytest.raises(ConnectionException):
            login(through, "mallory", "wrong")
        connection.close()

    def refused() -> list[dict[str, Any]]:
        lines = (suite.data / "logs" / "audit.log").read_text().splitlines()
        found = [each for each in map(json.loads, lines) if each["event"] == "audit.login.refused"]
        return [each for each in found if each["from"].startswith("127.0.0.7")]

    wait_for("the refusal", refused)


def test_the_host_named_by_tls_chooses_the_address_space(suite: Suite) -> None:
    with tunnel(url(suite, tls=True), tls=trusting(suite), server_name=HOST) as through:
        connection = login(through, "clerk")
        exchange(connection, "orders", "of the shop")
        with pytest.raises(ConnectionException):
            login(through, "alice")  # of the default space
        connection.close()
    (row,) = wait_for("its queue", lambda: [a for a in suite.status()["addresses"] if a["name"] == "!!shop/orders"])
    assert row["ready"]


def test_connections_of_a_space_are_limited_by_its_plan(suite: Suite) -> None:
    with tunnel(url(suite, tls=True), tls=trusting(suite), server_name=HOST) as through:
        there = [login(through, "clerk"), login(through, "clerk")]
        with pytest.raises(ProtonException):
            login(through, "clerk").create_sender("orders")
        for each in there:
            each.close()

        def again() -> BlockingConnection | None:
            with contextlib.suppress(ProtonException):
                return login(through, "clerk")
            return None

        wait_for("a place that was left is free", again).close()


def test_a_certificate_proves_who_a_client_is(suite: Suite, authority: Authority) -> None:
    asyncio.run(_certificates(suite, authority))


async def _certificates(suite: Suite, authority: Authority) -> None:
    """By the client of the house: Proton with Cyrus SASL asks for EXTERNAL only on a connection of its own TLS."""
    certified = trusting(suite, authority.issue("device-1"))
    with tunnel(url(suite, tls=True), tls=certified) as through:
        async with connect(
            host="127.0.0.1", port=through.port, container_id="certified", external=True, timeout=DEADLINE
        ):
            (row,) = await asyncio.to_thread(
                wait_for, "the row", lambda: [r for r in connections(suite) if r["container"] == "certified"]
            )
            assert row["user"] == "device-1"
    with tunnel(url(suite, tls=True), tls=trusting(suite)) as through, pytest.raises(LoginError):
        await connect(host="127.0.0.1", port=through.port, external=True, timeout=DEADLINE).open()


def test_a_client_that_asks_to_relay_states_nothing(suite: Suite) -> None:
    """Neither a client nor a process that is no gateway becomes another client."""
    properties = {"enmasse.client": {"address": "192.0.2.1:1", "server_name": HOST, "any_site": False}}
    with tunnel(url(suite)) as through:
        connection = login(
            through, container_id="stating", properties=properties, desired_capabilities=["enmasse.client-relay"]
        )
        exchange(connection, "orders", "as itself")
        (row,) = wait_for("the connection", lambda: [r for r in connections(suite) if r["container"] == "stating"])
        assert row["peer"].startswith("127.0.0.1:") and row["user"] == "alice"
        connection.close()


# --- rhea in a browser ------------------------------------------------------------------------------------------------

SCRIPT = """async ([url, user, password, address]) => {
  const rhea = require('rhea'), container = rhea.create_container();
  const socket = container.websocket_connect(WebSocket)(url, ['binary', 'AMQPWSB10', 'amqp'], {});
  const connection = container.connect({ connection_details: socket, username: user, password, reconnect: false });
  const failed = new Promise((_, reject) => {
    for (const name of ['connection_error', 'disconnected', 'receiver_error', 'sender_error'])
      connection.on(name, (context) => reject(new Error(name + ' ' + (context.error || connection.error))));
  });
  const got = new Promise((resolve) => connection.on('message', (context) => resolve(context.message.body)));
  connection.open_receiver(address);
  const sender = connection.open_sender(address);
  const accepted = new Promise((resolve) => connection.on('accepted', resolve));
  connection.once('sendable', () => sender.send({ body: 'from a page', durable: true }));
  const body = await Promise.race([got, failed]);
  await Promise.race([accepted, failed]);
  connection.close();
  return body;
}"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[int]:
    """The port of a site of this machine with an empty page."""
    (tmp_path / "index.html").write_text("<!doctype html>")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.slow  # a browser; other clients use each subprotocol
def test_rhea_in_a_page(suite: Suite, site: int) -> None:
    library = Path(rhea()[1]).parent / "node_modules/rhea/dist/rhea.js"
    with chromium() as browser:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{site}/")
        page.add_script_tag(path=str(library))
        for address in ("orders", "news"):
            assert page.evaluate(SCRIPT, [f"{url(suite)}/amqp", "alice", PASSWORD, address]) == "from a page"
        page.goto(f"http://localhost:{site}/")  # another host than that of the port
        page.add_script_tag(path=str(library))
        with pytest.raises(Exception, match="disconnected"):
            page.evaluate(SCRIPT, [f"{url(suite)}/amqp", "alice", PASSWORD, "orders"])


# --- peers that break the rules ---------------------------------------------------------------------------------------


def encoded(performative: object, kind: int) -> bytes:
    body = encode_performative(performative)
    return HEADER(len(body) + 8, 2, kind, 0) + body


def opened(suite: Suite, behind: bytes = b"") -> RawWebSocket:
    peer = RawWebSocket(port(suite), OFFER, behind=behind)
    assert peer.status == 101
    return peer


def test_text_is_refused(suite: Suite) -> None:
    with opened(suite) as peer:
        peer.send(frame(SASL_HEADER, TEXT))
        assert peer.close_code() == 1003
    is_served(suite)


@pytest.mark.parametrize(
    "sent",
    [
        frame(SASL_HEADER, masked=False),
        b"\x82\xff" + (1 << 40).to_bytes(8, "big") + bytes(4),
        b"\x82\xff" + (5 << 20).to_bytes(8, "big") + bytes(4),
        frame(b"x", 3),
        frame(b"x", CONTINUATION),
        frame(b"x" * 200, PING),
        frame(b"not AMQP"),
        frame(SASL_HEADER + HEADER(1 << 30, 2, 1, 0)),
        frame(AMQP_HEADER),
    ],
    ids=[
        "unmasked", "giant", "too large", "unknown opcode", "continuation of nothing", "long ping", "not AMQP",
        "giant AMQP frame", "no login",
    ],
)  # fmt: skip
def test_a_peer_that_breaks_a_rule_is_closed(suite: Suite, sent: bytes) -> None:
    with opened(suite) as peer:
        peer.send(sent)
        peer.close_code()  # of the protocols' choice
    is_served(suite)


def test_fragments_are_one_message(suite: Suite) -> None:
    with opened(suite) as peer:
        peer.send(frame(SASL_HEADER[:1], last=False))
        for at in range(1, 7):
            peer.send(frame(SASL_HEADER[at : at + 1], CONTINUATION, last=False) + frame(b"", PING))
        peer.send(frame(SASL_HEADER[7:], CONTINUATION))
        answers = [peer.next() for _ in range(7)]
        assert [opcode for opcode, _ in answers].count(PONG) == 6
        assert (BINARY, SASL_HEADER) in [(opcode, data[:8]) for opcode, data in answers]


def test_peers_that_do_not_log_in_are_dropped_in_time(suite: Suite) -> None:
    """Those that send nothing, a ping, a SASL header; and floods of pings, and of fragments of a message without an
    end, which are not read to their end."""
    fragment = frame(b"x" * 1000, CONTINUATION, last=False)
    floods = (frame(b"x" * 100, PING) * 20_000, frame(b"x", last=False) + fragment * 4000)
    with contextlib.ExitStack() as there:
        peers = [there.enter_context(opened(suite, begun)) for begun in (b"", frame(b"", PING), frame(SASL_HEADER))]
        for flood in floods:
            peers.append(there.enter_context(opened(suite)))
            peers[-1].socket.settimeout(1)  # limit: the gateway reads no more of a flood
            with contextlib.suppress(TimeoutError, ConnectionError):
                peers[-1].send(flood)
            peers[-1].socket.settimeout(DEADLINE)
        for peer in peers:
            assert peer.close_code() in (None, 1000)  # by the gateway, or by the router
    is_served(suite)


def test_pings_after_the_login_are_answered_and_others_are_served(suite: Suite) -> None:
    init = SaslInit(mechanism=Symbol("PLAIN"), initial_response=b"\0alice\0" + PASSWORD.encode())
    with opened(suite, frame(SASL_HEADER + encoded(init, 1))) as peer:
        while b"\x00\x53\x44" not in peer.next()[1]:  # the outcome
            pass
        peer.send(frame(AMQP_HEADER + encoded(Open(container_id="flood"), 0)))
        while b"\x00\x53\x10" not in peer.next()[1]:
            pass
        for _ in range(20):
            peer.send(frame(b"p" * 100, PING) * 500)
            is_pong = [peer.next()[0] == PONG for _ in range(500)]
            assert is_pong.count(True) >= 499  # and a heartbeat, perhaps
        is_served(suite)


# --- ends -------------------------------------------------------------------------------------------------------------


def test_the_end_of_either_side_reaches_the_other(suite: Suite) -> None:
    """A client that vanishes is gone at the router; when the router dies, so has the WebSocket ended."""
    with tunnel(url(suite)) as through:
        login(through, container_id="vanishing")
        wait_for("it is there", lambda: [r for r in connections(suite) if r["container"] == "vanishing"])
    wait_for("it is gone", lambda: not [r for r in connections(suite) if r["container"] == "vanishing"])
    with tunnel(url(suite)) as through:
        connection = login(through)
        sender = connection.create_sender("orders")
        sender.send(Message(body="accepted", durable=True))
        wait_process(suite, "router-0", kill(suite, "router-0"))
        with pytest.raises((ConnectionException, LinkDetached)):
            for _ in range(100):
                sender.send(Message(body="later", durable=True), timeout=DEADLINE)
    suite.wait_ready()
    with tunnel(url(suite)) as through:

        def received() -> bool:
            with contextlib.suppress(ProtonException):
                receiver = login(through).create_receiver("orders")
                message = receiver.receive(DEADLINE)
                receiver.accept()
                return bool(message.body == "accepted")
            return False

        wait_for("what was accepted is there", received)


def test_without_a_router_there_is_no_websocket(suite: Suite) -> None:
    pid = kill(suite, "router-0")
    with RawWebSocket(port(suite), OFFER) as peer:
        assert peer.status in (503, 101)  # it may be back already
        if peer.status == 101:
            peer.send(frame(b"", CLOSE))
    wait_process(suite, "router-0", pid)
    suite.wait_ready()
    is_served(suite)
