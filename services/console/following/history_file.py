"""The file with the history of addresses, brokers and routers: their names, and numbers. It is written every few
minutes and at the end; one that cannot be read is put aside."""

from __future__ import annotations

import asyncio
import sys
import time
import zlib
from array import array
from pathlib import Path

import msgspec

from enmasse.logs import log
from enmasse.storage.disk_errors import disk_error
from enmasse.storage.files import write_text
from services.console.following.address_history import COARSE, DAY, FINE, HOUR, WIDTH, AddressHistory, Ring, Series
from services.console.following.followers import Live

INTERVAL = 300.0
"""Seconds between two writes: what a console that is killed forgets."""
DAMAGED = ".damaged"
"""End of the name under which a file is kept that cannot be read."""
_LONGEST = 4 * WIDTH * (max(HOUR // FINE, DAY // COARSE) + 100)


class _SavedSeries(msgspec.Struct, array_like=True):
    """Rings of a series: the number of the newest point, and the points, compressed."""

    fine: tuple[int, bytes]
    coarse: tuple[int, bytes]


class _Saved(msgspec.Struct):
    """Content of the file. `used`: last request to the console, seconds since 1970."""

    schema: int
    used: float
    addresses: dict[str, _SavedSeries]
    spaces: dict[str, _SavedSeries]
    processes: dict[str, _SavedSeries] = {}
    """Brokers and routers; earlier versions had none."""


class HistoryFile:
    """Keeps the history of addresses, address spaces, brokers and routers in `path`; None: in memory only."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path)
        self._next = time.monotonic() + INTERVAL

    def read(self, live: Live) -> float:
        """Restore what was written; return when the console was used last, 0: not known."""
        if self._path is None:
            return 0.0
        try:
            saved = msgspec.json.decode(self._path.read_bytes(), type=_Saved)
            if saved.schema != 1:
                raise ValueError(f"schema {saved.schema} is not known")
            restored = [
                [(name, _series(each)) for name, each in rows.items()]
                for rows in (saved.addresses, saved.spaces, saved.processes)
            ]
        except FileNotFoundError:
            return 0.0
        except (OSError, ValueError, zlib.error, msgspec.DecodeError) as error:
            self._lost(error)
            self._put_aside()
            return 0.0
        for history, rows in zip(_kept(live), restored, strict=True):
            for name, series in rows:
                history.restore(name, series)
        return min(saved.used, time.time())

    async def write(self, live: Live, *, now: bool = False) -> None:
        """Write the file if it is due, or `now`; not when nothing is followed any longer."""
        if self._path is None or not live.follows or (time.monotonic() < self._next and not now):
            return
        self._next = time.monotonic() + INTERVAL
        series = [list(each.series.items()) for each in _kept(live)]
        try:
            await asyncio.to_thread(self._write, live.used, *series)
        except OSError as error:
            self._lost(error)

    def _write(self, used: float, *rows: list[tuple[str, Series]]) -> None:
        assert self._path is not None
        saved = [{name: _saved(series) for name, series in each} for each in rows]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self._path, msgspec.json.encode(_Saved(1, used, *saved)).decode())

    def _put_aside(self) -> None:
        assert self._path is not None
        try:
            self._path.replace(self._path.with_name(self._path.name + DAMAGED))
        except OSError as error:
            self._lost(error)

    def _lost(self, error: Exception) -> None:
        text = disk_error(error) if isinstance(error, OSError) else str(error)[:200] or type(error).__name__
        log.get().warning("console.history.lost", file=str(self._path), error=text)


def _kept(live: Live) -> tuple[AddressHistory, ...]:
    """Return what the file has, in the order of its fields."""
    return live.history, live.totals, live.processes


def _saved(series: Series) -> _SavedSeries:
    return _SavedSeries(_packed(series.fine), _packed(series.coarse))


def _packed(ring: Ring) -> tuple[int, bytes]:
    values = ring.values[:]
    if sys.byteorder == "big":
        values.byteswap()
    return ring.end, zlib.compress(values.tobytes(), 1)


def _series(saved: _SavedSeries) -> Series:
    """Return a series. Raises ValueError or zlib.error."""
    return Series(_ring(saved.fine, HOUR // FINE, FINE), _ring(saved.coarse, DAY // COARSE, COARSE))


def _ring(saved: tuple[int, bytes], most: int, seconds: int) -> Ring:
    end, packed = saved
    decompress = zlib.decompressobj()
    content = decompress.decompress(packed, _LONGEST)
    if not decompress.eof or len(content) % (4 * WIDTH):
        raise ValueError("a series is not complete")
    if end * seconds > time.time() + seconds:
        return Ring(most)  # the clock was set back
    values = array("f", content)
    if sys.byteorder == "big":
        values.byteswap()
    return Ring(most, end, values)
