"""A control plane: etcd, the API server, controllers and the scheduler, on ports of its own, and commands for it."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import os
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enmasse.testing import free_port, wait_for
from tests.certificates import Authority
from tests.kit.waiting import DEADLINE
from tests.kubernetes import schemas
from tests.kubernetes.api import Api
from tests.kubernetes.binaries import binary
from tests.kubernetes.processes import Server
from tests.kubernetes.storage import CLASS, Provisioner

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

LOOPBACK = "127.0.0.1"
SERVICES = "10.0.0.0/24"
"""Virtual addresses of Services; the first is the API server's."""
PEOPLE = {"admin": "system:masters", "alice": "developers", "bob": "administrators"}
"""Users with a token, and the group of each. Only `admin` may do anything before a RoleBinding says so."""
_PARTS = {"system:kube-controller-manager": "", "system:kube-scheduler": "", "system:kube-proxy": ""}
_numbers = itertools.count(1)


class Refused(AssertionError):
    """A command against the cluster failed; says which, and what it wrote."""


class ControlPlane:
    """Ready when `start` returns. Its files are in `folder`, which the caller deletes after `stop`."""

    def __init__(self, folder: Path, address: str = LOOPBACK, node: str | None = None) -> None:
        """`address`: where the API server is reached, and so are nodes. `node`: a real node's name, if there is one."""
        self.folder, self.address, self.node = folder, address, node
        folder.mkdir(parents=True, exist_ok=True)
        self.etcd_port, self.port = free_port(), free_port()
        self.url = f"https://{address}:{self.port}"
        hosts = ("localhost", LOOPBACK, "10.0.0.1", "kubernetes.default.svc", address)
        self.authority = Authority(folder)
        self._certificate = self.authority.issue("kube-apiserver", tuple(dict.fromkeys(hosts)))
        self._accounts = self.authority.issue("service-accounts")
        self.tokens = {user: f"{user.replace(':', '-')}-token" for user in self.users()}
        lines = [f'{self.tokens[user]},{user},{user},"{group}"' for user, group in self.users().items()]
        (folder / "tokens.csv").write_text("\n".join(lines) + "\n")
        self.kubeconfig = self.kubeconfig_of("admin")
        self.etcd = Server("etcd", self._etcd(), folder)
        self.api = Server("kube-apiserver", self._api(), folder)
        self.manager = Server("kube-controller-manager", self._manager(), folder)
        self.scheduler = Server("kube-scheduler", self._scheduler(), folder)
        self._direct = Api(self.url, self.tokens["admin"], self.authority.file)
        self._provisioner: Provisioner | None = None

    def users(self) -> dict[str, str]:
        nodes = {f"system:node:{self.node}": "system:nodes"} if self.node else {}
        return {**PEOPLE, **_PARTS, **nodes}

    # what runs

    def servers(self) -> list[Server]:
        """In the order in which they are started; killed in the opposite one."""
        return [self.etcd, self.api, self.manager, self.scheduler]

    def start(self) -> None:
        self.etcd.start()
        wait_for("etcd answers", self._etcd_answers)
        self.start_api()
        self.manager.start()
        self.scheduler.start()
        self._provisioner = Provisioner(self._direct, self.folder / "volumes", self.node)
        self._provisioner.start()
        self.apply(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
                "provisioner": "enmasse.io/test",
            }
        )

    def stop(self) -> None:
        if self._provisioner is not None:
            self._provisioner.end()
        for server in reversed(self.servers()):
            server.kill()

    def kill_api(self) -> None:
        """SIGKILL: connections to the API server break, new ones are refused until `start_api`."""
        self.api.kill()

    def start_api(self) -> None:
        """Returns when the API server is ready."""
        self.api.start()
        wait_for("the API server is ready", self._api_ready)

    def restart_api(self) -> None:
        """Kill it and start it again on the same port. A watch then goes on, if nothing was written meanwhile."""
        self.kill_api()
        self.start_api()

    def compact(self) -> None:
        """Nobody can go on from where he was: each watch that resumes, and each page after the first, is 410 Gone.

        The API server is away meanwhile. It begins again with an empty cache of watches, after the present revision.
        """
        self.kill_api()
        revision = self._etcd_do("put", {"key": _encoded("enmasse-test"), "value": _encoded("x")})
        self._etcd_do("compaction", {"revision": revision, "physical": True})
        self.start_api()
        # For it a pod that was deleted and made anew meanwhile would be the old one, and get no node.
        self.scheduler.kill()
        self.scheduler.start()

    # commands

    def kubectl(self, *arguments: str, user: str = "admin", stdin: str | None = None) -> str:
        """What it writes. `user`: as in `token`. Raises Refused."""
        command = [binary("kubectl"), f"--kubeconfig={self.kubeconfig_of(user)}", *arguments]
        return self._run(command, stdin)

    def warned(self, *arguments: str, user: str = "admin", stdin: str | None = None) -> str:
        """What kubectl writes to its standard error: the API server's warnings. Raises Refused."""
        command = [binary("kubectl"), f"--kubeconfig={self.kubeconfig_of(user)}", *arguments]
        return _finished(command, stdin, self.environment()).stderr

    def apply(self, *manifests: dict[str, Any], namespace: str | None = None, user: str = "admin") -> str:
        """`kubectl apply` of these objects."""
        text = "\n---\n".join(json.dumps(manifest) for manifest in manifests)
        place = ["--namespace", namespace] if namespace else []
        return self.kubectl("apply", *place, "-f", "-", user=user, stdin=text)

    def get(self, kind: str, name: str = "", *, namespace: str | None = None, selector: str = "") -> Any:
        """An object, or without `name` the list of those that `selector` chooses, as decoded JSON."""
        try:
            return self._direct.get(kind, name, namespace or "default", selector)
        except (OSError, http.client.HTTPException) as error:
            raise Refused(f"get {kind} {name}: {error}") from error

    def helm(self, *arguments: str, user: str = "admin", stdin: str | None = None) -> str:
        """What it writes. Raises Refused."""
        return self._run([binary("helm"), *arguments, f"--kubeconfig={self.kubeconfig_of(user)}"], stdin)

    def namespace(self, prefix: str = "test", security: str = "restricted") -> str:
        """A new one, with its service account; its Pods must keep to the pod security standard `security`."""
        name = f"{prefix}-{os.getpid()}-{next(_numbers)}"
        label = "pod-security.kubernetes.io"
        labels = {f"{label}/enforce": security, f"{label}/warn": security}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        with self._direct.ask("POST", "/api/v1/namespaces", body):
            pass
        wait_for(f"the service account of {name}", lambda: self.get("serviceaccounts", namespace=name))
        return name

    def token(self, user: str) -> str:
        """Of one of PEOPLE, or of the service account NAME in the namespace N, as `N/NAME`."""
        if user not in self.tokens:
            namespace, _, name = user.partition("/")
            self.tokens[user] = self.kubectl("create", "token", name, "--namespace", namespace).strip()
        return self.tokens[user]

    def kubeconfig_of(self, user: str) -> Path:
        """A file with the context `test`; its namespace is `default`."""
        file = self.folder / f"{user.replace('/', '.')}.kubeconfig"
        if not file.exists():
            content = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [
                    {"name": "test", "cluster": {"server": self.url, "certificate-authority": str(self.authority.file)}}
                ],
                "users": [{"name": user, "user": {"token": self.token(user)}}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
                "current-context": "test",
            }
            file.write_text(json.dumps(content))
        return file

    def client(self, user: str = "admin") -> ApiClient:
        """A client of the package `kubernetes`, of its own."""
        from kubernetes import config

        return config.new_client_from_config(config_file=str(self.kubeconfig_of(user)))

    def openapi(self) -> Any:
        """The description of all that the API server serves, resource definitions too (OpenAPI 2)."""
        return json.loads(self.kubectl("get", "--raw", "/openapi/v2"))

    def define_routes(self) -> None:
        """From now on the API server knows OpenShift's Route."""
        self.kubectl("apply", "-f", str(Path(__file__).parent / "manifests" / "route.yaml"))
        self.kubectl("wait", "--for=condition=Established", "crd/routes.route.openshift.io", "--timeout=60s")
        wait_for("Route is described", lambda: "route.openshift.io" in json.dumps(self.openapi()["paths"]))

    def schemas(self) -> Path:
        """A folder of JSON schemas of all that the API server serves at this moment, for `schemas.check`."""
        folder = Path(tempfile.mkdtemp(prefix="schemas-", dir=self.folder))
        schemas.write(self.openapi(), folder)
        return folder

    def environment(self) -> dict[str, str]:
        """For commands: the context of `admin`, and folders of their own."""
        homes = {name: str(self.folder / "helm" / name) for name in ("cache", "config", "data")}
        helm = {f"HELM_{name.upper()}_HOME": home for name, home in homes.items()}
        return {**os.environ, **helm, "KUBECACHEDIR": str(self.folder / "kubectl"), "KUBECONFIG": str(self.kubeconfig)}

    # inside

    def _run(self, command: list[str], stdin: str | None) -> str:
        return _finished(command, stdin, self.environment()).stdout

    def _etcd(self) -> list[str]:
        here, peers = f"http://{LOOPBACK}:{self.etcd_port}", f"http://{LOOPBACK}:{free_port()}"
        return [
            binary("etcd"),
            "--name=test",
            "--data-dir=etcd",
            f"--listen-client-urls={here}",
            f"--advertise-client-urls={here}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=test={peers}",
            "--unsafe-no-fsync",  # only a crash of the machine would lose something
            "--logger=zap",
            "--log-level=warn",
        ]

    def _api(self) -> list[str]:
        certificate, key = self._certificate
        public, signing = self._accounts
        return [
            binary("kube-apiserver"),
            f"--etcd-servers=http://{LOOPBACK}:{self.etcd_port}",
            f"--bind-address={LOOPBACK if self.node is None else '0.0.0.0'}",
            f"--advertise-address={self.address}",
            # an address of loopback is refused as an endpoint
            f"--endpoint-reconciler-type={'none' if self.node is None else 'lease'}",
            f"--secure-port={self.port}",
            f"--cert-dir={self.folder}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--client-ca-file={self.authority.file}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            f"--service-account-key-file={public}",
            f"--service-account-signing-key-file={signing}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={SERVICES}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
        ]

    def _manager(self) -> list[str]:
        return [
            binary("kube-controller-manager"),
            f"--kubeconfig={self.kubeconfig_of('system:kube-controller-manager')}",
            f"--service-account-private-key-file={self._accounts[1]}",
            f"--root-ca-file={self.authority.file}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=500",  # with the defaults the first service accounts take five seconds
            "--kube-api-burst=1000",
        ]

    def _scheduler(self) -> list[str]:
        return [
            binary("kube-scheduler"),
            f"--kubeconfig={self.kubeconfig_of('system:kube-scheduler')}",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ]

    def _etcd_answers(self) -> bool:
        self.etcd.alive()
        try:
            # limit: it is asked again
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self.etcd_port}/health", timeout=5) as answer:
                return b"true" in answer.read()
        except (OSError, http.client.HTTPException):
            return False

    def _api_ready(self) -> bool:
        self.api.alive()
        tls = ssl.create_default_context(cafile=str(self.authority.file))
        try:
            # limit: it is asked again
            with urllib.request.urlopen(f"https://{LOOPBACK}:{self.port}/readyz", timeout=5, context=tls) as answer:
                return bool(answer.status == 200)
        except (OSError, http.client.HTTPException):
            return False

    def _etcd_do(self, operation: str, body: dict[str, Any]) -> int:
        """An operation on keys by etcd's HTTP gateway. Returns the revision after it."""
        request = urllib.request.Request(f"http://{LOOPBACK}:{self.etcd_port}/v3/kv/{operation}")
        with urllib.request.urlopen(request, json.dumps(body).encode(), timeout=DEADLINE) as answer:
            return int(json.load(answer)["header"]["revision"])


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _finished(command: list[str], stdin: str | None, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, input=stdin or "", capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        shown = " ".join([Path(command[0]).name, *command[1:]])
        raise Refused(f"{shown}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done
