"""A complete view of objects, kept up to date by a thread: list, then watch; resume where a watch ended.

What the view shows is always the whole: before the first list is complete there is none, and while the API server is
away, or a list is read anew, it stays as it was.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from enmasse import log
from enmasse.backoff import Backoff
from enmasse.kubernetes.api import Api, ApiError, Kind, Object

WATCH_SECONDS = 55
"""A watch is asked for so long, then for another one: what a broken network swallows is missed for no longer."""
SHORT = 1.0
"""A watch that ends sooner than after so many seconds was cut."""
LAST_WAIT = 5.0
"""Seconds between two tries while the API server is away."""


class View:
    """The objects of a kind that a label selector chooses: name → object, without `managedFields`.

    `changed()` is called in the event loop after any number of changes, first when the view is complete.
    """

    def __init__(self, api: Api, kind: Kind, selector: str, changed: Callable[[], None]) -> None:
        self._api = api
        self._kind = kind
        self._selector = selector
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._objects: dict[str, Object] = {}
        self._copy: dict[str, Object] | None = None
        self._complete = False
        self._told = False
        self._problem = ""
        self._ended = threading.Event()
        self._log = log.get(objects=kind.plural)
        self._thread = threading.Thread(target=self._run, name=f"watch {kind.plural}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """No more calls. The thread ends with what it is doing; nobody has to wait for that."""
        self._ended.set()

    @property
    def complete(self) -> bool:
        """Whether there was a complete list; before, `objects` says nothing."""
        return self._complete

    @property
    def problem(self) -> str:
        """Why the view may be old; empty if it is not."""
        return self._problem

    def objects(self) -> Mapping[str, Object]:
        """Name → object, as last seen. Neither the mapping nor the objects change."""
        with self._lock:
            if self._copy is None:
                self._copy = dict(self._objects)
            return self._copy

    def put(self, found: Object) -> None:
        """What a request of ours has answered: it is seen without waiting for the watch."""
        with self._lock:
            self._set(str(found["metadata"]["name"]), found)

    # in the thread

    def _run(self) -> None:
        backoff = Backoff(first=0.1, most=LAST_WAIT, jitter=0.5)
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
                else:  # whoever ends every watch at once is not asked in a circle
                    self._ended.wait(backoff.wait())
            except ApiError as error:
                if error.status == 410:  # what has happened since is not known any more
                    self._log.info("kubernetes.watch.restarted", reason=str(error))
                    version = ""
                    self._ended.wait(backoff.wait())
                    continue
                self._fail(str(error), backoff)
                if 400 <= error.status < 500 and error.status != 429:
                    version = ""  # it was refused: what is there has to be looked at anew
            except Exception as error:
                self._log.exception("kubernetes.watch.failed")
                self._fail(f"{type(error).__name__}: {error}", backoff)
                version = ""

    def _well(self) -> None:
        if self._problem:
            self._problem = ""
            self._tell()

    def _fail(self, reason: str, backoff: Backoff) -> None:
        if self._problem != reason:
            self._problem = reason
            self._log.warning("kubernetes.watch.interrupted", reason=reason)
            self._tell()
        self._ended.wait(backoff.wait())

    def _list(self) -> str:
        items, version = self._api.read_all(self._kind, self._selector)
        found = {str(item["metadata"]["name"]): _light(item) for item in items}
        with self._lock:
            self._objects, self._copy, self._complete = found, None, True
        self._tell()
        return version

    def _watch(self, version: str) -> Iterator[str]:
        """Yields the version of each event when it has been taken over."""
        events = self._api.events(self._kind, self._selector, version, WATCH_SECONDS)
        self._well()
        for type_, found in events:
            metadata = found.get("metadata") or {}
            if type_ != "BOOKMARK":
                self._take(type_, str(metadata["name"]), found)
            yield str(metadata["resourceVersion"])

    def _take(self, type_: str, name: str, found: Object) -> None:
        with self._lock:
            if type_ != "DELETED":
                self._set(name, found)
            elif self._is_news(name, found):
                self._objects.pop(name, None)
                self._copy = None
        self._tell()

    def _set(self, name: str, found: Object) -> None:
        if self._is_news(name, found):
            self._objects[name] = _light(found)
            self._copy = None

    def _is_news(self, name: str, found: Object) -> bool:
        """The watch may bring what is older than the answer to a request of ours."""
        before = self._objects.get(name)
        return before is None or _version(before) <= _version(found)

    def _tell(self) -> None:
        """Many changes become one call."""
        with self._lock:
            if self._told or self._ended.is_set():
                return
            self._told = True
        try:
            self._loop.call_soon_threadsafe(self._call)
        except RuntimeError:  # the loop is closed
            self._ended.set()

    def _call(self) -> None:
        with self._lock:
            self._told = False
        if not self._ended.is_set():
            self._changed()


def _light(found: Object) -> Object:
    found["metadata"].pop("managedFields", None)
    return found


def _version(found: Object) -> int:
    """Versions of one object grow; the API promises that since 1.35, and has always kept it."""
    try:
        return int(found["metadata"]["resourceVersion"])
    except (KeyError, ValueError):
        return 0
