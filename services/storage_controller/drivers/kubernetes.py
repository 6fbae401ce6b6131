"""The Kubernetes driver: a StatefulSet a broker, by server-side apply; what runs is read from the cache of a watch.

It changes and deletes only objects that bear its label, and nothing in them that is not its own. What a person has
changed of its own fields is put back; what another controller applies too is reported. A broker's volume is deleted
with the broker and in no other case: the controller gives up a broker only when it holds nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from enmasse.engines import EMBEDDED, choices
from enmasse.engines.engine import AMQP
from enmasse.kubernetes.api_server import (
    BUDGET,
    CLAIM,
    CONFIG_MAP,
    POD,
    SERVICE,
    STATEFUL_SET,
    Api,
    ApiError,
    Object,
    ObjectKind,
)
from enmasse.kubernetes.labels import BROKER, COMPONENT, INSTANCE, MANAGED_BY, MESH
from enmasse.kubernetes.warning_events import WarningEvents
from enmasse.kubernetes.watch import View
from enmasse.logs import log
from enmasse.process.runner import Fatal
from services.storage_controller.drivers import pod_status
from services.storage_controller.drivers.driver import DesiredBroker, DriverError, Manifest, RunningBroker
from services.storage_controller.drivers.objects import (
    APPLIED,
    IDENTITY_VOLUME,
    MANAGER,
    MANIFEST,
    Place,
    TemplatesError,
    applied_hash,
    budget_name,
    claim_name,
    decoded,
    object_name,
    objects,
    read_templates,
)

T = TypeVar("T")
Marks = dict[str, str]
"""Plural of a kind → digest of the broker's object of that kind."""


class KubernetesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="kubernetes"):
    """`driver` in the settings. `templates`: a file. `owner`: a ConfigMap of the release that owns created objects."""

    namespace: str
    templates: str
    release: str = "enmasse"
    engine: str = EMBEDDED
    owner: str = ""

    def __post_init__(self) -> None:
        choices.broker(self.engine)


class KubernetesDriver:
    """Brokers in the pods of one namespace (a BrokerDriver)."""

    def __init__(self, settings: KubernetesSettings, api: Api, events: WarningEvents) -> None:
        """Raises process.Fatal if the templates cannot be used."""
        self.engine = choices.broker(settings.engine)
        self._settings = settings
        self._api = api
        self._events = events
        self._owner_name = settings.owner or f"{settings.release}-storage-controller"
        try:
            self._templates = read_templates(settings.templates)
        except TemplatesError as error:
            raise Fatal("controller.settings.invalid", str(error)) from None
        self._mine = f"{MANAGED_BY}={MANAGER},{INSTANCE}={settings.release}"
        self._stale = True
        self._complete = asyncio.Event()
        self._views = {
            kind: View(api, kind, selector, self._changed)
            for kind, selector in (
                (STATEFUL_SET, self._mine),
                (SERVICE, self._mine),
                (CONFIG_MAP, self._mine),
                (BUDGET, self._mine),
                (POD, f"{INSTANCE}={settings.release},{COMPONENT}=broker"),
            )
        }
        routers = f"{INSTANCE}={settings.release},{COMPONENT}=router"
        self._routers = View(api, STATEFUL_SET, routers, self._look_at_routers)
        self._manifests: dict[str, Manifest] = {}
        """Broker → manifest that is applied, or to be applied again."""
        self._marks: dict[str, Marks] = {}
        """Broker → digests of its objects right after they were applied."""
        self._runs: dict[str, str] = {}
        self._running: dict[str, RunningBroker] = {}
        self._log = log.get()

    async def start(self) -> None:
        """Wait until all existing objects are listed, for as long as the API server is away."""
        for view in (*self._views.values(), self._routers):
            view.start()
        await self._complete.wait()

    def close(self) -> None:
        for view in (*self._views.values(), self._routers):
            view.close()

    @property
    def problem(self) -> str:
        """Why what runs may be seen late; empty if it is not."""
        return next((view.problem for view in self._views.values() if view.problem), "")

    # a BrokerDriver

    def manifest(self, broker: DesiredBroker) -> Manifest:
        settings = {"persisted": broker.persisted, "global_max_size": broker.memory, **broker.limits_and_defaults()}
        template = self._templates.get(broker.template) or self._templates["default"]
        content = {"engine": self.engine.name, "settings": settings, "template": template}
        storage = claim_name(self._name(broker.name)) if broker.persisted else None
        return Manifest(broker.flavor, storage, json.loads(json.dumps(content)))

    async def applied(self) -> tuple[dict[str, Manifest], dict[str, str]]:
        found: dict[str, Manifest] = {}
        damaged: dict[str, str] = {}
        sets = self._views[STATEFUL_SET].objects()
        for name, item in sets.items():
            self._read(item, f"statefulset/{name}", found, damaged)
        claims, _ = await self._call(lambda: self._api.read_all(CLAIM, self._mine))
        for item in claims:
            metadata = item["metadata"]
            if metadata.get("labels", {}).get(BROKER) not in sets and "deletionTimestamp" not in metadata:
                # It holds messages: that its StatefulSet is gone does not make it a new broker.
                self._read(item, f"persistentvolumeclaim/{metadata['name']}", found, damaged)
        owner = await self._owner()
        for broker, manifest in found.items():
            self._manifests.setdefault(broker, manifest)
            self._mark_equal(broker, manifest, owner)
        return found, damaged

    async def apply(self, name: str, manifest: Manifest) -> None:
        owner = await self._owner()
        there = self._views[STATEFUL_SET].objects().get(self._name(name))
        kept = there if there is not None else await self._get(CLAIM, claim_name(self._name(name)))
        if kept is not None and (refusal := self._of_another_engine(kept)):
            raise DriverError(f"{self._name(name)}: {refusal}")
        wanted = objects(self._place(owner), name, manifest, _claim_of(there))
        for kind, body in wanted:
            await self._refuse_foreign(kind, body["metadata"]["name"])
        marks: Marks = {}
        for kind, body in wanted:
            answer = await self._apply(kind, body)
            self._views[kind].put(answer)
            marks[kind.plural] = _mark(answer)
        self._manifests[name], self._marks[name] = manifest, marks
        self._stale = True

    async def delete(self, name: str) -> None:
        owner = await self._owner()
        own = self._name(name)
        before = self._manifests.get(name)
        for kind in (STATEFUL_SET, SERVICE, CONFIG_MAP):
            found = await self._get(kind, own)
            if found is not None:
                await self._delete(kind, found, owner)
        if before is not None and not self._used(before.flavor, own):
            budget = await self._get(BUDGET, budget_name(self._settings.release, before.flavor))
            if budget is not None:
                await self._delete(BUDGET, budget, owner)
        claim = await self._get(CLAIM, claim_name(own))
        if claim is not None and self._is_ours(claim) and claim["metadata"].get("annotations", {}).get(BROKER) == name:
            uid = str(claim["metadata"]["uid"])
            await self._call(lambda: self._api.delete(CLAIM, claim_name(own), uid))
        for kept in (self._manifests, self._marks, self._runs):
            kept.pop(name, None)
        self._stale = True

    async def altered(self) -> list[str]:
        return [name for name in self._manifests if self._is_altered(name)]

    async def running(self) -> Mapping[str, RunningBroker]:
        if self._stale:
            self._stale = False
            sets, found = self._views[STATEFUL_SET].objects(), self._views[POD].objects()
            self._running = {
                broker: self._see(broker, item, found.get(pod_status.pod_name(name)))
                for name, item in sets.items()
                if (broker := _broker(item))
            }
        return self._running

    def still_needed(self, name: str) -> None:
        item = self._views[STATEFUL_SET].objects().get(self._name(name))
        if item is not None:
            text = f"broker {name} is to go and may have addresses or messages: it goes when it has none"
            self._events.warn(item, "StillNeeded", text)

    # existing objects

    def _changed(self) -> None:
        self._stale = True
        if all(view.complete for view in self._views.values()):
            self._complete.set()

    def _look_at_routers(self) -> None:
        """Warn about several routers that form no mesh: the chart refuses them, but `kubectl scale` does not."""
        for item in self._routers.objects().values():
            alone = (item["metadata"].get("annotations") or {}).get(MESH) == "none"
            if alone and item["spec"].get("replicas", 1) > 1:
                text = "without identity.enabled routers form no mesh, messages reach clients of one only: scale to 1"
                self._events.warn(item, "SeveralRouters", text)

    def _read(self, item: Object, where: str, found: dict[str, Manifest], damaged: dict[str, str]) -> None:
        broker = _broker(item)
        if not broker:
            return
        try:
            if refusal := self._of_another_engine(item):
                raise ValueError(refusal)
            found[broker] = _applied(item)
        except ValueError as error:
            damaged[broker] = f"{where}: {error}"

    def _of_another_engine(self, item: Object) -> str:
        """Return why this StatefulSet or claim must not be touched; empty if it is of this engine, or names none."""
        try:
            engine = _applied(item).content["engine"]
        except ValueError:
            return ""
        if engine == self.engine.name:
            return ""
        return (
            f"it is of engine {engine}, and this installation makes brokers of engine {self.engine.name}: set the"
            " engine back until it holds nothing"
        )

    def _mark_equal(self, broker: str, manifest: Manifest, owner: Object) -> None:
        """Mark objects that equal the manifest as applied; the others count as altered and are applied again."""
        name = self._name(broker)
        there = self._views[STATEFUL_SET].objects().get(name)
        marks: Marks = {}
        for kind, body in objects(self._place(owner), broker, manifest, _claim_of(there)):
            live = self._views[kind].objects().get(body["metadata"]["name"])
            if live is None or not _includes(live, body):
                return
            marks[kind.plural] = _mark(live)
        self._marks[broker] = marks

    def _is_altered(self, broker: str) -> bool:
        marks = self._marks.get(broker)
        if marks is None:
            return True
        flavor = self._manifests[broker].flavor
        for kind in (STATEFUL_SET, SERVICE, CONFIG_MAP, BUDGET):
            name = budget_name(self._settings.release, flavor) if kind is BUDGET else self._name(broker)
            live = self._views[kind].objects().get(name)
            if live is None or (marks[kind.plural] != _mark(live) and kind is not BUDGET):
                return True
        return False

    def _see(self, broker: str, item: Object, pod: Object | None) -> RunningBroker:
        name = item["metadata"]["name"]
        found = pod_status.seen(item, pod, APPLIED, IDENTITY_VOLUME)
        replicas = item["spec"].get("replicas", 1)
        if replicas == 0:
            self._runs.pop(broker, None)
            self._events.warn(item, "ScaledToZero", f"broker {broker} does not run: its addresses wait for it")
        elif found.run:
            self._runs[broker] = found.run
        if replicas > 1:
            self._events.warn(
                item,
                "ScaledAboveOne",
                f"only the first pod is broker {broker}; scale this to 1, and for more brokers raise BROKERS",
            )
        manifest = self._manifests.get(broker)
        current = manifest is None or found.applied in ("", applied_hash(manifest))
        host = f"{name}.{self._settings.namespace}.svc"
        run = self._runs.get(broker, "")
        return RunningBroker(host, AMQP, found.ready, found.detail, run, current, replicas == 0, found.authenticates)

    def _used(self, flavor: str, but: str) -> bool:
        return any(self._name(name) != but and manifest.flavor == flavor for name, manifest in self._manifests.items())

    # requests

    def _name(self, broker: str) -> str:
        return object_name(self._settings.release, broker)

    def _place(self, owner: Object) -> Place:
        return Place(self._settings.release, self._settings.namespace, owner)

    async def _call(self, request: Callable[[], T]) -> T:
        """Make a request in a thread and return its result. Raises DriverError."""
        try:
            return await asyncio.to_thread(request)
        except ApiError as error:
            raise DriverError(str(error)) from None

    async def _get(self, kind: ObjectKind, name: str) -> Object | None:
        return await self._call(lambda: self._api.get(kind, name))

    async def _owner(self) -> Object:
        """Return the owner of the brokers' objects. A recreated owner has a new uid, which applied objects then get."""
        found = await self._get(CONFIG_MAP, self._owner_name)
        if found is None:
            raise DriverError(f"configmap/{self._owner_name}, which is to own the brokers, is missing: make it")
        return found

    def _is_ours(self, found: Object) -> bool:
        labels = found["metadata"].get("labels") or {}
        return bool(labels.get(MANAGED_BY) == MANAGER and labels.get(INSTANCE) == self._settings.release)

    async def _refuse_foreign(self, kind: ObjectKind, name: str) -> None:
        if name in self._views[kind].objects():
            return
        found = await self._get(kind, name)
        if found is not None and not self._is_ours(found):
            text = f"{kind.name.lower()}/{name} does not belong to this release: rename it, or delete it"
            self._events.warn({"apiVersion": kind.version, "kind": kind.name, **found}, "NameTaken", text)
            raise DriverError(text)

    async def _apply(self, kind: ObjectKind, body: Object) -> Object:
        try:
            return await asyncio.to_thread(self._api.apply, kind, body, MANAGER)
        except ApiError as error:
            causes = [c for c in error.details.get("causes") or () if c.get("reason") == "FieldManagerConflict"]
            if error.status != 409 or not causes:
                raise DriverError(f"{kind.name.lower()}/{body['metadata']['name']}: {error}") from None
        fields = ", ".join(sorted({str(cause.get("field")) for cause in causes})[:5])
        who = ", ".join(sorted({_manager(cause) for cause in causes}))
        found = self._views[kind].objects().get(body["metadata"]["name"])
        about = found or {"apiVersion": kind.version, "kind": kind.name, **body}
        # A manager that applies a field keeps claiming it; an update changed it once and can be reverted.
        if any(" using " not in str(cause.get("message")) for cause in causes):
            text = f"{kind.name.lower()}/{body['metadata']['name']}: {who} applies {fields} with other values: end that"
            self._events.warn(about, "Conflict", text)
            raise DriverError(text)
        self._events.warn(about, "PutBack", f"{fields}, changed by {who}, belongs to {MANAGER} and is put back")
        return await self._call(lambda: self._api.apply(kind, body, MANAGER, force=True))

    async def _delete(self, kind: ObjectKind, found: Object, owner: Object) -> None:
        metadata = found["metadata"]
        owners = metadata.get("ownerReferences") or ()
        if not self._is_ours(found) or all(each.get("name") != owner["metadata"]["name"] for each in owners):
            self._log.warning("controller.object.kept", kind=kind.name, name=metadata["name"])
            return
        await self._call(lambda: self._api.delete(kind, metadata["name"], str(metadata["uid"])))


def _broker(item: Object) -> str:
    return str((item["metadata"].get("annotations") or {}).get(BROKER, ""))


def _applied(item: Object) -> Manifest:
    """Return the manifest that the object was made from. Raises ValueError."""
    return decoded((item["metadata"].get("annotations") or {}).get(MANIFEST, ""))


def _claim_of(stateful_set: Object | None) -> dict[str, Any] | None:
    """Return the existing volume claim template: the API server refuses a change of it."""
    claims = (stateful_set or {}).get("spec", {}).get("volumeClaimTemplates") or [None]
    return {key: value for key, value in claims[0].items() if key != "status"} if claims[0] else None


def _manager(cause: Mapping[str, Any]) -> str:
    parts = str(cause.get("message")).split('"')
    return parts[1] if len(parts) > 1 else "another manager"


def _mark(live: Object) -> str:
    """Return a digest of every field that must not change; the number of pods is the users' to choose."""
    metadata = live["metadata"]
    spec = {key: value for key, value in (live.get("spec") or {}).items() if key != "replicas"}
    parts = [metadata.get("uid"), metadata.get("labels"), metadata.get("annotations"), metadata.get("ownerReferences")]
    text = json.dumps([*parts, spec, live.get("data")], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _includes(live: Any, wanted: Any) -> bool:
    """Return True if `live` contains all of `wanted`; fields that the API server added are ignored."""
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(key in live and _includes(live[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return (
            isinstance(live, list)
            and len(live) == len(wanted)
            and all(_includes(one, other) for one, other in zip(live, wanted, strict=True))
        )
    return bool(live == wanted)
