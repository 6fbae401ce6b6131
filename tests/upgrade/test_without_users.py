"""Subscriptions and sessions that were made while there were no users, when there are users."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from enmasse.amqp.codec.errors import AmqpError
from enmasse.testing import Suite
from tests.kit.running import asyncio_test
from tests.system.amqp_users import PATIENCE, Scram, client
from tests.system.mqtt_users import Device
from tests.system.users import allow, apply, entry, write_users
from tests.upgrade import content, names
from tests.upgrade.archive import FOLDER, unpack

ALICE = {"alice": entry("pw-a", allow("#"))}
USERS = {**ALICE, "anonymous": {"permissions": [allow("#")]}}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    found = unpack(FOLDER / "889b2e1-names.txz", tmp_path_factory.mktemp("users"))
    write_users(found, USERS)
    try:
        found.up()
        apply(found, USERS)
        yield found
    finally:
        found.down()


@asyncio_test
async def test_durable_subscriptions_belong_to_the_anonymous_user(suite: Suite) -> None:
    port = 5672 + suite.offset
    for container, link in names.SUBSCRIPTIONS:
        async with client(port, Scram("alice", "pw-a"), container_id=container) as alice:
            with pytest.raises(AmqpError, match="not-found"):
                await alice.subscription(link, timeout=PATIENCE)
            theirs = await alice.receiver(content.TOPIC, durable_name=link, timeout=PATIENCE)
            await theirs.close()
        async with client(port, None, container_id=container) as anonymous:
            receiver = await anonymous.receiver(content.TOPIC, durable_name=link, timeout=PATIENCE)
            delivery = await receiver.receive(PATIENCE)
            assert delivery.message.body == "to subscriptions", (container, link)
            await delivery.accept()
            await receiver.close()
            with pytest.raises(AmqpError, match="not-found"):
                await anonymous.subscription(link, timeout=PATIENCE)


@pytest.mark.parametrize("name", names.CLIENTS)
def test_sessions_belong_to_the_anonymous_user(suite: Suite, name: str) -> None:
    with Device(suite.mqtt_port, name, "alice", "pw-a", clean=False).connected() as theirs:
        assert (theirs.answer.reason, theirs.answer.session_present) == (0, False)
    with Device(suite.mqtt_port, name, None, None, clean=False).connected() as own:
        assert (own.answer.reason, own.answer.session_present) == (0, True)
        message = own.message()
        assert (message.topic, bytes(message.payload)) == (f"{content.TOPIC}/one", b"to sessions")
