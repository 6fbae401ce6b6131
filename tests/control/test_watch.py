"""A view of objects: whatever a watch does, it shows the whole, and nothing twice or not at all."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any, cast

from enmasse.kubernetes.api_server import CONFIG_MAP, Api, ApiError, ObjectKind, parsed
from enmasse.kubernetes.watch import View
from tests.kit.running import asyncio_test
from tests.kit.waiting import until


def config_map(name: str, version: int, value: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version), "uid": name}, "data": {"k": value}}


def line(type_: str, found: dict[str, Any]) -> bytes:
    return json.dumps({"type": type_, "object": found}).encode() + b"\n"


HISTORY = [
    ("ADDED", config_map("a", 2, "one")),
    ("MODIFIED", config_map("a", 3, "tw\u00f6")),
    ("BOOKMARK", {"kind": "ConfigMap", "metadata": {"resourceVersion": "5"}}),
    ("ADDED", config_map("b", 6)),
    ("DELETED", config_map("a", 7)),
]


class Cutting:
    """An API server whose first watch breaks after `cut` bytes; the next ones go on where the client says."""

    def __init__(self, cut: int) -> None:
        self._cut: int | None = cut
        self.lists = 0
        self.done = False

    def read_all(self, kind: ObjectKind, selector: str) -> tuple[list[dict[str, Any]], str]:
        self.lists += 1
        return [config_map("z", 1)], "1"

    def events(self, kind: ObjectKind, selector: str, version: str, seconds: int) -> Iterator[tuple[str, Any]]:
        since = [e for e in HISTORY if int(e[1]["metadata"]["resourceVersion"]) > int(version)]
        data = b"".join(line(*event) for event in since)
        cut, self._cut = self._cut, None
        return parsed(self._pieces(data, cut), "the API server")

    def _pieces(self, data: bytes, cut: int | None) -> Iterator[bytes]:
        for at in range(0, len(data) if cut is None else cut, 7):
            yield data[at : min(at + 7, len(data) if cut is None else cut)]
        if cut is not None:
            raise OSError("connection reset")
        self.done = True


@asyncio_test
async def test_a_watch_that_is_cut_at_any_byte_goes_on_there() -> None:
    whole = sum(len(line(*event)) for event in HISTORY)
    views = []
    for cut in range(whole + 1):
        server = Cutting(cut)
        view = View(cast(Api, server), CONFIG_MAP, "", lambda: None)
        view.start()
        views.append((server, view))
    for cut, (server, view) in enumerate(views):
        await until(lambda: sorted(view.objects()) == ["b", "z"], f"everything was seen (cut at {cut})")
        assert server.lists == 1
        view.close()


class Refusing:
    """An API server that refuses a watch: once, with this error. Its list has lost an object meanwhile."""

    def __init__(self, error: ApiError) -> None:
        self._error: ApiError | None = error
        self.lists = 0

    def read_all(self, kind: ObjectKind, selector: str) -> tuple[list[dict[str, Any]], str]:
        self.lists += 1
        return [config_map(name, 1) for name in ("a", "b")[: 3 - self.lists]], str(self.lists)

    def events(self, kind: ObjectKind, selector: str, version: str, seconds: int) -> Iterator[tuple[str, Any]]:
        error, self._error = self._error, None
        if error is not None:
            raise error
        return iter(())


@asyncio_test
async def test_what_is_too_old_is_listed_anew_and_what_is_lost_is_not() -> None:
    for status, lists in ((410, 2), (403, 2), (0, 1), (500, 1), (429, 1)):
        server = Refusing(ApiError(status, "Expired", "too old"))
        view = View(cast(Api, server), CONFIG_MAP, "", lambda: None)
        view.start()
        await until(lambda: not view.problem and view.complete, "the view is complete")
        await until(lambda: len(view.objects()) == 3 - lists, f"after status {status}")
        assert server.lists == lists
        view.close()


class Away:
    """An API server that does not answer, and then gives half of a list."""

    def __init__(self) -> None:
        self.asked = 0

    def read_all(self, kind: ObjectKind, selector: str) -> tuple[list[dict[str, Any]], str]:
        self.asked += 1
        if self.asked < 4:
            raise ApiError(0, "Unreachable", "broke off after the first page")
        return [config_map("a", 1)], "1"

    def events(self, kind: ObjectKind, selector: str, version: str, seconds: int) -> Iterator[tuple[str, Any]]:
        return iter(())


@asyncio_test
async def test_before_a_list_is_complete_there_is_no_view() -> None:
    server = Away()
    seen: list[bool] = []
    view = View(cast(Api, server), CONFIG_MAP, "", lambda: seen.append(view.complete))
    view.start()
    await until(lambda: view.complete, "the list came")
    assert sorted(view.objects()) == ["a"] and server.asked == 4
    await until(lambda: bool(seen) and seen[-1], "it was told")
    view.close()


class Late(Cutting):
    """Its watch says nothing before it may."""

    def __init__(self) -> None:
        super().__init__(0)
        self.may = threading.Event()

    def events(self, kind: ObjectKind, selector: str, version: str, seconds: int) -> Iterator[tuple[str, Any]]:
        self.may.wait()
        return super().events(kind, selector, version, seconds)


@asyncio_test
async def test_the_answer_to_a_request_is_seen_at_once_and_no_older_event_undoes_it() -> None:
    server = Late()
    view = View(cast(Api, server), CONFIG_MAP, "", lambda: None)
    view.start()
    await until(lambda: view.complete, "the list came")
    view.put(config_map("b", 9, "mine"))
    assert view.objects()["b"]["data"]["k"] == "mine"
    view.put(config_map("a", 8, "made after the deletion that the watch brings"))
    server.may.set()
    await until(lambda: server.done, "all events were seen")
    assert view.objects()["b"]["data"]["k"] == "mine" and "a" in view.objects()
    view.close()


@asyncio_test
async def test_a_view_of_specifications_is_not_told_of_a_status() -> None:
    told: list[int] = []
    view = View(cast("Api", None), CONFIG_MAP, "", lambda: told.append(1), specifications=True)

    def item(version: int, generation: int) -> dict[str, Any]:
        found = config_map("a", version)
        found["metadata"]["generation"] = generation
        return found

    async def changes(act: Any, *arguments: Any) -> int:
        before = len(told)
        act(*arguments)
        await asyncio.sleep(0)
        return len(told) - before

    assert await changes(view._take, "ADDED", "a", item(2, 1)) == 1
    assert await changes(view._take, "MODIFIED", "a", item(3, 1)) == 0
    assert view.objects()["a"]["metadata"]["resourceVersion"] == "3"
    assert await changes(view.put, item(5, 2)) == 1, "somebody has changed it meanwhile"
    assert await changes(view._take, "MODIFIED", "a", item(5, 2)) == 0
    assert await changes(view._take, "DELETED", "a", item(6, 2)) == 1
