"""The gateway's conversations with the subscription service and the last-will service, over a real router: what is said
before what, and what is said again after one of them was away."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from enmasse.amqp.codec.errors import RESOURCE_LIMIT_EXCEEDED, AmqpError
from enmasse.model.sessions import Disconnect, Failure, HelloReply, OpenReply, SubscribeReply, Takeover
from enmasse.mqtt import reasons
from enmasse.mqtt.packets import Properties, Subscribe, Subscription, Will
from services.mqtt_gateway.amqp import backend as backends
from services.mqtt_gateway.amqp import wills
from services.mqtt_gateway.interfaces import Ending, Refused
from tests.configserv.running import FLAVORS, Configserv
from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.mqtt_gateway.environment import ADDRESSES, Environment, Router, environment

Test = Callable[[Environment], Awaitable[None]]
WILL = Will("news/gone", b"dead", 1)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Router, Configserv]]:
    service = Configserv(tmp_path_factory.mktemp("configserv"))
    service.write("flavors.json", FLAVORS)
    service.write("addresses.json", ADDRESSES)
    service.start()
    router = Router(tmp_path_factory.mktemp("router"))
    router.start()
    yield router, service
    router.kill()
    service.stop()


def inside(parts: tuple[Router, Configserv], test: Test) -> None:
    @asyncio_test
    async def run() -> None:
        async with environment(*parts) as found:
            await test(found)

    run()


def test_a_will_is_stored_before_the_session_is_there_and_decided_upon_at_its_end(
    parts: tuple[Router, Configserv],
) -> None:
    async def test(found: Environment) -> None:
        backend = await found.backend()
        for client, ending, subject in (
            ("clean", Ending.CLEAN, "will-clear"),
            ("lost", Ending.LOST, "will-publish"),
            ("taken", Ending.TAKEN, "will-publish"),
        ):
            device = await found.device(backend, client, will=WILL)
            assert found.wills.log[-1] == ("will", client)
            message = found.wills.messages[-1]
            assert (message.to, message.body) == ("news/gone", b"dead")
            assert "x-opt-mqtt-will-topic" not in (message.annotations or {})
            device.close(ending)
            await until(lambda expected=(subject, client): found.wills.log[-1] == expected)  # type: ignore[misc]  # mypy infers no type of a lambda's default
            await until(lambda: found.sessions.subjects()[-1] == "close")
            assert found.sessions.log[-1][1]["client"] == client
            epochs = {(each.annotations or {})["x-opt-mqtt-epoch"] for each in found.wills.messages[-2:]}
            assert epochs == {found.sessions.log[-1][1]["epoch"]}
        delayed = Will("kitchen/gone", b"dead", 1, properties=Properties(will_delay=30))
        await found.device(backend, "ends", will=delayed, expiry=0)
        assert found.wills.messages[-1].to == "rest/kitchen/gone"
        assert (found.wills.messages[-1].annotations or {})["x-opt-mqtt-will-topic"] == "kitchen/gone"
        assert "x-opt-will-delay" not in (found.wills.messages[-1].annotations or {}), "the session ends before"
        device = await found.device(backend, "delayed", will=delayed, expiry=60)
        assert (found.wills.messages[-1].annotations or {})["x-opt-will-delay"] == 30
        device.close(Ending.TAKEN)
        await until(lambda: found.sessions.log[-1][1].get("client") == "delayed")
        assert found.wills.log[-1] == ("will", "delayed"), "who has taken the session over decides"

    inside(parts, test)


def test_a_will_that_no_address_takes_or_that_cannot_be_retained_is_refused(parts: tuple[Router, Configserv]) -> None:
    async def test(found: Environment) -> None:
        backend = await found.backend()
        with pytest.raises(Refused) as refused:
            await found.device(backend, will=Will("news", b"", 0, True))
        assert refused.value.reason == 0x9A
        with pytest.raises(Refused) as refused:
            await found.device(backend, will=Will("$reply/$management", b"", 0))
        assert refused.value.reason == 0x90
        assert "open" not in found.sessions.subjects()

    inside(parts, test)


def test_no_client_with_a_will_comes_in_while_it_cannot_be_stored(
    parts: tuple[Router, Configserv], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "OPENING", 0.5)

    async def test(found: Environment) -> None:
        backend = await found.backend()
        await until(lambda: backend.wills.ready)
        found.wills.silent = True
        with pytest.raises(Refused) as refused:
            await found.device(backend, will=WILL)
        assert refused.value.reason == 0x88
        await until(lambda: found.sessions.subjects()[-1] == "close")
        await found.device(backend, "other")

    inside(parts, test)


def test_what_an_earlier_connection_left_as_its_will_is_decided_upon_by_whether_the_session_goes_on(
    parts: tuple[Router, Configserv],
) -> None:
    async def test(found: Environment) -> None:
        backend = await found.backend()
        await until(lambda: backend.wills.ready)
        for present, will, expected in (
            (True, None, ["will-clear"]),
            (True, WILL, ["will"]),
            (False, None, ["session-ended", "will-clear"]),
            (False, WILL, ["session-ended", "will"]),
        ):
            found.wills.log.clear()
            found.sessions.answers["open"] = OpenReply(epoch=7, present=present, previous_will="pending")
            await found.device(backend, will=will)
            await until(lambda expected=expected: len(found.wills.log) == len(expected))  # type: ignore[misc]  # mypy infers no type of a lambda's default
            assert [subject for subject, _ in found.wills.log] == expected

    inside(parts, test)


def test_wills_are_told_again_to_a_service_that_was_away(parts: tuple[Router, Configserv]) -> None:
    async def test(found: Environment) -> None:
        backend = await found.backend()
        await found.device(backend, "stays", will=WILL)
        leaves = await found.device(backend, "leaves", will=WILL)
        await found.wills.leave()
        await until(lambda: not backend.wills.ready)
        leaves.close(Ending.LOST)
        found.wills.log.clear()
        await found.wills.connect(found.router.services)
        await until(lambda: len(found.wills.log) == 2)
        assert found.wills.log == [("will", "stays"), ("will-publish", "leaves")]

    inside(parts, test)


def test_without_the_subscription_service_nobody_comes_in_and_those_inside_go_on(
    parts: tuple[Router, Configserv], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "OPENING", 0.5)

    async def test(found: Environment) -> None:
        backend = await found.backend()
        a, b = await found.device(backend, "a"), await found.device(backend, "b")
        b.session.subscribe(Subscribe(1, (Subscription("ask", 1),)))
        await until(lambda: b.answers)
        await found.sessions.leave()
        await until(lambda: not backend.state()[0])
        with pytest.raises(Refused) as refused:
            await found.device(backend, "c")
        assert refused.value.reason == 0x88
        a.publish("ask", b"goes on", 1, 5)
        await until(lambda: a.outcomes and b.got)
        assert a.outcomes == [(5, 0, "")]
        b.close()
        found.sessions.log.clear()
        found.sessions.answers["hello"] = HelloReply(stale=["a"])
        await found.sessions.connect(found.router.services)
        await until(lambda: a.disconnected)
        assert a.disconnected[0][0] == 0x8E
        await until(lambda: found.sessions.subjects().count("close") == 2)
        assert found.sessions.log[0] == ("hello", {"gateway": "gateway", "sessions": [["a", 1]]})
        assert {body["client"] for subject, body in found.sessions.log if subject == "close"} == {"a", "b"}

    inside(parts, test)


def test_a_session_that_is_opened_too_late_is_closed(
    parts: tuple[Router, Configserv], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the service would take the client for connected, and its session would never expire."""
    monkeypatch.setattr(backends, "OPENING", 0.5)

    async def test(found: Environment) -> None:
        backend = await found.backend()
        found.sessions.answers["open"] = None
        with pytest.raises(Refused) as refused:
            await found.device(backend, "slow")
        assert refused.value.reason == 0x88
        for number in range(10):  # one of them is the key of the request
            found.sessions.tell("open", OpenReply(epoch=7, present=False), str(number))
        await until(lambda: "close" in found.sessions.subjects())
        found.sessions.tell("open", OpenReply(epoch=8, present=False), "5")
        del found.sessions.answers["open"]
        device = await found.device(backend, "other")
        device.close()
        await until(lambda: found.sessions.subjects().count("close") == 2)
        closes = [(body["client"], body["epoch"]) for subject, body in found.sessions.log if subject == "close"]
        assert closes == [("slow", 7), ("other", found.sessions.epoch)]

    inside(parts, test)


def test_an_error_of_the_service_is_the_clients_reason(parts: tuple[Router, Configserv]) -> None:
    async def test(found: Environment) -> None:
        backend = await found.backend()
        found.sessions.answers["open"] = Failure(condition="full", description="no more sessions", reason=0x97)
        with pytest.raises(Refused) as refused:
            await found.device(backend)
        assert (refused.value.reason, refused.value.text) == (0x97, "no more sessions")
        del found.sessions.answers["open"]
        device = await found.device(backend)
        found.sessions.answers["subscribe"] = Failure(condition="no", description="not now", reason=0x88)
        device.session.subscribe(Subscribe(3, (Subscription("ask"), Subscription("news"))))
        await until(lambda: device.answers)
        assert device.answers == [(3, [0x80, 0x80], "not now")]
        assert device.session.filters == {}

    inside(parts, test)


def test_each_refused_filter_has_an_event_with_its_own_reason(parts: tuple[Router, Configserv]) -> None:
    async def test(found: Environment) -> None:
        backend, seen = await found.backend(), list[dict[str, Any]]()
        backend.shared.refusals.seen = seen.append
        device = await found.device(backend)
        found.sessions.answers["subscribe"] = SubscribeReply(
            codes=[1, 0x8F, 0x87], reasons=["", "below", "not for you"]
        )
        filters = ("ask", "queue/x", "$queue/a")
        device.session.subscribe(Subscribe(3, tuple(Subscription(each, 1) for each in filters)))
        await until(lambda: device.answers)
        assert device.answers == [(3, [1, 0x8F, 0x87], "below")]
        assert [(event["address"], event["reason"]) for event in seen] == [
            ("queue/x", "below"), ("$queue/a", "not for you"),
        ]  # fmt: skip

    inside(parts, test)


def test_a_task_that_ends_by_an_error_shows(parts: tuple[Router, Configserv], monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(found: Environment) -> None:
        backend = await found.backend()
        await until(lambda: backend.state()[0])
        monkeypatch.setattr(backend.shared.publishing, "tick", lambda: 1 // 0)
        await until(lambda: not backend.state()[0])
        assert backend.state()[1].startswith("the ticks of the lanes ended by an error")

    inside(parts, test)


def test_commands_reach_the_session_of_their_epoch_only(parts: tuple[Router, Configserv]) -> None:
    async def test(found: Environment) -> None:
        backend = await found.backend()
        device = await found.device(backend, "a")
        other = await found.device(backend, "b")
        found.sessions.tell("takeover", Takeover(client="a", epoch=99))
        found.sessions.tell("disconnect", Disconnect(client="b", epoch=2, reason=0x98))
        await until(lambda: other.disconnected)
        assert device.disconnected == []
        assert other.disconnected == [(0x98, "closed by an operator")]
        found.sessions.tell("takeover", Takeover(client="a", epoch=1))
        await until(lambda: device.disconnected)
        assert device.disconnected == [(0x8E, "")]

    inside(parts, test)


def test_qos_2_is_stored_before_it_is_sent_and_told_again_until_it_is_stored(parts: tuple[Router, Configserv]) -> None:
    async def test(found: Environment) -> None:
        backend = await found.backend()
        a, b = await found.device(backend, "a"), await found.device(backend, "b")
        b.session.subscribe(Subscribe(1, (Subscription("ask", 1),)))
        await until(lambda: b.answers)
        found.sessions.answers["packets"] = None
        a.publish("ask", b"once", 2, 7)
        await until(lambda: found.sessions.changes)
        a.publish("ask", b"other", 1, 8)
        await until(lambda: a.outcomes)
        assert a.outcomes == [(8, 0, "")]
        assert [d.payload for d in b.got] == [b"other"], "the one of QoS 2 is not stored"
        await found.sessions.leave()
        del found.sessions.answers["packets"]
        await found.sessions.connect(found.router.services)
        await until(lambda: len(a.outcomes) == 2)
        assert a.outcomes[1] == (7, 0, "")
        assert b.got[1].payload == b"once"
        first, again = found.sessions.changes
        assert first == again
        a.session.release(7)
        await until(lambda: a.free)
        assert (found.sessions.changes[-1].op, a.free) == ("in-", [7])

    inside(parts, test)


def test_wills_of_all_clients_are_bounded(parts: tuple[Router, Configserv], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wills, "MOST", 1500)

    async def test(found: Environment) -> None:
        backend = await found.backend()
        will = Will("news/gone", bytes(500), 1)
        a, _ = [await found.device(backend, client, will=will) for client in "ab"]
        for _ in range(3):
            with pytest.raises(Refused) as refused:
                await found.device(backend, "c", will=will)
            assert refused.value.reason == 0x97
        a.session.close(Ending.CLEAN, None, ())
        monkeypatch.setattr(backends, "OPENING", 0.3)
        found.wills.silent = True
        with pytest.raises(Refused, match="not reached"):
            await found.device(backend, "d", will=will)
        found.wills.silent = False
        await found.device(backend, "c", will=will)
        with pytest.raises(Refused) as refused:
            await found.device(backend, "d", will=will)
        assert refused.value.reason == 0x97

    inside(parts, test)


def test_a_will_beyond_the_limits_of_the_service_is_beyond_a_quota(parts: tuple[Router, Configserv]) -> None:
    """The plan of an address space states how many wills there may be."""

    async def test(found: Environment) -> None:
        backend = await found.backend()
        found.wills.refusal = AmqpError(RESOURCE_LIMIT_EXCEEDED, "1 of 1 wills of the plan 'small' are used")
        with pytest.raises(Refused, match="of the plan 'small' are used") as refused:
            await found.device(backend, "a", will=WILL)
        assert refused.value.reason == reasons.QUOTA_EXCEEDED
        assert refused.value.reason in reasons.CONNACK and reasons.v3_return_code(refused.value.reason) == 3
        found.wills.refusal = None
        await found.device(backend, "a", will=WILL)

    inside(parts, test)


def test_a_session_is_freed_when_it_has_ended(parts: tuple[Router, Configserv]) -> None:
    async def test(found: Environment) -> None:
        backend = await found.backend()
        a = await found.device(backend, "a")
        a.session.subscribe(Subscribe(1, (Subscription("news/#", 2), Subscription("ask", 1))))
        await until(lambda: a.answers)
        session = weakref.ref(a.session)
        gc.collect()
        gc.disable()
        try:
            a.session.close(Ending.CLEAN, None, ())
            del a.session
            await until(lambda: session() is None, "nobody to hold the session")
        finally:
            gc.enable()

    inside(parts, test)


@pytest.mark.parametrize(("reason", "answered"), [(0x88, 0x83), (0x80, 0x80)])
def test_who_is_disconnected_because_nothing_can_be_stored_is_told_so(
    parts: tuple[Router, Configserv], reason: int, answered: int
) -> None:
    async def test(found: Environment) -> None:
        backend = await found.backend()
        a = await found.device(backend, "a")
        found.sessions.answers["packets"] = Failure(condition="amqp:internal-error", description="full", reason=reason)
        a.publish("ask", b"once", 2, 7)
        await until(lambda: a.disconnected)
        assert a.disconnected == [(answered, "packet identifiers could not be stored: full")]
        assert not a.outcomes

    inside(parts, test)


def test_a_publisher_is_told_that_the_store_is_full_and_publishes_again_when_it_is_not(
    parts: tuple[Router, Configserv],
) -> None:
    async def test(found: Environment) -> None:
        backend = await found.backend()
        b = await found.device(backend, "b")
        b.session.subscribe(Subscribe(1, (Subscription("ask", 1),)))
        await until(lambda: b.answers)
        a = await found.device(backend, "a")
        found.sessions.answers["packets"] = Failure(condition="full", description="no space", reason=0x97)
        for packet_id in (7, 8):
            a.publish("ask", b"refused", 2, packet_id)
        await until(lambda: len(a.outcomes) == 2)
        assert [(packet_id, reason) for packet_id, reason, _ in a.outcomes] == [(7, 0x97), (8, 0x97)]
        assert all(text for _, _, text in a.outcomes) and not a.disconnected
        del found.sessions.answers["packets"]
        a.publish("ask", b"stored", 2, 7)
        await until(lambda: len(a.outcomes) == 3)
        assert a.outcomes[2][:2] == (7, 0)
        await until(lambda: b.got)
        assert len(b.got) == 1

    inside(parts, test)


@pytest.mark.parametrize("payload", [b"once", b"another"])
def test_a_packet_id_of_before_is_the_same_message_if_the_content_is(
    parts: tuple[Router, Configserv], payload: bytes
) -> None:
    """v5 MQTT-4.3.3-10: also without DUP. A device that has lost its state counts from 1 again."""

    async def test(found: Environment) -> None:
        backend = await found.backend()
        b = await found.device(backend, "b")
        b.session.subscribe(Subscribe(1, (Subscription("ask", 1),)))
        await until(lambda: b.answers)
        a = await found.device(backend, "a")
        a.publish("ask", b"once", 2, 7)
        await until(lambda: a.outcomes)
        key = found.sessions.changes[0].key
        assert key is not None
        a.close(Ending.LOST)
        found.sessions.sessions["a"] = OpenReply(epoch=9, present=True, received=[(7, key)])
        a = await found.device(backend, "a")
        assert list(a.session.incoming) == [7]
        a.publish("ask", payload, 2, 7)
        await until(lambda: a.outcomes)
        keys = [change.key for change in found.sessions.changes if change.op == "in"]
        assert len(keys) == (1 if payload == b"once" else 2)
        assert len(set(keys)) == len(keys)

    inside(parts, test)


def test_two_gateways_have_links_of_their_own(parts: tuple[Router, Configserv]) -> None:
    async def test(found: Environment) -> None:
        one, two = await found.backend("one"), await found.backend("two")
        a, b = await found.device(one, "a"), await found.device(two, "b")
        b.session.subscribe(Subscribe(1, (Subscription("news/#", 0),)))
        await until(lambda: b.answers)

        def comes() -> bool:
            a.publish("news/x", b"1")
            return bool(b.got)

        await until(comes)
        assert b.got[0].topic == "news/x"
        await asyncio.gather(one.close(), two.close())

    inside(parts, test)
