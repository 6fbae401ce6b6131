"""File with the first id of each start, above all ids ever assigned.

The journal shows only the ids of stored and recently removed messages. Ids are also assigned to messages that are never
stored, records of removed messages are dropped in time, and clients may keep ids as the identity of messages that they
have received. So each start begins a new range of ids, far larger than one run can use. A new folder begins with the
time in microseconds, so that clients do not take its messages for those of a folder that was deleted.
"""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from enmasse.logs import log as logs
from enmasse.text import whole_number
from services.broker.storage.journal.file_operations import Files, write_anew

NAME = "IDS"
IDENTITY = "IDENTITY"
STRETCH = 1 << 36  # ids: 100,000 in each second of a week. In 56 bits there is room for a million starts

log = logs.get(part="storage")


def begin(directory: Path, files: Files, last_id: int) -> int:
    """Return the id after which the range of this run begins; `last_id`: the highest id found in the directory. Raises
    OSError if the file exists and cannot be read."""
    path = directory / NAME
    known = _read(path, files) if NAME in files.list(directory) else -1
    is_new = known < 0 and not last_id
    start = time.time_ns() // 1000 if is_new else max(last_id, known + STRETCH)
    try:
        write_anew(files, path, b"%d\n" % start)
    except OSError as error:  # for example a full disk: stored messages can still be read
        log.warning("broker.message-ids.not-written", file=str(path), reason=str(error))
    return start


def identity(directory: Path, files: Files) -> str:
    """Return the name of this store, given when it is first opened. With it, an id is unique among all stores: one in a
    folder that was emptied, or restored from a backup (which has no such file), may assign it a second time. Raises
    OSError if the file exists and cannot be read."""
    path = directory / IDENTITY
    if IDENTITY in files.list(directory):
        file = files.open(path)
        try:
            known = file.read(0, min(file.size(), 64)).decode("ascii", "replace").strip()
        finally:
            file.close()
        if known:
            return known
    new = uuid.uuid4().hex
    try:
        write_anew(files, path, b"%s\n" % new.encode())
    except OSError as error:
        log.warning("broker.message-ids.not-written", file=str(path), reason=str(error))
    return new


def _read(path: Path, files: Files) -> int:
    """Return the number in the file, -1 if it contains none."""
    file = files.open(path)
    try:
        text = file.read(0, min(file.size(), 64)).strip()
    finally:
        file.close()
    number = whole_number(text.decode("ascii", "replace"))
    return -1 if number is None else number
