"""Token endpoint of an issuer (RFC 6749, 3.2): grants are exchanged for tokens, a bounded number at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from enmasse.identity.proofs.passwords import Busy
from enmasse.model.issuers import Issuer
from services.authserv.issuer_http import Documents, IssuerError
from services.authserv.proof import Proof, Unavailable

TIMEOUT = 5.0
"""Seconds for a grant, waiting included: routers wait eight and gateways ten for the whole login."""
AT_ONCE = 16
"""Grants that an issuer is asked about at a time."""
MAX_WAITING = 1024
"""Grants that are asked about or wait."""
_NOT_ALLOWED = frozenset({"unauthorized_client", "unsupported_grant_type"})
"""Errors by which an issuer says, with status 400, that the client has no such grant."""

Accept = Callable[[Mapping[str, Any]], Awaitable[Proof | None]]
"""Returns what the answer of the endpoint proves. Raises IssuerError, Unavailable."""


class TokenEndpoint:
    """One kind of grant at the endpoint, for the client of the issuer's entry. `undecided`: called
    with the reason, once for each, when a grant cannot be decided."""

    def __init__(self, issuer: Issuer, documents: Documents, undecided: Callable[[str], None]) -> None:
        self.url = ""
        """Empty while it is not known."""
        self.problem = ""
        """Reason for which the last grant could not be decided; empty if it was."""
        self._issuer = issuer
        self._documents = documents
        self._undecided = undecided
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def exchange(self, fields: Mapping[str, str], accept: Accept) -> Proof | None:
        """Return what the tokens for a grant prove, None if the issuer refuses it. Raises Busy, and Unavailable if the
        issuer does not answer as it should."""
        if self._waiting >= MAX_WAITING:
            raise Busy
        self._waiting += 1
        try:
            async with asyncio.timeout(TIMEOUT), self._slots:
                found = await self._exchanged(fields, accept)
        except (IssuerError, Unavailable, TimeoutError) as error:
            reason = str(error) or f"no answer within {TIMEOUT:.0f} s"
            if reason != self.problem:
                self._undecided(reason)
            self.problem = reason
            raise Unavailable(reason) from None
        finally:
            self._waiting -= 1
        self.problem = ""
        return found

    async def _exchanged(self, fields: Mapping[str, str], accept: Accept) -> Proof | None:
        """Raise IssuerError or Unavailable if there is no decision."""
        if not self.url:
            raise IssuerError("the token endpoint is not known yet")
        client, secret = self._issuer.client_id or "", self._issuer.client_secret
        if secret is None:
            fields = {**fields, "client_id": client}
        status, answer = await self._documents.post(self.url, fields, None if secret is None else (client, secret))
        if status == 200:
            return await accept(answer)
        error = str(answer.get("error"))[:100]
        if status in (400, 401) and error == "invalid_grant":
            return None
        if status == 400 and error in _NOT_ALLOWED:
            return None
        raise IssuerError(f"{self.url}: HTTP status {status}, error {error!r}")
