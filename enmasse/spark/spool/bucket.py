"""A spool in an object store: each segment is an object, put whole, once, before its messages are accepted.

Below the URL of a spool, and below `partition-1/` … for further receivers:

    00000000000000000000.seg     as the file of that name (enmasse.spark.spool.segment), never appended to; the last
                                 one may be a claim instead, of the process that has opened the spool and stored
                                 nothing yet
    unsettled                    as the file (enmasse.spark.receiver.unsettled), and in a second line the owner
    origin                       as the file (enmasse.spark.spool.origin)
    owner                        as the file (enmasse.spark.spool.ownership), a hint: an earlier owner looks
                                 once a second

The receiver works on files, as with a spool on disk. Here they are a copy: made from the objects when the spool is
opened, written before the object. So all that reads a spool reads files.

Each put is conditional (If-None-Match, If-Match), and that is the fence. A segment's name is the number of its first
record, so two owners would put the same name, and one put succeeds. A process that opens the spool puts a claim at the
name that follows; from then on a put of an earlier owner fails, wherever it was stopped and for however long. If it
was faster its segment is there, and is fetched before the next claim. A claim has random content, so that no later
object has its entity tag.

A put whose answer was lost may have been stored, or may be later, and another owner may have counted it by then. So the
same segment is put again until it is known to be there, and no other takes its place. The segment's attribute `settled`
is what the file `settled` held at that time (enmasse.spark.receiver.unsettled): after a kill the messages behind it
are in doubt.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from enmasse.spark.options import OptionError
from enmasse.spark.spool.ownership import SpoolTakenError, owner_in
from enmasse.spark.spool.segment import (
    NO_END,
    SpoolError,
    parsed,
    partition_folder,
    partitions_in,
    partitions_of,
    segment_name,
)

SCHEME = "s3://"
CLAIM = b"claim "
"""A claim begins so; no segment does: as the length of a message it is more than MAX_RECORD."""
SEGMENT = re.compile(r"\d{20}\.seg")
SETTLED = "settled"
FETCHED = 16
"""Objects that are fetched at a time."""
LOOK_SECONDS = 1.0
"""How often an owner looks whether another process wants to be it: else a fast one would leave no time for a claim."""
TIMEOUT, RETRY = timedelta(seconds=30), timedelta(seconds=20)
PATIENCE, PAUSE = 60.0, 1.0
"""Seconds for which a segment is put again and again if the store does not answer, and between two puts."""
CLAIMS = 200
"""Claims that are tried, CLAIM_SECONDS apart."""
CLAIM_SECONDS = 0.1


class FoundObject(NamedTuple):
    """Object of the store: its content, the version of it that a put can ask for, and its attributes."""

    content: bytes
    version: dict[str, str]
    attributes: dict[str, str]


def is_bucket(spool: str) -> bool:
    """Return whether an option `spool` names an object store."""
    return spool.startswith(SCHEME)


def connected(url: str) -> Any:
    """Return the store below a URL `s3://bucket/prefix`, with the credentials of the environment.

    Raises OptionError if the URL or the environment cannot be used.
    """
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    http = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    try:
        return S3Store.from_url(
            url,
            client_options={"timeout": TIMEOUT, "connect_timeout": timedelta(seconds=10), "allow_http": http},
            retry_config={"max_retries": 5, "retry_timeout": RETRY},
        )
    except (BaseError, ValueError) as error:
        raise OptionError(f'amqp source: option "spool": {url!r} cannot be used: {short(error)}') from None


def short(error: Exception) -> str:
    """Return the first line of an error of the store."""
    return str(error).strip().partition("\n")[0][:300]


class Objects:
    """Objects of a store below a prefix. All methods raise OSError if the store cannot be used."""

    def __init__(self, store: Any, prefix: str = "") -> None:
        self._store, self._prefix = store, prefix

    @contextlib.contextmanager
    def _plain(self) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except BaseError as error:
            raise OSError(errno.EIO, f"the object store: {short(error)}") from None

    def get(self, name: str) -> FoundObject | None:
        """Return the object of this name; None if it is absent."""
        with self._plain():
            try:
                answer = self._store.get(self._prefix + name)
            except FileNotFoundError:
                return None
            content = bytes(answer.bytes())
            version = {key: answer.meta[key] for key in ("e_tag", "version") if answer.meta.get(key)}
            return FoundObject(content, version, dict(answer.attributes))

    def put(
        self, name: str, content: bytes, attributes: dict[str, str], version: dict[str, str] | None
    ) -> dict[str, str] | None:
        """Put an object in place of this version of it, None: of no object. Returns the new version; None if another
        version, or none, was there."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._plain():
            try:
                answer = self._store.put(
                    self._prefix + name,
                    content,
                    attributes=attributes,
                    mode="create" if version is None else version,
                    use_multipart=False,
                )
            except (AlreadyExistsError, PreconditionError):
                return None
            return {key: answer[key] for key in ("e_tag", "version") if answer.get(key)}

    def put_any(self, name: str, content: bytes) -> None:
        """Put an object in place of whatever is there."""
        with self._plain():
            self._store.put(self._prefix + name, content, use_multipart=False)

    def delete(self, name: str) -> None:
        """Delete an object, if it is there."""
        with self._plain(), contextlib.suppress(FileNotFoundError):
            self._store.delete(self._prefix + name)

    def names(self) -> tuple[list[str], list[str]]:
        """Return the names of the objects, and of the folders below the prefix."""
        with self._plain():
            found = self._store.list_with_delimiter(self._prefix or None)
        cut = len(self._prefix)
        return (
            [str(one["path"])[cut:] for one in found["objects"]],
            [str(path)[cut:].strip("/") for path in found["common_prefixes"]],
        )


class Slot:
    """Object that one process puts again and again, never over what another process has put there."""

    def __init__(self, objects: Objects, name: str, version: dict[str, str] | None = None) -> None:
        self._objects, self.name, self._version = objects, name, version
        self._tried: set[bytes] = set()  # digests of what may have been put, or may be yet

    def put(self, content: bytes, attributes: dict[str, str] | None = None) -> None:
        """Raises SpoolTakenError if another process has put something there; OSError: it may be there or not."""
        digest = blake2b(content).digest()
        self._tried.add(digest)
        for _ in range(len(self._tried) + 1):
            version = self._objects.put(self.name, content, attributes or {}, self._version)
            if version is not None:
                self._tried, self._version = {digest}, version
                return
            found = self._objects.get(self.name)
            self._version = None if found is None else found.version
            if found is not None and found.content == content:
                return
            if found is not None and blake2b(found.content).digest() not in self._tried:
                break
        raise SpoolTakenError("another process has put an object of this spool")


class Bucket:
    """Objects of one partition of a spool. `open`, then `put` in turn; nothing else is called meanwhile, but `delete`
    and `keep`."""

    def __init__(
        self,
        objects: Objects,
        place: str,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """place: where it is, for errors."""
        self._objects, self._place, self._now, self._pause = objects, place, now, pause
        me = {"host": socket.gethostname(), "pid": os.getpid(), "token": secrets.token_hex(8)}
        self._me = json.dumps(me).encode()
        self._looked = 0.0
        self._kept = Slot(objects, "unsettled")
        self._next: Slot

    def open(self, folder: Path) -> None:
        """Become the owner, and write what the store holds as files into an empty folder.

        Raises SpoolError if an object is missing or damaged; OSError.
        """
        self._objects.put_any("owner", self._me)
        files = Copy(self._objects, folder, self._place)
        for _ in range(CLAIMS):
            if files.fetch():
                self._next = Slot(self._objects, segment_name(files.end), files.claim)
                try:
                    self._claim(files.settled)
                    break
                except SpoolTakenError:
                    pass
            self._pause(CLAIM_SECONDS)
        else:
            raise SpoolError(f"{self._place}: other receivers keep writing this spool; give each query one of its own")
        self._open_kept(folder)
        self._looked = self._now()

    def _open_kept(self, folder: Path) -> None:
        """Take over `unsettled`: put it again, so that an earlier owner cannot."""
        for _ in range(CLAIMS):
            found = self._objects.get("unsettled")
            content = b"[]" if found is None else found.content.partition(b"\n")[0]
            self._kept = Slot(self._objects, "unsettled", None if found is None else found.version)
            with contextlib.suppress(SpoolTakenError):
                self._kept.put(content + b"\n" + self._me)
                (folder / "unsettled").write_bytes(content)
                return
        raise SpoolError(f"{self._place}: other receivers keep writing this spool; give each query one of its own")

    def put(self, first: int, content: bytes, following: int, settled: int | None) -> None:
        """Store the records from number `first` on and before `following`. settled: see the module.

        Raises SpoolTakenError if this is no longer the owner; SpoolError if the store does not answer for PATIENCE
        seconds: then it may be stored, and nothing more can be.
        """
        assert self._next.name == segment_name(first)
        until = self._now() + PATIENCE
        while True:
            try:
                if self._now() - self._looked >= LOOK_SECONDS:
                    self.check()
                with self._named():
                    self._next.put(content, of_segment(settled))
                break
            except OSError as error:
                if self._now() >= until:
                    raise SpoolError(
                        f"{self._place}: what came last could not be stored in {PATIENCE:.0f} s, and was not accepted "
                        f"({error.strerror}). Start the query again when the store answers"
                    ) from None
            self._pause(PAUSE)
        self._next = Slot(self._objects, segment_name(following))

    def check(self) -> None:
        """Return if no other process wants to be the owner. Raises SpoolTakenError, OSError."""
        found = self._objects.get("owner")
        self._looked = self._now()
        if found is None or found.content != self._me:
            self._taken(b"" if found is None else found.content)

    def keep(self, content: bytes) -> None:
        """Put the object `unsettled`. Raises SpoolTakenError, OSError."""
        with self._named():
            self._kept.put(content + b"\n" + self._me)

    def origin(self) -> bytes:
        """Return the object `origin`, empty without one. Raises OSError."""
        found = self._objects.get("origin")
        return b"" if found is None else found.content

    def note_origin(self, content: bytes) -> None:
        """Put the object `origin`. Raises OSError."""
        self._objects.put_any("origin", content)

    def delete(self, firsts: Sequence[int]) -> None:
        """Delete the segments that begin with these records, in this order. Raises SpoolTakenError, OSError."""
        if firsts:
            self.check()
        for first in firsts:
            self._objects.delete(segment_name(first))

    def _claim(self, settled: int | None) -> None:
        with self._named():
            self._next.put(CLAIM + secrets.token_hex(16).encode(), of_segment(settled))

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except SpoolTakenError:
            found = self._objects.get("owner")
            self._taken(b"" if found is None else found.content)

    def _taken(self, owner: bytes) -> None:
        other = owner_in(owner)
        raise SpoolTakenError(
            f"{self._place}: process {other.get('pid')} on {other.get('host')} has taken over this spool; what came "
            "last was not accepted here. Only one run of a query may use a spool: stop one of them"
        ) from None


def of_segment(settled: int | None) -> dict[str, str]:
    """Return the attributes of a segment's object."""
    return {} if settled is None else {SETTLED: str(settled)}


class Copy:
    """Files of a folder with what the objects of a partition hold: `end` is one past the last record, `claim` the
    version of the claim at that number, if there is one, `settled` an attribute of the last object."""

    def __init__(self, objects: Objects, folder: Path, place: str) -> None:
        self._objects, self._folder, self._place = objects, folder, place
        self._last = ""
        self.end = 0
        self.claim: dict[str, str] | None = None
        self.settled: int | None = None

    def fetch(self) -> bool:
        """Fetch the objects that are not here yet; False if one went meanwhile. Raises SpoolError, OSError."""
        names = sorted(name for name in self._objects.names()[0] if SEGMENT.fullmatch(name) and name > self._last)
        self.claim = None
        with ThreadPoolExecutor(FETCHED) as pool:
            for at in range(0, len(names), FETCHED):
                some = names[at : at + FETCHED]
                for name, found in zip(some, pool.map(self._objects.get, some), strict=True):
                    if found is None:
                        return False
                    self._take(name, found)
        if self.settled is not None:
            (self._folder / "settled").write_bytes(self.settled.to_bytes(8, "big"))
        return True

    def _take(self, name: str, found: FoundObject) -> None:
        first = int(name.removesuffix(".seg"))
        if self.claim is not None or (self._last and first != self.end):
            raise SpoolError(
                f"{self._place}: the objects before {name} are missing or damaged after record {self.end}. Put them "
                "back from a copy; to continue without the lost records, give the query a new spool and "
                "a new checkpoint"
            )
        settled = found.attributes.get(SETTLED, "")
        self.settled = int(settled) if settled.isdecimal() else None
        if found.content.startswith(CLAIM):
            self.end, self.claim = first, found.version
            return
        _, records, size = parsed(found.content, 0, first, first, NO_END)
        if size != len(found.content):
            raise SpoolError(
                f"{self._place}: {name} is damaged after record {first + records}. Put it back from a copy; to "
                "continue without the lost records, give the query a new spool and a new checkpoint"
            )
        (self._folder / name).write_bytes(found.content)
        self._last, self.end = name, first + records


def prefix_of(partition: int) -> str:
    """Return the prefix of a partition's objects, as `partition_folder` does for its files."""
    return f"partition-{partition}/" if partition else ""


def bucket_of(url: str, partition: int) -> Bucket | None:
    """Return a partition of the spool at a URL; None without a URL. Raises OptionError."""
    if not url:
        return None
    return Bucket(Objects(connected(url), prefix_of(partition)), url.rstrip("/") + "/" + prefix_of(partition))


def mirror_partitions(url: str, folder: Path, receivers: int) -> None:
    """Have a folder for each partition of the spool at a URL that no receiver of the query writes, and for no other.

    Raises OptionError; OSError if the store cannot be used.
    """
    left = partitions_in(Objects(connected(url)).names()[1])
    for n in range(receivers, max(left, partitions_of(folder))):
        if n < left:
            partition_folder(folder, n).mkdir(mode=0o700, parents=True, exist_ok=True)
        else:
            shutil.rmtree(partition_folder(folder, n), ignore_errors=True)
