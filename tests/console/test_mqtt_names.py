"""Lists, streams and deletions of REST ask the permissions of MQTT's things by their names on AMQP."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from enmasse.mqtt import reasons
from enmasse.mqtt.packets import Will
from enmasse.testing import Suite, operator_headers
from tests.console.client import Client, of
from tests.kit.waiting import wait_for
from tests.system.mqtt_users import Device
from tests.system.users import allow, apply, deny, entry, with_users

TOPIC = {"type": "topic", "flavor": "small-persisted-topic"}
ADDRESSES = {"rest": {**TOPIC, "mqttDefault": True}, "plain": TOPIC}


class Case(NamedTuple):
    """An MQTT topic, its name on AMQP, and a pattern that matches the topic only if that is taken for a name."""

    topic: str
    name: str
    as_written: str


CASES = [
    Case("hidden/k", "rest/hidden/k", "hidden/#"),
    Case("plain/k", "plain/k", "plain/k/x"),
    Case("hidden/1.5//x", "rest/hidden/1%2E5/%00/x", "hidden/#"),
    Case("plain/a.b", "plain/a%2Eb", "plain/a/b"),
    Case("plain//my room", "plain/%00/my%20room", "plain/my/#"),
]
SEES = ("view", "manage")
CALLERS: dict[str, Callable[[Case], list[dict[str, Any]]]] = {
    "allowed": lambda case: [allow(case.name, operations=SEES)],
    "denied": lambda case: [allow("#", operations=SEES), deny(case.name, operations=SEES)],
    "denied-below": lambda case: [allow("#", operations=SEES), deny(f"{case.name}/#", operations=SEES)],
    "as-written": lambda case: [allow(case.as_written, operations=SEES)],
    "not-as-written": lambda case: [allow("#", operations=SEES), deny(case.as_written, operations=SEES)],
}
MAY = ("allowed", "not-as-written")
USERS: dict[str, Any] = {
    "owner": entry("pw", allow("#", operations=("send", "recv"))),
    "intruder": entry("pw"),
    **{
        f"{caller}-{n}": entry("pw", *granted(case))
        for caller, granted in CALLERS.items()
        for n, case in enumerate(CASES)
    },
}
each_case = pytest.mark.parametrize(
    "number",
    [pytest.param(n, id=case.topic, marks=[pytest.mark.slow] if n in (1, 3) else []) for n, case in enumerate(CASES)],
)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """For each case a retained message, a session with a subscription, a shared subscription and a will of the owner,
    and two refusals of the intruder."""
    with (
        with_users(tmp_path_factory.mktemp("names"), ADDRESSES, USERS, options=()) as suite,
        contextlib.ExitStack() as devices,
    ):
        apply(suite, USERS)
        for number, case in enumerate(CASES):
            will = Will(case.topic, b"lost", 1, False)
            device = devices.enter_context(Device(suite.mqtt_port, f"device-{number}", "owner", "pw", will=will))
            device.connected()
            assert device.subscribe(case.topic, f"$share/g{number}/{case.topic}") == [1, 1]
            assert device.publish(case.topic, b"kept", qos=1, retain=True) == reasons.SUCCESS
            intruder = devices.enter_context(Device(suite.mqtt_port, f"intruder-{number}", "intruder", "pw"))
            assert intruder.connected().subscribe(case.topic) == [reasons.NOT_AUTHORIZED]
            assert intruder.publish(case.topic, b"no", qos=1) == reasons.NOT_AUTHORIZED
        yield suite


def logged_in(suite: Suite, user: str) -> Client:
    client = Client(suite)
    assert client.log_in(user, "pw").status == 200
    return client


def is_of(number: int, path: str, row: dict[str, Any]) -> bool:
    """Return whether a row of a list is one of this case."""
    case = CASES[number]
    if path == "retained":
        return bool(row["topic"] == case.topic)
    if path == "wills":
        return bool(row["topic"] == case.name)
    if path == "events":
        return row["client"].endswith(f"intruder-{number}") and row["address"] is not None
    return case.topic in row["filters"] or f"$share/g{number}/{case.topic}" in row["filters"]


def of_case(client: Client, number: int, path: str) -> list[dict[str, Any]]:
    return [each for each in client.items(path) if is_of(number, path, each)]


def complete(rows: list[dict[str, Any]], count: int) -> list[dict[str, Any]] | None:
    return rows if len(rows) == count else None


KEYS = {"retained": ("topic", 1), "wills": ("id", 1), "events": ("id", 2), "subscriptions": ("id", 2)}
"""Lists: the field that identifies a row, and how many rows a case has."""


@each_case
@pytest.mark.parametrize("path", KEYS)
@pytest.mark.parametrize("caller", CALLERS)
def test_lists_streams_and_rows_are_shown_by_the_name_on_amqp(
    suite: Suite, path: str, caller: str, number: int
) -> None:
    key, count = KEYS[path]
    with Client(suite, **operator_headers(suite.data)) as operator:
        there = wait_for(lambda: complete(of_case(operator, number, path), count))
    with logged_in(suite, f"{caller}-{number}") as client:
        listed = [each[key] for each in of_case(client, number, path)]
        statuses = {client("GET", f"{path}/{of(each[key])}").status for each in there}
        with logged_in(suite, f"{caller}-{number}") as watching:
            _, first = next(watching.events(f"{path}?watch=1"))
        streamed = [each[key] for each in first["items"] if is_of(number, path, each)]
    wanted = sorted(each[key] for each in there) if caller in MAY else []
    assert (sorted(listed), sorted(streamed), statuses) == (wanted, wanted, {200 if wanted else 404})


@each_case
@pytest.mark.parametrize("path", ["retained", "subscriptions"])
def test_things_are_deleted_by_the_name_on_amqp(suite: Suite, path: str, number: int) -> None:
    """The last caller may."""
    key, _ = KEYS[path]
    with Client(suite, **operator_headers(suite.data)) as operator:
        rows = [each for each in of_case(operator, number, path) if each.get("kind") != "share"]
        assert rows
        for caller in sorted(CALLERS, key=lambda each: each in MAY):
            with logged_in(suite, f"{caller}-{number}") as client:
                status = client("DELETE", f"{path}/{of(rows[0][key])}").status
                assert status == (204 if caller in MAY else 404)
            if caller in MAY:
                break
        assert not [each for each in operator.items(path) if each[key] == rows[0][key]]
