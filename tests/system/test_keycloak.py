"""A suite whose users are those of a real Keycloak: tokens, passwords, a browser, permissions by groups, and Keycloak
away, and with other keys."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout
from proton import ConnectionException, Message
from proton.utils import LinkDetached

from enmasse.aio.client import connect
from enmasse.amqp.codec.errors import AmqpError, LoginError
from enmasse.amqp.sasl.layer import ClientMechanism
from enmasse.testing import Suite, running, wait_for
from tests.authserv.bearer import oauthbearer, xoauth2
from tests.console.browser import Console, chromium
from tests.keycloak import AUDIENCE, CONFIDENTIAL, PASSWORDS, PUBLIC, SECRET, Keycloak, running_keycloak
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until
from tests.system.amqp_users import Plain, client, proton
from tests.system.mqtt_users import CODES, Device
from tests.system.seeing import component, status
from tests.system.users import allow, entry, write_users

pytestmark = pytest.mark.slow
ADDRESSES = {
    "orders": {"type": "queue", "flavor": "small-persisted-queue"},
    "devices": {"type": "topic", "flavor": "small-persisted-topic"},
    "secret": {"type": "anycast"},
}
USERS: dict[str, Any] = {
    "@staff": {"permissions": [allow("orders", "devices/${user}/#"), allow("orders", operations=("view",))]},
    "local": entry("local's", allow("orders")),
    "eve": entry("another"),
}
IN, REFUSED, UNDECIDED = "let in", "refused", "undecided"


@pytest.fixture(scope="module")
def keycloak(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keycloak]:
    with running_keycloak(tmp_path_factory.mktemp("keycloak") / "home") as server:
        yield server


@pytest.fixture(scope="module")
def running_suite(keycloak: Keycloak, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with running(tmp_path_factory.mktemp("suite"), ADDRESSES, options=()) as found:
        write_issuers(found, keycloak)
        found.up()
        yield found
        assert found.down() == 0


@pytest.fixture
def suite(running_suite: Suite, keycloak: Keycloak) -> Suite:
    """The suite knows Keycloak's keys, and the users of USERS."""
    if not (running_suite.config / "users.json").exists():
        write_users(running_suite, USERS)
    wait_for("the users are known", lambda: proves(running_suite, "local", "local's"))
    wait_for("the issuer is known", lambda: "keys:" not in authserv(running_suite))
    return running_suite


def write_issuers(suite: Suite, keycloak: Keycloak, **more: str) -> None:
    """Replace issuers.json, as an editor does."""
    entry = {"issuer": keycloak.issuer, "audience": AUDIENCE, "client_id": PUBLIC, **more}
    new = suite.config / "issuers.new"
    new.write_text(json.dumps({"sso": entry}))
    new.chmod(0o600)
    new.rename(suite.config / "issuers.json")


def authserv(suite: Suite) -> str:
    return str(component(suite, "authserv")["detail"])


def log_of(suite: Suite) -> str:
    return (suite.data / "logs" / "authserv.log").read_text()


def proves(suite: Suite, user: str, password: str) -> bool:
    try:
        proton(suite, user, password).close()
    except ConnectionException:
        return False
    return True


async def outcome(suite: Suite, mechanism: ClientMechanism) -> str:
    """Return the outcome of a login."""
    try:
        async with client(5672 + suite.offset, mechanism):
            return IN
    except LoginError as error:
        return UNDECIDED if error.temporary else REFUSED
    except AmqpError as error:
        return str(error)


def connack(suite: Suite, user: str, password: str, version: int = 5) -> int:
    with Device(suite.mqtt_port, "device", user, password, version=version) as device:
        return int(device.connected().answer.reason)


def test_without_users_json_a_user_of_the_issuer_may_do_nothing(running_suite: Suite, keycloak: Keycloak) -> None:
    wait_for("the issuer is known", lambda: "issuer" not in authserv(running_suite))
    with pytest.raises(ConnectionException, match="amqp:unauthorized-access"):
        proton(running_suite, None)
    connection = proton(running_suite, "ada", PASSWORDS["ada"])
    with pytest.raises(LinkDetached, match="user ada may not send to orders"):
        connection.create_sender("orders")
    connection.close()


@asyncio_test
async def test_a_token_is_a_login_of_amqp_clients(suite: Suite, keycloak: Keycloak) -> None:
    token = keycloak.token("ada")
    for mechanism in (oauthbearer(token), oauthbearer(token, "ada"), xoauth2(token, "ada"), Plain("ada", token)):
        assert await outcome(suite, mechanism) == IN
    for other in (oauthbearer(token, "grace"), xoauth2(token, "grace"), Plain("grace", token), Plain("local", token)):
        assert await outcome(suite, other) == REFUSED
    async with connect(host="127.0.0.1", port=5672 + suite.offset, user="ada", password=token, timeout=DEADLINE):
        pass  # as the commands do it: not by SCRAM, which is offered too
    assert await outcome(suite, oauthbearer(token[:-8] + "AAAAAAAA")) == REFUSED
    assert await outcome(suite, oauthbearer(keycloak.token("ada").replace(".", ".e", 1))) == REFUSED


@pytest.mark.parametrize("by", ["password", "token"])
def test_groups_of_the_token_give_permissions(by: str, suite: Suite, keycloak: Keycloak) -> None:
    def secret(user: str) -> str:
        return PASSWORDS[user] if by == "password" else keycloak.token(user)

    staff = proton(suite, "ada", secret("ada"))
    sender = staff.create_sender("orders", name="ada")
    sender.send(Message(body="x", durable=True))
    receiver = staff.create_receiver("orders", name="ada-in")
    assert receiver.receive(timeout=DEADLINE).body == "x"
    receiver.accept()
    with pytest.raises(LinkDetached, match="user ada may not send to secret"):
        staff.create_sender("secret", name="other")
    staff.close()
    other = proton(suite, "grace", secret("grace"))  # in no group
    with pytest.raises(LinkDetached, match="user grace may not send to orders"):
        other.create_sender("orders")
    other.close()


@pytest.mark.parametrize("version", [4, 5])
def test_mqtt_clients_log_in_with_password_or_token(version: int, suite: Suite, keycloak: Keycloak) -> None:
    for password in (PASSWORDS["ada"], keycloak.token("ada")):
        with Device(suite.mqtt_port, f"d{version}", "ada", password, version=version) as device:
            assert device.connected().answer.reason == 0
            assert device.subscribe("devices/ada/#", "devices/grace/#") == [1, 0x87 if version == 5 else 0x80]
            assert device.publish("devices/ada/t", b"21") == 0
            assert device.receive() == b"21"
    for user, password in (("ada", "wrong"), ("nobody", "x"), ("grace", keycloak.token("ada"))):
        assert connack(suite, user, password, version) == CODES[version]["bad"]


def log_in_as_ada(page: Page) -> None:
    """From the console's page by way of Keycloak's."""
    page.get_by_role("button", name="Log in with sso").click()
    page.locator("#username").fill("ada")
    page.locator("#password").fill(PASSWORDS["ada"])
    page.locator("#kc-login").click()


def test_a_browser_logs_in_at_keycloak_and_returns_to_its_place(suite: Suite) -> None:
    with chromium() as browser:
        console = Console(browser, 8080 + suite.offset)
        page = console.open("addresses?type=queue", "EnMasse")
        log_in_as_ada(page)
        body = page.get_by_role("region", name="Addresses").locator("tbody")
        expect(body).to_contain_text("orders")
        expect(body).not_to_contain_text("secret")
        assert page.url == f"{console.base}/#/addresses?type=queue"
        expect(page.get_by_text("ada", exact=True)).to_be_visible()
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_role("button", name="Log in with sso")).to_be_visible()
        console.close()


def test_a_session_of_a_browser_outlives_its_tokens_until_keycloak_ends_it(suite: Suite, keycloak: Keycloak) -> None:
    def refreshed() -> bool:
        audit = [json.loads(line) for line in (suite.data / "logs" / "audit.log").read_text().splitlines()]
        return any(line["event"] == "audit.login.accepted" and "refresh" in line["what"] for line in audit)

    before = keycloak.administrate("GET", "")["accessTokenLifespan"]
    keycloak.administrate("PUT", "", {"accessTokenLifespan": 2})
    try:
        with chromium() as browser:
            console = Console(browser, 8080 + suite.offset)
            page = console.open("", "EnMasse")
            log_in_as_ada(page)
            expect(page.get_by_role("heading", level=1, name="Overview")).to_be_visible()
            wait_for("a new token", refreshed)
            (user,) = keycloak.administrate("GET", "users?exact=true&username=ada")
            ended = page.get_by_text("the issuer sso has ended the session")

            def is_logged_out() -> bool:
                """A session that is refreshed at this moment outlives Keycloak's logout."""
                keycloak.administrate("POST", f"users/{user['id']}/logout")
                with contextlib.suppress(PlaywrightTimeout):
                    ended.wait_for(timeout=5000)  # limit: then it is asked for again
                return ended.is_visible()

            wait_for("the session's end", is_logged_out)
            expect(page.get_by_role("button", name="Log in with sso")).to_be_visible(timeout=1000 * DEADLINE)
            console.close()
    finally:
        keycloak.administrate("PUT", "", {"accessTokenLifespan": before})


@asyncio_test
async def test_wrong_passwords_disabled_users_and_names_of_users_json_are_refused(
    suite: Suite, keycloak: Keycloak
) -> None:
    assert await outcome(suite, Plain("ada", "wrong")) == REFUSED
    assert await outcome(suite, Plain("nobody", "wrong")) == REFUSED
    assert await outcome(suite, Plain("off", PASSWORDS["off"])) == REFUSED  # disabled
    assert await outcome(suite, Plain("eve", PASSWORDS["eve"])) == REFUSED  # has another password in users.json
    assert await outcome(suite, Plain("eve", "another")) == IN
    assert await outcome(suite, Plain("ADA", PASSWORDS["ada"])) == REFUSED  # Keycloak calls her ada
    token = keycloak.token("joan")
    keycloak.disable("joan")
    assert await outcome(suite, Plain("joan", PASSWORDS["joan"])) == REFUSED
    assert await outcome(suite, oauthbearer(token)) == IN  # until it expires


@asyncio_test
async def test_a_client_with_a_secret_and_a_wrong_one(suite: Suite, keycloak: Keycloak) -> None:
    write_issuers(suite, keycloak, client_id=CONFIDENTIAL, client_secret="wrong-secret")
    wait_for("it is in force", lambda: not proves(suite, "ada", PASSWORDS["ada"]))
    assert await outcome(suite, Plain("ada", PASSWORDS["ada"])) == UNDECIDED  # nothing is remembered of the other entry
    wait_for("the status has the reason", lambda: "HTTP status 401" in authserv(suite))
    write_issuers(suite, keycloak, client_id=CONFIDENTIAL, client_secret=SECRET)
    wait_for("it is in force", lambda: proves(suite, "ada", PASSWORDS["ada"]))
    # Both entries let her in: only after the wrong one is it seen that the one of the other tests is in force again.
    write_issuers(suite, keycloak, client_id=CONFIDENTIAL, client_secret="wrong-secret")
    wait_for("it is in force", lambda: not proves(suite, "ada", PASSWORDS["ada"]))
    write_issuers(suite, keycloak)
    wait_for("it is in force", lambda: proves(suite, "ada", PASSWORDS["ada"]))
    for file in (suite.data / "logs").iterdir():
        text = file.read_text(errors="replace")
        assert SECRET not in text and "wrong-secret" not in text
        assert PASSWORDS["ada"] not in text


@asyncio_test
async def test_keycloak_away_tokens_are_checked_and_passwords_undecided(suite: Suite, keycloak: Keycloak) -> None:
    token = keycloak.token("ada")
    with keycloak.away():
        assert await outcome(suite, oauthbearer(token)) == IN
        for version in (4, 5):
            assert connack(suite, "ada", token, version) == 0
        for _ in range(8):  # more than the failures that are free: none is counted
            assert await outcome(suite, Plain("grace2", PASSWORDS["grace"])) == UNDECIDED
        assert await outcome(suite, Plain("local", "local's")) == IN
        assert await outcome(suite, Plain("local", "wrong")) == REFUSED
        for version in (4, 5):
            assert connack(suite, "grace2", "x", version) == CODES[version]["away"]
        wait_for("the status has the reason", lambda: "issuer sso: passwords: http://127.0.0.1" in authserv(suite))
        assert '"event": "authserv.password.not-checked"' in log_of(suite)

    async def checked() -> bool:
        return await outcome(suite, Plain("ada", PASSWORDS["ada"])) == IN

    await until(checked)  # the service asks again after a moment
    assert await outcome(suite, Plain("grace2", PASSWORDS["grace"])) == REFUSED
    assert await outcome(suite, oauthbearer(keycloak.token("ada"))) == IN
    wait_for("the status is well", lambda: "passwords" not in authserv(suite))


@asyncio_test
async def test_new_keys_are_taken_and_old_ones_forgotten(suite: Suite, keycloak: Keycloak) -> None:
    old = keycloak.token("ada")

    async def known() -> bool:
        return await outcome(suite, oauthbearer(old)) == IN

    await until(known)
    keycloak.rotate_keys()
    new = keycloak.token("ada")

    async def taken() -> bool:
        return await outcome(suite, oauthbearer(new)) == IN

    await until(taken)
    assert await outcome(suite, oauthbearer(old)) == REFUSED


def test_nothing_of_issuers_is_shown_to_others(suite: Suite) -> None:
    saved = suite.data / "configserv" / "configuration.json"
    assert PUBLIC in saved.read_text()
    assert saved.stat().st_mode & 0o777 == 0o600
    shown = status(suite)
    assert "issuers.json" in shown["config"]
    assert PUBLIC not in json.dumps({**shown, "components": []})
