"""Sessions, subscriptions by `$subctrl`, retained messages and wills of an address space, in a backup."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from enmasse.cli.backups.process_backups import CopyFailed, copy_made
from enmasse.cli.common import report
from enmasse.model.sessions import Kept
from enmasse.process.installed import import_path

KEPT = "kept"
"""In a backup: a line for each of them."""
PROGRAMS = {"subserv": "services.subserv.kept_in_space", "mqtt_lwt": "services.mqtt_lwt.wills_in_space"}
"""Service → program that lists what a copy of its store has of an address space."""
_LAST = 500
"""Characters that are shown of the errors of a failed program."""


class _Store(msgspec.Struct):
    kind: str


class _Settings(msgspec.Struct):
    store: _Store


def copy_kept(space: str, data: Path, to: Path, scratch: Path, offset: int) -> Iterator[str]:
    """Write what there is of a space to a file, and yield the queues in which messages wait for it (`queue` of Kept).
    Raises CopyFailed, OSError."""
    descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        for service, program in PROGRAMS.items():
            if in_redis(service, data):
                report(f"warning: {service} keeps its data in Redis, which this backup does not have.")
                continue
            if not (data / service / "store.db").exists():
                continue  # the suite runs without it, and always has
            copy = scratch / service
            copy_made(data / service, "store.db", copy, offset)
            command = (sys.executable, "-P", "-m", program, str(copy / "store.db"), space)
            done = subprocess.run(
                command, stdout=out, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False,
                env={**os.environ, **import_path()},
            )  # fmt: skip
            if done.returncode != 0:
                errors = done.stderr.decode("utf-8", "replace")[-_LAST:]
                raise CopyFailed(f"{service}: the copy of its store cannot be read: {errors}")
            shutil.rmtree(copy)
        os.fsync(out.fileno())
    for each in read_kept(to):
        if each.session is not None:
            yield from (each.session.queue, *each.session.shares.values())
        if each.subscription is not None:
            yield each.subscription.queue


def in_redis(service: str, data: Path) -> bool:
    """Return whether a service keeps its data in Redis, as the suite last started it: a file in the data folder may be
    from before."""
    try:
        settings = msgspec.json.decode((data / "run" / f"{service}.json").read_bytes(), type=_Settings)
    except (FileNotFoundError, msgspec.DecodeError):
        return False
    return settings.store.kind == "redis"


def read_kept(file: Path) -> Iterator[Kept]:
    """Yield what a backup has. Raises OSError, msgspec.DecodeError."""
    if file.exists():  # not in backups of earlier versions
        with file.open("rb") as stream:
            for line in stream:
                yield msgspec.json.decode(line, type=Kept)


def left_out(before: Mapping[str, int | None], copied: Mapping[str, int]) -> str:
    """Return a sentence about messages that queues had and the backup has not; empty: it has all. `before`: those of
    the status."""
    missing = {name: count for name in before if (count := (before[name] or 0) - copied.get(name, 0)) > 0}
    if not missing:
        return ""
    names = ", ".join(f"{count} of {name}" for name, count in sorted(missing.items())[:5])
    more = f" and more of {len(missing) - 5} other queues" if len(missing) > 5 else ""
    return f"messages that are not durable, or were received meanwhile, are not in this backup: {names}{more}."
