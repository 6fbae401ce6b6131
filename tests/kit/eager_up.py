"""`enmasse up` in which a little work is much, so that processes come and go by load on a machine that is busy itself.

`python -m tests.kit.eager_up up …`

There a process gets a small part of a processor, however much it has to do: to wait for one counts as work.
"""

from __future__ import annotations

import sys
from pathlib import Path

from enmasse.cli import main
from enmasse.supervisor import autoscale
from enmasse.supervisor.children import os_process
from enmasse.testing import PROGRAM


def worked(pid: int) -> float:
    """Return the seconds for which the main thread of a process had a processor, or waited for one."""
    try:
        ran, waited, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    except OSError:
        return 0.0
    return (int(ran) + int(waited)) / 1e9


if __name__ == "__main__":
    sys.argv[0] = str(PROGRAM)
    os_process.worked = worked
    autoscale.BUSY, autoscale.IDLE = 0.4, 0.3
    autoscale.UP_AFTER, autoscale.ALONE_AFTER, autoscale.DOWN_AFTER = 4.0, 20.0, 8.0
    autoscale.LONGEST = autoscale.DOWN_AFTER
    main()
