"""The services of a suite: the table that the supervisor, roles, the command line and the images' build ask.

A further service is a row here, a folder in `services`, and the rest of docs/extending.md ("Any new service").
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Service(NamedTuple):
    """Properties of a service that other parts of the suite depend on."""

    ends: int
    """Turn at an orderly end: watching services first, so that they do not react to the end of the others; clients are
    closed before their brokers end."""
    has_store: bool = False
    """A store of the service is in the data folder and belongs to a backup."""
    numbered: bool = False
    """Processes are `NAME-0`, `NAME-1` and so on."""
    is_gateway: bool = False
    """Clients connect by another protocol than AMQP: it asks for their logins, and sends and receives for them."""
    schemes: Mapping[str, str] = MappingProxyType({})
    """Scheme of a listener for clients → path."""
    urls: Mapping[str, str] = MappingProxyType({})
    """Name of a listener → scheme of its URLs, where that is another word."""
    relays: Mapping[str, str] = MappingProxyType({})
    """Scheme of a listener that passes AMQP clients on to embedded routers → a path for them."""


CONTROL = frozenset({"configserv", "ragent", "storage_controller", "console"})
"""Kinds of services without which messages flow on, and only changes wait."""
SERVICES = {
    "configserv": Service(ends=7),
    "ragent": Service(ends=1),
    "storage_controller": Service(ends=1),
    "router": Service(ends=4, numbered=True, schemes={"amqp": "", "amqps": ""}),
    "broker": Service(ends=5),
    "mqtt_gateway": Service(
        ends=2,
        numbered=True,
        is_gateway=True,
        schemes={"mqtt": "", "mqtts": "", "ws": "/mqtt", "wss": "/mqtt"},
        relays={"ws": "/amqp", "wss": "/amqp"},
    ),
    "http_gateway": Service(ends=2, numbered=True, is_gateway=True, schemes={"http": "", "https": ""}),
    "stomp_gateway": Service(
        ends=2,
        numbered=True,
        is_gateway=True,
        schemes={"stomp": "", "stomps": "", "stompws": "/stomp", "stompwss": "/stomp"},
        urls={"stompws": "ws", "stompwss": "wss"},
    ),
    "coap_gateway": Service(ends=2, numbered=True, is_gateway=True, schemes={"coap": ""}),
    "subserv": Service(ends=3, has_store=True),
    "mqtt_lwt": Service(ends=3, has_store=True),
    "authserv": Service(ends=6),
    "console": Service(ends=1),
}


CONSOLE = "CONSOLE"
"""Name of the console's URLs among the entry points of a suite."""


def entry_point(name: str, value: object, space: str | None = None) -> str:
    """Return the line about a URL or file that clients need, as `enmasse up` and `enmasse status` print it. `space`:
    address space of all clients there; None: each means its own."""
    return f"{name:7} {value}{f'  of the address space {space}' if space else ''}"


def client_urls(scheme: str, at: str, *, relays: bool) -> list[str]:
    """Return the URLs of a listener for clients at HOST:PORT. `relays`: routers are embedded ones, to which it passes
    AMQP on."""
    found = []
    for service in SERVICES.values():
        paths = [service.schemes[scheme]] if scheme in service.schemes else []
        if relays and scheme in service.relays:
            paths.append(service.relays[scheme])
        found += [f"{service.urls.get(scheme, scheme)}://{at}{path}" for path in paths]
    return found


class ProtocolDoor(NamedTuple):
    """Gateways that `enmasse up --with` adds. `plain`, `tls`: listener name → port of those without TLS, and with;
    `for_pages`: web pages may be its clients."""

    kind: str
    plain: Mapping[str, int]
    tls: Mapping[str, int]
    for_pages: bool = True


DOORS: Mapping[str, ProtocolDoor] = {
    "http": ProtocolDoor("http_gateway", {"http": 8088}, {"https": 8448}),
    "stomp": ProtocolDoor("stomp_gateway", {"stomp": 61613, "stompws": 61615}, {"stomps": 61614, "stompwss": 61617}),
    "coap": ProtocolDoor("coap_gateway", {"coap": 5683}, {}, for_pages=False),
}
"""Part that `--with` adds → its gateways."""
