"""History of addresses: its rings, its bound, and its file. Nothing runs here but the file's thread."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from enmasse.model.names import DEFAULT_SPACE
from services.console.following import address_history
from services.console.following.address_history import COARSE, DAY, FINE, HOUR, QUIET, AddressHistory, Point, summed
from services.console.following.history_file import DAMAGED, HistoryFile

NOW = int(time.time() // COARSE) * COARSE
TICK = NOW // FINE


def point(rate: float = 0.0, messages: float = 0.0) -> Point:
    return Point(rate, 0.0, messages, 10 * messages, 1.0, math.nan)


def take(history: AddressHistory, number: int, points: Iterable[tuple[str, Point]], *, gone: str | None = None) -> None:
    for _ in history.sample(number, points, lambda name: name != gone):
        pass


def test_an_hour_has_each_ten_seconds_and_what_was_not_seen_is_missing() -> None:
    history = AddressHistory()
    for number in (1, 2, 3, 7, 8):
        take(history, TICK + number, [("a", point(number, number))])
    take(history, TICK + 9, [("a", address_history.UNKNOWN)])
    take(history, TICK + 10, [("a", point(10, 10))])
    found = history.points("a", NOW, FINE)
    assert [(at - NOW, each.messages) for at, each in found] == [(10 * n, n) for n in (1, 2, 3, 7, 8, 10)]
    assert all(math.isnan(each.producers) for _, each in found)
    assert history.points("b", NOW, FINE) == []


def test_a_day_has_the_mean_rate_and_the_greatest_depth_of_five_minutes_also_of_those_not_over() -> None:
    history = AddressHistory()
    for number in range(70):
        take(history, TICK + number, [("a", point(number % 30, 100 - number))])
    found = history.points("a", NOW, COARSE)
    assert [(at - NOW, each.in_, each.messages) for at, each in found] == [
        (0, 14.5, 100), (300, 14.5, 70), (600, 4.5, 40),
    ]  # fmt: skip


def test_a_series_keeps_an_hour_and_a_day_whatever_comes() -> None:
    history = AddressHistory()
    for number in range(2 * DAY // FINE):
        take(history, TICK + number, [("a", point(number))])
    assert len(history.points("a", 0, FINE)) == HOUR // FINE
    assert len(history.points("a", 0, COARSE)) == DAY // COARSE + 1
    (series,) = history.series.values()
    assert len(series.fine.values) + len(series.coarse.values) < 6 * (HOUR // FINE + DAY // COARSE + 70)
    take(history, TICK + 4 * DAY // FINE, [("a", point(1))])
    assert [at for at, _ in history.points("a", NOW + 3 * DAY, COARSE)] == [NOW + 4 * DAY]


def test_a_clock_that_is_set_back_stops_it_for_a_while_or_begins_it_anew() -> None:
    history = AddressHistory()
    take(history, TICK, [("a", point(1))])
    take(history, TICK - 5, [("a", point(2))])
    assert [each.in_ for _, each in history.points("a", 0, FINE)] == [1]
    take(history, TICK - QUIET, [("a", point(3))])
    assert [(at, each.in_) for at, each in history.points("a", 0, FINE)] == [(NOW - HOUR, 3)]


def test_an_address_that_is_gone_is_forgotten_and_one_without_rows_is_idle() -> None:
    history = AddressHistory()
    take(history, TICK, [("a", point(1)), ("b", point(1))])
    take(history, TICK + 1, [], gone="b")
    assert [each.in_ for _, each in history.points("a", 0, FINE)] == [1, 0]
    assert history.points("b", 0, FINE) == []


def test_full_a_quiet_series_makes_room_and_a_space_with_many_takes_none_from_one_with_few() -> None:
    history = AddressHistory(4)
    own = [("a", point(1)), ("b", point(2))]
    take(history, TICK, [*own, ("!!shop/x", point(1)), ("!!shop/y", point(1))])
    for number in range(1, QUIET + 1):
        busy = point(number)
        take(history, TICK + number, [("a", busy), ("b", busy), ("!!shop/x", busy), ("!!shop/y", busy), ("c", busy)])
    assert sorted(history.series) == ["!!shop/x", "!!shop/y", "a", "b"], "all four move"
    for number in range(QUIET + 1, 2 * QUIET + 2):
        busy = point(number)
        take(history, TICK + number, [("a", busy), ("b", point(2)), ("!!shop/x", busy), ("!!shop/y", busy)])
    take(history, TICK + 3 * QUIET, [("a", point(1)), ("c", point(1)), ("!!shop/z", point(1))])
    assert sorted(history.series) == ["!!shop/x", "!!shop/y", "a", "c"], "b was quiet for an hour"
    take(history, TICK + 3 * QUIET + 1, [("!!new/one", point(1))])
    assert "!!new/one" in history.series, "of the spaces that have two one gives way"


def test_sums_leave_out_what_an_address_has_not_and_are_unknown_with_an_unknown_one() -> None:
    sums: dict[str, Point] = {}
    rows = [("a", point(1, 5)), ("b", Point(2, 1, math.nan, math.nan, 3, 1)), ("!!shop/a", point(1))]
    assert list(summed([*rows, ("!!shop/b", address_history.UNKNOWN)], sums))[:3] == rows
    assert sums[DEFAULT_SPACE] == Point(3, 1, 5, 50, 4, 1)
    assert sums["shop"] is address_history.UNKNOWN


def live() -> Any:
    kept = {name: AddressHistory() for name in ("history", "totals", "processes")}
    return SimpleNamespace(**kept, used=time.time() - 5, follows=True)


def test_the_file_brings_everything_back_after_a_restart_and_the_time_between_is_a_gap(tmp_path: Path) -> None:
    before, after, file = live(), live(), tmp_path / "console" / "history.json"
    now = int(time.time() // FINE)
    for number in range(-40, -5):
        take(before.history, now + number, [("a", point(40 + number, 2))])
        take(before.totals, now + number, [("", point(number + 40))])
        take(before.processes, now + number, [("broker b", point(number + 50))])
    asyncio.run(HistoryFile(str(file)).write(before, now=True))
    assert HistoryFile(str(file)).read(after) == pytest.approx(before.used)
    assert file.stat().st_mode & 0o777 == 0o600
    for interval in (FINE, COARSE):
        for of, name in (("history", "a"), ("totals", ""), ("processes", "broker b")):
            saved = getattr(before, of).points(name, 0, interval)
            assert saved and repr(getattr(after, of).points(name, 0, interval)) == repr(saved)
    take(after.history, now, [("a", point(7, 7))])
    last = [at / FINE - now for at, _ in after.history.points("a", 0, FINE)][-3:]
    assert last == [-7, -6, 0]


def test_a_file_of_an_earlier_version_has_no_brokers_and_routers(tmp_path: Path) -> None:
    file, before, after = tmp_path / "history.json", live(), live()
    take(before.history, int(time.time() // FINE), [("a", point(1))])
    asyncio.run(HistoryFile(str(file)).write(before, now=True))
    content = json.loads(file.read_text())
    del content["processes"]
    file.write_text(json.dumps(content))
    HistoryFile(str(file)).read(after)
    assert list(after.history.series) == ["a"] and not after.processes.series


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema":2,"used":0,"addresses":{},"spaces":{}}', "short", "long"])
def test_a_file_that_cannot_be_read_is_put_aside_with_an_event(
    tmp_path: Path, content: bytes | str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "history.json"
    if isinstance(content, str):
        now, kept = int(time.time() // FINE), live()
        take(kept.history, now, [("a", point(1))])
        ring = kept.history.series["a"].fine
        if content == "short":
            ring.values.pop()
        else:
            ring.values.extend([0.0] * 10_000_000)  # small when compressed
        asyncio.run(HistoryFile(str(file)).write(kept, now=True))
        content = file.read_bytes()
    file.write_bytes(content)
    found = live()
    assert HistoryFile(str(file)).read(found) == 0
    assert not found.history.series
    assert not file.exists()
    assert (tmp_path / f"history.json{DAMAGED}").read_bytes() == content
    said = capsys.readouterr()
    assert "console.history.lost" in said.out + said.err
    asyncio.run(HistoryFile(str(file)).write(live(), now=True))
    assert HistoryFile(str(file)).read(found) > 0
