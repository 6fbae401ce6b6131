"""The Kubernetes driver of the storage controller, against a real API server, with the rights that the chart gives."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from enmasse.kubernetes.api_server import connect
from enmasse.kubernetes.warning_events import WarningEvents
from enmasse.model.flavors import Flavor, Parameters
from enmasse.testing import free_port, wait_for
from services.storage_controller import policies
from services.storage_controller.drivers import DriverError, KubernetesDriver, KubernetesSettings, RunningBroker
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.running import config_map, grant, pods

TEMPLATE = {"image": "localhost/broker:1", "storageSize": "2Gi", "fsGroup": 0}
OWN = ("statefulset", "service", "configmap")
KEPT = Flavor(type="queue", template_name="queue-persisted")
IN_MEMORY = Flavor(type="queue", template_name="queue-inmemory")
NAME = "enmasse-small-0"


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    """With what the release makes for the storage controller, its Role first of all."""
    made = cluster.namespace()
    grant(cluster, made, "storage-controller", "ConfigMap")
    return made


class House:
    """Drivers of a namespace, as the controller uses them."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster, self.namespace, self.folder = cluster, namespace, folder
        self._patch = monkeypatch

    @contextlib.asynccontextmanager
    async def driver(self, template: dict[str, Any] | None = None, **more: Any) -> AsyncIterator[KubernetesDriver]:
        file = self.folder / "templates.json"
        file.write_text(json.dumps({"default": template or TEMPLATE}))
        user = f"{self.namespace}/enmasse-storage-controller"
        kubeconfig = str(self.cluster.kubeconfig_of(user))
        self._patch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", kubeconfig)
        api = connect(namespace=self.namespace)
        found = KubernetesDriver(
            KubernetesSettings(namespace=self.namespace, templates=str(file), **more),
            api,
            WarningEvents(api, "test", "test"),
        )
        await found.start()
        try:
            yield found
        finally:
            found.close()

    async def kubectl(self, *arguments: str) -> str:
        return await asyncio.to_thread(self.cluster.kubectl, *arguments, "--namespace", self.namespace)

    async def get(self, kind: str, name: str = NAME) -> dict[str, Any]:
        found: dict[str, Any] = await asyncio.to_thread(self.cluster.get, kind, name, namespace=self.namespace)
        return found

    async def names(self, kind: str) -> list[str]:
        found = await asyncio.to_thread(self.cluster.get, kind, namespace=self.namespace)
        return [each["metadata"]["name"] for each in found]

    async def warnings(self) -> set[str]:
        found = await asyncio.to_thread(self.cluster.get, "events", namespace=self.namespace)
        return {each["reason"] for each in found if each["source"].get("component") == "test"}


@pytest.fixture
def house(cluster: Cluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    os.environ.pop("KUBECONFIG", None)
    return House(cluster, namespace, tmp_path, monkeypatch)


def manifest(driver: KubernetesDriver, name: str = "small-0", flavor: Flavor = KEPT) -> Any:
    return driver.manifest(policies.desired_broker(name, name.rpartition("-")[0], flavor))


async def seen(driver: KubernetesDriver, what: Callable[[RunningBroker], Any], name: str = "small-0") -> RunningBroker:
    async def look() -> RunningBroker | None:
        running = (await driver.running()).get(name)
        return running if running is not None and what(running) else None

    found: RunningBroker = await until(look, name, DEADLINE)
    return found


async def made(driver: KubernetesDriver) -> Any:
    """A broker that is ready; its manifest."""
    mine = manifest(driver)
    await driver.apply("small-0", mine)
    await seen(driver, lambda b: b.ready)
    return mine


def test_a_broker_is_made_reconfigured_and_deleted(house: House) -> None:
    @asyncio_test
    async def run() -> None:
        async with house.driver() as driver:
            assert await driver.applied() == ({}, {})
            await driver.apply("small-0", manifest(driver))
            first = await seen(driver, lambda b: b.ready)
            assert (first.host, first.port) == (f"{NAME}.{house.namespace}.svc", 5672) and first.is_current
            stateful = await house.get("statefulset")
            (owner,) = stateful["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"]) == ("ConfigMap", "enmasse-storage-controller")
            claim = await house.get("persistentvolumeclaim", f"data-{NAME}-0")
            assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi"
            settings = json.loads((await house.get("configmap"))["data"]["settings.json"])
            assert settings["data_dir"] == "/var/lib/enmasse/data" and settings["listen"] == "0.0.0.0:5672"
            assert await driver.altered() == []

            larger = manifest(driver, flavor=Flavor(**{**KEPT_FIELDS, "template_parameters": Parameters(memory=2**28)}))
            await driver.apply("small-0", larger)
            again = await seen(driver, lambda b: b.ready and b.is_current and b.run != first.run)
            assert again.run != first.run
            assert await driver.altered() == []

        async with house.driver() as driver:  # another process: it reads what there is, and nothing is to be done
            assert await driver.applied() == ({"small-0": larger}, {})
            assert await driver.altered() == []
            await driver.apply("small-1", manifest(driver, "small-1", IN_MEMORY))
            await seen(driver, lambda b: b.ready, "small-1")
            assert await house.names("persistentvolumeclaims") == [f"data-{NAME}-0"]
            await driver.delete("small-0")
            await until_names(house, "persistentvolumeclaims", [])
            assert await house.names("statefulsets") == ["enmasse-small-1"]
            assert await house.names("poddisruptionbudgets") == ["enmasse-small-brokers"]
            await driver.delete("small-1")
            assert await house.names("poddisruptionbudgets") == []
            await driver.delete("small-1")

    run()


KEPT_FIELDS: dict[str, Any] = {"type": "queue", "template_name": "queue-persisted"}


async def until_names(house: House, kind: str, wanted: list[str]) -> None:
    async def there() -> bool:
        return await house.names(kind) == wanted

    await until(there, f"{kind}: {wanted}")


def test_what_people_change(house: House) -> None:
    @asyncio_test
    async def run() -> None:
        async with house.driver() as driver:
            mine = await made(driver)
            # A number of pods is theirs.
            await house.kubectl("scale", f"statefulset/{NAME}", "--replicas=0")
            assert "scaled to 0" in (await seen(driver, lambda b: not b.ready and not b.run)).detail
            assert await driver.altered() == []
            await driver.apply("small-0", mine)
            assert (await house.get("statefulset"))["spec"]["replicas"] == 0
            await house.kubectl("scale", f"statefulset/{NAME}", "--replicas=2")
            assert "only its first pod" in (await seen(driver, lambda b: b.ready and "2" in b.detail)).detail
            await house.kubectl("scale", f"statefulset/{NAME}", "--replicas=1")
            await seen(driver, lambda b: b.ready and not b.detail)
            # Fields of the driver are put back; what is not its own stays.
            await house.kubectl("annotate", f"statefulset/{NAME}", "mine=yes")
            await house.kubectl("set", "image", f"statefulset/{NAME}", "broker=localhost/other:1")
            await house.kubectl("delete", f"service/{NAME}")
            assert await became_altered(driver) == ["small-0"]
            await driver.apply("small-0", mine)
            stateful = await house.get("statefulset")
            assert stateful["spec"]["template"]["spec"]["containers"][0]["image"] == TEMPLATE["image"]
            assert stateful["metadata"]["annotations"]["mine"] == "yes"
            assert (await house.get("service"))["spec"]["clusterIP"] == "None"
            assert await driver.altered() == []
            # Another controller that applies the same field is reported, and not overruled.
            other = {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "metadata": {"name": NAME},
                "spec": {"updateStrategy": {"type": "OnDelete"}},
            }
            file = house.folder / "other.json"
            file.write_text(json.dumps(other))
            await house.kubectl(
                "apply",
                "--server-side",
                "--force-conflicts",
                "--field-manager=flux",
                "--validate=false",
                "-f",
                str(file),
            )
            assert await became_altered(driver) == ["small-0"]
            with pytest.raises(DriverError, match=r"flux applies .*updateStrategy"):
                await driver.apply("small-0", mine)
            assert (await house.get("statefulset"))["spec"]["updateStrategy"]["type"] == "OnDelete"
            wanted = {"ScaledToZero", "ScaledAboveOne", "PutBack", "Conflict"}

            async def warned() -> bool:
                return wanted <= await house.warnings()

            await until(warned, f"events: {wanted}")

    run()


async def became_altered(driver: KubernetesDriver) -> list[str]:
    found: list[str] = await until(driver.altered, "something is altered")
    return found


def test_somebody_elses_objects_are_left_alone(house: House) -> None:
    @asyncio_test
    async def run() -> None:
        await house.kubectl("create", "service", "clusterip", NAME, "--tcp=1:1")
        await house.kubectl("create", "configmap", "enmasse-large-0", "--from-literal=a=b")
        async with house.driver() as driver:
            with pytest.raises(DriverError, match=f"service/{NAME} does not belong to this release"):
                await driver.apply("small-0", manifest(driver))
            assert await house.names("statefulsets") == []
            await driver.delete("small-0")
            await driver.delete("large-0")
            assert NAME in await house.names("services") and "enmasse-large-0" in await house.names("configmaps")

    run()


def test_a_volume_that_is_left_is_a_broker_that_holds_messages(house: House) -> None:
    @asyncio_test
    async def run() -> None:
        async with house.driver() as driver:
            mine = await made(driver)
        for kind in OWN:
            await house.kubectl("delete", kind, NAME)
        async with house.driver() as driver:
            assert await driver.applied() == ({"small-0": mine}, {})
            assert await driver.altered() == ["small-0"]
            await driver.apply("small-0", mine)
            await seen(driver, lambda b: b.ready)
        async with house.driver(engine="artemis") as driver:  # of another engine: nothing is taken for empty
            found, damaged = await driver.applied()
            assert found == {} and "it is of engine embedded" in damaged["small-0"]
            with pytest.raises(DriverError, match="it is of engine embedded"):
                await driver.apply("small-0", manifest(driver))
            image = (await house.get("statefulset"))["spec"]["template"]["spec"]["containers"][0]["image"]
            assert image == TEMPLATE["image"]
            await house.kubectl("delete", "statefulset", NAME)
            await until_names(house, "statefulsets", [])
        async with house.driver(engine="artemis") as driver:  # nor is its volume
            with pytest.raises(DriverError, match="it is of engine embedded"):
                await driver.apply("small-0", manifest(driver))
            assert await house.names("statefulsets") == []

    run()


def test_artemis_and_the_release_that_goes(house: House) -> None:
    @asyncio_test
    async def run() -> None:
        async with house.driver(engine="artemis") as driver:
            await made(driver)
            container = (await house.get("statefulset"))["spec"]["template"]["spec"]["containers"][0]
            assert container["command"][0] == "java"
            assert "<core " in (await house.get("configmap"))["data"]["broker.xml"]
            assert await driver.altered() == []
        await house.kubectl("delete", "configmap", "enmasse-storage-controller")
        await until_names(house, "statefulsets", [])
        assert await house.names("persistentvolumeclaims") == [f"data-{NAME}-0"]
        async with house.driver(engine="artemis") as driver:
            with pytest.raises(DriverError, match="configmap/enmasse-storage-controller, which is to own"):
                await driver.applied()

    run()


def test_several_routers_without_certificates(house: House) -> None:
    """The chart refuses them, because they form no mesh; somebody may scale all the same."""

    @asyncio_test
    async def run() -> None:
        chart = str(Path(__file__).parents[2] / "charts" / "enmasse")
        template = (
            "template",
            "enmasse",
            chart,
            "--show-only",
            "templates/router.yaml",
            "--namespace",
            house.namespace,
            "--set=identity.enabled=false",
        )
        found = yaml.safe_load_all(await asyncio.to_thread(house.cluster.helm, *template))
        (router,) = [each for each in found if each and each["kind"] == "StatefulSet"]
        await asyncio.to_thread(lambda: house.cluster.apply(router, namespace=house.namespace))
        async with house.driver():
            assert "SeveralRouters" not in await house.warnings()
            await house.kubectl("scale", "statefulset/enmasse-router", "--replicas=2")

            async def warns() -> bool:
                return "SeveralRouters" in await house.warnings()

            await until(warns, "the warning of several routers")

    run()


def test_the_api_server_away(house: House) -> None:
    @asyncio_test
    async def run() -> None:
        async with house.driver() as driver:
            mine = await made(driver)
            house.cluster.kill_api()
            with pytest.raises(DriverError, match="does not answer"):
                await driver.apply("small-1", manifest(driver, "small-1"))
            assert (await driver.running())["small-0"].ready and await driver.altered() == []
            await asyncio.to_thread(house.cluster.start_api)
            await asyncio.to_thread(house.cluster.compact)
            await house.kubectl("delete", "statefulset", NAME)
            assert await became_altered(driver) == ["small-0"]

            async def allowed() -> bool:
                try:
                    await driver.apply("small-0", mine)
                except DriverError as error:
                    assert "forbidden" in str(error)
                    return False
                return True

            await until(allowed, "an API server that has just started to know who may do what")
            await until(lambda: not driver.problem, "it is watched again")
            await seen(driver, lambda b: b.ready)

    run()


def test_the_service_itself_makes_a_pool_for_a_thousand_addresses(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """From ConfigMaps to StatefulSets, by processes with the chart's rights. Pods of these nodes are not reached."""
    flavors = {"small": {"type": "queue", "templateName": "queue-persisted", "templateParameters": {"BROKERS": 3}}}
    cluster.apply(
        config_map("enmasse-flavors", "flavors", {"flavors.json": flavors}),
        config_map(
            "enmasse-addresses",
            "addresses",
            {"addresses.json": {f"q{n}": {"type": "queue", "flavor": "small"} for n in range(1000)}},
        ),
        namespace=namespace,
    )
    user = f"{namespace}/enmasse-storage-controller"
    (tmp_path / "templates.json").write_text(json.dumps({"default": TEMPLATE}))

    def stateful_sets() -> list[str]:
        return [item["metadata"]["name"] for item in cluster.get("statefulsets", namespace=namespace)]

    def warned(reason: str) -> set[str]:
        found = cluster.get("events", namespace=namespace)
        return {each["involvedObject"]["name"] for each in found if each["reason"] == reason}

    with pods(tmp_path, cluster, namespace, "configserv") as (configserv,), contextlib.ExitStack() as stack:
        configserv.start()
        controllers = []
        for name in ("one", "two"):
            settings = {
                "name": name,
                "health": f"127.0.0.1:{free_port()}",
                "configserv": configserv.settings["listen"],
                "driver": {
                    "kind": "kubernetes",
                    "namespace": namespace,
                    "release": "enmasse",
                    "engine": "embedded",
                    "templates": str(tmp_path / "templates.json"),
                },
            }
            controllers.append(stack.enter_context(controller(tmp_path, settings, str(cluster.kubeconfig_of(user)))))
            if name == "one":
                wait_for("the brokers are made", lambda: len(stateful_sets()) == 3)
        one, two = controllers
        # A pool below what its addresses need: nothing is taken away, and people are told.
        fewer = {"small": {**flavors["small"], "templateParameters": {"BROKERS": 1}}}
        cluster.apply(config_map("enmasse-flavors", "flavors", {"flavors.json": fewer}), namespace=namespace)
        wait_for("it says which are still needed", lambda: warned("StillNeeded") == {f"{NAME[:-1]}{n}" for n in (1, 2)})
        assert len(stateful_sets()) == 3
        cluster.apply(config_map("enmasse-flavors", "flavors", {"flavors.json": flavors}), namespace=namespace)
        wait_for("the second stands by", lambda: "stands by: one leads" in detail(two[1]))
        assert "not reached: small-0, small-1, small-2" in wait_for(
            "it says what it waits for", lambda: "not reached" in detail(one[1]) and detail(one[1])
        )
        one[0].kill()
        cluster.kubectl("delete", "statefulset", "enmasse-small-1", "--namespace", namespace)
        wait_for("the other one makes it again", lambda: len(stateful_sets()) == 3)
        two[0].terminate()
        assert two[0].wait(DEADLINE) == 0
        lease = cluster.get("lease", "enmasse-storage-controller", namespace=namespace)
        assert not lease["spec"].get("holderIdentity")


@contextlib.contextmanager
def controller(
    folder: Path, settings: dict[str, Any], kubeconfig: str
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process of the storage controller, and where its health is."""
    file = folder / f"{settings['name']}.json"
    file.write_text(json.dumps(settings))
    process = subprocess.Popen(
        [sys.executable, "-m", "services.storage_controller", "--config", str(file)],
        env={**os.environ, "KUBECONFIG": kubeconfig, "ENMASSE_PARENT": str(os.getpid())},
    )
    try:
        yield process, settings["health"]
    finally:
        process.kill()
        process.wait()


def detail(health: str) -> str:
    """What it says of itself; empty while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://{health}/healthz", timeout=DEADLINE) as answer:
            return str(json.load(answer)["detail"])
    except urllib.error.HTTPError as error:
        return str(json.load(error)["detail"])
    except OSError:
        return ""
