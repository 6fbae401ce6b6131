"""Where ids begin at each start, in a file of its own: above all that were ever given.

What the journal holds shows the ids of what is stored, or was lately. But ids are also given to messages that are never
stored, and records of what has gone are dropped in time; and clients may keep ids as the identity of messages that they
have seen. So each start begins a new stretch of ids, far longer than one run can use up.
"""

from __future__ import annotations

from pathlib import Path

from enmasse import log as logs
from services.broker.storage.files import Files, write_anew

NAME = "IDS"
STRETCH = 1 << 36  # ids: 100,000 in each second of a week. In 56 bits there is room for a million starts

log = logs.get(part="storage")


def begin(directory: Path, files: Files, last_id: int) -> int:
    """The id after which those of this run begin; `last_id`: the highest that is found in the directory. Raises OSError
    if the file is there and cannot be read."""
    path = directory / NAME
    known = _read(path, files) if NAME in files.list(directory) else -1
    start = last_id if known < 0 and not last_id else max(last_id, known + STRETCH)
    try:
        write_anew(files, path, b"%d\n" % start)
    except OSError as error:  # a full disk, say: what is stored can be read all the same
        log.warning("store.ids-not-written", file=str(path), reason=str(error))
    return start


def _read(path: Path, files: Files) -> int:
    """-1: it holds no number."""
    file = files.open(path)
    try:
        text = file.read(0, min(file.size(), 64)).strip()
    finally:
        file.close()
    return int(text) if text.isdigit() else -1
