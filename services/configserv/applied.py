"""The configuration in force: made from the files over the last good one, and kept on disk."""

from __future__ import annotations

import asyncio

from enmasse.model.configuration import Applied, AppliedState, Content, apply
from enmasse.model.jsonfile import Problem
from services.configserv.store import Store


class AppliedConfiguration:
    """`now`: what applies. `disk_problems`: what is wrong in the data directory."""

    def __init__(self, store: Store) -> None:
        self.now = Applied(state=store.configuration())
        self.disk_problems: list[Problem] = store.problems()
        self._store = store
        self._saved = self.now.state
        self._saving = asyncio.Lock()

    @property
    def state(self) -> AppliedState:
        return self.now.state

    @property
    def problems(self) -> list[Problem]:
        """Of the files, then of the data directory."""
        return [*self.now.problems, *self.disk_problems]

    def compute(self, contents: dict[str, Content]) -> Applied:
        """What applies with the files as they are now. Changes nothing; any thread may ask."""
        return apply(contents, self.now.state)

    def take(self, now: Applied) -> Applied:
        """This applies from now on. Gives what applied before."""
        before, self.now = self.now, now
        return before

    async def save(self, state: AppliedState) -> None:
        """Save this, unless it is saved already, and look at the data directory. What fails is a problem there."""
        async with self._saving:
            problems: list[Problem] = []
            if state.complete and not (state == self._saved and self._store.has_configuration):
                try:
                    await self._store.save(state)
                except OSError as error:
                    # What runs goes on; after a restart the files are read again, and only entries that are invalid by
                    # then miss their last good version.
                    reason = f"cannot be saved in the data directory: {error.strerror}; free space or make it writable"
                    problems.append(Problem(file="configuration.json", reason=reason))
                else:
                    self._saved = state
            self.disk_problems = [*self._store.problems(), *problems]
