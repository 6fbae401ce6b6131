"""Remedies for failed connections, and for names of addresses that there are not."""

from __future__ import annotations

import os
import re
import socket
import ssl
from typing import Any

import click

from enmasse.cli.contexts.first_connection import RESTART_SECONDS, NotListening
from enmasse.cli.contexts.http import HINT_SECONDS, NotRunning, get_status
from enmasse.cli.contexts.target_server import LOCAL, TargetServer
from enmasse.model.names import DEFAULT_SPACE, AddressName, split_name
from enmasse.text import did_you_mean, offset_option

_NUMBERED = re.compile(r"\[Errno (\d+)\]")


def cause(error: OSError) -> str:
    """Return the reason of a failed connection in the words of the operating system."""
    if isinstance(error, ssl.SSLError):
        return error.strerror or str(error)
    if error.errno is None:  # asyncio has tried several addresses, or the server has ended the TLS handshake
        numbers = dict.fromkeys(int(number) for number in _NUMBERED.findall(str(error)))
        return ", ".join(map(os.strerror, numbers)) or str(error) or "the server closed the connection"
    return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)  # negative: of the resolver


def remedy(error: OSError, server: TargetServer, not_tls: str) -> str:
    """Return a sentence. `not_tls`: what to say if the server does not speak TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "Name the file of its authority with --ca FILE, and use the host name of the certificate."
    if isinstance(error, ssl.SSLError) and "UNKNOWN_CA" in str(getattr(error, "reason", "")):
        return "The server does not know the authority of your certificate (--cert): it is not in its --tls-client-ca."
    ended = isinstance(error, ConnectionResetError | ConnectionAbortedError) and error.errno is None
    if isinstance(error, ssl.SSLError) or ended:  # ended: by asyncio, in the TLS handshake
        return not_tls
    offset = server.offset
    if offset is None:
        return "Is a server running there, on this port?" + _at_offset(server)
    if isinstance(error, NotListening):
        shown = f"`enmasse status{offset_option(offset)}` shows why"
        return f"EnMasse runs, but this port stayed closed for {RESTART_SECONDS:g} s: {shown}."
    return f"Is `enmasse up{offset_option(offset)}` running? --port-offset selects another suite."


def _at_offset(server: TargetServer) -> str:
    """Return a sentence with the port of the server of this machine that is at the port offset of the command, which
    does not change URLs; empty without one."""
    context = click.get_current_context(silent=True)
    offset = context.params.get("offset", 0) if context is not None else 0
    port = server.port + offset
    if server.host not in ("localhost", LOCAL, "::1") or not offset:
        return ""
    try:
        socket.create_connection((server.host, port), HINT_SECONDS).close()
    except (OSError, OverflowError):  # the latter: there is no such port
        return ""
    return f" Port {port} is open: --port-offset and ENMASSE_PORT_OFFSET do not change the port of a URL."


def of_space_user(server: TargetServer) -> str:
    """Return a sentence with the user who was refused in the address space of the command; empty without one."""
    if server.space is None or server.user is None:
        return ""
    text = f". The user was {server.user!r}: an address space has its own users"
    if server.offset is not None and server.scheme.startswith("amqp"):
        text += "; without ENMASSE_USER the command works there as the operator"
    return text


def addresses_of(server: TargetServer) -> dict[str, dict[str, Any]]:
    """Return the rows of the addresses of the suite on this machine, by their names in the address space that the
    command works in; none of other servers."""
    if server.offset is None:
        return {}
    try:
        status = get_status(server.offset, HINT_SECONDS)
    except NotRunning:
        return {}
    rows = {split_name(AddressName(row["name"])): row for row in status["addresses"]}
    space = server.space or DEFAULT_SPACE
    return {name.local: row for name, row in rows.items() if name.space == space}


def topic_meant(topic: str, server: TargetServer) -> str:
    """Return a sentence about a topic without an address of its own, whose first levels are like the name of an
    address; empty for other topics."""
    names = list(addresses_of(server))
    if any(topic == name or topic.startswith(f"{name}/") for name in names):
        return ""
    levels = topic.split("/")
    heads = dict.fromkeys("/".join(levels[: name.count("/") + 1]) for name in names)
    meant = next(filter(None, (did_you_mean(head, names) for head in heads)), "")
    return f"the topic {topic!r} has no address of its own.{meant}" if meant else ""
