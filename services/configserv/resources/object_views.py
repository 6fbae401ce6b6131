"""The custom resources of all namespaces, watched and mapped in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from enmasse.kubernetes.api_server import Api, Object
from enmasse.kubernetes.watch import View
from enmasse.model.merged import Content, FilePart
from enmasse.process import runner
from services.configserv.resources.endpoints import ServiceEndpoint
from services.configserv.resources.object_kinds import (
    ADDRESS,
    ADDRESS_SPACE,
    OF_OPERATORS,
    OF_TENANTS,
    USER,
    ResourceKey,
    generation,
)
from services.configserv.resources.object_mapping import Became, MappedResources, ResourceMapping, Unread
from services.configserv.resources.object_passwords import Stored, UserPasswords

INTERVAL = 0.25
"""Seconds between two mappings of all objects."""
FIRST = 10.0
"""Seconds after which the configuration is read without the objects that cannot be listed."""
SECRETS = 60.0
"""Seconds after which Secrets with passwords are read again."""


class ResourceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`namespaces`: those whose objects are read, beside the release's own → names of the address spaces that each may
    have, and no other. `endpoints`: service of an endpoint → where clients reach it; `own`: the same for what an
    address space has of its own. `authority`: file with the certificate that they trust. `hosts`: those of the release,
    which an AddressSpace of another namespace cannot have.
    """

    namespaces: dict[str, list[str]] = {}
    endpoints: dict[str, ServiceEndpoint] = {}
    own: dict[str, dict[str, ServiceEndpoint]] = {}
    authority: str | None = None
    hosts: list[str] = []


class CustomResources:
    """Reader of the custom resources. `changed()` is called after `parts` has changed, first when all are known."""

    def __init__(self, settings: ResourceSettings, api: Api, stored: Stored, *, users: bool) -> None:
        """`stored`: as of UserPasswords; `users`: as of ResourceMapping."""
        self.changed: Callable[[], None] = lambda: None
        self.on_spaces: Callable[[], None] = lambda: None
        """Called after an AddressSpace has changed, also in what is no part of a file."""
        self._spaces: Mapping[ResourceKey, tuple[Any, int]] = {}
        self.mapped = MappedResources({}, {})
        self.ready = False
        """Whether `parts` can be used."""
        assigned = {space: name for name, own in settings.namespaces.items() for space in own}
        self._endpoints, self._own = settings.endpoints, settings.own
        self._authority = settings.authority
        self._mapping = ResourceMapping(
            api.namespace, assigned, UserPasswords(stored), users=users, hosts=frozenset(settings.hosts)
        )
        names = dict.fromkeys([api.namespace, *settings.namespaces])
        self._apis = {name: api.of_namespace(name) for name in names}
        self._views = {
            (kind, name): View(self._apis[name], kind, "", self._wake, specifications=True)
            for name in names
            for kind in (*OF_TENANTS, *(OF_OPERATORS if name == api.namespace else ()))
        }
        self._contents: Mapping[str, Content] = {}
        self._event = asyncio.Event()
        self._late = False
        self._task: asyncio.Task[None] | None = None

    def start(self, changed: Callable[[], None]) -> None:
        """Begin to watch."""
        self.changed = changed
        for view in self._views.values():
            view.start()
        self._task = runner.spawn(self._run(), "custom resources")

    def close(self) -> None:
        """Stop calling `changed`."""
        for view in self._views.values():
            view.close()
        if self._task is not None:
            self._task.cancel()

    def configure(self, contents: Mapping[str, Content]) -> None:
        """Take the contents of the ConfigMaps, which name flavors and plans."""
        if contents != self._contents:
            self._contents = contents
            self._wake()

    @property
    def parts(self) -> Mapping[str, tuple[FilePart, ...]]:
        """Return the parts of files that the objects are."""
        return self.mapped.parts

    @property
    def became(self) -> Mapping[ResourceKey, Became]:
        """Return what each object became."""
        return self.mapped.became

    def taken(self, contents: Mapping[str, Content]) -> Callable[[ResourceKey], bool]:
        """Return a function that says of an object whether these contents have what it became. Addresses and users are
        looked at one by one, as others of them may be made all the time."""
        if not self.ready:
            return lambda key: False
        if all(_ends_with(contents.get(file), parts) for file, parts in self.parts.items()):
            return lambda key: True
        became, present, there = self.became, _by_name(self.parts.values()), _by_name(contents.values())

        def is_taken(key: ResourceKey) -> bool:
            name = became[key].source
            return key.kind in (ADDRESS, USER) and present.get(name) == there.get(name)

        return is_taken

    def endpoints_of(self, space: str) -> dict[str, ServiceEndpoint]:
        """Return where clients of an address space reach each service."""
        return {**self._endpoints, **self._own.get(space, {})}

    def authority(self) -> bytes:
        """Return the certificate that clients trust, in PEM; empty without one."""
        try:
            return b"" if self._authority is None else Path(self._authority).read_bytes()
        except OSError:
            return b""

    def api(self, namespace: str) -> Api:
        """Return access to a namespace."""
        return self._apis[namespace]

    def objects(self) -> dict[ResourceKey, Object]:
        """Return all objects as last seen."""
        return {
            ResourceKey(kind, namespace, name): item
            for (kind, namespace), view in self._views.items()
            for name, item in view.objects().items()
        }

    def put(self, key: ResourceKey, item: Object) -> None:
        """Take over the answer to a request of this process."""
        self._views[key.kind, key.namespace].put(item)

    def _wake(self) -> None:
        self._event.set()

    async def _run(self) -> None:
        first = asyncio.get_running_loop().call_later(FIRST, self._is_late)
        try:
            while True:
                try:
                    async with asyncio.timeout(SECRETS):
                        await self._event.wait()
                except TimeoutError:
                    pass
                self._event.clear()
                unread = self._unread()
                if self._contents and (not unread or self._late):
                    await self._map(unread)
                await asyncio.sleep(INTERVAL)
        finally:
            first.cancel()

    async def _map(self, unread: Sequence[Unread]) -> None:
        contents, objects = self._contents, self.objects()
        found = await asyncio.to_thread(self._mapping.mapped, objects, contents, self._apis, unread)
        different = found != self.mapped or not self.ready
        self.mapped, self.ready = found, True
        if different:
            self.changed()
        spaces = {
            key: (item["metadata"].get("uid"), generation(item))
            for key, item in objects.items()
            if key.kind == ADDRESS_SPACE
        }
        if spaces != self._spaces:
            self._spaces = spaces
            self.on_spaces()

    def _is_late(self) -> None:
        self._late = True
        self._wake()

    def _unread(self) -> list[Unread]:
        return [
            Unread(kind, namespace, view.problem or "the API server does not answer yet")
            for (kind, namespace), view in self._views.items()
            if not view.complete
        ]


def _by_name(contents: Iterable[Content]) -> dict[str, FilePart]:
    return {part.name: part for content in contents if isinstance(content, tuple) for part in content}


def _ends_with(content: Content, parts: tuple[FilePart, ...]) -> bool:
    return isinstance(content, tuple) and content[len(content) - len(parts) :] == parts
