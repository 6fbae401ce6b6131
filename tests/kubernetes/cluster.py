"""A cluster whose nodes are pretended by kwok: everything is real but what runs in Pods.

Pods are scheduled and become ready at once, with made-up addresses; there are no logs and no exec.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from enmasse.testing import free_port, wait_for
from tests.kubernetes.binaries import binary, folder
from tests.kubernetes.controlplane import LOOPBACK, ControlPlane
from tests.kubernetes.processes import Server

NODES = 3
MANAGED = "kubernetes.io/os=linux"
"""The label of the nodes that kwok manages; `kubelet` has others."""


class Cluster(ControlPlane):
    """A control plane with NODES nodes, each in a zone of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kwok = Server("kwok", self._kwok(), self.folder)

    def servers(self) -> list[Server]:
        return [*super().servers(), self.kwok]

    def start(self) -> None:
        super().start()
        self.apply(*(_node(number) for number in range(NODES)))
        self.kwok.start()
        wait_for("the nodes are ready", lambda: sum(map(_ready, self.get("nodes"))) == NODES)

    def _kwok(self) -> list[str]:
        return [
            binary("kwok"),
            f"--kubeconfig={self.kubeconfig}",
            f"--manage-nodes-with-label-selector={MANAGED}",
            f"--server-address={LOOPBACK}:{free_port()}",
            f"--config={folder('kwok') / 'files.yaml'}",
            "--node-lease-duration-seconds=40",
            f"--node-ip={LOOPBACK}",
        ]


def _node(number: int) -> dict[str, Any]:
    name = f"node-{number}"
    room = {"cpu": "64", "memory": "512Gi", "pods": "1000"}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number}"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, "kubernetes.io/os": "linux"}},
        "status": {"allocatable": room, "capacity": room},
    }


def _ready(node: dict[str, Any]) -> bool:
    conditions = node["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
