"""The server and the address that `send`, `receive` and `bench` use."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from enmasse.cli.common import AMQP_PORT, NO_FILES, OPERATORS_PORT, TlsFiles
from enmasse.cli.contexts import target_server
from enmasse.cli.contexts.contexts import in_force, space, space_named
from enmasse.cli.contexts.entering import entered
from enmasse.cli.contexts.target_server import LOCAL, TargetServer
from enmasse.cli.contexts.user_password import logged_in, of_context
from enmasse.model.names import AddressName, wire_name

PORTS = {"amqp": 5672, "amqps": 5671}
_URL = re.compile("(amqp|mqtt)s?://")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAddress(TargetServer):
    """`address`, a name on the wire, at a server."""

    address: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}/{self.address}"


def at_suite(address: str, offset: int) -> RemoteAddress:
    """Return an address of the suite of the context in force, otherwise of that on this machine."""
    name = wire_name(AddressName(address))
    if (context := in_force()) is not None:
        return RemoteAddress(**of_context(context, "amqp", PORTS), address=name)
    return RemoteAddress(scheme="amqp", host=LOCAL, port=AMQP_PORT + offset, address=name, offset=offset)


def at_operators(node: str, offset: int) -> RemoteAddress:
    """Return a node of the suite on this machine that only operators reach."""
    return RemoteAddress(scheme="amqp", host=LOCAL, port=OPERATORS_PORT + offset, address=node, offset=offset)


def parse(text: str, offset: int) -> RemoteAddress:
    """URL/address as Proton's examples take it: `[amqp[s]://][user:password@]host[:port]/address`, or an address alone.

    Raises ValueError.
    """
    is_server = "@" in text and "::" not in text  # topic::subscription@container is an address
    if "/" not in text and not is_server:
        return at_suite(text, offset)
    fields, address = target_server.parse(text, PORTS)
    if len(address) < 2:
        raise ValueError("there is no address in it: expected host:port/address")
    return RemoteAddress(**fields, address=address[1:])


HOW_TO_USE_TLS = "-a amqps://HOST[:PORT]/ADDRESS"


def choose(address: str | None, url: str | None, offset: int, tls: TlsFiles = NO_FILES) -> RemoteAddress:
    """Return the remote address from a command's ADDRESS and -a. Ends the command (wrong usage) unless exactly one was
    given, and if files for TLS have no effect.

    An ADDRESS on the command line wins over a URL of the environment.
    """
    import click

    if address is not None and is_from_environment("url"):
        url = None
    if (address is None) == (url is None):
        raise click.UsageError("give an ADDRESS of the suite, or -a URL/ADDRESS of any server")
    if address is not None:
        if not address:
            raise click.UsageError("ADDRESS is empty")
        refuse_url(address, "-a")
        remote = at_suite(address, offset)
        target_server.refuse_without_tls(remote, tls, HOW_TO_USE_TLS)
        remote = logged_in(remote if remote.offset is not None else replace(remote, files=remote.files.over(tls)))
        return _at_operators_port(entered(remote, space()))
    try:
        remote = logged_in(replace(parse(url or "", offset), files=tls))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="-a") from None
    target_server.refuse_without_tls(remote, tls, HOW_TO_USE_TLS)
    return _at_operators_port(entered(remote, space_named()))


def _at_operators_port(remote: RemoteAddress) -> RemoteAddress:
    """Return where the command connects: the operator of this machine at the port for operators."""
    if not remote.by_operator or remote.offset is None:
        return remote
    return replace(remote, port=OPERATORS_PORT + remote.offset)


def refuse_url(name: str, option: str) -> None:
    """End the command (wrong usage) if `name` is a URL: it may have a password, which a server would see as a name."""
    import click

    if _URL.match(name):
        raise click.UsageError(f"an address or topic is expected here, not a URL: give the URL with {option}")


def is_from_environment(parameter: str) -> bool:
    """Return whether the running command has this parameter from its environment variable."""
    import click

    return click.get_current_context().get_parameter_source(parameter) is click.core.ParameterSource.ENVIRONMENT
