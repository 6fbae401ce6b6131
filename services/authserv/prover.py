"""Prover: whoever proves users beside users.json, an entry of issuers.json."""

from __future__ import annotations

from enmasse.identity.proofs.login_requests import BrowserIssuer, RedeemCode
from enmasse.model.issuers import Issuer
from services.authserv.proof import Proof


class Prover:
    """One entry, which proves nothing. `space`: the address space whose file has it."""

    def __init__(self, issuer: Issuer, space: str) -> None:
        self.issuer = issuer
        self.space = issuer.space or space
        """The address space of its users, unless a claim names it."""

    @property
    def checks_passwords(self) -> bool:
        """Return whether it checks passwords."""
        return False

    @property
    def problem(self) -> str:
        """Return what does not work, empty if everything does."""
        return ""

    async def check(self, token: str) -> Proof | None:
        """Return the identity that a token proves. Raises Unavailable."""
        return None

    async def check_password(self, user: str, password: str) -> Proof | None:
        """Return the identity that a password proves. Raises Busy, Unavailable."""
        return None

    async def redeem(self, login: RedeemCode) -> Proof | None:
        """Return the identity that a code of a browser proves. Raises Busy, Unavailable."""
        return None

    async def refresh(self, token: str) -> Proof | None:
        """Return the identity that a refresh token proves. Raises Busy, Unavailable."""
        return None

    def for_browsers(self, name: str) -> BrowserIssuer | None:
        """Return this issuer, under its name, as browsers may log in there; None: they may not."""
        return None

    async def run(self) -> None:
        """Keep its keys or state up to date until cancelled."""
        raise NotImplementedError
