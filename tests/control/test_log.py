"""Logs: JSON lines on stderr, quiet, and free of charge until something is logged."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime, timedelta


def run(code: str) -> list[dict[str, object]]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_events_are_json_lines_with_ids_and_tracebacks() -> None:
    first, second, third = run(
        "from enmasse import log\n"
        "import logging\n"
        "log.setup('info', service='s')\n"
        "l = log.get(router='r').bind(link=7)\n"
        "l.debug('not this'); l.info('hello', n=1)\n"
        "try: 1/0\n"
        "except ZeroDivisionError: l.exception('broke')\n"
        "logging.getLogger('other').warning('from %s', 'elsewhere')\n"
    )
    assert (
        first.items() >= {"event": "hello", "level": "info", "service": "s", "router": "r", "link": 7, "n": 1}.items()
    )
    assert datetime.fromisoformat(str(first["timestamp"])).utcoffset() == timedelta(0)
    assert "ZeroDivisionError" in str(second["exception"])
    assert third.items() >= {"event": "from elsewhere", "level": "warning", "logger": "other"}.items()


def test_a_command_imports_structlog_with_its_first_event() -> None:
    (line,) = run(
        "import sys\n"
        "from enmasse import log\n"
        "log.get().info('quiet')\n"
        "assert 'structlog' not in sys.modules\n"
        "log.get().warning('loud')\n"
    )
    assert line["event"] == "loud"


def test_a_service_imports_nothing_in_trouble() -> None:
    (line,) = run(
        "import sys\n"
        "from enmasse import log\n"
        "log.setup()\n"
        "before = set(sys.modules)\n"
        "try: 1/0\n"
        "except ZeroDivisionError: log.get().exception('loud')\n"
        "assert set(sys.modules) == before\n"
    )
    assert line["event"] == "loud"
