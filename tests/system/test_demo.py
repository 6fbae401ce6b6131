"""What the demo leaves behind, and how long it waits."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from demo import __main__ as demo
from demo import telemetry


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


@pytest.mark.parametrize(
    ("does", "seconds", "why"),
    [("input()", 0.01, "not started within 0.01 s.*SPARK_LOCAL_IP"), ("print('no Java')", 60, "did not start")],
)
def test_spark_that_does_not_start_is_not_waited_for(tmp_path: Path, does: str, seconds: float, why: str) -> None:
    command = [sys.executable, "-c", does]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        with pytest.raises(RuntimeError, match=why):
            telemetry.wait_running(process, tmp_path, seconds)
        process.kill()
