"""SASL with bearer tokens: OAUTHBEARER (RFC 7628) and XOAUTH2 (Google's earlier form of it)."""

from __future__ import annotations

from collections.abc import Callable

from enmasse.amqp.sasl.layer import ClientFirst, Exchange

TokenCheck = Callable[[Exchange, str, str], None]
"""Asked with (exchange, user, token): `user` is empty unless the client states one."""
_SEPARATOR = "\x01"
_REFUSED = b'{"status":"invalid_token"}'
"""Answer to a token that is refused; the client answers it, and then the outcome follows (RFC 7628, 3.2.3)."""


class _Bearer(ClientFirst):
    def __init__(self, check: TokenCheck, read: Callable[[str], tuple[str, str]]) -> None:
        self._check = check
        self._read = read
        self._refused = False

    def respond(self, exchange: Exchange, response: bytes) -> None:
        if self._refused:
            exchange.fail()
            return
        try:
            user, token = self._read(response.decode())
        except ValueError:
            exchange.fail()
            return
        self._check(_Refusing(exchange, self._refuse), user, token)

    def _refuse(self, exchange: Exchange) -> None:
        self._refused = True
        exchange.challenge(_REFUSED)


class _Refusing(Exchange):
    """An exchange in which a refusal is a challenge first."""

    def __init__(self, exchange: Exchange, refuse: Callable[[Exchange], None]) -> None:
        self.hostname = exchange.hostname
        self.mechanism = exchange.mechanism
        self._exchange = exchange
        self._refuse = refuse

    def succeed(self, user: str | None) -> None:
        self._exchange.succeed(user)

    def fail(self, code: int = 1) -> None:
        self._refuse(self._exchange)


def oauthbearer(check: TokenCheck) -> Callable[[], _Bearer]:
    """Return OAUTHBEARER for SaslServer."""
    return lambda: _Bearer(check, read_oauthbearer)


def xoauth2(check: TokenCheck) -> Callable[[], _Bearer]:
    """Return XOAUTH2 for SaslServer."""
    return lambda: _Bearer(check, read_xoauth2)


def read_oauthbearer(text: str) -> tuple[str, str]:
    """Return authorization identity and token of `n,a=USER,^Ahost=…^Aauth=Bearer TOKEN^A^A`. Raises ValueError."""
    head, *fields = text.split(_SEPARATOR)
    flag, authzid, rest = head.split(",")
    if flag not in ("n", "y") or rest or (authzid and not authzid.startswith("a=")):
        raise ValueError("not the head of OAUTHBEARER")
    return authzid[2:].replace("=2C", ",").replace("=3D", "="), _token(fields)


def read_xoauth2(text: str) -> tuple[str, str]:
    """Return user and token of `user=USER^Aauth=Bearer TOKEN^A^A`. Raises ValueError."""
    head, *fields = text.split(_SEPARATOR)
    if not head.startswith("user="):
        raise ValueError("not the head of XOAUTH2")
    return head[5:], _token(fields)


def _token(fields: list[str]) -> str:
    if fields[-2:] != ["", ""]:
        raise ValueError("does not end with two separators")
    found = dict(field.split("=", 1) for field in fields[:-2])
    kind, _, token = found.get("auth", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise ValueError("no bearer token")
    return token.strip()
