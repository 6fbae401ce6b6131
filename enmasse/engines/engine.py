"""Classes of engines; an engine is an object of one of them. The lists are in `choices`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from enmasse.engines.program import Program
from enmasse.identity.processes.credentials import PeerEntry

Entities = list[list[Any]]
"""A router's static configuration: [type, attributes] of each entity, as Qpid Dispatch has them."""

AMQP, HEALTH = 5672, 8080
"""Ports in a pod."""
DATA, ETC, TMP = "/var/lib/enmasse", "/etc/enmasse", "/tmp"  # noqa: S108 - an emptyDir of the pod's
"""Folders in a pod."""


class EngineUnavailable(RuntimeError):
    """Raised if an engine cannot be run here. The text is one line: what is missing, and what to do."""


MOST_ROUTERS = 8
"""Most routers of one suite: ports are reserved for this number."""


class Pod(NamedTuple):
    """An engine's part of a broker's pod."""

    files: dict[str, str]
    """Name → text of each file in ETC."""
    container: dict[str, Any]
    """Fields of the container: command, ports, probes."""
    memory: int
    """Bytes that it needs."""


@dataclass(frozen=True, slots=True)
class RouterEngine:
    """A product that runs as router. All are managed as Qpid Dispatch is (`$management`)."""

    name: str
    help: str
    """Name and description for `enmasse up --help`."""
    shares_ports: bool
    """All routers of a suite listen at the ports for clients; otherwise the first one, and others at ports of their
    own."""
    serves_http: bool
    """Has /healthz and /metrics, as our services, at the setting `health`."""
    find: Callable[[Program], Program]
    """Return the program; the argument runs services of ours. Raises Unavailable."""
    settings: Callable[[str, Entities, Callable[[str], str], str, str], dict[str, Any]]
    """(name, entities of an embedded router, key → host:port of an internal port, log level, file with the router's
    secret in a line) → settings."""


@dataclass(frozen=True, slots=True)
class BrokerEngine:
    """A product that runs as broker. All are managed as Apache ActiveMQ Artemis is (`activemq.management`), with its
    names of settings and its error codes. The storage controller refuses settings that a product lacks; further
    differences are in docs/engines.md.
    """

    name: str
    help: str
    """Name and description for `enmasse up --help`."""
    kind: str
    """`kind` of its processes in the files of the local driver (docs/contracts.md)."""
    serves_http: bool
    """Has /healthz and /metrics, as our services."""
    find: Callable[[Program], Program]
    """Return the program; the argument runs services of ours. Fetches what is missing. Raises Unavailable."""
    pod: Callable[[str, Mapping[str, Any], str], Pod]
    """(name, settings, log level) → its part of the pod. The settings are those of services/broker, with `persisted`
    in place of the folders."""
    duplicates_by_address: bool
    """Detects duplicates by message-id for a single address, by an address setting (otherwise for a whole acceptor)."""
    levels_exist: bool
    """Levels below a topic (`topic/a/b`) exist with the topic; otherwise each is an address that has to be created."""
    holds_subscriptions: bool
    """Has the address setting `holdSubscriptions`: attaches to a topic that is about to move wait."""
    refused: Mapping[str, str]
    """Parameter of a flavor that has no effect on its brokers → why, and what to do: `do not …; remove it`."""
    peers: Callable[[Mapping[str, PeerEntry]], Mapping[str, str]]
    """The processes that may connect → name and text of files in the folder `run`, in addition to that of `Peers`."""
    blocks_at_capacity: bool
    """Can make producers wait when its disk space is used up (STORAGE_CAPACITY with FULL_POLICY BLOCK)."""
