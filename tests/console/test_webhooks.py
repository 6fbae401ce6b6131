"""Webhooks: signed messages to real receivers that fail, hang and redirect; and those of a running suite."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import formatdate
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
import pytest
from aiohttp import web

from enmasse.http import webhooks as entries
from enmasse.http.webhooks import Webhook
from enmasse.live_state import Row
from enmasse.network.backoff import Backoff, Waits
from enmasse.testing import Suite, free_port, running
from services.console.following.process_events import Events, NewEvent, new_event
from services.console.webhooks import waiting, webhook_posts
from services.console.webhooks.alerts import Alerts
from services.console.webhooks.waiting import WaitingMessages
from services.console.webhooks.webhook_posts import Webhooks
from tests.cli.running import enmasse
from tests.console.client import Client
from tests.console.test_logins import allow, user
from tests.console.walking import QUEUE
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, wait_for

KEY = b"0123456789abcdef0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
AT_ONCE = Waits(0.01, 0.05)
Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Got(NamedTuple):
    """A message: its headers, and the body decoded."""

    id: str
    body: Any


class Receiver:
    """A server that notes messages whose signature is right, and answers as it is told."""

    def __init__(self) -> None:
        self.got: list[Got] = []
        self.asked = 0
        self.answering: Answering = self.take
        self._news = asyncio.Condition()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        async with self._news:
            self.asked += 1
            self._news.notify_all()
        return await self.answering(request)

    async def take(self, request: web.Request) -> web.StreamResponse:
        """Check a message and note it."""
        body = await request.read()
        id, at = request.headers["webhook-id"], request.headers["webhook-timestamp"]
        signed = hmac.new(KEY, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
        assert request.headers["webhook-signature"] == f"v1,{base64.b64encode(signed).decode()}"
        assert abs(time.time() - int(at)) < 300 and request.content_type == "application/json"
        async with self._news:
            self.got.append(Got(id, json.loads(body)))
            self._news.notify_all()
        return web.Response(status=204)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until this holds."""
        async with asyncio.timeout(DEADLINE), self._news:
            await self._news.wait_for(condition)

    async def until_asked(self, count: int) -> None:
        """Wait until there were so many requests."""
        await self.until(lambda: self.asked >= count)

    async def until_got(self, count: int) -> None:
        """Wait until so many messages have come."""
        await self.until(lambda: len(self.got) >= count)

    @property
    def numbers(self) -> list[Any]:
        """The numbers of the events that came."""
        return [each.body["data"]["more"]["n"] for each in self.got if "more" in each.body["data"]]


@asynccontextmanager
async def receiving(port: int = 0) -> AsyncIterator[tuple[Receiver, int]]:
    receiver = Receiver()
    application = web.Application()
    application.router.add_route("*", "/{any:.*}", receiver.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield receiver, int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def hook(port: int, **more: Any) -> dict[str, Webhook]:
    return {"ops": Webhook(url=f"http://127.0.0.1:{port}/hook", secret=SECRET, **more)}


def event(n: int, kind: str = "client.refused", at: float | None = None, **more: Any) -> NewEvent:
    row = {"at": time.time() if at is None else at, "id": kind, "reason": "why", "n": n, **more}
    return new_event("router", "run-1", row)


@asyncio_test
async def test_a_receiver_gets_what_it_wants_in_order() -> None:
    async with receiving() as (receiver, port):
        sending = Webhooks(hook(port, events=("client.*",), space="one"), None, AT_ONCE)
        sending.start()
        for n in range(5):
            sending.take(event(n, space="one"))
            sending.take(event(100, space="two"))
            sending.take(event(200))
            sending.take(event(300, "component.readiness.lost", space="one"))
        await receiver.until(lambda: len(receiver.got) == 5)
        await sending.close()
    assert receiver.numbers == [0, 1, 2, 3, 4]
    first = receiver.got[0].body
    assert (first["type"], first["data"]["component"], first["data"]["space"]) == ("client.refused", "router", "one")
    assert "id" not in first["data"] and first["timestamp"].endswith("Z")


@asyncio_test
async def test_a_receiver_that_fails_hangs_and_redirects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_posts, "SECONDS", 0.2)
    elsewhere = []

    async def fails(_: web.Request) -> web.StreamResponse:
        return web.Response(status=503)

    async def hangs(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async def redirects(request: web.Request) -> web.StreamResponse:
        if request.path != "/hook":
            elsewhere.append(request.path)
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    async def endless(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(status=500)
        await answer.prepare(request)
        while True:
            await answer.write(b"x" * 65536)

    async with receiving() as (receiver, port):
        sending = Webhooks(hook(port), None, AT_ONCE)
        sending.start()
        sending.take(event(1))
        for answering in (fails, hangs, redirects, endless):
            receiver.answering, before = answering, receiver.asked
            await receiver.until_asked(before + 2)
            assert receiver.got == []
        receiver.answering = receiver.take
        sending.take(event(2))
        await receiver.until(lambda: len(receiver.got) == 2)
        await sending.close()
    assert receiver.numbers == [1, 2] and elsewhere == []


@asyncio_test
async def test_a_dead_receiver_holds_up_no_other_and_costs_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MOST", 10)
    dead = free_port()
    async with receiving() as (receiver, port):
        both = {"dead": hook(dead)["ops"], "ops": hook(port)["ops"]}
        sending = Webhooks(both, None, AT_ONCE)
        sending.start()
        for n in range(100):
            sending.take(event(n))
            await receiver.until_got(n + 1)
        values = {
            (each.name, sample.labels["webhook"]): sample.value for each in sending.metrics() for sample in each.samples
        }
        assert values["enmasse_webhook_waiting", "dead"] <= 11
        assert values["enmasse_webhook_dropped", "dead"] >= 90
        assert values["enmasse_webhook_dropped", "ops"] == 0
        async with receiving(dead) as (late, _):
            await late.until(lambda: bool(late.numbers) and late.numbers[-1] == 99)
            dropped = [each.body["data"]["count"] for each in late.got if each.body["type"] == "webhook.events.dropped"]
            assert sum(dropped) + len(late.numbers) == 100
        await sending.close()


@asyncio_test
async def test_after_a_restart_it_goes_on_where_it_was(tmp_path: Path) -> None:
    state = tmp_path / "webhooks.json"
    async with receiving() as (receiver, port):

        async def refuses(request: web.Request) -> web.StreamResponse:
            return web.Response(status=500) if len(receiver.got) == 4 else await receiver.take(request)

        receiver.answering = refuses
        first = Webhooks(hook(port), state, AT_ONCE)
        first.start()
        kept = [event(n, at=time.time() + n / 1e6) for n in range(10)]
        for each in kept[:8]:
            first.take(each)
        await receiver.until(lambda: len(receiver.got) == 4 and receiver.asked > 6)
        await first.close()
        receiver.answering = receiver.take
        second = Webhooks(hook(port), state, AT_ONCE)
        second.start()
        for each in kept:  # the process tells all that it keeps
            second.take(each)
        await receiver.until(lambda: len(receiver.got) == 10)
        await second.close()
    assert receiver.numbers == list(range(10))
    assert len({each.id for each in receiver.got}) == 10
    assert state.stat().st_mode & 0o077 == 0


def test_a_new_webhook_gets_no_earlier_events() -> None:
    new = WaitingMessages(hook(1)["ops"])
    assert not new.take(event(1, at=time.time() - 60))
    assert new.take(event(2))
    assert not new.take(event(3, at=time.time() - 30)), "older than the newest"


def test_what_waits_is_not_sent_to_another_receiver(tmp_path: Path) -> None:
    before = WaitingMessages(hook(1, space="one")["ops"])
    assert before.take(event(1, space="one"))
    saved = json.loads(msgspec.json.encode(before.state()))
    assert len(WaitingMessages(hook(1, space="one")["ops"], saved)) == 1
    for other in (hook(1, space="two"), hook(2, space="one"), hook(1), hook(1, space="one", events=("client.*",))):
        edited = WaitingMessages(other["ops"], saved)
        assert (edited.first(), len(edited), edited.dropped_in_all, edited.changed) == (None, 0, 1, True)


def test_bytes_drops_and_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MOST_BYTES", 3000)
    messages = WaitingMessages(hook(1)["ops"])
    assert messages.take(event(1, text="é" * 900)) and messages.take(event(2, text="é" * 900))
    first = messages.first()
    assert first is not None and first.id.startswith("drop_") and len(messages) == 2, "bytes count, not characters"
    assert messages.take(event(3, text="é" * 900))
    again = WaitingMessages(hook(1)["ops"], json.loads(msgspec.json.encode(messages.state())))
    assert messages.first() is first and again.first() == first, "each attempt has its id, also after a restart"
    messages.sent(first)
    more = messages.first()
    assert more is not None and more.id != first.id and json.loads(more.body)["data"]["count"] == 1
    messages.sent(more)
    assert messages.take(event(4, at=time.time() + 3600))
    assert messages.take(event(5)), "the clock was set back"
    alert = new_event("router", "", {"at": 1.0, "id": "component.readiness.lost", "reason": "why"})
    assert messages.take(alert, alert=True)
    head = messages.first()
    assert head is not None and json.loads(head.body)["type"] == "component.readiness.lost", "before what waits"


@asyncio_test
async def test_a_message_that_is_refused_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(webhook_posts, "LATEST", 0.02)

    def wait(_: Backoff) -> float:
        waits.append(0.001)
        return 0.001

    monkeypatch.setattr(Backoff, "wait", wait)
    async with receiving() as (receiver, port):

        async def chooses(request: web.Request) -> web.StreamResponse:
            number = json.loads(await request.read())["data"]["more"]["n"]
            if number == 1:
                return web.Response(status=413)
            if number == 3:
                return web.Response(status=410)
            if receiver.asked <= 8:
                return web.Response(status=429, headers={"Retry-After": "99999999"})
            return await receiver.take(request)

        receiver.answering = chooses
        sending = Webhooks(hook(port), None, AT_ONCE)
        sending.start()
        for number in (1, 2, 3, 4):
            sending.take(event(number))
        await receiver.until(lambda: receiver.asked == webhook_posts.REFUSALS + 5)
        assert receiver.numbers == [2]
        values = {sample.name: sample.value for each in sending.metrics() for sample in each.samples}
        assert values["enmasse_webhook_refused_total"] == 1
        assert len(waits) == webhook_posts.REFUSALS - 1 + 3
        await sending.close()
        assert receiver.asked == webhook_posts.REFUSALS + 5, "410: it is posted nothing more"


@asyncio_test
async def test_a_reason_has_no_url() -> None:
    async def answers(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"nonsense\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answers, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}/secret-path"
    async with aiohttp.ClientSession() as client:
        with pytest.raises(aiohttp.ClientError, match="secret-path") as error:
            await client.get(url)
    server.close()
    reason = webhook_posts._reason(error.value)
    assert "no HTTP" in reason and "secret-path" not in reason
    assert webhook_posts._reason(aiohttp.InvalidURL(url)) == "InvalidURL"


def test_seconds_that_a_receiver_asks_for() -> None:
    assert [webhook_posts._seconds(text) for text in ("7", "²", "-1", "")] == [7, 0, 0, 0]
    assert 1 <= webhook_posts._seconds(formatdate(time.time() + 600)) <= 601


def test_alerts() -> None:
    from enmasse.api.types import Component

    found: list[tuple[str, str]] = []

    def tell(name: str, row: Row) -> None:
        found.append((name, row["id"]))

    events = Events()
    alerts = Alerts(tell, events.add_own)
    ended = {"before": "2026-12-01T13:31:49Z", "since": datetime.now(UTC).isoformat()}
    alerts.look([Component(name=name, kind="x", ready=True, restarts=1, ended_at=at) for name, at in ended.items()])
    assert [row.component for _, row in events.rows] == ["since"]
    events = Events()
    alerts = Alerts(tell, events.add_own)
    alerts.look([Component(name="router", kind="router", ready=False)])
    alerts.look([Component(name="router", kind="router", ready=True)])
    alerts.look([Component(name="router", kind="router", ready=True)])
    alerts.look(
        [
            Component(
                name="router",
                kind="router",
                ready=False,
                restarts=1,
                ended="killed by SIGKILL",
                ended_at="2026-12-01T13:31:49.250Z",
            )
        ]
    )
    assert found == [("router", "component.readiness.gained"), ("router", "component.readiness.lost")]
    for troubles in (["server.crt: expires in 13 days"], ["server.crt: expires in 13 days"], []):
        alerts.look_at_certificates(troubles)
    assert {row.time for _, row in events.rows if row.component == "router"} == {"2026-12-01T13:31:49.250Z"}
    listed = [(row.component, row.kind, row.description, row.names) for _, row in events.rows]
    assert sorted(listed) == [
        ("enmasse", "tls.certificate.troubled", "server.crt: expires in 13 days", ["#"]),
        ("router", "component.process.ended", "killed by SIGKILL; it was started again, 1 time in all", ["#"]),
    ]
    assert len(found) == 2


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"url": "file:///etc/passwd"}, "ops: url: expected https://HOST"),
        ({"url": "https://user:word@host/"}, "ops: url: expected neither user and password"),
        ({"url": "https://host:99999999/"}, "ops: url: Port out of range"),
        ({"secret": "whsec_c2hvcnQ="}, "ops: secret: expected whsec_ and 24 to 64 random bytes"),
        ({"secret": "open sesame"}, "ops: secret: expected whsec_"),
        ({"events": []}, "ops: events: name one pattern"),
        ({"to": "x"}, "unknown field `to`"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, entry: dict[str, Any], expected: str) -> None:
    file = tmp_path / "webhooks.json"
    file.write_text(json.dumps({"ops": {"url": "https://host/hook", "secret": SECRET, **entry}}))
    file.chmod(0o600)
    with pytest.raises(ValueError, match=r"webhooks\.json") as error:
        entries.read(file)
    assert expected in str(error.value) and "sesame" not in str(error.value)
    done = enmasse("up", "--webhooks", file, "--config", tmp_path, "--data", tmp_path / "data")
    assert done.returncode == 2 and "start.webhooks.invalid" in done.stderr


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "webhooks.json"
    file.write_text("{}")
    file.chmod(0o644)
    with pytest.raises(ValueError, match="chmod 600"):
        entries.read(file)


@asyncio_test
async def test_a_suite_posts_refusals_and_alerts(tmp_path: Path) -> None:
    file = tmp_path / "webhooks.json"
    async with receiving() as (receiver, port):
        file.write_text(json.dumps({"ops": {"url": f"http://127.0.0.1:{port}/hook", "secret": SECRET}}))
        file.chmod(0o600)
        with running(tmp_path / "suite", {"a": QUEUE}, options=("--without", "mqtt", "--webhooks", str(file))) as suite:
            (suite.config / "users.json").write_text(json.dumps({"root": user(allow("view", on="#"))}))
            await asyncio.to_thread(suite.up)
            await asyncio.to_thread(_wrong_login, suite)

            def refused() -> bool:
                return any(each.body["data"].get("user") == "root" for each in receiver.got)

            await receiver.until(refused)
            os.kill(suite.component("broker")["pid"], signal.SIGKILL)
            await receiver.until(lambda: any("component." in each.body["type"] for each in receiver.got))
            before = [each.id for each in receiver.got]
            os.kill(suite.component("console")["pid"], signal.SIGTERM)
            await asyncio.to_thread(suite.wait_ready)
            await asyncio.to_thread(wait_for, lambda: _wrong_login(suite))
            await receiver.until(lambda: len([e for e in receiver.got if e.body["data"].get("user") == "root"]) == 2)
            twice = len(receiver.got) - len({each.id for each in receiver.got})
            assert twice <= 1, "only what was under way when the console ended comes twice, with its id"
            assert len(receiver.got) > len(before)
            assert await asyncio.to_thread(suite.down) == 0


def _wrong_login(suite: Suite) -> bool:
    try:
        with Client(suite) as client:
            return client("POST", "login", {"user": "root", "password": "guessed-by-me"}).status == 401
    except OSError:
        return False
