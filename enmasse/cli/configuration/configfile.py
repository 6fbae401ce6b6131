"""Reading and writing of one file of a configuration folder, for commands that change single entries of it."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from shlex import quote
from typing import Any

from enmasse.cli.common import end

KEPT = "A running suite keeps the configuration that it had before."


def read(path: Path, missing: str | None = None) -> str:
    """Return the text of a file. `missing`: the text if there is no file; None: that ends the command."""
    from enmasse.storage.files import read_file

    try:
        return read_file(path).decode()  # not read_text: it would change the ends of lines
    except FileNotFoundError:
        if missing is not None and path.parent.is_dir():
            return missing
        end(
            "configuration.file.missing",
            f"{path}: no such file. Start the suite with `enmasse up`, if it is meant; or name the folder with "
            "--config DIR; `enmasse init DIR` makes one.",
        )
    except OSError as error:
        end("configuration.file.not-readable", f"{path}: cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        end("configuration.file.not-utf8", f"{path}: is not UTF-8; save it as UTF-8.")


def entries(path: Path, text: str) -> dict[str, Any]:
    """Return the entries of the object that is the text of a file."""
    from enmasse.model.edits import parse

    try:
        found = {entry.key: entry.value for entry in parse(text)}
    except (ValueError, RecursionError) as error:
        end(
            "configuration.file.not-json",
            f"{path}: is not a JSON object: {error}. Correct it first; nothing was changed. {KEPT}",
        )
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        end(
            "configuration.file.not-utf8",
            f"{path}: has half of a surrogate pair (\\ud800 to \\udfff). Correct it first; nothing was changed.",
        )
    return found


def check_is_folder(folder: Path) -> None:
    """End the command if a configuration directory does not exist."""
    if not folder.is_dir():
        end(
            "configuration.folder.missing",
            f"configuration directory {folder}: no such directory. `enmasse init {quote(str(folder))}` makes one.",
        )


def locked(folder: Path) -> ExitStack:
    """Keep other commands that change files of this folder waiting, while the result is open."""
    from enmasse.storage.files import locked

    held = ExitStack()
    try:
        check_is_folder(folder)
        held.enter_context(locked(folder))
    except OSError as error:
        end("configuration.folder.not-readable", f"configuration directory {folder}: {error.strerror}.")
    return held


def write(path: Path, before: str, text: str, *, private: bool = False) -> None:
    """Replace a file, whose text is `before`, durably. `private`: a wider mode than 0600 is narrowed to that."""
    from enmasse.storage.files import edit_file

    def edit(found: bytes | None) -> bytes:
        if found is not None and found != before.encode():
            end(
                "configuration.file.not-written",
                f"{path}: was changed by another program in this moment; nothing was changed. Run the command again.",
            )
        return text.encode()

    try:
        if private and path.exists():
            path.chmod(path.stat().st_mode & 0o600)
        edit_file(path, edit)
    except OSError as error:
        end("configuration.file.not-written", f"{path}: cannot be written: {error.strerror}; nothing was changed.")
