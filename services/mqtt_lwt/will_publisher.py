"""Sends due wills until they are accepted: over one link for each address, as fast as it grants credit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from enmasse.control import ControlConnection, ControlError, ControlSender, Outcome
from enmasse.control.link import MODIFIED, RELEASED
from enmasse.logs import log
from enmasse.model.address_types import Traits
from enmasse.model.names import DEFAULT_SPACE, RELAYS_TO_TOPICS
from enmasse.model.topic_map import TopicMap, TopicMaps, TopicOwner
from enmasse.network.backoff import AGAIN, Backoff
from enmasse.process import runner
from enmasse.stores import StoreError
from services.mqtt_lwt.permits import Permits
from services.mqtt_lwt.records import Done, Records
from services.mqtt_lwt.requests import OF_MQTT
from services.mqtt_lwt.wills import Will, WillBook

WINDOW = 100
"""Largest number of wills under way to an address."""
SKEW = 2.0
"""Seconds after which a will that is not allowed is looked at again: permissions may come here after the gateway."""
READ = 50
"""Number of messages that are read from the store at a time for an address."""
MAX_LANES = 64
"""Number of addresses to which wills are sent at a time; others wait."""
PATIENCE = 5.0
"""Seconds without credit after which an address yields to others; a multicast address then has no receivers."""


class WillPublisher:
    """`published`: wills accepted by their address; `dropped`: wills that no address takes; `retried`: other outcomes.
    `failed` is called when the store fails.
    """

    def __init__(self, book: WillBook, records: Records, permits: Permits, failed: Callable[[Exception], None]) -> None:
        self.published = self.dropped = self.retried = 0
        self.failures = 0
        """Number of unexpected errors; the affected wills are tried again."""
        self._book = book
        self._records = records
        self._permits = permits
        self._failed = failed
        self._topics: TopicMaps | None = None
        self._connection: ControlConnection | None = None
        self._relays = True
        """True if the router's anonymous terminus reaches topics; otherwise each topic has a link of its own."""
        self._unrouted: deque[Will] = deque()
        """Wills that wait for the first snapshots of addresses and permissions."""
        self._doubted: set[str] = set()
        """Ids of wills that were not allowed when they were looked at first."""
        self._lanes: dict[str, _Lane] = {}
        self._room = asyncio.Semaphore(MAX_LANES)

    def add(self, wills: Iterable[Will]) -> None:
        """Add wills that are due and stored as such."""
        self._unrouted.extend(wills)
        self._route()

    def addresses(self, topics: TopicMaps) -> None:
        """Take the current addresses."""
        self._topics = topics
        for lane in self._lanes.values():
            self._unrouted.extend(lane.waiting)
            lane.waiting.clear()
        self._route()

    def permitted(self) -> None:
        """Note that other permissions are in force."""
        self._route()

    def connected(self, connection: ControlConnection) -> None:
        """Publish over this connection, also wills whose publication over an earlier one had no outcome."""
        self._connection = connection
        relays = RELAYS_TO_TOPICS in connection.remote_offered
        if relays != self._relays and self._topics is not None:
            self._relays = relays
            self.addresses(self._topics)
        self._relays = relays
        for lane in self._lanes.values():
            lane.start(connection, self._room)

    def disconnected(self) -> None:
        """Keep due wills until there is a connection again."""
        self._connection = None
        for lane in self._lanes.values():
            lane.stop()

    def _route(self) -> None:
        if self._topics is None or not self._permits.known:
            return
        while self._unrouted:
            will = self._unrouted.popleft()
            topics = self._topics.of(will.author.space)
            topic = will.topic or (will.to if will.key.startswith(OF_MQTT) else "")
            owner = topics.owner(topic) if topic else None
            if owner is not None:
                will.to = owner.to  # another address may have the topic by now
            elif (owner := _owner(topics, will.to)) is None:
                self._drop(will)
                continue
            name, target = self._way(owner, will)
            lane = self._lanes.get(name)
            if lane is None or lane.traits is not owner.traits:
                if lane is not None:
                    lane.stop()
                lane = self._lanes[name] = _Lane(self, name, owner.traits, target, will.author.space)
            lane.waiting.append(will)
            if self._connection is not None:
                lane.start(self._connection, self._room)

    def _way(self, owner: TopicOwner, will: Will) -> tuple[str, str | None]:
        """Return the key of a will's lane, and the target of its link (None: the anonymous terminus)."""
        if not owner.traits.levels:
            return owner.name, owner.wire
        return (owner.name, None) if self._relays else (owner.wire, owner.wire)

    def _drop(self, will: Will) -> None:
        log.get(client=will.key).warning(
            "mqtt-lwt.will.dropped", to=will.to[:200], will=will.id, space=will.author.space
        )
        self.dropped += 1
        self._remove(will)

    def _remove(self, will: Will) -> None:
        self._then(self._records.remove([will]), partial(self._book.remove, will))

    # called by lanes

    def idle(self, lane: _Lane) -> None:
        """Handle a lane that has nothing left to send."""
        if self._lanes.get(lane.name) is lane:
            del self._lanes[lane.name]

    def allows(self, will: Will) -> bool:
        """Return whether the will may be published now; if not, look at it again after SKEW, then drop it."""
        reason = self._permits.refusal(will.author, will.to)
        if not reason:
            self._doubted.discard(will.id)
        elif will.id not in self._doubted:
            self._doubted.add(will.id)
            asyncio.get_running_loop().call_later(SKEW, self.add, [will])
        else:
            self._doubted.discard(will.id)
            self._permits.note(will, reason)
            self._remove(will)
        return not reason

    async def messages(self, wills: list[Will]) -> list[bytes | None]:
        """Return the messages of the wills; None for one that is not stored. Raises StoreError if they cannot be
        read now."""
        return await self._records.messages(wills)

    def again(self, will: Will) -> None:
        """Schedule another attempt for a will that was not accepted."""
        self.retried += 1
        self.add([will])

    def over(self, will: Will, then: Callable[[], None] | None = None) -> None:
        """Remove a will that needs no further sending, then call `then`."""
        self._then(self._records.remove([will]), partial(self._removed, will, then))

    def _removed(self, will: Will, then: Callable[[], None] | None) -> None:
        self._book.remove(will)
        self.published += 1
        if then is not None:
            then()

    def _then(self, done: Done, answer: Callable[[], None]) -> None:
        def stored(done: Done) -> None:
            if done.cancelled():
                return
            try:
                done.result()
                answer()
            except Exception as error:
                self._failed(error)

        done.add_done_callback(stored)


def _owner(topics: TopicMap, to: str) -> TopicOwner | None:
    """Return the address that takes a will. A topic takes only names below its own: the message is sent to its name,
    and any other name may be a node of a router or service, to which clients must not send through us."""
    owner = topics.owner_of_wire(to) or topics.owner(topics.topic_of(to))
    return None if owner is not None and owner.traits.levels and owner.to != to else owner


class _Lane:
    """Wills of one link, to `target`, or to topics of an address space by the anonymous terminus (`target` None)."""

    def __init__(self, publisher: WillPublisher, name: str, traits: Traits, target: str | None, space: str) -> None:
        self.name = name
        self._space = space
        self.traits = traits
        self.waiting: deque[Will] = deque()
        self._publisher = publisher
        self._target = target
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._under_way = 0
        self._window = 1
        """Grows while wills are accepted, and shrinks when one is not."""
        self._refused = ""

    def start(self, connection: ControlConnection, room: asyncio.Semaphore) -> None:
        self._changed.set()
        if self._task is None or self._task.done():
            self._task = runner.spawn(self._run(connection, room), f"wills for {self.name}")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self, connection: ControlConnection, room: asyncio.Semaphore) -> None:
        backoff = Backoff(AGAIN)
        while self.waiting or self._under_way:
            async with room:
                sender: ControlSender | None = None
                try:
                    sender = connection.sender(
                        self._target, space=self._space if self._target is None else DEFAULT_SPACE
                    )
                    await sender.opened()
                    await self._send(sender, backoff)
                except (ControlError, StoreError) as error:
                    log.get(address=self.name, space=self._space).info(
                        "mqtt-lwt.publishing.interrupted", reason=str(error)
                    )
                except Exception as error:
                    log.get(address=self.name, space=self._space).error("mqtt-lwt.lane.failed", exc_info=error)
                    self._publisher.failures += 1
                finally:
                    if sender is not None:
                        sender.close()
            if self.waiting or self._under_way:
                await asyncio.sleep(backoff.wait())
        self._publisher.idle(self)

    async def _send(self, sender: ControlSender, backoff: Backoff) -> None:
        """Send until the lane is empty or its address takes no wills. Raises LinkClosed."""
        while self.waiting or self._under_way:
            if sender.closed:
                raise sender.error or ControlError("closed")
            if self._refused:
                log.get(address=self.name, space=self._space).info("mqtt-lwt.will.not-accepted", reason=self._refused)
                self._refused = ""
                await asyncio.sleep(backoff.wait())
            if not self.waiting or self._under_way >= self._window:
                self._changed.clear()
                await self._changed.wait()
                continue
            try:
                async with asyncio.timeout(PATIENCE):
                    await sender.has_credit()
            except TimeoutError:
                if self._under_way:
                    continue
                if self.traits.broadcast:
                    self._no_receivers()
                return
            room = min(sender.credit, self._window - self._under_way, READ)
            wills = [self.waiting.popleft() for _ in range(min(room, len(self.waiting)))]
            try:
                messages = await self._publisher.messages(wills)
            except BaseException:  # also when this task is cancelled
                self._publisher.add(wills)
                raise
            for will, message in zip(wills, messages, strict=True):
                self._send_one(sender, will, message, backoff)

    def _no_receivers(self) -> None:
        """Finish the waiting wills: without receivers, all receivers have them."""
        while self.waiting:
            self._publisher.over(self.waiting.popleft())

    def _send_one(self, sender: ControlSender, will: Will, message: bytes | None, backoff: Backoff) -> None:
        if sender.closed:
            self._publisher.add([will])
        elif not self._publisher.allows(will):
            pass
        elif message is None:
            log.get(client=will.key).error("mqtt-lwt.message.missing", id=will.id, space=will.author.space)
            self._publisher.over(will)
        elif will.qos == 0:
            self._under_way += 1
            self._publisher.over(will, partial(self._send_settled, sender, message))
        else:
            self._under_way += 1
            sender.send(message, partial(self._outcome, will, backoff))

    def _send_settled(self, sender: ControlSender, message: bytes) -> None:
        """Send a will of QoS 0, at most once: it was removed from the store before."""
        if not sender.closed:
            sender.send(message, settled=True)
        self._window = min(2 * self._window, WINDOW)
        self._left()

    def _outcome(self, will: Will, backoff: Backoff, outcome: Outcome) -> None:
        nobody = self.traits.broadcast and outcome.state in (RELEASED, MODIFIED)  # no receivers, so all have it
        if outcome.accepted or nobody:
            backoff.reset()
            self._window = min(2 * self._window, WINDOW)
            self._publisher.over(will)
        else:
            self._window = 1
            self._refused = str(outcome)
            self._publisher.again(will)
        self._left()

    def _left(self) -> None:
        self._under_way -= 1
        self._changed.set()
