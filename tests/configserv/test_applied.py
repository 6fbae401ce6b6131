"""`config` names what every reporter has taken into account, in the same breath as what they say with it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.configserv.running import Client, Configserv

Connect = Callable[[], Client]
QUEUE = {"type": "queue", "flavor": "q"}
READY = {"ready": True, "failed": False, "message": "", "components": [], "messages": None, "consumers": None}


class Reporter:
    """A reporter that does as one of ours: it tells which of the snapshots it has asked for."""

    def __init__(self, client: Client, name: str, *feeds: str) -> None:
        self.client, self.name = client, name
        self.seen = dict.fromkeys(feeds, 0)
        self.tell(subject="full")

    def see(self, *feeds: str) -> None:
        """Takes the newest snapshot of these; of one that was not changed there is no other."""
        for feed in feeds:
            self.seen[feed] = self.client.next(feed)["revision"]

    def tell(self, *ready: str, subject: str = "change", **more: Any) -> None:
        body = {"addresses": dict.fromkeys(ready, READY), "removed": [], "seen": self.seen, **more}
        self.client.send("readiness", body, subject=subject, link=self.name)


@pytest.fixture
def reporters(service: Configserv, connect: Connect) -> tuple[Client, Reporter, Reporter]:
    """Somebody who looks, and both reporters, when all is applied; there is a queue `q`."""
    service.write("addresses.json", {"q": QUEUE})
    service.start()
    agent = Reporter(connect(), "ragent", "addresses", "flavors", "placements")
    controller = Reporter(connect(), "storage_controller", "addresses", "flavors")
    looking = connect()
    assert looking.next("status")["config"] == {}
    agent.see("addresses", "flavors")
    agent.tell("q")
    assert looking.phases(q="Pending")["config"] == {}
    controller.see("addresses", "flavors")
    controller.tell("q")
    assert looking.phases(q="Active")["config"] == hashes(service, "addresses.json", "flavors.json")
    return looking, agent, controller


def hashes(service: Configserv, *files: str) -> dict[str, str]:
    return {file: hashlib.sha256((service.config / file).read_bytes()).hexdigest() for file in files}


def test_a_change_is_applied_when_all_have_seen_it(
    service: Configserv, reporters: tuple[Client, Reporter, Reporter]
) -> None:
    looking, agent, controller = reporters
    before = hashes(service, "addresses.json", "flavors.json")
    service.write("addresses.json", {"q": {**QUEUE, "maxSize": 5}})
    assert looking.phases(q="Configuring")["config"] == before
    agent.see("addresses")
    agent.tell()
    controller.tell("q")  # of what it has seen before
    status = looking.find("status", lambda body: body["addresses"][0]["message"].endswith("for storage_controller"))
    assert status["config"] == before
    controller.see("addresses")
    controller.tell(addresses={"q": {**READY, "ready": False, "message": "doing it"}})
    status = looking.find("status", lambda body: body["addresses"][0]["message"] == "doing it")
    assert status["config"] == hashes(service, "addresses.json", "flavors.json")
    assert status["addresses"][0]["phase"] == "Configuring"
    controller.tell("q")
    looking.phases(q="Active")


def test_what_changes_nothing_is_applied_at_once(
    service: Configserv, reporters: tuple[Client, Reporter, Reporter]
) -> None:
    looking = reporters[0]
    for content in ('{ "q": {"flavor": "q", "type": "queue"} }', '{"q": {"type": "queue", "flavor": "q", "x": 1}}'):
        service.write("addresses.json", content)
        now = hashes(service, "addresses.json", "flavors.json")
        status = looking.find("status", lambda body: body["config"] == now)
        assert status["addresses"][0]["phase"] == "Active"
    service.write("addresses.json", '{"q": ')
    assert looking.find("status", lambda body: body["errors"] and body["errors"][0]["line"])["config"] == now


def test_pending_work_of_a_reporter_is_waited_for(
    service: Configserv, reporters: tuple[Client, Reporter, Reporter]
) -> None:
    looking, agent, controller = reporters
    before = hashes(service, "flavors.json")
    service.write("flavors.json", {"q": {"type": "queue", "templateName": "queue-inmemory"}})
    looking.phases(q="Configuring")
    for reporter in (agent, controller):
        reporter.see("flavors")
        reporter.tell("q", pending={"flavors": "a broker is being started"})
    assert looking.phases(q="Active")["config"].items() >= before.items()
    agent.tell()
    controller.tell()
    now = hashes(service, "addresses.json", "flavors.json")
    looking.find("status", lambda body: body["config"] == now)


def test_placements_are_seen_by_the_agent(
    service: Configserv, connect: Connect, reporters: tuple[Client, Reporter, Reporter]
) -> None:
    looking, agent, controller = reporters
    report = {"schema": 1, "brokers": {"b": {"host": "h", "port": 1}}, "addresses": {"q": [{"broker": "b"}]}}
    connect().send("placements", report, subject="full")
    status = looking.phases(q="Configuring")
    assert status["addresses"][0]["message"] == "its last change waits for ragent"
    assert status["config"] == hashes(service, "addresses.json", "flavors.json"), "no file has changed"
    agent.see("placements")
    agent.tell()
    looking.phases(q="Active")
    # brokers.json comes, and goes: until there are other placements, its own stay in force
    service.write("brokers.json", {"mine": {"host": "h", "port": 2, "flavors": ["q"]}})
    looking.phases(q="Configuring")
    agent.see("placements")
    agent.tell()
    status = looking.phases(q="Active")
    assert status["config"] == hashes(service, "addresses.json", "flavors.json", "brokers.json")
    (service.config / "brokers.json").unlink()
    service.write("flavors.json", {})
    agent.see("flavors")
    agent.tell()
    controller.see("flavors")
    controller.tell()
    now = hashes(service, "flavors.json")["flavors.json"]
    status = looking.find("status", lambda body: body["config"]["flavors.json"] == now)
    assert status["config"].keys() == {"addresses.json", "flavors.json", "brokers.json"}
    connect().send("placements", report, subject="full")
    looking.phases(q="Configuring")
    agent.see("placements")
    agent.tell()
    assert looking.phases(q="Active")["config"].keys() == {"addresses.json", "flavors.json"}


@pytest.mark.parametrize("file", ["brokers.json", "addresses.json"])
def test_after_a_restart_nothing_is_known_to_be_applied(
    service: Configserv, connect: Connect, reporters: tuple[Client, Reporter, Reporter], file: str
) -> None:
    """Also not what changed while it was away: the reporters may have what was there before in force."""
    if file == "brokers.json":
        service.write(file, {"mine": {"host": "h", "port": 2, "flavors": ["q"]}})
        reporters[0].phases(q="Configuring")
    service.kill()
    (service.config / file).unlink()
    service.write("addresses.json", {"q": QUEUE})
    service.start()
    looking, agent = connect(), Reporter(connect(), "ragent", "addresses", "flavors", "placements")
    assert looking.next("status")["config"].keys() == ({file} if file == "brokers.json" else set())
    controller = Reporter(connect(), "storage_controller", "addresses", "flavors")
    for reporter in (agent, controller):
        reporter.see("addresses", "flavors")
        reporter.tell("q")
    applied = {"addresses.json", "flavors.json", file}
    assert looking.phases(q="Active")["config"].keys() == applied
