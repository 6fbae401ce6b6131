"""A lock is settled at any gateway, over two routers, by its user alone; a gateway that is killed loses no message."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection
from typing import Any

import pytest

from enmasse.aio.client import connect
from enmasse.amqp.codec.errors import AmqpError
from enmasse.testing import Suite
from tests.http_gateway.requests_to_suite import Answer, basic, request
from tests.kit.spaces import running_with_spaces
from tests.kit.waiting import DEADLINE, wait_for
from tests.system.conftest import QUEUE
from tests.system.users import allow, entry

PASSWORD = "the same"
JOBS = {"jobs": {"type": "queue", "flavor": QUEUE}}
USERS = {"alice": entry(PASSWORD, allow("#")), "bob": entry(PASSWORD, allow("#"))}
ALICE, BOB, OTHER = (basic(name, PASSWORD) for name in ("alice", "bob", "alice@zzone"))
NEXT = "/v1/jobs/messages/next?wait=30"


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    files = {
        "spaces.json": {"zzone": {}},
        "spaces/zzone/users.json": USERS,
        "spaces/zzone/addresses.json": JOBS,
        "users.json": USERS,
    }
    options = ("--without", "mqtt", "--with", "http", "--routers", "2")  # one for each gateway
    with running_with_spaces(tmp_path_factory.mktemp("locks"), files, addresses=JOBS, options=options) as found:
        for file in ("users.json", "spaces/zzone/users.json"):
            (found.config / file).chmod(0o600)
        found.up()
        done = found.command("scale", "http_gateway=2", "--port-offset", str(found.offset))
        assert done.returncode == 0, done
        wait_for(lambda: len(gateways(found)) == 2, "two gateways")
        wait_for(lambda: post(found, OTHER, b"first").status == 201, "the addresses of the space")
        settle(found, 0, taken(found, 0, OTHER), OTHER)
        yield found
        assert found.down() == 0


def gateways(suite: Suite) -> list[dict[str, Any]]:
    return [each for each in suite.status()["components"] if each["kind"] == "http_gateway" and each["ready"]]


def port(suite: Suite, number: int) -> int:
    """Return the port of one gateway alone."""
    (found,) = (each for each in gateways(suite) if each["name"] == f"http_gateway-{number}")
    return int(found["endpoints"]["own"].rpartition(":")[2])


def at(suite: Suite, number: int, method: str, path: str, user: Any = ALICE, body: bytes = b"") -> Answer:
    return request(suite, method, path, body, user, port(suite, number))


def post(suite: Suite, user: dict[str, str], body: bytes) -> Answer:
    return request(suite, "POST", "/v1/jobs/messages", body, user)


def taken(suite: Suite, number: int, user: dict[str, str] = ALICE) -> str:
    """Return the place of a message that is locked at a gateway."""
    found = at(suite, number, "POST", NEXT + "&lock=3600", user)
    assert found.status == 200, found
    assert f"/http_gateway-{number}." in found.headers["location"]
    return found.headers["location"]


def settle(suite: Suite, number: int, place: str, user: dict[str, str] = ALICE) -> None:
    answer = at(suite, number, "DELETE", place, user)
    assert answer.status == 204, answer


def empty(suite: Suite) -> bool:
    return at(suite, 0, "POST", "/v1/jobs/messages/next").status == 204


def test_every_outcome_at_the_other_gateway(suite: Suite) -> None:
    assert post(suite, ALICE, b"one").status == 201
    place = taken(suite, 0)
    renewed = at(suite, 1, "PUT", place)
    assert (renewed.status, renewed.headers["enmasse-lock"]) == (204, "3600")
    assert at(suite, 1, "POST", place, body=b'{"outcome": "eaten"}').status == 400
    assert at(suite, 1, "POST", place, body=b'{"outcome": "modified"}').status == 204
    again = at(suite, 1, "POST", NEXT)
    assert (again.body, again.headers["enmasse-delivery-count"]) == (b"one", "1")
    assert at(suite, 0, "POST", again.headers["location"], body=b'{"outcome": "released"}').status == 204
    place = taken(suite, 0)
    settle(suite, 1, place)
    assert [at(suite, number, "DELETE", place).status for number in (0, 1)] == [410, 410]
    assert empty(suite)


@pytest.mark.parametrize("holder", [0, 1])
def test_a_token_is_worth_nothing_to_others(suite: Suite, holder: int) -> None:
    """Another user, the same name in another space, and another address: all as if there were no lock."""
    assert post(suite, ALICE, b"mine").status == 201
    place = taken(suite, holder)
    bodies = set()
    for number in (0, 1):
        for user in (BOB, OTHER):
            for method in ("DELETE", "PUT"):
                answer = at(suite, number, method, place, user)
                assert answer.status == 410, answer
                bodies.add(answer.body)
        assert at(suite, number, "DELETE", place.replace("/jobs/", "/myqueue/")).status == 410
        assert at(suite, number, "DELETE", place, {}).status == 401
    assert len(bodies) == 1
    settle(suite, 1 - holder, place)


def test_forged_tokens(suite: Suite) -> None:
    names, none = ("http_gateway-0", "http_gateway-9", "router-0", ".."), ("", "a%2F%23", "%24mqtt", "*", "%C3%A4")
    with ThreadPoolExecutor(len(names)) as threads:
        paths = [f"/v1/jobs/deliveries/{name}.{'A' * 22}" for name in (*names, *none, "x" * 300)]
        answers = list(threads.map(partial(at, suite, 1, "DELETE"), paths))
    assert [answer.status for answer in answers] == [410] * len(names) + [400] * (len(none) + 1), answers


def test_no_client_reaches_the_node_of_a_gateway(suite: Suite) -> None:
    async def test() -> None:
        amqp = 5672 + suite.offset
        async with connect(host="127.0.0.1", port=amqp, user="alice", password=PASSWORD) as client:
            for attach in (client.sender, client.receiver):
                with pytest.raises(AmqpError) as refused:
                    await attach("$http/http_gateway-0", timeout=DEADLINE)
                assert refused.value.condition == "amqp:unauthorized-access"

    asyncio.run(test())


COUNT = 200


@pytest.mark.slow  # test_every_outcome_at_the_other_gateway
def test_the_gateway_with_the_locks_is_killed(suite: Suite) -> None:
    """Outcomes are stated at the other one meanwhile: what was answered 204 is not there again, all else is."""
    lines = b"\n".join(b'{"body": "%d"}' % n for n in range(COUNT))
    assert request(suite, "POST", "/v1/jobs/messages?batch", lines, ALICE).status == 200
    places: dict[str, str] = {}
    while len(places) < COUNT:
        found = at(suite, 0, "POST", NEXT + "&count=100&lock=3600")
        assert found.status == 200, found
        places |= {line["body"]: line["location"] for line in map(json.loads, found.body.splitlines())}
    (killed,) = (each for each in gateways(suite) if each["name"] == "http_gateway-0")
    other, answered, half = port(suite, 1), Counter[str](), threading.Event()

    def state(body: str) -> tuple[str, int]:
        connection = HTTPConnection("127.0.0.1", other, timeout=DEADLINE)
        connection.request("DELETE", places[body], headers=ALICE)
        status = connection.getresponse().status
        connection.close()
        answered["all"] += 1
        if answered["all"] > COUNT // 3:
            half.set()
        return body, status

    with ThreadPoolExecutor(4) as threads:
        outcomes = [threads.submit(state, body) for body in places]
        assert half.wait(DEADLINE)
        suite.kill(killed)
        statuses = dict(each.result() for each in outcomes)
    assert set(statuses.values()) <= {204, 410, 504}
    assert statuses["0"] == 204 and 410 in statuses.values()
    done, again = {body for body, status in statuses.items() if status == 204}, set()
    while (found := request(suite, "POST", NEXT.replace("30", "5"), b"", ALICE, other)).status == 200:
        again.add(found.body.decode())
        assert request(suite, "DELETE", found.headers["location"], b"", ALICE, other).status == 204
    assert not done & again
    unknown = {body for body, status in statuses.items() if status != 204}
    assert set(places) - done - again <= unknown and len(done | again) >= COUNT - 8, "those that were under way"
