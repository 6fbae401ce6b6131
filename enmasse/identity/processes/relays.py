"""The address of a client for which a router or gateway asks the authentication service, in the host name of sasl-init.

The service limits failures by it, so that it must not believe what any process states: relays add a proof, made with
the key that `enmasse up` gives to them and to the service (field `relay_key` of their credentials).
"""

from __future__ import annotations

import hmac
import ipaddress
from typing import Final

CLIENT: Final = "?client="
PROOF: Final = "&proof="


def relayed_host_name(realm: str, client: str, key: str) -> str:
    """Return the host name of sasl-init that states the address of a client. `key` empty: without a proof."""
    return f"{realm}{CLIENT}{client}" + (f"{PROOF}{_proof(client, key)}" if key else "")


def relayed_client(host_name: str, key: str) -> str | None:
    """Return the address that a host name states; None without one, or if its proof is wrong. `key` empty: no proof is
    required."""
    stated, _, proof = host_name.partition(CLIENT)[2].partition(PROOF)
    if key and not hmac.compare_digest(proof.encode(errors="replace"), _proof(stated, key).encode()):
        return None
    try:
        return str(ipaddress.ip_address(stated))
    except ValueError:
        return None


def _proof(client: str, key: str) -> str:
    return hmac.digest(key.encode(), client.encode(errors="replace"), "sha256").hex()
