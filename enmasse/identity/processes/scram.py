"""SASL SCRAM (RFC 5802, RFC 7677) of both sides, on scramp: mechanisms for enmasse.amqp.sasl.layer."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from typing import Any

from scramp import ScramClient as Client
from scramp import ScramException, ScramMechanism

from enmasse.amqp.codec.errors import LoginError
from enmasse.amqp.sasl.layer import ClientFirst, ClientMechanism, Exchange, ExternalClient
from enmasse.identity.processes.credentials import AnyCredential, Credential
from enmasse.model.users import SCRAM_DIGESTS, Verifier

SCRAM = "SCRAM-SHA-256"
ITERATIONS = 4096
"""Rounds of PBKDF2 for secrets of processes: 256 random bits need no more than the least that RFC 7677 permits."""
MOST_ITERATIONS = 999_999
"""Most rounds that a client computes for a server, in about half a second of this process."""


USER_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
"""Mechanisms for which users get verifiers. (Verifiers for SCRAM-SHA-1 work too, if there are any.)"""
USER_ITERATIONS = 15_000
"""Rounds for passwords of users, which clients compute: 4 to 20 ms. Unknown users are shown the same number."""


def verifier(secret: str, iterations: int = ITERATIONS, mechanism: str = SCRAM) -> Verifier:
    """Return what proves this secret. Raises ScramException if SASLprep (RFC 4013) forbids it."""
    salt, stored_key, server_key, rounds = ScramMechanism(mechanism).make_auth_info(secret, iteration_count=iterations)
    return Verifier(salt, rounds, stored_key, server_key)


def proves(secret: str, known: Verifier) -> bool:
    """Return whether `known` is the verifier of this secret."""
    try:
        _, stored_key, _, _ = ScramMechanism(SCRAM).make_auth_info(secret, known.iterations, known.salt)
    except ScramException:
        return False
    return hmac.compare_digest(stored_key, known.stored_key)


class UnknownUsers:
    """Verifiers of unknown users: for each name always the same salt, and keys that no password has.

    Their exchange differs from that of a wrong password in nothing. `iterations`: as many as known users have.
    """

    def __init__(self, iterations: int = ITERATIONS, key: bytes = b"") -> None:
        """`key`: what salts are derived from; empty: a random one. Processes with the same key give the same salts."""
        self._iterations = iterations
        self._key = key

    def verifier(self, user: str, mechanism: str = SCRAM) -> Verifier:
        """Return the verifier for a name without a user."""
        if not self._key:
            self._key = secrets.token_bytes(32)  # not before: services are forked (docs/decisions/0033)

        def derived(use: str, digest: str) -> bytes:
            text = f"{use}\0{mechanism}\0{user}".encode("utf-8", "surrogatepass")
            return hmac.digest(self._key, text, digest)

        digest = SCRAM_DIGESTS[mechanism]
        return Verifier(
            derived("salt", "sha256"), self._iterations, derived("stored", digest), derived("server", digest)
        )


_UNKNOWN_PEERS = UnknownUsers()


class _Server(ClientFirst):
    """The server's side of one exchange. `find`: user → verifier, None for an unknown user."""

    def __init__(self, find: Callable[[str], Verifier | None], mechanism: str, unknown: UnknownUsers) -> None:
        self._find = find
        self._mechanism = mechanism
        self._unknown = unknown
        self._user: str | None = None
        self._is_known = False
        self._proved = False
        self._scram: Any = ScramMechanism(mechanism).make_server(self._look_up)

    def _look_up(self, user: str) -> tuple[bytes, bytes, bytes, int]:
        found = self._find(user)
        self._user, self._is_known = user, found is not None
        known = found or self._unknown.verifier(user, self._mechanism)
        return known.salt, known.stored_key, known.server_key, known.iterations

    def respond(self, exchange: Exchange, response: bytes) -> None:
        scram = self._scram
        try:
            if self._proved:
                exchange.succeed(self._user)
            elif self._user is None:
                scram.set_client_first(response.decode())
                exchange.challenge(scram.get_server_first().encode())
            else:
                scram.set_client_final(response.decode())
                if not self._is_known:
                    exchange.fail()
                    return
                self._proved = True  # the client answers the server's signature with an empty response
                exchange.challenge(scram.get_server_final().encode())
        except (ScramException, ValueError):
            exchange.fail()


def scram(
    find: Callable[[str], Verifier | None], mechanism: str = SCRAM, unknown: UnknownUsers = _UNKNOWN_PEERS
) -> Callable[[], _Server]:
    """Return a SCRAM mechanism for SaslServer. `find`: user → verifier for it, None for an unknown user."""
    return lambda: _Server(find, mechanism, unknown)


class ScramClient:
    """SCRAM of a client. It demands the server's proof that it knows the verifier of this user."""

    def __init__(self, user: str, password: str, mechanism: str = SCRAM) -> None:
        self.name = mechanism
        self._user = user
        self._password = password
        self._exchange: Any = None
        self._next: Callable[[str], bytes] = self._final

    def start(self) -> bytes | None:
        """Return client-first-message. Raises LoginError if SASLprep (RFC 4013) forbids user or password."""
        try:
            self._exchange = Client([self.name], self._user, self._password)
        except ScramException:  # its text may have a part of them
            raise LoginError("user or password have characters that SASLprep (RFC 4013) forbids") from None
        self._next = self._final
        return bytes(self._exchange.get_client_first().encode())

    def respond(self, challenge: bytes) -> bytes:
        """Return client-final-message, then the empty answer to the server's signature. Raises LoginError if the
        server does not know the secret either."""
        try:
            return self._next(challenge.decode())
        except (ScramException, ValueError) as error:
            raise LoginError(f"the server's part of {self.name} is wrong: {error}") from None

    def finish(self, additional: bytes | None) -> None:
        """Take the server's acceptance, with its signature unless that was a challenge. Raises AmqpError."""
        if additional is not None and self._next == self._verify:
            self.respond(additional)
        if self._next != self._end:
            raise LoginError(f"the server's part of {self.name} is wrong: no signature")

    def _final(self, text: str) -> bytes:
        rounds = next((part[2:] for part in text.split(",") if part.startswith("i=")), "")
        if len(rounds) > len(str(MOST_ITERATIONS)):
            raise ValueError("too many iterations")
        self._exchange.set_server_first(text)
        self._next = self._verify
        return bytes(self._exchange.get_client_final().encode())

    def _verify(self, text: str) -> bytes:
        self._exchange.set_server_final(text)
        self._next = self._end
        return b""

    def _end(self, text: str) -> bytes:
        raise ValueError("a challenge after its signature")


def of_process(credential: AnyCredential) -> ClientMechanism:
    """Return the mechanism by which a process of the suite authenticates."""
    return ScramClient(credential.name, credential.secret) if isinstance(credential, Credential) else ExternalClient()
