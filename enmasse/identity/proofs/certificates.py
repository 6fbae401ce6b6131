"""Certificates of clients: which user a verified one names (docs/identity.md, "Client certificates"). No sockets."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from typing import Any

from enmasse.identity.login import Certified
from enmasse.model.users import ANONYMOUS, user_name_error


def certified(connection: ssl.SSLObject | None, now: float | None = None) -> Certified | None:
    """Return the certificate that the client of a TLS connection has presented and the listener has verified; None
    without one. `now`: seconds since 1970."""
    found = None if connection is None else connection.getpeercert()
    return read(found, time.time() if now is None else now) if found else None


def read(certificate: Mapping[str, Any], now: float) -> Certified:
    """Return the user that a certificate, in the form of `getpeercert`, names: its subject's only common name."""
    if ssl.cert_time_to_seconds(certificate["notAfter"]) < now:  # a resumed session is not verified again
        return Certified("", "the certificate has expired")
    names = [value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
    if len(names) != 1:
        return Certified("", f"the subject of the certificate has {len(names) or 'no'} common names, not one")
    name = str(names[0])
    if name == ANONYMOUS:
        return Certified("", f"{ANONYMOUS!r} is not the name of a user")
    problem = user_name_error(name)
    return Certified("", f"the common name of the certificate: {problem}") if problem else Certified(name)
