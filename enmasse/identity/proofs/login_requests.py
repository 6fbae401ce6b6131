"""Messages by which gateways and the console have passwords checked over one connection, and the console logs browsers
in at issuers (docs/contracts.md, "authserv": `logins`, `issuers`)."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from enmasse.amqp.codec.encoder import encode_string
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.messages.sections import Sections
from enmasse.identity.login import Login
from enmasse.identity.principal import Principal
from enmasse.model.names import DEFAULT_SPACE
from enmasse.storage.decoding import decode

ADDRESS: Final = "logins"
ISSUERS: Final = "issuers"
"""Address for logins of browsers at issuers."""
MOST: Final = 512
"""Requests of a connection that are not answered: the credit of a gateway."""
MAX_REQUEST: Final = 128 * 1024
"""Bytes of a request: user name and password, in which JSON may escape each byte by six."""


class LoginRequest(msgspec.Struct, frozen=True):
    """A user name and password, to be proved by PLAIN. `client`: address of the client, without port. `id`: any number,
    by which the gateway finds the answer. `spaces`: the caller knows address spaces, so that the user may be
    `USER@SPACE`; `space`: that which the client has chosen otherwise, by its host; None: none. `api`: the request is of
    the API, at which API tokens count."""

    id: int
    user: str
    password: str
    client: str
    spaces: bool = False
    space: str | None = None
    api: bool = False

    def __repr__(self) -> str:
        return f"LoginRequest({self.id}, client={self.client!r})"


class LoginAnswer(msgspec.Struct, frozen=True):
    """Outcome of the request with this id. `refused`: user name or password is wrong; `unavailable`: try again later.
    `waiting`: refused unseen, because of earlier failures or of too many attempts under way; operators may see this,
    the client may not. The other fields are those of `Login`, if it was accepted."""

    id: int
    outcome: Literal["accepted", "refused", "unavailable"]
    user: str = ""
    groups: tuple[str, ...] = ()
    credentials: str | None = None
    expires: int | None = None
    refresh: str | None = None
    """Refresh token of the issuer, after a code or refresh token of a browser; None: it gave none."""
    space: str = DEFAULT_SPACE
    token: str = ""
    read_only: bool = False
    waiting: bool = False

    def __repr__(self) -> str:
        return f"LoginAnswer({self.id}, {self.outcome!r}, user={self.user!r})"

    @property
    def login(self) -> Login:
        """Return the identity of a client that was accepted."""
        principal = Principal(self.user, self.groups, self.space)
        return Login(principal, self.credentials, self.expires, token=self.token, read_only=self.read_only)


class ListIssuers(msgspec.Struct, frozen=True, tag_field="ask", tag="list"):
    """Request for the issuers at which browsers can log in. `space`: the address space of the host that they have
    asked; None: it is of none."""

    id: int
    space: str | None = None


class RedeemCode(msgspec.Struct, frozen=True, tag_field="ask", tag="redeem"):
    """A code that the issuer has given to a browser, to be exchanged for the identity of its user. `issuer`: name in
    issuers.json; `verifier`, `nonce`, `redirect`: of the login that the browser has begun; `stated`: what
    the issuer calls itself when it sends the browser back (RFC 9207), None if it does not; `client`: the browser's
    address; `space`: as in `ListIssuers`."""

    id: int
    issuer: str
    code: str
    verifier: str
    nonce: str
    redirect: str
    stated: str | None
    client: str
    space: str | None = None

    def __repr__(self) -> str:
        return f"RedeemCode({self.id}, issuer={self.issuer!r}, client={self.client!r})"


class RefreshLogin(msgspec.Struct, frozen=True, tag_field="ask", tag="refresh"):
    """A refresh token (RFC 6749, 6), to be exchanged for the present identity of its user. `issuer`: name in
    issuers.json; `client`: address of the browser; `space`: as in `ListIssuers`."""

    id: int
    issuer: str
    token: str
    client: str
    space: str | None = None

    def __repr__(self) -> str:
        return f"RefreshLogin({self.id}, issuer={self.issuer!r}, client={self.client!r})"


class AskRevision(msgspec.Struct, frozen=True, tag_field="ask", tag="revision"):
    """Request for the revision of the feed `users` by which passwords and tokens are checked now."""

    id: int


IssuerRequest = ListIssuers | RedeemCode | RefreshLogin | AskRevision


class BrowserIssuer(msgspec.Struct, frozen=True):
    """An issuer at which browsers can log in. `endpoint`: URL of its authorization endpoint; empty: not known yet."""

    name: str
    client_id: str
    endpoint: str


class IssuersAnswer(msgspec.Struct, frozen=True):
    """Answer to `ListIssuers`, in the order of issuers.json."""

    id: int
    issuers: tuple[BrowserIssuer, ...]


class RevisionAnswer(msgspec.Struct, frozen=True):
    """Answer to `AskRevision`; 0: there are no users yet."""

    id: int
    revision: int


def encoded(message: LoginRequest | LoginAnswer | IssuerRequest | IssuersAnswer | RevisionAnswer) -> bytes:
    """Return the AMQP message."""
    return b"\x00\x53\x77" + encode_string(msgspec.json.encode(message).decode())


def decoded_request(payload: bytes) -> LoginRequest:
    """Return the request in an AMQP message. Raises ValueError, whose text has nothing of the request."""
    return decode(_text(payload), LoginRequest)


def decoded_issuer_request(payload: bytes) -> IssuerRequest:
    """Return the request at ISSUERS in an AMQP message. Raises ValueError, whose text has nothing of the request."""
    found: IssuerRequest = decode(_text(payload), IssuerRequest)  # type: ignore[arg-type]  # union
    return found


def decoded_answer(payload: bytes) -> LoginAnswer:
    """Return the answer in an AMQP message. Raises ValueError."""
    return decode(_text(payload), LoginAnswer)


def _text(payload: bytes) -> str:
    try:
        _, values = Sections(payload).body()
    except AmqpError:
        values = []
    if not values or not isinstance(values[0], str):
        raise ValueError("the body must be JSON text: a string in an amqp-value section")
    return values[0]
