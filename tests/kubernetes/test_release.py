"""A release with all its services, from Helm and ConfigMaps to messages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Message
from proton.utils import BlockingConnection

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.release import Release, installed

pytestmark = pytest.mark.xdist_group("release")

FLAVORS = {
    "orders": {"type": "queue", "templateName": "queue-persisted", "templateParameters": {"BROKERS": 3}},
    "events": {"type": "topic", "templateName": "topic-inmemory"},
}
MAPS = ("enmasse-addresses", "enmasse-team")
KINDS = [
    {"type": "queue", "flavor": "orders"},
    {"type": "topic", "flavor": "events"},
    {"type": "anycast"},
    {"type": "multicast"},
]


@pytest.fixture(scope="module")
def release(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    with installed(cluster, tmp_path_factory.mktemp("release"), "--set=configuration.addresses={enmasse-team}") as made:
        made.configure("flavors", FLAVORS)
        yield made


def exchange(release: Release, name: str) -> None:
    """A message through an address."""
    connection = BlockingConnection(release.router, timeout=60)
    try:
        receiver = connection.create_receiver(name, credit=1)
        # Without waiting for the outcome: of an anycast address the receiver has to give it first.
        connection.create_sender(name).link.send(Message(body=name, durable=True))
        assert receiver.receive().body == name
        receiver.accept()
    finally:
        connection.close()


def test_a_thousand_addresses_from_two_configmaps(release: Release) -> None:
    for part, config_map in enumerate(MAPS):
        entries = {f"a{n}": KINDS[n % len(KINDS)] for n in range(1000) if n % 2 == part}
        release.configure("addresses", entries, config_map)
    release.wait_active(1000, *MAPS)
    for n in range(8):
        exchange(release, f"a{990 + n}")
