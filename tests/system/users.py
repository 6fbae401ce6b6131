"""Users of a suite in tests: entries of users.json, and waiting until they are in force."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from proton import ProtonException
from proton.utils import LinkDetached

from enmasse.mqtt import reasons
from enmasse.testing import Suite, running, wait_for
from tests.kit.hashes import hashes
from tests.system.amqp_users import proton
from tests.system.mqtt_users import Device

MARKER = "marker"
"""A user of each users.json, with a permission that no other one has. It is the same user each time, and is there from
the beginning: with 50 failed logins at an address, all users wait there."""
_numbers = itertools.count()


def allow(*addresses: str, operations: Sequence[str] = ("send", "recv")) -> dict[str, Any]:
    return {"allow": list(operations), "addresses": list(addresses)}


def deny(*addresses: str, operations: Sequence[str] = ("send", "recv")) -> dict[str, Any]:
    return {"deny": list(operations), "addresses": list(addresses)}


def entry(password: str, *permissions: dict[str, Any], groups: Sequence[str] = ()) -> dict[str, Any]:
    found = hashes(password)
    secret = {"password": found.password, "scram": msgspec.to_builtins(found.scram)}  # bytes become base64
    return {**secret, "groups": list(groups), "permissions": list(permissions)}


def write_users(suite: Suite, entries: dict[str, Any]) -> str:
    """Replace users.json, as an editor does. Return the topic of an address from which MARKER may receive with it."""
    address = next(iter(json.loads((suite.config / "addresses.json").read_text())))
    marked = f"{address}/{MARKER}-{next(_numbers)}"
    new = suite.config / "users.new"
    new.write_text(json.dumps({**entries, MARKER: entry(MARKER, allow(marked))}))
    new.chmod(0o600)
    new.rename(suite.config / "users.json")
    return marked


def apply(suite: Suite, entries: dict[str, Any]) -> None:
    """Replace users.json, and wait until it is in force at the router and at each gateway."""
    marked = write_users(suite, entries)
    wait_for("users.json is in force at the router", lambda: _may_receive(suite, marked))
    for port in gateway_ports(suite):
        wait_for(f"users.json is in force at port {port}", functools.partial(_may_subscribe, port, marked))


def _may_receive(suite: Suite, topic: str) -> bool:
    try:
        connection = proton(suite, MARKER, MARKER)
    except ProtonException:  # every refusal
        return False
    try:
        connection.create_receiver(topic)
    except LinkDetached as detached:
        return bool(detached.condition != "amqp:unauthorized-access")  # below an address that is no topic there is none
    finally:
        connection.close()
    return True


def _may_subscribe(port: int, topic: str) -> bool:
    with Device(port, MARKER, MARKER, MARKER, expiry=0) as device:
        return not device.connected().answer.reason and device.subscribe(topic) != [reasons.NOT_AUTHORIZED]


def gateway_ports(suite: Suite) -> list[int]:
    """Return a port of each gateway that no other one has."""
    gateways = [each["endpoints"] for each in suite.status()["components"] if each["kind"] == "mqtt_gateway"]
    if len(gateways) == 1:
        return [suite.mqtt_port]
    return [int(each["own"].rpartition(":")[2]) for each in gateways]


@contextlib.contextmanager
def with_users(folder: Path, addresses: dict[str, Any], users: dict[str, Any], **options: Any) -> Iterator[Suite]:
    """Run a suite with these users as long as the block. `options`: those of `running`."""
    with running(folder, addresses, **options) as suite:
        write_users(suite, users)
        suite.up()
        yield suite
        assert suite.down() == 0
