"""The server and the address that `send`, `receive` and `bench` use."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from enmasse.cli.common import AMQP_PORT, OPERATORS_PORT
from enmasse.model.names import AddressName, wire_name

PORTS = {"amqp": 5672, "amqps": 5671}


@dataclass(frozen=True, slots=True)
class RemoteAddress:
    """`address`, a name on the wire, at `host`:`port`; with `tls` over TLS, verified.

    `offset`: of the suite on this machine; None for a server that the user named.
    """

    host: str
    port: int
    address: str
    tls: bool = False
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    offset: int | None = None

    def __str__(self) -> str:
        return f"{'amqps' if self.tls else 'amqp'}://{self.host}:{self.port}/{self.address}"


def at_suite(address: str, offset: int) -> RemoteAddress:
    """An address of the suite on this machine."""
    return RemoteAddress("127.0.0.1", AMQP_PORT + offset, wire_name(AddressName(address)), offset=offset)


def at_operators(node: str, offset: int) -> RemoteAddress:
    """A node of the suite on this machine that only operators reach."""
    return RemoteAddress("127.0.0.1", OPERATORS_PORT + offset, node, offset=offset)


def parse(text: str, offset: int) -> RemoteAddress:
    """URL/address as Proton's examples take it: `[amqp[s]://][user:password@]host[:port]/address`, or an address alone.

    Raises ValueError.
    """
    scheme, found, rest = text.partition("://")
    if not found:
        scheme, rest = "amqp", text
        if "/" not in text:
            return at_suite(text, offset)
    if scheme not in PORTS:
        raise ValueError(f"unknown scheme {scheme!r}; known are amqp and amqps")
    server, slash, address = rest.partition("/")
    if not slash or not address:
        raise ValueError("there is no address in it: expected host:port/address")
    parts = urlsplit(f"//{server}")
    try:
        port = parts.port or PORTS[scheme]
    except ValueError:
        raise ValueError("the port must be a number up to 65535") from None
    return RemoteAddress(
        parts.hostname or "localhost",
        port,
        address,
        scheme == "amqps",
        unquote(parts.username) if parts.username else None,
        unquote(parts.password) if parts.password else None,
    )


def choose(address: str | None, url: str | None, offset: int) -> RemoteAddress:
    """The remote address from a command's ADDRESS and -a. Ends the command (wrong usage) unless exactly one was given.

    An ADDRESS on the command line wins over a URL of the environment.
    """
    import click

    if address is not None and is_from_environment("url"):
        url = None
    if (address is None) == (url is None):
        raise click.UsageError("give an ADDRESS of the suite, or -a URL/ADDRESS of any server")
    if address is not None:
        return at_suite(address, offset)
    try:
        return parse(url or "", offset)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="-a") from None


def is_from_environment(parameter: str) -> bool:
    """Whether the running command has this parameter from its environment variable."""
    import click

    return click.get_current_context().get_parameter_source(parameter) is click.core.ParameterSource.ENVIRONMENT
