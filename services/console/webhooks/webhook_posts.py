"""Webhooks: what each receiver gets, attempts, and the file with what waits."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import msgspec

from enmasse.http.webhooks import Webhook
from enmasse.live_state import Row
from enmasse.logs import log
from enmasse.metrics import counter, gauge
from enmasse.network.backoff import Backoff, Waits
from enmasse.process import runner
from enmasse.storage.decoding import decode_any
from enmasse.storage.files import write_text
from services.console.following.process_events import NewEvent, new_event
from services.console.following.supervisor import Supervisor
from services.console.webhooks.alerts import Alerts
from services.console.webhooks.waiting import SignedMessage, WaitingMessages

if TYPE_CHECKING:
    from prometheus_client.core import Metric

SECONDS = 10.0
"""For an answer."""
AGAIN = Waits(1.0, 300.0, jitter=0.25)
"""Between attempts after a failure."""
SAVED = 1.0
"""Seconds between two looks whether something is to be saved."""
TOLD = 60.0
"""Seconds between two lines about dropped messages."""


class Webhooks:
    """Posts events to receivers, each in its own time. `file`: where what waits is saved; None: nowhere."""

    def __init__(self, webhooks: dict[str, Webhook], file: Path | None, again: Waits = AGAIN) -> None:
        self._file = file
        self._again = again
        saved = _saved(file)
        self._waiting = {name: WaitingMessages(each, saved.get(name)) for name, each in webhooks.items()}
        self._wake = {name: asyncio.Event() for name in webhooks}
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._tasks: list[asyncio.Task[None]] = []
        self._told: dict[str, tuple[float, int]] = {}

    def take(self, event: NewEvent) -> None:
        """Note an event for the receivers that want it."""
        for name, waiting in self._waiting.items():
            if waiting.take(event):
                self._wake[name].set()

    def start(self, supervisor: Supervisor | None) -> None:
        """Begin to send. `supervisor`: whose components are watched; None: of a cluster, which watches its pods."""
        for name in self._waiting:
            self._tasks.append(runner.spawn(self._send_all(name), f"webhook {name}"))
        self._tasks.append(runner.spawn(self._save_all(), "state of webhooks"))
        if supervisor is not None:
            alerts = Alerts(self._alert)
            self._tasks.append(runner.spawn(alerts.run(supervisor), "alerts"))

    async def close(self) -> None:
        """End; what waits is saved."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._save()

    def metrics(self) -> Iterable[Metric]:
        """Return the metrics."""
        attempts = [({"webhook": name, "outcome": outcome}, n) for (name, outcome), n in sorted(self._attempts.items())]
        waiting = [({"webhook": name}, len(each)) for name, each in self._waiting.items()]
        dropped = [({"webhook": name}, each.dropped_in_all) for name, each in self._waiting.items()]
        yield counter("enmasse_webhook_attempts_total", "Messages posted by webhooks, by outcome.", attempts)
        yield gauge("enmasse_webhook_waiting", "Messages that wait for a webhook's receiver.", waiting)
        yield counter("enmasse_webhook_dropped_total", "Messages dropped because too many waited.", dropped)

    def _alert(self, component: str, row: Row) -> None:
        self.take(new_event(component, "", row))

    async def _send_all(self, name: str) -> None:
        waiting, wake = self._waiting[name], self._wake[name]
        backoff, failing = Backoff(self._again), ""
        timeout, jar = aiohttp.ClientTimeout(total=SECONDS), aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(timeout=timeout, cookie_jar=jar) as client:
            while True:
                wake.clear()
                message = waiting.first()
                if message is None:
                    await wake.wait()
                    continue
                waiting.sending = True
                error = await self._attempt(client, waiting.webhook, message)
                waiting.sending = False
                self._attempts[name, "failed" if error else "delivered"] += 1
                if not error:
                    waiting.sent(message)
                    backoff.reset()
                if failing and not error:
                    log.get().info("console.webhook.recovered", webhook=name)
                if error and error != failing:
                    log.get().warning("console.webhook.failed", webhook=name, host=waiting.webhook.host, error=error)
                failing = error
                self._tell_drops(name, waiting)
                if error:
                    await asyncio.sleep(backoff.wait())

    async def _attempt(self, client: aiohttp.ClientSession, webhook: Webhook, message: SignedMessage) -> str:
        """Post a message; return why that has failed, empty: the receiver has taken it."""
        body, now = message.body.encode(), int(time.time())
        headers = {
            "Content-Type": "application/json", "User-Agent": "EnMasse", "webhook-id": message.id,
            "webhook-timestamp": str(now), "webhook-signature": webhook.signature(message.id, now, body),
        }  # fmt: skip
        try:
            async with client.post(webhook.url, data=body, headers=headers, allow_redirects=False) as answer:
                if 300 <= answer.status < 400:
                    return f"it redirects (status {answer.status}), which is not followed: name the right URL"
                return "" if 200 <= answer.status < 300 else f"status {answer.status}"
        except TimeoutError:
            return f"no answer within {SECONDS:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return str(error) or type(error).__name__

    def _tell_drops(self, name: str, waiting: WaitingMessages) -> None:
        at, count = self._told.get(name, (0.0, 0))
        if waiting.dropped_in_all > count and time.monotonic() - at >= TOLD:
            log.get().warning("console.webhook.dropped", webhook=name, count=waiting.dropped_in_all - count)
            self._told[name] = time.monotonic(), waiting.dropped_in_all

    async def _save_all(self) -> None:
        while True:
            await asyncio.sleep(SAVED)
            await self._save()

    async def _save(self) -> None:
        if self._file is None or not any(each.changed for each in self._waiting.values()):
            return
        state = {name: each.state() for name, each in self._waiting.items()}
        try:
            await asyncio.to_thread(_write, self._file, msgspec.json.encode(state).decode())
        except OSError as error:
            log.get().warning("console.webhook.not-saved", file=str(self._file), error=error.strerror)


def _saved(file: Path | None) -> dict[str, object]:
    with contextlib.suppress(OSError, ValueError):
        found = None if file is None else decode_any(file.read_bytes())
        return found if isinstance(found, dict) else {}
    return {}


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, text, mode=0o600)
