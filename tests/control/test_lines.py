"""Lines that a thread writes when their reader is slow (enmasse/logs/lines.py)."""

from __future__ import annotations

import os
import threading

import pytest

from enmasse.logs import lines


def test_a_line_at_the_end_of_the_interpreter_waits_for_no_thread_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter ends its daemon threads wherever they are, also while they hold the lock."""
    monkeypatch.setattr(lines, "LONGEST", 0.01)
    reader, writer = os.pipe()
    try:
        log = lines.LineWriter(writer, lambda count: None)
        holder = threading.Thread(target=log._changed.acquire)
        holder.start()
        holder.join()
        log.put("a last word")
        os.set_blocking(reader, False)
        with pytest.raises(BlockingIOError):
            os.read(reader, 1)
    finally:
        os.close(reader)
        os.close(writer)
