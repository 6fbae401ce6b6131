"""Recovery on disk at the start, also after a crash: locks and replays the data directory, makes journal and catalogue
agree, reports damage."""

from __future__ import annotations

import asyncio
from array import array
from dataclasses import dataclass
from pathlib import Path

from enmasse.logs import log as logs
from enmasse.storage.decoding import decode_any
from enmasse.storage.disk_errors import disk_error
from services.broker.storage import ids
from services.broker.storage.format import StoreError, check_format
from services.broker.storage.journal.definitions import StoredDefinitions
from services.broker.storage.journal.file_operations import Files
from services.broker.storage.journal.journal import Journal
from services.broker.storage.journal.losses import Losses
from services.broker.storage.journal.records import REPEATED
from services.broker.storage.live_records import LiveRecords
from services.broker.storage.record_replay import RecordReplay
from services.broker.storage.recovered_content import Progress, Recovered
from services.broker.storage.writer import Writer

log = logs.get(part="storage")


@dataclass(slots=True)
class Opened:
    """`lock`: for `Files.unlock`."""

    lock: int
    journal: Journal
    live: LiveRecords
    writer: Writer
    losses: Losses
    recovered: Recovered
    identity: str
    format: int


def open_directory(
    directory: Path,
    files: Files,
    *,
    loop: asyncio.AbstractEventLoop | None,
    segment_size: int,
    progress: Progress,
) -> Opened:
    """Open the directory. Raises StoreError, and what `progress` raises; the directory is then unlocked again."""
    try:
        files.make_dir(directory)
        lock = files.lock(directory / "LOCK")
    except OSError as e:
        raise unusable(directory, e) from e
    if lock is None:
        raise StoreError(f"{directory} is in use by another process: end that one or choose another data directory")
    try:
        return _replay(directory, files, lock, loop, segment_size, progress)
    except OSError as e:
        files.unlock(lock)
        raise unusable(directory, e) from e
    except BaseException:
        files.unlock(lock)
        raise


def unusable(directory: Path, error: OSError) -> StoreError:
    """Return the error for a data directory that cannot be used."""
    return StoreError(f"{directory} cannot be used as data directory: {disk_error(error)}")


def _replay(
    directory: Path,
    files: Files,
    lock: int,
    loop: asyncio.AbstractEventLoop | None,
    segment_size: int,
    progress: Progress,
) -> Opened:
    format = check_format(directory, files)
    catalogue = StoredDefinitions(directory, files)
    catalogue.read()
    segments = sum(name.endswith(".journal") for name in files.list(directory))
    live = LiveRecords()
    records = RecordReplay(live, max(1, segments), progress)
    journal = Journal.open(
        directory,
        files,
        records.replay,
        loop=loop,
        segment_size=segment_size,
        catalogue=catalogue,
        repeat=REPEATED,
        on_damage=records.damaged,
    )
    live.exists = journal.segment_files.exists
    writer = Writer(journal, live)
    journal.lost = writer.lost
    losses = Losses(directory)
    try:
        recovered = _agree(directory, records, journal, live, writer, losses)
        live.last_id = ids.begin(directory, files, live.last_id)
        identity = ids.identity(directory, files)
        journal.save_catalogue()
    except BaseException:
        journal.close()
        raise
    return Opened(lock, journal, live, writer, losses, recovered, identity, format)


def _agree(
    directory: Path,
    records: RecordReplay,
    journal: Journal,
    live: LiveRecords,
    writer: Writer,
    losses: Losses,
) -> Recovered:
    """Make journal and catalogue hold the same definitions and segments."""
    catalogue = journal.catalogue
    damaged = journal.damaged
    was_damaged = bool(damaged)
    if not catalogue.intact and journal.segments:
        for start, stop in catalogue.damage or [(0, 0)]:
            what = f"offset {start}: {stop - start} bytes cannot be read" if stop else "the file is missing"
            damaged.append(f"{catalogue.path}: {what}; it was made again from the journal")
    restored, dropped = records.merge(catalogue)
    # Losses must be recorded before anything is written.
    recovered = records.finish(catalogue.kept, keep_unknown=was_damaged and not catalogue.intact)
    recovered.damaged = damaged
    for place in damaged:
        losses.add(place)
    for id, count in recovered.lost.items():
        name = _name_of(recovered.definitions[id])
        losses.add("their records were damaged or missing at the start", name or str(id), count)
    if damaged:
        losses.sync()
    journal.finish_mending()
    for usage in live.usages.values():
        usage.copied = array("Q", usage.copied)  # without spare capacity
    catalogue.replace(records.defined(), catalogue.segments)
    for id in catalogue.kept | recovered.unknown.keys():
        catalogue.keep(id, id in recovered.unknown)
    for id, value in restored.items():
        writer.define(id, value)
    for id, roots in dropped.items():
        writer.undefined(id, roots)
    if restored or dropped:
        journal.flush()
    return recovered


def _name_of(value: bytes) -> str:
    """Return the name in a definition if it is a JSON object that has one, otherwise ""."""
    try:
        found = decode_any(value)
    except ValueError:
        return ""
    return str(found.get("name", "")) if isinstance(found, dict) else ""
