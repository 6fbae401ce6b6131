"""Makes and updates the objects that AddressSpaces are exported to.

The service account has a right to them only if the owner of the namespace has granted it, and an object that is not an
export of the same AddressSpace is never changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from enmasse.kubernetes.api_server import Api, ApiError, Object
from enmasse.process import runner
from services.configserv.resources.endpoints import Export, exports_of, has_content, is_owned, owner
from services.configserv.resources.object_kinds import ADDRESS_SPACE, ResourceKey
from services.configserv.resources.object_views import CustomResources

INTERVAL = 0.5
AGAIN = 60.0
"""Seconds after which all exports are compared again: others may have changed or removed them, or granted the right."""

Problems = Mapping[ResourceKey, Mapping[str, tuple[str, ...]]]
"""AddressSpace → endpoint → why it is not exported."""


class EndpointExports:
    """Maker of all exports. `release`: prefix of the names of the release's own objects. `on_problems()` is called when
    `problems` has changed."""

    def __init__(
        self, resources: CustomResources, namespace: str, release: str, on_problems: Callable[[], None]
    ) -> None:
        self.problems: Problems = {}
        self._resources = resources
        self._namespace = namespace
        self._release = release
        self._on_problems = on_problems
        self._done: dict[ResourceKey, list[Export]] = {}
        self._since = 0.0
        self._wake = asyncio.Event()
        self._task = runner.spawn(self._run(), "exports of address spaces")

    def changed(self) -> None:
        """Check whether there is something else to export."""
        self._wake.set()

    def close(self) -> None:
        """Stop making and changing objects."""
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            await runner.woken(self._wake, AGAIN)
            if (now := asyncio.get_running_loop().time()) >= self._since + AGAIN:
                self._since = now
                self._done.clear()
            if self._resources.ready:
                await self._export()
            await asyncio.sleep(INTERVAL)

    async def _export(self) -> None:
        authority = self._resources.authority()
        done: dict[ResourceKey, list[Export]] = {}
        problems: dict[ResourceKey, Mapping[str, tuple[str, ...]]] = {}
        for key, item in self._resources.objects().items():
            became = self._resources.became.get(key)
            if key.kind != ADDRESS_SPACE or became is None or became.reason:
                continue
            exports = exports_of(item, self._resources.endpoints_of(key.name), authority)
            if not exports:
                continue
            if self._done.get(key) == exports:
                found = self.problems.get(key, {})
            else:
                found = await asyncio.to_thread(self._put_all, key, item, exports)
            done[key] = exports
            if found:
                problems[key] = found
        self._done = done
        if problems != self.problems:
            self.problems = problems
            self._on_problems()

    def _put_all(self, key: ResourceKey, item: Object, exports: list[Export]) -> dict[str, tuple[str, ...]]:
        """Return the reasons for which exports are not there, by endpoint. In a thread."""
        found: dict[str, tuple[str, ...]] = {}
        for export in exports:
            if reason := self._put(key, item, export):
                found[export.endpoint] = (*found.get(export.endpoint, ()), reason)
        return found

    def _put(self, key: ResourceKey, item: Object, export: Export) -> str:
        api, what = self._resources.api(key.namespace), f"{export.kind.name} {export.name!r}"
        if key.namespace == self._namespace and export.name.startswith(f"{self._release}-"):
            return f"is not exported to the {what}: names of the release itself begin so; choose another one"
        try:
            return self._put_object(api, item, export, what)
        except ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                return f"is not exported to the {what}: {error}"
            return (
                f"is not exported to the {what}: allow the service account {self._release}-configserv of the namespace "
                f"{self._namespace} to create {export.kind.plural}, and to get and update this one "
                "(docs/custom-resources.md, Endpoints)"
            )

    def _put_object(self, api: Api, item: Object, export: Export, what: str) -> str:
        """Create or update one object; return why that is not right. Raises ApiError."""
        found = api.get(export.kind, export.name)
        whole: dict[str, Any] = {"apiVersion": export.kind.version, "kind": export.kind.name}
        if found is None:
            metadata = {"name": export.name, "ownerReferences": [owner(item)]}
            api.create(export.kind, {**whole, "metadata": metadata, **export.content})
            return ""
        if not is_owned(found, item):
            return f"is not exported to the {what}: it is there already and not an export of this object; remove it"
        if not has_content(found, export.content):
            merged = dict(export.content)
            if "spec" in merged:
                merged["spec"] = {**found["spec"], **merged["spec"]}
            metadata = {key: value for key, value in found["metadata"].items() if key != "managedFields"}
            api.replace(export.kind, {**whole, **found, "metadata": metadata, **merged})
        return ""
