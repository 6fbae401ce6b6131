"""The HTTP gateways of a suite and their settings."""

from __future__ import annotations

from enmasse.engines.program import Spec
from enmasse.supervisor.plan.datadir import DataDir
from enmasse.supervisor.plan.internal_ports import LOOPBACK, InternalPorts
from enmasse.supervisor.plan.services import AUTHSERV, HTTP_GATEWAY, Options, SettingsMaker, tls_files


def gateway(options: Options, data: DataDir, ports: InternalPorts, name: str) -> Spec:
    """Return a gateway, which listens on the shared ports and on one of its own. Reserves its ports."""
    settings = SettingsMaker(options, data, ports)
    tls = tls_files(options)
    public = options.at(options.messages_http_ports())
    listeners = [
        {
            "kind": each.protocol,
            "host": each.host,
            "port": each.port,
            "shared": True,
            **(tls if each.protocol == "https" else {}),
            **({} if each.space is None else {"space": each.space}),
        }
        for each in public
    ]
    listeners.append({"kind": "http", "host": LOOPBACK, "port": ports.get(f"{name}/own"), "shared": False})
    made = settings.routed(
        name,
        HTTP_GATEWAY,
        listeners=listeners,
        allowed_origins=list(options.allowed_origins),
        authserv=settings.address(f"{AUTHSERV}/amqp"),
        logins=settings.address(f"{AUTHSERV}/logins"),
        **options.traced,
    )
    return Spec(name, HTTP_GATEWAY, made, frozenset(each.at for each in public))


def forget_ports(ports: InternalPorts, name: str) -> None:
    """Release the ports of a gateway that was removed."""
    for key in ("health", "own"):
        ports.release(f"{name}/{key}")
