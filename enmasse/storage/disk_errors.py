"""Errors of files and their disk as sentences: the same in the status, in events and in answers."""

from __future__ import annotations

import errno

_ROOM = "the disk has no space left: free some"
_RIGHTS = "this user has no right to use it: give it the right to read and write there"
_GONE = "it was deleted or moved: put it back"
_SENTENCES = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: "the disk quota of this user is used up: free space, or raise it",
    errno.EROFS: "its file system is read-only: mount it writable",
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.ENOENT: _GONE,
    errno.ENOTDIR: _GONE,
    errno.ESTALE: _GONE,
    errno.EIO: "the disk has failed to read or write: look at the system's log, and replace it",
}


def disk_error(error: OSError) -> str:
    """Return what is wrong with a file or its disk, and what to do."""
    sentence = _SENTENCES.get(error.errno or 0)
    text = error.strerror or str(error)
    return text if sentence is None else f"{sentence} ({text})"
