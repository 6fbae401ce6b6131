"""Shares in the storage of address spaces, kept over a restart in a file of the data directory: until the storage
controller has reached the broker, it would store without a limit."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from enmasse.storage.files import write_text
from services.broker.core.limits.space_storage import StorageShare

NAME = "SHARES"


class KeptShares:
    """The file in a data directory."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / NAME

    def read(self) -> dict[str, StorageShare]:
        """Return the shares: what the broker may hold of each space; none if the file is not there, or damaged."""
        try:
            shares = msgspec.json.decode(self._file.read_bytes(), type=dict[str, StorageShare])
        except (OSError, msgspec.MsgspecError):
            return {}
        return {space: share._replace(refused=0) for space, share in shares.items()}  # others may have room meanwhile

    def write(self, shares: dict[str, StorageShare]) -> None:
        """Replace the shares. On a full disk those of before stay: the broker takes no stored message then."""
        with contextlib.suppress(OSError):
            write_text(self._file, msgspec.json.encode(shares).decode())
