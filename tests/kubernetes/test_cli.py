"""`enmasse status` and `enmasse address` with --namespace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.running import FLAVORS, config_map, pods

ENMASSE = Path(sys.executable).with_name("enmasse")


def enmasse(cluster: Cluster, *arguments: str, user: str = "admin") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig_of(user))}
    return subprocess.run([str(ENMASSE), *arguments], capture_output=True, text=True, env=environment)


def test_status_and_addresses_of_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    namespace = cluster.namespace()
    there = ("--namespace", namespace, "--context", "test")
    done = enmasse(cluster, "status", *there)
    assert done.returncode == 4 and "not installed in namespace" in done.stderr
    done = enmasse(cluster, "status", "--namespace", namespace, "--context", "nowhere")
    assert done.returncode == 4 and done.stderr.count("\n") == 1 and "nowhere" in done.stderr

    text = '{\n  "a": {"type": "anycast"}\n}\n'
    cluster.apply(
        config_map("enmasse-flavors", "flavors", {"flavors.json": FLAVORS}),
        config_map("enmasse-addresses", "addresses", {}),
        config_map("team", "addresses", {"addresses.json": text}),
        namespace=namespace,
    )
    done = enmasse(cluster, "status", *there)
    assert done.returncode == 1 and done.stdout.splitlines()[-1] == "not ready"
    with pods(tmp_path, cluster, namespace, "one") as (one,):
        one.start()
        done = enmasse(cluster, "address", "add", "b", "--type", "queue", "--flavor", "q", *there)
        assert (done.returncode, done.stdout) == (0, "added b to configmap/enmasse-addresses/addresses.json\n"), done
        done = enmasse(cluster, "address", "add", "c", "--type", "anycast", "--configmap", "team", *there)
        assert done.stdout == "added c to configmap/team/addresses.json\n"
        data = cluster.get("configmap", "team", namespace=namespace)["data"]["addresses.json"]
        assert data == '{\n  "a": {"type": "anycast"},\n  "c": {"type": "anycast"}\n}\n'  # to the byte
        for words, reason in (
            (("add", "a", "--type", "anycast"), "configmap/team/addresses.json: there is an address 'a' already"),
            (("add", "d", "--type", "queue", "--flavor", "x"), "unknown flavor 'x'"),
            (("add", "d", "--type", "anycast", "--configmap", "x"), "there is no ConfigMap 'x'"),
            (("remove", "d"), "there is no address 'd'"),
        ):
            done = enmasse(cluster, "address", *words, *there)
            assert done.returncode == 1 and reason in done.stderr and "nothing was changed" in done.stderr.lower()
        # What these reporters would report does not matter here: there are none, so all is active once it is applied.
        done = enmasse(cluster, "status", "--wait", "120", *there)
        assert done.returncode == 0, done
        found = json.loads(enmasse(cluster, "status", "--json", *there).stdout)
        assert found["ready"] and [each["name"] for each in found["addresses"]] == ["b", "a", "c"]
        found = json.loads(enmasse(cluster, "address", "list", "--json", *there).stdout)
        assert {each["name"]: each["phase"] for each in found["addresses"]} == dict.fromkeys("abc", "Active")
        assert "phase: Active" in enmasse(cluster, "address", "show", "b", *there).stdout
        done = enmasse(cluster, "address", "remove", "a", *there)
        assert done.stdout == "removed a from configmap/team/addresses.json\n"


def test_two_who_edit_at_once_lose_nothing(cluster: Cluster) -> None:
    namespace = cluster.namespace()
    cluster.apply(
        config_map("enmasse-flavors", "flavors", {"flavors.json": FLAVORS}),
        config_map("enmasse-addresses", "addresses", {"addresses.json": "{}"}),
        namespace=namespace,
    )
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    running = [
        subprocess.Popen(
            [str(ENMASSE), "address", "add", f"a{n}", "--type", "anycast", "--namespace", namespace],
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        for n in range(4)
    ]
    assert [each.wait() for each in running] == [0] * 4
    data = json.loads(cluster.get("configmap", "enmasse-addresses", namespace=namespace)["data"]["addresses.json"])
    assert sorted(data) == ["a0", "a1", "a2", "a3"]
