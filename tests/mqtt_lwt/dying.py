"""The last-will service that kills itself: `python -m tests.mqtt_lwt.dying POINT --config FILE`.

POINT: `before:n` or `after:n`, the moment before or after the n-th transaction of its store.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from enmasse import process
from enmasse.stores.redis import RedisEngine
from enmasse.stores.sqlite import SqliteEngine
from services.mqtt_lwt.service import LastWillSettings, serve


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(engine: Any, point: str) -> None:
    when, _, number = point.partition(":")
    commit = engine.commit
    left = int(number)

    async def dying(self: Any, tables: Any) -> None:
        nonlocal left
        left -= bool(tables)
        if tables and left == 0 and when == "before":
            die()
        await commit(self, tables)
        if tables and left == 0:
            die()

    engine.commit = dying


if __name__ == "__main__":
    point = sys.argv.pop(1)
    for engine in (SqliteEngine, RedisEngine):
        arm(engine, point)
    process.start(LastWillSettings, serve)
