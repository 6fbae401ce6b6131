"""A process that waits for what stdin has, by a deadline, and prints which came first.

python -m tests.network.judging LOOP
"""

from __future__ import annotations

import os
import sys

from enmasse.network.deadline import Deadline
from tests.kit.running import LOOPS

SECONDS = 2.0


def main(loop_name: str) -> None:
    loop = LOOPS[loop_name]()

    def read() -> None:
        loop.remove_reader(0)
        print("read", os.read(0, 1), flush=True)

    def passed() -> None:
        print("passed", flush=True)
        loop.stop()

    loop.add_reader(0, read)
    Deadline(loop, loop.time() + SECONDS, passed)
    loop.call_soon(lambda: print("waits", flush=True))
    loop.run_forever()


if __name__ == "__main__":
    main(sys.argv[1])
