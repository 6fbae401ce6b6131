"""A complete view of objects, kept up to date by a thread: list, then watch; resume where a watch ended.

A view is always complete: it is empty until the first list was read, and keeps its objects while the API server cannot
be reached or a list is read again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from enmasse.kubernetes.api_server import Api, ApiError, Object, ObjectKind
from enmasse.logs import log
from enmasse.network.backoff import AGAIN, Backoff

WATCH_SECONDS = 55
"""Seconds that a watch lasts before the next one: the longest time for which changes lost by the network are missed."""
SHORT = 1.0
"""Seconds; a watch that ends sooner was cut by the server or the network."""


class View:
    """The objects of a kind that a label selector chooses: name → object, without `managedFields`.

    `changed()` is called in the event loop after any number of changes, first when the view is complete.
    `specifications`: only after changes of these, not of a status (of kinds whose objects have a generation).
    """

    def __init__(
        self, api: Api, kind: ObjectKind, selector: str, changed: Callable[[], None], *, specifications: bool = False
    ) -> None:
        self._api = api
        self._kind = kind
        self._selector = selector
        self._changed = changed
        self._specifications = specifications
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._objects: dict[str, Object] = {}
        self._copy: dict[str, Object] | None = None
        self._complete = False
        self._scheduled = False
        self._problem = ""
        self._ended = threading.Event()
        self._log = log.get(objects=kind.plural)
        self._thread = threading.Thread(target=self._run, name=f"watch {kind.plural}", daemon=True)

    def start(self) -> None:
        """Begin to read the objects and to watch for changes, in a thread of its own."""
        self._thread.start()

    def close(self) -> None:
        """Stop calling `changed`. The thread ends after its current request, without being awaited."""
        self._ended.set()

    @property
    def complete(self) -> bool:
        """True once a complete list was read; before that, `objects` is empty."""
        return self._complete

    @property
    def problem(self) -> str:
        """Reason why the view may be out of date; empty if it is current."""
        return self._problem

    def objects(self) -> Mapping[str, Object]:
        """Return name → object, as last seen. Neither the mapping nor the objects change."""
        with self._lock:
            if self._copy is None:
                self._copy = dict(self._objects)
            return self._copy

    def put(self, found: Object) -> None:
        """Take over the answer to a request of this process, without waiting for the watch."""
        with self._lock:
            differs = self._set(str(found["metadata"]["name"]), found)
        if differs and self._specifications:
            self._notify()

    # in the thread

    def _run(self) -> None:
        backoff = Backoff(AGAIN)
        version = ""
        while not self._ended.is_set():
            try:
                if not version:
                    version = self._list()
                    backoff.reset()
                began = time.monotonic()
                for seen in self._watch(version):
                    version = seen
                    if self._ended.is_set():
                        return
                if time.monotonic() - began >= SHORT:
                    backoff.reset()
                else:  # an API server that ends every watch at once is asked with growing pauses
                    self._ended.wait(backoff.wait())
            except ApiError as error:
                if error.status == 410:  # the server no longer has the changes since this version
                    self._log.info("kubernetes.watch.restarted", reason=str(error))
                    version = ""
                    self._ended.wait(backoff.wait())
                    continue
                self._fail(str(error), backoff)
                if 400 <= error.status < 500 and error.status != 429:
                    version = ""  # refused: list the objects again
            except Exception as error:
                self._log.exception("kubernetes.watch.failed")
                self._fail(f"{type(error).__name__}: {error}", backoff)
                version = ""

    def _well(self) -> None:
        if self._problem:
            self._problem = ""
            self._notify()

    def _fail(self, reason: str, backoff: Backoff) -> None:
        if self._problem != reason:
            self._problem = reason
            self._log.warning("kubernetes.watch.interrupted", reason=reason)
            self._notify()
        self._ended.wait(backoff.wait())

    def _list(self) -> str:
        items, version = self._api.read_all(self._kind, self._selector)
        found = {str(item["metadata"]["name"]): _light(item) for item in items}
        with self._lock:
            self._objects, self._copy, self._complete = found, None, True
        self._notify()
        return version

    def _watch(self, version: str) -> Iterator[str]:
        """Yield the version of each event after it was applied."""
        events = self._api.events(self._kind, self._selector, version, WATCH_SECONDS)
        self._well()
        for type_, found in events:
            metadata = found.get("metadata") or {}
            if type_ != "BOOKMARK":
                self._take(type_, str(metadata["name"]), found)
            yield str(metadata["resourceVersion"])

    def _take(self, type_: str, name: str, found: Object) -> None:
        differs = True
        with self._lock:
            if type_ != "DELETED":
                differs = self._set(name, found)
            elif self._is_news(name, found):
                self._objects.pop(name, None)
                self._copy = None
        if differs or not self._specifications:
            self._notify()

    def _set(self, name: str, found: Object) -> bool:
        """Return whether its specification is another one than before."""
        before = self._objects.get(name)
        if not self._is_news(name, found):
            return False
        self._objects[name] = _light(found)
        self._copy = None
        return before is None or _specification(before) != _specification(found)

    def _is_news(self, name: str, found: Object) -> bool:
        """Return True if `found` is not older than what the view has: an answer may be newer than the watch."""
        before = self._objects.get(name)
        return before is None or _version(before) <= _version(found)

    def _notify(self) -> None:
        """Schedule one call of `changed` for any number of changes."""
        with self._lock:
            if self._scheduled or self._ended.is_set():
                return
            self._scheduled = True
        try:
            self._loop.call_soon_threadsafe(self._call)
        except RuntimeError:  # the loop is closed
            self._ended.set()

    def _call(self) -> None:
        with self._lock:
            self._scheduled = False
        if not self._ended.is_set():
            self._changed()


def _light(found: Object) -> Object:
    found["metadata"].pop("managedFields", None)
    return found


def _specification(found: Object) -> tuple[object, object]:
    """Return what is another one for another specification."""
    return found["metadata"].get("uid"), found["metadata"].get("generation")


def _version(found: Object) -> int:
    """Return the version as a number. It grows for one object: promised by the API since 1.35, true before."""
    try:
        return int(found["metadata"]["resourceVersion"])
    except (KeyError, ValueError):
        return 0
