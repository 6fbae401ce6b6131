"""Pages: payloads out of memory that may die with the process."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from services.broker.storage.paging import Pager

from .disks import FullFiles


def names(directory: Path) -> list[str]:
    return sorted(p.name for p in directory.iterdir())


@pytest.mark.parametrize("seed", range(3))
def test_what_is_put_out_is_read_back_until_released(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    pager = Pager(tmp_path, file_size=200_000)
    held: dict[int, bytes] = {}
    for _ in range(6000):
        if rng.random() < 0.55 or not held:
            payload = rng.randbytes(rng.choice((0, 1, 100, 3000, 300_000 if rng.random() < 0.01 else 5)))
            place = pager.write(payload)
            assert place not in held
            held[place] = payload
        else:
            place = rng.choice(list(held)[:50])
            assert pager.read(place) == held.pop(place)
            pager.release(place)
    for place, payload in held.items():
        assert pager.read(place) == payload
        pager.release(place)
    assert len(names(tmp_path)) == 1  # the one being written
    pager.close()
    assert names(tmp_path) == []


def test_a_drained_file_is_deleted(tmp_path: Path) -> None:
    pager = Pager(tmp_path, file_size=10_000)
    places = [pager.write(bytes(4000)) for _ in range(20)]
    assert len(names(tmp_path)) == 10
    for place in places[:10]:
        pager.release(place)
    assert len(names(tmp_path)) == 5
    assert pager.disk_bytes < 50_000


def test_pages_of_an_earlier_process_are_deleted_and_nothing_else(tmp_path: Path) -> None:
    pager = Pager(tmp_path)
    pager.write(bytes(100_000))
    (tmp_path / "other").write_text("not mine")
    assert len(names(tmp_path)) == 2
    Pager(tmp_path)
    assert names(tmp_path) == ["other"]


def test_without_space_the_payload_is_refused_and_the_others_stay(tmp_path: Path) -> None:
    files = FullFiles()
    pager = Pager(tmp_path, files=files)
    places = {pager.write(bytes([i]) * 10_000): i for i in range(20)}
    files.space = 0
    refused = 0
    for i in range(20, 40):
        try:
            places[pager.write(bytes([i]) * 10_000)] = i
        except OSError as e:
            assert e.errno == errno.ENOSPC
            refused += 1
    assert refused
    for place, i in places.items():
        assert pager.read(place) == bytes([i]) * 10_000
    files.space = None
    places[pager.write(b"again" * 20_000)] = -1
    for place, i in places.items():
        assert pager.read(place) == (b"again" * 20_000 if i < 0 else bytes([i]) * 10_000)


def test_an_unknown_place_is_told(tmp_path: Path) -> None:
    pager = Pager(tmp_path)
    place = pager.write(b"x")
    with pytest.raises(KeyError):
        pager.read(place + (7 << 32))
