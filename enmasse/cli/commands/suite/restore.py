"""`enmasse restore DIR`: a configuration and data folder from a backup."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import click

from enmasse.cli.backups.manifest import Damaged, checked, copy_folder, facts_of, files_below, sync_folders
from enmasse.cli.common import done, end, port_offset, tell
from enmasse.cli.contexts.folders import config_folder, data_folder
from enmasse.text import counted, offset_option

UNFINISHED = ".restoring"


@click.command(name="restore", short_help="Make configuration and data folder from a backup.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--config", "config", type=click.Path(path_type=Path), metavar="DIR",
              help="Configuration folder to make.")  # fmt: skip
@click.option("--data", "data", type=click.Path(path_type=Path), metavar="DIR", help="Data folder to make.")
@click.option("--space", metavar="NAME", help="Make this address space of the running suite from the backup of one.")
@port_offset
def command(folder: Path, config: Path | None, data: Path | None, space: str | None, offset: int) -> None:
    """Make the configuration and the data folder (by default those of `enmasse up`) from the backup DIR. Both must be
    empty or missing. All files of the backup are checked first; interrupted, the command leaves no data folder, and may
    be repeated.

    With --space the backup of an address space becomes the space NAME of the running suite, which must not be there. It
    lets no client in before everything is restored. Interrupted, it stays closed; repeat the command.

    Exit status 0: restored. 1: not, with the reason on stderr.
    """
    if space is not None:
        _restore_space(folder, space, offset)
        return
    config, data = config or config_folder(offset), data or data_folder(offset)
    try:
        manifest = checked(folder)
        if "space" in manifest:
            end("backup.files.damaged", f"{folder}: is the backup of one address space: name a space with --space.")
        if _holds(data):
            _in_use(data)
        # After an interrupted restore the configuration may be there, and the data folder may be inside it.
        if _holds(config) and not _same(folder / "config", config, data):
            _in_use(config)
        if not _holds(config):
            _put(folder / "config", config)
        _put(folder / "data", data)
    except Damaged as error:
        end("backup.files.damaged", f"{error}; nothing was restored.")
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        end("backup.restore.failed", f"{where}{error.strerror}; the data folder was not made.")
    files = len(manifest["files"])
    tell(f"restored {counted(files, 'file')} of {manifest['started']} to {config} and {data}")
    usual = config == config_folder(offset) and data == data_folder(offset)
    options = "" if usual else f" --config {config} --data {data}"
    tell(f"start it: enmasse up{options}{offset_option(offset)}")
    done("", "restored", config=str(config), data=str(data), files=files, made=manifest["started"])


def _restore_space(folder: Path, space: str, offset: int) -> None:
    from enmasse.cli.backups.process_backups import CopyFailed
    from enmasse.cli.backups.space_restore import RestoreFailed, SpaceInUse, restore
    from enmasse.cli.contexts.http import NotRunning, suite_info
    from enmasse.model.names import space_error

    given = map(click.get_current_context().get_parameter_source, ("config", "data"))
    if click.core.ParameterSource.COMMANDLINE in given:  # variables are those of other commands too
        raise click.UsageError("--space is for the running suite: leave --config and --data out")
    if fault := space_error(space):
        raise click.BadParameter(f"{space!r}: {fault}", param_hint="--space")
    try:
        manifest = checked(folder)
        if "space" not in manifest:
            end("backup.files.damaged", f"{folder}: is the backup of a whole suite: leave --space out.")
        count = restore(folder, space, Path(suite_info(offset)["config_dir"]), offset)
    except Damaged as error:
        end("backup.files.damaged", f"{error}; nothing was restored.")
    except SpaceInUse as error:
        end("space.name.in-use", str(error))
    except (RestoreFailed, CopyFailed, NotRunning) as error:
        end("backup.restore.failed", str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        end("backup.restore.failed", f"{where}{error.strerror}. Repeat the command.")
    line = f"restored {counted(count, 'message')} of {manifest['space']}, {manifest['started']}, to the space {space}"
    done(line, "restored", space=space, messages=count, made=manifest["started"])


def _holds(folder: Path) -> bool:
    return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))


def _in_use(folder: Path) -> NoReturn:
    end("backup.folder.in-use", f"{folder}: is not empty; nothing was restored. Move it away, or name another folder.")


def _same(made: Path, folder: Path, data: Path) -> bool:
    """Return whether a folder has the files of the backup and no others but those of the data folder."""
    names = list(files_below(made))
    inside = (data.absolute(), _unfinished(data))
    found = [
        name
        for name in files_below(folder)
        if not any((folder.absolute() / name).is_relative_to(each) for each in inside)
    ]
    return names == found and all(
        facts_of(made / name)["sha256"] == facts_of(folder / name)["sha256"] for name in names
    )


def _unfinished(folder: Path) -> Path:
    return folder.absolute().with_name(folder.absolute().name + UNFINISHED)


def _put(made: Path, folder: Path) -> None:
    """Copy a part of the backup beside its place, and rename it when it is complete. Raises OSError."""
    unfinished = _unfinished(folder)
    folder = folder.absolute()
    if unfinished.exists():  # of a restore that was killed
        shutil.rmtree(unfinished)
    copy_folder(made, unfinished)
    sync_folders(unfinished)
    unfinished.replace(folder)  # also over an empty folder
    descriptor = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
