"""The links over which reporters send their readiness: one for each reporter, the newest one."""

from __future__ import annotations

from enmasse import log
from enmasse.control import ControlReceiver

MAX_REPORTERS = 64


class ReporterLinks:
    """Reporter (the name of its link, its role) → link, and the instance whose full report is kept."""

    def __init__(self) -> None:
        self._links: dict[str, ControlReceiver] = {}
        self._instances: dict[str, str] = {}

    def add(self, link: ControlReceiver) -> bool:
        """A link was attached; False: there are too many reporters. Another link of the same name is closed at
        once: it is one of a process that has died, or that does not lead any more (docs/contracts.md, "Roles and
        instances").
        """
        before = self._links.get(link.name)
        if before is None and len(self._links) >= MAX_REPORTERS:
            return False
        self._links[link.name] = link
        if before is not None:
            before.close("amqp:link:stolen", "another link of this name was attached")
        return True

    def is_current(self, link: ControlReceiver) -> bool:
        """Whether it is the newest link of its reporter."""
        return self._links.get(link.name) is link

    def received(self, link: ControlReceiver, instance: str, *, full: bool) -> bool:
        """A report has arrived from this instance; False: it changes a report that another instance has sent."""
        leader = self._instances.get(link.name, instance)
        if not full and leader != instance:
            return False
        if leader != instance:
            log.get().info("another instance reports", role=link.name, instance=instance, before=leader)
        self._instances[link.name] = instance
        return True

    def remove(self, link: ControlReceiver) -> bool:
        """It was closed; whether its reporter is gone with it."""
        if not self.is_current(link):
            return False
        del self._links[link.name]
        self._instances.pop(link.name, None)
        return True
