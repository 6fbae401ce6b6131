"""Remedies for failed connections."""

from __future__ import annotations

import ssl

from enmasse.cli.opening import RESTART_SECONDS, NotListening
from enmasse.text import offset_option


def remedy(error: OSError, offset: int | None, not_tls: str) -> str:
    """Return a sentence. `offset`: of the suite on this machine, None for a server that the user named. `not_tls`: what
    to say if the server does not speak TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "Name the file of its authority with --ca FILE, and use the host name of the certificate."
    if isinstance(error, ssl.SSLError):
        return not_tls
    if offset is None:
        return "Is a server running there, on this port?"
    if isinstance(error, NotListening):
        shown = f"`enmasse status{offset_option(offset)}` shows why"
        return f"EnMasse runs, but this port stayed closed for {RESTART_SECONDS:g} s: {shown}."
    return f"Is `enmasse up{offset_option(offset)}` running? --port-offset selects another suite."
