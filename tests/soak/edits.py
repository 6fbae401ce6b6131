"""Faults that are no faults: what an administrator does under load, of which nothing may be lost."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from typing import Any

from tests.soak.field import Fault, Field

READY = 120
"""Seconds within which an edit is in force."""
OTHER = {
    "soak-queue": "soak-queue-2", "soak-queue-2": "soak-queue",
    "soak-topic": "soak-topic-2", "soak-topic-2": "soak-topic",
}  # fmt: skip
PLACEMENTS: tuple[dict[str, Any], ...] = ({"BROKERS": 1}, {"BROKERS": 2}, {"BROKERS": 3}, {"DEDICATED": True})
TOGETHER = {"jobs": ("jobs", "jobs-dead")}
"""A dead letter has the flavor of its queue."""


def read(field: Field, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((field.suite.config / name).read_text())
    return found


def flavor(*names: str) -> Fault:
    """An address gets another flavor, that is another broker."""

    def fault(field: Field, rng: random.Random) -> str:
        name = rng.choice(names)
        addresses = read(field, "addresses.json")
        new = OTHER[addresses[name]["flavor"]]
        field.suite.edit(
            "addresses.json", {one: {**addresses[one], "flavor": new} for one in TOGETHER.get(name, (name,))}
        )
        field.suite.wait_ready(READY)
        return f"{name} to {new}"

    return fault


def retyped(field: Field, rng: random.Random) -> str:
    """A queue becomes anycast, and a queue again."""
    old = read(field, "addresses.json")["shape"]
    new = {"type": "anycast"} if old["type"] == "queue" else {"type": "queue", "flavor": "soak-queue"}
    field.suite.edit("addresses.json", {"shape": new})
    field.suite.wait_ready(READY)
    return f"shape to {new['type']}"


def turned(field: Field, rng: random.Random) -> str:
    """A queue becomes a topic, and a queue again."""
    old = read(field, "addresses.json")["turn"]
    new = {"topic": "queue", "queue": "topic"}[old["type"]]
    field.suite.edit("addresses.json", {"turn": {"type": new, "flavor": f"soak-{new}"}})
    field.suite.wait_ready(READY)
    return f"turn to {new}"


def placed(field: Field, rng: random.Random) -> str:
    """A pool has more or fewer brokers, or each address has one of its own."""
    name = rng.choice(("soak-queue", "soak-topic"))
    flavor = read(field, "flavors.json")[name]
    new = rng.choice(({"BROKERS": 1}, {"BROKERS": 2}, {"BROKERS": 3}, {"DEDICATED": True}))
    parameters = {
        key: value for key, value in flavor["templateParameters"].items() if key not in ("BROKERS", "DEDICATED")
    }
    field.suite.edit("flavors.json", {name: {**flavor, "templateParameters": {**parameters, **new}}})
    field.suite.wait_ready(READY)
    return f"{name} with {new}"


def removed(field: Field, rng: random.Random) -> str:
    """An address is removed, and comes back; senders and receivers attach again."""
    name = rng.choice(("orders", "bulk", "shape", "direct"))
    entry = read(field, "addresses.json")[name]
    field.suite.edit("addresses.json", {}, remove=(name,))
    field.let(seconds := rng.choice((0.0, 0.3, 2.0, 8.0)))
    field.suite.edit("addresses.json", {name: entry})
    field.suite.wait_ready(READY)
    return f"{name} for {seconds:g} s"


def backup(field: Field, rng: random.Random) -> str:
    """`enmasse backup` under load has to succeed."""
    folder = field.suite.folder / "copy"
    try:
        done = field.suite.command("backup", str(folder), "--port-offset", str(field.suite.offset))
        if done.returncode or not (folder / "manifest.json").exists():
            raise RuntimeError(f"enmasse backup ended with status {done.returncode}: {done.stderr.strip()}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return "complete"


FAULTS: dict[str, Callable[[Field, random.Random], str]] = {
    "edit-topic-flavor": flavor("news", "feed"),
    "edit-queue-flavor": flavor("orders", "jobs", "bulk", "once"),
    "edit-type": retyped,
    "edit-queue-topic": turned,
    "edit-placement": placed,
    "edit-removal": removed,
    "backup": backup,
}
