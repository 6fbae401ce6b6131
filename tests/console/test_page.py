"""The page in headless Chromium, on a running suite with AMQP and MQTT clients."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import paho.mqtt.client as mqtt
import pytest
from playwright.sync_api import Browser, Page, expect
from proton import Condition, ConnectionException, Delivery, Message
from proton.utils import BlockingConnection, LinkDetached

from enmasse.identity.permissions import Permissions
from enmasse.identity.principal import Principal
from enmasse.model.users import Effect, Granted, Permission
from enmasse.testing import Suite, running
from tests.console.browser import SECONDS, Console, chromium
from tests.console.client import Client, of
from tests.kit.kept import kept
from tests.kit.waiting import wait_for

MARKUP = "<img/src=x/onerror=alert(1)>"
"""Runs a script where a name or body is taken for HTML."""
PLACES = {
    "mqtt": "MQTT client",
    "": "Overview", "addresses": "Addresses", "connections": "Connections", "sessions": "MQTT sessions",
    "subscriptions": "Subscriptions", "retained": "Retained topics", "wills": "Wills", "network": "Network",
    "infrastructure": "Brokers and routers",
    "flavors": "Flavors", "users": "Users", "events": "Events",
}  # fmt: skip
MARKED = ("addresses", "connections", "sessions", "subscriptions", "events", "addresses/plain")
"""Places that show a text that is MARKUP."""
EFFECTS: tuple[Effect, Effect] = ("allow", "deny")
QUEUE = {"type": "queue", "flavor": "small-persisted-queue"}
ADDRESSES: dict[str, Any] = {
    "orders": {**QUEUE, "deadletter": "failed"},
    "failed": QUEUE,
    "plain": QUEUE,
    "sensors": {"type": "topic", "flavor": "small-persisted-topic"},
    MARKUP: {"type": "anycast"},
}
expect.set_options(timeout=SECONDS * 1000)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with running(tmp_path_factory.mktemp("page"), ADDRESSES, options=()) as suite:
        suite.up()
        yield suite
        assert suite.down() == 0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def shared_console(suite: Suite, browser: Browser) -> Iterator[Console]:
    """One context for all tests that do not log in: a new one costs two seconds of processor time."""
    console = Console(browser, 8080 + suite.offset)
    yield console
    console.close()


@pytest.fixture
def console(shared_console: Console) -> Iterator[Console]:
    yield shared_console
    shared_console.forget()


def send(suite: Suite, address: str, *bodies: str, options: tuple[str, ...] = ()) -> None:
    for body in bodies:
        done = suite.command("send", address, body, "--port-offset", str(suite.offset), *options)
        assert done.returncode == 0, done.stderr


@contextmanager
def device(suite: Suite, name: str) -> Iterator[mqtt.Client]:
    """An MQTT device with a will, a subscription, and retained messages."""
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, name, protocol=mqtt.MQTTv5)
    client.will_set(f"sensors/{name}/lost", MARKUP, 1, retain=True)
    client.connect("127.0.0.1", suite.mqtt_port)
    client.loop_start()
    try:
        wait_for(client.is_connected, "the device's connection")
        client.subscribe(f"sensors/{name}/#", 1)
        client.publish(f"sensors/{name}/temperature", MARKUP, 1, retain=True).wait_for_publish(SECONDS)
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


@contextmanager
def marked(suite: Suite) -> Iterator[str]:
    """Clients whose names, and messages whose every text, are markup. Yields the id of the AMQP connection."""
    amqp = BlockingConnection(suite.url, timeout=SECONDS, container_id=MARKUP)
    amqp.create_sender("orders", name=MARKUP).send(Message(MARKUP, id=MARKUP, subject=MARKUP))
    receiver = amqp.create_receiver("orders", name=f"in {MARKUP}", credit=1)
    receiver.receive()
    delivery = receiver.fetcher.unsettled.popleft()
    delivery.local.condition = Condition(MARKUP, MARKUP)
    delivery.update(Delivery.REJECTED)
    delivery.settle()
    with pytest.raises(LinkDetached):
        amqp.create_receiver(f"none/{MARKUP}")
    everything = {"subject": MARKUP, "contentType": MARKUP, "replyTo": MARKUP, "properties": {MARKUP: MARKUP}}
    with Client(suite) as client:
        with device(suite, MARKUP), kept(amqp):
            sent = client("POST", "addresses/plain/messages", {"body": MARKUP, **everything})
            assert sent.status == 204, sent
            wait_for(lambda: client.items("addresses/failed/messages"), "the dead letter")
            (found,) = wait_for(lambda: client.items(f"connections?container={of(MARKUP)}&protocol=amqp"))
            try:
                yield str(found["id"])
            finally:
                for queue in ("plain", "failed"):
                    assert client("POST", f"addresses/{queue}/purge", {}).body["state"] == "done"
        amqp.close()
        wait_for(lambda: not client.items(f"connections?container={of(MARKUP)}&protocol=amqp"), "its end")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"color_scheme": "light"}, marks=pytest.mark.slow),
        pytest.param({"color_scheme": "dark"}, marks=pytest.mark.slow),
        pytest.param({"viewport": {"width": 390, "height": 800}}, marks=pytest.mark.slow),
    ],
    ids=["light", "dark", "phone"],
)
def test_each_place_has_its_heading_no_script_error_and_no_finding_of_axe_in_both_themes_and_on_a_phone(
    suite: Suite, browser: Browser, options: dict[str, Any]
) -> None:
    """Nor is any text of a client taken for HTML."""
    first = options.get("color_scheme") == "light"
    with marked(suite) as connection:
        console = Console(browser, 8080 + suite.offset, **options)
        marked_places = {f"addresses/{of(MARKUP)}": MARKUP, f"connections/{of(connection)}": None}
        places = {**PLACES, "addresses/plain": "plain", **(marked_places if first else {})}
        for place, heading in places.items():
            page = console.open(place, heading)
            expect(page.get_by_text("Loading …")).to_have_count(0)
            if first and (place in MARKED or place in marked_places):
                expect(page.get_by_role("main")).to_contain_text(MARKUP)
            assert page.locator("img[src='x']").count() == 0, f"{place} takes a text for HTML"
            assert console.findings() == [], (place, options)
            width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert width[0] <= width[1], f"{place} is wider than the window of {options}"
        if first:
            open_messages(console, "plain")
            open_messages(console, "failed")
        console.close()


@pytest.mark.slow  # Preact writes texts, not HTML
def test_no_text_of_a_client_is_taken_for_html(suite: Suite, console: Console) -> None:
    """Nor has axe a finding in the table of addresses."""
    with marked(suite) as connection:
        places: dict[str, str | None] = {place: PLACES.get(place, "plain") for place in MARKED}
        places |= {f"addresses/{of(MARKUP)}": MARKUP, f"connections/{of(connection)}": None}
        for place, heading in places.items():
            page = console.open(place, heading)
            expect(page.get_by_role("main")).to_contain_text(MARKUP)
            assert page.locator("img[src='x']").count() == 0, f"{place} takes a text for HTML"
        open_messages(console, "plain")
        open_messages(console, "failed")
        console.open("addresses", "Addresses")
        assert console.findings() == []


def open_messages(console: Console, queue: str) -> None:
    """Open the first message of a queue, with all that it has."""
    page = console.open(f"addresses/{queue}", queue)
    reason = ["Reason"] if queue == "failed" else []
    headers = page.get_by_role("region", name="Messages").get_by_role("columnheader")
    expect(headers).to_have_text(["", *reason, "Body", "Created", "Deliveries", "Size", "Id"])
    row = page.get_by_role("region", name="Messages").locator("tbody tr").first
    row.click()
    expect(page.get_by_role("main")).to_contain_text(MARKUP)
    assert page.locator("img[src='x']").count() == 0, f"a message of {queue} is taken for HTML"


@pytest.mark.slow  # streams have tests over REST, test_a_lost_console… the page's
def test_a_second_browser_sees_a_change_and_the_depth_at_once(suite: Suite, browser: Browser, console: Console) -> None:
    other = Console(browser, 8080 + suite.offset)
    page = other.open("addresses", "Addresses")
    suite.edit("addresses.json", {"seen/by/both": QUEUE})
    for one in (page, console.open("addresses", "Addresses")):
        row = one.get_by_role("region", name="Addresses").locator("tbody tr", has_text="seen/by/both")
        expect(row).to_contain_text("Active")
    send(suite, "seen/by/both", "hello")
    row = page.get_by_role("region", name="Addresses").locator("tbody tr", has_text="seen/by/both")
    expect(row.locator("td").nth(4)).to_have_text("1")
    other.close()


def test_a_lost_console_is_said_and_its_return_noticed(suite: Suite, console: Console) -> None:
    page = console.open("addresses", "Addresses")
    expect(page.get_by_role("region", name="Addresses").locator("tbody")).to_contain_text("plain")
    suite.kill(suite.component("console"))
    expect(page.get_by_text("The connection to the console is lost")).to_be_visible()
    expect(page.get_by_text("The connection to the console is lost")).to_have_count(0)
    suite.edit("addresses.json", {"after/the/kill": {"type": "anycast"}})
    expect(page.get_by_role("region", name="Addresses").locator("tbody")).to_contain_text("after/the/kill")


def test_the_table_of_addresses_is_used_by_keyboard_alone(suite: Suite, console: Console) -> None:
    page = console.open("addresses?type=queue", "Addresses")
    first = page.get_by_role("region", name="Addresses").locator("tbody tr[data-index='0']")
    first.wait_for()
    page.keyboard.press("Tab")  # from the heading: into the tools, the table, its first row
    for _ in range(30):
        if page.evaluate("document.activeElement.dataset.index") == "0":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    second = page.locator("tbody tr[data-index='1'] a").inner_text()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text(second)


@pytest.mark.slow  # test_subscribers.py, over REST
def test_a_connection_that_is_closed_in_the_page_ends_at_the_client(suite: Suite, console: Console) -> None:
    amqp = BlockingConnection(suite.url, timeout=SECONDS)
    receiver = amqp.create_receiver("plain")
    with kept(amqp):
        page = console.open("connections", "Connections")
        rows = page.get_by_role("region", name="Connections").locator("tbody tr")
        rows.filter(has_text=amqp.container.container_id).get_by_role("link").click()
        expect(page.get_by_role("region", name="Links")).to_contain_text("plain")
        page.get_by_role("button", name="Close connection").click()
    page.get_by_role("dialog").get_by_role("button", name="Close", exact=True).click()
    expect(page.get_by_text("The connection is closed.")).to_be_visible()
    with pytest.raises(ConnectionException):
        while True:
            receiver.receive(timeout=SECONDS)


@pytest.mark.slow  # `inside` of a connection has tests over REST
def test_connections_of_the_suite_itself_are_shown_apart(console: Console) -> None:
    page = console.open("connections?of=suite", "Connections")
    rows = page.get_by_role("region", name="Connections").locator("tbody tr")
    rows.filter(has_text="ragent").filter(has_text="router-0").get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("ragent")
    page.get_by_role("button", name="Close connection").click()
    expect(page.get_by_role("dialog")).to_contain_text("process of the suite")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    page = console.open("connections", "Connections")
    page.get_by_role("combobox", name="Show").select_option("the suite's processes")
    expect(rows.filter(has_text="ragent")).to_have_count(1)


@pytest.mark.slow  # test_subscribers.py, over REST
def test_mqtt_sessions_and_retained_topics_are_shown_and_can_be_cleared(suite: Suite, console: Console) -> None:
    with device(suite, "thermometer"), Client(suite) as client:
        # Its session may be known before its connection is, which cannot be closed then.
        wait_for(lambda: "thermometer" in {row["container"] for row in client.items("connections")}, "its connection")
        page = console.open("sessions", "MQTT sessions")
        expect(page.get_by_role("region").locator("tbody")).to_contain_text("thermometer")
        page.get_by_role("button", name="Disconnect thermometer").click()
        page.get_by_role("dialog").get_by_role("button", name="Disconnect").click()
        expect(page.get_by_text("The client is disconnected.")).to_be_visible()
        page = console.open("retained", "Retained topics")
        leaf = page.locator(".leaf", has=page.get_by_role("button", name="clear sensors/thermometer/temperature"))
        leaf.get_by_role("button", name="payload of sensors/thermometer/temperature").click()
        expect(leaf.locator("pre")).to_have_text(MARKUP)
        page.get_by_role("button", name="clear sensors/thermometer/temperature").click()
        page.get_by_role("dialog").get_by_role("button", name="Clear").click()
        expect(page.get_by_role("button", name="clear sensors/thermometer/temperature")).to_have_count(0)


@pytest.mark.slow  # REST refuses it too, and has tests
def test_only_what_a_user_manages_can_be_cleared_or_deleted(suite: Suite, browser: Browser) -> None:
    """The page gets another answer about its user than that of the suite, which has no users."""
    mine, of_others = "sensors/mine", "sensors/others"
    allowed = {"effect": "allow", "operations": ["view", "manage"], "addresses": [f"{mine}/#"], "source": "ann.0"}
    ann = {"user": "ann", "how": "session", "groups": [], "csrf": "x", "administrator": False, "viewer": True}
    with device(suite, "mine"), device(suite, "others"), Client(suite) as client:

        def subscribed() -> dict[str, str] | None:
            found = {next(iter(it["filters"]), ""): it["id"] for it in client.items("subscriptions")}
            return found if {f"{mine}/#", f"{of_others}/#"} <= found.keys() else None

        found = wait_for(subscribed, "both subscriptions")
        console = Console(browser, 8080 + suite.offset)
        console.page.route("**/api/v1/me", lambda route: route.fulfill(json={**ann, "permissions": [allowed]}))
        for place, heading, shown, hidden in (
            ("retained", "Retained topics", f"clear {mine}/temperature", f"clear {of_others}/temperature"),
            ("subscriptions", "Subscriptions", f"Delete {found[f'{mine}/#']}", f"Delete {found[f'{of_others}/#']}"),
        ):
            page = console.open(place, heading)
            expect(page.get_by_role("button", name=shown, exact=True)).to_be_visible()
            expect(page.get_by_role("button", name=hidden, exact=True)).to_have_count(0)
        _same_decisions(console.page)
        console.close()


def _same_decisions(page: Page) -> None:
    """The page decides about names and filters as the suite does."""
    patterns = ["#", "a/#", "a/*", "a/b", "a/b/#", "c.d", "*"]
    filters = ["#", "+", "a", "a/#", "a/+", "a/b", "a/b/#", "a/+/c", "+/b", "c/d", "$share/g/a/#", "$share/g/a/b"]
    cases: list[tuple[str, str | None]] = [(allow, deny) for allow in patterns for deny in (None, *patterns)]
    rules = [
        [
            Permission(effect=effect, operations=("manage",), addresses=(pattern,))
            for effect, pattern in zip(EFFECTS, (allow, deny), strict=True)
            if pattern is not None
        ]
        for allow, deny in cases
    ]
    known = [
        {"how": "session", "user": "u", "administrator": False, "permissions": [msgspec.to_builtins(it) for it in each]}
        for each in rules
    ]
    script = """async ([known, filters]) => {
        const { covers } = await import(new URL("parts/rights.js", document.baseURI));
        return known.map((me) => filters.map((filter) => covers(me, "manage", filter)));
    }"""
    for case, each, found in zip(cases, rules, page.evaluate(script, [known, filters]), strict=True):
        rights = Permissions({"u": Granted(permissions=tuple(each))}).rights(Principal("u"))
        plain = [filter.removeprefix("$share/g/") for filter in filters]
        assert dict(zip(filters, found, strict=True)) == {
            filter: rights.covers("manage", of).allowed for filter, of in zip(filters, plain, strict=True)
        }, case


@pytest.mark.slow  # test_no_text_of_a_client_is_taken_for_html has such an event
def test_a_client_that_was_refused_is_an_event_with_the_reason(suite: Suite, console: Console) -> None:
    assert suite.command("send", "not/there", "x", "--port-offset", str(suite.offset)).returncode != 0
    page = console.open("events", "Events")
    table = page.get_by_role("region", name="Events")
    expect(table.locator("tbody")).to_contain_text("not/there")
    page.set_viewport_size({"width": 1300, "height": 900})
    assert table.evaluate("it => it.scrollWidth <= it.clientWidth"), "no column is cut"
    table.locator("tbody tr").filter(has_text="not/there").first.get_by_role("cell").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("not/there")
    page.set_viewport_size({"width": 1280, "height": 800})


def test_no_column_of_addresses_is_out_of_reach_on_a_small_screen_or_a_phone(console: Console) -> None:
    page = console.open("addresses", "Addresses")
    table = page.get_by_role("region", name="Addresses")
    flavor = table.get_by_role("columnheader", name="Flavor")
    name = table.get_by_role("columnheader", name="Name")
    for width in (1300, 390):
        page.set_viewport_size({"width": width, "height": 800})
        expect(flavor).to_be_visible()
        if width == 1300:
            assert table.evaluate("it => it.scrollWidth <= it.clientWidth"), "a column is cut"
        table.evaluate("it => it.scrollLeft = it.scrollWidth")
        expect(flavor).to_be_in_viewport(ratio=0.9)
        expect(name).to_be_in_viewport(ratio=0.9)
    page = console.open("events", "Events")
    expect(page.get_by_role("columnheader").nth(1)).to_have_text("Description")
    page.set_viewport_size({"width": 1280, "height": 800})


def test_a_dialog_begins_at_its_first_field_or_the_safe_button_and_the_focus_returns(console: Console) -> None:
    for place, opener, focused in (
        ("addresses", "New address", "Name"),
        ("addresses/plain", "Delete", "Type plain to confirm"),
        ("addresses/plain", "Edit", "queue"),
        ("flavors", "Delete large-persisted-queue", "Cancel"),
    ):
        page = console.open(place)
        button = page.get_by_role("button", name=opener, exact=True)
        button.press("Enter")
        dialog = page.get_by_role("dialog")
        begun = dialog.get_by_role("button", name=focused).or_(dialog.get_by_label(focused))
        expect(begun.first).to_be_focused()
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        expect(button).to_be_focused()


def test_a_place_that_is_not_there_is_said_with_links_to_go_on(suite: Suite, console: Console) -> None:
    for place, heading, link in (
        ("nosuch", "Unknown page", "Overview"),
        ("events/nosuch", "Unknown page", "Events"),
        ("addresses/no/such", "no/such", "All addresses"),
        ("connections/nosuch", "Connection", "All connections"),
        ("users/nosuch", "nosuch", "All users"),
        ("spaces/nosuch", "nosuch", "All address spaces"),
    ):
        page = console.open(place, heading)
        expect(page.get_by_role("main").get_by_role("link", name=link)).to_be_visible()
        expect(page.get_by_role("alert")).to_contain_text(re.compile("no|not"))
    suite.edit("addresses.json", {"soon/gone": {"type": "anycast"}})
    wait_for(lambda: "soon/gone" in _names(suite))
    page = console.open("addresses/soon/gone", "soon/gone")
    page.get_by_role("button", name="Edit").wait_for()
    suite.edit("addresses.json", {}, remove=["soon/gone"])
    expect(page.get_by_text("This address has been removed")).to_be_visible()


def _names(suite: Suite) -> set[str]:
    return {each["name"] for each in suite.status()["addresses"]}


@pytest.mark.slow
def test_ten_thousand_addresses_are_scrolled_filtered_and_sorted_with_few_rows_drawn(
    browser: Browser, tmp_path: Path
) -> None:
    many = {f"many/{number}": {"type": "anycast"} for number in range(10_000)}
    with running(tmp_path, many) as suite:
        suite.up()
        console = Console(browser, 8080 + suite.offset)
        page = console.open("addresses", "Addresses")
        expect(page.get_by_role("status").filter(has_text="rows")).to_contain_text("10,0")
        rows = page.locator("tbody tr[data-index]")
        assert rows.count() < 100
        page.get_by_role("region", name="Addresses").evaluate("box => box.scrollTop = box.scrollHeight")
        expect(page.locator("tbody tr[aria-rowindex='10001']")).to_be_visible()
        page.get_by_label("Name", exact=True).fill("many/77?")
        expect(page.get_by_role("status").filter(has_text="rows")).to_have_text("10 rows")
        console.close()
        assert suite.down() == 0


def test_a_user_logs_in_sees_only_what_it_may_and_is_sent_back_when_the_session_ends(
    browser: Browser, tmp_path: Path
) -> None:
    with running(tmp_path, {"orders": QUEUE, "secret": QUEUE}, options=()) as suite:
        (tmp_path / "password").write_text("secret words\n")
        done = suite.command(
            "user", "add", "alice", "--password-file", str(tmp_path / "password"), "--config", str(suite.config)
        )
        assert done.returncode == 0, done.stderr
        users = json.loads((suite.config / "users.json").read_text())
        users["alice"]["permissions"] = [{"allow": ["view", "send", "recv"], "addresses": ["orders"]}]
        suite.edit("users.json", users)
        suite.up()
        console = Console(browser, 8080 + suite.offset)
        page = console.open()
        page.get_by_label("User").fill("alice")
        page.get_by_label("Password").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_be_visible()
        assert console.findings() == []
        page.get_by_label("Password").fill("secret words")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", level=1, name="Overview")).to_be_visible()
        page = console.open("addresses", "Addresses")
        body = page.get_by_role("region", name="Addresses").locator("tbody")
        expect(body).to_contain_text("orders")
        expect(body).not_to_contain_text("secret")
        expect(page.get_by_role("button", name="New address")).to_have_count(0)  # it would be refused
        console.open("addresses/orders", "orders")
        expect(page.get_by_role("button", name="Send")).to_be_visible()
        for refused in ("Edit", "Delete", "Move all", "Purge"):
            expect(page.get_by_role("button", name=refused)).to_have_count(0)
        console.open("addresses/secret", "secret")
        expect(page.get_by_text("does not exist, or you may not see it")).to_be_visible()
        _connect_with_a_wrong_password_first(console)
        console.open("addresses", "Addresses")
        other = page.context.new_page()  # with the same session, which ends there
        other.goto(f"{console.base}/#/events")
        other.get_by_role("button", name="Log out").click()
        expect(other.get_by_label("Password")).to_be_visible()
        expect(page.get_by_label("Password")).to_be_visible()  # its stream has ended
        expect(page.get_by_text("Your session has ended. Log in again.")).to_be_visible()
        page.get_by_label("User").fill("alice")
        page.get_by_label("Password").fill("secret words")
        page.get_by_role("button", name="Log in").click()
        expect(body).to_contain_text("orders")  # it goes on where it was
        suite.kill(suite.component("console"))  # sessions of browsers are in its memory
        expect(page.get_by_label("Password")).to_be_visible()
        suite.edit("users.json", users | {"anonymous": {"permissions": [{"allow": ["view"], "addresses": ["#"]}]}})
        _log_in_and_out_where_callers_without_credentials_have_rights(suite, console)
        console.close()
        assert suite.down() == 0


def _connect_with_a_wrong_password_first(console: Console) -> None:
    page = console.open("mqtt", "MQTT client")
    password = page.get_by_label("Password or token")
    password.fill("secret word")
    page.get_by_role("button", name="Connect", exact=True).click()
    expect(page.get_by_text("Refused: ")).to_be_visible()
    expect(password).to_have_value("secret word")
    password.fill("secret words")
    page.get_by_role("button", name="Connect", exact=True).click()
    page.get_by_role("button", name="Disconnect").click()
    expect(password).to_have_value("")


def _log_in_and_out_where_callers_without_credentials_have_rights(suite: Suite, console: Console) -> None:
    with Client(suite) as client:
        wait_for(lambda: client("GET", "me").status == 200, "the entry `anonymous` is in force")
    console.page.reload()
    page = console.open("users/anonymous", "anonymous")
    expect(page.get_by_role("heading", name="API tokens")).to_have_count(0)
    page.get_by_role("button", name="Log in").click()
    page.get_by_label("User").fill("alice")
    page.get_by_label("Password").fill("secret words")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1, name="Overview")).to_be_visible()
    expect(page.get_by_role("link", name="alice")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()


def test_from_the_wizard_to_a_message_that_is_sent_looked_at_moved_and_removed(suite: Suite, console: Console) -> None:
    page = console.open("addresses", "Addresses")
    page.get_by_role("button", name="New address").click()
    page.get_by_role("radio", name=re.compile("^queue")).check()
    page.get_by_label("Name").last.fill("made/by/the.page")
    assert console.findings() == []
    page.get_by_role("button", name="Make it").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Active")

    page.get_by_role("button", name="Send", exact=True).first.click()
    form = page.get_by_role("dialog")
    form.get_by_label("Body").fill(MARKUP)
    form.get_by_label("Subject").fill(MARKUP)
    form.get_by_role("button", name="Send").click()
    row = page.get_by_role("region", name="Messages").locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text(MARKUP)
    row.click()
    expect(page.get_by_role("dialog")).to_contain_text(MARKUP)
    assert console.findings() == []
    page.get_by_role("dialog").get_by_role("button", name="close").click()

    page.get_by_label("Filter").fill("JMSPriority > 4")
    page.get_by_role("button", name="Filter", exact=True).click()
    expect(page.get_by_text("No waiting message matches the filter.")).to_be_visible()
    page.get_by_label("Filter").fill("")
    page.get_by_role("button", name="Filter", exact=True).click()
    page.get_by_role("checkbox", name="select all messages shown").check()
    page.get_by_role("button", name="Move selected", exact=True).click()
    page.get_by_label("To", exact=True).fill("plain")
    page.get_by_role("dialog").get_by_role("button", name="Move", exact=True).click()
    expect(page.get_by_text("Moved: 1 message.")).to_be_visible()
    expect(page.get_by_text("The queue is empty.")).to_be_visible()

    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_label("to confirm").fill("made/by/the.page")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", level=1, name="Addresses")).to_be_visible()
    wait_for(lambda: "made/by/the.page" not in _names(suite), "the end of the address")


def test_what_is_wrong_with_an_entry_is_at_its_field_and_json_is_a_second_tab(suite: Suite, console: Console) -> None:
    page = console.open("addresses", "Addresses")
    page.get_by_role("button", name="New address").click()
    form = page.get_by_role("dialog")
    form.get_by_role("radio", name=re.compile("^queue")).check()
    form.get_by_label("Name").fill("by/the/form")
    for group in ("Time to live", "Limits"):
        form.get_by_text(group, exact=True).click()
    form.get_by_label("Largest size", exact=True).fill("much")
    form.get_by_role("button", name="Make it").click()
    expect(form.get_by_label("Largest size", exact=True)).to_have_attribute("aria-invalid", "true")
    expect(form.locator("#field-maxSize-fault")).to_contain_text("'much' is no size")
    form.get_by_label("Largest size", exact=True).fill("10")
    form.get_by_label("Longest time to live", exact=True).fill("2")
    form.get_by_label("unit of Longest time to live").select_option("h")
    form.get_by_role("tab", name="JSON").click()
    entry = form.get_by_label("Entry in addresses.json")
    stated = json.loads(entry.input_value())
    assert (stated["maxSize"], stated["messageTtl"]) == ("10Mi", {"maximum": 7_200_000})
    entry.fill("{")
    expect(form.get_by_role("button", name="Make it")).to_be_disabled()
    entry.fill(json.dumps({**stated, "fullPolicy": "BLOCK", "messageRedelivery": {"redeliveryDelay": 5000}}))
    form.get_by_role("tab", name="Form").click()
    expect(form.get_by_label("When it is full")).to_have_value("BLOCK")
    expect(form.get_by_label("Delay", exact=True)).to_have_value("5")
    assert console.findings() == []
    form.get_by_role("button", name="Make it").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("by/the/form")
    made = json.loads((suite.config / "addresses.json").read_text())["by/the/form"]
    assert {**stated, "fullPolicy": "BLOCK", "messageRedelivery": {"redeliveryDelay": 5000}} == made

    console.open("flavors", "Flavors")
    page.get_by_role("button", name="New flavor").click()
    form.get_by_label("Name").fill("of-the-form")
    form.get_by_label("Template").select_option("topic-inmemory")
    form.get_by_label("Brokers", exact=True).fill("65")
    form.get_by_role("button", name="Save").click()
    expect(form.locator("[id='field-templateParameters-BROKERS-fault']")).to_contain_text("from 1 to 64")
    assert console.findings() == []


@pytest.mark.slow  # a single row has a test
def test_rows_that_are_selected_are_deleted_and_the_order_is_in_the_address_of_the_page(
    suite: Suite, console: Console
) -> None:
    chosen = {f"chosen/{number}" for number in range(4)}
    suite.edit("addresses.json", dict.fromkeys(chosen, QUEUE))
    wait_for(lambda: chosen <= {row["name"] for row in suite.status()["addresses"] if row["ready"]})
    send(suite, "chosen/2", "kept")
    page = console.open("addresses?name=chosen/*&sort=-messages", "Addresses")
    rows = page.get_by_role("region", name="Addresses").locator("tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.first).to_contain_text("chosen/2")
    page.get_by_role("button", name="Oldest").click()
    assert "sort=-oldest" in page.url
    expect(rows.first).to_contain_text("chosen/2")
    page.get_by_role("button", name="Oldest").click()
    assert "sort=oldest" in page.url
    expect(rows.first).to_contain_text("chosen/2")  # empty cells are last in both directions
    page.get_by_role("checkbox", name="select all rows").check()
    page.get_by_role("checkbox", name="select chosen/3").uncheck()
    page.get_by_role("button", name="Delete 3").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Delete")).to_be_disabled()
    dialog.get_by_label("to confirm").fill("3")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("Deleted: 3 addresses.")).to_be_visible()
    expect(rows).to_have_count(2)  # one holds a message
    expect(rows.first).to_contain_text("Terminating")
    rows.first.get_by_role("link").click()
    expect(page.get_by_text("This address is being removed.")).to_be_visible()
    with Client(suite) as client:
        assert client("DELETE", f"addresses/{of('chosen/2')}?force=true").status == 204
    wait_for(lambda: "chosen/2" not in _names(suite), "the end of the address")


def test_the_mqtt_client_of_the_page_subscribes_and_publishes(suite: Suite, console: Console) -> None:
    page = console.open("mqtt", "MQTT client")
    page.get_by_text("Last will").click()
    page.get_by_label("Topic").first.fill("sensors/page/will")
    page.get_by_label("Payload").fill("lost")
    page.get_by_label("retain").check()
    page.get_by_role("button", name="Connect", exact=True).click()
    page.get_by_label("Filter").fill("sensors/page/#")
    page.get_by_label("QoS").first.select_option("2")
    page.get_by_role("button", name="Subscribe", exact=True).click()
    expect(page.get_by_role("button", name="unsubscribe sensors/page/#")).to_be_visible()
    rows = page.get_by_role("region", name="Messages of the client").locator("tbody tr")
    for qos in ("0", "1", "2"):
        page.get_by_label("Topic").first.fill(f"sensors/page/{qos}")
        page.get_by_label("Payload").fill(f"{MARKUP} {qos}")
        page.get_by_label("QoS").last.select_option(qos)
        page.get_by_role("button", name="Publish", exact=True).click()
        for direction in ("sent", "received"):
            expect(rows.filter(has_text=f"{MARKUP} {qos}").filter(has_text=direction)).to_have_count(1)
    assert page.locator("img[src='x']").count() == 0
    assert console.findings() == []
    with device(suite, "page"):  # which publishes a retained message
        expect(rows.filter(has_text="sensors/page/temperature")).to_have_count(1)
    large = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "large", protocol=mqtt.MQTTv5)
    large.connect("127.0.0.1", suite.mqtt_port)
    large.loop_start()
    large.publish("sensors/page/large", "x" * 1_000_000, 1).wait_for_publish(SECONDS)
    large.disconnect()
    large.loop_stop()
    page.get_by_role("link", name="Wills").click()  # meanwhile the client goes on
    page.get_by_role("link", name="MQTT client").click()
    rows.filter(has_text="sensors/page/large").get_by_role("button").click()
    expect(page.get_by_role("dialog")).to_contain_text("977 KiB")
    page.get_by_role("dialog").get_by_role("button", name="close").click()
    page.get_by_label("Topic").first.fill("sensors/page/properties")
    page.get_by_text("Properties", exact=True).click()
    expires = page.get_by_label("Expires after, seconds")
    for field, wrong, right in ((expires, "0", "600"), (page.get_by_label("User properties"), "unit", "")):
        field.fill(wrong)
        page.get_by_text("Properties", exact=True).click()
        page.get_by_role("button", name="Publish", exact=True).click()
        expect(field).to_be_focused()  # although its group was closed
        field.fill(right)
    page.get_by_label("Content type").fill("text/csv")
    page.get_by_label("User properties").fill("unit=°C\nplace=a=b")
    page.get_by_role("button", name="Publish", exact=True).click()
    rows.filter(has_text="sensors/page/properties").filter(has_text="received").get_by_role("button").click()
    for fact in ("unit°C", "placea=b", "Content typetext/csv", "Expiresin"):
        expect(page.get_by_role("dialog")).to_contain_text(fact)
    page.get_by_role("dialog").get_by_role("button", name="close").click()
    page.get_by_role("button", name="Disconnect, publish the will").click()
    page.get_by_role("button", name="Connect", exact=True).click()
    page.get_by_label("Filter").fill("sensors/page/will")
    page.get_by_role("button", name="Subscribe", exact=True).click()
    expect(rows.filter(has_text="sensors/page/will")).to_contain_text("lost")
    page.get_by_label("Filter").fill("sensors/#/wrong")
    page.get_by_role("button", name="Subscribe", exact=True).click()
    expect(page.get_by_role("main")).to_contain_text("The gateway has disconnected: SUBSCRIBE: the topic filter")


@pytest.mark.slow  # test_moves.py, over REST
def test_dead_letters_show_their_reason_and_go_back_to_where_they_came_from(suite: Suite, console: Console) -> None:
    send(suite, "orders", "first", "second")
    done = suite.command("receive", "orders", "--count", "2", "--reject", "--port-offset", str(suite.offset))
    assert done.returncode == 0, done.stderr
    page = console.open("addresses/failed", "failed")
    rows = page.get_by_role("region", name="Messages").locator("tbody tr")
    expect(rows).to_have_count(2)
    reason = rows.first.get_by_role("cell").nth(1)
    expect(reason).to_contain_text(re.compile("^Rejected by .* at orders"))
    assert reason.evaluate("it => it.scrollWidth <= it.clientWidth"), "the reason is cut"
    page.get_by_role("button", name="Redrive all").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("Redriven: 2 messages.")).to_be_visible()
    done = suite.command("receive", "orders", "--count", "2", "--port-offset", str(suite.offset))
    assert sorted(done.stdout.split()) == ["first", "second"]


@pytest.mark.slow  # REST has tests
def test_purge_asks_for_the_name_and_removes_everything(suite: Suite, console: Console) -> None:
    send(suite, "failed", "one", "two")
    page = console.open("addresses/failed", "failed")
    page.get_by_role("button", name="Purge").click()
    confirm = page.get_by_role("dialog").get_by_role("button", name="Purge")
    expect(confirm).to_be_disabled()
    page.get_by_role("dialog").get_by_label("to confirm").fill("failed")
    confirm.click()
    expect(page.get_by_text(re.compile(r"Purged: [0-9]+ messages?[.]"))).to_be_visible()
    expect(page.get_by_text("The queue is empty.")).to_be_visible()


@pytest.mark.slow
def test_charts_have_what_was_before_the_page_over_a_restart_of_the_console_in_the_range_of_the_url(
    suite: Suite, browser: Browser
) -> None:
    suite.edit("addresses.json", {"charted": QUEUE})
    with Client(suite) as client:
        wait_for(lambda: any(row["ready"] for row in suite.status()["addresses"] if row["name"] == "charted"))
        for number in range(5):
            assert client("POST", "addresses/charted/messages", {"body": str(number)}).status == 204
        deep = "addresses/charted/stats"
        wait_for(lambda: any(it["messages"] == 5 for it in client("GET", deep).body["samples"]), "a sample")
        wait_for(lambda: any((it["messages"] or 0) >= 5 for it in client("GET", "stats").body["samples"]), "a sum")
        assert client("POST", "addresses/charted/purge", {}).body["state"] == "done"
        wait_for(lambda: client("GET", deep).body["stats"]["messages"] == 0)
        (row,) = client.items("components?name=console")
        broker = client.items("brokers")[0]["name"]
        wait_for(lambda: client("GET", f"brokers/{broker}/stats").body["samples"], "a sample of a broker")
    os.kill(row["pid"], signal.SIGTERM)

    def restarted() -> bool:
        try:
            with Client(suite) as client:
                found = client("GET", "components?name=console")
        except OSError:
            return False
        return found.status == 200 and any(it["ready"] and it["pid"] != row["pid"] for it in found.body["items"])

    wait_for(restarted, "another console")
    console = Console(browser, 8080 + suite.offset)
    page = console.open("addresses/charted", "charted")
    stored = page.get_by_role("img", name=re.compile("Messages stored: .* between 0 and 5"))
    expect(stored).to_have_count(1)
    page.get_by_role("group", name="Time range").get_by_role("button", name="1 day").click()
    expect(page).to_have_url(re.compile("minutes=1440"))
    stored = page.get_by_role("img", name=re.compile("Messages stored: .* between [05] and 5"))
    legend = stored.get_by_text("Time", exact=True)
    expect(legend).to_be_hidden()
    stored.focus()
    stored.press("Home")
    expect(legend).to_be_visible()
    expect(page.get_by_role("status").filter(has_text="stored 5")).to_have_text(re.compile(r"\d{4}-\d\d-\d\d \d\d:"))
    page = console.open("infrastructure", "Brokers and routers")
    page.get_by_role("row", name=broker).click()
    expect(page.get_by_role("img", name=re.compile("^Memory: .* between "))).to_have_count(1)
    expect(page).to_have_url(re.compile("of=brokers"))
    console.close()
