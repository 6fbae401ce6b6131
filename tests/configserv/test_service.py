"""configserv as its clients see it: a real process, Proton's own client."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import proton
import pytest
from proton.reactor import AtMostOnce
from proton.utils import LinkDetached, SendException

from enmasse import control
from enmasse.process.settings import host_port
from tests.configserv.running import FLAVORS, Client, Configserv, content
from tests.kit.waiting import DEADLINE, until
from tests.kit.waiting import wait_for as wait_until

Connect = Callable[[], Client]
QUEUE = {"type": "queue", "flavor": "q"}
ANYCAST = {"type": "anycast"}


def test_every_feed_begins_with_a_snapshot_also_of_nothing(service: Configserv, connect: Connect) -> None:
    service.start()
    client = connect()
    assert client.connection.conn.remote_container == "configuration-service"
    expected: dict[str, tuple[str | None, Any]] = {
        "addresses/changes": (
            "enmasse.addresses.changes",
            {"schema": 1, "revision": 1, "addresses": {}, "forced": [], "full": True, "removed": []},
        ),
        "flavors": (
            "enmasse.flavors",
            {
                "schema": 1,
                "revision": 1,
                "flavors": {name: {**flavor, "templateParameters": {}} for name, flavor in FLAVORS.items()},
            },
        ),
    }
    for feed, (subject, body) in expected.items():
        message = client.message(feed)
        assert (message.subject, json.loads(message.body)) == (subject, body)
        assert message.content_type == "application/json" and message.durable is False
    message = client.message("status/changes")
    assert message.subject == "enmasse.status.changes"
    empty = {"schema": 1, "config": {}, "addresses": [], "errors": [], "full": True, "removed": []}
    assert json.loads(message.body) == empty
    client.send("placements", {"brokers": {}, "addresses": {}}, subject="full")
    message = client.message("placements/changes")
    assert (message.subject, json.loads(message.body)) == (
        "enmasse.placements.changes",
        {"schema": 1, "revision": 2, "brokers": {}, "addresses": {}, "full": True, "removed": []},
    )


def test_an_edit_is_sent_however_the_file_is_written(service: Configserv, connect: Connect) -> None:
    service.write("addresses.json", {"a": ANYCAST})
    service.start()
    client = connect()
    assert client.next("addresses")["addresses"] == {"a": ANYCAST}
    service.write("addresses.json", {"a": ANYCAST, "b": QUEUE})  # renamed over
    assert client.next("addresses")["addresses"] == {"a": ANYCAST, "b": QUEUE}
    (service.config / "addresses.json").write_text(json.dumps({"c": ANYCAST}))  # written in place
    assert client.next("addresses")["addresses"] == {"c": ANYCAST}


def test_what_could_not_be_saved_is_told_and_saved_later(service: Configserv, connect: Connect) -> None:
    service.start()
    client = connect()
    blocked = service.data / "configuration.new"
    blocked.mkdir()
    service.write("addresses.json", {"a": ANYCAST})
    body = client.find("status", lambda body: body["errors"])
    assert [address["name"] for address in body["addresses"]] == ["a"]
    assert body["errors"][0]["file"] == "configuration.json" and "cannot be saved" in body["errors"][0]["reason"]
    blocked.rmdir()
    client.find("status", lambda body: not body["errors"])
    service.kill()
    (service.config / "addresses.json").unlink()
    service.start()
    assert connect().next("addresses")["addresses"] == {"a": ANYCAST}


def test_a_volume_of_a_config_map(service: Configserv, connect: Connect) -> None:
    """Files are links into `..data`, a link that is exchanged."""

    def publish(version: str, addresses: Any) -> None:
        folder = service.config / f"..{version}"
        folder.mkdir()
        (folder / "addresses.json").write_text(json.dumps(addresses))
        (folder / "flavors.json").write_text(json.dumps(FLAVORS))
        (service.config / "..new").symlink_to(folder.name)
        os.replace(service.config / "..new", service.config / "..data")

    publish("one", {"a": ANYCAST})
    for name in ("addresses.json", "flavors.json"):
        (service.config / name).unlink()
        (service.config / name).symlink_to(f"..data/{name}")
    service.start()
    client = connect()
    assert client.next("addresses")["addresses"] == {"a": ANYCAST}
    publish("two", {"b": ANYCAST})
    assert client.next("addresses")["addresses"] == {"b": ANYCAST}


def test_snapshots_go_on_credit_only_and_the_newest_wins(service: Configserv, connect: Connect) -> None:
    service.start()
    slow, quick = connect(), connect()
    assert slow.next("addresses")["addresses"] == {}
    for number in range(5):
        service.write("addresses.json", {f"a{number}": ANYCAST})
        quick.find("addresses", lambda body: f"a{number}" in body["addresses"])
    assert slow.next("addresses")["addresses"] == {"a4": ANYCAST}
    # and one that is not settled holds back the next
    receiver = slow.connection.create_receiver("addresses/changes", credit=5, name="unsettling")
    assert json.loads(receiver.receive(timeout=DEADLINE).body)["addresses"] == {"a4": ANYCAST}
    for name in ("b", "c"):
        service.write("addresses.json", {name: ANYCAST})
        quick.find("addresses", lambda body: name in body["addresses"])
    assert not receiver.fetcher.has_message
    receiver.accept()
    found = json.loads(receiver.receive(timeout=DEADLINE).body)
    assert (found["addresses"], sorted(found["removed"])) == ({"c": ANYCAST}, ["a4", "b"])


def test_a_receiver_that_wants_settled_messages(service: Configserv, connect: Connect) -> None:
    service.start()
    client, other = connect(), connect()
    receiver = client.connection.create_receiver("addresses/changes", credit=10, options=AtMostOnce())
    assert json.loads(receiver.receive(timeout=DEADLINE).body)["addresses"] == {}
    for number in range(3):
        service.write("addresses.json", {f"a{number}": ANYCAST})
        other.find("addresses", lambda body: f"a{number}" in body["addresses"])
        assert list(json.loads(receiver.receive(timeout=DEADLINE).body)["addresses"]) == [f"a{number}"]


def test_subscribers_are_forgotten_with_their_links(service: Configserv, connect: Connect) -> None:
    service.start()
    connect().next("addresses")

    async def come_and_go() -> None:
        host, port = host_port(service.settings["listen"])
        connection = await control.connect(host, port, container="visitor", timeout=DEADLINE)
        receivers = [connection.receiver("addresses/changes") for _ in range(4)]
        for receiver in receivers:
            await receiver.opened()
        receivers[0].close()
        await until(lambda: service.subscribers("addresses/changes") == 4, "one is detached")
        connection.abort()
        await connection.wait_closed()

    asyncio.run(come_and_go())
    wait_until(lambda: service.subscribers("addresses/changes") == 1, "one subscriber is left")


def test_a_feed_without_its_sources_is_not_sent(service: Configserv, connect: Connect) -> None:
    (service.config / "flavors.json").unlink()
    service.start()
    health = service.health()
    assert health is not None and (health["status"], health["ready"]) == (503, False)
    assert "flavors.json: is missing" in health["detail"]
    client = connect()
    early = {
        feed: client.connection.create_receiver(feed, credit=1)
        for feed in ("addresses/changes", "flavors", "placements/changes")
    }
    status = client.next("status")
    assert [(error["file"], error["reason"]) for error in status["errors"]] == [
        ("flavors.json", "is missing; nothing is served before it can be used")
    ]
    assert status["config"] == {}
    assert not any(receiver.fetcher.has_message for receiver in early.values())
    service.write("flavors.json", {})
    assert content(json.loads(early["flavors"].receive(timeout=DEADLINE).body)) == {"schema": 1, "flavors": {}}
    assert json.loads(early["addresses/changes"].receive(timeout=DEADLINE).body)["addresses"] == {}
    assert not early["placements/changes"].fetcher.has_message
    wait_until(lambda: (service.health() or {}).get("ready"), "ready")


def test_what_is_wrong_is_told_and_what_ran_stays(service: Configserv, connect: Connect) -> None:
    service.write("addresses.json", {"a": ANYCAST, "q": QUEUE})
    service.start()
    client = connect()
    client.ready("ragent")
    client.ready("storage_controller")
    before = client.find("status", lambda body: body["config"])
    service.write("addresses.json", '{"a": ')
    status = client.find("status", lambda body: body["errors"])
    (error,) = status["errors"]
    assert (error["file"], error["entry"], error["line"]) == ("addresses.json", None, 1)
    assert error["reason"].endswith("what applied before stays")
    assert (status["config"], status["addresses"]) == (before["config"], before["addresses"])
    wrong = json.dumps({"a": ANYCAST, "q": {"type": "queue", "flavor": "nix"}, "n": {}}, indent=1)
    service.write("addresses.json", wrong)
    status = client.find("status", lambda body: len(body["errors"]) == 2)
    assert status["config"]["addresses.json"] == hashlib.sha256(wrong.encode()).hexdigest()
    assert [(e["file"], e["entry"], e["field"], e["line"]) for e in status["errors"]] == [
        ("addresses.json", "q", "flavor", 7),
        ("addresses.json", "n", "store_and_forward", 9),
    ]
    assert {a["name"]: (a["phase"], a["flavor"]) for a in status["addresses"]} == {
        "a": ("Pending", None),
        "q": ("Pending", "q"),
        "n": ("Failed", None),
    }
    # the same error later is the same error
    service.write("addresses.json", {"q": {"type": "queue", "flavor": "nix"}, "b": ANYCAST})
    later = client.find("status", lambda body: len(body["errors"]) == 1)
    assert later["errors"][0]["since"] == status["errors"][0]["since"]
    assert client.find("addresses", lambda body: "b" in body["addresses"])["addresses"] == {"q": QUEUE, "b": ANYCAST}
    events = [json.loads(line) for line in service.log.read_text().splitlines()]
    assert {event["entry"] for event in events} == {None, "q", "n"}


def test_a_pipe_in_place_of_a_file_is_not_waited_for(service: Configserv, connect: Connect) -> None:
    (service.config / "addresses.json").unlink()
    os.mkfifo(service.config / "addresses.json")
    service.start()
    (error,) = connect().next("status")["errors"]
    assert error["reason"].startswith("cannot be read: is not a file")


@pytest.mark.parametrize("harm", ["unparsable", "missing", "directory gone", "invalid entry"])
def test_after_sigkill_it_starts_from_the_last_good_configuration(
    service: Configserv, connect: Connect, harm: str
) -> None:
    service.write("addresses.json", {"a": {**QUEUE, "maxSize": 5}})
    service.start()
    first = connect().next("status")
    service.kill()
    if harm == "unparsable":
        service.write("addresses.json", "{")
    elif harm == "missing":
        (service.config / "addresses.json").unlink()
    elif harm == "directory gone":
        service.config.rename(service.config.with_name("elsewhere"))
    else:
        service.write("addresses.json", {"a": 1})
    service.start()
    client = connect()
    assert client.next("addresses")["addresses"] == {"a": {**QUEUE, "maxSize": 5}}
    assert set(client.next("flavors")["flavors"]) == {"q", "t"}
    status = client.next("status")
    assert status["errors"] and status["config"].keys() == first["config"].keys()
    assert (service.health() or {})["ready"]


def test_a_restart_is_no_change_for_auditors_and_an_edit_meanwhile_is(service: Configserv, connect: Connect) -> None:
    def audited() -> list[tuple[str, int]]:
        lines = [json.loads(line) for line in Path(service.settings["audit"]).read_text().splitlines()]
        return [(line["from"], line["added"]) for line in lines if line["event"] == "audit.configuration.changed"]

    service.write("addresses.json", {"a": QUEUE})
    service.start()
    connect().find("addresses", lambda body: "a" in body["addresses"])
    first = audited()
    assert ("addresses.json", 1) in first
    service.kill()
    service.write("addresses.json", {"a": QUEUE, "b": ANYCAST, "c": ANYCAST})
    service.start()
    connect().find("addresses", lambda body: "c" in body["addresses"])
    assert audited() == [*first, ("addresses.json", 2)]


def test_phases_follow_the_reports(service: Configserv, connect: Connect) -> None:
    service.write("addresses.json", {"a": ANYCAST, "q": QUEUE})
    service.start()
    client, agent, controller = connect(), connect(), connect()
    client.phases(a="Pending", q="Pending")
    agent.ready("ragent", "a", "q")
    client.phases(a="Active", q="Pending")
    controller.ready("storage_controller", "q", messages=7)
    status = client.phases(a="Active", q="Active")
    assert status["addresses"][1] == {
        "name": "q",
        "type": "queue",
        "flavor": "q",
        "ready": True,
        "phase": "Active",
        "message": "",
        "components": ["ragent", "storage_controller"],
        "messages": 7,
        "consumers": None,
    }
    controller.ready("storage_controller", "q", subject="change", failed=True, message="no space")
    assert client.phases(a="Active", q="Failed")["addresses"][1]["message"] == "no space"
    agent.close()  # its report goes with its link
    client.phases(a="Pending", q="Failed")
    service.write("addresses.json", {"a": ANYCAST})
    client.phases(a="Pending", q="Terminating")
    controller.send("readiness", {"removed": ["q"]}, subject="change", link="storage_controller")
    client.phases(a="Pending")


def test_the_changes_of_the_status_add_up_to_the_status(service: Configserv, connect: Connect) -> None:
    service.start()
    client, reporter = connect(), connect()
    first = client.next("status/changes")
    assert first["full"] and first["addresses"] == [] and first["removed"] == []
    seen: dict[str, Any] = {}

    def follow(**phases: str) -> dict[str, Any]:
        def take(body: dict[str, Any]) -> bool:
            assert not body["full"]
            seen.update((entry["name"], entry) for entry in body["addresses"])
            for name in body["removed"]:
                del seen[name]
            return {name: entry["phase"] for name, entry in seen.items()} == phases

        return client.find("status/changes", take)

    service.write("addresses.json", {"a": ANYCAST, "b": ANYCAST})
    follow(a="Pending", b="Pending")
    reporter.ready("ragent", "a", "b")
    follow(a="Active", b="Active")
    service.write("addresses.json", {"a": ANYCAST, "c": {"type": "nothing"}})
    follow(a="Active", b="Terminating", c="Failed")
    reporter.send("readiness", {"addresses": {}, "removed": ["b"]}, subject="change", link="ragent")
    last = follow(a="Active", c="Failed")
    status = connect().next("status")
    assert [seen[entry["name"]] for entry in status["addresses"]] == status["addresses"]
    assert len(seen) == len(status["addresses"])
    assert (last["config"], last["errors"]) == (status["config"], status["errors"])


def test_one_report_a_role_whichever_instance_leads(service: Configserv, connect: Connect) -> None:
    """Another instance takes over with a full report; until then the one before it is in force."""
    service.write("addresses.json", {"a": ANYCAST, "b": ANYCAST})
    service.start()
    first, second, client = connect(), connect(), connect()
    ready = {"ready": True}

    def report(by: Client, subject: str, instance: str, **body: Any) -> None:
        by.send("readiness", {"instance": instance, **body}, subject=subject, link="ragent")

    report(first, "full", "ragent-0", addresses={"a": ready, "b": ready})
    client.phases(a="Active", b="Active")
    with pytest.raises(SendException):
        report(second, "change", "ragent-1", removed=["a"])
    report(second, "full", "ragent-1", addresses={"b": ready})
    client.phases(a="Pending", b="Active")
    report(second, "change", "ragent-1", addresses={"a": ready})
    client.phases(a="Active", b="Active")


def test_the_newest_link_of_a_reporter_speaks_for_it(service: Configserv, connect: Connect) -> None:
    service.write("addresses.json", {"a": ANYCAST})
    service.start()
    client, old, new = connect(), connect(), connect()
    old.ready("ragent", "a")
    client.phases(a="Active")
    new.ready("ragent", "a", ready=False)
    client.phases(a="Configuring")
    with pytest.raises((SendException, LinkDetached)):
        old.ready("ragent", "a", subject="change")
    old.close()
    new.ready("ragent", "a", subject="change")
    client.phases(a="Active")


def test_placements_come_from_reports_or_from_brokers_json(service: Configserv, connect: Connect) -> None:
    service.write("addresses.json", {"q": QUEUE})
    service.start()
    client, controller = connect(), connect()
    report = {
        "schema": 1,
        "brokers": {"b": {"host": "h", "port": 1}},
        "addresses": {"q": [{"broker": "b", "state": "draining", "type": "queue"}]},
    }
    controller.send("placements", report, subject="full")
    assert content(client.next("placements")) == report
    controller.close()
    service.write("brokers.json", {"mine": {"host": "h", "port": 2, "flavors": ["q"]}})
    expected = {
        "schema": 1,
        "brokers": {"mine": {"host": "h", "port": 2, "byHand": True}},
        "addresses": {"q": [{"broker": "mine", "state": "active", "type": "queue"}]},
    }
    assert content(client.next("placements")) == expected
    controller = connect()
    with pytest.raises(SendException):
        controller.send("placements", report, subject="full")
    service.write("addresses.json", {"q": QUEUE, "r": QUEUE})
    assert set(client.next("placements")["addresses"]) == {"q", "r"}
    (service.config / "brokers.json").unlink()
    # the link is detached, so that the report is made again
    wait_until(lambda: _detached(controller), "the link is detached")
    connect().send("placements", report, subject="full", link="again")
    assert content(client.find("placements", lambda body: "b" in body["brokers"])) == report


def _detached(client: Client) -> bool:
    sender = client._senders["placements", "me"]
    try:
        client.connection.wait(lambda: sender.link.state & proton.Endpoint.REMOTE_CLOSED, timeout=0.1)
    except (LinkDetached, proton.Timeout) as error:
        return isinstance(error, LinkDetached)
    return True


def test_one_link_a_role_reports_placements(service: Configserv, connect: Connect) -> None:
    """As with readiness: the newest link of a role takes over from the one before."""
    service.write("addresses.json", {"q": QUEUE})
    service.start()
    client, first, second = connect(), connect(), connect()

    def report(by: Client, instance: str) -> None:
        brokers = {instance: {"host": "h", "port": 1}}
        by.send("placements", {"instance": instance, "brokers": brokers, "addresses": {}}, subject="full")

    report(first, "sc-0")
    assert client.next("placements")["brokers"].keys() == {"sc-0"}
    report(second, "sc-1")
    found = client.next("placements")
    assert found["brokers"].keys() == {"sc-1"}
    assert "instance" not in found
    with pytest.raises((SendException, LinkDetached)):
        report(first, "sc-0")


def test_forced_addresses_are_remembered_until_they_are_gone(service: Configserv, connect: Connect) -> None:
    service.write("addresses.json", {"q": QUEUE, "r": QUEUE})
    service.start()
    client, agent, controller = connect(), connect(), connect()
    agent.ready("ragent", "q", "r")
    controller.ready("storage_controller", "q", "r")
    client.phases(q="Active", r="Active")
    client.send("force", {"addresses": ["q"]})
    assert client.find("addresses", lambda body: body["forced"])["forced"] == ["q"]
    service.kill()
    service.start()
    client, agent, controller = connect(), connect(), connect()
    assert client.next("addresses")["forced"] == ["q"]
    service.write("addresses.json", {"r": QUEUE})
    assert client.next("addresses")["forced"] == ["q"]
    agent.ready("ragent", "r")
    controller.ready("storage_controller", "r", "q")
    client.phases(q="Terminating", r="Active")
    controller.ready("storage_controller", "r")
    client.phases(r="Active")
    assert client.next("addresses")["forced"] == []


@pytest.mark.parametrize(
    ("target", "subject", "body", "expected"),
    [
        ("readiness", "full", "{", "truncated"),
        ("readiness", "full", '{"addresses": {"a": {"ready": "yes"}}}', "Expected `bool`"),
        ("readiness", "full", "[]", "Expected `object`"),
        ("readiness", "full", '{"addresses": {"a": {"ready": true, "messages": 1e30}}}', "Expected `int"),
        ("readiness", "full", '{"addresses": {"\\ud800": {"ready": true}}}', "surrogate"),
        ("readiness", "other", "{}", "the subject must be full or change, not 'other'"),
        ("readiness", None, "{}", "the subject must be"),
        ("readiness", "full", {"a": 1}, "the body must be JSON text"),
        ("readiness", "full", None, "the body must be JSON text"),
        ("readiness", "full", b"\xff\xfe", "malformed"),
        ("placements", "full", '{"addresses": {"a": [{"state": "active"}]}}', "required field `broker`"),
        ("placements", "full", '{"addresses": {"a": [{"broker": "b", "state": "on"}]}}', "Invalid enum value"),
        ("placements", "full", '{"schema": 2}', "Invalid enum value 2"),
        ("force", None, '{"addresses": "a"}', "Expected `array`"),
    ],
)
def test_reports_that_make_no_sense_are_rejected_with_the_reason(
    service: Configserv, connect: Connect, target: str, subject: str | None, body: Any, expected: str
) -> None:
    service.start()
    client = connect()
    with pytest.raises(SendException):
        client.send(target, proton.Message(body=body), subject=subject)
    (event,) = [json.loads(line) for line in service.log.read_text().splitlines()]
    assert event["event"] == "configserv.report.rejected" and expected in event["reason"]
    client.send("force", {"addresses": []}, link="good")


def test_links_to_nowhere_are_refused(service: Configserv, connect: Connect) -> None:
    service.start()
    client = connect()
    for source in ("nix", "", "readiness"):
        with pytest.raises(LinkDetached, match="no feed"):
            client.connection.create_receiver(source, name=f"r-{source}")
    for target in ("nix", "addresses", None):
        with pytest.raises(LinkDetached, match="no target"):
            client.connection.create_sender(target, name=f"s-{target}")
    assert client.next("addresses")["addresses"] == {}


def test_ten_thousand_addresses(service: Configserv, connect: Connect) -> None:
    kinds: list[dict[str, Any]] = [QUEUE, {"type": "topic", "flavor": "t"}, ANYCAST, {"type": "multicast"}]
    many = {f"address-{number}": kinds[number % 4] for number in range(10_000)}
    service.write("addresses.json", many)
    service.start()
    client, agent = connect(), connect()
    assert client.next("addresses")["addresses"] == many
    agent.ready("ragent", *many)
    status = client.find("status", lambda body: any(a["ready"] for a in body["addresses"]))
    assert [a["name"] for a in status["addresses"]] == list(many)
    assert sum(a["ready"] for a in status["addresses"]) == 5000


def test_stops_and_starts_that_cannot_be(service: Configserv, tmp_path: Path) -> None:
    def ends_with(expected: str) -> None:
        process = service.run()
        assert process.wait(DEADLINE) == 1
        assert expected in service.log.read_text()

    (tmp_path / "other").mkdir()
    other = Configserv(tmp_path / "other").start()
    port = other.settings["listen"]
    service.settings["listen"] = port
    service.file.write_text(json.dumps(service.settings))
    ends_with(f"cannot listen on {port}: the port is in use by another process; choose another one in the setting")
    assert other.stop() == 0
    service.data.mkdir(exist_ok=True)
    kept = service.data / "configuration.json"
    kept.write_text('{"schema": 2}')
    ends_with(f"{kept}: written by a newer version (schema 2, this one reads 1); upgrade")
    kept.unlink()
    service.data.rmdir()
    service.data.write_text("")
    ends_with("'data_dir'")
    service.data.unlink()
