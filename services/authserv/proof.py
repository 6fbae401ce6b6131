"""Proof: what a login has shown; Unavailable: it could not be decided."""

from __future__ import annotations

from typing import NamedTuple

from enmasse.identity.principal import Principal
from enmasse.model.users import TokenFacts


class Proof(NamedTuple):
    """The user of a login. `expires`: seconds since 1970 from which the proof counts no longer; None: it is a password
    of users.json, which counts until it is changed. `refresh`: token by which the issuer gives a new proof; None: it
    gives none, or was not asked for a browser. `token`: name of the API token; empty: none, which has no `facts`."""

    principal: Principal
    expires: int | None = None
    refresh: str | None = None
    token: str = ""
    facts: TokenFacts | None = None


class Unavailable(Exception):
    """A source of users cannot decide now; the message has the reason, and no secret."""
