"""A release whose processes have certificates. Its pods have a network without policies: TLS alone keeps others out."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.identity.processes.process_certificates import Certificate
from tests.certificates import Authority
from tests.kit.running import asyncio_test
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.release import Release, installed
from tests.kubernetes.running import status
from tests.kubernetes.stranger import answers, listens, trusting_all
from tests.kubernetes.test_release import Traffic

FLAVORS = {"orders": {"type": "queue", "templateName": "queue-persisted", "templateParameters": {"BROKERS": 2}}}
ADDRESSES = {**{f"q{n}": {"type": "queue", "flavor": "orders"} for n in range(4)}, "a": {"type": "anycast"}}
INNER = {"configserv": (5672,), "ragent": (5672,), "broker": (5672,), "router": (5673, 5674)}
"""Component → inner ports."""


def use(release: Release) -> None:
    release.configure("flavors", FLAVORS)
    release.configure("addresses", ADDRESSES)
    release.wait_active(len(ADDRESSES))


@pytest.fixture(scope="module")
def release(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """Installed without certificates, as an earlier version was, and upgraded while messages flow."""
    with installed(cluster, tmp_path_factory.mktemp("release"), "--set=identity.enabled=false") as made:
        use(made)
        before = {pod.uid for pod in made.pods("broker")}
        with Traffic(made, "q0", "q1") as traffic:
            made.helm("upgrade", "--reuse-values", "--set=identity.enabled=true")
            made.wait("brokers are replaced", lambda: before.isdisjoint(pod.uid for pod in made.pods("broker")))
            made.wait_active(len(ADDRESSES))
            traffic.wait_for_more()
        assert not any(traffic.missing().values())
        yield made


def mounted(release: Release, component: str, folder: Path) -> Path:
    """The certificate of a component, as in its pods."""
    secret = release.cluster.get("secret", f"enmasse-{component}-identity", namespace=release.namespace)
    folder.mkdir(exist_ok=True)
    for key, value in secret["data"].items():
        (folder / key).write_bytes(base64.b64decode(value))
    return folder


def places(release: Release) -> list[tuple[str, str, int]]:
    """Component, address and port of each inner listener that is there: one that stands by does not listen."""
    pods = [(pod.component, pod.address) for pod in release.pods() if pod.component in INNER and pod.ready]
    found = [(component, address, port) for component, address in pods for port in INNER[component]]
    return [each for each in found if listens(*each[1:])]


@asyncio_test
async def test_other_peers_are_refused_at_every_inner_port(release: Release, tmp_path: Path) -> None:
    right = mounted(release, "router", tmp_path / "router")
    forged = Authority(tmp_path / "ca").issue_folder(tmp_path / "forged", "router/enmasse-router")
    found = places(release)
    assert {component for component, _, _ in found} == set(INNER)
    for component, address, port in found:
        assert not await answers(address, port, None), (component, port)
        assert not await answers(address, port, trusting_all()), (component, port)
        assert not await answers(address, port, trusting_all(forged)), (component, port)
        expected = component in ("broker", "configserv")  # the agent wants the container-id of a router, too
        assert await answers(address, port, trusting_all(right)) is expected, (component, port)


@asyncio_test
async def test_a_listener_proves_itself_by_the_name_of_its_service(release: Release, tmp_path: Path) -> None:
    own = Certificate(mounted(release, "operator", tmp_path / "operator"))
    [router] = release.pods("router")
    for host, fits in (("enmasse-router-pods", True), ("enmasse-configserv", False)):
        try:
            _, writer = await asyncio.open_connection(router.address, 5673, ssl=own.tls(), server_hostname=host)
            writer.close()
            assert fits
        except ssl.SSLError:
            assert not fits


def test_certificates_are_replaced_while_messages_flow(release: Release, tmp_path: Path) -> None:
    """The Secrets have new certificates, and one process of each kind connects anew: nothing is lost."""
    before = mounted(release, "router", tmp_path / "before")
    with Traffic(release, "q0", "q1", "q2", "q3") as traffic:
        pods = {pod.uid for pod in release.pods()}
        secrets = [f"secret/enmasse-{each}-identity" for each in (*INNER, "storage-controller", "operator")]
        release.kubectl("delete", *secrets)
        release.helm("upgrade", "--reuse-values")
        after = mounted(release, "router", tmp_path / "after")
        assert (after / "tls.crt").read_bytes() != (before / "tls.crt").read_bytes()
        assert (after / "ca.crt").read_bytes() == (before / "ca.crt").read_bytes()

        def shown() -> bool:
            return all(shows(release, *place, tmp_path) for place in places(release))

        release.wait("listeners show the new ones", shown)
        assert {pod.uid for pod in release.pods()} == pods, "no pod was restarted for it"
        traffic.wait_for_more()
        # Whoever dials uses the new ones too, and is accepted.
        for component in ("ragent", "storage-controller"):
            release.kubectl("rollout", "restart", f"deployment/enmasse-{component}")
        release.wait("the agent is another one", lambda: pods.isdisjoint(pod.uid for pod in release.pods("ragent")))
        release.wait("and ready", lambda: all(pod.ready for pod in release.pods("ragent")))
        release.wait_active(len(ADDRESSES))
        traffic.wait_for_more()
    assert status(release.cluster, release.namespace, "enmasse-addresses")
    assert not any(traffic.missing().values())


def shows(release: Release, component: str, address: str, port: int, folder: Path) -> bool:
    """Return whether a listener shows the certificate that its Secret has now."""
    wanted = (mounted(release, component, folder / component) / "tls.crt").read_text()
    with socket.create_connection((address, port), 10) as plain:
        own = mounted(release, "operator", folder / "operator")
        with trusting_all(own).wrap_socket(plain) as secure:
            found = secure.getpeercert(binary_form=True)
    return found is not None and ssl.DER_cert_to_PEM_cert(found).split() == wanted.split()
