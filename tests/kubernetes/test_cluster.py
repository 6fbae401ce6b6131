"""The test bed itself: what tests of the suite in a cluster take for granted."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from enmasse.testing import wait_for
from tests.kubernetes import schemas
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.controlplane import Refused

IMAGE = "localhost/none:1"
CONFINED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What the pod security standard `restricted` asks of a container."""


def stateful(name: str, replicas: int, security: dict[str, Any] | None = None) -> dict[str, Any]:
    """A StatefulSet whose Pods have a volume each."""
    labels = {"app": name}
    mounts = [{"name": "data", "mountPath": "/data"}]
    container = {"name": "one", "image": IMAGE, "securityContext": security or CONFINED, "volumeMounts": mounts}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        },
    }


def test_pods_of_a_stateful_set_get_their_volumes_and_become_ready(cluster: Cluster) -> None:
    namespace = cluster.namespace()
    cluster.apply(stateful("db", 2), namespace=namespace)
    cluster.kubectl("rollout", "status", "statefulset/db", "--namespace", namespace, "--timeout=60s")
    claims = cluster.get("persistentvolumeclaims", namespace=namespace)
    assert [claim["status"]["phase"] for claim in claims] == ["Bound", "Bound"]


def test_a_namespace_refuses_pods_below_its_security_standard(cluster: Cluster) -> None:
    pod = {"name": "one", "image": IMAGE}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "rude"}, "spec": {"containers": [pod]}}
    with pytest.raises(Refused, match='violates PodSecurity "restricted'):
        cluster.apply(manifest, namespace=cluster.namespace())
    cluster.apply(manifest, namespace=cluster.namespace(security="privileged"))


def test_what_the_api_server_holds_survives_its_death(cluster: Cluster) -> None:
    namespace = cluster.namespace()
    cluster.kubectl("create", "configmap", "kept", "--from-literal=a=b", "--namespace", namespace)
    cluster.kill_api()
    with pytest.raises(Refused, match="refused"):
        cluster.kubectl("get", "configmap", "kept", "--namespace", namespace)
    cluster.start_api()
    assert cluster.get("configmap", "kept", namespace=namespace)["data"] == {"a": "b"}
    cluster.apply(stateful("later", 1), namespace=namespace)  # those who use it have come back
    cluster.kubectl("rollout", "status", "statefulset/later", "--namespace", namespace, "--timeout=60s")


def test_a_watch_from_before_a_compaction_is_gone(cluster: Cluster) -> None:
    namespace = cluster.namespace()
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    seen = json.loads(cluster.kubectl("get", "--raw", path))["metadata"]["resourceVersion"]
    cluster.compact()
    answer = cluster.kubectl("get", "--raw", f"{path}?watch=1&resourceVersion={seen}&timeoutSeconds=5")
    event = json.loads(answer.splitlines()[0])
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_people_and_service_accounts_may_what_is_granted_to_them(cluster: Cluster) -> None:
    namespace = cluster.namespace()
    cluster.kubectl("create", "role", "reader", "--verb=get", "--resource=configmaps", "--namespace", namespace)
    whom = ["--group=developers", f"--serviceaccount={namespace}:default"]
    cluster.kubectl("create", "rolebinding", "readers", "--role=reader", *whom, "--namespace", namespace)
    question = ("get", "configmap", "kube-root-ca.crt", "--namespace", namespace, "--output=name")
    for user in ("alice", f"{namespace}/default"):
        wait_for(f"{user} may read", partial(_allowed, cluster, question, user))
    assert not _allowed(cluster, question, "bob")


ROUTE = """
apiVersion: route.openshift.io/v1
kind: Route
metadata: {name: amqps}
spec:
  host: messages.example.com
  port: {targetPort: amqps}
  tls: {termination: passthrough}
  to: {kind: Service, name: router}
"""


def test_manifests_are_checked_without_the_server(cluster: Cluster) -> None:
    cluster.define_routes()
    folder = cluster.schemas()
    good = json.dumps(stateful("db", 2))
    assert schemas.check(f"{good}\n---\n{ROUTE}", folder) == 2
    with pytest.raises(schemas.Invalid, match=r"StatefulSet db: .*replica"):
        schemas.check(good.replace('"replicas"', '"replicae"'), folder)
    with pytest.raises(schemas.Invalid, match=r"Route amqps: .*termination"):
        schemas.check(ROUTE.replace("passthrough", "through"), folder)
    with pytest.raises(schemas.Invalid, match=r"Rout amqps: .*schema"):
        schemas.check(ROUTE.replace("kind: Route", "kind: Rout"), folder)
    namespace = cluster.namespace()
    cluster.kubectl("apply", "--dry-run=server", "--namespace", namespace, "-f", "-", stdin=ROUTE)


def test_helm_installs_upgrades_and_uninstalls(cluster: Cluster, tmp_path: Path) -> None:
    namespace = cluster.namespace()
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: toy\nversion: 1.0.0\nkubeVersion: '>=1.35.0'\n")
    manifest = stateful("db", 1)
    manifest["spec"]["replicas"] = "REPLICAS"
    text = json.dumps(manifest).replace('"REPLICAS"', "{{ .Values.replicas }}")
    (chart / "templates" / "db.yaml").write_text(text)
    place = ("--namespace", namespace)
    cluster.helm("install", "toy", str(chart), *place, "--set=replicas=1", "--wait", "--timeout=120s")
    cluster.helm("upgrade", "toy", str(chart), *place, "--set=replicas=2", "--wait", "--timeout=120s")
    assert cluster.get("statefulset", "db", namespace=namespace)["status"]["readyReplicas"] == 2
    cluster.helm("uninstall", "toy", *place)
    assert cluster.get("statefulsets", namespace=namespace) == []


def _allowed(cluster: Cluster, question: tuple[str, ...], user: str) -> bool:
    try:
        return "configmap/" in cluster.kubectl(*question, user=user)
    except Refused as error:
        if "(NotFound)" in str(error):  # the controller has not made it yet
            return False
        assert "(Forbidden)" in str(error), error
        return False
