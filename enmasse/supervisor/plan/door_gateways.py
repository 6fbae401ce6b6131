"""Gateways that `--with` adds to a suite, such as those of HTTP and STOMP, and their settings."""

from __future__ import annotations

from enmasse.engines.program import Spec
from enmasse.network.trickle import LEAVING
from enmasse.process.service_table import DOORS
from enmasse.supervisor.plan.datadir import DataDir
from enmasse.supervisor.plan.internal_ports import LOOPBACK, InternalPorts
from enmasse.supervisor.plan.services import AUTHSERV, Options, SettingsMaker, tls_files


def gateway(options: Options, data: DataDir, ports: InternalPorts, part: str, name: str) -> Spec:
    """Return a gateway of a part, which listens on the shared ports and on one of its own. Reserves its ports."""
    door = DOORS[part]
    settings = SettingsMaker(options, data, ports)
    tls = tls_files(options)
    public = options.at(options.public_ports.of_door(part))
    listeners = [
        {
            "kind": each.protocol,
            "host": each.host,
            "port": each.port,
            "shared": True,
            **(tls if each.protocol in door.tls else {}),
            **({} if each.space is None else {"space": each.space}),
        }
        for each in public
    ]
    own = next(iter(door.plain))
    listeners.append({"kind": own, "host": LOOPBACK, "port": ports.get(f"{name}/own"), "shared": False})
    made = settings.routed(
        name,
        door.kind,
        listeners=listeners,
        **({"allowed_origins": list(options.allowed_origins)} if door.for_pages else {}),
        authserv=settings.address(f"{AUTHSERV}/amqp"),
        logins=settings.address(f"{AUTHSERV}/logins"),
        leave_within=LEAVING,
        **options.traced,
    )
    return Spec(name, door.kind, made, frozenset(each.at for each in public))


def forget_ports(ports: InternalPorts, name: str) -> None:
    """Release the ports of a gateway that was removed."""
    for key in ("health", "own"):
        ports.release(f"{name}/{key}")
