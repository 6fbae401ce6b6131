"""`enmasse up` in which a little work is much, so that processes come and go by load on a machine that is busy itself.

`python -m tests.kit.eager_up up …`
"""

from __future__ import annotations

import sys

from enmasse.cli import main
from enmasse.supervisor import autoscale
from enmasse.testing import PROGRAM

if __name__ == "__main__":
    sys.argv[0] = str(PROGRAM)
    autoscale.BUSY, autoscale.IDLE = 0.03, 0.02
    autoscale.UP_AFTER, autoscale.ALONE_AFTER, autoscale.DOWN_AFTER = 4.0, 20.0, 8.0
    autoscale.LONGEST = autoscale.DOWN_AFTER
    main()
