"""What this process logs, for tests that read it."""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Iterator

from enmasse.logs import log


@contextlib.contextmanager
def logged(level: str = "info", audit_file: str | os.PathLike[str] | None = None) -> Iterator[io.StringIO]:
    """Yield what is logged meanwhile. Afterwards the process logs as before: `log.setup` for a service would make a
    writer for the file that is its stderr now, and later tests in this process would find nothing in theirs."""
    names = ("_threshold", "_stream", "_writer", "_audit_file")
    before, common, root = {name: getattr(log, name) for name in names}, dict(log._common), logging.getLogger()
    handlers, root_level = root.handlers[:], root.level
    stream = io.StringIO()
    log.setup(level, stream, audit_file)
    try:
        yield stream
    finally:
        for name, value in before.items():
            setattr(log, name, value)
        log._common.clear()
        log._common.update(common)
        root.handlers[:] = handlers
        root.setLevel(root_level)
