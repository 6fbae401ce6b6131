"""TCP sockets of the Pods of a node, asked of the kernel: what no manifest names is seen too."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ESTABLISHED, LISTEN = "01", "0A"
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


def _ends(pod: Any, state: str, kinds: tuple[str, ...] = ("tcp", "tcp6")) -> Iterator[tuple[str, str]]:
    """Local and remote end of each socket in this state."""
    own = os.readlink("/proc/self/ns/net")
    for place in processes(pod):
        try:
            assert os.readlink(place / "ns/net") != own, "a Pod in the network of the node"
            lines = [line.split() for kind in kinds for line in (place / "net" / kind).read_text().split("\n")]
        except OSError:
            continue
        for _, local, remote, its, *_ in (line for line in lines if len(line) > 4):
            if its == state:
                yield local, remote


def listening(pod: Any) -> set[int]:
    """TCP ports that others reach. The Pod runs."""
    ends = [local.split(":") for local, _ in _ends(pod, LISTEN)]
    return {int(port, 16) for address, port in ends if address not in LOOPBACK}


def connected(pod: Any) -> set[tuple[str, int]]:
    """Addresses of IPv4, with ports, to which the Pod has TCP connections, or from which it has them."""
    ends = [remote.split(":") for _, remote in _ends(pod, ESTABLISHED, ("tcp",))]
    return {(socket.inet_ntoa(bytes.fromhex(address)[::-1]), int(port, 16)) for address, port in ends}
