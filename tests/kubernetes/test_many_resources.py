"""Ten thousand Address objects in a release, and the end of their namespace while messages are stored."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from proton import LinkException, Message
from proton.utils import BlockingConnection, LinkDetached

from enmasse.kubernetes.api_server import Api, ApiError, ApiServer, connect
from enmasse.testing import wait_for
from services.configserv.resources.object_kinds import ADDRESS
from tests.kit.waiting import DEADLINE
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.release import Release, installed
from tests.kubernetes.resources import define

pytestmark = pytest.mark.slow

COUNT = 10_000
PATIENCE = 600.0
"""Seconds for 10,000 statuses, of which a second has 100, on a loaded machine."""
FLAVORS = {
    "orders": {"type": "queue", "templateName": "queue-persisted", "templateParameters": {"BROKERS": 2}},
    "events": {"type": "topic", "templateName": "topic-inmemory"},
}
KINDS: list[dict[str, Any]] = [
    {"type": "queue", "plan": "orders"},
    {"type": "topic", "plan": "events"},
    {"type": "anycast"},
    {"type": "multicast"},
]


@pytest.fixture(scope="module")
def release(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    define(cluster)
    options = ("--set=customResources.enabled=true", "--set=customResources.definitions=false")
    with installed(cluster, tmp_path_factory.mktemp("release"), *options) as made:
        made.configure("flavors", FLAVORS)
        yield made


class Writes(threading.Thread):
    """Counts the changes of each Address after it was made: each is a written status."""

    def __init__(self, api: Api) -> None:
        super().__init__(daemon=True)
        self.counts: Counter[str] = Counter()
        self.ready: dict[str, float] = {}
        """Name → when its status said that it is ready."""
        self._api = api
        self._version = api.read_all(ADDRESS)[1]

    def run(self) -> None:
        while True:
            try:
                for kind, item in self._api.events(ADDRESS, "", self._version, 55):
                    self._version = str(item["metadata"]["resourceVersion"])
                    if kind == "MODIFIED":
                        name = str(item["metadata"]["name"])
                        self.counts[name] += 1
                        if (item.get("status") or {}).get("isReady"):
                            self.ready.setdefault(name, time.monotonic())
            except ApiError:
                continue


def api(release: Release) -> Api:
    cluster = release.cluster
    server = ApiServer(cluster.url, cluster.token("admin"), str(cluster.authority.file))
    return connect(namespace=release.namespace, server=server)


def test_ten_thousand_objects_are_ready_with_one_write_each(release: Release) -> None:
    access = api(release)
    writes = Writes(access)
    writes.start()

    def make(number: int) -> None:
        body = {"apiVersion": ADDRESS.version, "kind": ADDRESS.name, "metadata": {"name": f"default.a{number}"}}
        access.create(ADDRESS, {**body, "spec": KINDS[number % len(KINDS)]})

    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(COUNT)))
    made, early = time.monotonic(), len(writes.ready)
    connection = None
    name = f"a{COUNT - 4}"  # a queue, and the last one

    def carries() -> bool:
        nonlocal connection
        connection = connection or BlockingConnection(release.router, timeout=DEADLINE)
        return attached(connection, name)

    release.wait("the last queue is served", carries)
    served = time.monotonic()
    wait_for("all have a status that is ready", lambda: len(writes.ready) == COUNT, PATIENCE)
    done = time.monotonic()
    print(
        f"made in {made - began:.1f} s, {early} of them were ready then; served {served - made:.1f} s later, "
        f"all statuses {done - made:.1f} s later",
        file=sys.stderr,
    )
    several = {name: count for name, count in writes.counts.items() if count != 1}
    assert not several


def attached(connection: BlockingConnection, name: str) -> bool:
    try:
        connection.create_sender(name, name=f"try-{time.monotonic()}").close()
    except (LinkDetached, LinkException):
        return False
    return True


def test_a_namespace_ends_while_its_addresses_hold_messages(release: Release) -> None:
    """The whole installation goes, with what brokers have."""
    access = api(release)
    names = [f"kept{number}" for number in range(40)]
    for name in names:
        body = {"apiVersion": ADDRESS.version, "kind": ADDRESS.name, "metadata": {"name": f"default.{name}"}}
        access.create(ADDRESS, {**body, "spec": KINDS[0]})
    connection = BlockingConnection(release.router, timeout=DEADLINE)
    for name in names:
        release.wait(f"{name} is served", partial(attached, connection, name))
        connection.create_sender(name).send(Message(body="x" * 1000, durable=True))
    connection.close()
    found = access.read_all(ADDRESS)[0]
    assert not any(each["metadata"].get("finalizers") for each in found)
    began = time.monotonic()
    release.cluster.kubectl("delete", "namespace", release.namespace, f"--timeout={PATIENCE:.0f}s")
    print(f"{len(found)} objects and the installation: {time.monotonic() - began:.1f} s", file=sys.stderr)
