"""The server of a command: the suite on this machine, or one that the user named by a URL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    import ssl

LOCAL = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server and how to connect to it. `scheme`: of its URL; one that ends in `s` stands for TLS, verified.

    `offset`: of the suite on this machine; None for a server that the user named.
    """

    scheme: str
    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    offset: int | None = None
    ca: str | None = None
    """File with the authorities that TLS trusts; None: those of the system."""

    @property
    def tls(self) -> bool:
        """Return True if the connection is by TLS."""
        return self.scheme.endswith("s")

    def context(self) -> ssl.SSLContext | None:
        """Return the context of TLS; None without TLS. Ends the command (wrong usage) if --ca cannot be used."""
        if not self.tls:
            return None
        import ssl

        import click

        try:
            return ssl.create_default_context(cafile=self.ca)
        except ssl.SSLError:
            raise click.BadParameter(f"{self.ca}: has no certificate in PEM.", param_hint="--ca") from None

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


def parse(url: str, ports: dict[str, int]) -> tuple[dict[str, Any], str]:
    """Return the fields of a `Server` from `[scheme://][user:password@][host][:port]…`, and what follows, with its
    slash. `ports`: scheme → default port; the first is the default scheme. Raises ValueError.
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
