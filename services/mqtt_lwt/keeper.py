"""Applies changes of wills: each is entered in the book at once, stored, and answered when it is durable."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from enmasse.clock import Timer
from enmasse.control.errors import INTERNAL_ERROR, RESOURCE_LIMIT, UNAUTHORIZED_ACCESS, ControlError
from enmasse.control.link import ControlSender
from enmasse.identity import senders
from enmasse.identity.principal import named
from enmasse.identity.space_plans import EndingSpaces, SpacePlans
from enmasse.logs import log
from enmasse.network.deadline import Deadline, TimerClock
from enmasse.stores import StoreError
from services.mqtt_lwt import will_list
from services.mqtt_lwt.records import Done, Records
from services.mqtt_lwt.requests import Request, publication, retains
from services.mqtt_lwt.will_publisher import WillPublisher
from services.mqtt_lwt.wills import Link, State, Turned, Will, WillBook

MAX_WILLS = 500_000
"""Largest number of wills. Without its message a will takes half a KiB of memory. A user has as many as there is still
room for, at most half of all, so that none keeps the wills of others out; so with the bytes."""
MAX_BYTES = 2 * 1024 * 1024 * 1024
"""Largest sum of all messages in the store, in bytes."""
AT_ONCE = 500
"""Number of wills whose time has ended that are handled in one portion."""

MAX_UNDER_WAY = 64 * 1024 * 1024
"""Largest sum of wills that are being stored, in bytes."""

RETURNING = 2.0
"""Seconds that a client which is back waits for its due will, if that is to be retained, before it may publish."""
MOST_RETURNING = 32
"""Number of clients that wait so at a time: of the credit of a link they leave something to others."""

Answer = Callable[[], None]


class _Returning:
    """A request of a client that is back, and ids of wills for which its answer waits."""

    __slots__ = ("answer", "timer", "wills")

    def __init__(self, answer: Answer, wills: set[str]) -> None:
        self.answer = answer
        self.wills = wills
        self.timer: Timer | None = None


class Keeper:
    """The wills between a reading of the store and its failure, which is reported through `failed`: after that the book
    may differ from the store, and the store is read again.
    """

    def __init__(
        self,
        book: WillBook,
        records: Records,
        publisher: WillPublisher,
        failed: Callable[[Exception], None],
        clock: TimerClock,
        plans: SpacePlans,
        ending: EndingSpaces,
    ) -> None:
        self.book = book
        self._records = records
        self._publisher = publisher
        self._failed = failed
        self._clock = clock
        self._plans = plans
        self._ending = ending
        self._purged: Mapping[str, str] = {}
        """Removed address space of which no will is left, but for those that are due → id of its removal."""
        self._timer: Timer | None = None
        self._life = secrets.token_hex(8)
        self._number = 0
        self._under_way = 0
        self._returning: set[_Returning] = set()
        book.on_removed = self._removed

    def close(self) -> None:
        """Stop the timers: no will becomes due any longer."""
        for timer in (self._timer, *(each.timer for each in self._returning)):
            if timer is not None:
                timer.cancel()

    # requests and ends of links

    def request(self, request: Request, link: Link, answer: Answer) -> None:
        """Carry out a link's request; `answer` is called when it is durable.

        Raises ControlError if the request is refused. After an unexpected error the book may differ from the store, so
        it is read again.
        """
        try:
            self._request(request, link, answer)
        except ControlError:
            raise
        except Exception as error:
            self._failed(error)
            raise ControlError(INTERNAL_ERROR, "a fault of the service, which is in its log") from error

    def _request(self, request: Request, link: Link, answer: Answer) -> None:
        if request.operation == "will":
            if self.book.is_late(request.key, request.epoch):
                answer()
                return
            done = self._put(request, link)
            answer = partial(self._returned, request.key, answer)
        elif request.operation == "will-clear":
            will = self.book.clear(request.key, link, request.epoch)
            done = self._records.remove([] if will is None else [will])
            answer = partial(self._returned, request.key, answer)
        elif request.operation == "client-moved":
            self.book.moved(request.key, link, self._clock.time(), request.epoch)
            self._set_timer()
            done = self._records.remove([])
        elif request.operation == "session-ended":
            done = self._turned(self.book.session_ended(request.key, link, self._clock.time(), request.epoch))
        elif request.operation == "session-deleted":
            done = self._turned(self.book.session_deleted(request.key, self._clock.time(), request.epoch))
        else:
            lost = self.book.lose(request.key, link, self._clock.time(), request.delay, request.epoch)
            done = self._turned(lost)
        self._then(done, answer)

    def _returned(self, key: str, answer: Answer) -> None:
        """Answer a client that is back once its due wills are retained: what it publishes comes after them. Those that
        cannot be published in time are not retained."""
        wills = self.book.to_be_retained(key)
        if not wills:
            answer()
            return
        waiting = _Returning(answer, {will.id for will in wills})
        self._returning.add(waiting)
        if len(self._returning) > MOST_RETURNING:
            self._supersede(waiting)
        else:
            at = self._clock.time() + RETURNING
            waiting.timer = self._clock.call_at(at, partial(self._supersede, waiting))

    def _removed(self, will: Will) -> None:
        for waiting in [each for each in self._returning if will.id in each.wills]:
            waiting.wills.discard(will.id)
            if not waiting.wills:
                self._returning.discard(waiting)
                if waiting.timer is not None:
                    waiting.timer.cancel()
                waiting.answer()

    def _supersede(self, waiting: _Returning) -> None:
        self._returning.discard(waiting)
        wills = [will for id in waiting.wills if (will := self.book.get(id)) is not None]
        for will in wills:
            will.superseded = True
        self._then(self._records.superseded(wills), waiting.answer)

    def detached(self, link: Link) -> None:
        """Handle a normal detach: the link's clients ended normally."""
        self._then(self._records.remove(self.book.detached(link)))

    def failed(self, link: Link) -> None:
        """Handle a detach with an error from the client."""
        self._then(self._turned(self.book.failed(link, self._clock.time())))

    def lost(self, link: Link) -> None:
        """Handle the loss of a link: the state of its clients is unknown."""
        self.book.lost(link, self._clock.time())
        self._set_timer()

    def list_to(self, link: ControlSender) -> None:
        """Send the wills to an operator."""
        will_list.offer(link, self.book, self._clock.time())

    # removed address spaces

    def end_spaces(self) -> None:
        """Remove the wills of removed address spaces. Those that are due no address takes any longer."""
        ending = dict(self._ending.now)
        if not ending:
            return
        wills = [will for will in self.book if will.author.space in ending and will.state is not State.DUE]
        for will in wills:
            self.book.remove(will)
        for space, count in Counter(will.author.space for will in wills).items():
            log.get(space=space).info("mqtt-lwt.space.removed", wills=count)
        self._then(self._records.remove(wills), partial(self._purge, ending))

    def _purge(self, ending: Mapping[str, str]) -> None:
        self._purged = ending

    def ended(self) -> dict[str, str]:
        """Return the removed address spaces of which no will is left, with the ids of their removals."""
        left, now = self.book.number, self._ending.now
        return {name: id for name, id in self._purged.items() if now.get(name) == id and not left.of_space(name)}

    # reachability of clients

    def suspend(self) -> None:
        """Record that clients cannot reach the service."""
        self.book.suspend()
        self._set_timer()

    def resume(self) -> None:
        """Record that clients can reach the service."""
        self.book.resume(self._clock.time())
        self._set_timer()

    def _put(self, request: Request, link: Link) -> Done:
        book = self.book
        if len(book) >= MAX_WILLS and book.current(request.key) is None:
            raise ControlError(RESOURCE_LIMIT, f"there are {len(book)} wills; there may be {MAX_WILLS}")
        if book.bytes.used >= MAX_BYTES:
            text = f"the messages of all wills have {book.bytes.used} bytes; {MAX_BYTES} may be"
            raise ControlError(RESOURCE_LIMIT, text)
        if self._ending.has(request.author.space):
            raise ControlError(UNAUTHORIZED_ACCESS, "the address space of the client was removed")
        user = request.author.full_name
        if book.number.is_full(user, MAX_WILLS) and book.current(request.key) is None:
            text = f"the user has {book.number.of(user)} wills: as many as there is room for of all others"
            raise ControlError(RESOURCE_LIMIT, text)
        space = request.author.space
        reason = self._plans.full(space, self._plans.limits(space).wills, book.number.of_space(space), "wills")
        if reason and book.current(request.key) is None:
            raise ControlError(RESOURCE_LIMIT, reason)
        if book.bytes.is_full(user, MAX_BYTES):
            text = f"the user's wills have {book.bytes.of(user)} bytes: others need the room that is left"
            raise ControlError(RESOURCE_LIMIT, text)
        if self._under_way >= MAX_UNDER_WAY:
            raise ControlError(RESOURCE_LIMIT, "too much is being stored at this moment; try again")
        self._number += 1
        id = f"{self._life}-{self._number}"
        message = publication(request, senders.new_id(named(request.author.full_name)))
        size = len(message)
        retain = retains(message)
        will = Will(
            id, request.key, request.to, request.qos, request.delay or 0, size, request.author,
            retain=retain, epoch=request.epoch, topic=request.topic,
        )  # fmt: skip
        done = self._records.put(will, message, book.put(will, link))
        self._under_way += size
        done.add_done_callback(lambda _: self._left(size))
        return done

    def _left(self, size: int) -> None:
        self._under_way -= size

    def _turned(self, turned: Turned) -> Done:
        done = self._records.turned(turned, self._clock.time())
        if turned.delayed:
            self._set_timer()
        if turned.due:
            self._then(done, partial(self._publisher.add, turned.due))
        return done

    def _then(self, done: Done, answer: Answer | None = None) -> None:
        done.add_done_callback(partial(self._stored, answer))

    def _stored(self, answer: Answer | None, done: Done) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            if answer is not None:
                answer()
        else:
            self._failed(error if isinstance(error, Exception) else StoreError(repr(error)))

    # time

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (at := self.book.next_time()) is not None:
            self._timer = Deadline(self._clock, at, self._pass_time)

    def _pass_time(self) -> None:
        self._timer = None
        turned = self.book.pass_time(self._clock.time(), AT_ONCE)
        if turned.delayed or turned.due:
            self._then(self._turned(turned))
        self._set_timer()


def due(book: WillBook) -> list[Will]:
    """Return the wills that were due when the store was read."""
    return [will for will in book if will.link is None and will.at is None and book.current(will.key) is not will]
