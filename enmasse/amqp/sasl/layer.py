"""The SASL layer (OASIS AMQP 1.0, 5.3): mechanisms are objects with start and respond, on either side.

A server's mechanism is handed an Exchange and answers by `challenge`, `succeed` or `fail`, at once or later: so an
authenticator may ask another service first. ANONYMOUS, PLAIN (RFC 4616) and EXTERNAL (RFC 4422) are here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError, LoginError
from enmasse.amqp.codec.performatives import (
    SASL_AUTH,
    SASL_OK,
    SASL_SYS_TEMP,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from enmasse.amqp.codec.types import Symbol

__all__ = [
    "EXTERNAL",
    "AnonymousClient",
    "ClientMechanism",
    "Exchange",
    "ExternalClient",
    "PlainClient",
    "SaslClient",
    "SaslServer",
    "ServerMechanism",
    "anonymous",
    "external",
    "plain",
]

_MAX_ROUNDS = 16
EXTERNAL = "EXTERNAL"
_TEXT = {
    1: "wrong credentials",
    2: "a system error",
    3: "a permanent system error",
    4: "a transient system error; try again",
}


def _nothing(*_: Any) -> None:
    """Ignore a call."""


class ServerMechanism(Protocol):
    """One conversation. Call `exchange.challenge`, `succeed` or `fail` once per call of start or respond."""

    def start(self, exchange: Exchange, initial: bytes | None) -> None:
        """Begin with the client's initial response (None: it sent none), and answer through `exchange`."""

    def respond(self, exchange: Exchange, response: bytes) -> None:
        """Take the client's response to a challenge, and answer through `exchange`."""


class ClientFirst:
    """A mechanism in which the client speaks first: without an initial response, it is asked for one (5.3.3.2)."""

    def start(self, exchange: Exchange, initial: bytes | None) -> None:
        """Begin with the client's initial response, or ask for it by an empty challenge."""
        if initial is None:
            exchange.challenge(b"")
        else:
            self.respond(exchange, initial)

    def respond(self, exchange: Exchange, response: bytes) -> None:
        """Take the initial response, or a response to a challenge, and answer through `exchange`."""
        raise NotImplementedError


class ClientMechanism(Protocol):
    """`name` as registered. `start` begins an exchange, also after an earlier one."""

    name: str

    def start(self) -> bytes | None:
        """Return the initial response, None without one."""

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the response to a challenge; None: it is given later, to `Connection.answer_challenge`."""

    def finish(self, additional: bytes | None) -> None:
        """Take the server's acceptance, with the additional data of its outcome. Raises AmqpError if the mechanism
        demands a proof from the server, and there was none."""


class Exchange:
    """The server's side of one conversation. `hostname` is what the client asked for in sasl-init."""

    def __init__(self, server: SaslServer, hostname: str | None, mechanism: str) -> None:
        self.hostname = hostname
        self.mechanism = mechanism
        self._server = server
        self._answered = False

    def challenge(self, data: bytes) -> None:
        """Ask the client for more; its answer comes to `respond`."""
        if not self._answered:
            self._answered = True
            self._server._send(SaslChallenge(challenge=data))

    def succeed(self, user: str | None) -> None:
        """Accept the client as `user` (None: anonymous)."""
        if not self._answered:
            self._answered = True
            self._server._finish(SASL_OK, user)

    def fail(self, code: int = SASL_AUTH) -> None:
        """Refuse: `code` is a sasl-code (5.3.3.6)."""
        if not self._answered:
            self._answered = True
            self._server._finish(code, None)


class SaslServer:
    """Server side of one connection: mechanism name -> factory of ServerMechanism. Without any it offers ANONYMOUS.

    `required` False takes clients that skip the SASL layer.
    """

    def __init__(
        self, mechanisms: Mapping[str, Callable[[], ServerMechanism]] | None = None, *, required: bool | None = None
    ) -> None:
        self.mechanisms = dict(mechanisms) if mechanisms is not None else {"ANONYMOUS": anonymous}
        self.required = mechanisms is not None if required is None else required
        self.done = False
        self.offered: tuple[str, ...] | None = None
        """The mechanisms that the client was sent; None: none so far."""
        self.mechanism: str | None = None
        self._current: ServerMechanism | None = None
        self._exchange: Exchange | None = None
        self._rounds = 0
        self._send: Callable[[Any], None] = _nothing
        self._on_done: Callable[[str | None, bool], None] = _nothing

    @property
    def unchosen(self) -> tuple[str, ...]:
        """The mechanisms that were offered to a client that has chosen none of them."""
        return self.offered if self.offered is not None and self.mechanism is None else ()

    @property
    def waits(self) -> bool:
        """A mechanism has been asked and has not answered yet."""
        return self._exchange is not None and not self._exchange._answered

    def start(self, send: Callable[[Any], None], on_done: Callable[[str | None, bool], None]) -> None:
        """The header has come: send the mechanisms. (The connection calls this.)"""
        self._send = send
        self._on_done = on_done
        self.offered = tuple(self.mechanisms)
        send(SaslMechanisms(sasl_server_mechanisms=tuple(Symbol(name) for name in self.offered)))

    def receive(self, frame: Any) -> None:
        """A frame of the client. Raises AmqpError if it is out of turn."""
        if isinstance(frame, SaslInit) and self._current is None:
            factory = self.mechanisms.get(frame.mechanism)
            self._exchange = Exchange(self, frame.hostname, str(frame.mechanism))
            if factory is None:
                self._exchange.fail()
                return
            self.mechanism = str(frame.mechanism)
            self._current = factory()
            initial = frame.initial_response
            self._current.start(self._exchange, None if initial is None else bytes(initial))
        elif isinstance(frame, SaslResponse) and self._current is not None:
            exchange = self._exchange
            assert exchange is not None
            self._rounds += 1
            if not exchange._answered or self._rounds > _MAX_ROUNDS:
                raise AmqpError(errors.ILLEGAL_STATE, "a sasl-response without a challenge")
            exchange._answered = False
            self._current.respond(exchange, bytes(frame.response))
        else:
            raise AmqpError(errors.ILLEGAL_STATE, f"{type(frame).__name__} is out of turn in the SASL exchange")

    def _finish(self, code: int, user: str | None) -> None:
        if self.done:
            return
        self._send(SaslOutcome(code=code))
        self.done = code == SASL_OK
        on_done = self._on_done
        self.let_go()
        on_done(user, code == SASL_OK)

    def let_go(self) -> None:
        """Release the references to the connection: the outcome is decided, or the connection has ended."""
        self._send = self._on_done = _nothing
        self._current = self._exchange = None


class SaslClient:
    """Client side: its mechanisms, best first. The first one that the server offers is used. `note`: ends the error
    if it offers none of them."""

    def __init__(self, mechanisms: Sequence[ClientMechanism], hostname: str | None = None, note: str = "") -> None:
        self.mechanisms = list(mechanisms)
        self.hostname = hostname
        self._note = note
        self.done = False
        self._current: ClientMechanism | None = None
        self._rounds = 0

    @property
    def mechanism(self) -> str | None:
        """The mechanism that was chosen, once the server has sent what it offers."""
        return None if self._current is None else self._current.name

    def receive(self, frame: Any) -> Any:
        """A frame of the server; returns the answer to it, or None. Raises AmqpError if we are refused."""
        if isinstance(frame, SaslMechanisms) and self._current is None:
            offered = [str(name) for name in frame.sasl_server_mechanisms]
            for mechanism in self.mechanisms:
                if mechanism.name in offered:
                    self._current = mechanism
                    return SaslInit(
                        mechanism=Symbol(mechanism.name), initial_response=mechanism.start(), hostname=self.hostname
                    )
            wanted = ", ".join(m.name for m in self.mechanisms)
            text = f"the server offers {', '.join(offered) or 'no mechanism'}, the client has {wanted}{self._note}"
            raise LoginError(text, offered=offered)
        if isinstance(frame, SaslChallenge) and self._current is not None:
            self._rounds += 1
            if self._rounds > _MAX_ROUNDS:
                raise AmqpError(errors.ILLEGAL_STATE, f"the SASL exchange takes more than {_MAX_ROUNDS} rounds")
            response = self._current.respond(bytes(frame.challenge))
            return None if response is None else SaslResponse(response=response)
        if isinstance(frame, SaslOutcome) and self._current is not None:
            if frame.code != SASL_OK:
                text = _TEXT.get(int(frame.code), f"code {frame.code}")
                raise LoginError(f"authentication by {self._current.name} failed: {text}", int(frame.code))
            self._current.finish(None if frame.additional_data is None else bytes(frame.additional_data))
            self.done = True
            return None
        raise AmqpError(errors.ILLEGAL_STATE, f"{type(frame).__name__} is out of turn in the SASL exchange")


# --- mechanisms -------------------------------------------------------------------------------------------------------


class _Anonymous:
    def start(self, exchange: Exchange, initial: bytes | None) -> None:
        exchange.succeed("anonymous")

    def respond(self, exchange: Exchange, response: bytes) -> None:
        exchange.fail()


def anonymous() -> ServerMechanism:
    """Return ANONYMOUS: every client is the user "anonymous"."""
    return _Anonymous()


Authenticator = Callable[[Exchange, str, str], None]
"""Asked with (exchange, user, password): calls `exchange.succeed(user)` or `exchange.fail()`, now or later."""


class _Plain(ClientFirst):
    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    def respond(self, exchange: Exchange, response: bytes) -> None:
        try:
            authorization, user, password = response.decode().split("\0")
        except ValueError:
            exchange.fail()
            return
        if not user or (authorization and authorization != user):
            exchange.fail()
        else:
            self._authenticator(exchange, user, password)


def plain(authenticator: Authenticator | Mapping[str, str]) -> Callable[[], ServerMechanism]:
    """PLAIN: the factory for SaslServer; `authenticator` decides, or is a table user -> password."""
    if isinstance(authenticator, Mapping):
        return lambda: _Plain(_table(authenticator))
    return lambda: _Plain(authenticator)


def _table(users: Mapping[str, str]) -> Authenticator:
    def check(exchange: Exchange, user: str, password: str) -> None:
        from hmac import compare_digest

        known = users.get(user)
        if known is not None and compare_digest(known.encode(), password.encode()):
            exchange.succeed(user)
        else:
            exchange.fail()

    return check


class _External:
    def __init__(self, user: Callable[[], str | None]) -> None:
        self._user = user

    def start(self, exchange: Exchange, initial: bytes | None) -> None:
        user = self._user()
        if user is None or (initial and initial.decode("utf-8", "replace") != user):
            exchange.fail()
        else:
            exchange.succeed(user)

    def respond(self, exchange: Exchange, response: bytes) -> None:
        exchange.fail()


def external(user: Callable[[], str | None]) -> Callable[[], ServerMechanism]:
    """EXTERNAL: who the peer is for the transport (the subject of its certificate); None: unknown."""
    return lambda: _External(user)


class AnonymousClient:
    """ANONYMOUS (RFC 4505): a client without an identity."""

    name = "ANONYMOUS"

    def start(self) -> bytes | None:
        """Return the trace information that the RFC allows."""
        return b"anonymous"

    def respond(self, challenge: bytes) -> bytes:
        """Return an empty response."""
        return b""

    def finish(self, additional: bytes | None) -> None:
        """Accept: the server proves nothing."""


class PlainClient:
    """PLAIN (RFC 4616): user and password."""

    name = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        if "\0" in user + password:
            raise ValueError("user and password of PLAIN cannot hold a NUL")
        self._response = f"\0{user}\0{password}".encode()

    def start(self) -> bytes | None:
        """Return user and password."""
        return self._response

    def respond(self, challenge: bytes) -> bytes:
        """Return user and password, for servers that ignore the initial response."""
        return self._response

    def finish(self, additional: bytes | None) -> None:
        """Accept: the server proves nothing."""


class ExternalClient:
    """EXTERNAL (RFC 4422): the identity is the transport's."""

    name = EXTERNAL

    def start(self) -> bytes | None:
        """Return an empty response: no other identity is asked for."""
        return b""

    def respond(self, challenge: bytes) -> bytes:
        """Return an empty response."""
        return b""

    def finish(self, additional: bytes | None) -> None:
        """Accept: the server proves nothing."""


TEMPORARY = SASL_SYS_TEMP  # for `Exchange.fail` if the authenticator itself cannot be reached
