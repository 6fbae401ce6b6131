"""Requests to the API server: objects are decoded JSON. All calls block: from an event loop, use a thread."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from enmasse.process.runner import Fatal
from enmasse.storage.decoding import decode_any

Object = dict[str, Any]
PAGE = 500
"""Objects of one page of a list."""
CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 20.0
MAX_ANSWER = 512 * 1024 * 1024
EXTRA = "the package `kubernetes` is missing; install it with: pip install '.[kubernetes]' in the checkout"
_ACCOUNT_NAMESPACE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


class ObjectKind(NamedTuple):
    """A kind of namespaced object: its API version and the name in paths."""

    version: str
    plural: str
    name: str


CONFIG_MAP = ObjectKind("v1", "configmaps", "ConfigMap")
SECRET = ObjectKind("v1", "secrets", "Secret")
SERVICE = ObjectKind("v1", "services", "Service")
POD = ObjectKind("v1", "pods", "Pod")
CLAIM = ObjectKind("v1", "persistentvolumeclaims", "PersistentVolumeClaim")
EVENT = ObjectKind("v1", "events", "Event")
STATEFUL_SET = ObjectKind("apps/v1", "statefulsets", "StatefulSet")
BUDGET = ObjectKind("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget")
LEASE = ObjectKind("coordination.k8s.io/v1", "leases", "Lease")


class ApiError(Exception):
    """A request failed. `status`: of HTTP; 0: no answer. `reason`: as the API server names it (`Conflict`)."""

    def __init__(self, status: int, reason: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.details = details or {}


class Api:
    """Access to the objects of one namespace. Any number of threads may use it."""

    def __init__(self, client: Any, namespace: str, timeout: tuple[float, float]) -> None:
        self.namespace = namespace
        self.guard: Callable[[], None] = lambda: None
        """Called before each change; does not return if this process must not change anything."""
        self._client = client
        self._timeout = timeout

    def of_namespace(self, namespace: str) -> Api:
        """Return access to another namespace, with the same guard."""
        other = Api(self._client, namespace, self._timeout)
        other.guard = lambda: self.guard()
        return other

    @property
    def url(self) -> str:
        """URL of the API server."""
        return str(self._client.configuration.host)

    def get(self, kind: ObjectKind, name: str) -> Object | None:
        """Return the object, or None if it does not exist. Raises ApiError, as all methods do."""
        try:
            return self._json("GET", self._path(kind, name))
        except ApiError as error:
            if error.status == 404 and error.reason == "NotFound":
                return None
            raise

    def read_all(self, kind: ObjectKind, selector: str = "") -> tuple[list[Object], str]:
        """Return all objects that the label selector chooses, at one revision, and its resourceVersion.

        Objects are read in pages. If the revision expires between two pages, everything is read again in one request.
        Raises ApiError.
        """
        try:
            return self._read(kind, selector, PAGE)
        except ApiError as error:
            if error.status != 410:
                raise
            return self._read(kind, selector, 0)

    def _read(self, kind: ObjectKind, selector: str, limit: int) -> tuple[list[Object], str]:
        found: list[Object] = []
        following = ""
        while True:
            query = {"labelSelector": selector, "limit": str(limit) if limit else "", "continue": following}
            page = self._json("GET", self._path(kind), query)
            # An answer without items is no list: taken for an empty one, it would delete everything.
            if not isinstance(page.get("items"), list) or not page.get("metadata", {}).get("resourceVersion"):
                raise ApiError(0, "BadAnswer", f"{self.url} answered a list of {kind.plural} with something else")
            found += page["items"]
            following = page["metadata"].get("continue") or ""
            if not following:
                for item in found:  # items of a list do not say what they are
                    item.update(apiVersion=kind.version, kind=kind.name)
                return found, str(page["metadata"]["resourceVersion"])

    def create(self, kind: ObjectKind, body: Object) -> Object:
        """Create the object and return it as stored. Raises ApiError: status 409 if one of its name exists."""
        return self._change("POST", self._path(kind), {}, body)

    def replace(self, kind: ObjectKind, body: Object) -> Object:
        """Replace the object; with `metadata.resourceVersion` only if it is unchanged (else ApiError, status 409)."""
        return self._change("PUT", self._path(kind, body["metadata"]["name"]), {}, body)

    def apply(self, kind: ObjectKind, body: Object, manager: str, *, force: bool = False) -> Object:
        """Server-side apply. Fields of another manager with other values: 409, with their names in `details`."""
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        whole = {"apiVersion": kind.version, "kind": kind.name, **body}
        return self._change(
            "PATCH", self._path(kind, body["metadata"]["name"]), query, whole, "application/apply-patch+yaml"
        )

    def patch_status(self, kind: ObjectKind, name: str, uid: str, status: Object) -> Object:
        """Set fields of the status of the object with this uid, null ones to nothing; return the object. Raises
        ApiError: status 404 without such an object, 409 if there is a newer one of this name."""
        body = {"metadata": {"uid": uid}, "status": status}
        return self._change("PATCH", f"{self._path(kind, name)}/status", {}, body, "application/merge-patch+json")

    def delete(self, kind: ObjectKind, name: str, uid: str) -> None:
        """Delete the object with this uid.

        A newer object of the same name stays; a missing one is not an error. Raises ApiError for any other refusal.
        """
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            self._change("DELETE", self._path(kind, name), {}, body)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    def events(self, kind: ObjectKind, selector: str, version: str, seconds: int) -> Iterator[tuple[str, Object]]:
        """Yield the changes since `version` as (type, object); the API server ends the watch after `seconds`.

        Returns when the API server has accepted the request. Raises ApiError, then or later: 410 if `version` is too
        old, status 0 if the connection was lost.
        """
        query = {
            "watch": "true",
            "labelSelector": selector,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        answer = self._request("GET", self._path(kind), query, None, None, (CONNECT_SECONDS, seconds + ANSWER_SECONDS))
        return _events(answer, self.url)

    # inside

    def _path(self, kind: ObjectKind, name: str = "") -> str:
        root = "/api" if "/" not in kind.version else "/apis"
        path = f"{root}/{kind.version}/namespaces/{quote(self.namespace, safe='')}/{kind.plural}"
        return f"{path}/{quote(name, safe='')}" if name else path

    def _change(
        self, method: str, path: str, query: Mapping[str, str], body: Object, content: str = "application/json"
    ) -> Object:
        self.guard()
        return self._json(method, path, query, body, content)

    def _json(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content: str = "application/json",
    ) -> Object:
        answer = self._request(method, path, query or {}, body, content, self._timeout)
        with _failures(self.url):
            data = answer.read(MAX_ANSWER)
            answer.release_conn()
        return _object(data, self.url)

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Object | None,
        content: str | None,
        timeout: tuple[float, float],
    ) -> Any:
        """Return the urllib3 response of a request that succeeded."""
        headers = {"Accept": "application/json"}
        if content is not None:
            headers["Content-Type"] = content
        with _failures(self.url):
            self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
            given = urlencode({key: value for key, value in query.items() if value})
            url = f"{self._client.configuration.host}{path}{'?' if given else ''}{given}"
            answer = self._client.rest_client.request(
                method, url, headers=headers, body=body, _request_timeout=timeout
            ).response
            if 200 <= answer.status < 300:
                return answer
            data = answer.read(1024 * 1024)
            answer.release_conn()
        raise _refusal(answer.status, data)


@contextlib.contextmanager
def _failures(url: str) -> Iterator[None]:
    """Turn errors of the connection into ApiError."""
    from urllib3.exceptions import HTTPError

    try:
        yield
    except (HTTPError, OSError) as error:
        raise ApiError(0, "Unreachable", f"the API server {url} does not answer: {_short(error)}") from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "kubernetes":
            raise
        raise ApiError(0, "Unreachable", f"no request can be made to {url}: {_short(error)}") from None


def _short(error: BaseException) -> str:
    """Return the innermost reason, without the names of objects of the libraries."""
    while isinstance(inner := getattr(error, "reason", None) or error.__cause__, BaseException):
        error = inner
    text = " ".join(str(error).rpartition("object at 0x")[2].split())
    return (text.partition(": ")[2] or text or type(error).__name__)[:300]


def _refusal(status: int, data: bytes) -> ApiError:
    if status == HTTPStatus.UNAUTHORIZED:  # its own message is this one word
        text = "the API server does not accept these credentials (Unauthorized): log in again, or name another token"
        return ApiError(status, "Unauthorized", f"{text} or context")
    try:
        body = decode_any(data)
        return ApiError(status, str(body["reason"]), str(body["message"]), body.get("details"))
    except (ValueError, KeyError, TypeError):
        text = data[:200].decode(errors="replace").strip()
        return ApiError(status, "", f"the API server answered with status {status}: {text}")


def _object(data: bytes, url: str) -> Object:
    try:
        found = decode_any(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ApiError(0, "BadAnswer", f"{url} answered with something that is no JSON object")
    return found


def _events(answer: Any, url: str) -> Iterator[tuple[str, Object]]:
    with contextlib.closing(answer):  # what was not read makes the connection useless
        yield from parsed(answer.stream(65536, decode_content=True), url)


def parsed(pieces: Iterator[bytes], url: str) -> Iterator[tuple[str, Object]]:
    """The events of a watch that `url` answers, of which the bytes come in any pieces. Raises ApiError."""
    rest = b""
    with _failures(url):
        for piece in pieces:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if not line.strip():
                    continue
                event = _object(line, url)
                type_, found = event.get("type"), event.get("object")
                if type_ == "ERROR":
                    raise _refusal(int((found or {}).get("code") or 500), json.dumps(found).encode())
                if not isinstance(type_, str) or not isinstance(found, dict):
                    raise ApiError(0, "BadAnswer", f"{url} sent an event without type or object")
                yield type_, found
    if rest.strip():
        raise ApiError(0, "Unreachable", f"{url} broke off in the middle of an event")


class ApiServer(NamedTuple):
    """An API server without a kubeconfig. `token`: of a user or service account. `authority`: a PEM file with the
    authority of its certificate; empty: those that the system trusts."""

    url: str
    token: str
    authority: str = ""


_imported = threading.Lock()


def connect(
    context: str | None = None,
    namespace: str | None = None,
    *,
    server: ApiServer | None = None,
    timeout: tuple[float, float] = (CONNECT_SECONDS, ANSWER_SECONDS),
) -> Api:
    """Return access to the API server: `server`, or that of `context` in the kubeconfig, or that of this pod.

    `namespace`: by default the one of the pod or context.

    Outside of a pod, or with `context`, the kubeconfig is that of kubectl: $KUBECONFIG, else ~/.kube/config.
    `timeout`: seconds to connect, and for an answer. Raises process.Fatal, in one line.
    """
    with _imported:
        try:
            from kubernetes import client, config
        except ImportError:
            raise Fatal("cluster.client.missing", EXTRA) from None
    found = client.Configuration()
    try:
        inside = context is None and server is None and _in_cluster(config, found)
        if server is not None:
            found.host, found.ssl_ca_cert = server.url.rstrip("/"), server.authority or None
            found.api_key["authorization"] = f"Bearer {server.token}"
        elif not inside:
            config.load_kube_config(context=context, client_configuration=found, persist_config=False)
            namespace = namespace or _namespace_of(config, context)
        elif namespace is None:
            with open(_ACCOUNT_NAMESPACE) as file:
                namespace = file.read().strip()
    except Exception as error:  # a kubeconfig may hold anything, and the library raises any error for it
        which = f"context {context!r}: " if context else ""
        reason = " ".join((str(error) or type(error).__name__).split()).rstrip(".")
        raise Fatal(
            "cluster.context.missing",
            f"no Kubernetes cluster: {which}{reason}; name a context of your kubeconfig"
            " (`kubectl config get-contexts` lists them), or set KUBECONFIG",
        ) from None
    found.retries = False  # the caller decides about retries
    found.connection_pool_maxsize = 16
    return Api(client.ApiClient(found), namespace or "default", timeout)


def _in_cluster(config: Any, found: Any) -> bool:
    try:
        config.load_incluster_config(client_configuration=found)
    except config.ConfigException:
        return False
    return True


def _namespace_of(config: Any, context: str | None) -> str | None:
    contexts, current = config.list_kube_config_contexts()
    for each in contexts:
        if each["name"] == (context or current["name"]):
            found = each["context"].get("namespace")
            return str(found) if found else None
    return None
