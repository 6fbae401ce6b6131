"""Clients of AMQP, MQTT, HTTP, STOMP and CoAP in address spaces. Each has a method for each cell of its column."""

from __future__ import annotations

import asyncio
import contextlib
import json
import select
import socket
from collections.abc import AsyncIterator
from http.client import HTTPConnection
from typing import Any

from enmasse.aio import mqtt
from enmasse.aio.client import Client, ClientReceiver
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, Rejected
from enmasse.amqp.messages.message import Message
from enmasse.amqp.sole_connection import SOLE_CONNECTION
from enmasse.mqtt.packets import Properties, Publish, Will
from enmasse.wire_formats import coap_messages as coap
from tests.coap_gateway.coap_peer import CoapPeer
from tests.http_gateway.requests_to_suite import Answer, basic
from tests.kit.waiting import DEADLINE, until
from tests.kit.websocket import Tunnel
from tests.stomp_gateway.stomp_environment import RawClient
from tests.tenants.tenant_suite import ALL, Get, Reply, Tenants, Who, taking, text_of

STATED = ("!!{}/jobs", "!!{}/news", "/!!{}/jobs", "{}/jobs", "nowhere")
"""What a client may write to mean another space."""


class AmqpWay:
    """`web`: over WebSocket."""

    def __init__(self, tenants: Tenants, web: bool) -> None:
        self.tenants = tenants
        self.tunnel = Tunnel(f"ws://127.0.0.1:{8083 + tenants.suite.offset}") if web else None
        self._clients: dict[Who, Client] = {}

    async def close(self) -> None:
        for each in self._clients.values():
            await each.close()
        if self.tunnel is not None:
            await asyncio.to_thread(self.tunnel.close)

    def new(self, who: Who, **more: Any) -> Client:
        return self.tenants.amqp(who, port=0 if self.tunnel is None else self.tunnel.port, **more)

    async def client(self, who: Who) -> Client:
        if who not in self._clients:
            self._clients[who] = await self.new(who, container_id="same").open(DEADLINE)
        return self._clients[who]

    async def _post(self, who: Who, address: str | None, message: Message) -> Any:
        sender = await (await self.client(who)).sender(address, name="link", timeout=DEADLINE)
        try:
            return await sender.send(message, timeout=DEADLINE)
        finally:
            await sender.close()

    async def send(self, who: Who, name: str, text: str) -> None:
        assert await self._post(who, name, Message(text.encode(), durable=True)) is ACCEPTED

    async def relay(self, who: Who, name: str, text: str) -> None:
        assert await self._post(who, None, Message(text.encode(), durable=True, to=name)) is ACCEPTED

    async def retain(self, who: Who, topic: str, text: str) -> None:
        message = Message(text.encode(), durable=True, annotations={"x-opt-retain-message": True})
        assert await self._post(who, topic, message) is ACCEPTED

    @contextlib.asynccontextmanager
    async def receive(self, who: Who, name: str, **more: Any) -> AsyncIterator[Get]:
        receiver = await (await self.client(who)).receiver(name, timeout=DEADLINE, **{"name": "link", **more})
        yield taking(receiver)
        await receiver.close(DEADLINE)

    subscribe = receive

    async def browse(self, who: Who, name: str) -> list[str]:
        receiver = await (await self.client(who)).receiver(
            name, name="link", browse=True, selector="1 = 1", credit=100, timeout=DEADLINE
        )
        first = await receiver.receive(DEADLINE)  # Artemis may answer a drain before it has looked
        await receiver.drain(DEADLINE)
        found = [text_of(each.message.body) for each in (first, *receiver.receive_all(1 << 30))]
        await receiver.close(DEADLINE)
        return found

    async def will(self, who: Who, topic: str, text: str) -> None:
        sender = await (await self.client(who)).sender("$lwt", name="link", timeout=DEADLINE)
        message = Message(text.encode(), subject="will", durable=True, to=topic)
        assert await sender.send(message, timeout=DEADLINE) is ACCEPTED
        sender.link.detach(AmqpError("my:failure", "the client has failed"))

    @contextlib.asynccontextmanager
    async def _durable(self, who: Who, topic: str) -> AsyncIterator[ClientReceiver]:
        async with self.new(who, container_id="kept") as client:
            receiver = await client.receiver(topic, durable_name="link", timeout=DEADLINE)
            yield receiver

    async def begin(self, who: Who, topic: str) -> None:
        async with self._durable(who, topic) as receiver:
            await receiver.detach(DEADLINE)

    @contextlib.asynccontextmanager
    async def again(self, who: Who, topic: str) -> AsyncIterator[Get]:
        async with self._durable(who, topic) as receiver:
            yield taking(receiver)
            await receiver.close(DEADLINE)

    async def claim(self, who: Who) -> set[str]:
        """Connect twice as a sole connection: the second is refused. Return the spaces in which it is."""
        options: dict[str, Any] = {"container_id": "sole", "desired_capabilities": (str(SOLE_CONNECTION),)}
        refused = set()
        async with self.new(who, **options):
            for space in ALL:
                second = self.new(who._replace(space=space), **options)
                try:
                    await second.open(DEADLINE)
                except AmqpError:
                    refused.add(space)
                else:
                    await second.close()
        return refused

    @contextlib.asynccontextmanager
    async def reply(self, who: Who) -> AsyncIterator[Reply]:
        """Of the router; an administrator asks for one of a broker."""
        stored = ("temporary-queue",) if who.role == "administrator" else ()
        client = await self.client(who)
        receiver = await client.receiver(None, dynamic=True, capabilities=stored, name="link", timeout=DEADLINE)
        yield Reply(receiver.address, {}, taking(receiver))
        await receiver.close(DEADLINE)

    async def read_list(self, who: Who) -> str:
        found = await (await self.client(who)).request(
            Message(None, subject="list_topics"), "$subctrl", timeout=DEADLINE
        )
        return str(found.body)

    async def errors(self, who: Who, other: str) -> list[str]:
        client = await self.client(who)
        found = []
        for form in (*STATED, "amqp:/!!{}/jobs", "amqp://{}/!!{}/jobs", "news::!!{}/x"):
            name = form.replace("{}", other)
            for attach in (client.sender, client.receiver):
                try:
                    await (await attach(name, name="link", timeout=DEADLINE)).close()
                except AmqpError as error:
                    found.append(str(error))
                else:
                    found.append("attached")
            state = await self._post(who, None, Message(b"x", to=name, durable=True))
            found.append(str(state.error) if isinstance(state, Rejected) else str(state))
        return found


class MqttWay:
    """`web`: over WebSocket."""

    def __init__(self, tenants: Tenants, web: bool) -> None:
        self.tenants = tenants
        self.web = web
        self._tunnels: dict[int, Tunnel] = {}
        self._clients: dict[tuple[Who, str], mqtt.Client] = {}

    async def close(self) -> None:
        for each in self._clients.values():
            await each.close()
        for tunnel in self._tunnels.values():
            await asyncio.to_thread(tunnel.close)

    def _port(self, who: Who) -> int:
        offset = self.tenants.suite.offset
        port = (8083 if self.web else 1883) + offset
        if who.role == "anonymous" and who.space != "default":
            port = self.tenants.ports["ws" if self.web else "mqtt", who.space]
        if not self.web:
            return port
        if port not in self._tunnels:
            self._tunnels[port] = Tunnel(f"ws://127.0.0.1:{port}/mqtt", ("mqtt",))
        return self._tunnels[port].port

    def new(self, who: Who, client_id: str, **more: Any) -> mqtt.Client:
        return mqtt.connect(
            "127.0.0.1", self._port(who), client_id=f"{client_id}{'-web' if self.web else ''}", user=who.login,
            password=who.password, timeout=DEADLINE, **more,
        )  # fmt: skip

    async def client(self, who: Who, client_id: str = "same") -> mqtt.Client:
        if (who, client_id) not in self._clients:
            self._clients[who, client_id] = await self.new(who, client_id).open()
        return self._clients[who, client_id]

    async def send(self, who: Who, name: str, text: str) -> None:
        await (await self.client(who)).publish(name, text, 1)

    async def retain(self, who: Who, topic: str, text: str) -> None:
        await (await self.client(who)).publish(topic, text, 1, True)

    @contextlib.asynccontextmanager
    async def receive(self, who: Who, name: str) -> AsyncIterator[Get]:
        client = await self.client(who, "receives")
        filter = f"{name}/#" if name in ("jobs", "direct") else name
        await client.subscribe(filter, qos=1)
        yield _payloads(client)
        await client.unsubscribe(filter)

    subscribe = receive

    async def will(self, who: Who, topic: str, text: str) -> None:
        client = await self.new(who, "mortal", will=Will(topic, text.encode(), 1)).open()
        await client.abort()

    async def begin(self, who: Who, topic: str) -> None:
        async with self.new(who, "kept", session_expiry=600) as client:
            await client.subscribe(topic, qos=1)

    @contextlib.asynccontextmanager
    async def again(self, who: Who, topic: str) -> AsyncIterator[Get]:
        async with self.new(who, "kept", clean=False, session_expiry=0) as client:
            assert client.connack is not None and client.connack.session_present
            yield _payloads(client)

    async def claim(self, who: Who) -> set[str]:
        """Connect again with the same client id. Return the spaces whose client is gone."""
        firsts = {space: await self.new(who._replace(space=space), "sole").open() for space in ALL}
        async with self.new(who, "sole"):
            await until(lambda: not firsts[who.space].connected, "it is taken over")
            gone = set()
            for space, client in firsts.items():
                try:
                    await client.publish("news/claimed", "x", 1)
                except mqtt.Disconnected:
                    gone.add(space)
                else:
                    await client.close()
        return gone

    @contextlib.asynccontextmanager
    async def reply(self, who: Who) -> AsyncIterator[Reply]:
        """The address is what a receiver of the request gets as the address of its reply."""
        topic = f"news/replies/{who.role}"
        async with self.receive(who, topic) as get, self.tenants.service(who.space) as replying:
            client = await self.client(who)
            asking = client.publish_nowait("direct", "?", 1, properties=Properties(response_topic=topic))
            yield await replying(get)
            assert asking is not None
            await asking

    async def read_metrics(self, who: Who) -> str:
        client = await self.client(who, "receives")
        await client.subscribe("$SYS/#")
        found: dict[str, str] = {}
        while not any("clients/connected" in topic for topic in found):
            message = await client.message(DEADLINE)
            found[message.topic] = message.payload.decode()
        await client.unsubscribe("$SYS/#")
        while client._messages:
            client._messages.clear()
        return str(found)

    async def errors(self, who: Who, other: str) -> list[str]:
        found = []
        for form in (*STATED, "$share/g/!!{}/news", "$reply/!!{}/jobs", "$reply/%21%21{}/jobs", "+/!!{}/#"):
            name = form.replace("{}", other)
            for act in ("publish", "subscribe"):
                if act == "publish" and "+" in name:
                    continue
                async with self.new(who, "errs") as client:
                    try:
                        if act == "publish":
                            found.append(str(await client.publish(name, "x", 1)))
                        else:
                            found.append(str(await client.subscribe(name, qos=1)))
                    except (mqtt.Refused, mqtt.Disconnected) as error:
                        found.append(str(error))
        return found


def _payloads(client: mqtt.Client) -> Get:
    async def get() -> str:
        message: Publish = await client.message(DEADLINE)
        assert "!!" not in f"{message.topic}{message.properties}"
        return message.payload.decode()

    return get


class HttpWay:
    """A connection for each client, and for each stream."""

    def __init__(self, tenants: Tenants, web: bool) -> None:
        assert not web
        self.tenants = tenants
        self._port = 8088 + tenants.suite.offset
        self._connections: dict[Who, HTTPConnection] = {}

    async def close(self) -> None:
        for each in self._connections.values():
            each.close()

    def headers(self, who: Who) -> dict[str, str]:
        if who.login is not None:
            return basic(who.login, str(who.password))
        return {} if who.space == "default" else {"Host": who.space}

    async def ask(self, who: Who, method: str, path: str, body: bytes = b"") -> Answer:
        return await asyncio.to_thread(self._ask, who, method, path, body)

    def _ask(self, who: Who, method: str, path: str, body: bytes) -> Answer:
        found = self._connections.get(who)
        if found is None:
            found = self._connections[who] = HTTPConnection("127.0.0.1", self._port, timeout=DEADLINE)
        if found.sock is not None and _has_ended(found.sock):
            found.close()  # the next request opens it again
        found.request(method, path, body, self.headers(who))
        answer = found.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, headers, answer.read())

    async def send(self, who: Who, name: str, text: str) -> None:
        answer = await self.ask(who, "POST", f"/v1/{name}/messages", text.encode())
        assert answer.status == 201, answer

    @contextlib.asynccontextmanager
    async def receive(self, who: Who, name: str) -> AsyncIterator[Get]:
        async def get() -> str:
            found = await self.ask(who, "POST", f"/v1/{name}/messages/next?wait=200")
            assert found.status == 200, found
            assert "!!" not in str(found.headers)
            assert (await self.ask(who, "DELETE", found.headers["location"])).status == 204
            return found.body.decode()

        yield get

    @contextlib.asynccontextmanager
    async def subscribe(self, who: Who, name: str, query: str = "") -> AsyncIterator[Get]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        lines = {"Host": "localhost", **self.headers(who)}
        head = "".join(f"{key}: {value}\r\n" for key, value in lines.items())
        writer.write(f"GET /v1/{name}/events{query} HTTP/1.1\r\n{head}\r\n".encode())

        async def line(begin: bytes) -> bytes:
            while not (found := await reader.readline()).startswith(begin):
                assert found, "the stream has ended"
                assert b"event: end" not in found, await reader.readline()
            return found

        async def get() -> str:
            found = json.loads((await line(b"data: ")).removeprefix(b"data: "))
            assert "!!" not in str(found)
            return str(found["body"])

        await line(b"retry")
        try:
            yield get
        finally:
            writer.close()

    async def begin(self, who: Who, topic: str) -> None:
        async with self.subscribe(who, topic, "?name=link"):
            pass

    @contextlib.asynccontextmanager
    async def again(self, who: Who, topic: str) -> AsyncIterator[Get]:
        async with self.subscribe(who, topic, "?name=link") as get:
            yield get
        assert (await self.ask(who, "DELETE", f"/v1/{topic}/events?name=link")).status == 204

    async def claim(self, who: Who) -> set[str]:
        """Read a subscription twice: the second stream ends the first. Return the spaces in which one has ended."""
        topic, gone = f"news/claimed/{who.role}", set()
        async with contextlib.AsyncExitStack() as stack:
            firsts = {
                space: await stack.enter_async_context(
                    self.subscribe(who._replace(space=space), topic, "?name=claimed")
                )
                for space in ALL
            }
            second = await stack.enter_async_context(self.subscribe(who, topic, "?name=claimed"))
            for space in ALL:
                await self.tenants.feed(space, topic, "still")
            for space, get in firsts.items():
                try:
                    assert await get() == "still"
                except AssertionError:
                    gone.add(space)
            assert await second() == "still"
        for space in ALL:
            await self.ask(who._replace(space=space), "DELETE", f"/v1/{topic}/events?name=claimed")
        return gone

    @contextlib.asynccontextmanager
    async def reply(self, who: Who) -> AsyncIterator[Reply]:
        async with self.tenants.service(who.space) as replying:
            asking = asyncio.create_task(self.ask(who, "POST", "/v1/direct/requests?wait=200", b"?"))

            async def get() -> str:
                answer = await asking
                assert answer.status == 200, answer
                return answer.body.decode()

            yield await replying(get)

    async def errors(self, who: Who, other: str) -> list[str]:
        found = []
        for form in (*STATED, "%21%21{}%2Fjobs", "%21%21{}/jobs"):
            name = form.replace("{}", other).lstrip("/")
            for method, end in (
                ("POST", "messages"),
                ("POST", "messages/next"),
                ("GET", "events"),
                ("POST", "requests"),
            ):
                answer = await self.ask(who, method, f"/v1/{name}/{end}", b"x")
                assert answer.status >= 400, (name, end, answer)
                found.append(f"{answer.status} {answer.body.decode()}")
        return found


def _has_ended(connection: socket.socket) -> bool:
    """Return whether the gateway has closed a connection that was idle for long."""
    looks = select.poll()
    looks.register(connection, select.POLLIN)
    return bool(looks.poll(0))


class StompWay:
    """`web`: over WebSocket."""

    def __init__(self, tenants: Tenants, web: bool) -> None:
        self.tenants = tenants
        self._port = 61613 + tenants.suite.offset
        self._tunnel = Tunnel(f"ws://127.0.0.1:{self._port + 2}/stomp", ("v12.stomp",)) if web else None
        if self._tunnel is not None:
            self._port = self._tunnel.port
        self._clients: dict[Who, RawClient] = {}

    async def close(self) -> None:
        for each in self._clients.values():
            each.close()
        if self._tunnel is not None:
            await asyncio.to_thread(self._tunnel.close)

    def new(self, who: Who, **headers: str) -> RawClient:
        if who.login is not None:
            headers |= {"login": who.login, "passcode": str(who.password)}
        elif who.space != "default":
            headers["host"] = who.space
        client = RawClient(self._port, **headers)
        client.connect()
        return client

    async def client(self, who: Who) -> RawClient:
        if who not in self._clients:
            self._clients[who] = await asyncio.to_thread(self.new, who)
        return self._clients[who]

    async def send(self, who: Who, name: str, text: str) -> None:
        client = await self.client(who)
        await asyncio.to_thread(client.done, "SEND", text.encode(), destination=name)

    @contextlib.asynccontextmanager
    async def receive(self, who: Who, name: str) -> AsyncIterator[Get]:
        client = await asyncio.to_thread(self.new, who)
        await asyncio.to_thread(client.done, "SUBSCRIBE", id="link", destination=name)
        yield _bodies(client)
        await asyncio.to_thread(client.done, "UNSUBSCRIBE", id="link")
        client.close()

    subscribe = receive

    async def _kept(self, who: Who, topic: str) -> RawClient:
        client = await asyncio.to_thread(self.new, who, client_id="kept")
        await asyncio.to_thread(client.done, "SUBSCRIBE", id="1", destination=topic, durable_subscription_name="link")
        return client

    async def begin(self, who: Who, topic: str) -> None:
        client = await self._kept(who, topic)
        await asyncio.to_thread(client.done, "DISCONNECT")
        client.close()

    @contextlib.asynccontextmanager
    async def again(self, who: Who, topic: str) -> AsyncIterator[Get]:
        client = await self._kept(who, topic)
        yield _bodies(client)
        await asyncio.to_thread(client.done, "UNSUBSCRIBE", id="1", durable_subscription_name="link")
        client.close()

    async def claim(self, who: Who) -> set[str]:
        """Use a durable subscription twice: the second ends the first. Return the spaces in which one has ended."""
        topic, gone = f"news/claimed/{who.role}", set()
        firsts = {space: await self._kept(who._replace(space=space), topic) for space in ALL}
        second = await self._kept(who, topic)
        for space in ALL:
            await self.tenants.feed(space, topic, "still")
        for space, client in firsts.items():
            frame = await asyncio.to_thread(client.read)
            if frame.command == "ERROR":
                gone.add(space)
            else:
                assert frame.body == b"still"
        assert (await asyncio.to_thread(second.read)).body == b"still"
        for client in (*(client for space, client in firsts.items() if space not in gone), second):
            await asyncio.to_thread(client.done, "UNSUBSCRIBE", id="1", durable_subscription_name="link")
            client.close()
        return gone

    @contextlib.asynccontextmanager
    async def reply(self, who: Who) -> AsyncIterator[Reply]:
        client = await asyncio.to_thread(self.new, who)
        await asyncio.to_thread(client.done, "SUBSCRIBE", id="1", destination="/temp-queue/mine")
        async with self.tenants.service(who.space) as replying:
            client.send("SEND", b"?", destination="direct", reply_to="/temp-queue/mine")
            yield await replying(_bodies(client))
        client.close()

    async def errors(self, who: Who, other: str) -> list[str]:
        found = []
        for form in (*STATED, "/queue/!!{}/jobs", "/exchange/!!{}/jobs", "/topic/!!{}/news"):
            name = form.replace("{}", other)
            for command, more in (("SEND", {}), ("SUBSCRIBE", {"id": "1"})):
                client = await asyncio.to_thread(self.new, who)
                frame = await asyncio.to_thread(
                    client.ask, command, b"x" if command == "SEND" else b"", destination=name, **more
                )
                client.close()
                found.append(f"{frame.command} {frame.headers} {frame.body!r}")
        return found


class CoapWay:
    """An endpoint for each client, and for each observation."""

    def __init__(self, tenants: Tenants, web: bool) -> None:
        assert not web
        self.tenants = tenants
        self._port = 5683 + tenants.suite.offset
        self._peers: dict[Who, CoapPeer] = {}

    async def close(self) -> None:
        for each in self._peers.values():
            each.socket.close()

    def host(self, who: Who) -> tuple[tuple[int, bytes], ...]:
        """Return the option by which a client means its space: it has no user."""
        assert who.name is None
        return () if who.space == "default" else ((coap.URI_HOST, who.space.encode()),)

    async def ask(self, who: Who, path: str, payload: bytes = b"", **more: Any) -> coap.CoapMessage:
        if who not in self._peers:
            self._peers[who] = CoapPeer(self._port)
        options = (*self.host(who), *more.pop("options", ()))
        return await asyncio.to_thread(self._peers[who].ask, path, payload, options=options, **more)

    async def send(self, who: Who, name: str, text: str) -> None:
        answer = await self.ask(who, f"v1/{name}", text.encode())
        assert coap.shown(answer.code) in ("2.01", "2.04"), answer

    @contextlib.asynccontextmanager
    async def subscribe(self, who: Who, name: str) -> AsyncIterator[Get]:
        with CoapPeer(self._port) as peer:
            path, begin, end = f"v1/{name}?form=json", (coap.OBSERVE, b""), (coap.OBSERVE, b"\x01")
            answer = await asyncio.to_thread(peer.ask, path, code=coap.GET, options=(*self.host(who), begin))
            assert answer.option(coap.OBSERVE) is not None, answer

            async def get() -> str:
                found = json.loads((await asyncio.to_thread(peer.notification)).payload)
                assert "!!" not in str(found)
                return str(found["body"])

            yield get
            last = coap.decoded(peer.request(path, code=coap.GET, options=(*self.host(who), end)))
            ends = coap.encoded(coap.CON, coap.GET, last.id, answer.token, last.options)
            await asyncio.to_thread(peer.answer, ends)

    @contextlib.asynccontextmanager
    async def reply(self, who: Who) -> AsyncIterator[Reply]:
        """The address is a topic, which the client observes."""
        topic = f"news/coap-replies/{who.role}"
        async with self.subscribe(who, topic) as get, self.tenants.service(who.space) as replying:
            asking = asyncio.create_task(self.send(who, f"direct?reply-to={topic}", "?"))
            yield await replying(get)
            await asking

    async def errors(self, who: Who, other: str) -> list[str]:
        found = []
        for form in (*STATED, "!!{}%2Fjobs"):
            name = form.replace("{}", other).lstrip("/")
            for path, options, method in (
                (f"v1/{name}", (), coap.POST),
                (f"v1/{name}", ((coap.OBSERVE, b""),), coap.GET),
                (f"v1/jobs?reply-to={name}", (), coap.POST),
            ):
                if "reply-to" in path and "!!" not in name:
                    continue  # an address that anyone may state for replies
                answer = await self.ask(who, path, b"x" if method == coap.POST else b"", options=options, code=method)
                assert answer.code >= coap.code("4.00"), (path, answer)
                found.append(f"{coap.shown(answer.code)} {answer.payload.decode()}")
        return found


def _bodies(client: RawClient) -> Get:
    async def get() -> str:
        frame = await asyncio.to_thread(client.read)
        assert frame.command == "MESSAGE", frame
        assert "!!" not in str(frame.headers)
        return bytes(frame.body).decode()

    return get
