"""`enmasse status` and `enmasse address` with --namespace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from enmasse.cli.configuration.cluster import components
from enmasse.supervisor.status import merge
from enmasse.testing import wait_for
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.running import FLAVORS, Pod, config_map, grant, pods

ENMASSE = Path(sys.executable).with_name("enmasse")

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "enmasse-configserv-0",
        "labels": {"app.kubernetes.io/part-of": "enmasse", "app.kubernetes.io/component": "configserv"},
    },
    "spec": {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "configserv",
                "image": "x",
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    },
}


def enmasse(cluster: Cluster, *arguments: str, user: str = "admin") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig_of(user))}
    return subprocess.run([str(ENMASSE), *arguments], capture_output=True, text=True, env=environment)


def test_status_and_addresses_of_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    namespace = cluster.namespace()
    there = ("--namespace", namespace, "--kube-context", "test")
    done = enmasse(cluster, "status", *there)
    assert done.returncode == 4 and "not installed in namespace" in done.stderr
    done = enmasse(cluster, "status", "--namespace", namespace, "--kube-context", "nowhere")
    assert done.returncode == 4 and done.stderr.count("\n") == 1 and "nowhere" in done.stderr

    config = tmp_path / "kubeconfig"
    for text, reason in (("contexts: [", "flow node"), (cluster.kubeconfig.read_text().replace(
        cluster.token("admin"), "old"), "does not accept these credentials")):  # fmt: skip
        config.write_text(text)
        done = subprocess.run([str(ENMASSE), "status", *there], capture_output=True, text=True,
                              env={**os.environ, "KUBECONFIG": str(config)})  # fmt: skip
        assert done.returncode == 4 and reason in done.stderr and done.stderr.count("\n") == 1

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
        # Without pods nothing runs, whatever the status says that was written last.
        done = enmasse(cluster, "status", *there)
        assert done.returncode == 1 and "no pods of EnMasse run here" in done.stdout
        cluster.apply(POD, namespace=namespace)
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
        done = enmasse(cluster, "address", "remove", "a", "--force", *there)
        assert done.returncode == 1 and "there is no address 'a'" in done.stderr


def test_a_pod_that_is_not_ready_counts_unless_it_leaves_or_another_is_ready() -> None:
    def pod(kind: str, number: int, **status: Any) -> dict[str, Any]:
        labels = {**POD["metadata"]["labels"], "app.kubernetes.io/component": kind}
        metadata = {"name": f"{kind}-{number}", "labels": labels, "creationTimestamp": "2026-11-30T07:00:00Z"}
        return {"metadata": metadata, "status": {"phase": "Running", **status}}

    serves = {"conditions": [{"type": "Ready", "status": "True"}]}
    for kind, redundant in (("router", True), ("mqtt-gateway", True), ("subserv", False)):
        away, left = pod(kind, 0), pod(kind, 0)
        left["metadata"]["deletionTimestamp"] = "2026-11-30T07:10:00Z"
        assert merge(components([away]), {"addresses": []})["ready"] is False
        assert merge(components([left]), {"addresses": []})["ready"] is True
        assert merge(components([away, pod(kind, 1)]), {"addresses": []})["ready"] is False
        status = merge(components([away, pod(kind, 1, **serves)]), {"addresses": []})
        assert status["ready"] is redundant, kind
        assert status["degraded"] == [f"{kind}-0: not ready"] * redundant and not status["settled"]


def test_a_developer_who_may_not_list_configmaps_works_with_all_of_the_release(cluster: Cluster) -> None:
    namespace = cluster.namespace()
    chart = str(Path(__file__).parents[2] / "charts" / "enmasse")
    values = json.dumps({"configuration": {"addresses": ["team"]}, "people": {"developers": [
        {"kind": "User", "name": "alice"}]}})  # fmt: skip
    shown = [f"--show-only=templates/{name}.yaml" for name in ("people", "configuration")]
    made = cluster.helm("template", "enmasse", chart, *shown, "--namespace", namespace, "--values=-", stdin=values)
    cluster.kubectl("apply", "--namespace", namespace, "-f", "-", stdin=made)
    there = ("--namespace", namespace)
    done = enmasse(cluster, "address", "add", "a", "--type", "anycast", "--configmap", "team", *there, user="alice")
    assert done.stdout == "added a to configmap/team/addresses.json\n", done
    done = enmasse(cluster, "address", "list", *there, user="alice")
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["a"], done
    done = enmasse(cluster, "address", "remove", "a", *there, user="alice")
    assert done.stdout == "removed a from configmap/team/addresses.json\n", done


def test_force_is_an_order_that_is_carried_out_once(cluster: Cluster, tmp_path: Path) -> None:
    namespace = cluster.namespace()
    user = grant(cluster, namespace, "configserv")
    entry = {"type": "anycast"}
    content = {"addresses.json": dict.fromkeys("ab", entry)}
    cluster.apply(
        config_map("enmasse-flavors", "flavors", {"flavors.json": FLAVORS}),
        config_map("enmasse-addresses", "addresses", content),
        namespace=namespace,
    )

    def forced(pod: Pod) -> list[str]:
        found: list[str] = pod.feed("addresses")["forced"]
        return sorted(found)

    with pods(tmp_path, cluster, namespace, "one", user=user) as (one,):
        one.start()
        one.wait_ready()
        # Nobody reports, so what is forced stays so until somebody says that it is gone.
        one.settings["reporters"] = ["ragent"]
        one.kill()
        one.file.write_text(json.dumps(one.settings))
        one.start()
        one.wait_ready()
        for name in "ab":
            done = enmasse(cluster, "address", "remove", name, "--force", "--namespace", namespace)
            assert done.returncode == 0 and f"what {name} holds is thrown away" in done.stdout, done
        wait_for("both are forced", lambda: forced(one) == ["a", "b"])
        one.kill()
        one.start()
        one.wait_ready()
        assert forced(one) == ["a", "b"]
        one.kill()
        one.settings["reporters"] = []
        one.file.write_text(json.dumps(one.settings))
        one.start()
        one.wait_ready()
        wait_for("it has served its purpose", lambda: forced(one) == [])
        one.kill()
        one.start()
        one.wait_ready()
        assert forced(one) == []
        # An annotation that is no order is none.
        cluster.kubectl(
            "annotate", "configmap", "enmasse-addresses", "enmasse.io/force=[1]", "--overwrite", "-n", namespace
        )
        done = enmasse(cluster, "address", "add", "c", "--type", "anycast", "--namespace", namespace)
        wait_for("it goes on", lambda: set(one.feed("addresses")["addresses"]) == {"c"})
        assert forced(one) == []


def test_a_cluster_by_url(cluster: Cluster, tmp_path: Path) -> None:
    namespace = cluster.namespace()
    cluster.apply(
        config_map("enmasse-flavors", "flavors", {"flavors.json": FLAVORS}),
        config_map("enmasse-addresses", "addresses", {}),
        namespace=namespace,
    )
    token = tmp_path / "token"
    token.write_text(f"{cluster.token('admin')}\n")
    environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [str(ENMASSE), "address", "add", "a", "--type", "anycast", *options]
        return subprocess.run(command, capture_output=True, text=True, env={**environment, "HOME": str(tmp_path)})

    there = ("--namespace", namespace, "--api", cluster.url)
    trusted = (*there, "--api-ca", str(cluster.authority.file))
    done = run(*there)
    assert done.returncode == 2 and "needs --api-token-file" in done.stderr
    done = run(*there, "--kube-context", "test")
    assert done.returncode == 2 and "not both" in done.stderr
    done = run("--api", cluster.url)
    assert done.returncode == 2 and "need --namespace" in done.stderr
    done = run(*trusted, "--api-token-file", str(tmp_path / "none"))
    assert done.returncode == 4 and "the token cannot be read" in done.stderr
    done = run(*there, "--api-token-file", str(token))
    assert done.returncode == 4 and "certificate" in done.stderr and done.stderr.count("\n") == 1
    done = run(*trusted, "--api-token-file", str(token))
    assert done.stdout == "added a to configmap/enmasse-addresses/addresses.json\n", done


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
