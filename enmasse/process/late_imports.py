"""Modules that a service imports with the first client that needs them. The process from which services are forked
(enmasse/supervisor/children/forkserver.py) learns their names, and imports them too: a service that is started again
has them.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import socket
import sys
from types import ModuleType

told: socket.socket | None = None
"""The fork server, which gets the names of modules; None: this process was executed."""


async def imported(name: str) -> ModuleType:
    """Import a module in a thread: no connection but that which needs it waits."""
    new = name not in sys.modules
    module = await asyncio.to_thread(importlib.import_module, name)
    if new and told is not None:
        with contextlib.suppress(OSError):  # it has gone, or does not read: the next process imports for itself
            told.send(name.encode())
    return module
