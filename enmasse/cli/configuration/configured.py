"""Entries of addresses, flavors and users that commands read and change, which no command writes in another way: by the
console of a running suite, in a context, in the ConfigMaps of a cluster, or in the files themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, NoReturn, Protocol

from enmasse.cli.common import UNREACHABLE, done, end, report, tell
from enmasse.cli.configuration import cluster, entries
from enmasse.cli.configuration.kinds import ADDRESSES, CONFLICTS, SPACES, UNCHANGED, USERS, Kind
from enmasse.cli.contexts.api_problems import refused
from enmasse.cli.contexts.console import Console, LocalConsole, api, console, items, items_if_running, path
from enmasse.cli.contexts.contexts import in_force, space
from enmasse.cli.contexts.folders import edited_folder
from enmasse.model.address_types import TYPES
from enmasse.text import counted, offset_option

KEPT_SECONDS, LOOK = 3.0, 0.05
"""In which a removed address is gone unless it holds messages; between two looks."""
KEPT_KEYS = ("password", "scram", "tokens")
"""Keys of a user that a change through the API keeps if it is without them."""
Changed = Callable[[Any, str], dict[str, Any]]
"""The present entry and its place → the new one; ends the command if that is not possible."""


class Entries(Protocol):
    """Entries of one kind. `where`: their place, for messages. Methods end the command if they are refused."""

    where: str

    def all(self) -> dict[str, Any]:
        """Return the entries by name."""
        ...

    def add(self, name: str, entry: dict[str, Any]) -> str:
        """Add an entry; return the place where it is now."""
        ...

    def change(self, name: str, changed: Changed) -> str:
        """Replace an entry; return its place."""
        ...

    def remove(self, name: str, *, force: bool) -> str:
        """Remove an entry; return the place where it was. `force`: it may have been removed before, and only hold
        messages still; then the place is empty."""
        ...

    def force(self, name: str) -> None:
        """Have the messages of a removed address deleted."""
        ...

    def rest(self, name: str) -> dict[str, Any] | None:
        """Return the row of a removed address, in the shape of the status JSON, None once it is gone; and if it is not
        known."""
        ...


def opened(kind: Kind, config: Path | None, offset: int, place: cluster.Place | None) -> Entries:
    """Return the entries that a command works on. `config`: the folder that the user named."""
    if place is not None:
        return cluster.ClusterEntries(place, kind)
    if (there := at_console(kind, offset)) is not None:
        return there
    folder = edited_folder(config, offset)
    return FileEntries(kind, folder, offset, None if config is not None else LocalConsole(offset))


def removed(there: Entries, name: str, *, force: bool, kind: Kind = ADDRESSES) -> None:
    """Remove an address or a space, with `force` also the messages that it holds, and print both."""
    where = there.remove(name, force=force)
    if where:
        tell(f"removed {name} from {where}")
    if force:
        there.force(name)
        tell(f"what {name} holds is thrown away")
    elif held := _held(there, name):
        report(
            f"{name} holds {counted(held, 'message')}: it stays (Terminating) until they are received. "
            f"`enmasse {kind.noun} remove {quote(name)} --force` deletes them."
        )
    done("", "removed", name=name, place=where or None, forced=force)


def _held(there: Entries, name: str) -> int:
    """Return the number of messages for which a removed address stays."""
    until = time.monotonic() + KEPT_SECONDS
    while (row := there.rest(name)) is not None and time.monotonic() < until:
        if row["phase"] == "Terminating" and row["messages"]:
            return int(row["messages"])
        time.sleep(LOOK)
    return 0


def at_console(kind: Kind, offset: int) -> ContextEntries | None:
    """Return the entries at a console: of a context in force, and of an address space; None: these are of files."""
    context, name = in_force(), space()
    if context is None and name is None:
        return None
    within = "" if name is None else f"space {name}"
    return ContextEntries(kind, offset, " of ".join(filter(None, (within, "" if context is None else str(context)))))


def _runs_on(folder: Path, offset: int) -> bool:
    """Return whether the suite of this machine runs on a folder."""
    from enmasse.cli.contexts.http import NotRunning, suite_info

    try:
        return Path(suite_info(offset)["config_dir"]).samefile(folder)
    except (NotRunning, OSError):
        return False


def users_in(folder: Path, offset: int) -> FileEntries:
    """Return the users of a folder, with the console of the suite if it runs on this folder."""
    return FileEntries(USERS, folder, offset, LocalConsole(offset) if _runs_on(folder, offset) else None)


def running_on(folder: Path, offset: int) -> dict[str, dict[str, Any]]:
    """Return the addresses in the status of the suite that runs on a folder, by name; empty if none does."""
    from enmasse.cli.contexts.http import NotRunning, get_status

    try:
        return {entry["name"]: entry for entry in get_status(offset)["addresses"]} if _runs_on(folder, offset) else {}
    except (NotRunning, OSError):
        return {}


def with_consumers_of_topics(rows: dict[str, dict[str, Any]], offset: int) -> dict[str, dict[str, Any]]:
    """Return rows of the status whose topics have the consumers that the console counts, None if it does not answer:
    in the status MQTT subscriptions are left out."""
    topics = {name for name, row in rows.items() if row["type"] is not None and TYPES[row["type"]].levels}
    told = items_if_running(offset, "addresses?type=topic") if topics else None
    consumers = {} if told is None else {row["name"]: row["stats"]["consumers"] for row in told}
    return {name: {**row, "consumers": consumers.get(name)} if name in topics else row for name, row in rows.items()}


class FileEntries:
    """Entries of a file. `console`: of the suite that may run on it: then it changes the file, through configserv, so
    that a change is in force when the command ends. Users are written here, where their passwords are hashed,
    then the console is asked to wait for the entry."""

    def __init__(self, kind: Kind, folder: Path, offset: int, console: LocalConsole | None) -> None:
        self._kind = kind
        self._folder = folder
        self._offset = offset
        self._file = folder / kind.file
        self._console = console
        self.where = str(self._file)

    def all(self) -> dict[str, Any]:
        """Return the entries by name."""
        return entries.read(self._folder, self._kind)[1]

    @property
    def is_missing(self) -> bool:
        """There is no file: the first entry makes that of users."""
        return not self._file.exists()

    @property
    def in_use(self) -> bool:
        """A suite runs on this folder."""
        return self._console is not None

    @property
    def is_gone(self) -> bool:
        """The suite runs on this folder, and has entries of a file that is gone: they stay in force."""
        from enmasse.cli.contexts.http import NotRunning, get_status

        if not self.in_use:
            return False
        try:
            errors = get_status(self._offset)["errors"]
        except NotRunning:
            return False
        return any(each["file"] == self._kind.file and not each.get("entry") for each in errors)

    @property
    def has_issuers(self) -> bool:
        """There is a file of issuers, whose users need no entries."""
        return (self._folder / "issuers.json").exists()

    def has(self, name: str) -> bool:
        """Return whether there is an entry of this name."""
        return name in self.all()

    def add(self, name: str, entry: dict[str, Any]) -> str:
        """Add an entry."""
        from enmasse.model import edits

        def edit(text: str, present: Mapping[str, Any]) -> str:
            if name in present:
                self._kind.in_use(self.where, name)
            return edits.add(text, name, entry)

        running = self._running(name)
        if running is not None and name in self.all():
            self._kind.in_use(self.where, name)
        if running is None or not running.put(name, entry, None):
            entries.change(self._folder, self._kind, edit)
            self._take_up(name)
        return self.where

    def change(self, name: str, changed: Changed) -> str:
        """Replace an entry."""
        from enmasse.model import edits

        def edit(text: str, present: Mapping[str, Any]) -> str:
            if name not in present:
                self._kind.unknown(self.where, name, present, UNCHANGED)
            return edits.replace(text, name, changed(present[name], self.where))

        for _ in range(CONFLICTS):
            running = self._running(name)  # the etag first: a change after it is noticed
            if running is None:
                entries.change(self._folder, self._kind, edit)
                self._take_up(name)
                return self.where
            present = self.all()
            if name not in present:
                self._kind.unknown(self.where, name, present, UNCHANGED)
            if running.put(name, changed(present[name], self.where), running.etag or "*"):
                return self.where
        _busy(self.where, name)

    def remove(self, name: str, *, force: bool = False) -> str:
        """Remove an entry."""
        from enmasse.model import edits

        where = self.where

        def edit(text: str, present: Mapping[str, Any]) -> str:
            nonlocal where
            if name in present:
                return edits.remove(text, name)
            if not (force and name in running_on(self._folder, self._offset)):
                self._kind.unknown(self.where, name, present, UNCHANGED)
            where = ""
            return text

        if self._kind is USERS:
            gone = name in self.all() and self._asked("DELETE", name, None, "*")
        else:
            running = self._running(name)
            gone = running is not None and name in self.all() and running.delete(name)
        if not gone:
            entries.change(self._folder, self._kind, edit, warn=True)  # such as a dead-letter queue others name
        return where

    def force(self, name: str) -> None:
        """Have the messages of a removed address deleted."""
        from enmasse.cli.contexts.http import NotRunning, request

        try:
            _, answer = request(self._offset, "POST", "/api/force", {"addresses": [name]})
        except NotRunning as error:
            again = f"enmasse address remove {name} --force{offset_option(self._offset)}"
            text = f"the messages of {name} were not deleted: {error} Then run `{again}` again."
            end("address.messages.not-deleted", text, UNREACHABLE)
        if not answer.get("accepted"):
            end("address.messages.not-deleted", f"the messages of {name} were not deleted: {answer.get('message')}")

    def rest(self, name: str) -> dict[str, Any] | None:
        """Return the row of a removed address; None once it is gone, or if no suite runs on the folder."""
        return running_on(self._folder, self._offset).get(name) if self._kind is ADDRESSES else None

    def _take_up(self, name: str) -> None:
        """Wait until the entry of a user that was written to the file is in force. The suite is asked to set what the
        entry is already: no byte changes, and the answer comes when logins are checked by it."""
        if self._console is None or self._kind is not USERS:
            return
        from enmasse.cli.configuration import validate
        from enmasse.model.etags import etag
        from enmasse.model.feeds import granted

        text, present = entries.read(self._folder, self._kind)
        user = validate.users(text)[0].get(name)
        if user is None:  # it has been changed since, or is not valid: what was in force stays
            return
        entry = {key: value for key, value in present[name].items() if key not in KEPT_KEYS}
        self._asked("PUT", name, entry, f'"{etag(granted(user))}"')

    def _asked(self, method: str, name: str, entry: dict[str, Any] | None, etag: str) -> bool:
        """Return whether the console of the suite has made a change, which is in force then. It may be away: the file
        counts."""
        from enmasse.cli.contexts.http import NotRunning

        if self._console is None:
            return False
        try:
            where = api(path(self._kind.plural, name))
            return self._console.attempt(method, where, entry, {"If-Match": etag})[0] < 400
        except NotRunning:
            return False

    def _running(self, name: str) -> _Resource | None:
        """Return the resource of an entry that the console changes; None if none answers."""
        from enmasse.cli.contexts.http import NotRunning

        if self._console is None or self._kind is USERS or not name:  # an empty name has no path; the file tells
            return None
        try:
            return _Resource.read(self._console, self._kind, name)
        except NotRunning:
            return None


class ContextEntries:
    """Entries of a suite elsewhere, by its console."""

    def __init__(self, kind: Kind, offset: int, where: str) -> None:
        self._kind = kind
        self._offset = offset
        self.where = where

    def all(self) -> dict[str, Any]:
        """Return the entries by name."""
        rows = items(self._offset, self._kind.plural)
        return {row["name"]: row["entry"] for row in rows if row["entry"] is not None}

    def has(self, name: str) -> bool:
        """Return whether there is an entry of this name."""
        return self._resource(name).entry is not None

    def add(self, name: str, entry: dict[str, Any]) -> str:
        """Add an entry."""
        resource = self._resource(name)
        if resource.entry is not None or not resource.put(name, entry, None):
            self._kind.in_use(self.where, name)
        return self.where

    def change(self, name: str, changed: Changed) -> str:
        """Replace an entry."""
        for _ in range(CONFLICTS):
            resource = self._resource(name)
            if resource.entry is None:
                self._kind.unknown(self.where, name, self.all(), UNCHANGED)
            if resource.put(name, changed(resource.entry, self.where), resource.etag or "*"):
                return self.where
        _busy(self.where, name)

    def remove(self, name: str, *, force: bool = False) -> str:
        """Remove an entry."""
        resource = self._resource(name)
        if resource.is_leaving and force:
            return ""
        if resource.is_leaving or not resource.delete(name):
            self._kind.unknown(self.where, name, self.all(), UNCHANGED)
        return self.where

    def force(self, name: str) -> None:
        """Have the messages of a removed address deleted."""
        where = api(path(self._kind.plural, name)) + "?force=1"
        status, found = console(self._offset).request("DELETE", where, headers={"If-Match": "*"})
        if status >= 400 and status != 404:  # 404: it was empty, and is gone
            refused(status, found)

    def rest(self, name: str) -> dict[str, Any] | None:
        """Return the row of a removed address; None once it is gone. Of a removed space: as of one address."""
        if self._kind is SPACES:
            return self._rest_of_space(name)
        if self._kind is not ADDRESSES:
            return None
        status, row = console(self._offset).request("GET", api(path(self._kind.plural, name)))
        return None if status >= 400 else {"phase": row["phase"], "messages": row["stats"]["messages"]}

    def _rest_of_space(self, name: str) -> dict[str, Any] | None:
        where = path("spaces", name)
        status, row = console(self._offset).request("GET", api(where))
        if status >= 400 or row["entry"] is not None:
            return None
        rows = items(self._offset, f"{where}/addresses")
        return {"phase": "Terminating", "messages": sum(row["stats"]["messages"] or 0 for row in rows)}

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the addresses in the shape of the status JSON, by name."""
        fields = ("name", "type", "flavor", "ready", "phase", "message", "components")
        return {
            row["name"]: {
                **{field: row[field] for field in fields},
                "messages": row["stats"]["messages"],
                "consumers": row["stats"]["consumers"],
            }
            for row in items(self._offset, self._kind.plural)
        }

    def _resource(self, name: str) -> _Resource:
        from enmasse.cli.contexts.http import NotRunning

        try:
            return _Resource.read(console(self._offset), self._kind, name)
        except NotRunning as error:
            end("suite.http.unreachable", str(error), UNREACHABLE)


@dataclass(frozen=True, slots=True)
class _Resource:
    """An entry at a console; `etag` and `entry` None: it does not exist, or is not valid."""

    console: Console
    kind: Kind
    etag: str | None
    entry: Any
    is_leaving: bool = False
    """The address was removed, and holds messages."""

    @staticmethod
    def read(there: Console, kind: Kind, name: str) -> _Resource:
        """Read an entry. Raises NotRunning if the console of this machine does not answer, or is not ready."""
        from enmasse.cli.contexts.http import NotRunning

        where = api(path(kind.plural, name))
        if isinstance(there, LocalConsole):
            status, row = there.attempt("GET", where)
            if status == 503:
                raise NotRunning("the console is not ready")
        else:
            status, row = there.request("GET", where)
        if status == 404:
            return _Resource(there, kind, None, None)
        if status >= 400:
            refused(status, row)
        leaving = row["entry"] is None and (row.get("phase") == "Terminating" or kind is SPACES)
        return _Resource(there, kind, row["etag"], row["entry"], leaving)

    def put(self, name: str, entry: dict[str, Any], etag: str | None) -> bool:
        """Write the entry; return False on a conflict. `etag` None: there must not be one."""
        headers = {} if etag is None else {"If-Match": etag if etag == "*" else f'"{etag}"'}
        status, found = self.console.request("PUT", api(path(self.kind.plural, name)), entry, headers)
        if status == 404 and etag is None:  # not a conflict: no such space, or the caller may not change it
            refused(status, found)
        return self._done(status, found)

    def delete(self, name: str) -> bool:
        """Remove the entry; return False if it does not exist."""
        status, found = self.console.request("DELETE", api(path(self.kind.plural, name)), headers={"If-Match": "*"})
        return self._done(status, found)

    def _done(self, status: int, found: Any) -> bool:
        if status in (404, 409, 412):
            return False
        if status == 422 and isinstance(found, dict) and found.get("errors"):
            from enmasse.model.jsonfile import Problem

            lines = [
                str(Problem(file=it["file"], entry=it["entry"], field=it["field"], line=None, reason=it["reason"]))
                for it in found["errors"]
            ]
            end("configuration.entry.invalid", "\n".join([*lines, "nothing was changed."]))
        if status >= 400:
            refused(status, found)
        return True


def _busy(where: str, name: str) -> NoReturn:
    end(
        "configuration.entry.conflict", f"{where}: {name}: conflict: it keeps changing; nothing was written. Try again."
    )
