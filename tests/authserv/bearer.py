"""Mechanisms of clients with tokens, for our engine."""

from __future__ import annotations


class Bearer:
    """A client with a token."""

    def __init__(self, name: str, first: str, last: bytes) -> None:
        self.name = name
        self._first = first
        self._last = last
        self.challenges: list[bytes] = []

    def start(self) -> bytes:
        return self._first.encode()

    def respond(self, challenge: bytes) -> bytes:
        self.challenges.append(challenge)
        return self._last

    def finish(self, additional: bytes | None) -> None:
        pass


def oauthbearer(token: str, user: str = "") -> Bearer:
    return Bearer("OAUTHBEARER", f"n,{f'a={user}' if user else ''},\x01auth=Bearer {token}\x01\x01", b"\x01")


def xoauth2(token: str, user: str) -> Bearer:
    return Bearer("XOAUTH2", f"user={user}\x01auth=Bearer {token}\x01\x01", b"")
