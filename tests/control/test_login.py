"""Connections of the control plane whose ends prove themselves by SCRAM-SHA-256, and peers that try without."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import proton
import pytest
from proton.utils import BlockingConnection

from enmasse.aio.client import connect as aio_connect
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import SaslOutcome
from enmasse.amqp.sasl.layer import AnonymousClient, PlainClient, SaslClient
from enmasse.control import ConnectionLost, ControlConnection, ControlReceiver, Delivery, Listener, connect, listen
from enmasse.control import connection as connection_module
from enmasse.identity.processes import roles
from enmasse.identity.processes.credentials import Credential, PeerEntry, Peers, peers_text
from enmasse.identity.processes.roles import Peer, Role
from enmasse.identity.processes.scram import verifier
from tests.amqp.engine_kit import AMQP, SASL, frame, init
from tests.kit.running import asyncio_test, uvloop_test
from tests.kit.waiting import DEADLINE, until

AGENT = Credential("agent", Role.AGENT, "secret of the agent")
GATEWAY = Credential("gateway-1", Role.GATEWAY, "secret of the gateway")


@pytest.fixture
def peers(tmp_path: Path) -> Peers:
    path = tmp_path / "peers.json"
    path.write_text(peers_text({each.name: PeerEntry(each.role, verifier(each.secret)) for each in (AGENT, GATEWAY)}))
    return Peers(path)


@asynccontextmanager
async def serving(peers: Peers | None, into: list[Any] | None = None) -> AsyncIterator[tuple[Listener, list[Any]]]:
    """Listen; the list gets each connection that has opened. Messages go to `into`."""
    opened: list[ControlConnection] = []

    def take(delivery: Delivery) -> None:
        if into is not None:
            into.append(delivery.message.body)
        delivery.accept()

    def attach(link: Any) -> None:
        link.accept()
        if isinstance(link, ControlReceiver):
            link.window = 10
            link.on_message = take
            link.grant(10)

    def accepted(connection: ControlConnection) -> None:
        connection.on_open = lambda: opened.append(connection)
        connection.on_attach = attach

    listener = await listen(
        "127.0.0.1",
        0,
        accepted,
        container="server",
        peers=None if peers is None else (roles.Listener.CONFIGSERV, peers),
    )
    try:
        yield listener, opened
    finally:
        await listener.close()


async def _talk(port: int, credential: Credential) -> None:
    connection = await connect("127.0.0.1", port, container="me", credential=credential)
    sender = connection.sender("here")
    for number in range(30):
        assert (await sender.deliver(proton.Message(body=number))).accepted
    connection.close()
    await connection.wait_closed()


@asyncio_test
async def test_both_ends_prove_themselves(peers: Peers) -> None:
    got: list[Any] = []
    async with serving(peers, got) as (listener, opened):
        await _talk(listener.port, AGENT)
        await _talk(listener.port, GATEWAY)
        assert [each.identity for each in opened] == [Peer("agent", Role.AGENT), Peer("gateway-1", Role.GATEWAY)]
        assert got == [*range(30)] * 2


@uvloop_test
async def test_on_uvloop(peers: Peers) -> None:
    async with serving(peers) as (listener, opened):
        await _talk(listener.port, AGENT)
        assert opened[0].identity == Peer("agent", Role.AGENT)


@asyncio_test
async def test_the_engine_of_the_data_plane_authenticates_too(peers: Peers) -> None:
    async with serving(peers) as (listener, opened):
        client = await aio_connect(host="127.0.0.1", port=listener.port, credential=GATEWAY).open()
        assert opened[0].identity == Peer("gateway-1", Role.GATEWAY)
        await client.close()


@asyncio_test
async def test_without_peers_nobody_has_an_identity() -> None:
    async with serving(None) as (listener, opened):
        (await connect("127.0.0.1", listener.port, container="me")).close()
        assert [each.identity for each in opened] == [None]
        with pytest.raises(ConnectionLost, match=r"the server offers .*, the client has SCRAM-SHA-256"):
            await connect("127.0.0.1", listener.port, container="me", credential=AGENT)


@pytest.mark.parametrize(
    "credential",
    [
        Credential("agent", Role.AGENT, GATEWAY.secret),
        Credential("agent", Role.AGENT, ""),
        Credential("nobody", Role.AGENT, AGENT.secret),
        Credential("Agent", Role.AGENT, AGENT.secret),
    ],
)
@asyncio_test
async def test_a_wrong_secret_and_an_unknown_name_are_refused_alike(peers: Peers, credential: Credential) -> None:
    async with serving(peers) as (listener, opened):
        with pytest.raises(ConnectionLost, match="authentication by SCRAM-SHA-256 failed: wrong credentials") as caught:
            await connect("127.0.0.1", listener.port, container="me", credential=credential)
        assert caught.value.condition == "amqp:unauthorized-access"
        assert opened == []


@asyncio_test
async def test_a_role_that_the_listener_does_not_list_is_refused_with_its_links(peers: Peers) -> None:
    attached: list[Any] = []

    def accepted(connection: ControlConnection) -> None:
        connection.on_open = lambda: attached.append("open")
        connection.on_attach = attached.append

    listener = await listen("127.0.0.1", 0, accepted, container="server", peers=(roles.Listener.AGENT, peers))
    lost: list[ConnectionLost] = []

    def prepare(connection: ControlConnection) -> None:
        connection.on_closed = lost.append
        connection.sender("here")

    connection = await connect(
        "127.0.0.1",
        listener.port,
        container="gateway-1",
        credential=GATEWAY,
        prepare=prepare,
    )
    await connection.wait_closed()
    assert [str(error) for error in lost] == ["amqp:unauthorized-access: gateway-1 (mqtt_gateway) may not connect here"]
    assert attached == []
    await listener.close()


@asyncio_test
async def test_the_role_is_that_of_the_listeners_file(peers: Peers) -> None:
    async with serving(peers) as (listener, opened):
        await _talk(listener.port, Credential("gateway-1", Role.SUPERVISOR, GATEWAY.secret))
        assert opened[0].identity == Peer("gateway-1", Role.GATEWAY)


@asyncio_test
async def test_anonymous_and_plain_are_refused(peers: Peers) -> None:
    async with serving(peers) as (listener, opened):
        for mechanism in (AnonymousClient(), PlainClient("agent", AGENT.secret)):
            client = aio_connect(host="127.0.0.1", port=listener.port)
            client._settings["sasl"] = SaslClient([mechanism])
            with pytest.raises(AmqpError, match="the server offers SCRAM-SHA-256"):
                await client.open()
        assert opened == []


@asyncio_test
async def test_protons_client_is_refused(peers: Peers) -> None:
    def client(port: int) -> None:
        with pytest.raises(proton.ProtonException):
            BlockingConnection(f"127.0.0.1:{port}", timeout=DEADLINE)

    async with serving(peers) as (listener, opened):
        await asyncio.to_thread(client, listener.port)
        assert opened == []


OPEN = bytes.fromhex("00000011 02000000 005310c0 0401a101 78")


@pytest.mark.parametrize(
    "data",
    [
        AMQP + OPEN,
        SASL + AMQP + OPEN,
        SASL + init("SCRAM-SHA-256", b"n,,n=agent,r=nonce") + AMQP + OPEN,
        SASL + init("ANONYMOUS") + AMQP + OPEN,
        SASL + init("SCRAM-SHA-256", b"n,,n=agent,r=nonce") * 2,
        SASL + init("SCRAM-SHA-256", b"x" * 9000),
        SASL + b"\x7f\xff\xff\xff\x02\x01\x00\x00",
        SASL + SASL,
        b"GET / HTTP/1.1\r\n",
        SASL + init("SCRAM-SHA-256", b"\xff\xfe"),
    ],
)
@asyncio_test
async def test_frames_out_of_order_and_oversized_ones_end_the_connection(peers: Peers, data: bytes) -> None:
    async with serving(peers) as (listener, opened):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(data)
        await reader.read()
        writer.close()
        assert opened == []
        assert await until(lambda: not listener.connections)


@asyncio_test
async def test_a_recorded_exchange_is_of_no_use(peers: Peers) -> None:
    """What a client has sent, repeated byte for byte, with the secret's owner connected or not."""
    sent: list[bytes] = []

    async with serving(peers) as (listener, opened):

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, thence = await asyncio.open_connection("127.0.0.1", listener.port)

            async def back() -> None:
                while data := await there.read(65536):
                    writer.write(data)
                writer.close()

            returning = asyncio.ensure_future(back())
            while data := await reader.read(65536):
                sent.append(data)
                thence.write(data)
            thence.close()
            await returning

        between = await asyncio.start_server(relay, "127.0.0.1", 0)
        await _talk(between.sockets[0].getsockname()[1], AGENT)
        between.close()
        assert len(opened) == 1

        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"".join(sent))
        answer = await reader.read()
        writer.close()
        assert answer.endswith(frame(0, SaslOutcome(code=1), frame_type=1))
        assert len(opened) == 1


@pytest.mark.parametrize("data", [b"", SASL, SASL + init("SCRAM-SHA-256", b"n,,n=agent,r=nonce"), SASL[:3]])
@asyncio_test
async def test_a_client_that_does_not_go_on_is_dropped(
    peers: Peers, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "HANDSHAKE", 0.2)
    async with serving(peers) as (listener, opened):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(data)
        with suppress(ConnectionResetError):
            await reader.read()
        writer.close()
        assert opened == []


@asyncio_test
async def test_what_follows_in_pieces_and_at_once_reaches_the_engine(peers: Peers) -> None:
    """The client's bytes arrive one by one."""
    async with serving(peers) as (listener, opened):

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, thence = await asyncio.open_connection("127.0.0.1", listener.port)

            async def forward(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
                while data := await source.read(1):
                    sink.write(data)
                    await sink.drain()
                sink.close()

            await asyncio.gather(forward(reader, thence), forward(there, writer))

        between = await asyncio.start_server(relay, "127.0.0.1", 0)
        await _talk(between.sockets[0].getsockname()[1], AGENT)
        between.close()
        assert opened[0].identity == Peer("agent", Role.AGENT)


@asyncio_test
async def test_a_connection_that_is_closed_before_its_login_is_dropped(peers: Peers) -> None:
    async with serving(peers) as (listener, _):
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        assert await until(lambda: len(listener.connections) == 1)
        (connection,) = listener.connections
        connection.close()
        await connection.wait_closed()
        writer.close()
