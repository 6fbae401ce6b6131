"""What the API shows of configuration and suite."""

from __future__ import annotations

import msgspec
import pytest

from enmasse.api.types import Address, Component, Flavor, Overview, Page
from enmasse.testing import Suite
from tests.console.client import Client, of
from tests.kit.waiting import wait_for


def test_an_address_has_entry_status_and_etag(client: Client) -> None:
    reply = client("GET", f"addresses/{of('orders/late')}")
    found = msgspec.convert(reply.body, Address)
    assert (found.name, found.type, found.phase, found.ready) == ("orders/late", "queue", "Active", True)
    assert found.entry == {"type": "queue", "flavor": "small-persisted-queue"}
    assert found.brokers == ["small-persisted-queue-0"]
    assert reply.etag == f'"{found.etag}"'


@pytest.mark.parametrize(
    "path",
    [
        *(f"{each}/none" for each in ("addresses", "flavors", "users", "components", "connections", "links", "events")),
        *(f"{each}/none" for each in ("brokers", "routers", "queries")),
        "nothing",
        "x/y/z",
    ],
)
def test_what_does_not_exist_is_a_problem(path: str, client: Client) -> None:
    reply = client("GET", path)
    assert (reply.status, reply.headers.get_content_type()) == (404, "application/problem+json")
    assert reply.body["type"] == "/api/v1/problems/console.resource.unknown"
    assert "console.resource.unknown" in client.at("GET", reply.body["type"]).body


def test_a_misspelt_path_names_the_word_that_may_be_meant(client: Client) -> None:
    for path, wrong, meant in (
        ("adresses", "adresses", "addresses"),
        ("addresses/a%2Fb/mesages", "addresses/a%2Fb/mesages", "messages"),
        ("spaces/one/sesions/x", "spaces/one/sesions", "sessions"),
    ):
        reply = client("GET", path)
        assert (reply.status, reply.headers.get_content_type()) == (404, "application/problem+json")
        assert f"there is no path '/api/v1/{wrong}'" in reply.body["detail"]
        assert reply.body["detail"].endswith(f"Did you mean '{meant}'?")


def test_a_method_that_a_path_lacks_is_refused_with_those_that_it_has(client: Client) -> None:
    reply = client("POST", "addresses/orders")
    assert (reply.status, reply.body["type"]) == (405, "/api/v1/problems/console.method.unknown")
    assert reply.headers["Allow"] == "DELETE,GET,HEAD,PATCH,PUT"
    assert reply.body["detail"] == "POST is not possible there; possible are DELETE, GET, HEAD, PATCH, PUT"
    for path in ("addresses", "users", "flavors", "spaces", "plans", "spaces/a/addresses"):
        reply = client("POST", path)
        hint = f"PUT /api/v1/{path}/NAME makes an entry, or changes it"
        assert (reply.status, reply.headers["Allow"]) == (405, "GET,HEAD")
        assert reply.body["detail"] == f"POST is not possible there; possible are GET, HEAD. {hint}"
    assert client("POST", "connections").body["detail"].endswith("possible are GET, HEAD")


def test_each_list_has_a_get_of_one(client: Client) -> None:
    paths = client("GET", "openapi.json").body["paths"]
    lists = [path for path, each in paths.items() if "watch" in str(each.get("get", {}).get("parameters"))]
    single = {path.rpartition("/{")[0] for path, each in paths.items() if path.endswith("}") and "get" in each}
    assert len(lists) >= 14 and set(lists) <= single
    for path in ("routers", "links", "brokers"):
        for row in client.items(path)[:1]:
            assert client("GET", f"{path}/{of(row.get('id') or row['name'])}").status == 200


def test_pages_by_cursor_give_every_address_once_in_order(client: Client) -> None:
    for order in ("name", "-name", "type", "-messages"):
        whole = [each["name"] for each in client.items(f"addresses?sort={order}")]
        found, path = [], f"addresses?limit=2&sort={order}"
        while True:
            page = client("GET", path).body
            found += [each["name"] for each in page["items"]]
            assert page["total"] == len(whole)
            if page["next"] is None:
                break
            path = f"addresses?limit=2&sort={order}&after={page['next']}"
        assert found == whole and len(set(found)) == len(found) >= 7
    assert whole != sorted(whole)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("name=orders*", ["orders", "orders/late"]),
        ("name=?rders", ["orders"]),
        ("type=topic&name=n*", ["news"]),
        ("flavor=small-persisted-topic", ["mytopic", "news"]),
        ("ready=false", []),
        ("phase=Active&type=anycast", ["anycast"]),
        ("broker=small-persisted-topic-0", ["mytopic", "news"]),
    ],
)
def test_filters(query: str, names: list[str], client: Client) -> None:
    assert [each["name"] for each in client.items(f"addresses?{query}")] == names


@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=1001", "limit=x", "after=nonsense", "after=WyJuYW1lIiwxLDJd", "sort=nothing", "colour=red",
        "ready=perhaps", "type=none", "name=a&name=b", f"name={'*' * 600}", "watch=1&limit=3",
    ],
)  # fmt: skip
def test_invalid_parameters_are_problems(query: str, client: Client) -> None:
    reply = client("GET", f"addresses?{query}")
    assert (reply.status, reply.body["type"]) == (400, "/api/v1/problems/console.request.invalid"), reply


def test_flavors_components_overview_and_configuration(suite: Suite, client: Client) -> None:
    wait_for(lambda: client("GET", "overview").body["ready"], "addresses of other tests are gone")
    flavor = msgspec.convert(client("GET", "flavors/small-persisted-queue").body, Flavor)
    assert (flavor.type, flavor.addresses) == ("queue", 3)
    wait_for(lambda: client.items("components"), "components")
    components = msgspec.convert(client("GET", "components").body, Page[Component])
    assert {each.kind for each in components.items} >= {"configserv", "console", "router", "broker"}
    overview = msgspec.convert(client("GET", "overview").body, Overview)
    assert overview.ready and overview.phases["Active"] == 7 and overview.errors == []
    assert client("GET", "config").body["files"] == suite.status()["config"]


def test_without_users_everyone_on_this_machine_may_do_everything(client: Client) -> None:
    me = client("GET", "me").body
    assert (me["how"], me["user"], me["administrator"]) == ("anonymous", None, True)
    assert client("GET", "login").body == {"anonymous": True, "password": False, "issuers": []}
    assert client("GET", "me", Host="evil.example").status == 403
    assert client("GET", "me", Origin="http://evil.example").status == 403
    assert client("GET", "me", Authorization="Bearer wrong").status == 401


def test_the_operators_secret(suite: Suite, client: Client) -> None:
    assert client("GET", "me", **suite.operator_headers).body["how"] == "operator"


def test_a_stream_has_a_snapshot_and_then_what_changes(suite: Suite, client: Client) -> None:
    events = client.events("addresses?watch=1&name=orders*")
    name, data = next(events)
    assert name == "snapshot" and [each["name"] for each in data["items"]] == ["orders", "orders/late"]
    suite.edit("addresses.json", {"orders-new": {"type": "anycast"}, "other": {"type": "anycast"}})
    seen = dict.fromkeys(["orders-new"], "")
    while seen["orders-new"] != "Active":
        name, data = next(events)
        names = {each["name"] for each in data["items"]}  # of the others traffic of earlier tests may change
        assert name == "change" and names <= {"orders", "orders/late", "orders-new"}
        seen.update({each["name"]: each["phase"] for each in data["items"]})
    suite.edit("addresses.json", {}, remove=["orders-new", "other"])
    while "orders-new" not in data["removed"]:
        name, data = next(events)
        assert "other" not in data["removed"]


def test_the_openapi_document_describes_every_operation(client: Client) -> None:
    document = client("GET", "openapi.json").body
    assert document["openapi"] == "3.1.0"
    assert {"/api/v1/addresses", "/api/v1/addresses/{name}"} <= document["paths"].keys()
    listed = document["paths"]["/api/v1/addresses"]["get"]
    assert {each["name"] for each in listed["parameters"]} >= {"name", "ready", "limit", "after", "watch"}
    assert set(listed["responses"]) >= {"200", "400", "401", "503"}


def test_the_page_is_served_with_a_strict_policy(client: Client) -> None:
    reply = client.at("GET", "/")
    assert reply.status == 200 and reply.headers.get_content_type() == "text/html"
    policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert "connect-src 'self' ws://127.0.0.1:* wss://127.0.0.1:*;" in policy  # gateways, for its MQTT client
    for host in ("[::1]", "a b; script-src *", "x;y", "x'"):
        other = client.at("GET", "/", Host=host).headers["Content-Security-Policy"]
        assert other is None or "connect-src 'self';" in other
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert client.at("GET", "/index.html", If_None_Match=reply.etag).status == 304
    for path in (
        "/../settings.py",
        "/%2e%2e/settings.py",
        "/..%2fsettings.py",
        "/index.html/../../app.py",
        "//etc/passwd",
    ):
        assert client.at("GET", path).status == 404, path
