"""Election of a leader among processes by a Lease (coordination.k8s.io/v1).

Clocks of different machines are not compared: a Lease has expired if it was seen unchanged for its whole duration by
the local monotonic clock. The holder stops earlier, because its time counts from before it sent its last renewal. A
process that cannot renew ends at once, also after it was stopped (SIGSTOP, a frozen machine): `Leadership.guard` runs
in each turn of the event loop and before each change by the API, and prevents any change after the end.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from enmasse.kubernetes.api_server import LEASE, Api, ApiError, Object
from enmasse.logs import log

DURATION = 15
"""Seconds after which a Lease that was not renewed may be taken."""
DEADLINE = 10.0
"""Seconds since its last renewal after which the holder ends."""
RENEW, RETRY = 3.0, 1.0
"""Seconds between renewals, and between reads by an instance that stands by."""
RELEASED = 1
"""Duration in seconds of a released Lease: an instance that stands by takes it at once."""
LOST = 3
"""The exit status of a process that has lost its Lease."""


def now() -> float:
    """Return seconds by a clock that includes the time the machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Record:
    """Observations of a Lease by one process. Pure: `Leadership` passes the time and makes the requests."""

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._seen: tuple[object, ...] | None = None
        self._since = 0.0

    def free(self, lease: Object | None, at: float) -> bool:
        """Return True if this process may take the Lease that was read at the time `at`."""
        if lease is None:
            return True
        spec = lease.get("spec") or {}
        seen = (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))
        if seen != self._seen:
            self._seen, self._since = seen, at
        if not spec.get("holderIdentity") or spec["holderIdentity"] == self._instance:
            return True
        duration = spec.get("leaseDurationSeconds")
        return at - self._since >= (duration if isinstance(duration, int) and duration > 0 else DURATION)

    def taken(self, lease: Object | None, name: str) -> Object:
        """Return the Lease as this process takes or renews it."""
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: dict[str, Any] = dict((lease or {}).get("spec") or {})
        if spec.get("holderIdentity") != self._instance:
            spec["acquireTime"] = stamp
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + (1 if lease is not None else 0)
        spec |= {"holderIdentity": self._instance, "renewTime": stamp, "leaseDurationSeconds": DURATION}
        metadata = (lease or {}).get("metadata") or {"name": name}
        return {"apiVersion": LEASE.version, "kind": LEASE.name, "metadata": metadata, "spec": spec}


class Leadership:
    """The Lease `name` for this process, called `instance`: no other process of it may have that name.

    `api` is used for nothing else, so that renewals do not wait for other requests.
    """

    def __init__(self, api: Api, name: str, instance: str, labels: dict[str, str] | None = None) -> None:
        self.holder = ""
        """Instance that leads, as last read; empty if unknown."""
        self.problem = ""
        """Reason why the Lease cannot be read; empty if it can."""
        self._api = api
        self._name = name
        self._instance = instance
        self._labels = labels or {}
        self._record = Record(instance)
        self._until: float | None = None
        self._lease: Object | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._log = log.get(lease=name)

    async def lead(self, stop: asyncio.Event, changed: Callable[[], None] = lambda: None) -> bool:
        """Wait until this process leads; return False if `stop` was set first.

        `changed()` is called when holder or problem have changed.
        """
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def notify(what: Callable[[], None]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(what)

        self._thread = threading.Thread(
            target=self._run, args=(lambda: notify(done.set), lambda: notify(changed)), name="lease", daemon=True
        )
        self._thread.start()
        waiting = [asyncio.ensure_future(done.wait()), asyncio.ensure_future(stop.wait())]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        return self._until is not None

    def guard(self) -> None:
        """End the process if it led and its time has expired."""
        until = self._until
        if until is not None and now() >= until:
            self._end("it could not be renewed in time")

    async def release(self) -> None:
        """Release the Lease, after the last change that it covers. Takes one request at most."""
        self._stop.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    # in the thread

    def _run(self, leads: Callable[[], None], changed: Callable[[], None]) -> None:
        while not self._stop.is_set():
            if self._take(changed):
                leads()
                self._keep()
                return
            self._stop.wait(RETRY)

    def _take(self, changed: Callable[[], None]) -> bool:
        before = self.holder, self.problem
        try:
            lease, began = self._api.get(LEASE, self._name), now()
            self.holder, self.problem = str(((lease or {}).get("spec") or {}).get("holderIdentity") or ""), ""
            if self._record.free(lease, began) and not self._stop.is_set():
                self._write(lease, began)
                self.holder = self._instance
                self._log.info("lease.acquired", instance=self._instance)
                return True
        except ApiError as error:
            if error.status != 409:  # another instance took it first
                self.problem = str(error)
        if (self.holder, self.problem) != before:
            self._log.info("lease.awaited", holder=self.holder, reason=self.problem)
            changed()
        return False

    def _write(self, lease: Object | None, began: float) -> None:
        body = self._record.taken(lease, self._name)
        if lease is None:
            body["metadata"]["labels"] = self._labels
            self._lease = self._api.create(LEASE, body)
        else:
            self._lease = self._api.replace(LEASE, body)
        self._until = began + DEADLINE

    def _keep(self) -> None:
        wait = RENEW
        while not self._stop.wait(min(wait, self._left())):
            self.guard()
            began = now()
            try:
                self._write(self._lease, began)
                wait = RENEW
            except ApiError as error:
                wait = RETRY
                if error.status == 409:
                    self._read_again()
                elif error.status == 404:
                    self._lease = None  # deleted: the instance that creates it leads
                self._log.warning("lease.renewal.failed", reason=str(error))
        self._give_back()

    def _left(self) -> float:
        return max(0.0, (self._until or 0.0) - now())

    def _read_again(self) -> None:
        """Read the Lease after a conflict; end this process if another instance has taken it."""
        try:
            self._lease = self._api.get(LEASE, self._name)
        except ApiError:
            return
        holder = ((self._lease or {}).get("spec") or {}).get("holderIdentity")
        if self._lease is not None and holder != self._instance:
            self._end(f"its holder is now {holder or 'none'}")

    def _give_back(self) -> None:
        lease = self._lease
        if lease is None:
            return
        spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": RELEASED}
        try:
            self._api.replace(LEASE, {**lease, "spec": spec})
        except ApiError as error:
            self._log.warning("lease.release.failed", reason=str(error))
        self._until = None

    def _end(self, reason: str) -> None:
        """End without clean-up, because another instance may already lead."""
        log.say(f"the lease {self._name} is lost: {reason}; this process ends at once")
        os._exit(LOST)
