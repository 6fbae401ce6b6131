"""What the demo leaves behind."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from demo import __main__ as demo


def test_a_demo_that_is_interrupted_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    used: list[Path] = []

    def run(folder: Path, *rest: Any) -> None:
        used.append(folder)
        (folder / "journal").write_text("messages")
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run", run)
    monkeypatch.setattr(sys, "argv", ["demo"])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        assert demo.main() == 130
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)
    assert len(used) == 1 and not list(tmp_path.iterdir())
