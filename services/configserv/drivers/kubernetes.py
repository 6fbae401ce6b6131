"""Configuration from the ConfigMaps of a namespace (enmasse/kubernetes/config_maps.py), watched.

Users are in a Secret, which this service may not read by the API: it is mounted, and looked at again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from enmasse.kubernetes.api import CONFIG_MAP, Api, ApiError, Object
from enmasse.kubernetes.config_maps import FILES, PREFIX, SELECTOR, home, kind_of, merged, of_kind
from enmasse.kubernetes.forced import ForceOrder, order
from enmasse.kubernetes.watch import View
from enmasse.model.configuration import ISSUERS, USERS
from enmasse.model.merged import Content, FilePart, Unreadable
from services.configserv.drivers.directory import Signature, content, signature
from services.configserv.drivers.driver import Contents, Edit, NotWritable


class KubernetesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`driver` in the settings. `release`: prefix of the names of the Lease and ConfigMaps of this service.
    `config_maps`: kind (the value of the label) → names of those that the release made for it. `users`: the file
    users.json of a mounted Secret, without which no client is let in; None: clients need no credentials. issuers.json
    of the same Secret is read too."""

    kind: Literal["kubernetes"]
    namespace: str
    release: str = "enmasse"
    config_maps: dict[Literal["addresses", "flavors", "brokers"], list[str]] = {}
    users: str | None = None


ATTEMPTS = 20
"""Tries to replace a ConfigMap that others change, too."""
POLL = 1.0
"""Seconds between two looks at the users. Kubernetes replaces the files of a Secret in one step, within a minute."""
_NONE = b"{}"
_GONE = Unreadable("the Secret with the key users.json is gone: make it again (docs/kubernetes.md, Users)")


class ConfigMap(NamedTuple):
    """A ConfigMap with configuration."""

    name: str
    uid: str
    file: str


class KubernetesDriver:
    """Driver for the ConfigMaps of one namespace."""

    def __init__(self, settings: KubernetesSettings, api: Api, *, had_users: bool = False) -> None:
        """`had_users`: there has been a users.json, so that a missing one is an error; before, it means no users."""
        self._had_users = had_users
        self._api = api
        self._made_for = {name: kind for kind, names in settings.config_maps.items() for name in names}
        self._view = View(api, CONFIG_MAP, SELECTOR, self._look)
        self._changed: Callable[[Contents], None] | None = None
        self._contents: Contents | None = None
        self._users = None if settings.users is None else Path(settings.users)
        self._seen: tuple[Signature, Signature] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.on_orders: Callable[[dict[str, ForceOrder]], None] = lambda _: None
        """Called with all orders, by ConfigMap, when they may have changed."""

    def start(self, changed: Callable[[Contents], None]) -> None:
        """Start to watch; `changed` is called when all ConfigMaps are known, and after each change."""
        self._changed = changed
        self._view.start()
        if self._users is not None:
            self._look_at_users(self._users)

    @property
    def contents(self) -> Contents:
        return dict(self._contents or {})

    async def edit(self, file: str, edit: Edit) -> None:
        if file not in FILES.values():
            text = "users are in a Secret: change users.json with `enmasse user`, and put it there"
            raise NotWritable(f"{text} (docs/kubernetes.md, Users)")
        for _ in range(ATTEMPTS):
            if await asyncio.to_thread(self._edit, file, edit):
                return
        raise NotWritable("the ConfigMap keeps changing; try again")

    def _edit(self, file: str, edit: Edit) -> bool:
        """Return False on a conflict: the ConfigMap was changed since it was read. Raises NotWritable."""
        try:
            listed, _ = self._api.read_all(CONFIG_MAP, SELECTOR)
        except ApiError as error:
            raise NotWritable(f"ConfigMaps cannot be read: {error}") from None
        found = {item["metadata"]["name"]: item for item in listed}
        sources = merged(found, self._made_for).get(file)
        if not isinstance(sources, tuple):
            raise NotWritable(f"there is no ConfigMap for {file}")
        place = self._home(file, found, [source.name for source in sources])
        if place not in {source.name for source in sources}:
            sources = (*sources, FilePart(place, b"{}"))
        texts = edit(sources, place)
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
        made = [name for name, kind in self._made_for.items() if FILES[kind] == file and name in found]
        own = made or [
            name for name, item in sorted(found.items()) if FILES[kind_of(name, item, self._made_for)] == file
        ]
        return next((each for each in sources if home(each) == own[0]), f"{PREFIX}{own[0]}/{file}")

    def close(self) -> None:
        self._changed = None
        if self._timer is not None:
            self._timer.cancel()
        self._view.close()

    @property
    def problem(self) -> str:
        """Reason for which changes are not seen; empty if they are."""
        return self._view.problem

    def config_maps(self) -> list[ConfigMap]:
        """Return the ConfigMaps with configuration, by name."""
        found = self._view.objects()
        return [
            ConfigMap(name, str(item["metadata"]["uid"]), FILES[kind_of(name, item, self._made_for)])
            for name, item in sorted(found.items())
        ]

    def _content_of_users(self, file: Path) -> Content:
        found = content(file)
        self._had_users = self._had_users or found is not None
        if found is None:
            return _GONE if self._had_users else _NONE
        return found

    def _look_at_users(self, file: Path) -> None:
        self._timer = asyncio.get_running_loop().call_later(POLL, self._look_at_users, file)
        now = signature(file), signature(file.with_name(ISSUERS))
        if now != self._seen:
            self._seen = now
            self._look()

    def _look(self) -> None:
        if self._changed is None or not self._view.complete:
            return
        found = self._view.objects()
        contents = merged(found, self._made_for)
        if self._users is not None:
            contents[USERS] = self._content_of_users(self._users)
            contents[ISSUERS] = content(self._users.with_name(ISSUERS))
        if contents != self._contents:
            self._contents = contents
            self._changed(contents)
        self.on_orders(
            {name: each for name, item in of_kind(found, "addresses").items() if (each := order(item)) is not None}
        )
