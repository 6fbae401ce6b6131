"""The receiver process of the Spark source, whose last line states how often it has synced a file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from enmasse.spark.receiver import spool_receiver


def main() -> None:
    counts = {"fdatasync": 0, "fsync": 0}
    for name in counts:
        real = getattr(os, name)

        def counted(descriptor: int, name: str = name, real: Callable[[int], None] = real) -> None:
            counts[name] += 1
            real(descriptor)

        setattr(os, name, counted)
    try:
        spool_receiver.main()
    finally:
        spool_receiver.report("counts", **counts, cpu=time.process_time())


if __name__ == "__main__":
    main()
