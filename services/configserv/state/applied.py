"""The configuration in force, made from the files and the last good configuration, and kept on disk."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import Final

import msgspec

from enmasse.model.configuration import SPACES, Applied, AppliedState, apply
from enmasse.model.jsonfile import Problem
from enmasse.model.merged import Content
from enmasse.model.users import Known
from enmasse.storage.disk_errors import disk_error
from services.configserv.state.store import Store

_BY_CHART: Final = {
    "gateways": "has no effect in a cluster: name the space in the value mqttGateway.spaces of the chart",
    "routers": "has no effect in a cluster: name the space in the value router.spaces of the chart",
}
"""Field of an entry of spaces.json that is about processes of one machine → why it has no effect."""


class AppliedConfiguration:
    """The configuration in force (`now`), and the problems of the data directory (`disk_problems`)."""

    def __init__(self, store: Store, *, in_cluster: bool = False) -> None:
        """`in_cluster`: processes are those of the chart."""
        state = store.configuration()
        self.now = Applied(state=state, changed=list(state.addresses))
        self.disk_problems: list[Problem] = store.problems()
        self._store = store
        self._saved = self.now.state
        self._saving = asyncio.Lock()
        self._known_users: Known = {}
        self._in_cluster = in_cluster
        self.left: Mapping[str, str] = {}
        """Removed address space → its remains, as text."""

    @property
    def state(self) -> AppliedState:
        """The entries in force, as saved."""
        return self.now.state

    @property
    def problems(self) -> list[Problem]:
        """Problems of the files, then of the data directory."""
        return [*self.now.problems, *self.disk_problems]

    def compute(self, contents: dict[str, Content]) -> Applied:
        """Return the configuration that follows from these files. May be called in any thread, one call at a time."""
        applied = apply(contents, self.now, self._known_users, self.left)
        if applied.state.tenants is not msgspec.UNSET and "" in applied.state.tenants.ending.values():
            tenants = applied.state.tenants
            ending = {name: id or secrets.token_hex(8) for name, id in tenants.ending.items()}
            tenants = msgspec.structs.replace(tenants, ending=ending)
            applied = msgspec.structs.replace(applied, state=msgspec.structs.replace(applied.state, tenants=tenants))
        if self._in_cluster and applied.state.tenants is not msgspec.UNSET:
            spaces = applied.state.tenants.spaces.items()
            without = [
                Problem(file=SPACES, entry=name, field=field, reason=reason, applies=True)
                for name, each in spaces
                for field, reason in _BY_CHART.items()
                if getattr(each.space, field)
            ]
            applied = msgspec.structs.replace(applied, problems=[*applied.problems, *without])
        if (applied.state.anonymous and not applied.judged) or applied.state.salt_key:
            return applied
        state = msgspec.structs.replace(applied.state, salt_key=secrets.token_bytes(32))
        return msgspec.structs.replace(applied, state=state)

    def take(self, now: Applied) -> Applied:
        """Put a configuration in force; return the one before."""
        before, self.now = self.now, now
        return before

    async def save(self, state: AppliedState) -> None:
        """Save this, unless it is saved already, and check the data directory. A failure becomes a problem there."""
        async with self._saving:
            problems: list[Problem] = []
            if state.complete and not (state == self._saved and self._store.has_configuration):
                try:
                    await self._store.save(state)
                except OSError as error:
                    # The configuration stays in force. After a restart the files are read again, and only entries that
                    # are invalid by then miss their last good version.
                    reason = f"cannot be saved in the data directory: {disk_error(error)}"
                    problems.append(Problem(file="configuration.json", reason=reason))
                else:
                    self._saved = state
            self.disk_problems = [*self._store.problems(), *problems]
