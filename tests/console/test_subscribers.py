"""What the subscription service keeps for MQTT clients, and their connections at a gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import paho.mqtt.client as mqtt
import pytest
from proton import Message
from proton.utils import BlockingConnection

from enmasse.api.types import Subscription, Will
from enmasse.identity.mqtt_permissions import names_of_all
from enmasse.identity.permissions import Permissions
from enmasse.identity.principal import Principal
from enmasse.model import sessions as wire
from enmasse.model.topic_map import TopicMap
from enmasse.model.users import Granted, Permission
from enmasse.testing import Suite
from services.console.door.access import Caller
from services.console.following.kept import KeptForClients
from services.console.rest.subscribers import shown_subscription
from services.console.rest.wills import shown_will
from tests.console.client import Client, of
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, wait_for

NAME = "a/device <b>"


@pytest.fixture(scope="module")
def suite(suite_with_mqtt: Suite) -> Suite:
    return suite_with_mqtt


@pytest.fixture
def device(suite: Suite) -> Iterator[mqtt.Client]:
    """A device with a session that outlives its connection, a subscription, and a retained message."""
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, NAME, protocol=mqtt.MQTTv311, clean_session=False)
    client.will_set("news/lost", "<b>", 1, retain=True)
    client.connect("127.0.0.1", suite.mqtt_port)
    client.loop_start()
    try:
        wait_for(client.is_connected)
        client.subscribe("news/#", 1)
        client.publish("news/local", "rain", 1, retain=True).wait_for_publish(60)
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


def of_device(client: Client, path: str) -> dict[str, Any] | None:
    return next((each for each in client.items(path) if NAME in (each.get("client"), each.get("container"))), None)


def test_a_session_a_subscription_and_a_retained_message_are_shown_and_deleted(
    client: Client, suite: Suite, device: mqtt.Client
) -> None:
    session = wait_for(lambda: of_device(client, "sessions?connected=true"))
    assert (session["id"], session["user"], session["protocol"]) == (NAME, None, 4)
    subscription = wait_for(lambda: (row := of_device(client, "subscriptions?kind=mqtt")) and row["filters"] and row)
    assert subscription["filters"] == {"news/#": "1"} and subscription["connected"]
    (kept,) = wait_for(lambda: client.items("retained?topic=news/*"))
    assert (kept["topic"], kept["qos"], kept["withheld"]) == ("news/local", 1, "")

    for path, key, row in (
        ("sessions", "id", session), ("subscriptions", "id", subscription), ("retained", "topic", kept),
        ("wills", "id", wait_for(lambda: client.items("wills"))[0]),
    ):  # fmt: skip
        found = client("GET", f"{path}/{of(row[key])}").body
        more = {"payload", "encoding", "truncated", "contentType"} if path == "retained" else set()
        assert (found[key], found.keys()) == (row[key], row.keys() | more)
        missing = client("GET", f"{path}/{of('no such')}")
        assert (missing.status, missing.body["type"]) == (404, "/api/v1/problems/console.resource.unknown")

    assert (found := client("GET", f"retained/{of('news/local')}").body)["payload"] == "rain", found
    shown = suite.command("retained", "show", "news/local", "--port-offset", str(suite.offset)).stdout
    assert "  payload: rain\n" in shown
    device.publish("news/local", b"\xff" + bytes(100_000), 1, retain=True).wait_for_publish(60)

    def cut() -> bool:
        found = client("GET", f"retained/{of('news/local')}").body
        return (found["encoding"], found["truncated"], found["payload"][:4]) == ("base64", True, "/wAA")

    wait_for(cut)
    with Client(suite) as watching:
        events = watching.events("retained?watch=1")
        assert [row["topic"] for row in next(events)[1]["items"]] == ["news/local"]
        assert client("DELETE", f"retained/{of('news/local')}").status == 204
        assert next(events) == ("change", {"items": [], "removed": ["news/local"], "more": False})
    assert client("DELETE", f"retained/{of('news/local')}").status == 404
    assert client("DELETE", f"subscriptions/{of('no such')}").status == 404
    assert client("DELETE", f"sessions/{of('no such')}").status == 404

    device.disconnect()
    wait_for(lambda: of_device(client, "sessions?connected=false"))
    server = ("--server", f"127.0.0.1:{suite.mqtt_port}")
    assert suite.command("publish", "news/local", "snow", "--qos", "1", *server).returncode == 0
    wait_for(lambda: (row := of_device(client, "sessions")) and row["waiting"])
    assert client("DELETE", f"sessions/{of(NAME)}").status == 204
    assert of_device(client, "sessions") is None and of_device(client, "subscriptions") is None
    audit = [json.loads(line) for line in (suite.data / "logs" / "audit.log").read_text().splitlines()]
    assert sum(line["event"] == "audit.session.deleted" for line in audit) == 2


def test_the_connection_of_an_mqtt_client_is_shown_and_closed(
    client: Client, suite: Suite, device: mqtt.Client
) -> None:
    ended: list[Any] = []
    device.on_disconnect = lambda *arguments: ended.append(arguments)
    row = wait_for(lambda: of_device(client, "connections?protocol=mqtt"))
    assert row["id"].endswith(NAME)
    assert client("DELETE", f"connections/{of(row['id'])}").status == 204
    wait_for(lambda: ended)


def test_brokers_and_routers_and_links_have_totals_and_rates(client: Client, suite: Suite) -> None:
    connection = BlockingConnection(suite.url, timeout=DEADLINE)
    sender = connection.create_sender("orders/late")
    with Client(suite) as watching:
        events = watching.events("brokers?watch=1&name=small-persisted-queue-0")
        (before,) = next(events)[1]["items"]
        for number in range(10):
            sender.send(Message(f"{number}"))
        while (row := next(events)[1]["items"][0])["totals"]["in"] < before["totals"]["in"] + 10:
            pass
        assert row["name"] == "small-persisted-queue-0"
    wait_for(lambda: client.items("routers")[0]["totals"]["in"] >= 10)
    (link,) = wait_for(lambda: client.items("links?address=orders/late&direction=in"))
    wait_for(lambda: client.items("links?address=orders/late&direction=in")[0]["totals"]["accepted"] == 10)
    assert link["rates"].keys() == link["totals"].keys()
    receiver = connection.create_receiver("orders/late", credit=10)
    for _ in range(10):
        receiver.receive()
        receiver.accept()
    connection.close()


def test_a_user_sees_its_own_and_what_its_permissions_cover() -> None:
    allowed = Permission(effect="allow", operations=("view",), addresses=("news/#",))
    rights = Permissions({"alice": Granted(permissions=(allowed,))}).rights(Principal("alice"))
    alice = Caller("bearer", Principal("alice"), rights)

    def seen(user: str | None, *filters: str) -> bool:
        row = Subscription(
            id="1", kind="mqtt", client="c", user=user, filters=dict.fromkeys(filters, "1"), depth=0, since=None,
            brokers=[], connected=True, names=names_of_all(TopicMap({}), filters),
        )  # fmt: skip
        return shown_subscription(alice, row) is not None

    assert seen("bob", "news/local", "news/+/today") and seen("bob", "$share/group/news/#")
    assert not seen("bob", "news/local", "orders") and not seen("bob", "#") and not seen(None)
    assert seen("alice", "orders") and seen("alice")


def test_the_will_of_a_client_is_shown_without_its_body_while_it_is_connected(
    client: Client, device: mqtt.Client
) -> None:
    will = wait_for(lambda: of_device(client, "wills"))
    assert (will["topic"], will["qos"], will["retain"], will["delay"]) == ("news/lost", 1, True, 0)
    assert (will["state"], will["due"], will["user"]) == ("connected", None, None) and "body" not in will
    device.disconnect()
    wait_for(lambda: of_device(client, "wills") is None)


def test_a_will_is_shown_to_its_owner_and_to_those_who_may_view_its_topic() -> None:
    will = Will(
        id="w", client="c", user="bob", topic="news/lost", qos=0, retain=False, delay=0, size=1, state="connected"
    )
    views = Permission(effect="allow", operations=("view",), addresses=("news/#",))
    other = Permission(effect="allow", operations=("view", "recv"), addresses=("other",))
    users = {"alice": Granted(permissions=(views,)), "bob": Granted(), "carol": Granted(permissions=(other,))}
    permissions = Permissions(users)
    callers = [Caller("bearer", Principal(name), permissions.rights(Principal(name))) for name in users]
    assert [caller.name for caller in callers if shown_will(caller, will)] == ["alice", "bob"]


def test_messages_of_an_mqtt_client_are_counted_in_both_directions(client: Client, device: mqtt.Client) -> None:
    def totals() -> tuple[int, int]:
        row = wait_for(lambda: of_device(client, "connections?protocol=mqtt"))
        return row["totals"]["in"], row["totals"]["out"]

    before = totals()
    for _ in range(3):
        device.publish("news/here", "sun", 0)
    wait_for(lambda: totals()[0] >= before[0] + 3 and totals()[1] >= before[1] + 3)


@asyncio_test
async def test_sessions_and_subscriptions_that_are_wanted_together_take_two_questions() -> None:
    asked: list[str] = []
    session = wire.SessionRow(
        client="d", connected=True, gateway="g", peer="", protocol=5, since="", expiry=0, subscriptions=1, in_flight=0
    )
    rows = {"sessions": [session], "subscriptions": [wire.SubscriptionRow(id="i", kind="mqtt", client="d", depth=7)]}

    async def ask(subject: str, body: object, reply: type[Any]) -> Any:
        asked.append(subject)
        return reply(**{subject: rows[subject]})

    kept = KeptForClients(Mock(ask=ask), Mock())
    await asyncio.gather(kept.sessions.fresh(), kept.subscriptions.fresh())
    found = kept.sessions.get("d")
    assert sorted(asked) == ["sessions", "subscriptions"] and found is not None and found.waiting == 7
