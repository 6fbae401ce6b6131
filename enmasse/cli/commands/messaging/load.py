"""The ends of `enmasse bench` at the server of the command. The sender is a process of its own."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from dataclasses import replace
from typing import Any

from enmasse.aio.client import check_space, user_sasl
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.sasl.layer import AnonymousClient, ExternalClient, SaslClient
from enmasse.cli.common import AMQP_PORT, TlsFiles
from enmasse.cli.contexts.entering import entered
from enmasse.cli.contexts.first_connection import opened
from enmasse.cli.contexts.http import public_ports
from enmasse.cli.contexts.remote import PORTS, RemoteAddress
from enmasse.cli.messages.amqp import explain, operator, refusal
from enmasse.identity.processes.scram import of_process
from enmasse.load.amqp import End, SendingEnd, Work
from enmasse.process.service_table import DOORS

DATAGRAM = 1024
"""Bytes of a body that one datagram of CoAP has."""


class LoadError(Exception):
    """Why nothing can be measured; `foreign`: the address holds messages of another sender."""

    def __init__(self, reason: str, *, foreign: bool = False) -> None:
        super().__init__(reason)
        self.foreign = foreign


def connected(kind: type[End], remote: RemoteAddress, work: Work, container: str) -> End:
    """Return one end of a link, attached. Raises LoadError."""
    context = remote.context()

    def opening() -> End:
        end = kind(work, container, remote.stated_host, _sasl(remote))
        end.check = lambda connection: check_space(connection, remote.space if remote.user is None else None)
        end.open(remote.host, remote.port, context)
        return end

    try:
        return asyncio.run(opened(lambda: asyncio.to_thread(opening), remote.port, remote.offset))
    except (AmqpError, OSError) as error:
        raise load_error(error, remote) from None


def at_door(remote: RemoteAddress, protocol: str) -> RemoteAddress:
    """Return the same address at the gateways of a protocol: on the same host, as far behind their usual port as the
    port of AMQP is behind its own. Raises LoadError; ends the command if only AMQP lets it into the address space."""
    from enmasse.cli.messages.mqttclient import PORTS as MQTT_PORTS

    plain, secure = (DOORS[protocol].plain, DOORS[protocol].tls) if protocol in DOORS else (MQTT_PORTS, MQTT_PORTS)
    scheme = f"{protocol}s" if remote.tls else protocol
    ports = secure if remote.tls else plain
    if scheme not in ports:
        raise LoadError(f"{remote}: the gateways of {protocol} have no TLS, so nothing is sent to them")
    if remote.user is None:
        entered(replace(remote, scheme=scheme), remote.space)
    port = ports[scheme] + remote.port - PORTS[remote.scheme]
    if not 0 < port < 1 << 16:
        raise LoadError(f"{remote}: not port {AMQP_PORT} plus an offset, which would say where {protocol} is")
    open_ports = None if remote.offset is None else public_ports(remote.offset)
    if open_ports is not None and port not in open_ports:
        start = "`enmasse up` without `--without mqtt`" if protocol == "mqtt" else f"`enmasse up --with {protocol}`"
        raise LoadError(f"{remote}: the suite runs without gateways of {protocol}: {start} starts them")
    return replace(remote, scheme=scheme, port=port)


def _sasl(remote: RemoteAddress) -> SaslClient:
    if remote.by_operator and (credential := operator(remote)) is not None:
        return SaslClient([of_process(credential)], remote.stated_host)
    if remote.user is not None:
        return user_sasl(remote.host, remote.user, remote.password or "", tls=remote.tls)
    return SaslClient([ExternalClient() if remote.certified else AnonymousClient()], remote.stated_host)


def load_error(error: AmqpError | OSError, remote: RemoteAddress) -> LoadError:
    """Return the error for people."""
    if isinstance(error, TimeoutError) and error.errno is None:
        return LoadError(f"{remote} does not answer")
    return LoadError(refusal(error, remote) or explain(error, remote))


def main() -> None:
    """The sender as a process: options as JSON on stdin, because they have the password; its result, or {"error": …},
    as JSON on stdout."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which ends this process
    options = json.loads(sys.stdin.read())
    fields = options["remote"]
    remote = RemoteAddress(**{**fields, "files": TlsFiles(*fields["files"])})
    sys.stdout.write(json.dumps(_sent(remote, options)))


async def _through_door(remote: RemoteAddress, work: Work, seconds: float) -> dict[str, Any]:
    """Send by the protocol of a gateway. Raises LoadError."""
    from enmasse.load.door_senders import SENDERS, DoorPlace, run

    place = DoorPlace(
        host=remote.host, port=remote.port, address=remote.address, space=remote.stated_host, user=remote.user,
        password=remote.password, context=remote.context(),
    )  # fmt: skip
    sender = SENDERS[remote.scheme.removesuffix("s")](place, durable=work.durable)
    try:
        await opened(sender.open, remote.port, remote.offset)
        found = await run(sender, work, seconds)
        await sender.close()
    except OSError as error:
        if error.errno is None and str(error):
            raise LoadError(f"{remote}: {error}") from None
        raise load_error(error, remote) from None
    if "error" in found:
        raise LoadError(f"{remote}: {found['error']}")
    return found


def _sent(remote: RemoteAddress, options: dict[str, Any]) -> dict[str, Any]:
    work = Work(**{**options["work"], "mark": bytes.fromhex(options["work"]["mark"])})
    try:
        if remote.scheme not in PORTS:
            return asyncio.run(_through_door(remote, work, options["seconds"]))
        end = connected(SendingEnd, remote, work, "enmasse-bench-sender")
        assert isinstance(end, SendingEnd)
        found = end.run(seconds=options["seconds"])
        end.close()
        return found
    except AmqpError as error:
        return {"error": str(load_error(error, remote))}
    except LoadError as error:
        return {"error": str(error)}


if __name__ == "__main__":
    main()
