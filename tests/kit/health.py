"""Health of a process under test, from the outside."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

from tests.kit.waiting import DEADLINE


def detail(port: int) -> str:
    """What the process says of its state, ready or not."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=DEADLINE) as answer:
            return str(json.load(answer)["detail"])
    except urllib.error.HTTPError as error:
        with error:
            return str(json.load(error)["detail"])


def has_ended(pid: int) -> bool:
    """Whether a process has ended, whether or not its parent knows it already."""
    return not Path(f"/proc/{pid}/exe").exists()
