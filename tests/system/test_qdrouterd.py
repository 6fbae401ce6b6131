"""The whole suite on the engines of the field: Apache Qpid Dispatch before Apache ActiveMQ Artemis."""

from __future__ import annotations

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
