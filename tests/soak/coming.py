"""`python -m tests.soak.coming`: routers and gateways go from 1 to 4 and back to 1, three times by hand and three times
by load, with clients of all kinds. Nothing accepted is lost; prints the longest gaps of the clients.

`SOAK_TIMES` (3): how often each. By load: `tests/kit/eager_up.py` has what counts as busy.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from enmasse.testing import Executed, Suite, running
from tests.kit.containers import share_tls
from tests.soak.__main__ import number
from tests.soak.run import say
from tests.system.roaming import ADDRESSES, Fleet, burning, scale_both, wait_number, wait_spread

MOST = 4
"""Routers, and gateways."""


def by_hand(suite: Suite, fleet: Fleet) -> None:
    """1, 4, 1."""
    with fleet.step(f"by hand, to {MOST}"):
        scale_both(suite, str(MOST))
        wait_spread(suite)
        fleet.goes_on()
    with fleet.step("by hand, to 1"):
        scale_both(suite, "1")
        fleet.goes_on()


def by_load(suite: Suite, fleet: Fleet) -> None:
    """1, 4, 1, as busy programs come and end."""
    with fleet.step(f"by load, to {MOST}"), burning(suite, MOST):
        wait_number(suite, MOST)
        wait_spread(suite)
        fleet.goes_on()
    with fleet.step("by load, to 1"):
        wait_number(suite, 1)
        fleet.goes_on()


def main() -> int:
    argparse.ArgumentParser(prog="python -m tests.soak.coming", description=__doc__).parse_args()
    times = number("SOAK_TIMES", 3)
    share_tls()
    folder = Path(tempfile.mkdtemp(prefix="enmasse-coming-"))
    with running(folder, ADDRESSES, options=()) as suite:
        suite.commands = Executed(sys.executable, "-m", "tests.kit.eager_up")
        suite.up()
        fleet = Fleet(suite.url, suite.mqtt_port)
        try:
            fleet.goes_on()
            for _ in range(times):
                by_hand(suite, fleet)
            scale_both(suite, f"1..{MOST}")
            for _ in range(times):
                by_load(suite, fleet)
            say(fleet.check())
        finally:
            fleet.end()
        if status := suite.down():
            say(f"enmasse up ended with status {status}; logs are in {folder}")
            return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
