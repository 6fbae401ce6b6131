"""Certificates of clients: which user a verified one names (docs/identity.md, "Client certificates"). No sockets."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from typing import Any, Final

from enmasse.identity.login import Certified
from enmasse.model.users import ANONYMOUS, user_name_error
from enmasse.text import printable

MAX_SUBJECT: Final = 100
"""Characters of a subject that are shown."""


def certified(connection: ssl.SSLObject | None, now: float | None = None) -> Certified | None:
    """Return the certificate that the client of a TLS connection has presented and the listener has verified; None
    without one. `now`: seconds since 1970."""
    found = None if connection is None else connection.getpeercert()
    return read(found, time.time() if now is None else now) if found else None


def read(certificate: Mapping[str, Any], now: float) -> Certified:
    """Return the user that a certificate, in the form of `getpeercert`, names: its subject's only common name."""
    parts = [pair for part in certificate.get("subject", ()) for pair in part]
    problem = ""
    names = [str(value) for kind, value in parts if kind == "commonName"]
    if ssl.cert_time_to_seconds(certificate["notAfter"]) < now:  # a resumed session is not verified again
        problem = "the certificate has expired"
    elif len(names) != 1:
        problem = f"the subject of the certificate has {len(names) or 'no'} common names, not one"
    elif names[0] == ANONYMOUS:
        problem = f"{ANONYMOUS!r} is not the name of a user"
    elif error := user_name_error(names[0]):
        problem = f"the common name of the certificate: {error}"
    if not problem:
        return Certified(names[0])
    subject = printable(", ".join(f"{kind}={value}" for kind, value in parts))
    return Certified("", f"{problem}; its subject: {subject[:MAX_SUBJECT] or 'empty'}")
