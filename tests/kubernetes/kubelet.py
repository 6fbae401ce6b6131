"""A node that runs the pods of one namespace as processes of this machine: no images, no containers, no network.

The services are those of this checkout, with the chart's settings and service accounts. A pod is started, becomes
ready, is restarted and ended as a kubelet does it, by its probe for readiness and its exit status. Each pod has an
address of loopback of its own, so ports are those of the chart; names of Services and pods are looked up in a file.
What this is not: limits, security contexts, network policies, and the seconds of `preStop` (a pod ends at once).
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.kubernetes.cluster import Cluster

LOOK = 0.2
"""Seconds between two looks at the pods."""
PROBE = 3.0
HEARTBEAT = 10.0
SYNC = 1.0
"""Seconds between two looks at mounted Secrets; a kubelet takes a minute."""
HEALTH = 8080
TLS = "/etc/enmasse-tls"
"""Folder of the certificate for clients."""
_addresses = (
    f"127.{os.getpid() % 200 + 20}.{n // 250 % 250}.{n % 250 + 1}" for n in itertools.count(random.randrange(250 * 250))
)
"""More than 250: a pod whose ConfigMap is missing uses one up each time it is tried."""


class Running:
    """A pod that runs here."""

    def __init__(self, pod: dict[str, Any], folder: Path) -> None:
        self.name, self.uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        self.labels = pod["metadata"]["labels"]
        self.component = self.labels["app.kubernetes.io/component"]
        self.folder, self.address = folder, next(_addresses)
        self.started = _stamp()
        self.restarts, self.ready, self.was_ready, self.ends = -1, False, False, False
        self.command: list[str] = []
        self.environment: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self.secrets: dict[str, Path] = {}
        """Mounted Secrets, and the folder of each."""
        self.optional: set[str] = set()
        """Secrets that need not be there."""
        self.shown: Any = None

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def run(self) -> None:
        self.restarts += 1
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment
            )

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def probe(self) -> None:
        try:
            with urllib.request.urlopen(f"http://{self.address}:{HEALTH}/readyz", timeout=PROBE) as answer:
                self.ready = answer.status == 200
        except (OSError, http.client.HTTPException):
            self.ready = False

    def status(self) -> dict[str, Any]:
        state = {"running": {"startedAt": self.started}}
        container = {"name": self.component, "image": "x", "imageID": "x", "ready": self.ready, "started": True}
        conditions = {"Initialized": True, "PodScheduled": True, "ContainersReady": self.ready, "Ready": self.ready}
        return {
            "phase": "Running",
            "startTime": self.started,
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "conditions": [{"type": key, "status": str(value)} for key, value in conditions.items()],
            "containerStatuses": [{**container, "restartCount": self.restarts, "state": state}],
        }


class Kubelet(threading.Thread):
    """The node `name`, which only pods with its toleration come to."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path) -> None:
        super().__init__(name="kubelet", daemon=True)
        self.node = f"runs-{namespace}"
        self.hosts = folder / "hosts.json"
        self.failure: BaseException | None = None
        self.history: list[tuple[str, str]] = []
        """What has happened to pods, in this order: (`ready` for the first time, or `ended`; name of the pod)."""
        self._troubles: dict[str, Exception] = {}
        """What has failed at the last try, and is tried again: pod, or "the list", and why."""
        self._cluster, self._namespace, self._folder = cluster, namespace, folder
        self._pods: dict[str, Running] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._probe_at = self._beat_at = self._sync_at = 0.0
        self._sync = False
        from kubernetes.client import CoreV1Api

        self._api = CoreV1Api(cluster.client())
        self.hosts.write_text("{}")

    @property
    def place(self) -> dict[str, Any]:
        """What a pod that is to run here has in its specification."""
        key = "enmasse.io/test"
        toleration = {"key": key, "operator": "Equal", "value": self.node, "effect": "NoSchedule"}
        return {"nodeSelector": {key: self.node}, "tolerations": [toleration]}

    def begin(self) -> None:
        room = {"cpu": "64", "memory": "512Gi", "pods": "1000"}
        taints = [{"key": "enmasse.io/test", "value": self.node, "effect": "NoSchedule"}]
        labels = {"enmasse.io/test": self.node}
        metadata = {"name": self.node, "labels": labels}
        self._api.create_node({"metadata": metadata, "spec": {"taints": taints}})
        self._api.patch_node_status(self.node, {"status": {"allocatable": room, "capacity": room}})
        self.start()

    def end(self) -> None:
        self._ended.set()
        self.join()
        for pod in self._pods.values():
            pod.signal(signal.SIGKILL)
            if pod.process is not None:
                pod.process.wait()

    # what tests ask for

    def pods(self, component: str | None = None) -> list[Running]:
        """Those that run, of one component or of all, the oldest first."""
        with self._lock:
            return [pod for pod in self._pods.values() if component in (None, pod.component)]

    def logs(self) -> str:
        """What fails here, and the end of what each pod has written: for the report of a failed test."""
        with self._lock:
            pods = list(self._pods.values())
        found = [f"{what}: {error!r}" for what, error in dict(self._troubles).items()]
        found += [f"{pod.name}:\n{pod.log.read_text(errors='replace')[-1500:]}" for pod in pods if pod.log.exists()]
        return "\n".join(found)

    # in the thread

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                with self._tried("the list"):
                    self._turn()
                self._ended.wait(LOOK)
        except BaseException as error:
            self.failure = error
            raise

    def _turn(self) -> None:
        now = datetime.now().timestamp()
        self._sync = now >= self._sync_at
        if self._sync:
            self._sync_at = now + SYNC
        if now >= self._beat_at:
            self._beat_at = now + HEARTBEAT
            self._beat()
        found = {pod["metadata"]["uid"]: pod for pod in self._list(self._api.list_namespaced_pod)}
        mine = {uid: pod for uid, pod in found.items() if pod["spec"].get("nodeName") == self.node}
        for uid in [uid for uid in self._pods if uid not in mine]:
            self._forget(uid)  # deleted with force
        for uid, pod in mine.items():
            with self._tried(pod["metadata"]["name"]):
                if uid not in self._pods and "deletionTimestamp" not in pod["metadata"]:
                    self._admit(pod)
                elif uid in self._pods:
                    self._care(self._pods[uid], pod)
                else:
                    self._gone(pod["metadata"]["name"], uid)
        self._write_hosts()

    @contextlib.contextmanager
    def _tried(self, what: str) -> Iterator[None]:
        """The API server may be away, or an object has changed meanwhile: it is tried again with the next turn."""
        try:
            yield
        except _failures() as error:
            self._troubles[what] = error
        else:
            self._troubles.pop(what, None)

    def _care(self, pod: Running, seen: dict[str, Any]) -> None:
        process = pod.process
        if "deletionTimestamp" in seen["metadata"]:
            if not pod.ends:
                pod.ends = True
                self.history.append(("ended", pod.name))
                pod.signal(signal.SIGTERM)
            if process is None or process.poll() is not None:
                self._gone(pod.name, pod.uid)
                self._forget(pod.uid)
                return
        elif process is None or process.poll() is not None:
            pod.run()
        if self._sync:
            self._mount(pod)
        pod.probe()
        if pod.ready and not pod.was_ready:
            pod.was_ready = True
            self.history.append(("ready", pod.name))
        status = pod.status()
        if status != pod.shown:
            # With the uid: another pod may have the name by now, and would keep two addresses.
            body = {"metadata": {"uid": pod.uid}, "status": status}
            self._api.patch_namespaced_pod_status(pod.name, self._namespace, body)
            pod.shown = status

    def _admit(self, pod: dict[str, Any]) -> None:
        """Makes its folders and its command; a ConfigMap that is missing is waited for."""
        spec = pod["spec"]
        (container,) = spec["containers"]
        made = Running(pod, self._folder / pod["metadata"]["uid"])
        paths: dict[str, str] = {}
        for mount in container["volumeMounts"]:
            volume = next(each for each in spec["volumes"] if each["name"] == mount["name"])
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            folder = self._folder / "volumes" / claim if claim else made.folder / mount["name"]
            if mount["mountPath"] == TLS:
                folder = self._folder / "tls"  # the agent names its files to routers: at one path in all pods
            folder.mkdir(parents=True, exist_ok=True)
            paths[mount["mountPath"]] = str(folder)
        for mount in container["volumeMounts"]:
            volume = next(each for each in spec["volumes"] if each["name"] == mount["name"])
            if "secret" in volume:
                made.secrets[volume["secret"]["secretName"]] = Path(paths[mount["mountPath"]])
                if volume["secret"].get("optional"):
                    made.optional.add(volume["secret"]["secretName"])
            if "configMap" in volume:
                data = self._api.read_namespaced_config_map(volume["configMap"]["name"], self._namespace).data
                for key, text in data.items():
                    text = text.replace(TLS, str(self._folder / "tls"))
                    for path in sorted(paths, key=len, reverse=True):  # one begins with another one
                        text = text.replace(path, paths[path]) if "enmasse" in path else text
                    (Path(paths[mount["mountPath"]]) / key).write_text(text)
        self._mount(made)
        image = container["image"].rpartition("/")[2].partition(":")[0]
        service = f"services.{image.replace('-', '_')}"
        config = f"{paths['/etc/enmasse']}/settings.json"
        made.command = [
            sys.executable, "-m", "tests.kubernetes.named",
            str(self.hosts), made.address, service, "--config", config,
        ]  # fmt: skip
        made.environment = {**os.environ, "ENMASSE_PARENT": str(os.getpid())}
        if any(each.get("name") == "ENMASSE_NAME" for each in container.get("env", ())):
            made.environment["ENMASSE_NAME"] = made.name
        for each in container.get("envFrom", ()):
            secret = self._api.read_namespaced_secret(each["secretRef"]["name"], self._namespace).data or {}
            made.environment |= {key: base64.b64decode(value).decode() for key, value in secret.items()}
        if spec.get("automountServiceAccountToken"):
            user = f"{self._namespace}/{spec['serviceAccountName']}"
            made.environment["KUBECONFIG"] = str(self._cluster.kubeconfig_of(user))
        made.run()
        with self._lock:
            self._pods[made.uid] = made

    def _mount(self, pod: Running) -> None:
        """Writes what is in the Secrets, and is not there yet. A kubelet replaces all files of one at once."""
        for name, folder in pod.secrets.items():
            try:
                found = self._api.read_namespaced_secret(name, self._namespace).data or {}
            except _failures() as error:
                if getattr(error, "status", None) == 404 and name in pod.optional:
                    continue
                raise
            wanted = {key: base64.b64decode(value) for key, value in found.items()}
            if wanted != {file.name: file.read_bytes() for file in folder.iterdir() if file.name in wanted}:
                fresh = folder.with_name(f"{folder.name}-{time.monotonic_ns()}")
                fresh.mkdir()
                for key, content in wanted.items():
                    (fresh / key).write_bytes(content)
                    link = folder / f".{key}"
                    link.symlink_to(fresh / key)
                    link.replace(folder / key)

    def _forget(self, uid: str) -> None:
        with self._lock:
            pod = self._pods.pop(uid)
        if not pod.ends:
            self.history.append(("ended", pod.name))
        pod.signal(signal.SIGKILL)
        if pod.process is not None:
            pod.process.wait()

    def _gone(self, name: str, uid: str) -> None:
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        self._api.delete_namespaced_pod(name, self._namespace, body=body)

    def _beat(self) -> None:
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "", "lastHeartbeatTime": _stamp()}
        self._api.patch_node_status(self.node, {"status": {"conditions": [ready]}})

    def _write_hosts(self) -> None:
        hosts: dict[str, list[str]] = {}
        for service in self._list(self._api.list_namespaced_service):
            name, spec = service["metadata"]["name"], service["spec"]
            chosen = [pod for pod in self._pods.values() if spec.get("selector", {}).items() <= pod.labels.items()]
            everybody = spec.get("publishNotReadyAddresses", False)
            served = [pod for pod in chosen if everybody or (pod.ready and not pod.ends)]
            for full in (name, f"{name}.{self._namespace}.svc"):
                hosts[full] = [pod.address for pod in served]
                hosts |= {f"{pod.name}.{full}": [pod.address] for pod in served}
        text = json.dumps(hosts, sort_keys=True)
        if text != self.hosts.read_text():
            fresh = self.hosts.with_suffix(".new")
            fresh.write_text(text)
            fresh.rename(self.hosts)

    def _list(self, request: Any) -> list[dict[str, Any]]:
        answer = request(self._namespace, _preload_content=False)
        found: list[dict[str, Any]] = json.loads(answer.data)["items"]
        return found


def _failures() -> tuple[type[Exception], ...]:
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    return OSError, ApiException, HTTPError


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
