"""A gateway passes a client on: what it states, and how one socket goes on with another connection."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from enmasse.aio.transport import Hub, Peer, serve
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import Open
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.sasl.layer import AnonymousClient
from enmasse.identity.login import Certified
from enmasse.identity.processes.relayed_client import (
    RELAY,
    ConnectedClient,
    asks_to_relay,
    offers_to_relay,
    relayed,
    stating,
)
from enmasse.process.places import Places
from services.mqtt_gateway.network.amqp_relay import AmqpRelay, NotRelayed
from tests.certificates import Authority
from tests.kit.relayed import RelayedClient
from tests.kit.running import asyncio_test, uvloop_test
from tests.kit.waiting import until

BARE = ConnectedClient("192.0.2.7:4711")
WHOLE = ConnectedClient(
    "[2001:db8::7]:4711",
    ("TLSv1.3", "TLS_AES_256_GCM_SHA384", 256),
    "shop.example",
    Certified("device-1"),
    "shop",
    True,
)


@pytest.mark.parametrize("client", [BARE, WHOLE, WHOLE._replace(certificate=Certified("", "it has expired"))])
def test_a_router_reads_what_a_gateway_states(client: ConnectedClient) -> None:
    opened = Open(container_id="gateway", properties=stating(client), desired_capabilities=(RELAY,))
    assert asks_to_relay(opened) and not offers_to_relay(opened)
    assert relayed(opened) == client


def test_the_host_is_that_of_the_address() -> None:
    assert (BARE.host, WHOLE.host) == ("192.0.2.7", "2001:db8::7")


@pytest.mark.parametrize(
    "properties",
    [
        None,
        {},
        {"enmasse.client": "192.0.2.7:4711"},
        {"enmasse.client": {}},
        {"enmasse.client": {"address": "a:1", "server_name": "", "any_site": False, "tls": "TLSv1.3"}},
        {"enmasse.client": {"address": "a:1", "server_name": "", "any_site": False, "tls": ["a", "b", "many"]}},
        {"enmasse.client": {"address": "a:1", "server_name": "", "any_site": False, "certificate": []}},
    ],
)
def test_what_states_no_client_is_refused(properties: Any) -> None:
    with pytest.raises(AmqpError, match="client"):
        relayed(Open(container_id="gateway", properties=properties))


class _Router(Handler):
    """Takes any client, if it `offers` that, and there is no `error`."""

    def __init__(self, *, offers: bool, error: AmqpError | None = None) -> None:
        self.offers = offers
        self.error = error
        self.peer: Peer | None = None
        self.opened: list[str] = []

    def accept(self, peer: Peer) -> Connection:
        self.peer = peer
        return Connection(self, container_id="router", is_client=False)

    def on_open(self, c: Connection) -> None:
        assert c.remote_open is not None and self.peer is not None
        self.opened.append(c.remote_open.container_id)
        if self.error is not None:
            raise self.error
        if self.offers and asks_to_relay(c.remote_open):
            c.open_fields.offered_capabilities = (RELAY,)
            peer, opened = self.peer, c.remote_open
            asyncio.get_running_loop().call_soon(
                peer.hand_over,
                lambda: Connection(self, container_id=f"router of {relayed(opened).host}", is_client=False),
            )


class _Process:
    """A credential: TLS of a process."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.context = context

    def tls(self) -> ssl.SSLContext | None:
        return self.context


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = Authority(folder)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*authority.issue("server"))
    return server, ssl.create_default_context(cafile=str(authority.file))


@pytest.mark.parametrize("tls", [False, True])
@uvloop_test
async def test_a_socket_goes_on_with_the_client(tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, client = contexts(tmp_path / "ca") if tls else (None, None)
    hub, router = Hub(), _Router(offers=True)
    listening = await serve(hub, "127.0.0.1", 0, router.accept, server)
    relay = AmqpRelay(Places(("localhost" if tls else "127.0.0.1", listening.port)), "gateway", None)
    if tls:
        monkeypatch.setattr(relay, "_credential", _Process(client))
        monkeypatch.setattr("services.mqtt_gateway.network.amqp_relay.of_process", lambda own: AnonymousClient())
    transport = await relay.dial(BARE)
    there = RelayedClient(transport)
    await until(lambda: there.router == "router of 192.0.2.7", "the router has opened")
    assert router.opened == ["gateway", "the client"]
    (connection,) = hub.connections
    connection.close()
    connection.wake()
    await until(lambda: not hub.wires and there.gone, "both ends have gone")
    listening.close()


@asyncio_test
async def test_a_client_goes_to_another_router_than_one_that_takes_none_yet() -> None:
    hub, early = Hub(), _Router(offers=True, error=AmqpError("amqp:not-found", "no listener for clients is open yet"))
    router = _Router(offers=True)
    first, second = [await serve(hub, "127.0.0.1", 0, each.accept) for each in (early, router)]
    with pytest.raises(NotRelayed, match="no listener for clients is open yet"):
        await AmqpRelay(Places(("127.0.0.1", first.port)), "gateway", None).dial(BARE)
    both = Places(("127.0.0.1", first.port), ("127.0.0.1", second.port))
    transports = [await AmqpRelay(both, "gateway", None).dial(BARE) for _ in range(4)]
    assert early.opened and len(router.opened) == 4
    for each in transports:
        each.abort()
    first.close()
    second.close()
    await until(lambda: not hub.wires, "the connections have gone")


@asyncio_test
async def test_a_router_that_knows_no_relay_takes_no_client() -> None:
    hub, router = Hub(), _Router(offers=False)
    listening = await serve(hub, "127.0.0.1", 0, router.accept)
    relay = AmqpRelay(Places(("127.0.0.1", listening.port)), "gateway", None)
    with pytest.raises(NotRelayed, match="takes no AMQP over WebSocket"):
        await relay.dial(BARE)
    await until(lambda: not hub.wires, "the connection has gone")
    listening.close()
    with pytest.raises(NotRelayed, match="cannot be reached"):
        await relay.dial(BARE)
