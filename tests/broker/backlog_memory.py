"""`python -m tests.broker.backlog_memory DIR COUNT`: puts so many small durable messages into a queue, takes them in
again after a restart, and prints how many bytes of memory a message took, each time in a process of its own."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

from services.broker.core.publisher import publish_run
from tests.broker.sansio import Core, encoded

RUN = 500


def resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) << 10


def fill(directory: Path, count: int) -> int:
    core = Core(directory)
    core.queue()
    core.commit()
    route = core.broker.catalogue.route("q", None)
    assert route is not None
    before = resident()
    for start in range(0, count, RUN):
        publish_run(core.broker, route, [encoded(f"{start + i:09}", durable=True) for i in range(RUN)], core, start)
        core.commit()
        core.accepted.clear()
    return resident() - before


def recover(directory: Path) -> int:
    before = resident()
    core = Core(directory)
    assert core.broker.catalogue.queues["q"].count > 0
    return resident() - before


def measure(directory: Path, count: int) -> tuple[float, float]:
    """Bytes a message: filled, recovered."""
    command = [sys.executable, "-m", "tests.broker.backlog_memory", str(directory), str(count)]
    filled, recovered = (
        int(subprocess.run([*command, part], capture_output=True, text=True, check=True).stdout)
        for part in ("fill", "recover")
    )
    return filled / count, recovered / count


if __name__ == "__main__":
    where, number = Path(sys.argv[1]), int(sys.argv[2])
    if len(sys.argv) == 3:
        print("bytes a message: filled {:.0f}, recovered {:.0f}".format(*measure(where, number)))
    else:
        print(fill(where, number) if sys.argv[3] == "fill" else recover(where))
