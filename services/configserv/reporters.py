"""The links over which reporters send their readiness: one for each reporter, the newest one."""

from __future__ import annotations

from enmasse.control import ControlReceiver

MAX_REPORTERS = 64


class ReporterLinks:
    """Reporter (the name of its link) → link."""

    def __init__(self) -> None:
        self._links: dict[str, ControlReceiver] = {}

    def add(self, link: ControlReceiver) -> bool:
        """A link was attached; False: there are too many reporters. Another link of the same name is closed: it belongs
        to a connection that is dying.
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

    def remove(self, link: ControlReceiver) -> bool:
        """It was closed; whether its reporter is gone with it."""
        if not self.is_current(link):
            return False
        del self._links[link.name]
        return True
