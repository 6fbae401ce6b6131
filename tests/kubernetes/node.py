"""A cluster of one real node: kubelet, containerd and runc, Pods with a network, virtual addresses, names.

Only within `python -m tests.kubernetes.isolated`, where the test runs too: Pods and Services are reached by address.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

from enmasse.testing import wait_for
from tests.kubernetes import archive, isolated
from tests.kubernetes.binaries import binary
from tests.kubernetes.controlplane import ControlPlane
from tests.kubernetes.packages import unpacked
from tests.kubernetes.processes import Server

ADDRESS, NAME = "10.77.0.1", "real-0"
PODS = "10.88.0.0/24"
PAUSE = "localhost/pause:1"
HIDDEN = ("/run", *isolated.LITTER)
"""Folders of this machine that a container runtime uses at fixed paths."""
SYSCTLS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}
"""What a kubelet sets for the whole machine; here it sees files with these values instead."""


class Node(ControlPlane):
    """Ready when `start` returns."""

    def __init__(self) -> None:
        place = os.environ.get(isolated.FOLDER)
        assert place, "a real node needs namespaces of its own: make test-node"
        self.place, self.group = Path(place), os.environ[isolated.GROUP]
        super().__init__(self.place / "cluster", ADDRESS, NAME)
        self.debian = unpacked()
        self.socket = self.place / "containerd.sock"
        paths = [str(self.debian / part) for part in ("usr/bin", "usr/sbin")]
        environment = {"PATH": ":".join([*paths, os.environ["PATH"]])}
        self.containerd = Server("containerd", self._containerd(), self.folder, environment)
        self.coredns = Server("coredns", self._coredns(), self.folder)
        self.kubelet = Server("kubelet", self._kubelet(), self.folder, environment)
        self.proxy = Server("kube-proxy", self._proxy(), self.folder)

    def servers(self) -> list[Server]:
        return [*super().servers(), self.containerd, self.coredns, self.kubelet, self.proxy]

    def start(self) -> None:
        self._machine()
        self._files()
        self.containerd.start()
        super().start()
        self.kubectl(
            "create", "clusterrolebinding", "api-server", "--clusterrole=system:kubelet-api-admin", "--user=api-server"
        )
        wait_for("containerd answers", self._containerd_answers)
        pause = self.place / "pause.tar"
        archive.write(pause, PAUSE, {"pause": Path(binary("pause")).read_bytes()}, ["/pause"])
        self.load(pause)
        self.coredns.start()
        self.kubelet.start()
        self.proxy.start()
        wait_for("the node is ready", self._ready)

    def load(self, image: Path) -> None:
        """Make an image known to the node: a file as `docker save` and `podman save` write it."""
        program = str(self.debian / "usr/bin/ctr")
        self._run(
            [program, "--address", str(self.socket), "--namespace", "k8s.io", "images", "import", str(image)], None
        )

    # the machine, as a node wants it

    def _machine(self) -> None:
        _do("mount --make-rshared /")
        for place in HIDDEN:
            Path(place).mkdir(parents=True, exist_ok=True)
            _do(f"mount -t tmpfs -o mode=755 tmpfs {place}")
        _do("ip link set lo up")
        _do("ip link add node0 type bridge")
        _do(f"ip address add {ADDRESS}/24 dev node0")
        _do("ip link set node0 up")
        _do(f"ip route add default via {ADDRESS} dev node0")
        for setting in ("net/ipv4/ip_forward", "net/ipv4/conf/all/route_localnet"):
            Path("/proc/sys", setting).write_text("1\n")  # of this network namespace
        for setting, value in SYSCTLS.items():
            file = self.place / setting.replace("/", "-")
            file.write_text(f"{value}\n")
            _do(f"mount --bind {file} /proc/sys/{setting}")
        for controller in isolated.CGROUPS.iterdir():
            (controller / self.group).mkdir()
        cpuset = isolated.CGROUPS / "cpuset"
        for setting in ("cpuset.cpus", "cpuset.mems"):
            (cpuset / self.group / setting).write_text((cpuset / setting).read_text())

    def _files(self) -> None:
        network = {
            "cniVersion": "1.0.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "cni0",
                    "isGateway": True,
                    "ipMasq": False,
                    "hairpinMode": True,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": str(self.place / "addresses"),
                        "ranges": [[{"subnet": PODS}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                },
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        }
        folder = self.place / "network"
        folder.mkdir()
        (folder / "10-pods.conflist").write_text(json.dumps(network))
        (self.folder / "containerd.toml").write_text(self._containerd_file())
        (self.folder / "kubelet.json").write_text(json.dumps(self._kubelet_file()))
        (self.folder / "Corefile").write_text(
            f".:53 {{\n bind {ADDRESS}\n errors\n kubernetes cluster.local {{\n"
            f"  kubeconfig {self.kubeconfig}\n  pods verified\n  ttl 1\n }}\n}}\n"
        )

    # commands and configurations

    def _api(self) -> list[str]:
        certificate, key = self.authority.issue("api-server")
        return [
            *super()._api(),
            f"--kubelet-client-certificate={certificate}",
            f"--kubelet-client-key={key}",
            "--kubelet-preferred-address-types=InternalIP",
        ]

    def _containerd(self) -> list[str]:
        return [str(self.debian / "usr/bin/containerd"), "--config", str(self.folder / "containerd.toml")]

    def _containerd_file(self) -> str:
        place = self.place
        snapshotters = ", ".join(
            f'"io.containerd.snapshotter.v1.{name}"' for name in ("btrfs", "zfs", "devmapper", "aufs")
        )
        return f"""
version = 2
root = "{place}/containerd"
state = "{place}/containerd-state"
oom_score = 0
disabled_plugins = [{snapshotters}]
[grpc]
address = "{self.socket}"
[plugins."io.containerd.internal.v1.opt"]
path = "{place}/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
stream_server_address = "127.0.0.1"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{self.debian}/usr/lib/cni"
conf_dir = "{place}/network"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{self.debian}/usr/sbin/runc"
SystemdCgroup = false
"""

    def _coredns(self) -> list[str]:
        return [binary("coredns"), "-conf", str(self.folder / "Corefile")]

    def _kubelet(self) -> list[str]:
        return [
            binary("kubelet"),
            f"--config={self.folder / 'kubelet.json'}",
            f"--kubeconfig={self.kubeconfig_of(f'system:node:{NAME}')}",
            f"--root-dir={self.place / 'kubelet'}",
            f"--cert-dir={self.place / 'kubelet-certificates'}",
            f"--hostname-override={NAME}",
            f"--node-ip={ADDRESS}",
        ]

    def _kubelet_file(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.authority.file)},
                "anonymous": {"enabled": False},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.group}",
            "clusterDNS": [ADDRESS],
            "clusterDomain": "cluster.local",
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "enforceNodeAllocatable": ["pods"],
            "evictionHard": {"memory.available": "50Mi"},
            "failCgroupV1": False,
            "failSwapOn": False,
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": False,
            "makeIPTablesUtilChains": False,
            "oomScoreAdj": 0,
            "podLogsDir": str(self.place / "pod-logs"),
            "protectKernelDefaults": True,
            "resolvConf": "",
            "syncFrequency": "5s",
            "volumePluginDir": str(self.place / "volume-plugins"),
        }

    def _proxy(self) -> list[str]:
        return [
            binary("kube-proxy"),
            f"--kubeconfig={self.kubeconfig_of('system:kube-proxy')}",
            f"--hostname-override={NAME}",
            "--proxy-mode=iptables",
            f"--cluster-cidr={PODS}",
            "--conntrack-max-per-core=0",
        ]

    def _containerd_answers(self) -> bool:
        self.containerd.alive()
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(self.socket)) == 0

    def _ready(self) -> bool:
        self.kubelet.alive()
        nodes = self.get("nodes")
        conditions = [one for node in nodes for one in node["status"].get("conditions", [])]
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _do(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"
