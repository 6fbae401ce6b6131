"""Origins of web pages that may use a gateway. No sockets."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from enmasse.model.loopback import is_loopback, may_be_rebound

ORIGIN_REFUSED: Final = "pages of this origin may not connect: see the option --allowed-origin\n"
"""Body of the answer to a page that may not connect by WebSocket."""


def is_allowed(origin: str, host: str, allowed: Collection[str], local: str) -> bool:
    """Return True if a page of this origin may connect to a gateway that it reaches as `host` (RFC 6455, 10.2): pages
    of the same host may, on any port, and of `allowed` origins; `*` is every origin.

    `local`: the address at which the connection arrived. If it is loopback, `host` must name loopback too: a page whose
    name was made to resolve to 127.0.0.1 (DNS rebinding) has the same host as well."""
    if origin in allowed or "*" in allowed:
        return True
    try:
        name = urlsplit(f"//{host}").hostname
        if name is None or urlsplit(origin).hostname != name:
            return False
    except ValueError:
        return False
    return is_loopback(name) or not is_loopback(local)


def may_be_any_site(origin: str, host: str, allowed: Collection[str]) -> bool:
    """Return True if a page of this origin, to whose server TLS is not used, may be of any site: its name, which is no
    address, was made to resolve to the gateway. Pages of `https:` connect with TLS, also to a proxy before it."""
    return origin not in allowed and "*" not in allowed and not origin.startswith("https:") and may_be_rebound(host)


def why_refused(origin: str, host: str) -> str:
    """Return the reason of the event for a page of this origin that asked for a WebSocket at `host`."""
    return f"a page of {origin} asked for a WebSocket at {host}: see the option --allowed-origin"
