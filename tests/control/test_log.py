"""Logs: JSON lines on stderr, quiet, and free of charge until something is logged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

from tests.kit.waiting import DEADLINE
from tests.kit.waiting import wait_for as wait_until


def run(code: str) -> list[dict[str, object]]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE, check=True)
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_events_are_json_lines_with_ids_and_tracebacks() -> None:
    first, second, third = run(
        "from enmasse.logs import log\n"
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
        "from enmasse.logs import log\n"
        "log.get().info('quiet')\n"
        "assert 'structlog' not in sys.modules\n"
        "log.get().warning('loud')\n"
    )
    assert line["event"] == "loud"


def test_the_process_that_forks_services_imports_structlog_without_rich() -> None:
    (line,) = run(
        "import importlib, sys\n"
        "from enmasse.logs import log\n"
        "from enmasse.supervisor.children.forkserver import IMPORTED_LATER\n"
        "for module in IMPORTED_LATER: importlib.import_module(module)\n"
        "assert 'structlog' in sys.modules and 'rich' not in sys.modules\n"
        "import rich\n"
        "log.get().warning('loud')\n"
    )
    assert line["event"] == "loud"


def test_a_service_imports_nothing_in_trouble() -> None:
    (line,) = run(
        "import sys\n"
        "from enmasse.logs import log\n"
        "log.setup()\n"
        "before = set(sys.modules)\n"
        "try: 1/0\n"
        "except ZeroDivisionError: log.get().exception('loud')\n"
        "assert set(sys.modules) == before\n"
    )
    assert line["event"] == "loud"


def test_a_reader_of_stderr_that_stands_still_does_not_stop_a_process(tmp_path: Path) -> None:
    """Lines beyond what may wait are dropped, counted, and reported once there is a reader."""
    reader, writer = os.pipe()
    done = tmp_path / "done"
    code = (
        "import pathlib\n"
        "from enmasse.logs import log\n"
        "log.setup('info', service='s')\n"
        "for number in range(3000): log.get().info('test.line.written', number=number, text='x' * 1000)\n"
        f"pathlib.Path({str(done)!r}).touch()\n"
        "input()\n"
        "log.get().info('test.line.last')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=writer)
    os.close(writer)
    wait_until(done.exists)
    with os.fdopen(reader, "rb") as stderr:
        lines = [json.loads(stderr.readline())]
        while lines[-1]["event"] != "log.lines.dropped":
            lines.append(json.loads(stderr.readline()))
        process.communicate(b"\n")
        last = json.loads(stderr.readline())
    assert [line["number"] for line in lines[:-1]] == list(range(len(lines) - 1))
    assert lines[-1]["count"] == 3000 - (len(lines) - 1)
    assert lines[-1]["service"] == "s"
    assert last["event"] == "test.line.last"
    assert process.returncode == 0


def test_a_process_whose_stderr_is_not_read_ends() -> None:
    reader, writer = os.pipe()
    code = (
        "from enmasse.logs import log\n"
        "log.setup('info')\n"
        "for number in range(300): log.get().info('test.line.written', text='x' * 1000)\n"
        "log.say('the last line')\n"
    )
    assert subprocess.run([sys.executable, "-c", code], stderr=writer, timeout=DEADLINE).returncode == 0
    os.close(reader)
    os.close(writer)


def test_a_line_about_a_space_has_the_names_of_its_clients_and_one_about_the_default_space_is_as_ever() -> None:
    text = run(
        "from enmasse.logs import log\n"
        "log.setup('info')\n"
        "l = log.get(client='~alice@one/c', space='one')\n"
        "l.info('a', address='!!one/orders', filters=['!!one/x', 'y'], reason=\"'!!one/q' and !!two/q\")\n"
        "log.get(client='~alice@one/c').info('b', address='!!one/orders', space='default')\n"
        "log.audit('c', who='!!one/alice', from_='h', what='x', outcome='y', space='one')\n"
        "log.audit('d', who='root', from_='h', what='delete !!one/x', outcome='y', space='one')\n"
    )
    lines = [{key: value for key, value in line.items() if key not in ("timestamp", "level", "event")} for line in text]
    assert lines == [
        {"client": "~alice/c", "space": "one", "address": "orders", "filters": ["x", "y"],
         "reason": "'q' and !!two/q"},
        {"client": "~alice@one/c", "address": "!!one/orders"},
        {"audit": True, "who": "alice@one", "what": "x", "outcome": "y", "from": "h", "space": "one"},
        {"audit": True, "who": "root", "what": "delete x", "outcome": "y", "from": "h", "space": "one"},
    ]  # fmt: skip
