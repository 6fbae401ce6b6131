"""Warning events for `kubectl get events` and `kubectl describe`. Sent by a thread, never awaited."""

from __future__ import annotations

import queue
import threading
import time
from datetime import UTC, datetime
from typing import Any

from enmasse.kubernetes.api_server import EVENT, Api, ApiError, Object
from enmasse.logs import log

AGAIN = 600.0
"""Seconds after which an event that still holds is sent again: the API server forgets events after an hour."""
MAX_WAITING, MAX_KNOWN = 200, 5000
MAX_NOTE = 1024
"""Characters of a message, as the API allows them."""


class WarningEvents:
    """Sender of the warnings of one component (`source`) and instance."""

    def __init__(self, api: Api, source: str, instance: str) -> None:
        self._api = api
        self._source = source
        self._instance = instance
        self._sent: dict[tuple[str, str, str], float] = {}
        self._waiting: queue.Queue[Object | None] = queue.Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None
        self._log = log.get()

    def warn(self, about: Object, reason: str, message: str) -> None:
        """Send a Warning about this object; the same one at most every AGAIN seconds."""
        metadata = about["metadata"]
        key = str(metadata.get("uid")), reason, message
        at = time.monotonic()
        if at - self._sent.get(key, -AGAIN) < AGAIN:
            return
        if len(self._sent) >= MAX_KNOWN:
            self._sent.clear()
        self._sent[key] = at
        self._log.warning("kubernetes.object.warned", about=metadata["name"], reason=reason, message=message)
        try:
            self._waiting.put_nowait(self._event(about, reason, message[:MAX_NOTE]))
        except queue.Full:
            del self._sent[key]
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="events", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread that sends events once it has sent those that wait; with a full queue, do nothing: the thread
        is a daemon."""
        self._waiting.put(None) if not self._waiting.full() else None

    def _event(self, about: Object, reason: str, message: str) -> Object:
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata: dict[str, Any] = about["metadata"]
        reference = {key: metadata[key] for key in ("name", "namespace", "uid") if key in metadata}
        return {
            "apiVersion": EVENT.version,
            "kind": EVENT.name,
            "metadata": {"generateName": f"{metadata['name'][:200]}."},
            "involvedObject": {"apiVersion": about.get("apiVersion"), "kind": about.get("kind"), **reference},
            "type": "Warning",
            "reason": reason,
            "message": message,
            "source": {"component": self._source},
            "reportingComponent": self._source,
            "reportingInstance": self._instance[:128],
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }

    def _run(self) -> None:
        while (event := self._waiting.get()) is not None:
            try:
                self._api.create(EVENT, event)
            except ApiError as error:
                self._log.warning("kubernetes.event.not-sent", reason=str(error))
