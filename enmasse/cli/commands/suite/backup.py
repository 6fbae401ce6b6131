"""`enmasse backup DIR`: a copy of the configuration and of everything that the suite stores, while it runs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click

from enmasse.cli.backups.manifest import copy_file, copy_folder, files_below, seal
from enmasse.cli.backups.process_backups import COPY, CopyFailed, alone, copy_broker, copy_made
from enmasse.cli.backups.space_kept import in_redis
from enmasse.cli.common import end, port_offset, report, say
from enmasse.cli.contexts.folders import config_folder, data_folder
from enmasse.process.service_table import SERVICES
from enmasse.text import counted

STORES = tuple(name for name, service in SERVICES.items() if service.has_store)
SPARK = "spark"
"""Folder of the pipeline of `--with spark`: its spool and its checkpoint."""
PLAIN = ("format.json", "scale.json", "scale-router.json", "configserv", "desired", "tls")
"""Files and folders of the data folder that may be copied while the suite runs: each file is replaced whole."""
LEFT_OUT = frozenset({"run", "logs", "lock"})


@click.command(name="backup", short_help="Copy configuration and stored data, while the suite runs.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--config", "config", type=click.Path(path_type=Path), metavar="DIR",
              help="Configuration folder of a suite that does not run.")  # fmt: skip
@click.option("--data", "data", type=click.Path(path_type=Path), metavar="DIR",
              help="Data folder of a suite that does not run.")  # fmt: skip
@click.option("--space", metavar="NAME", help="Copy this address space of the running suite only.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@port_offset
def command(
    folder: Path, config: Path | None, data: Path | None, space: str | None, as_json: bool, offset: int
) -> None:
    """Copy the configuration with users, all messages, queues and subscriptions, MQTT sessions, retained messages and
    wills into DIR, which must be empty or missing. The suite may run: then DIR has everything that was accepted before
    the command began, but not the spool and checkpoint of the Spark pipeline.

    With --space: the same of the address space, but for messages that are not durable; how many of these its queues
    have is printed.

    The backup is complete when DIR/manifest.json is there, with the SHA-256 of each file; `enmasse restore` checks it.

    Exit status 0: complete. 1: not, with the reason on stderr.
    """
    from enmasse import __version__

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        end("backup.folder.in-use", f"{folder}: is not empty; nothing was written. Name a new folder.")
    started = datetime.now(UTC).isoformat(timespec="seconds")
    running = _running(offset, config, data)
    config, data = running or (config or config_folder(offset), data or data_folder(offset))
    if not config.is_dir():
        end("backup.data.failed", f"{config}: no such configuration folder; name it with --config DIR.")
    if any(folder.resolve().is_relative_to(each.resolve()) for each in (config, data)):
        end("backup.folder.in-use", f"{folder}: is inside what is copied; nothing was written. Name another folder.")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        end("backup.data.failed", f"{folder}: cannot be made: {error.strerror}. Name a folder where you may write.")
    try:
        if space is not None:
            if running is None:
                raise CopyFailed("--space is for a running suite: start it, and leave --config and --data out.")
            from enmasse.cli.backups.space_backup import back_up

            back_up(space, folder, config, data, offset)
        elif running is not None:
            with alone(data):
                _copy_running(data, folder / "data", offset)
        else:
            _copy_stopped(data, folder / "data")
        for path in files_below(config) if space is None else ():
            if not path.parts[0].startswith(".") and not (config / path).resolve().is_relative_to(data.resolve()):
                copy_file(config / path, folder / "config" / path)
        facts = {"version": __version__, "started": started, "running": running is not None}
        manifest = seal(folder, facts | ({} if space is None else {"space": space}))
    except CopyFailed as error:
        end("backup.data.failed", f"{error} {folder} is incomplete: delete it, and repeat the command.")
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        end("backup.data.failed", f"{where}{error.strerror}. {folder} is incomplete: delete it.")
    size = sum(each["size"] for each in manifest["files"].values())
    if as_json:
        click.echo(json.dumps({"folder": str(folder), "files": len(manifest["files"]), "bytes": size}))
    else:
        of = "the running suite" if running is not None else "a suite that does not run"
        say(f"copied {counted(len(manifest['files']), 'file')}, {size} bytes, of {of} ({config}, {data}) to {folder}")


def _running(offset: int, config: Path | None, data: Path | None) -> tuple[Path, Path] | None:
    """Return the configuration and the data folder of the running suite; None if none runs, or if those that are named,
    perhaps by variables, are others."""
    from enmasse.cli.contexts.http import NotRunning, suite_info

    try:
        info = suite_info(offset)
    except NotRunning:
        return None
    used = Path(info["config_dir"]), Path(info["data_dir"])
    named = zip((config, data), used, strict=True)
    return used if all(each is None or each.resolve() == its.resolve() for each, its in named) else None


def _copy_running(data: Path, target: Path, offset: int) -> None:
    """Copy the data of a running suite: brokers first, so that no queue of a session is in the copy without the
    session. Raises CopyFailed, OSError."""
    from enmasse.cli.contexts.http import NotRunning, get_status

    try:
        components = get_status(offset)["components"]
    except NotRunning as error:
        raise CopyFailed(str(error)) from None
    if any(each["engine"] == "artemis" for each in components if each["kind"] == "broker"):
        raise CopyFailed("brokers of Artemis make no copies while they run: stop the suite, and repeat the command.")
    for lock in sorted((data / "brokers").glob("*/LOCK")):
        copy_broker(lock.parent, target / "brokers" / lock.parent.name, offset)
    running = {each["kind"] for each in components}
    for store in STORES:
        if store not in running:
            if (data / store).is_dir():
                copy_folder(data / store, target / store)
        elif in_redis(store, data):
            report(f"warning: {store} keeps its data in Redis, which this backup does not have.")
        else:
            copy_made(data / store, "store.db", target / store, offset)
    if SPARK in running or (data / SPARK).exists():
        report(
            "warning: the spool and checkpoint of the Spark pipeline are not in this backup, because they change "
            "together while it runs: messages that it has received and not processed are missing. To have them, stop "
            "the suite, and repeat the command."
        )
    for name in PLAIN:
        if (data / name).is_dir():
            copy_folder(data / name, target / name, live=True)
        elif (data / name).exists():
            copy_file(data / name, target / name)


def _copy_stopped(data: Path, target: Path) -> None:
    """Copy the data of a suite that does not run, and keep it from starting meanwhile. Raises CopyFailed, OSError."""
    from enmasse.supervisor.errors import StartError
    from enmasse.supervisor.plan.datadir import DataDir

    if not (data / "format.json").is_file():
        raise CopyFailed(f"{data}: is no data folder of EnMasse; name it with --data DIR.")
    held = DataDir(data.absolute())
    try:
        held.lock()
        for path in files_below(data):
            if path.parts[0] not in LEFT_OUT and COPY not in path.parts[:-1]:
                copy_file(data / path, target / path)
    except StartError as error:
        raise CopyFailed(str(error)) from None
    finally:
        held.close()
