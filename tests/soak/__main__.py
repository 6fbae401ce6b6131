"""`make soak`, or `python -m tests.soak [FAULT …]`: a real suite under load, fault after fault, everything counted."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit.containers import share_tls
from tests.soak.faults import FAULTS
from tests.soak.run import Soak

DISK = "1g"


@contextmanager
def small_disk(data: Path, *, real: bool) -> Iterator[bool]:
    """A file system of its own for the data, where this user may make one, and the `real` disk is not asked for;
    whether it is there."""
    data.mkdir(parents=True, mode=0o700)
    if real:
        yield False
        return
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "enmasse-soak", str(data)]
    made = not subprocess.run(command, capture_output=True).returncode
    try:
        yield made
    finally:
        if made:
            subprocess.run(["umount", "-l", str(data)], check=True)


def number(name: str, otherwise: int) -> int:
    """A whole number from the environment."""
    text = os.environ.get(name) or str(otherwise)
    if not text.isascii() or not text.isdigit():
        sys.exit(f"{name}={text}: give a whole number")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"only these faults: {', '.join(FAULTS)}")
    wanted = parser.parse_args().faults
    if unknown := set(wanted) - FAULTS.keys():
        parser.error(f"no such fault: {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
    for told in (signal.SIGINT, signal.SIGTERM):  # also where a shell has us ignore SIGINT: nothing is left behind
        signal.signal(told, signal.default_int_handler)
    share_tls()
    messages = number("SOAK_MESSAGES", 0)
    seconds = number("SOAK_SECONDS", 2400 if messages else 600)
    seed = number("SOAK_SEED", random.SystemRandom().randrange(1 << 32))
    real = os.environ.get("SOAK_FOLDER")
    folder = Path(tempfile.mkdtemp(prefix="enmasse-soak-", dir=real))
    try:
        with small_disk(folder / "data", real=bool(real)) as made, (folder / "stderr").open("w") as errors:
            soak = Soak(folder, errors, seed, wanted or list(FAULTS), small_disk=made)
            passed = soak.run(seconds, messages)
            if not passed:
                with contextlib.suppress(shutil.Error):
                    shutil.copytree(folder / "data", folder / "kept", symlinks=True)
    except KeyboardInterrupt:
        shutil.rmtree(folder)
        return 130
    if not passed:
        print(f"data (kept), logs and what the suite said (stderr) are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
