"""The room that is kept for what must be written on a full disk."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from services.broker.storage.journal.file_operations import File, RealFile, RealFiles
from services.broker.storage.journal.spare import NAME, PIECE, SIZE, Spare
from tests.broker.disks import FullFiles


def test_it_is_spent_piece_by_piece_and_taken_again(tmp_path: Path) -> None:
    spare = Spare(tmp_path, RealFiles())
    spare.keep()
    assert (tmp_path / NAME).stat().st_size == SIZE
    failures = 3

    def work() -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError(errno.ENOSPC, "No space left on device")

    spare.spend(work)
    assert (tmp_path / NAME).stat().st_size == SIZE - 3 * PIECE
    Spare(tmp_path, RealFiles()).keep()  # of the next start
    assert (tmp_path / NAME).stat().st_size == SIZE


@pytest.mark.parametrize(("error", "left"), [(errno.ENOSPC, 0), (errno.EDQUOT, 0), (errno.EIO, SIZE)])
def test_what_goes_on_failing_fails(error: int, left: int, tmp_path: Path) -> None:
    spare = Spare(tmp_path, RealFiles())
    spare.keep()

    def work() -> None:
        raise OSError(error, "no")

    with pytest.raises(OSError, match="no"):
        spare.spend(work)
    assert (tmp_path / NAME).stat().st_size == left


def test_a_disk_without_room_has_none(tmp_path: Path) -> None:
    files = FullFiles()
    files.space = 1000
    spare = Spare(tmp_path, files)
    spare.keep()
    files.space = None
    spare.keep()
    assert (tmp_path / NAME).stat().st_size == SIZE
    (tmp_path / NAME).unlink()  # by hand

    def work() -> None:
        raise OSError(errno.ENOSPC, "no")

    with pytest.raises(OSError, match="no"):
        spare.spend(work)
    spare.keep()
    assert (tmp_path / NAME).stat().st_size == SIZE


class MeanwhileFile(RealFile):
    """A file whose size is asked by one thread, while another one does something."""

    meanwhile: Callable[[], None]

    def size(self) -> int:
        found = super().size()
        self.meanwhile()
        return found


class MeanwhileFiles(RealFiles):
    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self.meanwhile = meanwhile

    def open(self, path: Path, *, create: bool = False) -> File:
        made = super().open(path, create=create)
        assert isinstance(made, RealFile)
        file, made.fd = MeanwhileFile(made.fd), -1
        file.meanwhile = self.meanwhile
        return file


def test_the_room_is_taken_again_also_if_that_is_tried_while_it_is_spent(tmp_path: Path) -> None:
    """The journal is written in a thread, and the loop takes the room again."""
    failures = [OSError(errno.ENOSPC, "no")]

    def work() -> None:
        if failures:
            raise failures.pop()

    spare = Spare(tmp_path, MeanwhileFiles(lambda: spare.keep()))
    spare.keep()
    spare.spend(work)
    assert (tmp_path / NAME).stat().st_size == SIZE - PIECE
    spare.keep()
    assert (tmp_path / NAME).stat().st_size == SIZE
