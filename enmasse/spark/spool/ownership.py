"""Ownership of a spool, fenced: a writer whose spool was taken over accepts no message.

The file `owner` names the one writer: `{"epoch", "host", "pid", "token"}` as JSON. A writer that opens the spool
replaces it, durably, and only then reads what the spool holds; from then on it appends to a segment of its own. An
earlier writer looks at the file after each sync and before it accepts anything. If the file is still its own, its
records were there before the next owner read the spool, so that has them. If it is not, nothing is accepted, and what
was appended is behind the records that the next owner counts. So a writer may stop at any place for any time.

On one machine the lock keeps a second writer out before it comes to that. This is for machines that share a file system
whose locks are not shared, and for a folder that was removed or replaced under its writer. A reader has to see what was
synced on another machine before: NFS (close-to-open), CephFS and GFS2 do that, object stores mounted as files do not.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from pathlib import Path
from typing import Any

from enmasse.spark.spool.segment import SpoolError
from enmasse.storage.durable import private, sync_folder

SIZE = 512
"""Bytes of the file, which is written in place: a spool can be opened on a full disk, to be read and emptied."""


class SpoolTakenError(SpoolError):
    """Another receiver has opened the spool: this one must accept nothing."""


def owner_in(content: bytes) -> dict[str, Any]:
    """Return what `owner` states; empty if that cannot be decoded."""
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def owner_of(path: Path) -> dict[str, Any]:
    """Return what a file `owner` states; empty if it is absent or cannot be decoded."""
    try:
        return owner_in(path.read_bytes())
    except OSError:
        return {}


class Lease:
    """Ownership of one writer, from its construction on until another takes over."""

    def __init__(self, folder: Path) -> None:
        """Take over the spool in a folder. Raises OSError if that cannot be written."""
        self._path = folder / "owner"
        epoch = owner_of(self._path).get("epoch", 0)
        mine = {
            "epoch": epoch + 1 if isinstance(epoch, int) else 1,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "token": secrets.token_hex(8),
        }
        self._mine = json.dumps(mine).encode().ljust(SIZE)
        with open(self._path, "r+b" if self._path.exists() else "wb", opener=private) as file:
            file.write(self._mine)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        sync_folder(folder)

    def check(self) -> None:
        """Return if this writer is still the owner. Raises SpoolTakenError; OSError if the file cannot be read."""
        try:
            if self._path.read_bytes() == self._mine:
                return
        except FileNotFoundError:
            raise SpoolTakenError(
                f"{self._path.parent}: the spool was removed while it was in use; what came last was not accepted. Put "
                "it back from a copy, or give the query a new spool and a new checkpoint"
            ) from None
        other = owner_of(self._path)
        raise SpoolTakenError(
            f"{self._path.parent}: process {other.get('pid')} on {other.get('host')} has taken over this spool; what "
            "came last was not accepted here. Only one run of a query may use a spool: stop one of them"
        )
