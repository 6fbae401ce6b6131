"""Two tenants with the same names of addresses, users and clients on the suite that everything else runs on."""

from __future__ import annotations

import contextlib
import json
import secrets
from typing import Any

import msgspec
from proton import ConnectionException, Message

from demo.mqtt import DEVICE, QUIET, Device
from demo.report import Report
from demo.semantics import PATIENCE, accept, connect
from enmasse.identity.proofs.passwords import hashed
from enmasse.testing import Suite, wait_for

TENANTS = ("red", "blue")
USER = "shop"
ADDRESSES = {
    "orders": {"type": "queue", "flavor": "small-persisted-queue"},
    "alarms": {"type": "topic", "flavor": "small-persisted-topic"},
}
PLAN = {"kind": "space", "limits": {"addresses": 2, "connections": 10}}


def make(suite: Suite, passwords: dict[str, str]) -> None:
    """Write the files of the tenants, and wait until their addresses are ready."""
    (suite.config / "plans.json").write_text(json.dumps({"small": PLAN}))
    (suite.config / "spaces.json").write_text(json.dumps({tenant: {"plan": "small"} for tenant in TENANTS}))
    for tenant in TENANTS:
        folder = suite.config / "spaces" / tenant
        folder.mkdir(parents=True)
        found = hashed(passwords[tenant], random=True)
        entry = {
            "password": found.password,
            "scram": msgspec.to_builtins(found.scram),
            "permissions": [{"allow": ["send", "recv"], "addresses": ["#"]}],
        }
        (folder / "users.json").write_text(json.dumps({USER: entry}))
        (folder / "users.json").chmod(0o600)
        (folder / "addresses.json").write_text(json.dumps(ADDRESSES))

    def ready() -> bool:
        rows = {row["name"]: row["ready"] for row in suite.status()["addresses"]}
        return all(rows.get(f"!!{tenant}/{name}") for tenant in TENANTS for name in ADDRESSES)

    def may_log_in() -> bool:  # the authentication service starts with the first users
        with contextlib.suppress(ConnectionException):
            for tenant in TENANTS:
                connect(suite, "till", f"{USER}@{tenant}", passwords[tenant]).close()
            return True
        return False

    wait_for("the addresses of the tenants", ready, PATIENCE)
    wait_for("their users to be known", may_log_in, PATIENCE)


def queues(suite: Suite, report: Report, passwords: dict[str, str]) -> None:
    """Send to `orders` of each tenant, as the user of the same name, and receive there."""
    both = {tenant: connect(suite, "till", f"{USER}@{tenant}", passwords[tenant]) for tenant in TENANTS}
    for tenant, connection in both.items():
        connection.create_sender("orders", name="till").send(Message(body=f"an order of {tenant}", durable=True))
    for tenant, connection in both.items():
        receiver = connection.create_receiver("orders", name="till-r", credit=2)
        body = receiver.receive(timeout=PATIENCE).body
        accept(connection, receiver)
        report.check(f"orders of {tenant} has its own", body == f"an order of {tenant}", body)
        report.check("and nothing of others", not receiver.fetcher.has_message)
    for connection in both.values():
        connection.close()
    red, blue = TENANTS
    refused = ""
    try:
        connect(suite, "till", f"{USER}@{blue}", passwords[red])
    except ConnectionException as error:
        refused = str(error)
    report.check(f"{USER} of {red} is no user of {blue}", bool(refused), refused)


def devices(suite: Suite, report: Report, passwords: dict[str, str]) -> None:
    """Connect a device of the same client identifier for each tenant; each gets its own alarm."""
    found: dict[str, Any] = {}
    both = {tenant: Device(suite, DEVICE, user=f"{USER}@{tenant}", password=passwords[tenant]) for tenant in TENANTS}
    for device in both.values():
        device.subscribe("alarms/#")
    for tenant, device in both.items():
        device.publish("alarms/door", f"the door of {tenant}")
    for tenant, device in both.items():
        message = device.next()
        found[tenant] = None if message is None else message.payload.decode()
    for device in both.values():
        message = device.next(QUIET / len(both))
        report.check(f"device {DEVICE} gets nothing of the other one", message is None)
        device.close()
    report.check(f"two devices {DEVICE} stay connected", found == {t: f"the door of {t}" for t in TENANTS}, found)


def show(suite: Suite, report: Report) -> None:
    """Show that neither tenant notices the other one, nor the addresses of the same names of all others."""
    report.step("two tenants: the same addresses, users and clients")
    passwords = {tenant: secrets.token_hex(8) for tenant in TENANTS}
    make(suite, passwords)
    queues(suite, report, passwords)
    devices(suite, report, passwords)
