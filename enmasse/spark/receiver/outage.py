"""Decision of a receiver that cannot reach its address: try again, or end with a sentence that names what to do.

Two kinds of trouble. *Lasting*: waiting does not help (the address is refused, the user is refused, the certificate is
not trusted, the host name does not resolve). *Passing*: it may end by itself (connection refused or lost).

- At the start of a query, before the address was ever attached: lasting trouble ends it at once, passing trouble after
  `Patience.start`.
- Once it was attached: passing trouble is tried again indefinitely, lasting trouble for `Patience.gone`, because a
  suite that restarts has its routers before their addresses. A name that does not resolve is then passing trouble:
  name servers fail.

No clock in here: callers give seconds.
"""

from __future__ import annotations

import enum
import socket
import ssl
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.spark.options import shown
from enmasse.spark.server_options import FileError

REFUSALS = (errors.NOT_FOUND, errors.UNAUTHORIZED_ACCESS, errors.NOT_ALLOWED)


class Phase(enum.Enum):
    """How far an attempt has come."""

    CONNECT = "connect"
    ATTACH = "attach"
    ATTACHED = "attached"


@dataclass(frozen=True)
class Patience:
    """Seconds: until a query that never had its address ends, and for which one that had it lets it be refused."""

    start: float = 30.0
    gone: float = 60.0


def words(error: BaseException) -> str:
    """Return the text of an error, or the name of its class if it has none."""
    return str(error) or type(error).__name__


def remedy(url: str, address: str, phase: Phase, error: BaseException, user: str | None = None) -> str | None:
    """Return which option is wrong and what to do, if waiting does not help; None if it may. `user`: not from `url`."""
    reason, server = words(error), shown(url)
    if isinstance(error, FileError):
        return error.wrong
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f'option "url": the certificate of {server} is not trusted ({reason}). Let the option "caFile", or '
            "SSL_CERT_FILE in the environment, name the file of its authority, and write the host name that the "
            "certificate is for"
        )
    if isinstance(error, (socket.gaierror, UnicodeError)):
        host = urlsplit(url).hostname
        return f'option "url": the host name {host!r} of {server} does not resolve ({reason}). Correct it'
    if not isinstance(error, AmqpError) or error.condition not in REFUSALS:
        return None
    if phase is not Phase.CONNECT:
        return f'option "address": {server} refuses {address!r} ({reason}). ' + (
            'Correct it, name its address space in the option "space" if it is in one, or make the address first'
            if error.condition == errors.NOT_FOUND
            else f'Let the user of the option "{"user" if user else "url"}" use it, or give another user there'
        )
    if "offers ANONYMOUS," in reason:
        return f'option "{"user" if user else "url"}": {server} has no users ({reason}). Leave the user out'
    if user:
        return (
            f'options "user" and "passwordFile": {server} refuses the user {user!r} ({reason}). Give a user and the '
            "file of a password that the server knows"
        )
    user = unquote(urlsplit(url).username or "")
    who = f"the user {user!r}" if user else "a client without a user"
    return (
        f'option "url": {server} refuses {who} ({reason}). Write amqp://user:password@host:port with a user and a '
        'password that the server knows, special characters as %XX, or give the options "user" and "passwordFile"'
    )


def unreached(url: str, address: str, phase: Phase, error: BaseException, took: str = "") -> str:
    """Return the remedy for passing trouble that did not end; `took` (" in 30 s") states for how long."""
    server = shown(url)
    if phase is Phase.CONNECT and isinstance(error, ssl.SSLError):
        return (
            f'option "url": no TLS with {server}{took} ({words(error)}). Is this a port of AMQPS? AMQP without TLS is '
            "amqp://host:port"
        )
    if phase is Phase.CONNECT:
        return (
            f'option "url": no connection with {server}{took} ({words(error)}). Start the server there, or correct '
            "host and port"
        )
    return (
        f'option "address": {server} gave no link with {address!r}{took} ({words(error)}). Look at the server\'s log '
        "and at the address's status"
    )


class Outage:
    """Judges the attempts of one receiver for one address."""

    def __init__(self, url: str, address: str, patience: Patience, now: float, user: str = "") -> None:
        """user: not from `url`."""
        self.url, self.address, self.patience, self.user = url, address, patience, user
        self.began = now
        self.had = False  # the address was attached once
        self.refused_since: float | None = None

    def attached(self) -> None:
        """Note that the address is attached: from now on passing trouble is waited out."""
        self.had = True
        self.refused_since = None

    def failed(self, phase: Phase, error: BaseException, now: float) -> str | None:
        """An attempt that began in `phase` has failed: the sentence to end with, or None to try again."""
        wrong = remedy(self.url, self.address, phase, error, self.user)
        if not self.had:
            if wrong is not None:
                return f"amqp source: {wrong}"
            if now - self.began < self.patience.start:
                return None
            return f"amqp source: {unreached(self.url, self.address, phase, error, f' in {self.patience.start:g} s')}"
        if wrong is None or isinstance(error, (socket.gaierror, UnicodeError)):
            self.refused_since = None
            return None
        if self.refused_since is None:
            self.refused_since = now
        if now - self.refused_since < self.patience.gone:
            return None
        return f"amqp source: {wrong}. It worked before; this has lasted for {self.patience.gone:g} s"
