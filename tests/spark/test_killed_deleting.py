"""A receiver that is killed while it deletes segments."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from enmasse.spark.spool import spool as spooling
from enmasse.spark.spool.segment import SpoolError, read_spool, segments
from enmasse.spark.spool.spool import SpoolWriter

DELETING = """
import os, signal, sys
from pathlib import Path
from enmasse.spark.spool.spool import SpoolWriter
writer, unlink, left = SpoolWriter(Path(sys.argv[1])), Path.unlink, [int(sys.argv[2])]
def killed(path, missing_ok=False):
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    unlink(path, missing_ok)
Path.unlink = killed
writer.forget(writer.forgettable(30))
"""


@pytest.mark.parametrize("files", [0, 1, 2, 5])
def test_a_kill_between_any_two_files_leaves_what_was_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    """files: how many of segments and their indexes were deleted by then."""
    monkeypatch.setattr(spooling, "SEGMENT_BYTES", 400)
    writer = SpoolWriter(tmp_path)
    for n in range(40):
        writer.append(b"record %d" % n * 5, 1)
        writer.sync()
    writer.close()
    before = segments(tmp_path)
    ended = subprocess.run([sys.executable, "-c", DELETING, str(tmp_path), str(files)], check=False)
    assert ended.returncode == -signal.SIGKILL
    after = segments(tmp_path)[:-1]  # opening it began another one
    assert after == before[files // 2 :], "the oldest first, each after its index"
    again = SpoolWriter(tmp_path)
    first = after[0][0]
    again.append(b"next", 2)
    again.sync()
    assert again.count == 41
    found = [record.message for record in read_spool(tmp_path, first, 41)]
    assert found == [*(b"record %d" % n * 5 for n in range(first, 40)), b"next"]
    if first:
        with pytest.raises(SpoolError):
            list(read_spool(tmp_path, first - 1, 40))
    again.forget(again.forgettable(30))
    assert segments(tmp_path)[0][0] <= 30 < segments(tmp_path)[1][0], "the next commit deletes the rest"
    assert {path.stem for path in tmp_path.glob("*.idx")} <= {path.stem for _, path in segments(tmp_path)}
    again.close()
