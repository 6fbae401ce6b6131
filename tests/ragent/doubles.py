"""Doubles that can be made to fail at will: a router's management node and the configuration service."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import proton

from enmasse.control import (
    ControlConnection,
    ControlLink,
    ControlReceiver,
    ControlSender,
    Delivery,
    Listener,
    connect,
    listen,
)
from enmasse.identity.processes import roles
from enmasse.identity.processes.credentials import Peers
from enmasse.testing import free_port
from services.ragent.entities import (
    ADDRESS,
    ADDRESS_TYPES,
    ALL_TYPES,
    AUTO_LINK,
    CONNECTOR,
    GATEWAY_NODES,
    LINK_ROUTE,
    LISTENER,
)
from tests.kit.waiting import until

ROUTER_ADDRESS = "org.apache.qpid.dispatch.router.address"
ROUTER_NODE = "org.apache.qpid.dispatch.router.node"
Row = dict[str, Any]


class FakeRouter:
    """The tables of a router, served over a connection that it dials; it can be made to misbehave."""

    def __init__(self, name: str = "router-0", product: str = "qpid-dispatch-router") -> None:
        self.name = name
        self.product = product
        self.tables: dict[str, dict[str, Row]] = {type_: {} for type_ in (*ALL_TYPES, ROUTER_ADDRESS, ROUTER_NODE)}
        self.brokers_down: set[str] = set()
        self.requests: list[tuple[str, str, str]] = []
        """operation, short type, name"""
        self.drop_replies = 0
        self.refuse: dict[str, str] = {}
        """name → description of the 400 that its CREATE gets"""
        self.refuse_deletions = ""
        """Description of the 400 that every DELETE gets; empty: none is refused."""
        self.extended = True
        """Whether it knows attributes that Qpid Dispatch does not have."""
        self.states_revision = False
        """Whether it states a revision of what it has, which Qpid Dispatch does not."""
        self.listeners = "up"
        """The state that it shows of its listeners."""
        self.connection: ControlConnection | None = None
        self._identity = itertools.count(1)

    async def dial(self, port: int) -> None:
        def prepare(connection: ControlConnection) -> None:
            connection.on_attach = self._attached

        self.connection = await connect(
            "127.0.0.1", port, container=self.name, prepare=prepare, properties={"product": self.product}
        )

    def listens(self, host: str, port: int, profile: str | None = None) -> None:
        """Its configuration file has a listener for other routers."""
        more = {"sslProfile": profile} if profile else {}
        self.tamper(LISTENER, "inter-router", host=host, port=str(port), role="inter-router", **more)

    def sees(self, *others: str) -> None:
        """It has connections with these routers, and no others."""
        rows = {name: {"id": name, "routerLink": number} for number, name in enumerate(others)}
        self.tables[ROUTER_NODE] = {self.name: {"id": self.name, "routerLink": None}, **rows}

    def kill(self) -> None:
        assert self.connection is not None
        self.connection.abort()

    def restarted(self) -> FakeRouter:
        """The same router after a SIGKILL: without what it was configured with."""
        self.kill()
        new = FakeRouter(self.name)
        new.brokers_down = self.brokers_down
        return new

    def names(self, type_: str) -> set[str]:
        """But for the nodes of gateways, which every router has."""
        return set(self.tables[type_]) - {entity.name for entity in GATEWAY_NODES}

    def made(self) -> int:
        return sum(len(self.names(type_)) for type_ in ADDRESS_TYPES)

    def changes(self) -> list[tuple[str, str, str]]:
        return [request for request in self.requests if request[0] in ("CREATE", "DELETE")]

    def _attached(self, link: ControlLink) -> None:
        link.accept()
        if isinstance(link, ControlSender):
            link.proton_link.source.address = link.name
            self._replies = link
        elif isinstance(link, ControlReceiver):
            link.window = 250
            link.on_message = self._request
            link.grant(250)

    def _request(self, delivery: Delivery) -> None:
        message = delivery.message
        delivery.accept()
        status, description, body = self._answer(message.properties, message.body or {})
        if self.drop_replies > 0:
            self.drop_replies -= 1
            return
        reply = proton.Message(
            correlation_id=message.correlation_id,
            properties={"statusCode": status, "statusDescription": description},
            body=body,
        )
        self._replies.send(reply, settled=True)

    def _answer(self, properties: dict[str, Any], body: Any) -> tuple[int, str, Any]:
        operation = properties["operation"]
        if operation == "GET-ATTRIBUTES":
            if not self.extended:
                return 501, "Not Implemented", {}
            return 200, "OK", {LISTENER: ["name", "host", "port", "management"]}
        if operation == "GET-REVISION":
            if not self.states_revision:
                return 501, "Not Implemented", None
            self.requests.append((operation, "", ""))
            return 200, "OK", repr((self.tables, self.brokers_down, self.listeners))
        if operation == "SHARE-CLIENTS":
            return 501, "Not Implemented", None
        type_: str = properties.get("entityType") or properties["type"]
        name = properties.get("name", "")
        self.requests.append((operation, type_.rpartition(".")[2], name))
        table = self.tables[type_]
        if operation == "QUERY":
            columns = body["attributeNames"]
            rows: Iterator[Row] | list[Row] = list(table.values())
            if "offset" in properties:
                rows = list(rows)[properties["offset"] : properties["offset"] + properties["count"]]
            return 200, "OK", {"attributeNames": columns, "results": [self._row(type_, r, columns) for r in rows]}
        if operation == "CREATE":
            if name in self.refuse:
                return 400, self.refuse[name], None
            if name in table:
                return 400, "Name conflicts with an existing entity", None
            table[name] = {"name": name, "identity": str(next(self._identity)), **body}
            return 201, "Created", self._show(type_, table[name])
        if name not in table:
            return 404, "Not Found", None
        if operation == "DELETE":
            if self.refuse_deletions:
                return 400, self.refuse_deletions, None
            del table[name]
            return 204, "No Content", {}
        return 200, "OK", self._show(type_, table[name])

    def _row(self, type_: str, row: Row, columns: list[str]) -> list[Any]:
        shown = self._show(type_, row)
        return [shown.get(column) for column in columns]

    def _show(self, type_: str, row: Row) -> Row:
        if type_ in (AUTO_LINK, LINK_ROUTE):
            connection = row.get("connection", "")
            up = connection in self.tables[CONNECTOR] and connection.rpartition("/")[2] not in self.brokers_down
            return {**row, "operStatus": "active" if up else "inactive"}
        if type_ == LISTENER and self.extended:
            return {**row, "operStatus": self.listeners}
        if type_ == CONNECTOR:
            up = row["name"].rpartition("/")[2] not in self.brokers_down
            return {**row, "connectionStatus": "SUCCESS" if up else "FAILED", "connectionMsg": "" if up else "refused"}
        return row

    def tamper(self, type_: str, name: str, **attributes: Any) -> None:
        """Somebody makes `name` anew by hand."""
        self.tables[type_].setdefault(name, {"name": name, "identity": "x"}).update(attributes)


def changes(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The message of a feed of changes that leads from one content to the next."""
    what = "users" if "users" in now else "addresses"
    old, new = before[what], now[what]
    unclear = set(before.get("invalid", ())) ^ set(now.get("invalid", ()))
    names = {n for n in old.keys() | new.keys() if old.get(n) != new.get(n)} | unclear
    removed = [name for name in names if name not in new]
    return {**now, "full": False, what: {n: new[n] for n in names if n in new}, "removed": removed}


class FakeConfigserv:
    """Feeds with given snapshots, and the reports that came in, merged per reporter."""

    def __init__(self, peers: Path | None = None) -> None:
        """`peers`: file of the processes that may connect; None: any."""
        self._peers = None if peers is None else (roles.Listener.CONFIGSERV, Peers(peers))
        self.feeds: dict[str, Any] = {}
        self.readiness: dict[str, dict[str, Any]] = {}
        self.placements: Any = None
        self.fulls = 0
        self.history: list[tuple[str, str, bool]] = []
        """Every report of an address that came in: reporter, address, ready."""
        self.reports: list[tuple[str, dict[str, Any]]] = []
        """Every report of readiness: reporter, body."""
        self.revisions: dict[str, int] = {}
        """Feed → revision of what was published last."""
        self.refuse_placements = False
        self.hold: Callable[[dict[str, Any]], bool] = lambda body: False
        """Whether to leave a report of placements unanswered."""
        self.held: list[Delivery] = []
        self.placements_reported = 0
        self.bound: dict[str, dict[str, int]] = {}
        """Address → broker → epoch, as a binder has reported it."""
        self.binds: Callable[[str, str], bool] = lambda name, broker: True
        """Whether all is bound that must be, for an address and the broker that is prepared for it."""
        self.used: dict[str, int] = {}
        """What was reported of limits of address spaces: `NAME/SPACE` → used."""
        self.ended: dict[str, str] = {}
        """The removals of address spaces that were reported to be over."""
        self._subscribers: dict[str, list[ControlSender]] = {}
        self._sent: dict[ControlSender, dict[str, Any]] = {}
        """Followers of changes → the content that they have by their last message."""
        self._listener: Listener | None = None
        self._speaking: dict[str, ControlLink] = {}
        """Reporter → its newest link; what an older one was is over."""
        self._port = free_port()  # not of those that dialling takes: while it is away, its place must not be taken

    async def start(self) -> int:
        self._listener = await listen(
            "127.0.0.1", self._port, self._accepted, container="configuration-service", peers=self._peers
        )
        return self._port

    async def stop(self) -> None:
        assert self._listener is not None
        await self._listener.close()
        self.readiness.clear()
        self._speaking.clear()
        self._subscribers.clear()

    def addresses(
        self, addresses: dict[str, Any], forced: list[str] | None = None, invalid: list[str] | None = None
    ) -> None:
        more = {"invalid": invalid} if invalid else {}
        self.publish("addresses", {"schema": 1, "addresses": addresses, "forced": forced or [], **more})

    def flavors(self, flavors: dict[str, Any]) -> None:
        self.publish("flavors", {"schema": 1, "flavors": flavors})

    def place(self, addresses: dict[str, Any], brokers: dict[str, Any] | None = None) -> None:
        found = {entry["broker"] for entries in addresses.values() for entry in entries}
        where = {name: {"host": "127.0.0.1", "port": 5} for name in found} if brokers is None else brokers
        self.publish("placements", {"schema": 1, "brokers": where, "addresses": addresses})

    def publish(self, feed: str, body: Any) -> None:
        self.revisions[feed] = 1 + max(self.revisions.values(), default=0)
        self.feeds[feed] = {**body, "revision": self.revisions[feed]}
        for sender in self._subscribers.get(feed, []):
            self._send(sender, feed)

    def _send(self, sender: ControlSender, feed: str) -> None:
        """Everything, or to a follower of changes those since its last message."""
        if not sender.closed and feed in self.feeds:
            body, before = self.feeds[feed], self._sent.get(sender)
            if before is not None:
                body = changes(before, body)
            if str(sender.remote_source).endswith("/changes"):
                self._sent[sender] = copy.deepcopy(self.feeds[feed])  # tests go on changing what they publish
            text = json.dumps(body)
            sender.send(proton.Message(subject=f"enmasse.{feed}", content_type="application/json", body=text))

    def _accepted(self, connection: ControlConnection) -> None:
        connection.on_attach = self._attached

    def _attached(self, link: ControlLink) -> None:
        link.accept()
        if isinstance(link, ControlSender):
            feed = str(link.remote_source).removesuffix("/changes")
            self._subscribers.setdefault(feed, []).append(link)
            self._send(link, feed)
        elif isinstance(link, ControlReceiver):
            target = str(link.remote_target)
            link.window = 10
            link.on_message = lambda delivery: self._report(target, link.name, delivery)
            if target == "readiness":
                self._speaking[link.name] = link
                link.on_closed = lambda error: self._forget(link)
            link.grant(10)

    def publish_bound(self) -> None:
        """Publish what is bound by now."""
        found = {
            name: {each["broker"]: each["epoch"]}
            for name, entries in self.placements["addresses"].items()
            for each in entries
            if each["state"] == "prepared" and self.binds(name, each["broker"])
        }
        self.publish("bound", {"schema": 1, "addresses": found, "binders": ["subserv"]})

    def _forget(self, link: ControlLink) -> None:
        if self._speaking.get(link.name) is link:
            del self._speaking[link.name]
            self.readiness.pop(link.name, None)

    def _report(self, target: str, reporter: str, delivery: Delivery) -> None:
        body = json.loads(delivery.message.body)
        if target == "readiness":
            self.reports.append((reporter, body))
            self.history += [(reporter, name, report["ready"]) for name, report in body["addresses"].items()]
        if target == "bound":
            self.bound = body["addresses"] if delivery.message.subject == "full" else self.bound | body["addresses"]
            for name in body["removed"]:
                self.bound.pop(name, None)
            delivery.accept()
            return
        if target == "usage":
            self.used.update({key: use[0] for key, use in body["uses"].items()})
            for key in body["removed"]:
                self.used.pop(key)
            self.ended = body.get("ended", {})
            delivery.accept()
            return
        if target == "placements":
            if self.refuse_placements:
                delivery.reject("amqp:not-allowed", "there is a brokers.json")
                return
            if self.hold(body):
                self.held.append(delivery)
                return
            if delivery.message.subject == "change":
                assert self.placements is not None, "the first report of a link is full"
                left = {n: e for n, e in self.placements["addresses"].items() if n not in body["removed"]}
                body = {**body, "addresses": left | body["addresses"]}
            self.placements = body
            self.placements_reported += 1
            self.publish("placements", body)
            self.publish_bound()
        elif delivery.message.subject == "full":
            self.readiness[reporter] = body["addresses"]
            self.fulls += 1
        else:
            self.readiness[reporter].update(body["addresses"])
            for name in body["removed"]:
                self.readiness[reporter].pop(name, None)
        delivery.accept()

    def report(self, reporter: str, name: str) -> dict[str, Any]:
        """What was reported of an address last; empty if nothing was."""
        found: dict[str, Any] = self.readiness.get(reporter, {}).get(name, {})
        return found

    def was_healed(self, name: str) -> bool:
        """Whether by `history` an address was not ready, and is again."""
        said = [ready for _, address, ready in self.history if address == name]
        return False in said and said[-1]

    def ready(self, reporter: str) -> set[str]:
        return {name for name, report in self.readiness.get(reporter, {}).items() if report["ready"]}

    def release(self) -> None:
        """Takes in what was held, and holds nothing any more."""
        self.hold = lambda body: False
        held, self.held = self.held, []
        for delivery in held:
            self._report("placements", "", delivery)

    def seen(self, reporter: str, feed: str) -> bool:
        """Whether the reporter has seen what was published last."""
        return bool(self.reports) and self._seen(reporter, feed) >= self.revisions[feed]

    def _seen(self, reporter: str, feed: str) -> int:
        return max((body["seen"][feed] for by, body in self.reports if by == reporter), default=0)

    def pending(self, reporter: str) -> dict[str, str]:
        """What the reporter has yet to do, by its last report."""
        said = [body["pending"] for by, body in self.reports if by == reporter]
        found: dict[str, str] = said[-1] if said else {"": "nothing was said yet"}
        return found

    def judged(self, reporter: str, feed: str, name: str) -> dict[str, Any] | None:
        """What was reported of an address up to the first report that takes the feed's newest snapshot into account."""
        found: dict[str, Any] | None = None
        for by, body in self.reports:
            if by == reporter:
                found = body["addresses"].get(name, None if name in body["removed"] else found)
                if body["seen"][feed] >= self.revisions[feed]:
                    return found
        raise AssertionError(f"{reporter} has not seen the newest {feed}")

    def message(self, reporter: str, name: str) -> str:
        return str(self.report(reporter, name).get("message"))


__all__ = ["ADDRESS", "FakeConfigserv", "FakeRouter", "until"]
