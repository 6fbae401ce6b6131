"""A release with all its services, from Helm and ConfigMaps to messages."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from proton import Delivery, Message, ProtonException
from proton.utils import BlockingConnection

from enmasse.testing import wait_for
from tests.kit.collector import Collector
from tests.kit.waiting import DEADLINE
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.controlplane import Refused
from tests.kubernetes.release import Release, installed
from tests.router.harness import comes, post

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


SPANS = (("router", "send"), ("broker", "store"), ("broker", "deliver"), ("router", "deliver"))
"""Of a message to a queue and from it."""
TOKEN = "Bearer of-the-collector"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.close()


@pytest.fixture(scope="module")
def release(cluster: Cluster, collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """With a thousand addresses from two ConfigMaps, and traces, whose collector wants a token."""
    traces = {
        "enabled": True,
        "environment": {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_HEADERS": "a=b"},
        "existingSecret": "collector",
    }
    with installed(
        cluster, tmp_path_factory.mktemp("release"),
        "--set=configuration.addresses={enmasse-team}", f"--set-json=traces={json.dumps(traces)}",
        secrets={"collector": {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization={quote(TOKEN)}"}},
    ) as made:  # fmt: skip
        made.configure("flavors", FLAVORS)
        for part, config_map in enumerate(MAPS):
            entries = {f"a{n}": KINDS[n % len(KINDS)] for n in range(1000) if n % 2 == part}
            made.configure("addresses", entries, config_map)
        made.wait_active(1000, *MAPS)
        yield made


def exchange(release: Release, name: str) -> None:
    """A message through an address."""
    connection = BlockingConnection(release.router, timeout=DEADLINE)
    try:
        receiver = connection.create_receiver(name, credit=1)
        # Without waiting for the outcome: of an anycast address the receiver has to give it first.
        connection.create_sender(name).link.send(Message(body=name, durable=True))
        assert receiver.receive().body == name
        receiver.accept()
    finally:
        connection.close()


def test_a_thousand_addresses_from_two_configmaps(release: Release) -> None:
    for n in range(8):
        exchange(release, f"a{990 + n}")


def test_a_trace_goes_to_a_collector_that_wants_a_token(release: Release, collector: Collector) -> None:
    """The token is nowhere but in its Secret."""
    trace = secrets.token_hex(16)
    connection = BlockingConnection(release.router, timeout=DEADLINE)
    try:
        receiver = connection.create_receiver("a0", credit=1)
        properties = {"traceparent": f"00-{trace}-{secrets.token_hex(8)}-01"}
        connection.create_sender("a0").send(Message(body="x", durable=True, properties=properties))
        assert receiver.receive().properties == properties
        receiver.accept()
        receiver.close()  # which sends the last disposition
        spans = [f"{service}: {operation} a0" for service, operation in SPANS]
        assert len(collector.wait(trace, *spans)) == len(spans)
    finally:
        connection.close()
    assert collector.authorizations == {TOKEN}
    for kind in ("configmaps", "statefulsets", "deployments", "pods"):
        assert "of-the-collector" not in release.kubectl("get", kind, "--output=json")


class Traffic(threading.Thread):
    """Sends durable messages to queues, over one connection after the other; knows which were accepted."""

    def __init__(self, release: Release, *names: str) -> None:
        super().__init__(daemon=True)
        self.names, self.accepted = names, {name: set[int]() for name in names}
        self._release, self._ended = release, threading.Event()

    def __enter__(self) -> Traffic:
        """It flows."""
        self.start()
        self.wait_for_more()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        number = 0
        while not self._ended.wait(0.1):
            with contextlib.suppress(ProtonException, OSError, IndexError):  # no router is there
                connection = BlockingConnection(self._release.router, timeout=10)  # limit: then the next connection
                try:
                    senders = {name: connection.create_sender(name) for name in self.names}
                    while not self._ended.wait(0.02):
                        number += 1
                        for name, sender in senders.items():
                            delivery = sender.send(Message(body=number, durable=True))
                            if delivery.remote_state == Delivery.ACCEPTED:
                                self.accepted[name].add(number)
                finally:
                    connection.close()

    def wait_for_more(self) -> None:
        """Waits until some more were accepted, of each queue."""
        before = {name: len(accepted) for name, accepted in self.accepted.items()}
        wait_for("messages flow", lambda: all(len(self.accepted[name]) > before[name] + 5 for name in self.names))

    def missing(self) -> dict[str, set[int]]:
        """What was accepted and does not come: all queues are emptied."""
        connection = BlockingConnection(self._release.router, timeout=DEADLINE)
        try:
            return {name: _not_received(connection, name, set(wanted)) for name, wanted in self.accepted.items()}
        finally:
            connection.close()


def _not_received(connection: BlockingConnection, name: str, wanted: set[int]) -> set[int]:
    receiver = connection.create_receiver(name, credit=100)
    with contextlib.suppress(ProtonException):  # nothing comes any more
        while wanted:
            wanted.discard(receiver.receive(timeout=DEADLINE).body)
            receiver.accept()
    receiver.close()
    return wanted


def test_brokers_of_a_pool_get_another_template_one_at_a_time_and_lose_nothing(release: Release) -> None:
    pool = {f"enmasse-orders-{n}-0" for n in range(3)}
    homes = {part: each["name"] for each in release.addresses(*MAPS) for part in each["components"]}
    queues = [homes[f"orders-{n}"] for n in range(3)]  # one on each broker, of hundreds
    before = {pod.name: pod.uid for pod in release.pods("broker") if pod.name in pool}
    assert before.keys() == pool

    # Whoever drains nodes does not take a second one, as long as one is away.
    first = next(pod for pod in release.pods("broker") if pod.name == "enmasse-orders-0-0")
    first.signal(signal.SIGSTOP)
    wait_for("it counts as away", lambda: disruptions_allowed(release) == 0)
    with pytest.raises(Refused, match="would violate the pod's disruption budget"):
        evict(release, "enmasse-orders-1-0")
    first.signal(signal.SIGCONT)
    wait_for("it is back", lambda: disruptions_allowed(release) == 1)

    with Traffic(release, *queues) as traffic:
        seen = len(release.kubelet.history)
        release.helm("upgrade", "--reuse-values", "--set=broker.podAnnotations.again=yes")

        def replaced() -> bool:
            now = {pod.name: pod for pod in release.pods("broker") if pod.name in pool}
            return now.keys() == pool and all(pod.ready and pod.uid != before[name] for name, pod in now.items())

        release.wait("all have the other template", replaced)
        release.wait_active(1000, *MAPS)
    history = [(what, name) for what, name in release.kubelet.history[seen:] if name in pool]
    assert [what for what, _ in history] == ["ended", "ready"] * 3, history
    assert [name for _, name in history[::2]] == [name for _, name in history[1::2]]
    assert not any(traffic.missing().values())


def disruptions_allowed(release: Release) -> int:
    budget = release.cluster.get("poddisruptionbudget", "enmasse-orders-brokers", namespace=release.namespace)
    return int(budget["status"]["disruptionsAllowed"])


def evict(release: Release, pod: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": release.namespace}}
    path = f"/api/v1/namespaces/{release.namespace}/pods/{pod}/eviction"
    release.cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))


def test_all_pods_deleted_with_force_come_back_with_what_was_accepted(release: Release) -> None:
    before = {pod.uid for pod in release.pods()}
    parts = {pod.component for pod in release.pods()}
    with Traffic(release, "a0", "a4", "a8") as traffic:
        release.kubectl("delete", "pods", "--all", "--grace-period=0", "--force")

        def back() -> bool:
            now = release.pods()
            return {pod.component for pod in now if pod.ready and pod.uid not in before} == parts

        release.wait("others are ready in their place", back)
        release.wait_active(1000, *MAPS)
        traffic.wait_for_more()
    assert before.isdisjoint(pod.uid for pod in release.pods())
    assert not any(traffic.missing().values())


def test_a_release_is_upgraded_while_a_broker_is_scaled_to_zero(release: Release) -> None:
    """What a person has stopped keeps neither the storage controller from being ready nor Helm from ending."""
    release.kubectl("scale", "statefulset/enmasse-orders-1", "--replicas=0")

    def said() -> bool:
        return any("it was scaled to 0: scale it to 1" in each["message"] for each in release.addresses(*MAPS))

    release.wait("its addresses say why", said)
    release.helm("upgrade", "--reuse-values", "--set=storageController.podAnnotations.again=yes")
    release.kubectl("scale", "statefulset/enmasse-orders-1", "--replicas=1")
    release.wait_active(1000, *MAPS)


def test_routers_come_and_are_upgraded_one_at_a_time_and_lose_nothing(release: Release) -> None:
    """A client at each: of an anycast and a multicast address, too."""
    (first,) = release.pods("router")
    release.helm("upgrade", "--reuse-values", "--set=router.replicas=2")
    assert release.pods("router")[0].uid == first.uid, "to scale it restarts nothing"
    between(release, "a2", "a3", "a4", "a5")
    with Traffic(release, "a0", "a4") as traffic:
        before, seen = {pod.uid for pod in release.pods("router")}, len(release.kubelet.history)
        release.helm("upgrade", "--reuse-values", "--set=router.podAnnotations.again=yes")

        def replaced() -> bool:
            now = release.pods("router")
            return len(now) == 2 and all(pod.ready and pod.uid not in before for pod in now)

        release.wait("all are new ones", replaced)
        traffic.wait_for_more()
    history = [what for what, name in release.kubelet.history[seen:] if name.startswith("enmasse-router-")]
    assert history == ["ended", "ready"] * 2
    assert not any(traffic.missing().values())
    release.wait_active(1000, *MAPS)
    between(release, "a2", "a3", "a4", "a5")


def between(release: Release, *names: str) -> None:
    """Exchange messages through the addresses between clients of two routers, in both directions."""
    connections = [BlockingConnection(f"{pod.address}:5672", timeout=DEADLINE) for pod in release.pods("router")]
    assert len(connections) == 2
    for sending, receiving in (connections, reversed(connections)):
        for name in names:
            receiver = receiving.create_receiver(name, credit=1)
            sender = sending.create_sender(name)
            post(sender, Message(body=name, durable=True))
            comes(receiver, f"a message of {name} comes", sending)
            assert receiver.receive().body == name
            receiver.accept()
            receiver.close()
            sender.close()
    for each in connections:
        each.close()


def test_an_address_is_removed_with_all_that_it_holds(release: Release) -> None:
    def phase() -> str | None:
        return next((each["phase"] for each in release.addresses(*MAPS) if each["name"] == "a12"), None)

    wait_for("it is there", lambda: phase() == "Active", DEADLINE)
    connection = BlockingConnection(release.router, timeout=DEADLINE)
    connection.create_sender("a12").send(Message(body="x", durable=True))
    connection.close()
    environment = {**os.environ, "KUBECONFIG": str(release.cluster.kubeconfig)}
    command = [str(Path(sys.executable).with_name("enmasse")), "address", "remove", "a12"]
    place = ["--namespace", release.namespace]
    done = subprocess.run([*command, *place], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done

    wait_for("it waits until it is empty", lambda: phase() == "Terminating", DEADLINE)
    done = subprocess.run([*command, "--force", *place], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done
    wait_for("it is gone", lambda: phase() is None, DEADLINE)
