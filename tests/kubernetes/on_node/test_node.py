"""The node itself: Pods with our Python run, are reached by address and by name, and come back when they are killed."""

from __future__ import annotations

import urllib.request
from typing import Any

from enmasse.testing import wait_for
from tests.images import bases
from tests.kubernetes.node import Node
from tests.kubernetes.test_cluster import CONFINED

SERVE = "import http.server, os; os.chdir('/data'); http.server.test(http.server.SimpleHTTPRequestHandler, port=8000)"


def web(name: str) -> list[dict[str, Any]]:
    """A Service and a StatefulSet of one Pod that serves its volume over HTTP."""
    labels = {"app": name}
    container = {
        "name": "web",
        "image": bases.PYTHON,
        "imagePullPolicy": "Never",
        "command": ["python3", "-u", "-c", SERVE],
        "securityContext": {**CONFINED, "readOnlyRootFilesystem": True},
        "readinessProbe": {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    security = {"runAsUser": 1000650000, "fsGroup": 1000650000}  # as OpenShift chooses them
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    stateful = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [container],
                    "securityContext": security,
                    "terminationGracePeriodSeconds": 1,
                },
            },
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8000}]},
    }
    return [service, stateful]


def test_a_pod_runs_is_reached_and_comes_back(node: Node) -> None:
    namespace = node.namespace()
    place = ("--namespace", namespace)
    node.apply(*web("web"), namespace=namespace)
    node.kubectl("rollout", "status", "statefulset/web", *place, "--timeout=180s")
    node.kubectl("exec", "web-0", *place, "--", "python3", "-c", "open('/data/kept', 'w').write('by the pod')")
    address = node.get("service", "web", namespace=namespace)["spec"]["clusterIP"]
    wait_for("the service leads to the pod", lambda: _read(f"http://{address}/kept") == b"by the pod")
    assert "GET /kept" in node.kubectl("logs", "web-0", *place)
    by_name = f"import urllib.request as u; print(u.urlopen('http://web.{namespace}.svc.cluster.local/kept').read())"
    assert "by the pod" in node.kubectl("exec", "web-0", *place, "--", "python3", "-c", by_name)

    node.kubectl("delete", "pod", "web-0", *place, "--grace-period=0", "--force")
    wait_for("the pod has come back with its volume", lambda: _read(f"http://{address}/kept") == b"by the pod")


def _read(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # limit: it is asked again
            return bytes(answer.read())
    except OSError:
        return b""
