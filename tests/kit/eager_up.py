"""`enmasse up` in which a little work is much, so that processes come and go by load on a machine that is busy itself.

`python -m tests.kit.eager_up up …`

There a process gets a small part of a processor, however much it has to do: to wait for one counts as work, while the
file BURNING is beside the data folder. Without much to do it waits too, for other programs of the machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

from enmasse.cli import main
from enmasse.supervisor import autoscale
from enmasse.supervisor.children import os_process
from enmasse.testing import PROGRAM

BURNING = "burning"


class EagerClock:
    """Seconds of work of processes. `hungry`: a file."""

    def __init__(self, hungry: Path) -> None:
        self._hungry = hungry
        self._seen: dict[int, tuple[int, int]] = {}
        self._worked: dict[int, int] = {}

    def worked(self, pid: int) -> float:
        """Return the seconds for which the main thread of a process had a processor, or waited for one when that
        counts."""
        try:
            ran, waited, _ = map(int, Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split())
        except OSError:
            return 0.0
        before, self._seen[pid] = self._seen.get(pid, (0, 0)), (ran, waited)
        more = ran - before[0] + (waited - before[1] if self._hungry.exists() else 0)
        self._worked[pid] = self._worked.get(pid, 0) + more
        return self._worked[pid] / 1e9


if __name__ == "__main__":
    sys.argv[0] = str(PROGRAM)
    data = Path(sys.argv[sys.argv.index("--data") + 1])
    os_process.worked = EagerClock(data.with_name(BURNING)).worked
    autoscale.BUSY, autoscale.IDLE = 0.4, 0.3
    autoscale.UP_AFTER, autoscale.ALONE_AFTER, autoscale.DOWN_AFTER = 4.0, 20.0, 8.0
    autoscale.LONGEST = autoscale.DOWN_AFTER
    main()
