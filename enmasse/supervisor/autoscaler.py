"""Measures the processes of a kind, and has one come or go as their load needs it."""

from __future__ import annotations

import asyncio
from typing import Final, NoReturn

from enmasse.logs import log
from enmasse.supervisor.autoscale import Autoscale
from enmasse.supervisor.children import os_process
from enmasse.supervisor.children.replicas import Replicas

EVERY: Final = 2.0
"""Seconds between two measurements."""


class Autoscaler:
    """`group` has the bounds; while they are one number nothing is measured."""

    def __init__(self, group: Replicas) -> None:
        self._group = group
        self._bounds = group.bounds
        self._autoscale = Autoscale(group.bounds)
        self._worked: dict[int, float] = {}
        """Process id → processor time of its event loop, until `_at`."""
        self._at = 0.0
        self._reason = ""

    @property
    def kind(self) -> str:
        """Return the kind of the processes."""
        return self._group.kind

    @property
    def sentence(self) -> str:
        """Return the bounds for people, and why there are as many as there are; empty: the number is fixed."""
        if self._group.bounds.fixed:
            return ""
        because = f", because {self._reason}" if self._reason else ""
        return f"by load {self._group.bounds}: {self._group.count} now{because}"

    async def run(self) -> NoReturn:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self.look(loop.time())
            await asyncio.sleep(EVERY)

    def look(self, now: float) -> None:
        """Measure once, and decide."""
        if self._group.bounds != self._bounds:
            self._bounds, self._reason = self._group.bounds, ""
            self._autoscale = Autoscale(self._bounds)
        if self._bounds.fixed:
            return
        children = self._group.children
        pids = [child.pid for child in children if child.pid is not None and child.ready]  # in their order
        before, passed = self._worked, now - self._at
        self._worked, self._at = {pid: os_process.worked(pid) for pid in pids}, now
        if len(pids) < self._group.count or self._group.leaving or not before.keys() >= set(pids) or passed <= 0:
            self._autoscale.forget()
            return
        busy = [(self._worked[pid] - before[pid]) / passed for pid in pids]
        connections = sum(sum(child.counts.values()) for child in children)
        decision = self._autoscale.take(now, busy, connections)
        if decision is None:
            return
        count = len(pids)
        log.get().info(
            "suite.scale.decided", kind=self._group.kind, before=count, count=decision.number, reason=decision.reason,
            busy=round(sum(busy), 2), connections=connections,
        )  # fmt: skip
        self._reason = decision.reason
        self._group.adapt(decision.number)
