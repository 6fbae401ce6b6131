"""Refusals of clients: lines of the log, events of the live state, and a metric. No clock, no sockets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from enmasse.identity.login import Certified
from enmasse.identity.principal import Principal
from enmasse.logs import log
from enmasse.logs.audit import INTERVAL, MAX_KEYS, RepeatedEvents
from enmasse.metrics import counter
from enmasse.model.names import DEFAULT_SPACE

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class Refusal(NamedTuple):
    """Something that a client was refused. `what`: connect, send, receive, message, publish, subscribe, session, will,
    manage, or close for a connection or link that was ended. `peer`: its host; `client`: its container-id or client
    identifier; `reason`: a sentence, of which only the numbers may differ among refusals of a kind; `space`: the
    address space of the client, or the one that it has asked for. `proved` False: the user was named in a login that
    failed."""

    what: str
    peer: str
    user: str
    client: str
    address: str
    condition: str
    reason: str
    space: str = DEFAULT_SPACE
    proved: bool = True


class _Newest(NamedTuple):
    """The newest refusal of a kind, as far as it may differ from others. `peer`: host:port; `names`: as of `note`."""

    peer: str
    reason: str
    names: list[str]


MOST, MOST_OF_A_PEER = 200, 20
"""Refusals of which a first line is written in a minute, in all and of one peer."""
MAX_TEXT = 200
"""Characters of a text that a client states."""
MAX_CONDITIONS = 100
MOST_FAILED = 200
"""Failed logins between two ticks whose events name the user; those of the others do not."""
MAX_NAMES = 2000
"""Characters of the names of what was refused; EVERYTHING stands for longer ones."""
EVERYTHING = "#"
OMITTED = "refusals without a line of their own: too many different ones within a minute, or of one peer"
"""Description of the event that counts them."""
OPERATOR = "an operator"
"""Name of the operator, if it is not stated."""
_CONDITION = re.compile(r"[a-z0-9:._ -]{1,80}", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")


class Refusals:
    """Refusals of clients: a line at level info for the first of its kind, and another one a minute with the number of
    those since. `counts`: all of them, by (what, condition). `seen` gets what was written, as an event of the live
    state. `now`: a clock in seconds."""

    def __init__(self, now: Callable[[], float], seen: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.seen = seen
        self._now = now
        self._repeats: RepeatedEvents[Refusal] = RepeatedEvents(now)
        self._newest: dict[Refusal, _Newest] = {}
        """Kinds that have a line, each with its newest refusal."""
        self._since = self._next = now()
        self._written: Counter[str] = Counter()
        self._omitted = 0
        self.tried: Callable[[str, str | None], Principal | None] | None = None
        """Returns the user that a client has named, and None if there is no such user (`UserDirectory.tried`)."""
        self._failed: list[tuple[str, str, dict[str, Any]]] = []
        """Name, space, and facts of refusals of clients that have not proved who they are."""

    def note_failed(
        self,
        what: str,
        stated: str,
        *,
        certificate: Certified | None = None,
        space: str = DEFAULT_SPACE,
        **facts: Any,
    ) -> None:
        """Note the refusal of a client that has not logged in. `stated`: the user that it has named. It is looked up
        with the next tick: the time of the answer must not tell whether there is one. A name that no user has may be a
        password: it is not repeated, and the user is empty. `certificate`: its own, whose user is no secret, and is
        noted whether there is one or not. `facts`: as of `note`."""
        if certificate is not None and certificate.user and stated in ("", certificate.user):
            self.note(what, space=space, user=Principal(certificate.user, space=space).full_name, **facts)
        elif stated and len(self._failed) < MOST_FAILED:
            self._failed.append((stated, space, {"what": what, **facts}))
        else:
            self.note(what, space=space, **facts)

    def _look_up(self) -> None:
        failed, self._failed = self._failed, []
        for stated, space, facts in failed:
            who = None if self.tried is None else self.tried(stated, None if space == DEFAULT_SPACE else space)
            user, space = ("", space) if who is None else (who.full_name, who.space)
            self.note(**facts, user=user, space=space, proved=False)

    def note(
        self,
        what: str,
        *,
        condition: str,
        reason: str = "",
        peer: str = "",
        user: str = "",
        client: str = "",
        address: str = "",
        names: Sequence[str] = (),
        space: str = DEFAULT_SPACE,
        proved: bool = True,
    ) -> None:
        """Count a refusal, and write a line if it is time for one. `peer`: host:port; `condition` a condition of AMQP
        or the name of a reason code of MQTT; `reason` a sentence. `address`: as the client stated it, an MQTT topic or
        filter too; `names`: its names on AMQP, of which permissions are asked."""
        known = condition if _CONDITION.fullmatch(condition) else "other"
        if (what, known) not in self.counts and len(self.counts) >= MAX_CONDITIONS:
            known = "other"
        self.counts[what, known] += 1
        host = peer.rpartition(":")[0] or peer
        refusal = Refusal(
            what, host, user[:MAX_TEXT], client[:MAX_TEXT], address[:MAX_TEXT], condition[:MAX_TEXT],
            _NUMBER.sub("N", reason[:MAX_TEXT]), space, proved,
        )  # fmt: skip
        everything = sum(map(len, names)) > MAX_NAMES
        newest = _Newest(peer[:MAX_TEXT], reason[:MAX_TEXT], [EVERYTHING] if everything else list(names))
        count = self._repeats.count(refusal)
        if not count:
            if refusal in self._newest:
                self._newest[refusal] = newest
            return
        now = self._now()
        if now - self._since >= INTERVAL:
            self._window(now)
        if self._written.total() >= MOST or self._written[host or refusal.client] >= MOST_OF_A_PEER:
            self._omitted += count
            return
        self._written[host or refusal.client] += 1
        self._newest[refusal] = newest
        self._write(refusal, count)

    def closed(self, by: str, *, peer: str, user: str, client: str, space: str = DEFAULT_SPACE) -> None:
        """Note that an operator has had the connection of a client closed. `by`: its name, or what it is; `peer`:
        host:port."""
        facts = {"peer": peer, "user": user, "client": client, "by": by}
        log.get().info("client.closed", **facts, space=space)
        if self.seen is not None:
            event = {"id": "client.closed", **facts, "reason": f"closed by {by}", "names": [EVERYTHING]}
            self.seen(event if space == DEFAULT_SPACE else {**event, "space": space})

    def tick(self) -> None:
        """Write the lines that are due; called about once a second."""
        self._look_up()
        now = self._now()
        if now >= self._next:
            self._next = now + INTERVAL / 6
            self.write_repeated()
            if now - self._since >= INTERVAL:
                self._window(now)

    def write_repeated(self) -> None:
        """Write how many there were since the last line of each kind, without those of which there was none."""
        for refusal, count in self._repeats.due():
            if refusal in self._newest:
                self._write(refusal, count)
            else:
                self._omitted += count

    def _window(self, now: float) -> None:
        self._since = now
        self._written.clear()
        if len(self._newest) > MAX_KEYS:
            self._newest.clear()
        if self._omitted:
            log.get().info("client.refusals.omitted", count=self._omitted)
            if self.seen is not None:
                self.seen({"id": "client.refusals.omitted", "reason": OMITTED, "count": self._omitted})
            self._omitted = 0

    def _write(self, refusal: Refusal, count: int) -> None:
        newest = self._newest[refusal]
        facts: dict[str, Any] = {**refusal._asdict(), "peer": newest.peer, "reason": newest.reason, "count": count}
        if refusal.proved:
            del facts["proved"]
        log.get().info("client.refused", **facts)
        if refusal.space == DEFAULT_SPACE:
            del facts["space"]
        if self.seen is not None:
            self.seen({"id": "client.refused", **facts, "names": newest.names})

    def families(self) -> Iterator[Metric]:
        """Yield the metric."""
        yield counter(
            "enmasse_refusals_total",
            "Refusals of clients, by what was refused and why.",
            [({"what": what, "condition": condition}, n) for (what, condition), n in sorted(self.counts.items())],
        )
