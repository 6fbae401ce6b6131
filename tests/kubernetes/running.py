"""configserv as a process outside of the cluster, with the cluster's configuration: what a pod of it does."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import proton
import yaml

from enmasse.kubernetes.lease import LOST
from enmasse.testing import free_port, wait_for
from tests.configserv.running import Client, Configserv
from tests.kubernetes.cluster import Cluster

FLAVORS = {"q": {"type": "queue", "templateName": "queue-persisted"}}
CONFIG, SPACE = "enmasse.io/config", "enmasse.io/space"


def config_map(name: str, kind: str, data: dict[str, Any], space: str = "") -> dict[str, Any]:
    """With the labels; values that are no text are written as JSON."""
    texts = {key: value if isinstance(value, str) else json.dumps(value, indent=1) for key, value in data.items()}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {CONFIG: kind, **({SPACE: space} if space else {})}},
        "data": texts,
    }


def grant(
    cluster: Cluster,
    namespace: str,
    component: str,
    *more: str,
    console: bool = False,
    options: Iterable[str] = (),
    **config_maps: Iterable[str],
) -> str:
    """The service account of a component with the rights that the chart gives it, and its objects of the kinds in
    `more`; gives the user for `Cluster.token`. `config_maps`: further ones with `addresses` or `flavors`, which the
    values name; `console`: there is one, for which configserv writes; `options`: further ones of Helm."""
    chart = str(Path(__file__).parents[2] / "charts" / "enmasse")
    template = ("template", "enmasse", chart, "--show-only", f"templates/{component}.yaml", "--namespace", namespace)
    values = [f"--set=configuration.{kind}={{{','.join(names)}}}" for kind, names in config_maps.items()]
    values.append(f"--set=console.enabled={str(console).lower()}")
    kinds = ("ServiceAccount", "Role", "RoleBinding", *more)
    found = yaml.safe_load_all(cluster.helm(*template, *values, *options))
    for place, objects in _by_namespace(each for each in found if each and each["kind"] in kinds).items():
        cluster.apply(*objects, namespace=place or namespace)
    return f"{namespace}/enmasse-{component}"


def _by_namespace(objects: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for each in objects:
        found.setdefault(each["metadata"].get("namespace", ""), []).append(each)
    return found


class Pod(Configserv):
    """One process of configserv that reads the ConfigMaps of a namespace; `user` may do so."""

    def __init__(self, folder: Path, cluster: Cluster, namespace: str, name: str, user: str = "admin") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder)
        driver = {"kind": "kubernetes", "namespace": namespace}
        self.name = name
        self.cluster, self.namespace = cluster, namespace
        self.settings = {
            "name": name,
            "health": f"127.0.0.1:{free_port()}",
            "listen": f"127.0.0.1:{free_port()}",
            "driver": driver,
            "reporters": [],
            "log_level": "info",
        }
        self.file.write_text(json.dumps(self.settings))
        self.environment = {"KUBECONFIG": str(cluster.kubeconfig_of(user))}

    def run(self) -> subprocess.Popen[bytes]:
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "services.configserv", "--config", str(self.file)],
                stderr=log,
                env={**os.environ, **self.environment, "ENMASSE_PARENT": str(os.getpid())},
            )
        return self.process

    @property
    def state(self) -> dict[str, Any]:
        """The body of /readyz; empty while nobody answers."""
        found = self.get("/readyz")
        return json.loads(found[1]) if found is not None else {}

    def wait_ready(self) -> None:
        """As the one that leads."""

        def leads() -> bool:
            self.again()
            state = self.state
            return bool(state.get("ready")) and not state["detail"].startswith("stands by")

        wait_for(f"{self.name} is ready: {self.state}", leads)

    def again(self) -> None:
        """As the kubelet does: a process that has ended because it lost its Lease is started again."""
        assert self.process is not None
        if self.process.poll() is not None:
            assert self.process.returncode == LOST
            self.run()

    def feed(self, name: str) -> dict[str, Any]:
        """The newest snapshot of a feed; on a loaded machine perhaps of the process that is started again."""

        def newest() -> dict[str, Any] | None:
            self.again()
            with contextlib.suppress(proton.ProtonException):
                client = Client(self)
                try:
                    return client.next(name)
                finally:
                    client.close()
            return None

        found: dict[str, Any] = wait_for(f"the feed {name} of {self.name}", newest)
        return found

    def status(self, name: str) -> dict[str, Any]:
        """What it has written beside a ConfigMap; empty while there is nothing."""
        self.again()
        return status(self.cluster, self.namespace, name)


@contextlib.contextmanager
def pods(folder: Path, cluster: Cluster, namespace: str, *names: str, user: str = "admin") -> Iterator[list[Pod]]:
    """Processes, not started yet; those that run are ended at the end."""
    made = [Pod(folder / name, cluster, namespace, name, user) for name in names]
    try:
        yield made
    finally:
        for pod in made:
            if pod.process is not None and pod.process.poll() is None:
                pod.kill()


def status(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    """The status beside a ConfigMap; empty while there is none."""
    found = cluster.get("configmaps", namespace=namespace, selector=f"enmasse.io/status-of={name}")
    return json.loads(found[0]["data"]["status.json"]) if found else {}
