"""A space gets the name of a removed one: nothing of that is left, and its neighbours keep what they have."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from proton import Message
from proton.reactor import DurableSubscription
from proton.utils import BlockingReceiver

from enmasse.model.tenants.tenancy import NAME_IS_KEPT
from enmasse.testing import Suite, wait_for
from tests.kit.waiting import DEADLINE
from tests.system import amqp_users
from tests.system.mqtt_of_spaces import ADDRESSES, ALL, PASSWORD, Device, suite_with_spaces, user
from tests.system.users import allow, entry

STORES = ("subserv", "mqtt_lwt")
REMOVED = "one"
KEPT = tuple(space for space in ALL if space != REMOVED)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with suite_with_spaces(tmp_path_factory.mktemp("spaces")) as found:
        yield found


class Reader:
    """An AMQP client of a space with a durable subscription, which also asks `$subctrl`."""

    def __init__(self, suite: Suite, space: str) -> None:
        self.connection = amqp_users.proton(suite, user(space), PASSWORD, container_id="reader")
        self.durable: BlockingReceiver = self.connection.create_receiver(
            "news/kept", credit=10, name="kept", options=[DurableSubscription()]
        )
        self._replies = self.connection.create_receiver(None, dynamic=True)
        self._requests = self.connection.create_sender("$subctrl")

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def ask(self, subject: str, body: object = None) -> Any:
        """Return the body of the answer of `$subctrl`."""
        reply_to = self._replies.link.remote_source.address
        self._requests.send(Message(subject=subject, correlation_id="s", reply_to=reply_to, body=body))
        return self._replies.receive(DEADLINE).body

    def until(self, fence: str) -> list[str]:
        """Return what comes to the durable subscription before a payload."""
        found: list[str] = []
        while not found or found[-1] != fence:
            message = self.durable.receive(DEADLINE)  # whose body is in its memory
            found.append(bytes(message.body).decode())
            self.durable.accept()
        return [each for each in found[:-1] if each]  # an empty one ends what was retained


def fill(suite: Suite, space: str) -> Device:
    """Give a space a bit of everything. Return a device with a will."""
    with Device(suite, space, "session", clean=False, expiry=3600) as device:
        device.publish("news/kept", "", retain=True)  # of the test before
        device.subscribe("news/kept")
    with Reader(suite, space) as reader:
        assert reader.ask("subscribe", "news/kept") == {"news/kept": True}
    willing = Device(suite, space, "willing", expiry=3600, will=("news/will", f"will of {space}", 1, False))
    willing.publish("news/kept", f"of {space}", retain=True)
    willing.publish("jobs", f"of {space}")
    return willing


def found(suite: Suite, space: str) -> dict[str, Any]:
    """Return what a space has of that."""
    with (
        Device(suite, space, "session", clean=False, expiry=3600) as session,
        Device(suite, space, "fresh") as fresh,
        Device(suite, space, "worker") as worker,
        Reader(suite, space) as reader,
    ):
        result: dict[str, Any] = {"present": session.present, "$subctrl": reader.ask("list")}
        if not session.present:
            session.subscribe("news/kept")
        fresh.subscribe("news/#")
        worker.subscribe("jobs")
        for topic in ("news/kept", "jobs"):
            worker.publish(topic, "end")
        devices = {"session": session, "retained": fresh, "queue": worker}
        messages = {name: [payload for _, payload in device.until("end")] for name, device in devices.items()}
        return {**result, **messages, "durable": reader.until("end")}


def wills(suite: Suite) -> int:
    """Return how many wills all spaces have."""
    number: int = suite.component("mqtt_lwt")["counts"]["wills"]
    return number


def put(suite: Suite, entries: dict[str, Any]) -> None:
    file = suite.config / "spaces.json"
    new = file.with_name(".new")
    new.write_text(json.dumps(entries))
    new.rename(file)


def waits(suite: Suite, *texts: str) -> bool:
    """Return whether the entry waits, and says these texts."""
    reasons = [each["reason"] for each in suite.status()["errors"] if NAME_IS_KEPT in each["reason"]]
    return bool(reasons) and all(text in reasons[0] for text in texts)


def discarded(suite: Suite, name: str) -> bool:
    """Order that what an address of the removed space holds is discarded; return whether that is possible yet."""
    command = ("address", "remove", name, "--force", "--space", REMOVED, "--port-offset", str(suite.offset))
    return suite.command(*command).returncode == 0 or not waits(suite, repr(name))


def serves(suite: Suite) -> bool:
    with contextlib.suppress(AssertionError), Device(suite, REMOVED, "probe") as device:
        for name in ("news/probe", "jobs"):
            device.subscribe(name)
        return True
    return False


@pytest.mark.slow  # test_removed_spaces.py of subserv and configserv, and test_wills_of_users.py
@pytest.mark.parametrize("way", ["running", "stopped", "killed"])
def test_a_new_space_has_nothing_of_a_removed_one_of_its_name(suite: Suite, way: str) -> None:
    """`stopped`: the stores do not run while the space is removed and added. `killed`: then they are killed, and have
    never heard of the removal; so are configserv before it is added, brokers and their controller after it."""
    willing = {space: fill(suite, space) for space in ALL}
    wait_for("all wills", lambda: wills(suite) == len(ALL))
    stores = [suite.component(kind) for kind in STORES]
    brokers = [each for each in suite.status()["components"] if each["kind"] in ("broker", "storage_controller")]
    if way != "running":
        for each in stores:
            os.kill(each["pid"], signal.SIGSTOP)
    try:
        put(suite, {"two": {}})
        shutil.rmtree(suite.config / "spaces" / REMOVED)
        assert willing[REMOVED].gone.wait(DEADLINE)
        if way == "killed":
            suite.kill(suite.component("configserv"))
        folder = suite.config / "spaces" / REMOVED
        folder.mkdir()
        (folder / "addresses.json").write_text(json.dumps(ADDRESSES))
        (folder / "users.json").write_text(json.dumps({"alice": entry(PASSWORD, allow("#", "$subctrl", "$lwt"))}))
        (folder / "users.json").chmod(0o600)
        put(suite, {"one": {}, "two": {}})
        wait_for("the entry waits", lambda: waits(suite, "jobs"))
        for name in ("jobs", "news"):
            wait_for(f"what {name} holds is discarded", partial(discarded, suite, name))
        if way != "running":
            wait_for("the stores are waited for", lambda: waits(suite, *STORES))
    finally:
        if way == "killed":
            suite.kill(*stores, *brokers)
        elif way == "stopped":
            for each in stores:
                with contextlib.suppress(ProcessLookupError):  # a suite that waits for it for long starts it again
                    os.kill(each["pid"], signal.SIGCONT)
    wait_for("the space is in force", lambda: not waits(suite) and serves(suite))
    suite.wait_ready()
    assert found(suite, REMOVED) == {
        "present": False, "$subctrl": {}, "session": [], "retained": [], "queue": [], "durable": [],
    }  # fmt: skip
    wait_for("the wills of the others", lambda: wills(suite) == len(KEPT))
    for space in KEPT:
        of = [f"of {space}"]
        assert found(suite, space) == {
            "present": True, "$subctrl": {"news/kept": True}, "session": of, "retained": of, "queue": of, "durable": of,
        }  # fmt: skip
        with Device(suite, space, "heir") as heir:
            heir.subscribe("news/will")
            willing[space].lose()
            assert heir.receive() == ("news/will", f"will of {space}")
