"""`enmasse status`, `address` and `flavor` for an installation in a Kubernetes cluster: --namespace, and --kube-context
of a kubeconfig or --api with the URL of the API server."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from enmasse.cli.common import UNREACHABLE, end, report
from enmasse.cli.configuration.kinds import CONFLICTS, UNCHANGED, Kind
from enmasse.cli.contexts.contexts import in_force
from enmasse.cli.contexts.remote import is_from_environment

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Unreachable(Exception):
    """The cluster does not answer, or has no installation; the text says what to do."""


class Place(NamedTuple):
    """A namespace of a cluster: that of a kubeconfig's context (None: the current one), or of an API server by URL."""

    namespace: str
    context: str | None = None
    api: str | None = None
    token_file: str | None = None
    authority: str | None = None


def options(function: F) -> F:
    """The options that name a cluster; the command gets them as `place`: None without --namespace."""

    @functools.wraps(function)
    def command(
        namespace: str | None,
        kube_context: str | None,
        api: str | None,
        api_token_file: str | None,
        api_ca: str | None,
        **more: Any,
    ) -> Any:
        alone = [name for name, value in (("kube_context", kube_context), ("api", api)) if value is not None]
        if namespace is None and not all(map(is_from_environment, alone)):
            raise click.UsageError("--kube-context and --api need --namespace")
        if kube_context is not None and api is not None:
            raise click.UsageError("give --kube-context or --api, not both")
        if api is not None and (api_token_file is None or not api.startswith("https://")):
            raise click.UsageError("--api takes a URL that begins with https://, and needs --api-token-file")
        if namespace is not None:
            place: Place | None = Place(namespace, kube_context, api, api_token_file, api_ca)
        else:
            place = _of_context()
        return function(place=place, **more)

    for name, metavar, text in (
        ("--api-ca", "FILE", "PEM file with the authority of the API server, if the system does not trust it."),
        ("--api-token-file", "FILE", "File with a token for --api."),
        ("--api", "URL", "URL of the API server, instead of a kubeconfig (with --namespace)."),
        ("--kube-context", "NAME", "Context of the kubeconfig (with --namespace)."),
        ("--namespace", "NAME", "Work on the installation in this namespace of a Kubernetes cluster."),
    ):
        command = click.option(name, metavar=metavar, help=text)(command)
    return command  # type: ignore[return-value]  # click's decorators return what they decorate


def _of_context() -> Place | None:
    """Return the namespace of the context in force, if it has one."""
    context = in_force()
    if context is None or context.namespace is None:
        return None
    return Place(context.namespace, context.kube_context)


class Part(NamedTuple):
    """One key of a ConfigMap. `kind`: addresses or flavors."""

    kind: str
    config_map: dict[str, Any]
    key: str
    text: str

    def __str__(self) -> str:
        return f"configmap/{self.config_map['metadata']['name']}/{self.key}"

    @property
    def file(self) -> str:
        """The file that this is a part of."""
        return f"{self.kind}.json"


class Installation:
    """Installation in one namespace, as the commands use it. All methods raise Unreachable."""

    def __init__(self, place: Place) -> None:
        from enmasse.kubernetes.api_server import ApiServer, connect
        from enmasse.process.runner import Fatal

        self.namespace = place.namespace
        server = None
        if place.api is not None:
            server = ApiServer(place.api, _token(place.token_file or ""), place.authority or "")
        try:
            self._api = connect(place.context, place.namespace, server=server)
        except Fatal as error:
            raise Unreachable(str(error)) from None

    def config_maps(self, selector: str, *usual: str) -> dict[str, dict[str, Any]]:
        """Return ConfigMaps by name. Users without the right to list them get those named in `usual`.

        Raises Unreachable.
        """
        from enmasse.kubernetes.api_server import CONFIG_MAP, ApiError

        try:
            return {item["metadata"]["name"]: item for item in self._api.read_all(CONFIG_MAP, selector)[0]}
        except ApiError as error:
            if error.status != 403:
                raise Unreachable(str(error)) from None
        try:
            found = [self._api.get(CONFIG_MAP, name) for name in usual]
        except ApiError as error:
            raise Unreachable(str(error)) from None
        return {item["metadata"]["name"]: item for item in found if item is not None}

    def configuration(self) -> dict[str, dict[str, Any]]:
        """Return the ConfigMaps with configuration. Raises Unreachable if none exist."""
        from enmasse.kubernetes.config_maps import SELECTOR
        from enmasse.kubernetes.labels import CONFIG_MAPS

        found = self.config_maps(SELECTOR, "enmasse-addresses", "enmasse-flavors")
        # Without the right to list, these two are known. That of the flavors names the others.
        annotations = found.get("enmasse-flavors", {}).get("metadata", {}).get("annotations") or {}
        named = {name for name in annotations.get(CONFIG_MAPS, "").split(",") if name}
        if more := sorted(named - found.keys()):
            found |= self.config_maps(SELECTOR, *more)
        if not found:
            raise Unreachable(
                f"EnMasse is not installed in namespace {self.namespace}: no ConfigMap there has the label"
                " enmasse.io/config; --namespace and --kube-context select another one"
            )
        return found

    def status(self) -> dict[str, Any]:
        """Return the status JSON, in the shape that a suite on this machine gives it, and `omitted`: a line for each
        ConfigMap whose status leaves something out."""
        from enmasse.kubernetes.labels import STATUS_KEY, STATUS_OF, status_name
        from enmasse.supervisor.status import merge

        names = [status_name(name) for name in self.configuration()]
        found = {name: item for name, item in self.config_maps(STATUS_OF, *names).items() if name in names}
        feed: dict[str, Any] = {"config": {}, "addresses": [], "errors": []}
        omitted = []
        for name, item in sorted(found.items()):
            try:
                part = json.loads(item["data"][STATUS_KEY])
                feed["addresses"] += part["addresses"]
                feed["errors"] += part["errors"]
                feed["config"] |= part["config"]
                if text := part.get("omitted"):
                    omitted.append(f"configmap/{name}: {text}")
            except (ValueError, KeyError, TypeError):
                continue
        components = self._components()
        status = merge(components or [], feed if found else None)
        if components == []:  # what was written last is still there, and says nothing of now
            reason = "no pods of EnMasse run here: `enmasse deploy` installs it; addresses show the last known state"
            errors = [{"file": f"namespace {self.namespace}", "reason": reason}, *status["errors"]]
            status |= {"ready": False, "errors": errors}
            status["addresses"] = [{**each, "ready": False} for each in status["addresses"]]
        return {**status, **({"omitted": omitted} if omitted else {})}

    def hashes(self) -> dict[str, str | None]:
        """Return by file the value of `config` in the status when the present ConfigMaps are applied."""
        from enmasse.kubernetes.config_maps import merged
        from enmasse.model.configuration import BROKERS, content_hash

        found = {file: content_hash(content) for file, content in merged(self.configuration()).items()}
        return {file: value for file, value in found.items() if value is not None or file == BROKERS}

    def of_kind(self, kind: str) -> dict[str, dict[str, Any]]:
        """Return the ConfigMaps with addresses or flavors, by name, in the order of their names."""
        from enmasse.kubernetes.config_maps import of_kind

        return of_kind(self.configuration(), kind)

    def parts(self, kind: str) -> list[Part]:
        """Return all parts of ConfigMaps that hold addresses or flavors."""
        return [
            Part(kind, item, key, text)
            for item in self.of_kind(kind).values()
            for key, text in sorted((item.get("data") or {}).items())
            if key.endswith(".json")
        ]

    def home(self, kind: str, config_map: str | None) -> Part:
        """Return the part for a new entry: of the ConfigMap with this name, otherwise of the release's."""
        found = self.of_kind(kind)
        usual = f"enmasse-{kind}"
        name = config_map or (usual if usual in found else min(found, default=""))
        if name not in found:
            known = ", ".join(sorted(found)) or "none"
            end(
                "cluster.configmap.missing",
                f"there is no ConfigMap {name!r} with {kind}; there are {known}. Nothing was changed.",
            )
        data = found[name].get("data") or {}
        key = min((key for key in data if key.endswith(".json")), default=f"{kind}.json")
        return Part(kind, found[name], key, data.get(key, "{}\n"))

    def write(self, part: Part, text: str, force: str | None = None) -> bool:
        """Write a part. Return False on a conflict: the ConfigMap was changed since it was read.

        `force` names a removed address whose messages are deleted. Ends the command if the write is refused.
        """
        from enmasse.kubernetes.api_server import CONFIG_MAP, ApiError
        from enmasse.kubernetes.forced import new, order
        from enmasse.kubernetes.labels import FORCE

        body = {**part.config_map, "data": {**(part.config_map.get("data") or {}), part.key: text}}
        body["metadata"] = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
        if force is not None:
            before = order(body)  # it may not have been read yet
            text = new([*(before.addresses if before is not None else ()), force])
            body["metadata"]["annotations"] = {**(body["metadata"].get("annotations") or {}), FORCE: text}
        try:
            self._api.replace(CONFIG_MAP, body)
        except ApiError as error:
            if error.status == 409:
                return False
            end("cluster.configmap.not-written", f"{part}: cannot be written: {error}; nothing was changed.")
        return True

    def _components(self) -> list[dict[str, Any]] | None:
        """Return the pods as components; None if the user may not list pods."""
        from enmasse.kubernetes.api_server import POD, ApiError
        from enmasse.kubernetes.labels import COMPONENT, PART_OF

        try:
            pods, _ = self._api.read_all(POD, f"{PART_OF}=enmasse,{COMPONENT}")
        except ApiError as error:
            if error.status == 403:  # developers see addresses only
                return None
            raise Unreachable(str(error)) from None
        return components([pod for pod in pods if pod.get("status", {}).get("phase") != "Succeeded"])


def components(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return pods as `components` of the status JSON. Routers, and gateways of a kind, are behind one Service: such a
    pod is redundant while another one is ready."""
    from enmasse.process.service_table import SERVICES

    found = [_component(pod) for pod in pods]
    behind_service = {"router", *(name for name, service in SERVICES.items() if service.is_gateway)}
    ready = Counter(each["kind"] for each in found if each["ready"] and not each["leaving"])
    for each in found:
        others = ready[each["kind"]] - (each["ready"] and not each["leaving"])
        each["redundant"] = each["kind"] in behind_service and others > 0
    return found


def _component(pod: dict[str, Any]) -> dict[str, Any]:
    from enmasse.kubernetes.labels import COMPONENT

    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or []
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())
    waiting = [c["state"]["waiting"] for c in containers if (c.get("state") or {}).get("waiting")]
    detail = "" if ready else "; ".join(w.get("reason", "") for w in waiting) or "not ready"
    return {
        "name": pod["metadata"]["name"],
        "kind": pod["metadata"]["labels"][COMPONENT].replace("-", "_"),
        "pid": None,
        "ready": ready,
        "leaving": "deletionTimestamp" in pod["metadata"],
        "restarts": sum(c.get("restartCount", 0) for c in containers),
        "since": status.get("startTime") or pod["metadata"]["creationTimestamp"],
        "detail": detail,
        "endpoints": {},
    }


def _token(file: str) -> str:
    try:
        with open(file) as found:
            return found.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Unreachable(f"{file}: the token cannot be read: {getattr(error, 'strerror', None) or error}") from None


class ClusterEntries:
    """Entries of one kind in the ConfigMaps of an installation (enmasse/cli/configuration/configured.py). `home`: the
    ConfigMap that new ones go to, None: that of the release."""

    def __init__(self, place: Place, kind: Kind, home: str | None = None) -> None:
        self._place = place
        self._kind = kind
        self._home = home
        self.where = f"namespace {place.namespace}"

    def all(self) -> dict[str, Any]:
        """Return the entries of all ConfigMaps."""
        return _or_end(lambda: self._all(Installation(self._place)))

    def rows(self) -> tuple[dict[str, dict[str, Any]], str]:
        """Return the addresses of the status by name, and the phase of those that are in none."""
        status = _or_end(lambda: Installation(self._place).status())
        phase = "not shown" if status.get("omitted") else "not running"
        return {entry["name"]: entry for entry in status["addresses"]}, phase

    def rest(self, name: str) -> dict[str, Any] | None:
        """Return None: the status comes seconds later, and may be withheld from the caller."""
        return None

    def add(self, name: str, entry: dict[str, Any]) -> str:
        """Add an entry; return the name of the ConfigMap and its key."""
        from enmasse.model import edits

        def edit(there: Installation) -> tuple[Part, str]:
            for part in there.parts(self._kind.plural):
                if name in _entries(part):
                    self._kind.in_use(str(part), name)
            part = there.home(self._kind.plural, self._home)
            _entries(part)
            return part, edits.add(part.text, name, entry)

        return self._edit(edit)

    def change(self, name: str, changed: Callable[[Any, str], dict[str, Any]]) -> str:
        """Replace an entry; return the name of the ConfigMap and its key."""
        from enmasse.model import edits

        def edit(there: Installation) -> tuple[Part, str]:
            for part in there.parts(self._kind.plural):
                found = _entries(part)
                if name in found:
                    return part, edits.replace(part.text, name, changed(found[name], str(part)))
            self._kind.unknown(self.where, name, self._all(there), UNCHANGED)

        return self._edit(edit)

    def remove(self, name: str, *, force: bool = False) -> str:
        """Remove an entry; return the name of its ConfigMap and key. `force`: order at the same time that the messages
        of the address are deleted, also if it was removed before."""
        from enmasse.model import edits

        def edit(there: Installation) -> tuple[Part, str]:
            for part in there.parts(self._kind.plural):
                if name in _entries(part):
                    return part, edits.remove(part.text, name)
            if force and any(entry["name"] == name for entry in there.status()["addresses"]):
                part = there.home(self._kind.plural, None)
                return part, part.text
            self._kind.unknown(self.where, name, self._all(there), UNCHANGED)

        return self._edit(edit, name if force else None, removes=True)

    def force(self, name: str) -> None:
        """Do nothing: the removal has ordered it."""

    def _all(self, there: Installation) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for part in there.parts(self._kind.plural):
            found |= _entries(part)
        return found

    def _edit(
        self, edit: Callable[[Installation], tuple[Part, str]], force: str | None = None, *, removes: bool = False
    ) -> str:
        """Read, change and write a ConfigMap; repeat it after a conflict with another writer."""

        def attempt() -> str:
            there = Installation(self._place)
            for _ in range(CONFLICTS):
                part, text = edit(there)
                problems = _new_problems(there, part, text)
                if problems and not removes:
                    end("configuration.entry.invalid", "\n".join([*problems, "nothing was changed."]))
                for problem in problems:  # such as a dead-letter queue that others name
                    report(f"warning: {problem}")
                if there.write(part, text, force):
                    return str(part)
            end(
                "cluster.configmap.conflict",
                f"{self.where}: conflict: this ConfigMap keeps changing; nothing was written. Try again.",
            )

        return _or_end(attempt)


def _or_end(work: Callable[[], T]) -> T:
    """Return the result. Ends the command if the cluster does not answer."""
    try:
        return work()
    except Unreachable as error:
        end("cluster.api.failed", str(error), UNREACHABLE)


def _entries(part: Part) -> dict[str, Any]:
    """Return the entries of a part. Ends the command if it cannot be read."""
    from enmasse.model.edits import parse

    try:
        return {entry.key: entry.value for entry in parse(part.text)}
    except (ValueError, RecursionError) as error:
        end(
            "configuration.file.not-json",
            f"{part}: is not a JSON object: {error}. Correct it first; nothing was changed.",
        )


def _new_problems(there: Installation, part: Part, text: str) -> list[str]:
    """Return the errors of addresses and flavors that this text adds."""
    from msgspec.structs import replace

    from enmasse.kubernetes.config_maps import merged
    from enmasse.model.addresses import problems_of
    from enmasse.model.configuration import ADDRESSES, FLAVORS
    from enmasse.model.jsonfile import Problem, added
    from enmasse.model.merged import FilePart, MergedDocument

    sources: dict[str, tuple[FilePart, ...]] = {}
    for file, content in merged(there.configuration()).items():
        sources[file] = content if isinstance(content, tuple) else ()

    def problems() -> list[Problem]:
        return problems_of(*(MergedDocument(file, sources[file]) for file in (FLAVORS, ADDRESSES)))

    known = problems()
    others = tuple(source for source in sources[part.file] if source.name != str(part))
    sources[part.file] = (*others, FilePart(str(part), text.encode()))
    return [str(replace(problem, line=None)) for problem in added(problems(), known)]
