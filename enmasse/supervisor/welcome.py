"""Lines that `enmasse up` prints when the suite is ready: endpoints for clients, and commands to try."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Iterable
from typing import Any

from enmasse.engines import EMBEDDED
from enmasse.process.service_table import CONSOLE, client_urls, entry_point
from enmasse.supervisor.error_lines import INSECURE
from enmasse.supervisor.plan.internal_ports import LOOPBACK
from enmasse.supervisor.plan.services import Options
from enmasse.text import offset_option

EXAMPLE = "orders"


def first_lines(options: Options, insecure: Iterable[str]) -> list[str]:
    """Return the lines of the start, before anything runs: how clients connect safely, and what is not safe."""
    lines = [] if options.ca is None else [f"clients verify TLS by the CA in {options.ca}"]
    return [*lines, *(f"INSECURE: {INSECURE[word]}" for word in insecure)]


def lines(options: Options, addresses: Iterable[dict[str, Any]]) -> list[str]:
    """Return the lines. `addresses`: from the status JSON."""
    relays = options.router == EMBEDDED
    found = [
        entry_point(CONSOLE if each.protocol == "console" else each.protocol.upper(), url, each.space)
        for each in options.listeners()
        for url in (client_urls(each.protocol, each.at, relays=relays) or (f"https://{each.at}",))
    ]
    facts: list[tuple[str, object]] = [("CA", options.ca)] if options.ca is not None else []
    facts += [
        (CONSOLE, f"http://{LOOPBACK}:{options.public_ports.http}"),
        ("config", options.config),
        ("data", options.data),
    ]
    found += [entry_point(name, value) for name, value in facts]
    how = "as a user, by ENMASSE_USER and ENMASSE_PASSWORD_FILE" if options.users else "in another terminal"
    return ["", *found, "", f"Try {how}:", *(f"  {line}" for line in _commands(options, list(addresses)))]


def _commands(options: Options, addresses: list[dict[str, Any]]) -> list[str]:
    queue = next((a for a in addresses if a.get("ready") and a.get("type") == "queue"), None)
    words = ["status"]
    if queue is not None:
        name = shlex.quote(queue["name"])
        words += [f'send {name} "hello"', f"receive {name} --count 1"]
    topic = next((a for a in addresses if a.get("ready") and a.get("type") == "topic"), None)
    if topic is not None and options.has_mqtt:
        name = shlex.quote(f"{topic['name']}/kitchen")
        words += [f"publish {name} 21.5 --retain", f"subscribe {name} --count 1"]
    if all(a.get("name") != EXAMPLE for a in addresses):
        type_ = f"queue --flavor {queue['flavor']}" if queue is not None else "anycast"
        words.append(f"address add {EXAMPLE} --type {type_}")
    return [f"{_program()} {word}{offset_option(options.offset)}" for word in words]


def _program() -> str:
    """Return the command as the user types it: its path as called, if it is not on PATH."""
    if shutil.which("enmasse"):
        return "enmasse"
    with contextlib.suppress(OSError):  # the current directory may be deleted
        if os.getcwd() != "/":  # as that of a service
            return shlex.quote(os.path.relpath(sys.argv[0]))
    return shlex.quote(sys.argv[0])
