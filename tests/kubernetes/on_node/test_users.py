"""Users on the real node: the image of the authentication service, and passwords over AMQP and MQTT."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from enmasse.aio.client import connect
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.message import Message
from enmasse.amqp.performatives import ACCEPTED
from enmasse.testing import wait_for
from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.kubernetes.node import Node
from tests.kubernetes.on_node.installation import PATIENCE, Installation

pytestmark = pytest.mark.timeout(1800)

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def installed(node: Node) -> Iterator[Installation]:
    """Exposed by Routes, which is for users only."""
    node.define_routes()
    resources = {"resources": {"requests": {"cpu": "10m", "memory": "64Mi"}}}
    made = Installation(node, users={"enabled": True}, authserv=resources)
    try:
        made.install()
        yield made
    finally:
        made.close()


async def let_in(installed: Installation, user: str | None, password: str = PASSWORD) -> bool:
    try:
        async with connect(host=installed.address("router"), port=5672, user=user, password=password, timeout=60):
            return True
    except AmqpError:
        return False


def mqtt_code(installed: Installation, password: str) -> int:
    """Return the reason code of CONNACK."""
    codes: list[int] = []
    client = Client(CallbackAPIVersion.VERSION2, client_id="device", protocol=MQTTv5)
    client.username_pw_set("alice", password)
    client.on_connect = lambda client, data, flags, reason, properties: codes.append(reason.value)
    client.connect(installed.address("mqtt-gateway"), 1883)
    client.loop_start()
    wait_for("CONNACK", lambda: codes, PATIENCE)
    client.disconnect()
    client.loop_stop()
    return codes[0]


@asyncio_test
async def test_users_of_a_secret_log_in(installed: Installation, tmp_path: Path) -> None:
    assert not await let_in(installed, None) and not await let_in(installed, "alice")
    command = [str(Path(sys.executable).with_name("enmasse")), "user"]
    for arguments in (["add", "alice", "--password-file", "-"], ["allow", "alice", "send,recv", "myqueue", "mytopic"]):
        subprocess.run([*command, *arguments, "--config", str(tmp_path)], input=f"{PASSWORD}\n", text=True, check=True)
    installed.kubectl("create", "secret", "generic", "enmasse-users", f"--from-file={tmp_path / 'users.json'}")

    async def known() -> bool:
        return await let_in(installed, "alice")

    await until(known, "alice is let in", PATIENCE)
    assert not await let_in(installed, None) and not await let_in(installed, "alice", "wrong")
    own: dict[str, Any] = {"user": "alice", "password": PASSWORD}
    async with connect(host=installed.address("router"), port=5672, timeout=60, **own) as client:
        receiver, sender = await client.receiver("myqueue"), await client.sender("myqueue")
        assert await sender.send(Message("hello"), timeout=60) is ACCEPTED
        assert (await receiver.receive(60)).message.body == "hello"
    assert mqtt_code(installed, PASSWORD) == 0
    assert mqtt_code(installed, "wrong") == 0x86


def test_helm_test_needs_no_user(installed: Installation) -> None:
    assert installed.tested("") == {"operators"}
