"""This version on the data, stores, spools and configuration that each release wrote, killed while it ran."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.spark.spool.segment import read_spool
from enmasse.spark.spool.spool import SpoolWriter
from enmasse.testing import Suite, wait_for
from tests.upgrade import content
from tests.upgrade.archive import FOLDER, unpack
from tests.upgrade.content import bodies, enmasse

SPACE = "later"
IN_SPACE = ("--space", SPACE)
NOT_READY = ("address", "list", "--not-ready", "--json", *IN_SPACE)
ARCHIVES = sorted(FOLDER.glob("*.tar.xz"))


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda archive: archive.name.removesuffix(".tar.xz"))
def suite(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """A running suite on a copy of what the release wrote, to which an address space with equal names was added."""
    found = unpack(request.param, tmp_path_factory.mktemp("upgrade"))
    try:
        found.up()
        enmasse(found, "space", "add", SPACE)
        for name in (content.QUEUE, content.TOPIC):
            entry = content.ADDRESSES[name]
            enmasse(found, "address", "add", name, "--type", entry["type"], "--flavor", entry["flavor"], *IN_SPACE)
        wait_for("its addresses", lambda: not json.loads(enmasse(found, *NOT_READY))["addresses"])
        yield found
    finally:
        found.down()


def test_there_is_an_archive() -> None:
    assert ARCHIVES


def test_the_configuration_is_in_force(suite: Suite) -> None:
    status = suite.status()
    assert status["ready"] and status["errors"] == []
    found = {a["name"]: a["type"] for a in status["addresses"]}
    assert {name: entry["type"] for name, entry in content.ADDRESSES.items()}.items() <= found.items()


def test_nothing_stored_is_in_a_space_that_is_added(suite: Suite) -> None:
    assert enmasse(suite, "receive", content.QUEUE, "--browse", *IN_SPACE) == ""
    assert json.loads(enmasse(suite, "retained", "list", "--json", *IN_SPACE))["retained"] == []
    assert json.loads(enmasse(suite, "subscription", "list", "--json", *IN_SPACE))["subscriptions"] == []
    assert json.loads(enmasse(suite, "mqtt", "clients", "--all", "--json", *IN_SPACE))["clients"] == []


def test_queues_have_their_messages(suite: Suite) -> None:
    lines = enmasse(suite, "receive", content.QUEUE, "--count", str(len(content.MESSAGES) + 1), "--json")
    assert bodies(lines) == [*content.MESSAGES, "last"]
    assert json.loads(lines.splitlines()[-1])["properties"] == content.PROPERTIES


def test_durable_subscriptions_have_their_messages(suite: Suite) -> None:
    arguments = [*content.SUBSCRIPTION, "--count", str(len(content.NEWS)), "--json"]
    assert bodies(enmasse(suite, "receive", content.TOPIC, *arguments)) == content.NEWS


def test_sessions_have_their_messages_and_the_will_of_the_lost_client(suite: Suite) -> None:
    retained = [body for topic, body in content.RETAINED.items() if topic.count("/") == 1]
    expected = [*(body for body, _ in content.WAITING.values()), *retained, content.WILL[1]]
    found = content.session(suite, "--count", str(len(expected)), "--timeout", "120")
    assert sorted(found) == sorted(expected)


def test_retained_messages_are_kept(suite: Suite) -> None:
    def topics() -> set[str]:
        return {one["topic"] for one in json.loads(enmasse(suite, "retained", "list", "--json"))["retained"]}

    wait_for("the retained messages", lambda: topics() >= content.RETAINED.keys())
    for topic, body in content.RETAINED.items():
        assert enmasse(suite, "subscribe", topic, "--count", "1") == f"{body}\n"


def test_a_spool_has_its_records(suite: Suite) -> None:
    folder: Path = suite.folder / "spool"
    writer = SpoolWriter(folder)
    assert writer.count == len(content.SPOOLED)
    assert [record.message for record in read_spool(folder, 0, writer.count)] == content.SPOOLED
    writer.close()
