"""Messages that clients post: what receivers get, and the status that each outcome is."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enmasse.aio.client import connect
from enmasse.amqp.codec.performatives import RELEASED, Error, Modified, Rejected
from enmasse.amqp.codec.types import Symbol
from services.http_gateway.api.requests_of_clients import METHODS
from tests.http_gateway.environment import HTTP_GATEWAY, Running, running
from tests.kit.processes import Program
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("http")) as it:
        yield it


def test_a_message_reaches_its_receiver_with_all_that_its_headers_say(found: Running) -> None:
    headers = {
        "Content-Type": "image/png",
        "Enmasse-Subject": "gr%C3%BCn",
        "Enmasse-Correlation-Id": "ulong:7",
        "Enmasse-TTL": "60000",
        "Enmasse-Priority": "7",
        "Enmasse-Properties": json.dumps({"count": 5, "when": {"timestamp": 1}, "_AMQ_DUPL_ID": "x"}),
        "ce-id": "A-1",
    }

    @asyncio_test
    async def test() -> None:
        async with connect(host="127.0.0.1", port=found.clients) as client:
            receiver = await client.receiver("ask")
            post = asyncio.create_task(asyncio.to_thread(found.ask, "POST", "/v1/ask/messages", b"\0png", headers))
            delivery = await receiver.receive()
            message = delivery.message
            await delivery.accept()
            answer = await post
        assert (answer.status, answer.json) == (201, {"outcome": "accepted"})
        assert (message.body, message.content_type, message.subject) == (b"\0png", "image/png", "grün")
        assert (message.correlation_id, message.ttl, message.priority, message.durable) == (7, 60000, 7, True)
        assert message.application_properties == {"count": 5, "when": 1, "cloudEvents:id": "A-1"}

    test()


def rejected(condition: str) -> Rejected:
    return Rejected(error=Error(condition=Symbol(condition), description="why"))


@pytest.mark.parametrize(
    ("state", "status", "outcome", "condition"),
    [
        (
            Rejected(error=Error(condition=Symbol("app:broken"), description="no such colour")),
            422,
            "rejected",
            "app:broken",
        ),
        (
            Rejected(error=Error(condition=Symbol("amqp:resource-limit-exceeded"), description="full")),
            429,
            "rejected",
            None,
        ),
        (Modified(undeliverable_here=True), 422, "modified", None),
        (RELEASED, 503, "released", None),
    ],
)
def test_an_outcome_is_a_status(found: Running, state: Any, status: int, outcome: str, condition: str | None) -> None:
    @asyncio_test
    async def test() -> None:
        async with connect(host="127.0.0.1", port=found.clients) as client:
            receiver = await client.receiver("ask")
            post = asyncio.create_task(asyncio.to_thread(found.ask, "POST", "/v1/ask/messages", b"x"))
            while not post.done():
                for delivery in receiver.receive_all(10):
                    delivery.settle(state)
                await asyncio.sleep(0)
            answer = await post
        assert answer.status == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert ("retry-after" in answer.headers) is (status in (429, 503))
        assert answer.json["outcome"] == outcome
        assert condition is None or answer.json["condition"] == condition

    test()


HASTY = Program(("-m", "tests.http_gateway.hasty"), HTTP_GATEWAY.imports)


def test_a_receiver_that_keeps_a_message_leaves_its_outcome_unknown(tmp_path: Path) -> None:
    @asyncio_test
    async def test(found: Running) -> None:
        async with connect(host="127.0.0.1", port=found.clients) as client:
            receiver = await client.receiver("ask")
            answer = await asyncio.to_thread(found.ask, "POST", "/v1/ask/messages", b"x")
            assert (answer.status, answer.json["outcome"]) == (504, "unknown")

            async def accept() -> None:
                while True:
                    await (await receiver.receive(DEADLINE)).accept()

            async def accepted() -> bool:
                answer = await asyncio.to_thread(found.ask, "POST", "/v1/ask/messages", b"y")
                return answer.status == 201

            accepting = asyncio.create_task(accept())
            await until(accepted, "what is accepted in time has its outcome")
            accepting.cancel()

    with running(tmp_path, program=HASTY) as hasty:
        test(hasty)


def test_what_has_no_receiver_or_no_address(found: Running) -> None:
    assert found.ask("POST", "/v1/ask/messages", b"x").status == 503
    multicast = found.ask("POST", "/v1/news/messages", b"x")
    assert (multicast.status, multicast.json) == (201, {"outcome": "accepted", "receivers": 0})
    assert found.ask("POST", "/v1/nowhere/messages", b"x").status == 404
    typo = found.ask("POST", "/v1/newss/messages", b"x")
    assert typo.json["detail"] == "there is no address 'newss'. Did you mean 'news'?"
    assert found.ask("POST", "/v1/$management/messages", b"x").status == 404
    assert found.ask("POST", "/v1/!!other/a/messages", b"x").status == 404
    assert found.ask("GET", "/v1/ask/messages").status == 405
    assert found.ask("GET", "/v1/ask/events").status == 400
    assert found.ask("POST", "/v1/news/messages", b"x", {"Prefer": "respond-async"}).status == 202
    assert found.ask("POST", "/v1/news/messages", b"x", {"Enmasse-Priority": "10"}).status == 400
    assert found.ask("POST", "/v1/news/messages", b"x", {"Enmasse-Colour": "red"}).status == 400
    assert found.ask("POST", "/v1/news/messages", b"x" * (17 << 20)).status == 413


def test_refused_messages_are_noted_and_those_without_a_failure_are_not(found: Running) -> None:
    def noted() -> dict[str, float]:
        # limit: a whole page of metrics
        with urllib.request.urlopen(f"http://127.0.0.1:{found.health}/metrics", timeout=DEADLINE) as answer:
            lines = answer.read().decode().splitlines()
        found_lines = (re.fullmatch(r'enmasse_refusals_total.condition="(.+)",what="message". (.+)', x) for x in lines)
        return {x[1]: float(x[2]) for x in found_lines if x}

    before = noted()
    assert found.ask("POST", "/v1/news/messages", b"x").status == 201
    assert noted() == before
    assert found.ask("POST", "/v1/ask/messages", b"x").status == 503
    assert found.ask("POST", "/v1/nowhere/messages", b"x").status == 404
    after = noted()
    assert {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name)} == {
        "amqp:released": 1,
        "amqp:not-found": 1,
    }


def test_many_messages_have_an_outcome_each(found: Running) -> None:
    lines = [{"body": "one"}, {"body": 2, "annotations": {}}, {"body": {"n": 3}, "subject": "s"}]
    body = "\n".join(json.dumps(line) for line in lines) + "\nno json\n"
    answer = found.ask("POST", "/v1/news/messages?batch", body, {"Content-Type": "application/x-ndjson"})
    assert answer.status == 200
    statuses = [json.loads(line)["status"] for line in answer.body.splitlines()]
    assert statuses == [201, 400, 201, 400]


def test_the_document_names_what_is_there(found: Running) -> None:
    """Each resource with its methods, and nothing else."""
    methods = {
        kind: {each.lower() for each in names if each != "HEAD"} for kind, names in METHODS.items() if kind != "openapi"
    }
    paths = found.ask("GET", "/v1/openapi.json").json["paths"]
    described = {
        path.removeprefix("/v1/{address}/").removesuffix("/{token}"): set(each) - {"parameters"}
        for path, each in paths.items()
    }
    assert described == methods


def test_pages_of_other_sites_send_nothing(found: Running) -> None:
    """Not by simple requests either, which browsers send without asking first."""
    foreign = {"Origin": "http://evil.example", "Content-Type": "text/plain"}
    assert found.ask("POST", "/v1/news/messages", b"x", foreign).status == 403
    rebound = {"Origin": "http://evil.example", "Host": "evil.example:8088"}
    assert found.ask("POST", "/v1/news/messages", b"x", rebound).status == 403
    own = {"Origin": f"http://127.0.0.1:{found.port}"}
    answer = found.ask("POST", "/v1/news/messages", b"x", own)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (201, own["Origin"])
    assert found.ask("OPTIONS", "/v1/news/messages", None, foreign).status == 403
    assert found.ask("OPTIONS", "/v1/news/messages", None, own).status == 204
