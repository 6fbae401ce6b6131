"""Configuration from the ConfigMaps of a namespace (enmasse/kubernetes/config_maps.py), watched.

Users are in Secrets (mounted_users.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from enmasse.kubernetes.api_server import CONFIG_MAP, Api, ApiError, Object
from enmasse.kubernetes.config_maps import FILES, PREFIX, SELECTOR, Made, file_of, home, merged
from enmasse.kubernetes.forced import ForceOrder, order
from enmasse.kubernetes.labels import CONFIG, SPACE
from enmasse.kubernetes.watch import View
from enmasse.model.configuration import ADDRESSES
from enmasse.model.merged import FilePart, Unreadable
from enmasse.model.names import DEFAULT_SPACE, AddressName, LocalName, full_name
from enmasse.model.names import SPACE as INSIDE
from enmasse.model.tenants.spaces import split_file
from services.configserv.drivers.driver import Contents, Edit, NotWritable
from services.configserv.drivers.mounted_users import MountedUsers
from services.configserv.resources.object_views import CustomResources, ResourceSettings

Kind = Literal["addresses", "flavors", "brokers", "spaces", "plans"]
"""Value of the label of ConfigMaps with configuration."""


class KubernetesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`driver` in the settings. `release`: prefix of the names of the Lease and ConfigMaps of this service.
    `config_maps`: kind (the value of the label) → names of those that the release made for it; `spaces`: address space
    → names of those that it made for the addresses of the space. `users`: the file users.json of a mounted Secret,
    without which no client is let in; None: clients need no credentials. `more_users`: folders of further Secrets.
    `custom_resources`: read these too."""

    kind: Literal["kubernetes"]
    namespace: str
    release: str = "enmasse"
    config_maps: dict[Kind, list[str]] = {}
    spaces: dict[str, list[str]] = {}
    users: str | None = None
    more_users: list[str] = []
    custom_resources: ResourceSettings | None = None

    def made_for(self) -> dict[str, Made]:
        """Return the purpose of each ConfigMap that the release made."""
        found = {name: Made(kind) for kind, names in self.config_maps.items() for name in names}
        return found | {name: Made("addresses", space) for space, names in self.spaces.items() for name in names}


ATTEMPTS = 20
"""Tries to replace a ConfigMap that others change, too."""
POLL = 1.0
"""Seconds between two looks at the users. Kubernetes replaces the files of a Secret in one step, within a minute."""


class ConfigMap(NamedTuple):
    """A ConfigMap with configuration. `file`: the one of which it is a part."""

    name: str
    uid: str
    file: str


class KubernetesDriver:
    """Driver for the ConfigMaps of one namespace."""

    def __init__(
        self,
        settings: KubernetesSettings,
        api: Api,
        resources: CustomResources | None = None,
        *,
        had_users: bool = False,
    ) -> None:
        """`had_users`: as of MountedUsers."""
        self._api = api
        self._resources = resources
        self._made_for = settings.made_for()
        self._view = View(api, CONFIG_MAP, SELECTOR, self._look)
        self._changed: Callable[[Contents], None] | None = None
        self._contents: Contents | None = None
        self._users = (
            None
            if settings.users is None
            else MountedUsers(Path(settings.users), list(map(Path, settings.more_users)), had_users=had_users)
        )
        self._timer: asyncio.TimerHandle | None = None
        self.on_orders: Callable[[dict[str, ForceOrder]], None] = lambda _: None
        """Called with all orders, by ConfigMap, when they may have changed."""

    def start(self, changed: Callable[[Contents], None]) -> None:
        """Start to watch; `changed` is called when all ConfigMaps are known, and after each change."""
        self._changed = changed
        self._view.start()
        if self._resources is not None:
            self._resources.start(self._look)
        if self._users is not None:
            self._look_at_users(self._users)

    @property
    def contents(self) -> Contents:
        return dict(self._contents or {})

    async def edit(self, file: str, edit: Edit) -> None:
        if file not in FILES.values() and split_file(file).file != ADDRESSES:
            text = "users are in a Secret: change users.json with `enmasse user`, and put it there"
            raise NotWritable(f"{text} (docs/kubernetes.md, Users)")
        for _ in range(ATTEMPTS):
            if await asyncio.to_thread(self._edit, file, edit):
                return
        raise NotWritable("the ConfigMap keeps changing; try again")

    async def check(self, file: str, edit: Edit) -> None:
        await self.edit(file, edit)  # which locks nothing, and writes what `edit` returns: nothing

    def _edit(self, file: str, edit: Edit) -> bool:
        """Return False on a conflict: the ConfigMap was changed since it was read. Raises NotWritable."""
        try:
            listed, _ = self._api.read_all(CONFIG_MAP, SELECTOR)
        except ApiError as error:
            raise NotWritable(f"ConfigMaps cannot be read: {error}") from None
        found = {item["metadata"]["name"]: item for item in listed}
        sources = merged(found, self._made_for).get(file)
        further = () if self._resources is None else self._resources.parts.get(file, ())
        if not isinstance(sources, tuple):
            space = split_file(file).space
            labels = f", with the labels {CONFIG}=addresses and {SPACE}={space}" if space != DEFAULT_SPACE else ""
            raise NotWritable(f"there is no ConfigMap for {file}: make one{labels} (docs/kubernetes.md)")
        place = self._home(file, found, [source.name for source in sources])
        if place not in {source.name for source in sources}:
            sources = (*sources, FilePart(place, b"{}"))
        texts = edit((*sources, *further), place)
        for name in texts:
            if name in {each.name for each in further}:
                raise NotWritable(f"{name} is a custom resource: change it there, with kubectl")
        names = {home(name) for name in texts}
        if len(names) > 1:
            raise NotWritable(f"these entries are in several ConfigMaps ({', '.join(sorted(names))}): change one first")
        for name in names:
            item = found[name]
            data = dict(item.get("data") or {})
            for source, text in texts.items():
                key = source.removeprefix(PREFIX).partition("/")[2]
                if key in (item.get("binaryData") or {}):
                    raise NotWritable(f"{source} is not text: correct it first")
                data[key] = text.decode()
            meta = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
            try:
                self._api.replace(CONFIG_MAP, {**item, "metadata": meta, "data": data})
            except ApiError as error:
                if error.status == 409:
                    return False
                raise NotWritable(f"{PREFIX}{name} cannot be written: {error}") from None
        return True

    def _home(self, file: str, found: Mapping[str, Object], sources: list[str]) -> str:
        """Return the source for new entries: of the ConfigMap that the release has made, which may be empty, otherwise
        the first."""
        having = [name for name, item in sorted(found.items()) if file_of(name, item, self._made_for) == file]
        made = [name for name in self._made_for if name in having]
        own = made or having
        return next((each for each in sources if home(each) == own[0]), f"{PREFIX}{own[0]}/{split_file(file).file}")

    async def remove_files(self, space: str) -> None:
        return  # the ConfigMaps of a space are those of a release, or of people: they are reported

    def close(self) -> None:
        self._changed = None
        if self._timer is not None:
            self._timer.cancel()
        self._view.close()
        if self._resources is not None:
            self._resources.close()

    @property
    def problem(self) -> str:
        """Reason for which changes are not seen; empty if they are."""
        return self._view.problem

    def config_maps(self) -> list[ConfigMap]:
        """Return the ConfigMaps with configuration, by name."""
        found = self._view.objects()
        return [
            ConfigMap(name, str(item["metadata"]["uid"]), file_of(name, item, self._made_for))
            for name, item in sorted(found.items())
        ]

    def _look_at_users(self, users: MountedUsers) -> None:
        self._timer = asyncio.get_running_loop().call_later(POLL, self._look_at_users, users)
        if users.has_changed():
            self._look()

    def _look(self) -> None:
        if self._changed is None or not self._view.complete:
            return
        found = self._view.objects()
        contents = merged(found, self._made_for)
        if self._users is not None:
            contents |= self._users.contents()
        if self._resources is not None:
            self._resources.configure(contents)
            if not self._resources.ready:
                return
            contents = joined(contents, self._resources.parts)
        if contents != self._contents:
            self._contents = contents
            self._changed(contents)
        orders = {}
        for name, item in sorted(found.items()):
            space, file = split_file(file_of(name, item, self._made_for))
            if file == ADDRESSES and (each := order(item)) is not None:
                orders[name] = ForceOrder(each.id, tuple(_inside(space, each.addresses)))
        self.on_orders(orders)


def joined(contents: Contents, parts: Mapping[str, tuple[FilePart, ...]]) -> Contents:
    """Return contents with further parts of the files."""
    found = dict(contents)
    for file, more in parts.items():
        own = contents.get(file)
        if isinstance(own, Unreadable):
            own = (FilePart(file, b"", own.reason),)
        elif isinstance(own, bytes):
            own = (FilePart(file, own),)
        found[file] = (*(own or ()), *more)
    return found


def _inside(space: str, names: Iterable[AddressName]) -> Iterator[AddressName]:
    """Yield the full names of addresses as people write them; an order has none of another space."""
    return (full_name(space, LocalName(name)) for name in names if not name.startswith(INSIDE))
