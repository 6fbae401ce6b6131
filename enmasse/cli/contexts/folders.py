"""The folders that commands use if none are named: those of the XDG Base Directory Specification.

A suite with a port offset has folders of its own, so that two suites share neither messages nor addresses.
"""

from __future__ import annotations

from pathlib import Path

from enmasse.cli.common import COULD_NOT_START, end
from enmasse.cli.contexts.contexts import refuse
from enmasse.cli.contexts.http import ANSWER_SECONDS, NotRunning, suite_info
from enmasse.cli.contexts.userfolder import user_folder


def config_folder(offset: int) -> Path:
    """`enmasse` (`enmasse-N` with offset N) in $XDG_CONFIG_HOME or ~/.config."""
    return _base("XDG_CONFIG_HOME", ".config", "--config") / _name(offset)


def data_folder(offset: int) -> Path:
    """`enmasse` (`enmasse-N` with offset N) in $XDG_DATA_HOME or ~/.local/share.

    Not XDG_STATE_HOME: that is for files one can do without, and a message is not one.
    """
    return _base("XDG_DATA_HOME", ".local/share", "--data") / _name(offset)


def state_folder() -> Path:
    """`enmasse/spark` in $XDG_STATE_HOME or ~/.local/state: what runs now, which one can do without."""
    return _base("XDG_STATE_HOME", ".local/state", "XDG_STATE_HOME=") / "enmasse" / "spark"


def edited_folder(config: Path | None, offset: int, patience: float = ANSWER_SECONDS) -> Path:
    """Return the folder whose addresses.json `enmasse address` works on. `patience`: seconds to wait for the suite."""
    if config is not None:
        return config
    refuse("it works on files of this machine")
    try:
        return Path(suite_info(offset, patience)["config_dir"])
    except NotRunning:
        return Path() if Path("addresses.json").exists() else config_folder(offset)


def _base(variable: str, usual: str, option: str) -> Path:
    found = user_folder(variable, usual)
    if found is not None:
        return found
    end(
        "command.home.missing",
        f"this user has no home folder: set HOME to its full path, or name a folder with {option} DIR",
        COULD_NOT_START,
    )


def _name(offset: int) -> str:
    return f"enmasse-{offset}" if offset else "enmasse"
