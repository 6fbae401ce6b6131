"""What the Pods of a node listen on, asked of the kernel: what no manifest names is seen too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

LISTEN = "0A"
LOOPBACK = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")


def processes(pod: Any) -> list[Path]:
    """Folders in /proc of the Pod's processes."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if f"pod{pod['metadata']['uid']}" in (place / "cgroup").read_text():
                found.append(place)
        except OSError:  # it has ended
            continue
    return found


def listening(pod: Any) -> set[int]:
    """TCP ports that others reach. The Pod runs."""
    found: set[int] = set()
    own = os.readlink("/proc/self/ns/net")
    for place in processes(pod):
        try:
            assert os.readlink(place / "ns/net") != own, "a Pod in the network of the node"
            lines = [
                line.split() for kind in ("tcp", "tcp6") for line in (place / "net" / kind).read_text().split("\n")
            ]
        except OSError:
            continue
        for _, local, _, state, *_ in (line for line in lines if len(line) > 4):
            address, _, port = local.partition(":")
            if state == LISTEN and address not in LOOPBACK:
                found.add(int(port, 16))
    return found
