"""Webhooks: what each receiver gets, attempts, and the file with what waits."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import aiohttp
import msgspec

from enmasse.http.webhooks import Webhook
from enmasse.logs import log
from enmasse.metrics import counter, gauge
from enmasse.network.backoff import WEBHOOK, Backoff, Waits
from enmasse.process import runner
from enmasse.storage.decoding import decode_any
from enmasse.storage.disk_errors import disk_error
from enmasse.storage.files import write_text
from enmasse.text import whole_number
from services.console.following.process_events import NewEvent
from services.console.webhooks.alerts import ALERTS
from services.console.webhooks.waiting import SignedMessage, WaitingMessages, WebhookState

if TYPE_CHECKING:
    from prometheus_client.core import Metric

SECONDS = 10.0
"""For an answer."""
SAVED = 1.0
"""Seconds between two looks whether something is to be saved."""
TOLD = 60.0
"""Seconds between two lines about dropped messages."""
REFUSALS = 5
"""Attempts after which a message is put aside that a receiver refuses for good."""
LATEST = 3600.0
"""Seconds that a receiver may have us wait at most (Retry-After)."""
GONE = 410
_LATER = frozenset({408, 425, 429})
"""Statuses 4xx by which a receiver does not refuse the message itself."""


class AttemptOutcome(NamedTuple):
    """Outcome of an attempt. `error`: why it has failed, empty: the message is taken; `status`: of the answer, 0: none;
    `after`: seconds that the receiver asks us to wait."""

    error: str
    status: int = 0
    after: float = 0.0

    @property
    def refused(self) -> bool:
        """Whether the receiver will not take this message later."""
        return 400 <= self.status < 500 and self.status not in _LATER


class Webhooks:
    """Posts events to receivers, each in its own time. `file`: where what waits is saved; None: nowhere."""

    def __init__(self, webhooks: dict[str, Webhook], file: Path | None, again: Waits = WEBHOOK) -> None:
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
        alert = event.event.kind in ALERTS
        for name, waiting in self._waiting.items():
            if waiting.take(event, alert=alert):
                self._wake[name].set()

    def start(self) -> None:
        """Begin to send."""
        for name in self._waiting:
            self._tasks.append(runner.spawn(self._send_all(name), f"webhook {name}"))
        self._tasks.append(runner.spawn(self._save_all(), "state of webhooks"))

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
        refused = [({"webhook": name}, each.refused_in_all) for name, each in self._waiting.items()]
        yield counter("enmasse_webhook_refused_total", "Messages put aside: the receiver refuses them.", refused)
        yield counter("enmasse_webhook_dropped_total", "Messages dropped because too many waited.", dropped)

    async def _send_all(self, name: str) -> None:
        waiting, wake, host = self._waiting[name], self._wake[name], self._waiting[name].webhook.host
        backoff, failing, refusals = Backoff(self._again), "", Counter[str]()
        timeout, jar = aiohttp.ClientTimeout(total=SECONDS), aiohttp.DummyCookieJar()
        self._tell_drops(name, waiting)
        async with aiohttp.ClientSession(timeout=timeout, cookie_jar=jar) as client:
            while True:
                wake.clear()
                message = waiting.first()
                if message is None:
                    await wake.wait()
                    continue
                waiting.sending = message
                found = await self._attempt(client, waiting.webhook, message)
                waiting.sending = None
                self._attempts[name, "failed" if found.error else "delivered"] += 1
                self._tell_change(name, failing, found.error)
                failing = found.error
                self._tell_drops(name, waiting)
                if not found.error:
                    waiting.sent(message)
                    backoff.reset()
                    continue
                if found.status == GONE:
                    log.get().error("console.webhook.gone", webhook=name, host=host)
                    return
                refusals[message.id] += found.refused
                if refusals[message.id] >= REFUSALS:
                    refusals.clear()
                    waiting.put_aside(message)
                    log.get().warning("console.webhook.refused", webhook=name, host=host, error=found.error)
                    continue  # the next one at once; waits are short again when one is taken
                await asyncio.sleep(max(backoff.wait(), min(found.after, LATEST)))

    def _tell_change(self, name: str, before: str, error: str) -> None:
        if before and not error:
            log.get().info("console.webhook.recovered", webhook=name)
        if error and error != before:
            host = self._waiting[name].webhook.host
            log.get().warning("console.webhook.failed", webhook=name, host=host, error=error)

    async def _attempt(self, client: aiohttp.ClientSession, webhook: Webhook, message: SignedMessage) -> AttemptOutcome:
        """Post a message."""
        body, now = message.body.encode(), int(time.time())
        headers = {
            "Content-Type": "application/json", "User-Agent": "EnMasse", "webhook-id": message.id,
            "webhook-timestamp": str(now), "webhook-signature": webhook.signature(message.id, now, body),
        }  # fmt: skip
        try:
            async with client.post(webhook.url, data=body, headers=headers, allow_redirects=False) as answer:
                status = answer.status
                if 300 <= status < 400:
                    return AttemptOutcome(
                        f"it redirects (status {status}), which is not followed: name the right URL", status
                    )
                if 200 <= status < 300:
                    return AttemptOutcome("", status)
                after = _seconds(answer.headers.get("Retry-After", "")) if status in (429, 503) else 0.0
                return AttemptOutcome(f"status {status}", status, after)
        except TimeoutError:
            return AttemptOutcome(f"no answer within {SECONDS:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return AttemptOutcome(_reason(error))

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
            await asyncio.to_thread(_write, self._file, state)
        except OSError as error:
            for each in self._waiting.values():
                each.changed = True
            log.get().warning("console.webhook.not-saved", file=str(self._file), error=disk_error(error))


def _reason(error: Exception) -> str:
    """Return why there is no answer, without the URL, whose path may have a secret."""
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the answer is no HTTP: {error.message[:200]}"
    named = isinstance(error, (aiohttp.ClientConnectionError, OSError))  # of host and port
    return (str(error) if named else "") or type(error).__name__


def _seconds(retry_after: str) -> float:
    """Return the seconds of a header Retry-After (RFC 9110, 10.2.3); 0 without a right one."""
    if (seconds := whole_number(retry_after)) is not None:
        return float(seconds)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


def _saved(file: Path | None) -> dict[str, object]:
    with contextlib.suppress(OSError, ValueError):
        found = None if file is None else decode_any(file.read_bytes())
        return found if isinstance(found, dict) else {}
    return {}


def _write(file: Path, state: dict[str, WebhookState]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, msgspec.json.encode(state).decode(), mode=0o600)
