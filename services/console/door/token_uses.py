"""When API tokens were used last. It is kept in a file, written once a minute at most."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from enmasse.logs import log
from enmasse.storage.disk_errors import disk_error
from enmasse.storage.files import write_text
from services.console.door.access import Caller

INTERVAL = 60.0


def key_of(full_name: str, token: str) -> str:
    """Return the key of a token: no name of a token has a slash."""
    return f"{full_name}/{token}"


class TokenUses:
    """Key of a token → seconds since 1970 of its last use. `file` None: since the start of the console. `seen`: called
    with a key whose time is another now."""

    def __init__(self, file: str | None) -> None:
        self._file = None if file is None else Path(file)
        self._at: dict[str, int] = {}
        self._changed = False
        self._next = 0.0
        self.seen: Callable[[str], None] = lambda _: None
        if self._file is not None:
            try:
                self._at = msgspec.json.decode(self._file.read_bytes(), type=dict[str, int])
            except FileNotFoundError:
                pass
            except (OSError, msgspec.DecodeError) as error:
                log.get().warning("console.token-uses.lost", file=str(self._file), error=str(error))

    def used(self, caller: Caller) -> None:
        """Note a request of a caller with an API token."""
        if caller.token and caller.principal is not None:
            key, now = key_of(caller.principal.full_name, caller.token), int(time.time())
            if self._at.get(key) != now:
                self._at[key], self._changed = now, True
                self.seen(key)

    def last(self, key: str, created: int) -> int | None:
        """Return when a token was used last; None: never since it was created, or that is not known."""
        found = self._at.get(key)
        return None if found is None or found < created else found

    async def write(self, keys: Collection[str], *, now: bool = False) -> None:
        """Write the file if it is due, or `now`, without tokens that are gone. `keys`: of those that there are."""
        if self._file is None or not self._changed or (time.monotonic() < self._next and not now):
            return
        self._next, self._changed = time.monotonic() + INTERVAL, False
        known = set(keys)
        self._at = {key: at for key, at in self._at.items() if key in known}
        try:
            await asyncio.to_thread(_written, self._file, msgspec.json.encode(self._at).decode())
        except OSError as error:
            log.get().warning("console.token-uses.lost", file=str(self._file), error=disk_error(error))


def _written(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, text)
