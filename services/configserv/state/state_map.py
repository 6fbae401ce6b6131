"""State of configserv in a ConfigMap of its own, and users in Secrets (user_secrets.py): a pod has no disk that its
successor sees.

Requests are made in threads. A change is saved before it is published (`loading`), so a successor knows everything that
was published; a save that has failed is tried again.
"""

from __future__ import annotations

import asyncio
import binascii
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from enmasse.kubernetes.api_server import CONFIG_MAP, Api, ApiError, Object
from enmasse.kubernetes.forced import ForceOrder
from enmasse.kubernetes.labels import MANAGED_BY
from enmasse.logs import log
from enmasse.model.configuration import AppliedState
from enmasse.model.jsonfile import Problem
from enmasse.model.names import AddressName
from enmasse.process import runner
from services.configserv.state.store import ForcedNames, decoded, has_its_flavors
from services.configserv.state.user_secrets import (
    MANAGER,
    MAX_BYTES,
    UserSecrets,
    packed,
    read,
    unpacked,
    without_users,
)

CONFIGURATION, FORCED, DAMAGED = "configuration.json.gz", "forced.json.gz", ".damaged"
T = TypeVar("T")


class StateMap:
    """The ConfigMap `name` (a Store)."""

    def __init__(self, api: Api, name: str, labels: dict[str, str], *, users: bool = False) -> None:
        """`users`: there are Secrets of the same name, for the hashes of passwords, and issuers with their secrets."""
        self._api = api
        self._users = UserSecrets(api, name, {**labels, MANAGED_BY: MANAGER}) if users else None
        self._name = name
        self._labels = {**labels, MANAGED_BY: MANAGER}
        self._data: dict[str, str] = {}
        self._forced: list[AddressName] = []
        self._orders: dict[str, str] = {}
        self._state: AppliedState | None = None
        """The state that is saved, or being saved."""
        self._problem = ""
        self._writing: asyncio.Task[None] | None = None
        self._changed = False
        self._saving: list[Callable[[], None]] = []
        """Called after the next write."""

    async def open(self) -> None:
        """Read the ConfigMap, and the Secrets. Raises process.Fatal if they cannot be read: the service must not start
        without them."""
        found = await asyncio.to_thread(read, self._api, CONFIG_MAP, self._name)
        self._data = dict(found.get("binaryData") or {})
        if self._users is not None:
            await asyncio.to_thread(self._users.open)

    @property
    def has_users(self) -> bool:
        """Whether there has been a users.json."""
        return self._users is not None and self._users.known

    async def save(self, state: AppliedState) -> None:
        """Save this; a failure is added to the problems."""
        if state != self._state or self._problem:
            self._state = state
            if self._users is not None:
                self._users.put(state)
            self._put(CONFIGURATION, msgspec.json.encode(without_users(state)))
        if self._writing is not None:
            await asyncio.wait([self._writing])

    # as a Store

    def configuration(self) -> AppliedState:
        """Return the last good configuration; an empty one at a first start. Damaged parts are set aside. Raises Fatal
        for the state of a newer version."""
        state = self._load(CONFIGURATION, AppliedState)
        if state is not None and not has_its_flavors(state):
            self._set_aside(CONFIGURATION, "it has addresses of flavors that it does not have")
            state = None
        state = state or AppliedState()
        if self._users is not None:
            state = self._users.added_to(state)
        self._state = state
        return state

    def forced(self) -> list[AddressName]:
        """Return the forced addresses as saved."""
        found = self._load(FORCED, ForcedNames) or ForcedNames()
        self._forced, self._orders = found.addresses, dict(found.orders)
        return found.addresses

    def carry_out(
        self, orders: Mapping[str, ForceOrder], force: Callable[[str, Iterable[AddressName]], object]
    ) -> None:
        """Force the addresses of new orders; the ids of orders that were carried out are saved.

        `orders`: of each ConfigMap. `force(ConfigMap, addresses)` saves what is forced.
        """
        for name, each in orders.items():
            if self._orders.get(name) != each.id:
                log.get().info("configserv.force.ordered", by=f"configmap/{name}", addresses=len(each.addresses))
                self._orders[name] = each.id
                force(name, each.addresses)
                self.save_forced(self._forced, lambda: None)

    def save_forced(self, names: list[AddressName], done: Callable[[], None]) -> None:
        """Save the forced addresses; call `done` once they are saved, or cannot be, which is then a problem."""
        self._forced = names
        self._saving.append(done)
        self._put(FORCED, msgspec.json.encode(ForcedNames(addresses=names, orders=self._orders)))

    @property
    def has_configuration(self) -> bool:
        """Whether the last save succeeded; if not, configserv saves again."""
        return not self._problem

    def problems(self) -> list[Problem]:
        """Return the problems of the stored state: parts that were set aside, and why it cannot be saved."""
        where = f"configmap/{self._name}"
        found = [
            Problem(
                file=f"{where}/{key.partition(DAMAGED)[0]}",
                reason=f"was damaged and is kept under the key {key}; an entry that is invalid now has lost its last"
                " valid version. Remove that key when you have seen it",
            )
            for key in sorted(self._data)
            if DAMAGED in key
        ]
        if self._problem:
            found.append(Problem(file=where, reason=f"the configuration cannot be saved: {self._problem}"))
        return found

    # inside

    def _load(self, key: str, kind: type[T]) -> T | None:
        text = self._data.get(key)
        if text is None:
            return None
        try:
            return decoded(unpacked(text), kind, f"configmap/{self._name}/{key}")
        except (ValueError, zlib.error, binascii.Error) as error:
            self._set_aside(key, str(error))
            return None

    def _set_aside(self, key: str, reason: str) -> None:
        """Keep damaged data under another key, for repair by hand."""
        kept = next(name for n in range(1000) if (name := f"{key}{DAMAGED}{n or ''}") not in self._data)
        self._data[kept] = self._data.pop(key)
        log.get().error("configserv.data.set-aside", file=f"configmap/{self._name}/{key}", reason=reason, kept=kept)

    def _put(self, key: str, data: bytes) -> None:
        self._data[key] = packed(data)
        self._changed = True
        if self._writing is None:
            self._writing = runner.spawn(self._write(), "save")

    async def _write(self) -> None:
        try:
            while self._changed:
                self._changed = False
                saved, self._saving = self._saving, []
                self._problem = await self._applied()
                for done in saved:
                    done()
        finally:
            self._writing = None

    async def _applied(self) -> str:
        """Write the ConfigMap; return why that failed, "" if it did not."""
        size = sum(map(len, self._data.values()))
        if size > MAX_BYTES:
            return f"it takes {size} bytes, and a ConfigMap holds 1 MiB; use fewer addresses"
        body: Object = {
            "metadata": {"name": self._name, "labels": self._labels},
            "binaryData": dict(self._data),
        }
        try:
            if self._users is not None:  # before the rest: what was published must be saved
                reason = await asyncio.to_thread(self._users.save)
                if reason:
                    return reason
            # Only the leader writes here; changes made by people are overwritten.
            await asyncio.to_thread(self._api.apply, CONFIG_MAP, body, MANAGER, force=True)
        except ApiError as error:
            return str(error)
        return ""
