"""The gateway's AMQP side with a real router: messages both ways on addresses that store nothing, the conversations
with the two services, and what is lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from enmasse.aio.client import Client, connect
from enmasse.amqp.messages.message import Message
from enmasse.bridge import lanes
from enmasse.bridge.client_logins import LoginAttempt
from enmasse.bridge.client_refused import ClientRefused, Refusal
from enmasse.identity.login import Certified, Login
from enmasse.identity.principal import Principal
from enmasse.model.sessions import OpenReply
from enmasse.mqtt.packets import Properties, Subscribe, Subscription
from services.mqtt_gateway.interfaces import UNKNOWN, Ending
from tests.configserv.running import FLAVORS, Configserv
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until
from tests.mqtt_gateway.environment import ADDRESSES, Device, Environment, Router, environment


@pytest.fixture(scope="module")
def configserv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Configserv]:
    service = Configserv(tmp_path_factory.mktemp("configserv"))
    service.write("flavors.json", FLAVORS)
    service.write("addresses.json", ADDRESSES)
    yield service.start()
    service.stop()


Test = Callable[[Environment], Awaitable[None]]


def inside(router: Router, configserv: Configserv, test: Test) -> None:
    @asyncio_test
    async def run() -> None:
        async with environment(router, configserv) as found:
            await test(found)

    run()


def amqp(found: Environment) -> Client:
    return connect(host="127.0.0.1", port=found.router.clients)


async def subscribed(device: Device, *filters: Subscription) -> None:
    before = len(device.answers)
    device.session.subscribe(Subscribe(1, filters))
    await until(lambda: len(device.answers) > before)


def test_messages_both_ways(router: Router, configserv: Configserv) -> None:
    async def test(found: Environment) -> None:
        backend = await found.backend()
        a, b = await found.device(backend, "a"), await found.device(backend, "b")
        await subscribed(b, Subscription("ask", 1), Subscription("news/+/x", 1))
        a.publish("ask", b"1", 1, 7)
        await until(lambda: a.outcomes)
        assert a.outcomes == [(7, 0, "")]
        assert [(d.topic, d.payload, d.qos) for d in b.got] == [("ask", b"1", 1)]
        a.publish("news/1/x", b"2", 1, 8)
        a.publish("news/1/y", b"3", 1, 9)
        await until(lambda: len(a.outcomes) == 3)
        assert [(d.topic, d.payload) for d in b.got[1:]] == [("news/1/x", b"2")]
        async with amqp(found) as client:
            sender = await client.sender("ask")
            await sender.send(Message("hello", durable=True, reply_to="news", correlation_id=7))
        await until(lambda: len(b.got) == 3)
        assert b.got[2].payload == b"hello"
        assert b.got[2].qos == 1
        assert b.got[2].properties.response_topic == "news"

    inside(router, configserv, test)


def test_what_nobody_takes_has_a_reason(
    router: Router, configserv: Configserv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "PATIENCE", 10)
    monkeypatch.setattr(lanes, "STORED_PATIENCE", 20)

    async def test(found: Environment) -> None:
        backend = await found.backend()
        a = await found.device(backend)
        a.publish("nowhere/x", qos=1, packet_id=1)  # rest has no broker here
        a.publish("ask", qos=1, packet_id=2)
        a.publish("news", qos=1, packet_id=3)
        a.publish("ask", qos=1, packet_id=4, retain=True)
        a.publish("$reply/$management", qos=1, packet_id=5)
        await until(lambda: len(a.outcomes) == 5)
        reasons = {packet_id: reason for packet_id, reason, _ in a.outcomes}
        assert reasons[3] == 0x10
        assert reasons[2] == 0x83
        assert reasons[4] == 0x83
        assert reasons[5] == 0x90
        assert reasons[1] == UNKNOWN, "a broker comes again: this is no refusal"
        assert (
            next(text for packet_id, _, text in a.outcomes if packet_id == 2)
            == "no receiver took a message to ask for 1 s"
        )

    inside(router, configserv, test)


def test_the_newest_refusal_is_known_as_the_client_gets_it(router: Router, configserv: Configserv) -> None:
    async def test(found: Environment) -> None:
        backend, seen = await found.backend(), list[dict[str, Any]]()
        backend.shared.refusals.seen = seen.append
        device = await found.device(backend, version=4, login={"peer": "192.0.2.1:4711"})
        device.publish("$reply/$management", qos=1, packet_id=1)
        await until(lambda: device.outcomes)
        (_, reason, text) = device.outcomes[0]
        assert (reason, text) == device.session.noted and text
        assert [(event["what"], event["peer"]) for event in seen] == [("publish", "192.0.2.1:4711")]

    inside(router, configserv, test)


def test_a_client_of_any_protocol_that_is_not_served_is_an_event_with_its_user(
    router: Router, configserv: Configserv
) -> None:
    async def test(found: Environment) -> None:
        backend, seen = await found.backend(), list[dict[str, Any]]()
        bridge, refused = backend.bridge, ClientRefused(Refusal.QUOTA, "alice has 2 of 2 connections")
        bridge.refusals.seen = seen.append
        bridge.note_not_served(refused, LoginAttempt(peer="192.0.2.1:4711"), Login(Principal("alice")))
        bridge.note_not_served(refused, LoginAttempt(peer="192.0.2.1:4712", username="hunter2"))
        bridge.note_not_served(refused, LoginAttempt(peer="192.0.2.1:4713", certificate=Certified("bob")))
        bridge.refusals.tick()
        assert [(event["user"], event["condition"], event.get("proved")) for event in seen] == [
            ("alice", "quota", None),
            ("bob", "quota", None),
            ("", "quota", False),
        ]

    inside(router, configserv, test)


def test_a_request_from_amqp_is_answered(router: Router, configserv: Configserv) -> None:
    async def test(found: Environment) -> None:
        backend = await found.backend()
        device = await found.device(backend)
        await subscribed(device, Subscription("ask", 1))
        async with amqp(found) as client:
            answer = client.request(Message(b"?"), "ask")
            task = asyncio.ensure_future(answer)
            await until(lambda: device.got)
            asked = device.got[0].properties
            assert asked.response_topic is not None
            assert asked.response_topic.startswith("$reply/_topo/")
            device.publish(
                asked.response_topic,
                b"!",
                1,
                3,
                properties=Properties(correlation_data=asked.correlation_data),
            )
            reply = await task
            assert reply.body == b"!"
        await until(lambda: device.outcomes)
        assert device.outcomes == [(3, 0, "")]

    inside(router, configserv, test)


def test_nothing_of_qos_1_is_lost_with_the_router(router: Router, configserv: Configserv) -> None:
    async def test(found: Environment) -> None:
        backend = await found.backend()
        a, b = await found.device(backend, "a"), await found.device(backend, "b")
        await subscribed(b, Subscription("ask", 1))
        count = 0

        def send(n: int) -> None:
            nonlocal count
            for _ in range(n):
                count += 1
                a.publish("ask", b"%d" % count, 1, count)

        send(300)
        await until(lambda: a.outcomes)
        send(300)
        found.router.kill()
        send(50)
        found.router.start()
        await found.sessions.connect(found.router.services)
        await found.wills.connect(found.router.services)
        await until(lambda: len(a.outcomes) == count)
        good = {packet_id for packet_id, reason, _ in a.outcomes if reason == 0}
        assert {reason for _, reason, _ in a.outcomes} <= {0, UNKNOWN}
        assert good <= {int(d.payload) for d in b.got}
        assert good

    inside(router, configserv, test)


def test_an_error_of_a_handler_is_part_of_the_health_after_the_link_is_back(
    router: Router, configserv: Configserv, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(found: Environment) -> None:
        backend = await found.backend()
        await until(lambda: backend.wills.ready)
        assert backend.state() == (True, "")

        def fault(*_: Any) -> None:
            monkeypatch.undo()
            raise RuntimeError("injected")

        monkeypatch.setattr(backend.wills, "on_outcomes", fault)
        backend.wills.session_ended("d1", 1)
        await until(lambda: "RuntimeError: injected" in backend.state()[1])
        await until(lambda: backend.wills.ready and backend.state()[0])
        assert "1 internal errors have ended links or connections" in backend.state()[1]

    inside(router, configserv, test)


def test_what_a_client_of_3_1_1_sends_again_goes_one_by_one(router: Router, configserv: Configserv) -> None:
    """In QoS 2 a message that is stored before the one before it stays before it: a repetition is dropped."""

    async def test(found: Environment) -> None:
        backend = await found.backend()
        async with amqp(found) as client:
            receiver = await client.receiver("ask", credit=20)

            async def came() -> tuple[bytes, Any]:
                delivery = await receiver.receive(DEADLINE)
                return bytes(delivery.message.body), delivery

            def publish(device: Device) -> None:
                for number in range(1, 5):
                    device.publish("ask", b"%d" % number, 2, number)

            device = await found.device(backend, version=4, expiry=60)
            publish(device)
            first = [await came() for _ in range(4)]
            assert [body for body, _ in first] == [b"1", b"2", b"3", b"4"], "new ones do not wait for each other"
            await first[0][1].reject("amqp:resource-limit-exceeded", "full")
            await until(lambda: device.outcomes)
            device.close(Ending.LOST)
            for _, delivery in first[1:]:
                await delivery.release()
            received = [(change.pid, str(change.key)) for change in found.sessions.changes if change.op == "in"]
            for refused in (True, False):
                found.sessions.epoch += 1
                reply = OpenReply(epoch=found.sessions.epoch, present=True, received=received)
                found.sessions.sessions["d1"] = reply
                device = await found.device(backend, version=4, expiry=60)
                publish(device)
                device.publish("ask", b"new", 2, 9)
                body, delivery = await came()
                assert body == b"1"
                if refused:
                    await delivery.reject("amqp:resource-limit-exceeded", "full")
                    await until(lambda device=device: device.outcomes)  # type: ignore[misc]  # mypy infers no type of a lambda's default
                    device.close(Ending.LOST)
                    other = await found.device(backend, "other")
                    other.publish("ask", b"other", 1, 1)
                    body, delivery = await came()
                    assert body == b"other", "none that is behind a refused message has left"
                await delivery.accept()
            for expected in (b"2", b"3", b"4", b"new"):
                body, delivery = await came()
                assert body == expected
                await delivery.accept()
            await until(lambda: len(device.outcomes) == 5)

    inside(router, configserv, test)
