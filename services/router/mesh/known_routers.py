"""Other routers of the mesh: their link states, how new these are, and when they are too old."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

from services.router.mesh.announcements import RemoteAddresses
from services.router.mesh.control_messages import MAX_ROUTERS, Advertisement, LinkStateUpdate

LINK_STATE_SECONDS: Final = 60.0
"""Age of a link state without an advertisement of its router after which it no longer counts."""
RESTART_SECONDS: Final = 3.0
"""Time over which a router states older numbers only, after which it counts as restarted."""
REQUEST_SECONDS: Final = 1.0
MOST_REQUEST_SECONDS: Final = 8.0
"""Time after which a request without an answer is repeated, at first and at most."""
_ABSENT: Final = -1
"""Number of a link state that has not arrived: less than any that is advertised."""


class News(Enum):
    """Meaning of the numbers that a router states. RESTARTED: the router's earlier state is void."""

    OLD = 1
    CURRENT = 2
    RESTARTED = 3


class Requests:
    """Times of requests for one thing. The time between two that are not answered doubles."""

    __slots__ = ("_again", "_pause")

    def __init__(self) -> None:
        self.answered()

    def answered(self) -> None:
        """Allow a request at once."""
        self._again = float("-inf")
        self._pause = REQUEST_SECONDS

    def due(self, now: float) -> bool:
        """Return True if a request shall be made now."""
        if now < self._again:
            return False
        self._again = now + self._pause
        self._pause = min(2 * self._pause, MOST_REQUEST_SECONDS)
        return True


class KnownRouter:
    """Another router. `peers` is its link state as of `ls_seq`; `advertised_ls`, `advertised_mobile`: newest numbers
    that it has advertised. `requests_ls`, `requests_mobile`: requests for them. `passed_on`: the numbers of its
    last advertisement that was passed on, at the time `passed_on_at`; `toward`: the connection by which it arrived."""

    __slots__ = (
        "_older",
        "addresses",
        "advertised_ls",
        "advertised_mobile",
        "heard",
        "id",
        "instance",
        "ls_seq",
        "passed_on",
        "passed_on_at",
        "peers",
        "requests_ls",
        "requests_mobile",
        "toward",
    )

    def __init__(self, router: str, now: float) -> None:
        self.id = router
        self.instance = 0
        self.passed_on = (_ABSENT, _ABSENT, _ABSENT)
        self.passed_on_at = float("-inf")
        self.toward: int | None = None
        self.reset(now)

    def reset(self, now: float) -> None:
        """Forget the state of an earlier start, or an expired one."""
        self.heard = now
        self.ls_seq = _ABSENT
        self.peers: Mapping[str, int] = {}
        self.addresses = RemoteAddresses()
        self.advertised_ls = self.advertised_mobile = 0
        self.requests_ls, self.requests_mobile = Requests(), Requests()
        self._older: tuple[int, float] | None = None

    @property
    def has_links(self) -> bool:
        """Return True if its link state has arrived."""
        return self.ls_seq != _ABSENT

    def started(self, instance: int, now: float) -> bool:
        """Note the start that the router states itself, as a neighbour. Return True if it has restarted."""
        if not instance or instance == self.instance:
            return False
        known, self.instance = self.instance, instance
        if known:
            self.reset(now)
        return bool(known)

    def judge(self, instance: int, ls_seq: int, mobile_seq: int, now: float) -> News:
        """Compare numbers in a message, which may be older than others that arrived, with the known ones. A restart is
        recognised by a later start; by an earlier one (a clock was set back) or lower numbers (it started twice within
        a second) only when the router has stated nothing else for a while."""
        stated = instance or self.instance
        if not self.instance:
            self.instance = stated
        if stated > self.instance:
            return self._restarted(stated, now)
        if stated == self.instance and ls_seq >= self.ls_seq and mobile_seq >= self.addresses.seq:
            self._older = None
            return News.CURRENT
        if self._older is None or self._older[0] != stated:
            self._older = (stated, now)
        elif now - self._older[1] >= RESTART_SECONDS:
            return self._restarted(stated, now)
        return News.OLD

    def _restarted(self, instance: int, now: float) -> News:
        self.instance = instance
        self.reset(now)
        return News.RESTARTED


class KnownRouters:
    """The other routers of the mesh by id, at most MAX_ROUTERS with this one."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._routers: dict[str, KnownRouter] = {}

    def __iter__(self) -> Iterator[KnownRouter]:
        return iter(self._routers.values())

    def __len__(self) -> int:
        return len(self._routers)

    def get(self, router: str) -> KnownRouter | None:
        """Return a router, None if it is unknown."""
        return self._routers.get(router)

    def lacking(self) -> list[KnownRouter]:
        """Return the routers that have advertised more than is known, or whose link state is unknown."""
        return [
            known
            for known in self._routers.values()
            if known.ls_seq < known.advertised_ls or known.addresses.seq < known.advertised_mobile
        ]

    def learn(self, router: str, now: float) -> KnownRouter | None:
        """Return a router, which may be new. Return None if there are too many."""
        known = self._routers.get(router)
        if known is None and router != self._own and len(self._routers) < MAX_ROUTERS - 1:
            known = self._routers[router] = KnownRouter(router, now)
        return known

    def advertised(self, known: KnownRouter, message: Advertisement, now: float) -> News:
        """Note the numbers of an advertisement."""
        news = known.judge(message.instance, message.ls_seq, message.mobile_seq, now)
        if news is not News.OLD:
            known.heard = now
            known.advertised_ls = message.ls_seq
            known.advertised_mobile = message.mobile_seq
        return news

    def link_state(self, known: KnownRouter, message: LinkStateUpdate, now: float) -> News | None:
        """Take a router's link state, and learn of its peers. Return None if it is one that is known."""
        news = known.judge(message.instance, message.ls_seq, known.addresses.seq, now)
        if news is News.OLD or (news is News.CURRENT and message.ls_seq <= known.ls_seq):
            return None
        known.heard = now
        known.requests_ls.answered()
        known.ls_seq = message.ls_seq
        known.peers = message.peers
        for peer in message.peers:
            self.learn(peer, now)
        return news

    def expire(self, neighbours: Mapping[str, int], now: float) -> list[KnownRouter]:
        """Reset routers that have advertised nothing for too long, remove those that no other router has as a peer, and
        return both."""
        before = now - LINK_STATE_SECONDS
        silent = [known for known in self._routers.values() if known.heard < before]
        gone = [known for known in silent if known.has_links or known.addresses.addresses]
        for known in silent:
            known.reset(now)
        if silent:
            listed = {peer for known in self._routers.values() for peer in known.peers}.union(neighbours)
            for known in silent:
                if known.id not in listed:
                    del self._routers[known.id]
        return gone
