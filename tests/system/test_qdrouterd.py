"""The whole suite on the engines of the field: Apache Qpid Dispatch before Apache ActiveMQ Artemis."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from proton import ConnectionException, Message
from proton.utils import BlockingConnection, LinkDetached, SendException

from enmasse.supervisor.error_lines import NOT_ASKED
from enmasse.testing import Suite, running, wait_for
from tests import one_program
from tests.artemis import ENVIRONMENT
from tests.spark import sinking
from tests.system.amqp_users import PATIENCE, proton, send_one
from tests.system.mqtt_of_spaces import ALL, PASSWORD, Device, suite_with_spaces
from tests.system.mqtt_of_spaces import user as of_space
from tests.system.users import allow, entry, write_users


@pytest.mark.needs("qdrouterd")
def test_one_program_for_every_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with running(tmp_path, options=("--broker", "artemis", "--router", "qdrouterd")) as suite:
        suite.up(300)
        engines = {
            one["engine"] for one in suite.status()["components"] if one["kind"] in ("broker", "artemis", "router")
        }
        assert engines == {"artemis", "qdrouterd"}
        one_program.check_files(suite.config)
        one_program.check(suite.url, f"mqtt://127.0.0.1:{suite.mqtt_port}")
        assert suite.down() == 0


DISPATCH = ("--router", "qdrouterd")
ADDRESSES = {"jobs": {"type": "queue", "flavor": "small-persisted-queue"}, "other": {"type": "anycast"}}


def refused(attach: Callable[[str], Any], address: str) -> bool:
    try:
        attach(address).close()
    except LinkDetached as error:
        return bool(error.condition == "amqp:unauthorized-access")
    return False


@pytest.mark.needs("qdrouterd")
def test_users_present_at_the_start_log_in_through_dispatch_and_the_sink_of_spark_stores_each_row_once(
    tmp_path: Path,
) -> None:
    sunk = ("sunk", "sunk-dead")
    addresses = {**ADDRESSES, **{name: {"type": "queue", "flavor": "small-persisted-queue"} for name in sunk}}
    with running(tmp_path, addresses, options=DISPATCH) as suite:
        write_users(suite, {"alice": entry("pw-a", allow("jobs", *sunk)), "bob": entry("pw-b")})
        suite.up()
        for user, password in (("alice", "wrong"), ("carol", "pw-a"), (None, None)):
            with pytest.raises(ConnectionException):
                proton(suite, user, password)
        with pytest.raises(ConnectionException):
            BlockingConnection(suite.url, timeout=PATIENCE, sasl_enabled=False)
        alice, bob = proton(suite, "alice", "pw-a"), proton(suite, "bob", "pw-b")
        send_one(alice, "jobs")
        receiver = alice.create_receiver("jobs", credit=1)
        assert receiver.receive(PATIENCE).body == "x"
        receiver.accept()
        relay = alice.create_sender(None)
        with pytest.raises(SendException):
            relay.send(Message(address="other", body="x"))
        for connection, address in ((alice, "other"), (alice, "$management"), (bob, "jobs")):
            assert refused(connection.create_sender, address) and refused(connection.create_receiver, address), address
        check_sink(suite, tmp_path, *sunk)
        assert suite.down() == 0


@pytest.mark.needs("qdrouterd")
def test_address_spaces_behind_dispatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MQTT clients of three spaces have equal names; AMQP clients are those of the default space, and stay there."""
    monkeypatch.setenv("ENMASSE_ROUTER", "qdrouterd")
    with suite_with_spaces(tmp_path) as suite:
        for space in ALL[1:]:
            tenant = proton(suite, of_space(space), PASSWORD)  # Dispatch heeds only the rights: none
            for address in ("jobs", "news/a", f"!!{space}/jobs", "$management"):
                assert refused(tenant.create_sender, address) and refused(tenant.create_receiver, address)
        users = json.loads((suite.config / "users.json").read_text())
        users["bob"] = entry("pw-b", allow("jobs", "news/#"))
        (suite.config / "users.json").write_text(json.dumps(users))
        wait_for("bob is known", lambda: logs_in(suite, "bob", "pw-b"))
        everything, some = proton(suite, "alice", PASSWORD), proton(suite, "bob", "pw-b")
        for name in ("jobs", "news/a", "cast"):
            for address in (name, f"!!one/{name}", f"/!!two/{name}"):
                assert refused(everything.create_sender, address) and refused(everything.create_receiver, address)
                assert address == "jobs" or address == "news/a" or refused(some.create_receiver, address), address
        receivers = {space: Device(suite, space, "receiver") for space in ALL}
        for receiver in receivers.values():
            receiver.subscribe("jobs/#")
        send_one(some, "jobs", "of the default space")
        for receiver in receivers.values():
            receiver.publish("jobs", "end")
        found = {space: [payload for _, payload in each.until("end")] for space, each in receivers.items()}
        assert found == {"default": ["of the default space"], "one": [], "two": []}
        for receiver in receivers.values():
            receiver.close()


def logs_in(suite: Suite, user: str, password: str) -> bool:
    try:
        proton(suite, user, password).close()
    except ConnectionException:
        return False
    return True


def check_sink(suite: Suite, folder: Path, queue: str, dead: str) -> None:
    """Check it as behind Artemis, and what it says to a user who may not send."""
    for password in ("pw-a", "pw-b"):
        (folder / password).write_text(f"{password}\n")
    login = {"url": suite.url, "user": "alice", "passwordFile": str(folder / "pw-a")}
    sinking.check(proton(suite, "alice", "pw-a"), queue, dead, **login)
    wrong = {**login, "address": queue, "passwordFile": str(folder / "pw-b")}
    assert 'options "user" and "passwordFile"' in sinking.refused(**wrong)
    assert "amqp:unauthorized-access" in (said := sinking.refused(**{**wrong, "user": "bob"}))
    assert 'the user of the option "user"' in said


@pytest.mark.needs("qdrouterd")
def test_users_added_later_are_reported_as_ineffective_until_the_next_start(tmp_path: Path) -> None:
    with running(tmp_path, ADDRESSES, options=DISPATCH) as suite:
        suite.up()
        proton(suite, None).close()
        write_users(suite, {"alice": entry("pw-a", allow("jobs"))})

        def detail() -> str:
            router = next(each for each in suite.status()["components"] if each["kind"] == "router")
            return "" if router["ready"] else router["detail"]

        wait_for("the status of the router", lambda: detail().startswith(NOT_ASKED))
        assert not suite.status()["ready"]
        assert suite.down() == 0
        suite.up()
        assert detail() == ""
        with pytest.raises(ConnectionException):
            proton(suite, None)
        proton(suite, "alice", "pw-a").close()
        assert suite.down() == 0
