"""`$subctrl` and `$mqtt/control` through a router, with python-qpid-proton as client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import proton

from enmasse.control import ControlReceiver, ControlSender, Outcome, connect
from enmasse.model.sessions import CONTROL
from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.subserv.harness import SUITE, World, world

FOR = "x-opt-retained-for"


class Client:
    """Asks, and has an address for replies."""

    async def start(self, world: World) -> Client:
        self._connection = await connect("127.0.0.1", world.router.port, container="client")
        self._sender: ControlSender = self._connection.sender("$subctrl")
        self._operator: ControlSender = self._connection.sender(CONTROL)
        self._receiver: ControlReceiver = self._connection.receiver(None, dynamic=True)
        await self._sender.opened()
        await self._operator.opened()
        await self._receiver.opened()
        return self

    async def ask(self, subject: str, id: str | None = None, body: Any = None, *, reply: bool = False) -> Outcome:
        return await self._sender.deliver(self._request(subject, id, body, reply=reply))

    async def operate(self, subject: str, body: str) -> Outcome:
        """As `ask`, for an operator."""
        return await self._operator.deliver(self._request(subject, "n", body, reply=True))

    async def ask_for(self, reply_to: str) -> Outcome:
        """Ask for the topics, to be sent to this address."""
        message = self._request("list_topics", "x", None, reply=False)
        message.reply_to = reply_to
        return await self._sender.deliver(message)

    def _request(self, subject: str, id: str | None, body: Any, *, reply: bool) -> proton.Message:
        message = proton.Message(subject=subject, correlation_id=id, body=body)
        if reply:
            message.reply_to = self._receiver.remote_source
        return message

    async def reply(self, subject: str, id: str | None = None, body: Any = None) -> proton.Message:
        return await self._reply_of(await self.ask(subject, id, body, reply=True), id)

    async def _reply_of(self, outcome: Outcome, id: str | None) -> proton.Message:
        """The reply, which is there before the outcome."""
        assert outcome.accepted, outcome
        delivery = await anext(self._receiver)
        delivery.accept()
        assert delivery.message.correlation_id == id
        return delivery.message

    async def show(self, subject: str, **body: Any) -> Any:
        return json.loads((await self._reply_of(await self.operate(subject, json.dumps(body)), "n")).body)


async def until_known(client: Client) -> None:
    """Wait until the service knows the permissions."""

    async def served() -> bool:
        return (await client.ask("list_topics", "any", reply=True)).accepted

    await until(served, "permissions")
    (await anext(client._receiver)).accept()


@asyncio_test
async def test_subctrl(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.configserv.publish("permissions", {"anonymous": True, "users": {}})
        client = await Client().start(w)
        await until_known(client)
        await w.publish_to("news/kept", b"kept", retain=True)
        await _subscriptions(w, client)
        await _refusals(client)
        await _shown(w, client)
        await _survive(w, client)


async def _subscriptions(w: World, client: Client) -> None:
    assert (await client.ask("subscribe", "my-id", "news/#")).accepted
    listed = await client.reply("list", "my-id")
    assert listed.subject == "subscriptions" and listed.body == {"news/#": True}
    address = listed.properties["addresses"]
    assert SUITE.sub("", address) == "$sub/b1/my-id" != address
    assert (await w.take(address, 1))[0].annotations[FOR] == "news/#"
    await w.publish_to("news/1", b"one")
    assert (await w.take(address, 1))[0].body == b"one"
    assert (await client.ask("subscribe", "my-id", {"news/#": "1", "alarms": "0"})).accepted
    assert (await client.reply("list", "my-id")).body == {"news/#": "1", "alarms": "0"}
    assert await w.diverts() == ["my-id|alarms", "my-id|news/#"]
    assert (await client.ask("unsubscribe", "my-id", ["news/#"])).accepted
    assert await w.diverts() == ["my-id|alarms"]
    assert (await client.ask("close", "my-id")).accepted
    assert await w.queues() == [] and await w.diverts() == []
    assert (await client.reply("list", "my-id")).body == {}
    assert (await client.ask("subscribe", "$mqtt.to.c1.publish", ["news", "alarms/+"])).accepted
    assert (await client.ask("subscribe", "mqtt.c1", "news")).accepted  # no session's
    assert await w.queues() == ["$sub/b1/%24mqtt.to.c1.publish", "$sub/b1/%6Dqtt.c1"]
    assert (await client.ask("close", "mqtt.c1")).accepted
    assert sorted((await client.reply("list_topics", "any")).body) == ["alarms", "news"]


async def _refusals(client: Client) -> None:
    for subject, id, body, condition in (
        ("subscribe", "x", "unknown", "amqp:precondition-failed"),
        ("subscribe", "x", "cast", "amqp:precondition-failed"),
        ("subscribe", "x", "+/a", "amqp:precondition-failed"),
        ("subscribe", "x", ["news", "unknown"], "amqp:precondition-failed"),
        ("subscribe", "x", 5, "amqp:invalid-field"),
        ("subscribe", "x", [], "amqp:invalid-field"),
        ("subscribe", None, "news", "amqp:invalid-field"),
        ("list", "x", None, "amqp:invalid-field"),
        ("odd", "x", None, "amqp:not-implemented"),
    ):
        outcome = await client.ask(subject, id, body)
        assert outcome.condition == condition and outcome.description, (subject, body, outcome)
    for reply_to in ("!!a/b", "/!!a/b", "amqp:/!!a.b", "t::!!a/b"):
        assert (await client.ask_for(reply_to)).condition == "amqp:unauthorized-access", reply_to
    assert (await client.reply("list", "x")).body == {}
    reply = await client.reply("subscribe", "x", ["news", "unknown"])
    assert reply.subject == "subscribed" and SUITE.sub("", reply.properties["addresses"]) == "$sub/b1/x"
    assert reply.body["news"] is True and "unknown" in reply.body["unknown"]
    assert (await client.ask("close", "x")).accepted


async def _shown(w: World, client: Client) -> None:
    gateway = await w.gateway()
    await gateway.open("c", peer="1.2.3.4:5")
    await gateway.subscribe("c", "news/+", "$share/g/alarms")
    receiver = (await w.connection()).receiver("news/d", name="link", configure=_durable)
    await receiver.opened()
    rows = {row["kind"]: row for row in (await client.show("subscriptions"))["subscriptions"]}
    assert set(rows) == {"mqtt", "share", "amqp", "durable"}
    mqtt = rows["mqtt"]
    assert mqtt["client"] == "c" and mqtt["filters"] == {"news/+": "1", "$share/g/alarms": "1"}
    assert mqtt["depth"] == 1 and mqtt["brokers"] == ["b1"] and mqtt["connected"] and mqtt["since"].endswith("Z")
    assert rows["durable"]["filters"] == {"news/d": ""}
    assert await client.show("subscription", id="mqtt.c") == mqtt
    receiver.connection.abort()
    assert (await client.show("delete", id=rows["durable"]["id"]))["count"] == 1
    assert (await client.show("delete", id=rows["amqp"]["id"]))["count"] == 1
    sessions = (await client.show("sessions"))["sessions"]
    assert [(row["client"], row["peer"], row["subscriptions"]) for row in sessions] == [("c", "1.2.3.4:5", 2)]
    assert (await client.show("disconnect", client="c"))["count"] == 1
    await until(lambda: [subject for subject, _ in gateway.commands] == ["disconnect"])
    retained = await client.show("retained", filter="news/#")
    assert retained["total"] == 1 and retained["retained"][0]["topic"] == "news/kept"
    assert (await client.show("clear_retained", filter="alarms/#"))["count"] == 0
    assert (await client.show("clear_retained", filter="#"))["count"] == 1
    for subject, body in (("subscription", {"id": "no"}), ("delete", {"id": "no"}), ("disconnect", {"client": "no"})):
        assert (await client.operate(subject, json.dumps(body))).condition == "amqp:not-found"
        assert (await client.ask(subject, "n", json.dumps(body), reply=True)).condition == "amqp:not-implemented"
    assert (await client.operate("delete", "{")).condition == "amqp:invalid-field"
    assert (await client.show("delete", id="mqtt.c"))["count"] == 1
    await until(w.no_queues)


def _durable(link: Any) -> None:
    link.source.durability = proton.Terminus.DELIVERIES
    link.source.expiry_policy = proton.Terminus.EXPIRE_NEVER
    link.source.capabilities.put_object(proton.symbol("topic"))


async def _survive(w: World, client: Client) -> None:
    """A subscription outlives subserv and the broker, with what came meanwhile."""
    assert (await client.ask("subscribe", "lasting", {"news": "tag"})).accepted
    w.kill()
    await w.publish_to("news", b"meanwhile")
    w.launch()
    await w.ready()
    client = await Client().start(w)
    listed = await client.reply("list", "lasting")
    assert listed.body == {"news": "tag"}
    assert (await w.take(listed.properties["addresses"], 1))[0].body == b"meanwhile"
