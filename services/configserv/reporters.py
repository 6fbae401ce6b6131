"""Links over which a kind of report arrives: the newest one of each reporter."""

from __future__ import annotations

from enmasse.control import ControlReceiver
from enmasse.control.errors import STOLEN
from enmasse.logs import log
from services.configserv.reports import Refused

MAX_REPORTERS = 64


class ReporterLinks:
    """Reporter (the name of its link, its role) → link, and the instance whose full report is kept. `target`: the kind
    of report, for the log.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._links: dict[str, ControlReceiver] = {}
        self._instances: dict[str, str] = {}
        self._reported: dict[str, ControlReceiver] = {}
        """Reporter → the link over which its last full report has come."""

    def add(self, link: ControlReceiver) -> bool:
        """Add a link; return False if there are too many reporters. An older link of the same name is closed at
        once: it is one of a process that has died or has ceased to lead (docs/contracts.md, "Roles and
        instances").
        """
        before = self._links.get(link.name)
        if before is None and len(self._links) >= MAX_REPORTERS:
            return False
        self._links[link.name] = link
        if before is not None:
            before.close(STOLEN, "another link of this name was attached")
        return True

    def has_reported(self, link: ControlReceiver) -> bool:
        """Return whether a full report has come over this link, and it is the newest of its reporter."""
        return self._links.get(link.name) is link and self._reported.get(link.name) is link

    def check(self, link: ControlReceiver, instance: str, *, full: bool) -> None:
        """Admit a report of this instance. Raises Refused if its link is not the newest of its reporter, or if
        it changes a report that another instance has sent.
        """
        if self._links.get(link.name) is not link:
            raise Refused("another link of this name is the reporter's now")
        leader = self._instances.get(link.name, instance)
        if not full and leader != instance:
            raise Refused(f"{instance} has to send a full report first: the one there is is another instance's")
        if leader != instance:
            log.get().info(
                "configserv.role.changed", target=self._target, role=link.name, instance=instance, before=leader
            )
        self._instances[link.name] = instance
        if full:
            self._reported[link.name] = link

    def remove(self, link: ControlReceiver) -> bool:
        """Remove a closed link; return True if it was the newest of its reporter."""
        if self._links.get(link.name) is not link:
            return False
        del self._links[link.name]
        self._reported.pop(link.name, None)
        self._instances.pop(link.name, None)
        return True
