"""The chart installed by Helm, with its pods as processes (kubelet.py): what an operator does, and its clients."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from enmasse.testing import wait_for
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.controlplane import Refused
from tests.kubernetes.kubelet import Kubelet, Running
from tests.kubernetes.running import status

CHART = Path(__file__).parents[2] / "charts" / "enmasse"
NAME = "enmasse"
PATIENCE = 240.0
"""Seconds for whatever a loaded machine takes long for: ten services start on two cores."""
SERVICES = ("router", "broker", "storageController", "configserv", "ragent", "authserv", "console")


class Release:
    """In a namespace of its own, without MQTT."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.namespace = cluster.namespace("release")
        self.kubelet = Kubelet(cluster, self.namespace, folder)
        values = {
            "tls": {"enabled": False},
            "mqtt": {"enabled": False},
            **dict.fromkeys(SERVICES, self.kubelet.place),
        }
        self._values = folder / "values.json"
        self._values.write_text(json.dumps(values))

    def helm(self, verb: str, *options: str) -> None:
        """`helm install` or `helm upgrade`; returns when all pods of the chart are ready."""
        place = ("--namespace", self.namespace, "--values", str(self._values), "--wait", f"--timeout={PATIENCE:.0f}s")
        try:
            self.cluster.helm(verb, NAME, str(CHART), *place, *options)
        except Refused as error:
            raise Refused(f"{error}\n{self.kubelet.logs()}") from None

    def kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl(*arguments, "--namespace", self.namespace)

    def configure(self, kind: str, entries: dict[str, Any], name: str = "") -> None:
        """The content of `addresses.json` or `flavors.json` in the ConfigMap of the release, or in another one."""
        patch = {"data": {f"{kind}.json": json.dumps(entries, indent=1)}}
        self.kubectl("patch", "configmap", name or f"{NAME}-{kind}", "--type=merge", f"--patch={json.dumps(patch)}")

    def addresses(self, *names: str) -> list[dict[str, Any]]:
        """What the status beside these ConfigMaps says of addresses."""
        found = [status(self.cluster, self.namespace, name) for name in names or (f"{NAME}-addresses",)]
        return [each for one in found for each in one.get("addresses", ())]

    def wait_active(self, count: int, *names: str) -> None:
        self.wait(
            f"{count} addresses are active",
            lambda: [each["phase"] for each in self.addresses(*names)] == ["Active"] * count,
        )

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        """As `wait_for`; a failure shows what the pods have written."""

        def holds() -> bool:
            assert self.kubelet.failure is None, self.kubelet.failure
            return condition()

        try:
            wait_for(what, holds, PATIENCE)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.kubelet.logs()}") from None

    def pods(self, component: str | None = None) -> list[Running]:
        return self.kubelet.pods(component)

    @property
    def router(self) -> str:
        """Where clients connect: one that the Service leads to."""
        pods = self.pods("router")
        served = [pod for pod in pods if pod.ready and not pod.ends]
        return f"{(served or pods)[-1].address}:5672"

    def events(self) -> set[str]:
        """Reasons of the warnings that the services have sent."""
        found = self.cluster.get("events", namespace=self.namespace)
        return {each["reason"] for each in found if str(each["source"].get("component")).startswith("enmasse-")}


@contextlib.contextmanager
def installed(
    cluster: Cluster, folder: Path, *options: str, secrets: Mapping[str, Mapping[str, str]] = MappingProxyType({})
) -> Iterator[Release]:
    """A release whose pods are ready. `secrets`: name → content of Secrets that are there before it."""
    made = Release(cluster, folder)
    made.kubelet.begin()
    try:
        for name, content in secrets.items():
            literals = (f"--from-literal={key}={value}" for key, value in content.items())
            made.kubectl("create", "secret", "generic", name, *literals)
        made.helm("install", *options)
        yield made
    finally:
        made.kubelet.end()
        cluster.kubectl("delete", "node", made.kubelet.node)
