"""Topics move from Artemis to Artemis, and between the embedded broker and an Artemis that is managed by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from proton.utils import BlockingConnection

from enmasse.testing import Suite, running, wait_for
from tests.artemis import ENVIRONMENT, Artemis, running_artemis
from tests.kit.waiting import DEADLINE
from tests.system.seeing import find
from tests.system.test_moving_topics import ADDRESSES, FLAVORS, TOPIC, Load, edit, other, wait_moved
from tests.test_artemis import manage

pytestmark = pytest.mark.slow
EDITS = 3


@pytest.fixture(params=["artemis", "embedded"])
def suite(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Suite]:
    """With brokers of this product."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    addresses = {name: entry for name, entry in ADDRESSES.items() if entry["type"] == "topic"}
    with running(tmp_path / "suite", addresses, FLAVORS, options=("--broker", request.param)) as found:
        found.up()
        found.wait_ready()
        yield found
        assert found.down() == 0


@pytest.mark.parametrize("suite", ["artemis"], indirect=True)
def test_moves_from_artemis_to_artemis_lose_nothing_that_was_acknowledged(suite: Suite) -> None:
    load = Load(suite)
    for _ in range(EDITS):
        flavor = other(suite)
        edit(suite, flavor)
        wait_moved(suite, flavor)
        load.go_on()
    load.all_came()


@pytest.mark.parametrize("suite", ["embedded"], indirect=True)
def test_moves_to_an_artemis_managed_by_hand_and_back_lose_nothing(suite: Suite, tmp_path: Path) -> None:
    with running_artemis(tmp_path / "hand") as hand:
        _make_topic(hand)
        flavor = {"type": "topic", "templateName": "topic-external"}
        suite.edit("flavors.json", {"hand": {**flavor, "templateParameters": {"HOST": hand.host, "PORT": hand.port}}})
        load = Load(suite)
        for _ in range(EDITS):
            edit(suite, "hand")
            suite.wait_ready()
            wait_for("the move", lambda: hand.address in (find(suite, TOPIC) or {"components": ()})["components"])
            load.go_on()
            edit(suite, "second")
            wait_moved(suite, "second")
            load.go_on()
        wait_for("the end of the topic there", lambda: hand.address not in (find(suite, TOPIC) or {})["components"])
        load.all_came()
        suite.edit("flavors.json", {}, remove=["hand"])
        suite.wait_ready()


def _make_topic(hand: Artemis) -> None:
    connection = BlockingConnection(hand.address, timeout=DEADLINE)
    levels = {"autoCreateAddresses": True, "autoDeleteAddresses": False, "autoCreateQueues": True}
    manage(connection, "addAddressSettings", f"{TOPIC}/#", json.dumps(levels))
    manage(connection, "createAddress", TOPIC, "MULTICAST")
    connection.close()
