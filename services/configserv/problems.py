"""Problems that are not solved yet, with the time of their first occurrence. New ones are logged."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from enmasse.logs import log
from enmasse.model.feeds import ErrorStatus
from enmasse.model.jsonfile import Problem
from enmasse.model.tenants.spaces import split_file

MAX_LOGGED = 100
"""Number of problems of one change of the files that are logged one by one."""

_Key = tuple[str, str | None, str | None, str]


class StandingProblems:
    """The problems of the configuration and the data directory that have not been solved yet."""

    def __init__(self) -> None:
        self._since: dict[_Key, str] = {}
        self._problems: list[Problem] = []

    def set(self, problems: list[Problem]) -> None:
        """Set the present problems; log the new ones."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        new = [problem for problem in problems if _key(problem) not in self._since]
        self._since = {_key(problem): self._since.get(_key(problem), now) for problem in problems}
        self._problems = problems
        for problem in new[:MAX_LOGGED]:
            log.get().warning(
                "configserv.entry.rejected", space=split_file(problem.file).space, **msgspec.structs.asdict(problem)
            )
        if len(new) > MAX_LOGGED:
            log.get().warning("configserv.entries.rejected", count=len(new) - MAX_LOGGED)

    def errors(self) -> list[ErrorStatus]:
        """Return the problems in the form of the feed `status`."""
        return [
            ErrorStatus(
                file=each.file,
                entry=each.entry,
                field=each.field,
                line=each.line,
                reason=each.reason,
                since=self._since[_key(each)],
            )
            for each in self._problems
        ]


def _key(problem: Problem) -> _Key:
    return problem.file, problem.entry, problem.field, problem.reason
