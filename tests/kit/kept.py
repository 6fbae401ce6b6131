"""Connections of proton's blocking client that stay open while a test does something else."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from proton import ProtonException
from proton.utils import BlockingConnection


@contextlib.contextmanager
def kept(connection: BlockingConnection) -> Iterator[None]:
    """Let a connection read and write in a thread, which alone may use it meanwhile. One that is not waited on sends
    no heartbeats, and a router closes it after 16 s of silence: on a loaded machine, a few commands or pages."""
    ended = threading.Event()

    def work() -> None:
        # A connection that is closed meanwhile says so at its next use.
        with contextlib.suppress(ProtonException):
            while not ended.is_set() and not connection.disconnected:
                container.process()

    container = connection.container
    before, container.timeout = container.timeout, 0.1
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        container.timeout = before
