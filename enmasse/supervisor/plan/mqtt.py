"""The MQTT services of a suite and their settings: the subscription service, the last-will service, and gateways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins

from enmasse.engines.program import Spec
from enmasse.network.trickle import LEAVING
from enmasse.supervisor.plan.datadir import DataDir
from enmasse.supervisor.plan.internal_ports import LOOPBACK, InternalPorts
from enmasse.supervisor.plan.services import AUTHSERV, GATEWAY, LWT, SUBSERV, Options, SettingsMaker, tls_files

_SECURE = frozenset({"mqtts", "wss"})


def keepers(options: Options, data: DataDir, ports: InternalPorts) -> list[Spec]:
    """Return the two services with a store, one process each. Reserves their ports."""
    if not options.has_mqtt:
        return []
    settings = SettingsMaker(options, data, ports)
    return [Spec(name, name, settings.routed(name, store=_store(options, data, name))) for name in (SUBSERV, LWT)]


def _store(options: Options, data: DataDir, name: str) -> dict[str, Any]:
    if options.store is None:
        return {"kind": "sqlite", "path": str(data.path / name / "store.db")}
    suite = f"enmasse-{options.offset}" if options.offset else "enmasse"  # suites may share a server
    return {"kind": "redis", "url": options.store, "prefix": f"{suite}:{name}"}


def gateway(options: Options, data: DataDir, ports: InternalPorts, name: str) -> Spec:
    """Return a gateway, which listens on the shared ports and on one of its own. Reserves its ports."""
    settings = SettingsMaker(options, data, ports)
    tls = tls_files(options)
    public = options.at(options.public_ports.of_mqtt())
    listeners: list[dict[str, Any]] = [
        {
            "kind": each.protocol,
            "host": each.host,
            "port": each.port,
            "shared": True,
            **(tls if each.protocol in _SECURE else {}),
            **({} if each.space is None else {"space": each.space}),
        }
        for each in public
    ]
    listeners.append({"kind": "mqtt", "host": LOOPBACK, "port": ports.get(f"{name}/own"), "shared": False})
    return _gateway(settings, name, listeners, frozenset(each.at for each in public))


def gateway_of(options: Options, data: DataDir, ports: InternalPorts, name: str, space: str) -> Spec:
    """Return a gateway of an address space, which listens on ports that the gateways of the space share. Reserves its
    ports."""
    settings, tls = SettingsMaker(options, data, ports), tls_files(options)
    listeners = [
        {
            "kind": protocol,
            "host": LOOPBACK,
            "port": ports.get(f"{GATEWAY}-{space}/{protocol}"),
            "shared": True,
            "space": space,
            **(tls if protocol in _SECURE else {}),
        }
        for protocol in options.public_ports.of_mqtt()
    ]
    return _gateway(settings, name, listeners, frozenset(f"{each['host']}:{each['port']}" for each in listeners))


def _gateway(settings: SettingsMaker, name: str, listeners: list[dict[str, Any]], listening: frozenset[str]) -> Spec:
    made = settings.routed(
        name,
        GATEWAY,
        listeners=listeners,
        allowed_origins=list(settings.options.allowed_origins),
        limits=to_builtins(settings.options.mqtt_limits),
        leave_within=LEAVING,
        authserv=settings.address(f"{AUTHSERV}/amqp"),
        logins=settings.address(f"{AUTHSERV}/logins"),
        **settings.options.traced,
    )
    return Spec(name, GATEWAY, made, listening)


def own_gateways(spaces: Mapping[str, int]) -> dict[str, str]:
    """Return name → address space of the gateways of spaces that have this number of their own."""
    return {f"{GATEWAY}-{space}-{number}": space for space, count in spaces.items() for number in range(count)}


def forget_ports_of(ports: InternalPorts, space: str) -> None:
    """Release the ports of an address space that has no gateways of its own any longer."""
    for protocol in ("mqtt", "ws", *_SECURE):
        ports.release(f"{GATEWAY}-{space}/{protocol}")


def forget_ports(ports: InternalPorts, name: str) -> None:
    """Release the ports of a gateway that was removed."""
    for key in ("health", "own"):
        ports.release(f"{name}/{key}")
