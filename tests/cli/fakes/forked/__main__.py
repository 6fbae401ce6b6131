"""A program for tests/cli/test_launch.py: writes what it is, waits for a signal, or ends with a status."""

import json
import os
import signal
import sys

IMPORTED_BY = os.getpid()


def main() -> None:
    """Print a line of JSON about this process; then do what the second argument states."""
    about = {
        "pid": os.getpid(), "parent": os.getppid(), "group": os.getpgid(0), "arguments": sys.argv[1:],
        "imported_by": IMPORTED_BY, "module": __name__, "umask": os.umask(0o077),
        "input": os.readlink("/proc/self/fd/0"),
        "files": sorted(int(name) for name in os.listdir("/proc/self/fd")),
    }  # fmt: skip
    print(json.dumps(about), flush=True)
    match sys.argv[1]:
        case "wait":
            signal.pause()
        case "exit":
            raise SystemExit(int(sys.argv[2]))
        case "raise":
            raise RuntimeError("the end of the program")


if __name__ == "__main__":
    main()
