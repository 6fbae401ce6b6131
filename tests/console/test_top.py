"""`enmasse top`, `events` and `status` on a terminal."""

from __future__ import annotations

import json
import os
import threading

from proton import Message
from proton.utils import BlockingConnection

from enmasse.testing import Suite
from tests.cli.running import enmasse, on_a_terminal
from tests.console.terminal import picture
from tests.kit.processes import COMMAND, start
from tests.kit.waiting import DEADLINE, wait_for

COLUMNS = 100
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"


def _send(suite: Suite, stop: threading.Event) -> None:
    """Send slowly, so that there are rates."""
    connection = BlockingConnection(suite.url, timeout=DEADLINE)
    sender = connection.create_sender("orders")
    while not stop.wait(0.02):
        sender.send(Message("x"))
    connection.close()


def test_top_shows_rates_until_q_and_ends_with_a_line(suite: Suite) -> None:
    here = ("--port-offset", suite.offset)
    stop = threading.Event()
    sending = threading.Thread(target=_send, args=(suite, stop))
    sending.start()
    try:

        def busy() -> bool:
            rows = json.loads(enmasse("top", "--once", "--json", *here).stdout)
            rates = {each["name"]: each["stats"]["rates"] for each in rows["addresses"]}
            return rates["orders"]["in"] > 0 and any(each["rates"]["in"] > 0 for each in rows["connections"])

        wait_for(busy, "rates of an address and of a connection")
        shown = on_a_terminal("top", *here, env={}, columns=COLUMNS, answer=("q or Ctrl-C ends", "q"))
    finally:
        stop.set()
        sending.join(DEADLINE)
        enmasse("address", "purge", "orders", "--force", *here)
    before, _, rest = shown.partition(ENTER)
    screens, _, after = rest.partition(LEAVE)
    assert before == "" and after.count("\n") == 1 and "addresses" in after, "one line stays"
    frame = screens.split("\x1b[H")[1]
    titles = [line.split() for line in frame.splitlines() if line.startswith(("address ", "connection "))]
    assert [each[0] for each in titles] == ["address", "connection"] and "in/s" in titles[0]
    assert "orders" in frame
    picture("terminal-top", "enmasse top", frame, COLUMNS)


def test_top_needs_a_terminal_or_is_told_otherwise(suite: Suite) -> None:
    done = enmasse("top", "--port-offset", suite.offset)
    assert done.returncode == 2 and "--once or --json" in done.stderr


def test_events_are_filtered_and_followed(suite: Suite) -> None:
    here = ("--port-offset", suite.offset)
    reading, writing = os.pipe()
    following = start(COMMAND, "events", "-f", "--json", "--address", "refused/*", *map(str, here), stdout=writing)
    os.close(writing)
    try:
        for address in ("refused/one", "refused/two", "other"):
            assert enmasse("send", address, "x", *here).returncode == 4
        with os.fdopen(reading) as lines:
            seen = [json.loads(lines.readline())["address"] for _ in range(2)]
        assert sorted(seen) == ["refused/one", "refused/two"]
    finally:
        following.terminate()
        following.wait(DEADLINE)
    wait_for(lambda: "address=other" in enmasse("events", *here).stdout, "the third one")
    listed = enmasse("events", "--address", "refused/*", "--type", "*", *here).stdout.splitlines()
    assert len(listed) == 2 and all("amqp:not-found" in line for line in listed)
    assert len(enmasse("events", "--count", 1, *here).stdout.splitlines()) == 1
    refused = enmasse("events", "--address", "x" * 1000, *here)
    assert refused.returncode == 1 and "[console.request.invalid]" in refused.stderr
    assert "no such event among those that are kept" in enmasse("events", "--user", "nobody", *here).stderr
    picture("terminal-events", "enmasse events", on_a_terminal("events", *here, env={}, columns=COLUMNS), COLUMNS)


def test_status_on_a_terminal(suite: Suite) -> None:
    shown = on_a_terminal("status", "--port-offset", suite.offset, env={}, columns=COLUMNS)
    assert "ready" in shown and all(len(line) <= COLUMNS for line in shown.splitlines() if "\x1b" not in line)
    for port in (5672, 8080):
        shown = shown.replace(f":{port + suite.offset}", f":{port}")
    picture("terminal-status", "enmasse status", shown, COLUMNS)
