"""Remedies for failed connections."""

from __future__ import annotations

import os
import re
import ssl

from enmasse.cli.contexts.first_connection import RESTART_SECONDS, NotListening
from enmasse.text import offset_option

_NUMBERED = re.compile(r"\[Errno (\d+)\]")


def cause(error: OSError) -> str:
    """Return the reason of a failed connection in the words of the operating system."""
    if isinstance(error, ssl.SSLError):
        return error.strerror or str(error)
    if error.errno is None:  # asyncio has tried several addresses, or the server has ended the TLS handshake
        numbers = dict.fromkeys(int(number) for number in _NUMBERED.findall(str(error)))
        return ", ".join(map(os.strerror, numbers)) or str(error) or "the server closed the connection"
    return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)  # negative: of the resolver


def remedy(error: OSError, offset: int | None, not_tls: str) -> str:
    """Return a sentence. `offset`: of the suite on this machine, None for a server that the user named. `not_tls`: what
    to say if the server does not speak TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "Name the file of its authority with --ca FILE, and use the host name of the certificate."
    if isinstance(error, ssl.SSLError) and "UNKNOWN_CA" in str(getattr(error, "reason", "")):
        return "The server does not know the authority of your certificate (--cert): it is not in its --tls-client-ca."
    ended = isinstance(error, ConnectionResetError | ConnectionAbortedError) and error.errno is None
    if isinstance(error, ssl.SSLError) or ended:  # ended: by asyncio, in the TLS handshake
        return not_tls
    if offset is None:
        return "Is a server running there, on this port?"
    if isinstance(error, NotListening):
        shown = f"`enmasse status{offset_option(offset)}` shows why"
        return f"EnMasse runs, but this port stayed closed for {RESTART_SECONDS:g} s: {shown}."
    return f"Is `enmasse up{offset_option(offset)}` running? --port-offset selects another suite."
