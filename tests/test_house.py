"""Names and sizes of the program's folders: a module is found by its name, and a folder is read at a glance."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_MODULES = 20
CONVENTIONAL = {
    "__init__": "what the package is",
    "__main__": "the process of a service",
    "app": "puts the parts of a service together",
    "settings": "the settings of a process",
    "errors": "errors of the package",
    "types": "types of the values of a protocol or API",
    "metrics": "metrics of a service",
    "service": "the service behind its AMQP links",
    # protocols, each with its own part of that name
    "amqp": "what a part does for AMQP, beside its `mqtt`",
    "mqtt": "what a part does for MQTT, beside its `amqp`",
    "client": "a client of a protocol, or an open command's use of it",
    "connection": "one connection of a protocol",
    "connections": "the connections of clients",
    "session": "one session of a protocol; the path of Spark's, enmasse.spark.session, is one that users write",
    "handler": "callbacks of the AMQP engine",
    "link": "ends of an AMQP link",
    "reader": "bytes read become frames or packets",
    "output": "bytes of one connection that wait to be written",
    "termini": "sources and targets of AMQP links",
    "annotations": "message annotations, and where they may stand",
    "requests": "requests to a node of the service, decoded",
    "selector": "selectors of messages",
    "listeners": "the ports of a service for clients",
    "tls": "contexts and certificates of TLS",
    "web": "HTTP of the process",
    "suite": "all processes of a machine",
    "status": "the status of the suite",
    "events": "events of the log",
    # management and live state
    "management": "operations of AMQP management",
    "node": "the management node: a request in, a reply out",
    "entities": "entities of a router's management",
    "rows": "rows of lists",
    "live_rows": "rows of the live state of a service",
    "traffic": "counted messages and bytes by address",
    "peers": "processes of the suite as peers of a router or broker",
    "permits": "what a peer may ask of a service",
    # what is configured, each as the package sees it: model, command, page of REST, the part that works with it
    "address": "an address",
    "addresses": "addresses",
    "broker": "a broker",
    "brokers": "the brokers",
    "router": "a router",
    "diverts": "diverts of a broker",
    "wills": "wills of MQTT clients",
    "flavors": "flavors",
    "issuers": "issuers of tokens",
    "sessions": "sessions of MQTT clients",
    "spaces": "address spaces",
    "subscribers": "subscribers of addresses",
    "subscription": "a subscription of a topic",
    "users": "users, with their rights",
    "config": "files of configuration",
    "definitions": "definitions of addresses, queues and diverts of a broker, as stored",
    "configuration": "the configuration, as the process has it",
    "feeds": "feeds of the configuration service",
    "reports": "reports to the configuration service",
    "desired": "the desired state, from the feeds",
    "preparing": "placements that are prepared before messages follow them",
    "forced": "addresses that may be deleted with their messages",
    "moves": "moves of messages from broker to broker",
    "jobs": "work on many messages, in portions",
    # products, drivers and processes
    "driver": "the interface of the drivers of a controller",
    "kubernetes": "the driver of Kubernetes",
    "embedded": "the embedded engine",
    "pipeline": "the telemetry pipeline",
    "probe": "the probe of a process's health",
    # storage
    "store": "a store",
    "records": "the stored form of what a service keeps",
    "segment": "one file of a log of messages",
    "backup": "copies of data in use",
}
"""Names that stand for the same part in each package."""
VOCABULARIES = (
    "enmasse/api/types.py",  # resources of the API
    "enmasse/model/feeds.py",  # bodies of feeds
    "enmasse/model/sessions.py",  # bodies of `$mqtt/sessions`
    "enmasse/amqp/codec/performatives.py",
    "enmasse/mqtt/packets.py",
)
"""Modules with the words of a protocol as it names them: a class of the name elsewhere is what stands for the word."""
ONE_CONCEPT = {
    "Answer": "to a request of HTTP: received, and to be sent",
    "AuthService": "the authentication service: itself, and where it is",
    "Backup": "a copy of data in use",
    "Broker": "a broker",
    "BrokerConversation": "the conversation with one broker, until it has what is desired",
    "BrokerManagement": "the operations of a broker's management that the controller uses",
    "Client": "a client of the protocol of the module, from either side",
    "ClientListener": "a listener for clients of a router",
    "Connection": "a connection of a protocol, without its socket",
    "Connections": "the open connections",
    "Consumer": "what takes messages from a queue",
    "Counters": "counts of a service for its metrics",
    "Delivery": "a message between its arrival and its settlement",
    "Desired": "the desired state, from the feeds",
    "Endpoint": "where a server listens, and how it is spoken to",
    "Entity": "an entity of a router's management",
    "Jobs": "the work on many messages that is under way",
    "KubernetesDriver": "the driver of Kubernetes of a controller",
    "KubernetesSettings": "its settings",
    "Limits": "what one connection may make the process hold",
    "Listener": "a listening port, described or open",
    "Losses": "losses of stored messages by damage: interface and implementation",
    "Operation": "an operation that management or the API offers",
    "Order": "an order to work on messages of a queue",
    "Output": "the output of one connection",
    "Owner": "the one to whom something belongs",
    "Peer": "the other end of a connection",
    "Permits": "what users may ask of a service",
    "Pipeline": "the telemetry pipeline, as the module sees it",
    "Place": "a namespace of a cluster",
    "Producer": "a link that sends to an address",
    "Reader": "the reader of one connection",
    "Refusal": "something refused, with the reason",
    "Refused": "raised for what is not done because it is refused",
    "Request": "a request of the protocol of the module, decoded",
    "RequestFailed": "raised for a request that was answered with a failure",
    "Rights": "what one principal may do: interface and implementation",
    "Route": "where messages to a name go",
    "Row": "a row of a broker's list",
    "Rows": "the rows of a live state",
    "Service": "a service of the suite",
    "Session": "a session of AMQP or MQTT, as the module sees it",
    "Share": "a shared subscription",
    "Store": "a store",
    "StoreError": "raised if it cannot be used",
    "Supervisor": "the supervisor: itself, and its endpoint",
    "Tally": "counts of a command's messages",
    "TlsFiles": "the files of TLS",
    "Traffic": "counted messages by address",
    "Users": "the users, as the configuration service publishes them",
    "Wire": "the socket of one connection",
}
"""Names of public classes that several modules have, for one concept."""


def modules() -> Iterator[Path]:
    for folder in ("enmasse", "services", "spark"):
        yield from (file.relative_to(ROOT) for file in sorted((ROOT / folder).rglob("*.py")))


def doubled() -> dict[str, list[str]]:
    """The names of several modules."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        found[path.stem].append(str(path))
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def test_no_two_concepts_have_one_name() -> None:
    found = doubled()
    assert {name: paths for name, paths in found.items() if name not in CONVENTIONAL} == {}, "choose another name"
    assert CONVENTIONAL.keys() - found.keys() == set(), "not doubled any more: remove the line"


def test_no_two_concepts_have_one_class_name() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for path in modules():
        if str(path) not in VOCABULARIES:
            for name in re.findall(r"^class ([^\W_]\w*)", (ROOT / path).read_text(), re.M):
                found[name].add(str(path))
    assert {name: paths for name, paths in found.items() if len(paths) > 1 and name not in ONE_CONCEPT} == {}
    assert {name for name in ONE_CONCEPT if len(found[name]) < 2} == set(), "not doubled any more: remove the line"


def test_no_folder_has_many_modules() -> None:
    count: dict[Path, int] = defaultdict(int)
    for path in modules():
        count[path.parent] += path.stem not in ("__init__", "__main__")
    assert {folder: n for folder, n in count.items() if n > MOST_MODULES} == {}, "divide it by concept"


def test_what_is_written_about_the_house_names_what_exists() -> None:
    """Modules in the docstrings of packages (their tables) and in the READMEs of folders; files and folders in the
    pages that lead to them."""
    files = [path.with_suffix("") for path in modules()]
    folders = sorted({folder for path in files for folder in path.parents} - {Path()})
    ends = {"/".join(path.parts[at:]) for path in (*files, *folders) for at in range(len(path.parts))}
    missing: set[tuple[str, str]] = set()
    for folder in folders:
        told = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text())) or ""
        named = set(re.findall(r"[a-z_0-9/]+", " ".join(re.findall(r"^ {4}([a-z_0-9, /]+?)  +\S", told, re.M))))
        readme = ROOT / folder / "README.md"
        named |= set(re.findall(r"`([a-z_0-9/]+)\.py`", readme.read_text())) if readme.exists() else set()
        missing |= {(str(folder), name) for name in named - ends}
    for page in ("docs/architecture.md", "docs/extending.md", "CONTRIBUTING.md"):
        for name in re.findall(r"`([a-z_0-9]+/[a-z_0-9/.]+)`", (ROOT / page).read_text()):
            of_program = name.split("/")[0] in {part for folder in folders for part in folder.parts}
            if of_program and name.removesuffix(".py").rstrip("/") not in ends and not (ROOT / name).exists():
                missing.add((page, name))
    assert missing == set()
