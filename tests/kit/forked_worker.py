"""A process of pytest, with `-n`, that is forked from one that has imported all tests (`collected.py`).

    python FILE SOCKET OPTION…

xdist starts this instead of an interpreter with these options. It hands on its standard streams, and ends with the
process that has them. Without a server the interpreter is executed, which takes longer and gives the same. It imports
next to nothing.
"""

from __future__ import annotations

import os
import socket
import sys


def run(path: str, options: list[str]) -> None:
    """Have a process forked, and wait for its end; or become it."""
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(path)
            socket.send_fds(server, [b"x"], [0, 1, 2])
            if not server.recv(1):
                raise EOFError
        except (OSError, EOFError):
            os.execv(sys.executable, [sys.executable, *options])
        for standard in range(2):
            os.close(standard)  # xdist sees the end of the forked process by these
        server.recv(1)


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
