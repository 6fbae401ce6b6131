"""The suite as pods: clients of every kind reach each other through it, and whatever is killed, scaled or upgraded
meanwhile, nothing that was acknowledged is lost."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from enmasse.testing import wait_for
from tests import telemetry
from tests.kit.running import asyncio_test
from tests.kubernetes.node import Node
from tests.kubernetes.on_node.installation import HOSTS, PATIENCE, Device, Installation, Listener, documented
from tests.kubernetes.on_node.load import Load, check_from_outside, check_program
from tests.kubernetes.on_node.sockets import listening, processes
from tests.kubernetes.stranger import answers, listens, shown_at, trusting_all

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(scope="module")
def installed(node: Node) -> Iterator[Installation]:
    node.define_routes()
    made = Installation(node)
    try:
        made.install()
        yield made
    finally:
        made.close()


def test_devices_consumers_and_queues_reach_each_other(installed: Installation) -> None:
    load = Load(installed, "first")
    load.goes_on()
    load.check()


def test_helm_test_takes_a_message_back(installed: Installation) -> None:
    """With AMQP and AMQPS, through a reply address and through a queue."""
    for address in ("", "myqueue"):
        installed.helm("upgrade", f"--set=tests.address={address}")
        assert installed.tested(address) == {"amqp", "amqps", "operators"}


INNER = {"configserv": (5672,), "ragent": (5672,), "broker": (5672,), "router": (5673, 5674)}
"""Component → inner ports."""


def inner(installed: Installation) -> list[tuple[str, str, int]]:
    """Component, address and port of each inner listener that is there: a configserv that stands by has none."""
    pods = [(each, pod["status"]["podIP"]) for each in INNER for pod in installed.pods(each)]
    found = [(component, address, port) for component, address in pods for port in INNER[component]]
    return [each for each in found if listens(*each[1:])]


def shown(installed: Installation) -> dict[tuple[str, str, int], str | None]:
    """The certificate that each inner listener shows."""
    return {place: shown_at(*place[1:]) for place in inner(installed)}


def check_shown(installed: Installation) -> None:
    """Every listener shows the certificate that its Secret has."""
    wanted = {component: pem.strip() for component, pem in installed.identities().items()}
    assert {place: wanted[place[0]] for place in inner(installed)} == shown(installed)


def test_certificates_are_replaced_under_load(installed: Installation) -> None:
    """Open connections stay; new ones have the new certificates."""
    load = Load(installed, "certificates")
    load.goes_on()
    before = shown(installed)
    pods = installed.uids()
    installed.replace_certificates()
    assert not before.items() & shown(installed).items()
    check_shown(installed)
    load.goes_on()
    assert load.undisturbed() and installed.uids() == pods
    for workload in ("deployment/enmasse-ragent", "deployment/enmasse-subserv"):  # which connect anew
        installed.restart(workload)
        load.goes_on()
    load.check()


@asyncio_test
async def test_the_authority_is_replaced_under_load(installed: Installation, tmp_path: Path) -> None:
    """With the commands of the documentation."""
    load = Load(installed, "authority")
    load.goes_on()
    old = trusting_all(installed.certificate("operator", tmp_path / "old"))
    pods = installed.uids()
    brokers = [place[1:] for place in inner(installed) if place[0] == "broker"]
    steps = documented("Replace the authority")
    assert len(steps) == 3
    for number, step in enumerate(steps, 1):
        installed.shell(step, tmp_path)
        installed.wait_mounted()
        check_shown(installed)
        load.goes_on()
        assert load.undisturbed() and installed.uids() == pods
        for address, port in brokers:
            assert await answers(address, port, old) is (number < 3)
    new = trusting_all(installed.certificate("operator", tmp_path / "new"))
    for address, port in brokers:
        assert await answers(address, port, new)
    for workload in installed.workloads():  # all connections anew, by certificates of the new authority
        installed.restart(workload)
    load.goes_on()
    load.check()


def test_one_program_for_every_engine(installed: Installation) -> None:
    """Embedded engines on one machine and those of the field have the same test (tests/system)."""
    check_program(installed)


def test_amqps_from_outside_by_host_name(installed: Installation) -> None:
    check_from_outside(installed)


def test_mqtts_from_outside_by_host_name(installed: Installation) -> None:
    authority: Path = installed.authority()
    device = Device(HOSTS["mqtts"], installed.proxy_port, "mytopic", "outside", authority)
    device.wait_acknowledged(5)
    device.stop()


def test_a_killed_router_loses_nothing(installed: Installation) -> None:
    load = Load(installed, "router")
    load.goes_on()
    installed.kill("router")
    load.goes_on()
    load.check()


def test_a_killed_broker_loses_nothing(installed: Installation) -> None:
    load = Load(installed, "broker")
    load.goes_on()
    installed.kill("broker")
    load.goes_on()
    load.check()


def test_gateways_are_scaled_under_load(installed: Installation) -> None:
    load = Load(installed, "scaled")
    load.goes_on()
    for replicas in (3, 1):
        installed.kubectl("scale", "deployment/enmasse-mqtt-gateway", f"--replicas={replicas}")
        installed.wait_ready("mqtt-gateway", replicas)
        load.goes_on()
    load.check()


def test_an_upgrade_under_load_loses_nothing(installed: Installation) -> None:
    load = Load(installed, "upgrade")
    load.goes_on()

    def pods() -> set[str]:
        return {pod["metadata"]["uid"] for pod in installed.pods("router") + installed.pods("mqtt-gateway")}

    before = pods()
    installed.helm("upgrade", "--set=logLevel=debug")
    wait_for("the pods of before have ended", lambda: not before & pods(), PATIENCE)
    load.goes_on()
    load.check()


def test_every_service_is_restarted_under_load(installed: Installation) -> None:
    """One after the other, Redis and brokers too: nothing is lost, and with QoS 2 nothing comes twice."""
    load = Load(installed, "rolling")
    gateway = installed.address("mqtt-gateway")
    listener = Listener(gateway, 1883, "mytopic/exact", "listener")
    exact = Device(gateway, 1883, "mytopic/exact", "exact", qos=2)
    workloads = installed.workloads()
    assert len(workloads) > 8, workloads  # and brokers
    for workload in workloads:
        installed.restart(workload)
        load.goes_on()
        exact.wait_acknowledged(5)
    load.check()
    exact.stop()
    wait_for("all of QoS 2", lambda: exact.acknowledged <= set(listener.seen), PATIENCE)
    assert len(listener.seen) == len(set(listener.seen))
    listener.stop()


def test_spark_in_one_pod_and_in_pods_of_its_own_loses_and_repeats_nothing(installed: Installation) -> None:
    """Telemetry over MQTT, windows out of it: first by the driver's pod alone, which is killed; then by an executor's
    pod, which is killed; so is the driver, whose pod is replaced at last."""
    installed.add(**telemetry.ADDRESSES)
    pipeline: dict[str, Any] = {
        "enabled": True,
        "window": telemetry.WINDOW,
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
    }
    installed.values["sparkPipeline"] = pipeline
    installed.helm("upgrade")
    device = telemetry.Telemetry(installed.address("mqtt-gateway"), 1883)
    device.windows(3)
    _wait_batch(installed, -1)
    [driver] = installed.pods("spark-pipeline")
    assert listening(driver) == set(), "nothing that others reach"

    def executors_instead() -> None:
        pipeline["executors"] = {"replicas": 1, "cpu": "10m", "memory": "512m", "memoryOverhead": "512m"}
        installed.helm("upgrade")

    for disturb in (
        partial(installed.kill, "spark-pipeline"),
        executors_instead,
        partial(_kill_executor, installed),
        partial(installed.kill, "spark-pipeline"),
        partial(installed.restart, "deployment/enmasse-spark-pipeline"),
    ):
        before = _batches(installed)
        device.windows(20)
        disturb()
        device.windows(3)
        _wait_batch(installed, before)
    _check_executor(installed)
    device.check(installed.url, lambda: None)


def _kill_executor(installed: Installation) -> None:
    """The driver makes another one."""
    before = {pod["metadata"]["uid"] for pod in installed.pods("spark-executor")}
    assert len(before) == 1
    installed.kill_processes("spark-executor")

    def another() -> bool:
        return not before & {pod["metadata"]["uid"] for pod in installed.pods("spark-executor")}

    wait_for("the killed executor's pod is gone", another, PATIENCE)
    installed.wait_ready("spark-executor", 1)


def _check_executor(installed: Installation) -> None:
    """One: those of the drivers before are gone. It has the state, and no spool; only the pods' own ports are open."""
    wait_for("one executor", lambda: len(installed.pods("spark-executor")) == 1, PATIENCE)
    installed.wait_ready("spark-executor", 1)
    [executor], [driver] = installed.pods("spark-executor"), installed.pods("spark-pipeline")
    (owner,) = executor["metadata"]["ownerReferences"]
    assert owner["uid"] == driver["metadata"]["uid"]
    assert (listening(executor), listening(driver)) == ({7079}, {7078, 7079, 7080})
    seen = {name.name for each in processes(executor) for name in (each / "root/var/lib/enmasse/pipeline").glob("*")}
    assert seen == {"checkpoint"}
    assert not (processes(executor)[0] / "root/var/run/secrets/kubernetes.io").exists()


def _batches(installed: Installation) -> int:
    """The number of the last one that is done; -1 before the first."""
    commits = (installed.node.folder / "volumes").glob("**/pipeline/checkpoint/commits/[0-9]*")
    return max((int(file.name) for file in commits), default=-1)


def _wait_batch(installed: Installation, before: int) -> None:
    try:
        wait_for("Spark has done a batch", lambda: _batches(installed) > before, telemetry.PATIENCE)
    except TimeoutError as error:
        raise TimeoutError(f"{error}\n{installed.explain('spark-pipeline', 'spark-executor')}") from None
