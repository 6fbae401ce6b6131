"""Everything that one caller can read of a console, by its OpenAPI document: answers and streams; and things of which
it may view nothing."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from proton import Message
from proton.utils import BlockingConnection, LinkDetached

from enmasse.testing import Suite
from tests.console.client import Client, Reply, of
from tests.kit.waiting import DEADLINE, wait_for

PASSWORD = "correct horse battery"
WORD = "vault"
"""In every name of what is hidden."""
QUEUE = {"type": "queue", "flavor": "small-persisted-queue"}
TOPIC = {"type": "topic", "flavor": "small-persisted-topic"}
Places = Mapping[str, Sequence[str]]
"""Path of the document with a parameter → values of the parameter."""
BODIES: Mapping[str, Any] = {
    "move": {"to": "a/one"}, "purge": {}, "remove": {}, "redrive": {}, "messages": {"body": "x"},
}  # fmt: skip
"""Last part of a path → body of a POST there."""


def document(client: Client) -> dict[str, Any]:
    """Return path below /api/v1 → method → operation, but for what other address spaces have (test_spaces.py)."""
    paths = client("GET", "openapi.json").body["paths"]
    found = {path.removeprefix("/api/v1/"): methods for path, methods in paths.items()}
    return {path: methods for path, methods in found.items() if not path.startswith("spaces/{space}/")}


def read(client: Client, places: Places) -> dict[str, Reply]:
    """Return path → answer of every GET; of one with a parameter with each of its values."""
    found = {}
    for path, methods in document(client).items():
        if "get" in methods and path != "openapi.json":
            for each in filled(path, places):
                found[each] = client("GET", each + _required(methods["get"]))
    return found


def filled(path: str, places: Places) -> list[str]:
    """Return a path of the document with each value of its parameter."""
    parameter = re.search(r"{\w+}", path)
    if parameter is None:
        return [path]
    kind = path.partition("/")[0]
    return [path.replace(parameter[0], of(value)) for value in places.get(kind, ())]


def _required(operation: Mapping[str, Any]) -> str:
    needed = {"operation": "view", "address": "a/one"}
    given = [each["name"] for each in operation.get("parameters", ()) if each["required"] and each["in"] == "query"]
    return "?" + "&".join(f"{name}={of(needed[name])}" for name in given) if given else ""


def searches(client: Client, word: str) -> dict[str, Reply]:
    """Return path → answer of every list with each of its filters of text set to what begins with a word."""
    found = {}
    for path, methods in document(client).items():
        parameters = methods.get("get", {}).get("parameters", ())
        if not any(each["name"] == "watch" for each in parameters):
            continue
        for each in parameters:
            is_text = each["schema"].get("type") == "string" and "enum" not in each["schema"]
            if is_text and each["name"] not in ("after", "sort"):
                asked = f"{path}?{each['name']}={word}*"
                found[asked] = client("GET", asked)
    return found


def touched(client: Client, path: str, methods: Mapping[str, Any], value: str) -> dict[str, tuple[int, str]]:
    """Return method → status and problem of requests about something, without its name."""
    found = {}
    for method in methods:
        (place,) = filled(path, {path.partition("/")[0]: [value]})
        body = None
        if method in ("put", "patch", "post"):
            body = BODIES.get(path.rpartition("/")[2], {"type": "anycast"})
        reply = client(method.upper(), place + _required(methods[method]), body, If_Match="*")
        found[method] = reply.status, str(reply.body).replace(repr(value), "NAME")
    return found


class Streams:
    """All streams of a caller, read side by side. `events`: path → events so far."""

    def __init__(self, suite: Suite, client: Client) -> None:
        self.events: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        self._threads = []
        for path, methods in document(client).items():
            if any(each["name"] == "watch" for each in methods.get("get", {}).get("parameters", ())):
                self.events[path] = []
                reader = Client(suite, **{key.replace("-", "_"): value for key, value in client.headers.items()})
                self._threads.append(threading.Thread(target=self._read, args=(path, reader), daemon=True))
        for each in self._threads:
            each.start()
        wait_for(lambda: all(self.events.values()), "each stream begins")

    def _read(self, path: str, reader: Client) -> None:
        with reader:
            for each in reader.events(f"{path}?watch=1"):
                self.events[path].append(each)

    def seen(self, path: str, **row: Any) -> bool:
        """Return whether an event after the first had a row with these values."""
        return any(row.items() <= item.items() for _, data in self.events[path][1:] for item in data.get("items", ()))

    def changed(self, path: str, **row: Any) -> bool:
        """Return whether a change had a row with these values."""
        events = [data for kind, data in self.events[path] if kind == "change"]
        return any(row.items() <= item.items() for data in events for item in data["items"])

    def told(self, path: str, word: str) -> bool:
        """Return whether a change had a word."""
        return any(word in str(data) for _, data in self.events[path][1:])

    def ended(self) -> None:
        """Wait for the end of all."""
        for each in self._threads:
            each.join(DEADLINE)
        assert not any(each.is_alive() for each in self._threads)


def amqp(suite: Suite, user: str) -> BlockingConnection:
    return BlockingConnection(
        suite.url, timeout=DEADLINE, user=user, password=PASSWORD, allowed_mechs="PLAIN", allow_insecure_mechs=True,
        container_id=f"{user}-container",
    )  # fmt: skip


def device(suite: Suite, user: str, topic: str) -> mqtt.Client:
    """An MQTT client with a session that outlives its connection, a subscription, and a retained message."""
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, f"{user}-device", clean_session=False)
    client.username_pw_set(user, PASSWORD)
    client.connect("127.0.0.1", suite.mqtt_port)
    client.loop_start()
    wait_for(client.is_connected)
    client.subscribe(f"{topic}/#", 1)
    client.publish(f"{topic}/{user}", "x", 1, retain=True).wait_for_publish(60)
    return client


def ready(client: Client, name: str) -> bool:
    return bool(client("GET", f"addresses/{of(name)}").body["ready"])


def refused(connection: BlockingConnection, address: str) -> None:
    with pytest.raises(LinkDetached):
        connection.create_receiver(address)


def settled(value: Any) -> Any:
    """Without what time changes."""
    if isinstance(value, dict):
        moving = ("rates", "samples", "time", "oldest")
        return {key: settled(each) for key, each in value.items() if key not in moving}
    return [settled(each) for each in value] if isinstance(value, list) else value


def fill(
    suite: Suite, root: Client, pat: BlockingConnection, stack: contextlib.ExitStack, streams: Streams
) -> dict[str, tuple[str, str]]:
    """Have what cat may not view: kind → id of such a thing, and an id of nothing."""
    queue, topic = f"{WORD}/queue", f"{WORD}/topic"
    suite.edit("addresses.json", {f"{WORD}/bad": {"type": "nonsense"}})
    stack.callback(suite.edit, "addresses.json", {}, remove=[f"{WORD}/{name}" for name in ("queue", "topic", "bad")])
    for name, entry in ((queue, QUEUE), (topic, TOPIC)):
        assert root("PUT", f"addresses/{of(name)}", entry).status == 201
        wait_for(partial(ready, root, name))
    own = amqp(suite, f"{WORD}-user")
    stack.callback(own.close)
    for connection in (own, pat):
        sender = connection.create_sender(queue, name=f"{WORD}-link")
        for number in range(3):
            sender.send(Message(f"{WORD} {number}"))
    refused(own, f"{WORD}/none")
    at_gateway = device(suite, f"{WORD}-user", topic)
    stack.callback(at_gateway.loop_stop)
    stack.callback(at_gateway.disconnect)
    job = root("POST", f"addresses/{of(queue)}/remove", {"limit": 2}).body["id"]
    wait_for(lambda: root("GET", f"addresses/{of(queue)}").body["stats"]["totals"]["in"] == 6)
    wait_for(lambda: WORD in json.dumps(root("GET", "config").body["errors"]))
    for path in ("addresses", "connections", "links", "events", "sessions", "subscriptions", "retained"):
        wait_for(partial(streams.told, path, WORD), path)
    (session,) = wait_for(lambda: root.items(f"sessions?user={WORD}-user"))
    (subscription,) = wait_for(lambda: root.items(f"subscriptions?user={WORD}-user"))
    connection = wait_for(lambda: root.items(f"connections?user={WORD}-user"))[0]
    return {
        "addresses": (queue, "nothing/here"),
        "connections": (connection["id"], f"{connection['component']}/999999"),
        "jobs": (job, "0" * 16),
        "users": (f"{WORD}-user", "nobody"),
        "sessions": (session["id"], "nothing"),
        "subscriptions": (subscription["id"], "nothing"),
        "retained": (f"{topic}/{WORD}-user", "nothing/here"),
        "brokers": (f"{QUEUE['flavor']}-0", "nothing"),
        "components": ("router-0", "nothing"),
    }


def change(suite: Suite, root: Client, stack: contextlib.ExitStack) -> None:
    """Change something in each list that cat may view."""
    own = amqp(suite, "cat")
    stack.callback(own.close)
    refused(own, "a/two")
    own.create_receiver("a/topic")
    at_gateway = device(suite, "cat", "a/topic")
    stack.callback(at_gateway.loop_stop)
    stack.callback(at_gateway.disconnect)
    assert root("PUT", "flavors/marker", {"type": "queue", "templateName": "queue-inmemory"}).status == 201
