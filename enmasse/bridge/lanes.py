"""A lane: messages from clients that leave on one link, the anonymous relay or the link to one address.

What has no credit waits, each client in its own line, and the lines take turns of a few messages; so a client that
sends too much waits for itself. Messages that are lost with the link are sent again, in their order,
before later ones.

Only the address can use up a message's patience: ticks count in which the lane has no credit, and tries that were
given back. A message that is on its way may take as long as it takes, and so may a machine that is busy.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any, Final, NamedTuple

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, Modified, Rejected, Released, Source, Target
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.link import Link, Sender
from enmasse.amqp.messages.scan import find_to
from enmasse.amqp.session import Session as AmqpSession
from enmasse.amqp.termini import SPACE
from enmasse.bridge.message_outcomes import NOT_TAKEN, MessageOutcome
from enmasse.bridge.uplink import LinkUser
from enmasse.model.address_types import Traits
from enmasse.model.names import DEFAULT_SPACE, space_prefix

TICK: Final = 0.1
"""Seconds between two ticks of a lane; more if the machine is busy. Returned messages are sent again at the next."""
PATIENCE: Final = 50
"""Ticks without credit, and tries that were returned, until a message of QoS 1 or 2 is given up."""
STORED_PATIENCE: Final = 300
"""Ticks where a broker takes it, which may have to restart and read its store first. The message is not refused
then: it may be sent again."""
MULTICAST_PATIENCE: Final = 5
"""Ticks until a multicast address without credit is known to have no receivers."""
AT_ONCE: Final = 16
"""Messages of a client that go before it is the turn of the next. What goes together is handled together."""
AT_ONCE_BYTES: Final = 16 * 1024
"""Bytes of a client that go before it is the turn of the next; at least one message goes."""
FEW: Final = 6
"""Outcomes that come together: fewer cost less if each goes by itself."""
MAX_WAITING: Final = 256
"""Messages of one client that wait; at it the client is not read."""
MAX_WAITING_BYTES: Final = 4 << 20
"""Bytes of one client that wait; at it the client is not read."""
MAX_ALL: Final = 64 << 20
"""Bytes of all clients that wait; beyond it whoever adds to them is not read, and QoS 0 is dropped."""


class Publisher:
    """Client that sends messages, as lanes see it: those that wait. `key` is its own name of a message."""

    def __init__(self) -> None:
        self.left = False
        """True once the client has left: it sends its messages of QoS 2 again when it is back."""
        self.waiting = 0
        self.waiting_bytes = 0
        self.held = False
        """True while it is not read."""

    def sent(self, key: Any, qos: int, outcome: MessageOutcome, condition: str, text: str) -> None:
        """Handle the outcome of a message of QoS 1 or 2. `condition`: of AMQP, if it was rejected; `text`: why, for
        people."""

    def accepted(self, entries: Sequence[Entry]) -> None:
        """Handle that messages of QoS 1 or 2 were accepted together: `sent` for each."""
        for entry in entries:
            self.sent(entry.key, entry.qos, MessageOutcome.ACCEPTED, "", "")

    def not_taken(self, to: str, outcome: MessageOutcome, condition: str, text: str) -> None:
        """Note that a message of QoS 1 or 2 to this name on AMQP was refused, or taken by no receiver; `sent` follows.
        It is called for no other outcome."""

    def hold(self) -> None:
        """The client is not read from now on: too much of it waits."""
        self.held = True

    def proceed(self) -> None:
        """The client is read again."""
        self.held = False

    def failed(self, error: Exception) -> None:
        """One of the calls above has raised this. The owner ends its client's connection, and does not raise."""
        raise error


class Entry(NamedTuple):
    """A message on its way. `qos` 0: it is sent settled, 2: its client sends it again when it is back. `since`: the
    tick at which it began to wait; `number`: its place among those of the lane; `tries`: those that failed; `unknown`:
    it may have arrived already."""

    who: Publisher
    key: Any
    qos: int
    payload: bytes
    since: int
    number: int
    tries: int = 0
    unknown: bool = False


class Counters:
    """Outcomes of the messages from clients since the start."""

    def __init__(self) -> None:
        self.outcomes: dict[tuple[MessageOutcome, str], int] = {}
        """MessageOutcome and, of a rejected one, a condition that is known here → messages of QoS 1 and 2."""
        self.waiting_bytes = 0
        """Bytes of the messages that wait, in all lanes."""
        self.dropped = 0
        """Messages of QoS 0 that no receiver took."""
        self.repeated = 0
        """Messages sent again because their outcome was lost, or no receiver took them yet."""


class Lane(LinkUser):
    """`address` None: the anonymous relay. `traits`: those of its addresses; where they broadcast, a message without a
    receiver is no failure. `space`: address space of its messages."""

    def __init__(self, address: str | None, traits: Traits, counters: Counters, space: str = DEFAULT_SPACE) -> None:
        self.address = address
        self._space = space
        self._prefix = space_prefix(space)
        self.traits = traits
        self.link: Sender | None = None
        self.used = 0.0
        """When it was used last, as its owner counts."""
        self._counters = counters
        self._lines: OrderedDict[Publisher, deque[Entry]] = OrderedDict()
        self._resting: dict[Publisher, deque[Entry]] = {}  # lines that begin with a returned message
        self._number = 0
        self._tick = 0
        self._fed = 0  # the last tick at which it had credit, or messages were on their way
        self._asked = 0  # the last tick at which the link was attached, or lost
        self._error: AmqpError | None = None
        self._attaching: Link | None = None
        self.elsewhere: Callable[[bytes], Lane | None] = lambda payload: None
        """Returns the lane that a message has to take, if its address has another type by now."""

    @property
    def _patience(self) -> int:
        return STORED_PATIENCE if self.traits.stored else PATIENCE

    @property
    def waiting(self) -> int:
        """Number of messages that wait."""
        return sum(map(len, self._lines.values())) + sum(map(len, self._resting.values()))

    @property
    def idle(self) -> bool:
        """True if nothing waits and nothing is without an outcome."""
        return not self._lines and not self._resting and (self.link is None or not self.link.unsettled)

    # sending

    def send(self, who: Publisher, key: Any, qos: int, payload: bytes) -> None:
        """Send a message now, or when there is credit. QoS 0 has no outcome."""
        link = self.link
        if link is not None and who not in self._lines and who not in self._resting:
            if qos:
                self._number += 1
                entry = Entry(who, key, qos, payload, self._tick, self._number)
                if link.pass_on(payload, entry):
                    return
                if link.credit > 0:
                    link.send(payload, entry)
                    return
                self._wait((entry,))
                return
            if link.pass_on(payload, None, None, True):
                return
            if link.credit > 0:
                link.send(payload, settled=True)
                return
        if not qos and (self._counters.waiting_bytes >= MAX_ALL or self._without_receiver()):
            self._counters.dropped += 1
            return
        self._number += 1
        self._wait((Entry(who, key, qos, payload, self._tick, self._number),))

    def send_run(self, who: Publisher, keys: Sequence[Any], qos: int, payloads: Sequence[bytes]) -> None:
        """`send` of messages that came together, by their keys."""
        sent = 0
        entries = self._entries(who, keys, qos, payloads) if qos else []
        link = self.link
        if link is not None and who not in self._lines and who not in self._resting:
            sent = link.send_run(payloads, entries if qos else None)
            while sent < len(payloads) and link.credit > 0:  # it needs several frames, or more than one turn
                link.send(payloads[sent], entries[sent] if qos else None, settled=not qos)
                sent += 1
        if sent == len(payloads):
            return
        if qos:
            self._wait(entries[sent:])
        elif self._counters.waiting_bytes >= MAX_ALL or self._without_receiver():
            self._counters.dropped += len(payloads) - sent
        else:
            self._wait(self._entries(who, keys[sent:], qos, payloads[sent:]))

    def _entries(self, who: Publisher, keys: Sequence[Any], qos: int, payloads: Sequence[bytes]) -> list[Entry]:
        """Return the entries of messages that are sent for the first time."""
        numbers = range(self._number + 1, self._number + 1 + len(payloads))
        self._number += len(payloads)
        rest = repeat(0), repeat(False)
        fields = zip(repeat(who), keys, repeat(qos), payloads, repeat(self._tick), numbers, *rest, strict=False)
        return [tuple.__new__(Entry, each) for each in fields]  # a call of Entry would cost twice as much

    def _without_receiver(self) -> bool:
        """Return True if the lane has had no credit for so long that there is no receiver. Credit that was just used
        up does not count: more is on its way."""
        dry = self._tick - max(self._fed, self._asked)
        if dry < MULTICAST_PATIENCE:  # the least: asked for each message that waits
            return False
        return not self._credit() and dry >= (MULTICAST_PATIENCE if self.traits.broadcast else PATIENCE)

    def _credit(self) -> bool:
        return self.link is not None and self.link.granted > 0

    def _wait(self, entries: Sequence[Entry]) -> None:
        """Add messages of one client to its line."""
        who = entries[0].who
        line = self._lines.get(who) or self._resting.get(who)
        if line is None:
            line = self._lines[who] = deque()
        line.extend(entries)
        self._counts(who, len(entries), sum(len(entry.payload) for entry in entries))
        full = self._counters.waiting_bytes >= MAX_ALL
        if not who.held and (full or who.waiting >= MAX_WAITING or who.waiting_bytes >= MAX_WAITING_BYTES):
            who.hold()

    def _again(self, entries: list[Entry], rest: bool) -> None:
        """Back into the lines of their clients, in the order in which they were sent first: later ones may have been
        returned before. `rest`: the lines wait for the next tick.

        QoS 2 of a client that has left goes no further: the client sends it again, behind those before it."""
        entries = [entry for entry in entries if entry.qos < 2 or not entry.who.left]
        self._counters.repeated += len(entries)
        entries = [entry for entry in entries if not self._moved(entry)]
        lines = self._lines
        back: dict[Publisher, list[Entry]] = {}
        for entry in entries:
            back.setdefault(entry.who, []).append(entry._replace(since=self._tick, tries=entry.tries + 1))
            self._counts(entry.who, 1, len(entry.payload))
        for who, mine in back.items():
            line = deque(sorted([*mine, *(self._resting.get(who) or lines.get(who) or ())], key=_place))
            if rest or who in self._resting:
                lines.pop(who, None)
                self._resting[who] = line
            else:
                lines[who] = line

    def _moved(self, entry: Entry) -> bool:
        """Give a message to the lane that it has to take, if that is another one."""
        other = self.elsewhere(entry.payload)
        if other is None or other is self:
            return False
        other._number += 1
        other._wait((entry._replace(since=other._tick, number=other._number),))
        return True

    def reroute(self) -> None:
        """Give what waits to other lanes, as far as its addresses have another type by now."""
        for lines in (self._lines, self._resting):
            for who, line in list(lines.items()):
                waiting = list(line)
                line.clear()  # also for a loop over it that is under way
                for entry in waiting:
                    if self._moved(entry):
                        self._counts(who, -1, -len(entry.payload))
                    else:
                        line.append(entry)
                if not line:
                    del lines[who]

    def withdraw(self, who: Publisher) -> None:
        """Drop the waiting messages of QoS 1 and 2 of a client, without outcomes."""
        for lines in (self._lines, self._resting):
            line = lines.pop(who, None)
            if line is None:
                continue
            kept = [entry for entry in line if not entry.qos]
            for entry in line:
                if entry.qos:
                    self._counts(who, -1, -len(entry.payload))
            line.clear()  # also for a loop over it that is under way
            line.extend(kept)
            if line:
                lines[who] = line

    def _counts(self, who: Publisher, count: int, size: int) -> None:
        who.waiting += count
        who.waiting_bytes += size
        self._counters.waiting_bytes += size

    def _left(self, who: Publisher, count: int, size: int) -> None:
        """Count `count` messages of `size` bytes of a client that no longer wait."""
        self._counts(who, -count, -size)
        if who.held and who.waiting <= MAX_WAITING // 2 and who.waiting_bytes <= MAX_WAITING_BYTES // 2:
            try:
                who.proceed()
            except Exception as error:
                who.failed(error)

    def _pump(self) -> None:
        """A few messages of each line in turn, while there is credit."""
        link, lines = self.link, self._lines
        while lines and link is not None and link.credit > 0:
            who, line = lines.popitem(last=False)
            run, size = _next_of(line)
            first = run[0]
            sent = link.send_run([entry.payload for entry in run], run if first.qos else None)
            if not sent:  # it has credit: it needs several frames
                link.send(first.payload, first if first.qos else None, settled=not first.qos)
                sent = 1
            for _ in range(sent):
                line.popleft()
            if line:
                lines[who] = line
            self._left(who, sent, size if sent == len(run) else sum(len(entry.payload) for entry in run[:sent]))
            link = self.link

    # the link

    def attach(self, session: AmqpSession) -> None:
        """Attach the link, on a new connection or again."""
        self._error = None
        anonymous = self.address is None and self._prefix
        properties = {Symbol(SPACE): self._space} if anonymous else None
        link = session.attach_sender(None, Source(), Target(address=self.address), properties=properties)
        link.context = self
        self._attaching = link
        self._asked = self._tick

    @property
    def attached(self) -> bool:
        """The link is attached, or about to be."""
        return self.link is not None or self._attaching is not None

    def close(self) -> None:
        """Detach the idle link."""
        if self.link is not None:
            self.link.detach()
            self.link = None

    def on_attached(self, link: Link) -> None:
        """As LinkUser."""
        if link is self._attaching and link.remote_target is not None and isinstance(link, Sender):
            self.link, self._attaching = link, None
            self._asked = self._tick

    def on_flow(self, link: Sender) -> None:
        """As LinkUser."""
        if self.link is link:
            if link.granted:
                self._fed = self._tick
            if self._lines:
                self._pump()

    def on_detach(self, link: Link, error: AmqpError | None) -> None:
        """As LinkUser."""
        if link is self.link:
            self.link = None
        elif link is self._attaching:
            self._attaching = None
        else:
            return
        self._asked = self._tick
        self._error = error
        if error is not None and error.condition in _FINAL:
            self._fail_all(error)

    def on_outcomes(self, link: Sender, tokens: list[Entry], state: Any, settled: bool) -> None:
        """As LinkUser. An error of one client ends that client only."""
        if state is ACCEPTED:
            outcomes = self._counters.outcomes
            outcomes[_TAKEN] = outcomes.get(_TAKEN, 0) + len(tokens)
            self._accepted(tokens)
        elif state is None:
            self._again([entry._replace(unknown=True) for entry in tokens], rest=False)
        elif isinstance(state, Rejected):
            self._rejected(tokens, state)
        elif isinstance(state, Modified) and state.undeliverable_here:
            for entry in tokens:
                self._done(entry, MessageOutcome.MODIFIED, "", "no receiver can take this message")
        elif isinstance(state, Released | Modified):
            self._given_back(tokens)
        else:
            for entry in tokens:
                self._done(entry, MessageOutcome.ACCEPTED, "", "")
        if not settled:
            link.settle(tokens)

    def _accepted(self, tokens: list[Entry]) -> None:
        """Tell clients that messages were accepted: those of one client together, unless there are few."""
        if len(tokens) < FEW:
            for who, key, qos, _, _, _, _, _ in tokens:
                try:
                    who.sent(key, qos, MessageOutcome.ACCEPTED, "", "")
                except Exception as error:  # of one client: the lane is for all
                    who.failed(error)
            return
        for who, its in groupby(tokens, _WHO):
            try:
                who.accepted(list(its))
            except Exception as error:
                who.failed(error)

    def _rejected(self, tokens: list[Entry], state: Rejected) -> None:
        condition = "" if state.error is None else str(state.error.condition)
        text = "" if state.error is None else state.error.description or condition
        if condition in _NOT_YET:
            self._error = AmqpError(condition, text)
            self._given_back(tokens)
            return
        for entry in tokens:
            self._done(entry, MessageOutcome.REJECTED, condition, text)

    def _given_back(self, tokens: list[Entry]) -> None:
        if self.traits.broadcast:
            for entry in tokens:
                self._done(entry, MessageOutcome.UNHEARD, "", "")
            return
        self._again(tokens, rest=True)

    def _done(self, entry: Entry, outcome: MessageOutcome, condition: str, text: str) -> None:
        outcomes = self._counters.outcomes
        counted = outcome, condition if condition in _KNOWN else ""
        outcomes[counted] = outcomes.get(counted, 0) + 1
        if self._prefix:
            text = text.replace(self._prefix, "")
        try:
            if outcome in NOT_TAKEN:
                entry.who.not_taken(_to(entry.payload), outcome, condition, text)
            entry.who.sent(entry.key, entry.qos, outcome, condition, text)
        except Exception as error:
            entry.who.failed(error)

    # time

    def tick(self) -> None:
        """Each TICK: messages that waited long enough are given up, returned ones are sent again."""
        self._tick += 1
        link = self.link
        if link is not None and (link.granted or link.unsettled):
            self._fed = self._tick
        for lines in (self._lines, self._resting):
            for who, line in list(lines.items()):
                while line and self._is_expired(line[0]):
                    entry = line.popleft()
                    if not line:
                        del lines[who]
                    self._give_up(entry)
                    self._left(entry.who, 1, len(entry.payload))
        if self._resting:
            self._lines.update(self._resting)
            self._resting = {}
        if self._lines:  # also what another lane gave to this one, which may have credit
            self._pump()

    def _is_expired(self, entry: Entry) -> bool:
        if self._tick - max(entry.since, self._fed) >= self._patience or entry.tries >= self._patience:
            return True
        return self.traits.broadcast and self.link is not None and not entry.unknown and self._without_receiver()

    def _give_up(self, entry: Entry) -> None:
        if not entry.qos:
            self._counters.dropped += 1
        elif self.traits.broadcast and not entry.unknown and self.link is not None:
            self._done(entry, MessageOutcome.UNHEARD, "", "")
        elif entry.unknown:
            self._done(
                entry, MessageOutcome.UNKNOWN, "", "the connection was lost before the outcome of a message was known"
            )
        elif self.traits.stored:
            self._done(entry, MessageOutcome.UNAVAILABLE, "", f"{self._why()}: send it again")
        else:
            self._done(entry, MessageOutcome.RELEASED, "", self._why())

    def _why(self) -> str:
        if self._error is not None:
            return f"{self.address or 'the topic'} takes no messages now: {self._error.description}"
        if self.link is None:
            return "the router is not reached"
        return f"no receiver took a message to {self.address or 'the topic'} for {self._patience * TICK:g} s"

    def _fail_all(self, error: AmqpError) -> None:
        lines = [*self._lines.values(), *self._resting.values()]
        self._lines, self._resting = OrderedDict(), {}
        for line in lines:
            for entry in line:
                if entry.unknown and entry.qos:
                    self._done(entry, MessageOutcome.UNKNOWN, "", error.description)
                elif entry.qos:
                    self._done(entry, MessageOutcome.REJECTED, error.condition, error.description)
                else:
                    self._counters.dropped += 1
                self._left(entry.who, 1, len(entry.payload))


def _next_of(line: deque[Entry]) -> tuple[list[Entry], int]:
    """Return the first messages of a line that go before it is the turn of the next, and their bytes: all with an
    outcome, or none."""
    run: list[Entry] = []
    size = 0
    for entry in line:
        if len(run) == AT_ONCE or size >= AT_ONCE_BYTES or (run and bool(entry.qos) is not bool(run[0].qos)):
            break
        run.append(entry)
        size += len(entry.payload)
    return run, size


def _to(payload: bytes) -> str:
    """Return the `to` of a message; empty if it has none that can be read."""
    try:
        return (find_to(payload) or b"").decode()
    except (AmqpError, UnicodeDecodeError):
        return ""


def _place(entry: Entry) -> int:
    return entry.number


_WHO: Final = itemgetter(0)
_FINAL: Final = frozenset(("amqp:unauthorized-access", "amqp:not-allowed", "amqp:not-implemented"))
_NOT_YET: Final = frozenset(("amqp:not-found", "qd:no-route-to-dest"))
"""The address is configured: the router does not know it yet, or its broker starts."""
_KNOWN: Final = frozenset(
    (
        "amqp:not-found",
        "amqp:unauthorized-access",
        "amqp:not-allowed",
        "amqp:resource-limit-exceeded",
        "amqp:link:message-size-exceeded",
        "amqp:decode-error",
    )
)
"""Conditions that are counted by name: receivers choose theirs freely."""
_TAKEN: Final = (MessageOutcome.ACCEPTED, "")
_LOST: Final = "the connection was lost before the outcome of a message was known"
