"""Callers and paths of the REST API: each caller sees its space alone. Paths are those of the OpenAPI document, so that
a new one is tried, too."""

from __future__ import annotations

import contextlib
import json
import re
import socket
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from playwright.sync_api import Browser, Request, expect
from proton import ProtonException
from proton.utils import BlockingConnection

from enmasse.testing import Suite
from tests.console.browser import Console, chromium
from tests.console.client import Client, Reply, of
from tests.console.test_logins import allow, user
from tests.console.walking import PASSWORD
from tests.kit.kept import kept
from tests.kit.spaces import running_with_spaces
from tests.kit.waiting import DEADLINE, wait_for

QUEUE = {"type": "queue", "flavor": "small-persisted-queue"}
MARKS = {"default": "zzdefault", "zzone": "zzone", "zztwo": "zztwo"}
"""Space → how all names in it begin, which are nowhere else."""
WAITING = {"default": 2, "zzone": 3, "zztwo": 5}
"""Messages in the queue of a space."""
EVERYTHING = allow("send", "recv", "view", "manage", on="#")


def addresses(mark: str) -> dict[str, Any]:
    return {f"{mark}-queue": {**QUEUE, "deadletter": f"{mark}-dead"}, f"{mark}-dead": QUEUE}


def users(mark: str) -> dict[str, Any]:
    return {
        f"{mark}-admin": user(EVERYTHING),
        f"{mark}-viewer": user(allow("view", on="#")),
        f"{mark}-user": user(allow("view", "send", "recv", on=f"{mark}-queue")),
    }


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    files = {
        "spaces.json": {"zzone": {}, "zztwo": {"hosts": ["zztwo.example.com"]}}, "users.json": users("zzdefault"),
        **{f"spaces/{space}/addresses.json": addresses(space) for space in ("zzone", "zztwo")},
        **{f"spaces/{space}/users.json": users(space) for space in ("zzone", "zztwo")},
    }  # fmt: skip
    folder: Path = tmp_path_factory.mktemp("matrix")
    with running_with_spaces(
        folder, files, addresses=addresses("zzdefault"), options=("--log-level", "debug")
    ) as suite:
        suite.up()
        with Client(suite, Authorization=suite.operator_headers["Authorization"]) as operator:
            for space, mark in MARKS.items():
                at = "" if space == "default" else f"spaces/{space}/"
                wait_for(lambda: all(row["ready"] for row in operator.items(f"{at}addresses")), "addresses are ready")
                for number in range(WAITING[space]):
                    assert (
                        operator("POST", f"{at}addresses/{mark}-queue/messages", {"body": f"{mark}-{number}"}).status
                        == 204
                    )
        yield suite
        assert suite.down() == 0


@pytest.fixture(scope="module")
def clients(suite: Suite) -> Iterator[None]:
    """A client of each space that is connected, and was refused something."""
    with contextlib.ExitStack() as stack:
        for space, mark in MARKS.items():
            connection = BlockingConnection(
                f"amqp://127.0.0.1:{5672 + suite.offset}", timeout=DEADLINE, allowed_mechs="PLAIN", password=PASSWORD,
                user=f"{mark}-user" if space == "default" else f"{mark}-user@{space}",
            )  # fmt: skip
            stack.callback(connection.close)
            connection.create_sender(f"{mark}-queue")
            with pytest.raises(ProtonException, match="unauthorized"):
                connection.create_sender(f"{mark}-forbidden")
            stack.enter_context(kept(connection))
        yield


@pytest.fixture(scope="module")
def log_in(suite: Suite) -> Iterator[Any]:
    made: dict[str, Client] = {}

    def logged_in(name: str) -> Client:
        if name not in made:
            client = made[name] = Client(suite)
            if name == "operator":
                client.headers["Authorization"] = suite.operator_headers["Authorization"]
            elif name != "anonymous":
                assert client.log_in(name, PASSWORD).status == 200
        return made[name]

    yield logged_in
    for each in made.values():
        each.__exit__()


CALLERS = {
    f"{mark}-{role}" + ("" if space == "default" else f"@{space}"): space
    for (space, mark), role in product(MARKS.items(), ("admin", "viewer", "user"))
}
"""Name of a login → its space. Administrators of the default space are operators."""
TENANTS = {name: space for name, space in CALLERS.items() if not name.startswith("zzdefault-admin")}


LATE = ("zzdefault-user", "zzone-viewer@zzone", "zztwo-admin@zztwo", "zztwo-user@zztwo")
CELLS = [pytest.param(name, marks=pytest.mark.slow) if name in LATE else name for name in TENANTS]
"""In `make test` each role and each space; in `make test-slow` each role in each space."""


def paths(client: Client) -> list[str]:
    document = client("GET", "openapi.json").body
    found = [path for path, methods in document["paths"].items() if "get" in methods]
    assert len(found) > 40
    return [path.removeprefix("/api/v1/") for path in found]


def filled(path: str, space: str, mark: str) -> list[str]:
    """Return a path with names of a space in place of its parts."""
    if "{" not in path:
        return [path]
    names = (f"{mark}-queue", f"{mark}-user", f"{mark}-client")
    return [re.sub(r"\{(\w+)\}", lambda part: of(space if part[1] == "space" else name), path) for name in names]


def asked(client: Client, path: str) -> Reply:
    query = "?operation=send&address=x" if path.endswith("/may") else ""
    return client("GET", path + query)


@pytest.mark.parametrize("name", [*CELLS, "anonymous"])
def test_no_answer_has_anything_of_another_space(suite: Suite, clients: None, log_in: Any, name: str) -> None:
    client, own = log_in(name), TENANTS.get(name, "")
    foreign = [mark for space, mark in MARKS.items() if space != own]
    seen = 0
    for path in paths(log_in("operator")):
        for space, mark in MARKS.items():
            for each in filled(path, space, mark):
                answer = asked(client, each)
                text = json.dumps(answer.body)
                if space != own:  # else it repeats what the request has stated
                    assert answer.status != 200 or "{" not in path, (name, each, answer.body)
                    text = text.replace(mark, "")
                assert not [mark for mark in foreign if mark in text], (name, each, text)
                assert "!!" not in text, (name, each, text)
                seen += answer.status == 200
    assert (seen > 10) == (name != "anonymous")


def changes(client: Client) -> list[tuple[str, str]]:
    """Return method and path of each operation that changes something."""
    paths = client("GET", "openapi.json").body["paths"]
    return [
        (method.upper(), path.removeprefix("/api/v1/"))
        for path, methods in paths.items()
        for method, operation in methods.items()
        if method != "get" and "{" in path and operation.get("security") != []
    ]


BODIES: dict[str, Any] = {"move": {"to": "zznone-dead"}, "messages": {"body": "x"}, "PUT": {"type": "no such type"}}
"""Last part of a path, or method → body."""


@pytest.mark.parametrize("name", CELLS)
def test_errors_of_changes_tell_nothing_of_another_space(suite: Suite, log_in: Any, name: str) -> None:
    """Names that another space has are answered as names that none has, in the own space and in the other one."""
    client, own = log_in(name), TENANTS[name]

    def asked(method: str, path: str, space: str, mark: str) -> tuple[int, str]:
        place = re.sub(r"\{(\w+)\}", lambda part: space if part[1] == "space" else f"{mark}-queue", path)
        place = re.sub(r"^(spaces|plans|flavors)/[^/]*$", rf"\1/{space}", place)
        body = None if method == "DELETE" else BODIES.get(path.rpartition("/")[2], BODIES.get(method, {}))
        reply = client(method, place, body, If_Match="*")
        return reply.status, json.dumps(reply.body).replace(mark, "MARK").replace(space, "MARK")

    tried = set()
    for method, path in changes(log_in("operator")):
        for space in MARKS.keys() - {own, "default"}:
            other = asked(method, path, space, MARKS[space])
            assert other == asked(method, path, "zznone", "zznone"), (method, path, space)
            assert other[0] >= 400, (method, path, other)
            if path.startswith("spaces/{space}/"):
                inside = path.removeprefix("spaces/{space}/")
                found = asked(method, inside, own, MARKS[space])
                assert found == asked(method, inside, own, "zznone"), (method, inside, space)
            tried.add((method, path))
    assert len(tried) > 30


PLACES = (
    "", "addresses", "connections", "sessions", "subscriptions", "retained", "wills", "network", "queries", "flavors",
    "users", "spaces", "plans", "events",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.mark.slow  # the page shows answers of REST, which have a test each
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("zzone-user@zzone", "zzone"),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                ("zzone-admin@zzone", "zzone"),
                ("zztwo-viewer@zztwo", "zztwo"),
                ("zzdefault-viewer", "default"),
                ("zzdefault-admin", "zztwo"),
                ("anonymous", ""),
            )
        ),
    ],
)
def test_the_page_shows_nothing_of_another_space(
    suite: Suite, clients: None, browser: Browser, name: str, shown: str
) -> None:
    """Neither in sight, nor in any answer that it has got; of the operator's only the choice of spaces has all."""
    console = Console(browser, 8080 + suite.offset)
    page, answers = console.page, dict[str, str]()
    of_operator = name == "zzdefault-admin"

    def note(request: Request) -> None:
        own = of_operator and request.url.endswith(("/me", "/login", "/spaces?limit=1000"))
        response = request.response()
        if "/api/v1/" in request.url and "watch=" not in request.url and not own and response is not None:
            answers[request.url] = response.text()

    page.on("requestfinished", note)
    page.goto(f"{console.base}/{f'?space={shown}' if of_operator else ''}#/")
    if name != "anonymous":
        page.get_by_label("User").fill(name)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("button", name="Log out").wait_for()
    foreign = [mark for space, mark in MARKS.items() if space != shown]
    seen = ""
    for place in (*PLACES, f"addresses/{MARKS.get(shown, 'zzone')}-queue", "addresses/zzone-dead", "users/zztwo-admin"):
        page.evaluate("place => { location.hash = place }", f"#/{place}")
        page.get_by_role("heading", level=1).first.wait_for()
        expect(page.get_by_text("Loading …")).to_have_count(0)
        text = page.get_by_role("main").inner_text()
        stated = place.partition("/")[2]  # the page repeats what its address states
        assert not [mark for mark in foreign if mark in text.replace(stated, "")], (place, text)
        seen += text
    assert (f"{MARKS[shown]}-queue" in seen) if shown else "zz" not in seen
    assert len(answers) > (3 if shown else 0)
    for url, text in answers.items():
        for stated in re.split("[/?&=]", unquote(url)):  # which an error repeats
            text = text.replace(stated, "") if "zz" in stated else text
        assert not [mark for mark in foreign if mark in text], (url, text)
    console.close()


@pytest.mark.parametrize("name", CELLS)
def test_another_space_is_answered_as_one_that_does_not_exist(suite: Suite, log_in: Any, name: str) -> None:
    client = log_in(name)
    for path in paths(log_in("operator")):
        if not path.startswith("spaces/{space}/") and path != "spaces/{name}":
            continue
        inside = (
            path.replace("{space}", "SPACE").replace("spaces/{name}", "spaces/SPACE").replace("{", "").replace("}", "")
        )
        unknown = asked(client, inside.replace("SPACE", "zznone"))
        assert unknown.status == 404, (path, unknown)
        for space in MARKS.keys() - {TENANTS[name]}:
            other = asked(client, inside.replace("SPACE", space))
            same = json.loads(json.dumps(other.body).replace(space, "zznone"))
            assert (other.status, same) == (404, unknown.body), (name, path, space)


@pytest.mark.parametrize("name", [name for name in CALLERS if "-user" not in name])
def test_totals_count_the_own_space_alone(suite: Suite, clients: None, log_in: Any, name: str) -> None:
    client, space = log_in(name), CALLERS[name]
    wait_for(lambda: client("GET", "overview").body["messages"] == WAITING[space], "messages are counted")
    wait_for(lambda: client("GET", "connections").body["total"] == 1, "the client of the space")
    assert client("GET", "overview").body["connections"] == 1
    assert client("GET", "links").body["total"] == 1
    of_init = 4 if space == "default" else 0
    assert sum(client("GET", "overview").body["phases"].values()) == 2 + of_init
    assert client("GET", "users").body["total"] == 3
    # Without failed logins, which other tests cause.
    wait_for(lambda: client("GET", "events?condition=amqp:unauthorized-access").body["total"] == 1, "the refusal")


def test_events_of_all_spaces_are_the_operator_s(suite: Suite, clients: None, log_in: Any) -> None:
    of_all, refused = "events?allSpaces=true", "amqp:unauthorized-access"
    for name in ("operator", *CALLERS):
        assert log_in(name)("GET", of_all).status == (200 if name in ("operator", "zzdefault-admin") else 403), name
    operator = log_in("operator")
    refusals = f"{of_all}&condition={refused}"
    wait_for(lambda: {row["space"] for row in operator.items(refusals)} == {*MARKS}, "those of all spaces")
    shown = suite.command("events", "--all-spaces", "--condition", refused, "--port-offset", str(suite.offset)).stdout
    assert all(f"space={space} " in shown for space in MARKS)


@pytest.mark.parametrize("name", [name for name in CALLERS if "@" in name])
def test_what_a_space_uses_is_shown_to_those_who_may_view_it(suite: Suite, log_in: Any, name: str) -> None:
    (row,) = log_in(name)("GET", "spaces").body["items"]
    counted = row["used"].get("addresses"), sum(row["phases"].values())
    assert row["name"] == CALLERS[name] and counted == ((None, 0) if "-user" in name else (2, 2))


def test_users_of_a_space_see_what_their_permissions_allow(suite: Suite, clients: None, log_in: Any) -> None:
    for name, space in CALLERS.items():
        if name.partition("@")[0].endswith("-user"):
            found = log_in(name)("GET", "addresses").body
            assert [row["name"] for row in found["items"]] == [f"{MARKS[space]}-queue"] and found["total"] == 1


@pytest.mark.parametrize("name", ["operator", *CALLERS, "anonymous"])
def test_metrics_and_status_are_the_operator_s(suite: Suite, log_in: Any, name: str) -> None:
    may = name in ("operator", "zzdefault-admin")
    for path in ("/metrics", "/api/status"):
        assert log_in(name).at("GET", path).status == (200 if may else 401 if name == "anonymous" else 403)


@pytest.mark.parametrize("name", CELLS)
def test_connections_of_processes_are_the_operator_s(suite: Suite, log_in: Any, name: str) -> None:
    rows = log_in("operator").items("connections?inside=true")
    assert rows and log_in(name)("GET", "connections?inside=true").body["total"] == 0
    assert all(log_in(name)("GET", f"connections/{of(row['id'])}/links").status == 404 for row in rows)


@pytest.mark.parametrize("name", ["zzdefault-viewer", "zzone-viewer@zzone", "anonymous"])
def test_a_caller_without_the_right_is_refused_before_its_body_has_come(suite: Suite, log_in: Any, name: str) -> None:
    client, space = log_in(name), TENANTS.get(name, "zztwo")
    given = "".join(f"{key}: {value}\r\n" for key, value in client.headers.items())
    tried = 0
    for path, methods in log_in("operator")("GET", "openapi.json").body["paths"].items():
        for method, operation in methods.items():
            if "requestBody" not in operation or operation.get("security") == []:
                continue
            if path.endswith("/tokens") and name != "anonymous":  # each user may make tokens of its own
                continue
            (place, *_) = filled(path, space, MARKS[space])
            with socket.create_connection(("127.0.0.1", client.port), DEADLINE) as peer:
                peer.sendall(
                    f"{method.upper()} {place} HTTP/1.1\r\nHost: localhost\r\nIf-Match: *\r\n{given}"
                    "Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n{".encode()
                )
                answer = peer.recv(4096).decode()
            assert answer.partition(" ")[2][:3] in ("401", "403", "404"), (method, place, answer)
            tried += 1
    assert tried > 20


def test_a_space_s_administrator_changes_its_space_alone(suite: Suite, log_in: Any) -> None:
    client = log_in("zzone-admin@zzone")
    assert client("PUT", "addresses/zzone-new", QUEUE).status == 201
    assert client("PUT", "spaces/zzone/users/zzone-new", {"password": PASSWORD}).status == 201
    assert client("DELETE", "users/zzone-new", If_Match="*").status == 204
    assert client("DELETE", "addresses/zzone-new", If_Match="*").status == 204
    for path, body in (
        ("spaces/zztwo/addresses/zzone-new", QUEUE), ("spaces/zzone", {}), ("spaces/zzmore", {}),
        ("plans/zzone-plan", {}), ("flavors/zzone-flavor", {"type": "queue"}), ("spaces/zztwo/users/zzone-new", {}),
    ):  # fmt: skip
        assert client("PUT", path, body).status in (403, 404), path
    viewer = log_in("zzone-viewer@zzone")
    assert viewer("PUT", "addresses/zzone-new", QUEUE).status in (403, 404)
    assert viewer("PUT", "users/zzone-new", {}).status == 403
    with Client(suite, Host="zztwo.example.com") as at_host:
        reply = at_host.log_in("zztwo-admin", PASSWORD)
        assert (reply.status, reply.body["space"]) == (200, "zztwo")
        assert at_host.log_in("zzone-admin@zzone", PASSWORD).status == 401


def test_lines_of_logs_state_the_space_of_what_they_name(suite: Suite, clients: None, log_in: Any) -> None:
    log_in("zzone-admin@zzone")("DELETE", "connections/nothing")
    lines = [line for line in lines_of(suite) if not line["event"].startswith("suite.")]  # the operator's terminal
    for line in lines:
        named = {space for space, mark in MARKS.items() if mark in json.dumps({**line, "space": "", "who": ""})}
        space = line.get("space", "default")
        if not str(line.get("who")).endswith(f"@{space}"):  # else its own client may have stated any name
            assert named <= {space}, line
        assert "!!" not in json.dumps(line), line
    found = {(line["event"], line.get("space")) for line in lines}
    for event in ("client.refused", "audit.login.accepted", "audit.configuration.changed", "audit.users.changed"):
        assert {(event, None), (event, "zzone"), (event, "zztwo")} <= found, event
    refused = {
        (line.get("space"), line["user"], line["address"]) for line in lines if line["event"] == "client.refused"
    }
    for space, mark in MARKS.items():
        assert (None if space == "default" else space, f"{mark}-user", f"{mark}-forbidden") in refused
    logins = {line["who"] for line in lines if line["event"] == "audit.login.accepted"}
    assert {"zzdefault-user", "zzone-user@zzone", "zztwo-user@zztwo"} <= logins


def lines_of(suite: Suite) -> list[dict[str, Any]]:
    """Return the lines of all logs, those for auditors included."""
    found = []
    for file in (suite.data / "logs").rglob("*.log"):
        found += [json.loads(line) for line in file.read_text().splitlines() if line.startswith("{")]
    return found


def test_series_by_address_and_user_have_the_space_and_its_names(suite: Suite, clients: None, log_in: Any) -> None:
    def series(wanted: dict[str, str]) -> list[dict[str, str]]:
        text = log_in("operator").at("GET", "/metrics").body
        assert "!!" not in text
        rows = [{"": line.partition("{")[0], **dict(_LABEL.findall(line))} for line in text.splitlines() if "{" in line]
        return [row for row in rows if wanted.items() <= row.items()]

    for space, mark in MARKS.items():
        label = {} if space == "default" else {"space": space}
        for name, more in (
            ("enmasse_address_messages", {"address": f"{mark}-queue"}),
            ("enmasse_broker_messages", {"address": f"{mark}-queue"}),
            ("enmasse_router_producers", {"address": f"{mark}-queue"}),
            ("enmasse_connections", {"user": f"{mark}-user"}),
        ):
            wanted = {"": name, **more}
            rows = wait_for(partial(series, wanted), f"{wanted}")
            assert {row.get("space") for row in rows} == {label.get("space")}, (wanted, rows)


_LABEL = re.compile(r'(\w+)="([^"]*)"')
