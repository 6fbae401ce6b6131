"""Puts a disk that loses or tears what is not synced under a broker process of a test, or a death.

With this folder on PYTHONPATH and ENMASSE_FILES=lossy or =tearing, `python -m services.broker` keeps unsynced bytes and
names in its own memory, so that SIGKILL is a power cut (tests/broker/disks.py); with =held, it reads its journal as far
as the test lets it; with =half:N, =written:N or =synced:N it dies with the N-th group of its journal. The product knows
nothing of it, and other processes that inherit the environment are left alone.
"""

import os
import sys
from pathlib import Path

if os.environ.get("ENMASSE_FILES") and "services.broker" in sys.orig_argv:
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    from services.broker.storage.journal import file_operations
    from tests.broker.disks import DyingFiles, HeldFiles, LossyFiles, TearingFiles

    kind, _, group = os.environ["ENMASSE_FILES"].partition(":")
    if group:
        file_operations.FILES = DyingFiles(kind, int(group))
    else:
        file_operations.FILES = {"lossy": LossyFiles, "tearing": TearingFiles, "held": HeldFiles}[kind]()
