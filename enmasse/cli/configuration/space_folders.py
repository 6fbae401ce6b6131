"""Folders of address spaces, as `enmasse config check` reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from enmasse.model.jsonfile import Problem
from enmasse.model.merged import Content, content_by
from enmasse.model.names import space_error
from enmasse.model.tenants.spaces import FOLDER, OWN_FILES, space_file
from enmasse.storage.files import read_file


def of_spaces(folder: Path) -> dict[str, Content]:
    """Return the contents of the files of address spaces, by their paths in the folder of the configuration."""
    spaces = filter(lambda name: space_error(name) is None, _names(folder / FOLDER))
    paths = (space_file(space, own) for space in spaces for own in OWN_FILES)
    return {path: content_by(partial(read_file, folder / path)) for path in paths}


def strange_in_spaces(folder: Path) -> Iterator[Problem]:
    """Yield a problem for each folder and file there that no address space can have."""
    for space in _names(folder / FOLDER):
        path = f"{FOLDER}/{space}"
        if not (folder / path).is_dir():
            yield Problem(file=path, reason="is no folder of an address space: remove it")
        elif (reason := space_error(space)) is not None:
            yield Problem(file=path, reason=f"{reason}; rename this folder, or remove it")
        else:
            yield from (
                Problem(file=f"{path}/{name}", reason=f"has no effect: the files are {', '.join(OWN_FILES)}")
                for name in _names(folder / path)
                if name not in OWN_FILES and not name.startswith(".")
            )


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
