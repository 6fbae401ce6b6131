"""Changes of users by the command are in force when it ends: for logins, and for what they may do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from enmasse.aio.mqtt import Disconnected, connect
from tests.cli.running import Up, enmasse, wait_for
from tests.kit.waiting import DEADLINE

TIMES = 20


def logs_in(port: int, user: str, topic: str) -> bool:
    """Return whether a client may log in; it must then be allowed to subscribe to a topic, which is asked for once."""

    async def once() -> bool:
        try:
            async with connect("127.0.0.1", port, user=user, password=user, timeout=DEADLINE) as client:
                await client.subscribe(topic)
                return True
        except Disconnected:
            return False

    return asyncio.run(once())


def test_a_file_of_users_that_is_gone_is_not_taken_for_no_users(empty_config: Path, tmp_path: Path) -> None:
    """They stay in force: deleting the file does not open the suite."""
    with Up(empty_config, tmp_path / "data", fake=True) as up:
        up.feed()
        up.until_ready()
        assert "clients are let in without one" in enmasse("user", "list", "--port-offset", up.offset).stderr
        up.feed(errors=({"file": "users.json", "reason": "is missing; what applied before stays"},))
        wait_for(lambda: up.status()["errors"], what="the error in the status")
        assert "users.json is gone" in enmasse("user", "list", "--port-offset", up.offset).stderr


@pytest.mark.slow
def test_users_come_and_go_without_a_pause(tmp_path: Path) -> None:
    assert enmasse("init", tmp_path / "config").returncode == 0
    password = tmp_path / "password"
    with Up(tmp_path / "config", tmp_path / "data", fake=False, options=("--gateways", "1")) as up:
        up.until_ready()

        def user(*arguments: str | Path) -> str:
            done = enmasse("user", *arguments, "--port-offset", up.offset)
            assert done.returncode == 0, done.stderr
            return done.stderr

        async def leave_session() -> None:
            port = 1883 + up.offset
            async with connect("127.0.0.1", port, client_id="left", session_expiry=3600, timeout=DEADLINE) as client:
                await client.subscribe("mqtt/left")

        assert enmasse("user", "add", "@devices", "--port-offset", up.offset).returncode == 1
        password.write_text("first")
        asyncio.run(leave_session())
        assert "1 MQTT session of clients without a user stay" in user("add", "first", "--password-file", password)
        user("add", "@devices")
        user("allow", "@devices", "recv", "mqtt/${user}/#")
        found = []
        for number in range(TIMES):
            name = f"device-{number}"
            password.write_text(name)
            user("add", name, "--password-file", password, "--group", "devices")
            first = logs_in(1883 + up.offset, name, f"{name}/x")
            user("remove", name)
            found.append((first, logs_in(1883 + up.offset, name, f"{name}/x")))
        assert found == [(True, False)] * TIMES
