"""Which product keeps its messages in a folder. What one has written no other opens: it would find nothing there.

The mark is a file with the name of the engine, written before anything else. A folder with content and without a mark
is the embedded broker's: it had none once.
"""

from __future__ import annotations

from pathlib import Path

from enmasse.engines import EMBEDDED
from enmasse.storage.durable import replace_file, sync_folder

FILE = "ENGINE"


class OtherEngine(Exception):
    """The folder is another product's. The text says whose and what to do."""


def owner(folder: Path) -> str | None:
    """The engine whose messages are in the folder; None if there is nothing. Raises OSError."""
    try:
        return (folder / FILE).read_text(errors="replace").strip() or EMBEDDED
    except FileNotFoundError:
        return EMBEDDED if folder.is_dir() and any(folder.iterdir()) else None


def claim(folder: Path, engine: str) -> None:
    """The folder is this engine's, on disk; it is made if it is missing. Raises OtherEngine, OSError."""
    found = owner(folder)
    if found is not None and found != engine:
        raise OtherEngine(refusal(found, engine))
    if not (folder / FILE).exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(folder / FILE, f"{engine}\n".encode())
        sync_folder(folder.parent)


def refusal(found: str, engine: str) -> str:
    """Return the reason why a broker of `engine` does not start in a folder of `found`, to follow the folder's name."""
    return (
        f"holds the messages of a broker of engine {found}, which engine {engine} cannot read: start with"
        f" --broker {found}, or choose another directory with --data; delete this folder if nothing in it is needed"
    )
