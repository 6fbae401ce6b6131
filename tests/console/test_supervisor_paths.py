"""The paths of the supervisor, at the console."""

from __future__ import annotations

import pytest

from enmasse.cli.contexts.http import get_status
from enmasse.testing import Suite
from tests.console.client import Client
from tests.kit.waiting import wait_for


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/api/suite"])
def test_paths_without_a_secret(path: str, client: Client) -> None:
    wait_for(lambda: client.at("GET", path).status == 200, path)


@pytest.mark.parametrize("path", ["/metrics", "/api/status", "/api/ready"])
def test_the_supervisor_decides_by_the_secret(path: str, suite: Suite, client: Client) -> None:
    refused = client.at("GET", path)
    assert refused.status == 401
    assert client.at("GET", path, Authorization="Bearer wrong").status == 401
    assert client.at("GET", path, **suite.operator_headers).status == 200


def test_status_is_that_of_the_supervisor(suite: Suite, client: Client) -> None:
    shown = client.at("GET", "/api/status", **suite.operator_headers).body
    assert [each["name"] for each in shown["addresses"]] == [
        each["name"] for each in get_status(suite.offset)["addresses"]
    ]
    assert "console" in [each["kind"] for each in shown["components"] if each["ready"]]


def test_an_order_is_passed_on(suite: Suite, client: Client) -> None:
    body = {"service": "router", "count": 1}
    assert client.at("POST", "/api/scale", body).status == 401
    done = client.at("POST", "/api/scale", body, **suite.operator_headers)
    assert (done.status, done.body["accepted"]) == (200, True)
    refused = client.at("POST", "/api/restart", {"component": "router"}, **suite.operator_headers)
    assert (refused.status, refused.body["accepted"]) == (409, False)
    assert "there is no component 'router'; there are " in refused.body["message"]


def test_requests_of_web_pages_are_refused(suite: Suite, client: Client) -> None:
    secret = suite.operator_headers
    assert client.at("GET", "/api/status", Host="evil.example", **secret).status == 403
    assert client.at("GET", "/api/status", Origin="http://evil.example", **secret).status == 403
    assert client.at("POST", "/api/scale", b"{}", Content_Type="text/plain", **secret).status == 415
