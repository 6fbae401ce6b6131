"""The server of a command: the suite on this machine, or one that the user named by a URL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from enmasse.cli.common import NO_FILES, TlsFiles

if TYPE_CHECKING:
    import ssl

LOCAL = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetServer:
    """A server and how to connect to it. `scheme`: of its URL; one that ends in `s` stands for TLS, verified.

    `offset`: of the suite on this machine; None for a server that the user named.
    """

    scheme: str
    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    offset: int | None = None
    files: TlsFiles = NO_FILES
    space: str | None = None
    """The address space that the command works in; None: that of the user."""

    @property
    def tls(self) -> bool:
        """Return True if the connection is by TLS."""
        return self.scheme.endswith("s")

    @property
    def certified(self) -> bool:
        """Return True if the command logs in by its certificate."""
        return self.tls and self.files.cert is not None and self.user is None

    @property
    def by_operator(self) -> bool:
        """Return True if the command works in an address space as the operator: with neither user nor certificate."""
        return self.space is not None and self.user is None and not self.certified

    @property
    def stated_host(self) -> str:
        """Return the host that AMQP states: that of an address space which no user's name states."""
        return self.space if self.space is not None and self.user is None else self.host

    def context(self) -> ssl.SSLContext | None:
        """Return the context of TLS; None without TLS. Ends the command (wrong usage) if a file cannot be used."""
        if not self.tls:
            return None
        import ssl

        import click

        ca, cert, key = self.files
        try:
            context = ssl.create_default_context(cafile=ca)
        except ssl.SSLError:
            raise click.BadParameter(f"{ca}: has no certificate in PEM.", param_hint="--ca") from None
        try:
            if cert is not None:
                context.load_cert_chain(cert, key, str)  # never asks a terminal for a password
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            text = f"{cert}, {key or cert}: {why}. They must be PEM, the key without a password, and belong together."
            raise click.BadParameter(text, param_hint="--cert, --key") from None
        return context

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


def refuse_without_tls(server: TargetServer, given: TlsFiles, option: str) -> None:
    """End the command (wrong usage) if files for TLS are named on its command line, and the connection is without. The
    environment may name them for other commands. `option`: how a server with TLS is named."""
    if server.tls or given == NO_FILES:
        return
    import click

    source = click.get_current_context().get_parameter_source
    for name in given._fields:
        if source(name) is click.core.ParameterSource.COMMANDLINE:
            text = f"--{name} is for TLS, and {server} is without: name a server with TLS by {option}"
            raise click.UsageError(text)


def parse(url: str, ports: dict[str, int]) -> tuple[dict[str, Any], str]:
    """Return the fields of a `TargetServer` from `[scheme://][user:password@][host][:port]…`, and what follows, with
    its slash. `ports`: scheme → default port; the first is the default scheme. Raises ValueError.
    """
    scheme, found, rest = url.partition("://")
    if not found or not scheme.isalpha():  # what is before "://" is part of a password
        scheme, rest = next(iter(ports)), url
    if scheme not in ports:
        raise ValueError(f"unknown scheme {scheme!r}; known are {' and '.join(ports)}")
    server, slash, path = rest.partition("/")
    login, _, place = server.rpartition("@")
    user, _, password = (unquote(part) for part in login.partition(":"))
    if "\0" in user + password:
        raise ValueError("user and password cannot hold a NUL")
    try:
        parts = urlsplit(f"//{place}")
        host, port = parts.hostname, parts.port or ports[scheme]
    except ValueError:
        raise ValueError("expected host:port, with a port up to 65535; in a password write / as %2F") from None
    fields = {
        "scheme": scheme,
        "host": host or "localhost",
        "port": port,
        "user": user or None,
        "password": password or None,
    }
    return fields, slash + path
