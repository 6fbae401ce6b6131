"""Lists of a resource: filters, order, pages by cursor, and streams of what changes in them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import bisect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Protocol, TypeVar

import msgspec
from aiohttp import web

from enmasse.api.types import Page
from enmasse.logs import log
from enmasse.text_filter import text_filter
from services.console.door.access import Caller
from services.console.door.under_way import Shares
from services.console.errors import RequestError, unknown
from services.console.following.rows import Watcher
from services.console.following.space_rows import AnyRows
from services.console.rest.api_operations import Answer, Call, Handler, Parameter

R = TypeVar("R", bound=msgspec.Struct)
_log = log.get()

LIMIT, MOST = 100, 1000
"""Rows of a page, unless the caller wants another number, and at most."""
WATCHERS, WATCHERS_OF_CALLER = 512, 64
STEP = 1.0
"""Seconds between two events of a stream at least."""
HEARTBEAT = 15.0
STALLED = 30.0
"""Seconds in which a client must have read an event."""
FIRST = 100
"""Rows of an event at most: the others follow in further ones. The console keeps one event for a client that does not
read."""
LONGEST = 512
"""Characters of a filter at most."""


ENDED = {
    "login": "the login has expired or was ended: log in again, and request the stream again",
    "permissions": "what the caller may view has changed: request the stream again",
}
"""Reason of the event `end` → its text."""


class CallerCheck(Protocol):
    """Knows how long callers are who they are (the gate)."""

    def ended(self, caller: Caller) -> str | None:
        """Return why the streams of a caller end, a key of ENDED; None: they do not."""
        ...

    def left(self, caller: Caller) -> float:
        """Return the seconds until the login of a caller expires."""
        ...


@dataclass(frozen=True, kw_only=True)
class Listing(Generic[R]):
    """A list. `shown`: the row as this caller sees it, None if not at all. `filters`: parameter → value of a row that
    is compared: texts by pattern, others by equality; `unless`: parameter → value without it. `sorts`: name of an
    order → value of a row."""

    rows: AnyRows[R]
    shown: Callable[[Caller, R], R | None]
    filters: Mapping[str, Callable[[R], Any]]
    sorts: Mapping[str, Callable[[R], Any]]
    kinds: Mapping[str, Any]
    """Parameter → its type, where that is not text."""
    unless: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of the query."""
        orders = ", ".join(["name", *self.sorts])
        return (
            *(Parameter(name, self._about(name), self.kinds.get(name, _Text)) for name in self.filters),
            Parameter("sort", f"order: {orders}; with - in front the greatest first", _Text),
            Parameter("limit", "number of rows at most", Annotated[int, msgspec.Meta(ge=1, le=MOST)]),
            Parameter("after", "`next` of the page before", Annotated[str, msgspec.Meta(max_length=4096)]),
            Parameter("watch", "a stream of events instead of a page", bool),
        )

    def _about(self, name: str) -> str:
        """Return the description of a filter."""
        if name in self.unless:
            return f"only these; without it: {msgspec.json.encode(self.unless[name]).decode()}"
        return "only these" if name in self.kinds else "only these; text may have * and ?"

    def found(self, caller: Caller, given: Mapping[str, Any]) -> Iterator[tuple[str, R]]:
        """Yield the rows that the caller sees and the filters take, in the order of their keys."""
        takes = self.taking(given)
        for key, row in self.rows:
            shown = self.shown(caller, row)
            if shown is not None and takes(shown):
                yield key, shown

    async def one(self, caller: Caller, key: str, noun: str) -> R:
        """Return a row by its key, as the caller sees it. `noun`: of the error. Raises RequestError."""
        await self.rows.fresh()
        row = self.rows.get(key)
        found = None if row is None else self.shown(caller, row)
        if found is None:
            raise unknown(f"{noun} {key[:200]!r}")
        return found

    def getter(self, noun: str, key: str = "name") -> Handler:
        """Return what answers requests for one row; `key`: the part of the path that names it."""

        async def get(call: Call) -> Answer:
            call.parameters()
            return Answer(await self.one(call.caller, call.name(key), noun))

        return get

    def taking(self, given: Mapping[str, Any]) -> Callable[[R], bool]:
        """Return whether the filters take a row. Raises RequestError if one would take long."""
        wanted = {**self.unless, **given}
        tests = [_test(self.filters[name], value) for name, value in wanted.items() if name in self.filters]
        return lambda row: all(test(row) for test in tests)

    def page(self, caller: Caller, given: Mapping[str, Any]) -> Page[R]:
        """Return a page. Raises RequestError."""
        limit, order = given.get("limit", LIMIT), given.get("sort", "name")
        found = list(self.found(caller, given))
        after = None if "after" not in given else _cursor(given["after"], order)
        if order in ("name", "-name"):
            keyed: list[tuple[Any, str, R]] = [("", key, row) for key, row in found]
        else:
            value = self.sorts.get(order.removeprefix("-"))
            if value is None:
                known = ", ".join(["name", *self.sorts])
                raise RequestError("console.request.invalid", f"no order {order[:50]!r}; known are {known}")
            keyed = [(_ordered(value(row)), key, row) for key, row in found]
        falling = order.startswith("-")
        if falling or order != "name":
            keyed.sort(key=lambda each: (each[0], each[1]), reverse=falling)
        start = 0
        if after is not None:
            keys = [(each[0], each[1]) for each in keyed]
            try:
                if falling:
                    start = len(keys) - bisect.bisect_left(keys[::-1], after)
                else:
                    start = bisect.bisect_right(keys, after)
            except TypeError:
                raise RequestError("console.request.invalid", "parameter 'after': is of another order") from None
        part = keyed[start : start + limit]
        more = start + limit < len(keyed)
        last = _text([order, part[-1][0], part[-1][1]]) if more and part else None
        return Page(items=[row for _, _, row in part], next=last, total=len(keyed))


class Lists:
    """Answers the requests for lists."""

    def __init__(self, logins: CallerCheck) -> None:
        self.watching = Shares("open streams", WATCHERS, WATCHERS_OF_CALLER, _too_many_watchers)
        self._logins = logins
        self._closing = asyncio.Event()
        self._open: set[Watcher] = set()

    def recheck(self) -> None:
        """End the streams of callers whose login or rights have changed, within a second."""
        for watcher in self._open:
            watcher.add(())

    def close(self) -> None:
        """End all streams."""
        self._closing.set()

    def of(self, listing: Listing[Any]) -> Handler:
        """Return what answers requests for a list."""
        return lambda call: self.answer(listing, call)

    async def answer(self, listing: Listing[Any], call: Call) -> Answer | web.StreamResponse:
        """Return a page or a stream. Raises RequestError."""
        given = call.parameters()
        await listing.rows.fresh()
        if given.pop("watch", False):
            for name in ("limit", "after", "sort"):
                if name in given:
                    raise RequestError("console.request.invalid", f"parameter {name!r} has no effect on a stream")
            return await self._stream(listing, call, given)
        return Answer(listing.page(call.caller, given))

    async def _stream(self, listing: Listing[Any], call: Call, given: Mapping[str, Any]) -> web.StreamResponse:
        with self.watching.held(call.caller):
            return await self._events(listing, call, given)

    async def _events(self, listing: Listing[Any], call: Call, given: Mapping[str, Any]) -> web.StreamResponse:
        takes = listing.taking(given)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        await response.prepare(call.request)
        logins, caller = self._logins, call.caller
        stream = _Stream(listing, caller, takes, response, logins)
        now = asyncio.get_running_loop().time
        beat = now() + HEARTBEAT
        with listing.rows.watched() as watcher:
            closing = asyncio.ensure_future(self._closing.wait())
            self._open.add(watcher)
            try:
                while logins.ended(caller) is None:
                    if await stream.show(watcher.take()):
                        beat = now() + HEARTBEAT
                    await asyncio.sleep(STEP)
                    while not await _waited(watcher.wait(), closing, min(beat - now(), logins.left(caller))):
                        if closing.done():
                            return response
                        if logins.ended(caller) is not None:
                            break
                        if now() >= beat:
                            await stream.beat()
                            beat = now() + HEARTBEAT
                await stream.end(logins.ended(caller) or "login")
            except TimeoutError:
                reason = f"the client has not read for {STALLED:g} s"
                _log.info(
                    "console.stream.closed",
                    who=call.caller.title,
                    path=call.request.path,
                    reason=reason,
                    space=call.caller.space,
                )
                _abort(call.request)
            except ConnectionError:
                _abort(call.request)
            finally:
                closing.cancel()
                self._open.discard(watcher)
        return response


class _Stream(Generic[R]):
    """Events of a stream. Rows are made when they are written: a client that does not read keeps no old ones."""

    def __init__(
        self,
        listing: Listing[R],
        caller: Caller,
        takes: Callable[[R], bool],
        response: web.StreamResponse,
        logins: CallerCheck,
    ) -> None:
        self._listing = listing
        self._caller = caller
        self._takes = takes
        self._response = response
        self._logins = logins
        self._sent: dict[str, int | None] = {}
        """Key → None, or a hash of the row if the caller views a part of it."""

    async def show(self, changed: set[str] | None) -> bool:
        """Write what is new of these keys, None: everything; return False if nothing is. Raises TimeoutError if the
        client does not read, ConnectionError."""
        if changed is None:
            self._sent = {}
        kind, keys = ("snapshot", self._listing.rows.keys()) if changed is None else ("change", sorted(changed))
        rows: list[R] = []
        removed: list[str] = []
        begun = changed is None
        for key in keys:
            if len(rows) + len(removed) == FIRST:
                await self._event(kind, rows, removed, more=True)
                if self._logins.ended(self._caller) is not None:
                    return True
                kind, rows, removed, begun = "change", [], [], True
            row = self._shown(key)
            if row is None:
                if key in self._sent:
                    del self._sent[key]
                    removed.append(key)
            elif self._is_new(key, row):
                rows.append(row)
        if not (begun or rows or removed):
            return False
        await self._event(kind, rows, removed, more=False)
        return True

    async def end(self, reason: str) -> None:
        """Write the last event. Raises as `show`."""
        await self._write(_event("end", {"reason": reason, "detail": ENDED[reason]}))

    async def beat(self) -> None:
        """Write a comment. Raises as `show`."""
        await self._write(b": \n\n")

    def _shown(self, key: str) -> R | None:
        row = self._listing.rows.get(key)
        shown = None if row is None else self._listing.shown(self._caller, row)
        return shown if shown is not None and self._takes(shown) else None

    def _is_new(self, key: str, row: R) -> bool:
        """Return whether the client does not have this row. It has one of which only a part has changed that the caller
        may not view."""
        whole = row is self._listing.rows.get(key)
        before, self._sent[key] = self._sent.get(key), None if whole else hash(msgspec.json.encode(row))
        return whole or self._sent[key] != before

    async def _event(self, kind: str, rows: list[R], removed: list[str], *, more: bool) -> None:
        await self._write(_event(kind, {"items": rows, "removed": removed, "more": more}))

    async def _write(self, data: bytes) -> None:
        async with asyncio.timeout(STALLED):
            await self._response.write(data)


def _too_many_watchers(text: str) -> RequestError:
    return RequestError("console.watchers.too-many", text)


def _event(kind: str, data: Mapping[str, Any]) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"


async def _waited(waiting: Any, closing: asyncio.Future[Any], seconds: float) -> bool:
    """Wait for a change; return False if `closing` or the time came first."""
    if seconds <= 0:
        waiting.close()
        return False
    task = asyncio.ensure_future(waiting)
    try:
        await asyncio.wait((task, closing), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return task.done() and not closing.done()
    finally:
        task.cancel()


def _abort(request: web.Request) -> None:
    """End the connection, without what the client has not read."""
    if request.transport is not None:
        request.transport.abort()


_Text = Annotated[str, msgspec.Meta(max_length=LONGEST)]


def _test(value: Callable[[Any], Any], wanted: Any) -> Callable[[Any], bool]:
    if not isinstance(wanted, str):
        return lambda row: bool(value(row) == wanted)
    try:
        takes = text_filter(wanted)
    except ValueError as error:
        raise RequestError("console.request.invalid", str(error)) from None
    return lambda row: (
        (found := value(row)) is not None
        and any(takes(each) for each in ([found] if isinstance(found, str) else found))
    )


def _ordered(value: Any) -> Any:
    """Return a value that can be compared with others of its column, unknown ones first."""
    if value is None:
        return [0]
    return [1, value if isinstance(value, str) else float(value)]


def _text(cursor: list[Any]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def _cursor(text: str, order: str) -> tuple[Any, str]:
    """Return value and key of the last row before. Raises RequestError."""
    try:
        content = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        made_for, value, key = msgspec.json.decode(content, type=tuple[str, Any, str])
        if made_for != order or not (value == "" or _is_ordered(value)):
            raise ValueError
    except (ValueError, binascii.Error):
        raise RequestError(
            "console.request.invalid", "parameter 'after': is no `next` of this list and order"
        ) from None
    return value, key


def _is_ordered(value: Any) -> bool:
    return isinstance(value, list) and (
        value == [0] or (len(value) == 2 and value[0] == 1 and isinstance(value[1], str | float | int))
    )
