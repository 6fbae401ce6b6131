"""Releases of the Helm chart in a cluster: rights, upgrades, removal."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enmasse.testing import wait_for
from spark import pods as spark_pods
from tests.certificates import Authority
from tests.kit.waiting import DEADLINE
from tests.kubernetes.binaries import binary
from tests.kubernetes.charts import CHART, PEOPLE, SPARK, executor, pods, rendered
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.controlplane import Refused


def configured(cluster: Cluster, namespace: str, name: str, file: str, user: str = "admin") -> str:
    """Writes a file into a ConfigMap as docs/kubernetes.md says."""
    made = cluster.kubectl(
        "create",
        "configmap",
        name,
        f"--from-file={file}",
        "--dry-run=client",
        "--output=json",
        "--namespace",
        namespace,
    )
    return cluster.kubectl(
        "apply", "--server-side", "--force-conflicts", "--namespace", namespace, "-f", "-", user=user, stdin=made
    )


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Iterator[str]:
    """The namespace of a release."""
    namespace = cluster.namespace("chart")
    values = json.dumps({"people": PEOPLE, "configuration": {"addresses": ["team-a"]}})
    cluster.helm("install", "enmasse", str(CHART), "--wait", "--values=-", "--namespace", namespace, stdin=values)
    yield namespace


def test_a_namespace_takes_one_installation(cluster: Cluster, installed: str) -> None:
    with pytest.raises(Refused, match=f"namespace {installed} has configmap/enmasse-addresses of release enmasse"):
        cluster.helm("install", "second", str(CHART), "--namespace", installed)
    relabel = ("label", "configmap", "team-a", "--overwrite", "--namespace", installed)
    cluster.kubectl(*relabel, "app.kubernetes.io/instance=second", user="alice")
    upgrade = ("upgrade", "enmasse", str(CHART), "--reuse-values", "--dry-run=server", "--namespace", installed)
    assert "name: team-a" in cluster.helm(*upgrade), "a developer's label does not keep an administrator from upgrades"
    cluster.kubectl(*relabel, "app.kubernetes.io/instance=enmasse", user="alice")


def test_people_have_the_rights_of_their_role(cluster: Cluster, installed: str, tmp_path: Path) -> None:
    file = tmp_path / "addresses.json"
    file.write_text('{"orders": {"type": "anycast"}}')
    flavors = tmp_path / "flavors.json"
    flavors.write_text("{}")

    for name in ("enmasse-addresses", "team-a"):
        configured(cluster, installed, name, str(file), "alice")
    assert cluster.get("configmap", "team-a", namespace=installed)["data"]["addresses.json"] == file.read_text()
    with pytest.raises(Refused, match="forbidden"):
        configured(cluster, installed, "enmasse-flavors", str(flavors), "alice")
    for name, path in (("enmasse-addresses", file), ("enmasse-flavors", flavors)):
        configured(cluster, installed, name, str(path), "bob")
    # A look at what administrators decide, at the status, and at nothing else.
    assert "flavors.json" in cluster.kubectl(
        "get", "configmap", "enmasse-flavors", "-n", installed, "-o", "json", user="alice"
    )

    def may(user: str, verb: str, what: str) -> bool:
        try:
            return cluster.kubectl("auth", "can-i", verb, what, "--namespace", installed, user=user).strip() == "yes"
        except Refused:  # "no" is also an exit status
            return False

    for user in ("alice", "bob"):
        assert may(user, "get", "configmap/enmasse-addresses-status")
        for verb in ("get", "update", "patch", "delete"):
            assert not may(user, verb, "configmap/enmasse-router")
            assert not may(user, verb, "secret/enmasse-tls")
        assert not may(user, "delete", "configmap/enmasse-addresses")
        assert not may(user, "create", "configmaps")
        assert not may(user, "list", "configmaps")
        assert not may(user, "create", "pods") and not may(user, "get", "pods")


def test_services_have_the_rights_they_need(cluster: Cluster, installed: str) -> None:
    def rights(service: str) -> set[str]:
        text = cluster.kubectl(
            "auth", "can-i", "--list", "--namespace", installed, user=f"{installed}/enmasse-{service}"
        )
        ours = (
            "configmaps",
            "secrets",
            "statefulsets",
            "services",
            "pods",
            "leases",
            "events",
            "persistent",
            "deployments",
        )
        return {line.split()[0] for line in text.splitlines() if line.startswith(ours)}

    assert rights("configserv") == {"configmaps", "leases.coordination.k8s.io", "events"}
    assert rights("storage-controller") == {
        "configmaps", "services", "pods", "persistentvolumeclaims", "statefulsets.apps",
        "leases.coordination.k8s.io", "events",
    }  # fmt: skip
    for service in ("router", "ragent", "mqtt-gateway", "subserv", "mqtt-lwt", "redis", "broker"):
        assert rights(service) == set(), service


def test_a_driver_deletes_the_pods_of_its_executors_and_may_do_nothing_but_with_pods(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its account in its pod; all other pods stay."""
    namespace = cluster.namespace("spark")
    place = ("--namespace", namespace)
    only = ("--set=mqtt.enabled=false", "--set=redis.enabled=false")
    cluster.helm("install", "enmasse", str(CHART), "--values=-", *only, *place, stdin=json.dumps(SPARK))

    def may(account: str) -> list[str]:
        lines = cluster.kubectl("auth", "can-i", "--list", *place, user=f"{namespace}/enmasse-{account}").splitlines()
        return [line for line in lines if not line.startswith(("NAME", "Resources", " ", "selfsubject", "["))]

    (pods_only,) = may("spark-pipeline")
    assert pods_only.split()[0] == "pods" and pods_only.endswith("[get list watch create delete deletecollection]")
    assert may("spark-executor") == []

    template = executor(rendered(cluster, SPARK))
    assert template is not None
    template["spec"]["containers"][0]["image"] = "i"
    for number in (1, 2):
        template["metadata"]["name"] = f"executor-{number}"
        cluster.kubectl("create", "-f", "-", *place, stdin=json.dumps(template))
    (container,) = pods(rendered(cluster, SPARK))["spark-pipeline"]["spec"]["containers"]
    (labels,) = (each["value"] for each in container["env"] if each["name"] == spark_pods.EXECUTORS)
    for name, content in {
        "namespace": namespace,
        "token": cluster.token(f"{namespace}/enmasse-spark-pipeline"),
        "ca.crt": cluster.authority.file.read_text(),
    }.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(spark_pods, "ACCOUNT", tmp_path)
    host, port = cluster.url.removeprefix("https://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)

    def there() -> set[str]:
        return {
            each["metadata"]["labels"]["app.kubernetes.io/component"]
            for each in cluster.get("pods", namespace=namespace)
        }

    wait_for("the pods of the release are made", lambda: {"spark-executor", "spark-pipeline"} <= there())
    spark_pods.delete_executors(labels)
    wait_for("the executors are gone", lambda: "spark-executor" not in there())
    assert "spark-pipeline" in there()
    with pytest.raises(OSError, match="403"):
        (tmp_path / "token").write_text(cluster.token(f"{namespace}/enmasse-spark-executor"))
        spark_pods.delete_executors(labels)


def test_what_people_wrote_outlives_upgrade_rollback_and_uninstall(cluster: Cluster, tmp_path: Path) -> None:
    namespace = cluster.namespace("life")
    place = ("--namespace", namespace)
    file = tmp_path / "addresses.json"
    file.write_text('{"orders": {"type": "anycast"}}')

    def kept() -> bool:
        found = cluster.get("configmap", "enmasse-addresses", namespace=namespace)
        return bool(found["data"] == {"addresses.json": file.read_text()})

    def secret(name: str) -> Any:
        return cluster.get("secret", name, namespace=namespace)["data"]

    cluster.helm("install", "enmasse", str(CHART), "--wait", *place)
    certificate, authority = secret("enmasse-tls"), secret("enmasse-ca")
    own = secret("enmasse-router-identity"), secret("enmasse-identity-ca")
    configured(cluster, namespace, "enmasse-addresses", str(file))
    cluster.helm("upgrade", "enmasse", str(CHART), "--wait", "--set=logLevel=debug", *place)
    assert kept()
    assert (secret("enmasse-tls"), secret("enmasse-ca")) == (certificate, authority)
    assert (secret("enmasse-router-identity"), secret("enmasse-identity-ca")) == own
    cluster.kubectl("delete", "secret", "enmasse-router-identity", *place)
    cluster.helm("upgrade", "enmasse", str(CHART), "--wait", "--set=logLevel=info", *place)
    assert secret("enmasse-router-identity")["tls.crt"] != own[0]["tls.crt"], "made anew where there was none"
    assert secret("enmasse-router-identity")["ca.crt"] == own[1]["tls.crt"]
    cluster.helm("upgrade", "enmasse", str(CHART), "--wait", "--set=tls.hosts={mq.example.com}", *place)
    assert secret("enmasse-tls")["tls.crt"] != certificate["tls.crt"]
    assert secret("enmasse-ca") == authority
    cluster.helm("rollback", "enmasse", "1", "--wait", *place)
    assert kept()
    cluster.helm("uninstall", "enmasse", "--wait", *place)
    assert kept()
    left = cluster.kubectl(
        "get", "deployments,statefulsets,services,secrets,networkpolicies,roles", *place, "-o", "name"
    )
    assert left == ""
    cluster.helm("install", "enmasse", str(CHART), "--wait", *place)
    assert kept()


def test_the_authority_of_processes_is_replaced_in_steps(cluster: Cluster, tmp_path: Path) -> None:
    """Certificates are of the authority in `tls.crt`; pods trust what `ca.crt` beside it has."""
    namespace = cluster.namespace("authority")
    place = ("--namespace", namespace)
    name = "enmasse-identity-ca"

    def upgraded() -> tuple[dict[str, str], dict[str, str]]:
        cluster.helm("upgrade", "enmasse", str(CHART), *place)
        return tuple(
            cluster.get("secret", each, namespace=namespace)["data"] for each in (name, "enmasse-router-identity")
        )

    cluster.helm("install", "enmasse", str(CHART), *place)
    old, first = upgraded()
    file, key = Authority(tmp_path).issue("new authority")  # of no use as one, which Helm does not look at
    new = base64.b64encode(file.read_bytes()).decode()
    both = base64.b64encode(base64.b64decode(old["tls.crt"]) + file.read_bytes()).decode()
    cluster.kubectl("patch", "secret", name, *place, f"--patch={json.dumps({'data': {'ca.crt': both}})}")
    authority, certificate = upgraded()
    assert (authority["tls.crt"], certificate["tls.crt"]) == (old["tls.crt"], first["tls.crt"])
    assert authority["ca.crt"] == certificate["ca.crt"] == both
    changed = {"tls.crt": new, "tls.key": base64.b64encode(key.read_bytes()).decode()}
    cluster.kubectl("patch", "secret", name, *place, f"--patch={json.dumps({'data': changed})}")
    authority, certificate = upgraded()
    assert certificate["tls.crt"] != first["tls.crt"] and certificate["ca.crt"] == both
    second = certificate["tls.crt"]
    cluster.kubectl("patch", "secret", name, *place, f"--patch={json.dumps({'data': {'ca.crt': None}})}")
    for _ in range(2):
        authority, certificate = upgraded()
        assert authority == changed
        assert (certificate["tls.crt"], certificate["ca.crt"]) == (second, new)


def test_a_number_of_gateways_left_to_people_outlives_an_upgrade(cluster: Cluster) -> None:
    namespace = cluster.namespace("scale")
    place = ("--namespace", namespace)
    cluster.helm("install", "enmasse", str(CHART), "--set=mqttGateway.replicas=null", *place)
    cluster.kubectl("scale", "deployment/enmasse-mqtt-gateway", "--replicas=5", *place)
    cluster.helm("upgrade", "enmasse", str(CHART), "--set=mqttGateway.replicas=null,logLevel=debug", *place)
    assert cluster.get("deployment", "enmasse-mqtt-gateway", namespace=namespace)["spec"]["replicas"] == 5


def test_deploy(cluster: Cluster) -> None:
    """`enmasse deploy` into a namespace that is not there, and again with another value."""
    namespace = f"{cluster.namespace('deploy')}-new"
    program = str(Path(sys.executable).with_name("enmasse"))
    command = [program, "deploy", "--namespace", namespace, "--kube-context", "test"]
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.kubeconfig),
        "PATH": f"{Path(binary('helm')).parent}:{os.environ['PATH']}",
        "HELM_CACHE_HOME": str(cluster.folder / "helm"),
    }
    for more in (
        ["--set", "people.developers[0].kind=User,people.developers[0].name=alice"],
        ["--set", "logLevel=debug"],
    ):
        done = subprocess.run([*command, *more], env=environment, capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode == 0, done.stderr
        assert f"enmasse in {namespace} is ready" in done.stdout
        assert "CLIENTS ARE NOT AUTHENTICATED" in done.stdout
        text = cluster.get("configmap", "enmasse-router", namespace=namespace)["data"]["settings.json"]
        assert json.loads(text)["log_level"] == ("debug" if "logLevel=debug" in more else "info")
        assert cluster.get("rolebinding", "enmasse-developers", namespace=namespace)["subjects"][0]["name"] == "alice"
