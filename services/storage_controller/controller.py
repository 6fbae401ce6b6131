"""The storage controller: feeds in, brokers made and filled, placements and readiness out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar, cast

import msgspec

from enmasse import health, log, process, settings
from enmasse.control import ControlConnection, keep_connected
from enmasse.control.configuration import FullReporter, ReadinessReporter, Report, Restored, follow
from enmasse.metrics import gauge, single
from enmasse.model import feeds
from enmasse.model.addresses import Address
from enmasse.text import counted
from services.storage_controller import fleet, policies
from services.storage_controller.conversation import Conversation
from services.storage_controller.core import Broker, Core, Decision, Entry
from services.storage_controller.driver import LocalDriver, Running, Wish
from services.storage_controller.told import Told

if TYPE_CHECKING:
    from prometheus_client.core import Metric

REPORTER = "storage_controller"
FEEDS = ("addresses", "flavors")
PATIENCE = 15.0
"""Seconds from the start in which no address is made anywhere before every known broker has said what it holds."""
POLL_SETTLED, POLL_UNSETTLED = 0.5, 0.05
ASK_AGAIN = 2.0
"""Seconds after which a broker is asked for again that could not be: the disk was full, say."""
_LOG = log.get()
T = TypeVar("T")


class LocalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The local driver: the folder `desired` and the file `actual`, shared with the supervisor."""

    kind: Literal["local"]
    desired: str
    actual: str


class Settings(settings.Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The controller's settings (docs/contracts.md, "A service as a process")."""

    configserv: settings.HostPort
    driver: LocalSettings


_State = tuple[bool, bool, str, tuple[str, ...], int | None, int | None]
"""ready, failed, message, components, messages, consumers"""


class Controller:
    """Everything the controller knows, and the conversations with the brokers."""

    def __init__(self, name: str, driver: LocalDriver) -> None:
        self.core = Core()
        self.connected = False
        self.not_ready = 0
        self.readiness = ReadinessReporter(REPORTER, self._reports, FEEDS, self._pending, self._may_report)
        self.placements = FullReporter("placements", self._placements, self._placements_answered)
        self._name = name
        self._driver = driver
        self._wishes: dict[str, Wish] = {}
        self._wanted: dict[str, str] = {}
        self._refit: set[str] = set()
        """Brokers whose settings are to change once that loses nothing."""
        self._restarting: set[str] = set()
        """Brokers that run with other settings than they are to have: another process is about to come."""
        self._endpoints: dict[str, Running] = {}
        self._conversations: dict[str, Conversation] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._entries: dict[str, tuple[Entry, ...]] = {}
        self._told = Told()
        self._states: dict[str, _State] = {}
        self._knew_all = False
        self._restored = Restored(self.readiness, self.evaluate)
        """Addresses that had vanished, and until when that is shown."""
        self._same: dict[object, object] = {}
        self._began = asyncio.get_running_loop().time()
        self._trouble: dict[str, str] = {}
        """Brokers that could not be asked for, and why."""
        self._ask_again = 0.0
        self._damaged: dict[str, str] = {}
        """Brokers of which the wish cannot be read any more, and why."""

    # life

    def start(self) -> None:
        """Takes over what was wished for before. Raises process.Fatal where that cannot be read."""
        try:
            self._read_wishes()
        except OSError as error:
            raise process.Fatal(f"cannot read which brokers there shall be: {error}; make it readable") from None
        for reason in self._damaged.values():
            _LOG.error("the wish for a broker cannot be read", reason=reason)

    def _read_wishes(self) -> None:
        wishes, self._damaged = self._driver.wishes()
        for name, wish in wishes.items():
            if name not in self._wishes:
                self._wishes[name] = wish
                self._add(name, wish.flavor, fresh=False)

    async def run(self) -> None:
        """Follows what runs, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            running = self._driver.running()
            if running is not None:
                self._follow(running)
            self._restore_wishes()
            if self.core.patient and loop.time() - self._began > PATIENCE and not self.core.heard_all:
                self.core.patient = False
                self.evaluate(list(self.core.addresses))
                self.placements.changed()
            if self.core.complete:
                if self._trouble and loop.time() >= self._ask_again:
                    self._size_fleet()
                    self.evaluate(list(self.core.addresses))
                self._tidy()
                if not self._knew_all and self._knows_all():
                    self._knew_all = True
                    self.placements.changed()
            settled = self.core.complete and all(broker.connected for broker in self.core.brokers.values())
            await asyncio.sleep(POLL_SETTLED if settled else POLL_UNSETTLED)

    async def close(self) -> None:
        """Ends the conversations."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # feeds

    async def configserv(self, connection: ControlConnection) -> None:
        """The conversation with the configuration service, until the connection is lost."""
        ended = asyncio.Event()
        self._told.answered = False
        self.readiness.connected()
        hints = follow(connection, "placements", self._on_placements, feeds.Placements)
        links = [
            hints,
            follow(connection, "addresses", self._on_addresses, feeds.Addresses),
            follow(connection, "flavors", self._on_flavors, feeds.Flavors),
        ]
        for link in links:
            link.on_closed = lambda _: ended.set()
        reporting = [
            asyncio.ensure_future(self.readiness.run(connection)),
            asyncio.ensure_future(self.placements.run(connection)),
        ]
        for task in reporting:
            task.add_done_callback(lambda _: ended.set())
        self.connected = True
        try:
            await ended.wait()
            for task in reporting:
                if task.done():
                    task.result()
        finally:
            self.connected = False
            for task in reporting:
                task.cancel()

    def _on_addresses(self, body: feeds.Addresses) -> None:
        old = self.core.addresses
        shared: dict[Address, Address] = {}
        found = {}
        for name, address in body.addresses.items():
            before = old.get(name)
            found[name] = before if before == address and before is not None else shared.setdefault(address, address)
        changed = self.core.set_addresses(found, body.forced, body.invalid or ())
        self._size_fleet()
        self.evaluate(changed)
        self.readiness.saw("addresses", body.revision)

    def _on_flavors(self, body: feeds.Flavors) -> None:
        changed = self.core.set_flavors(body.flavors)
        self._size_fleet()
        self.evaluate(changed)
        self.readiness.saw("flavors", body.revision)

    def _on_placements(self, body: feeds.Placements) -> None:
        """What an earlier controller reported; our own reports come back too, and say nothing new."""
        if self._knows_all():
            return
        for name, entries in body.addresses.items():
            for entry in entries:
                if entry.state == "active":
                    self.core.hint(name, entry.broker)
        self.evaluate(body.addresses)

    # brokers

    def _size_fleet(self) -> None:
        """Wishes for the brokers that the addresses need."""
        core = self.core
        if not core.complete:
            return
        self._wanted = fleet.wanted(core.addresses, core.flavors)
        self._trouble = {name: reason for name, reason in self._trouble.items() if name in self._wanted}
        for name in self._wanted:
            wish = self._fitting(name)
            known = self._wishes.get(name)
            if known is None:
                self._wish(name, wish)
            elif known != wish:
                self._refit.add(name)
            else:
                self._refit.discard(name)
        self._tidy()

    def _restore_wishes(self) -> None:
        """Nobody else changes what is wished for: a broker must not end because its file was deleted by hand."""
        for name in self._driver.altered():
            if name in self._wishes:
                if name not in self._trouble:
                    _LOG.warning("what is wished for was changed by somebody else and is written again", broker=name)
                self._wish(name, self._wishes[name])
        if self._damaged:
            with contextlib.suppress(OSError):
                self._read_wishes()  # somebody may have put it right

    def _wish(self, name: str, wish: Wish) -> None:
        try:
            self._driver.wish(name, wish)
        except OSError as error:
            self._ask_again = asyncio.get_running_loop().time() + ASK_AGAIN
            reason = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            if self._trouble.get(name) != reason:
                self._trouble[name] = reason
                _LOG.error("cannot ask for a broker", broker=name, reason=reason)
            return
        self._trouble.pop(name, None)
        self._wishes[name] = wish
        self._add(name, wish.flavor, fresh=self._damaged.pop(name, None) is None)
        now = self._endpoints.get(name)
        if now is not None and (name in self._restarting or _is_outdated(now, wish)):
            self._meet(name, now)

    def _add(self, name: str, flavor: str, *, fresh: bool) -> None:
        if name in self._conversations:
            return
        broker = self.core.add_broker(name, flavor, fresh=fresh)
        self._conversations[name] = Conversation(
            self.core, broker, self.evaluate, self._restored.add, self._told.is_left_alone
        )
        if name in self._endpoints:
            self._meet(name, self._endpoints[name])

    def _follow(self, running: dict[str, Running]) -> None:
        """Brokers came, went or moved. One that is down keeps its last endpoint: it comes back with the same port."""
        moved = False
        for name, now in running.items():
            before = self._endpoints.get(name)
            if before is not None and not now.run:
                now = now._replace(run=before.run)  # it is no other one before it runs again
            self._endpoints[name] = now
            if before is not None and before.run != now.run and self._knows_all():
                # The routers have to look whether they are connected to this one.
                moved = True
                self._told.moved(address for address, home in self.core.homes.items() if home == name)
            broker = self.core.brokers.get(name)
            if broker is not None and not broker.connected and not now.ready:
                broker.detail = now.detail or broker.detail
            if before is None or before[:2] != now[:2] or name not in self._tasks:
                moved = True
                self._meet(name, now)
            elif before.settings != now.settings:
                self._meet(name, now)
            elif now.ready and not before.ready and broker is not None and not broker.connected:
                self._meet(name, now)  # at once, not after the back-off
        if moved:
            self.placements.changed()

    def _meet(self, name: str, now: Running) -> None:
        """Talks with a broker's process, unless it has other settings than wished for: then it is about to end."""
        wish, broker = self._wishes.get(name), self.core.brokers.get(name)
        if wish is None or broker is None or not _is_outdated(now, wish):
            self._restarting.discard(name)
            self._talk(name, now)
            return
        self._restarting.add(name)
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
        text = f"it is being restarted with the settings of flavor {wish.flavor}"
        self.evaluate(self.core.set_connected(broker, False, text))

    def _talk(self, name: str, where: Running) -> None:
        conversation = self._conversations.get(name)
        if conversation is None or not where.port:
            return
        old = self._tasks.pop(name, None)
        if old is not None:
            old.cancel()
        work = keep_connected(where.host, where.port, conversation.session, container=self._name)
        self._tasks[name] = process.spawn(work, f"broker {name}")

    def _tidy(self) -> None:
        """Brokers that nobody needs go when they are empty; new settings apply when that loses nothing."""
        for name in self._wishes:
            conversation, broker = self._conversations[name], self.core.brokers[name]
            if name not in self._wanted:
                unused = not self.core.load.get(name) and _is_empty(broker)
                conversation.quiesce(partial(self._unwish, name) if unused else None)
            elif name not in self._refit:
                conversation.quiesce(None)
                self._notice(broker, "")
            elif self._survives_restart(name):
                self._refit_now(name)
            else:
                text = f"the new settings of flavor {broker.flavor} wait until broker {name} holds no messages"
                before, after = (wish.settings.get("data_dir") for wish in (self._wishes[name], self._fitting(name)))
                if before is None and after is not None:
                    text += ", which it still keeps in memory: they are lost with it"
                self._notice(broker, text)
                conversation.quiesce(partial(self._refit_now, name))

    def _survives_restart(self, name: str) -> bool:
        """What the broker holds is still there after it has got its new settings."""
        before = self._wishes[name].settings.get("data_dir")
        return before is not None and before == self._fitting(name).settings["data_dir"]

    def _fitting(self, name: str) -> Wish:
        flavor = self._wanted[name]
        return Wish(flavor, policies.broker_settings(name, self.core.flavors[flavor]))

    def _refit_now(self, name: str) -> None:
        self._refit.discard(name)
        if name in self._wanted:
            self._wish(name, self._fitting(name))

    def _notice(self, broker: Broker, text: str) -> None:
        if broker.notice != text:
            broker.notice = text
            self.evaluate([name for name, home in self.core.homes.items() if home == broker.name])

    def _unwish(self, name: str) -> None:
        if name in self._wanted or self.core.load.get(name):
            return
        try:
            self._driver.unwish(name)
        except OSError as error:
            _LOG.error("cannot give a broker up", broker=name, reason=str(error))
            return
        del self._wishes[name]
        self._refit.discard(name)
        self._restarting.discard(name)
        # Its endpoint is kept: wished for again before the supervisor has looked, it just goes on running.
        self._conversations.pop(name, None)
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
        self.evaluate(self.core.remove_broker(name))
        self.placements.changed()

    # decisions

    def evaluate(self, names: Iterable[str]) -> None:
        """Decides anew on these addresses, has it carried out and reports what is news."""
        core = self.core
        if not core.complete:
            return
        queue = list(names)
        news: list[str] = []
        placed = False
        while queue:
            for name in queue:
                decision = core.decide(name)
                placed |= self._place(name, decision)
                if self._say(name, decision):
                    news.append(name)
                self._carry_out(name, decision)
            queue = list(core.concerned())
        if placed:
            self.placements.changed()
        self.readiness.changed(news)

    def _carry_out(self, name: str, decision: Decision) -> None:
        for broker in decision.keep:
            if broker in self._conversations:
                self._conversations[broker].keep(name)
        for broker in decision.retire:
            self._conversations[broker].retire(name)

    def _place(self, name: str, decision: Decision) -> bool:
        old = self._entries.get(name, ())
        entries = decision.entries
        if entries == old:
            return False
        if entries:
            self._entries[name] = self._share(entries)
        else:
            del self._entries[name]
        if self._knows_all():  # else nothing is reported yet, and what an earlier controller has reported holds
            self._told.moved((name,))
        return True

    def _say(self, name: str, decision: Decision) -> bool:
        state: _State | None = None
        if decision.kind is not None or decision.entries:
            components = tuple(dict.fromkeys(entry.broker for entry in decision.entries))
            failed = not decision.ready and self.core.refused(name)
            shown = name in self._restored
            state = (
                decision.ready and not shown,
                failed,
                decision.message or ("it was gone from its broker and has been made again" if shown else ""),
                components,
                decision.messages,
                decision.consumers,
            )
        old = self._states.get(name)
        if state == old:
            return False
        self.not_ready += (state is not None and not state[0]) - (old is not None and not old[0])
        if state is None:
            del self._states[name]
        else:
            self._states[name] = self._share(state)
        return True

    def _share(self, value: T) -> T:
        if len(self._same) > 2 * (len(self._states) + len(self._entries)) + 100:
            self._same.clear()
        return cast(T, self._same.setdefault(value, value))

    # reports

    def _knows_all(self) -> bool:
        core = self.core
        return core.complete and (core.heard_all or not core.patient)

    def _placements(self) -> dict[str, object] | None:
        core = self.core
        if not self._knows_all():
            return None
        self._told.made(dict(self._entries))
        # Thousands are alike, and then one and the same object.
        shown = {
            entries: [{"broker": broker, "state": state, "type": kind} for broker, state, kind in entries]
            for entries in set(self._entries.values())
        }
        return {
            "schema": feeds.SCHEMA,
            "brokers": {
                name: {"host": where.host, "port": where.port, "run": where.run}
                for name, where in self._endpoints.items()
                if name in core.brokers and where.port
            },
            "addresses": {name: shown[entries] for name, entries in self._entries.items()},
        }

    def _placements_answered(self, accepted: bool) -> None:
        self.readiness.changed(self._told.answer(accepted))

    def _may_report(self) -> bool:
        return self.readiness.received(*FEEDS) and (self._told.answered or not self._knows_all())

    def _pending(self) -> dict[str, str]:
        """What the addresses do not tell: brokers to come, to get other settings, and of which too little is known."""
        found = {}
        unknown = [
            name
            for name, broker in self.core.brokers.items()
            if (not broker.fresh and broker.view is None) or not self._conversations[name].sure
        ]
        if unknown:
            found["addresses"] = f"it is not known yet what these brokers hold: {_listed(unknown)}"
        coming = [name for name in self._wanted if name in self._restarting or not self._has_come(name)]
        if coming:
            found["flavors"] = f"brokers are being started: {_listed(coming)}"
        elif self._refit:
            found["flavors"] = f"brokers get new settings when they hold no messages: {_listed(self._refit)}"
        return found

    def _has_come(self, name: str) -> bool:
        broker = self.core.brokers.get(name)
        return name in self._wishes and broker is not None and not (broker.fresh and broker.view is None)

    def _reports(self, names: Iterable[str] | None) -> dict[str, Report]:
        found: dict[str, Report] = {}
        for name in self._states.keys() | self._told.unknown if names is None else names:
            state = self._states.get(name)
            if self._told.is_unknown(name):
                # Before the routers can know of it, it neither works nor is it gone.
                old = state or (False, False, "", (), None, None)
                state = (False, old[1], old[2] or "the routers are being told where it lies", *old[3:])
            if state is None:
                continue
            ready, failed, message, components, messages, consumers = state
            found[name] = {
                "ready": ready,
                "failed": failed,
                "message": message,
                "components": components,
                "messages": messages,
                "consumers": consumers,
            }
        return found

    # health

    def healthy(self) -> tuple[bool, str]:
        """Whether all is well, and if not, what is awaited."""
        if not self.connected:
            return False, "no connection to the configuration service"
        if not self.core.complete:
            return False, "no addresses and flavors were delivered yet"
        if self._trouble:
            name, reason = min(self._trouble.items())
            return False, f"cannot ask for broker {name}: {reason}; put that right, it is tried again by itself"
        if self._damaged:
            reason = min(self._damaged.values())
            return False, f"cannot be read: {reason}; put it right, or delete it where that broker holds nothing"
        away = sorted(broker.name for broker in self.core.brokers.values() if not broker.connected)
        if away:
            return False, f"not reached: {', '.join(away[:10])}"
        return True, "; ".join((counted(len(self.core.brokers), "broker"), *self._pending().values()))

    def metrics(self) -> Iterator[Metric]:
        """Of the controller and its brokers (docs/metrics.md)."""
        load = [({"broker": name}, float(count)) for name, count in self.core.load.items() if name in self.core.brokers]
        known = len(self._states)
        yield gauge("storage_addresses", "Addresses that are desired or still being removed.", single(known))
        yield gauge("storage_addresses_not_ready", "Those of them that are not ready.", single(self.not_ready))
        yield gauge("storage_broker_addresses", "Addresses placed on each broker.", load)


def _is_outdated(now: Running, wish: Wish) -> bool:
    return now.settings is not None and now.settings != wish.settings


def _listed(names: Iterable[str]) -> str:
    found = sorted(names)
    return ", ".join(found[:5]) + (", …" if len(found) > 5 else "")


def _is_empty(broker: Broker) -> bool:
    view = broker.view
    return (
        view is not None
        and not view.stored
        and not view.durable_subscriptions
        and not any(held.ours is not False for held in view.held.values())
    )


async def serve(config: Settings, stop: asyncio.Event) -> None:
    """The service: runs until `stop` is set. Raises process.Fatal where it cannot begin."""
    controller = Controller(config.name, LocalDriver(config.driver.desired, config.driver.actual))
    controller.start()
    state = health.Health(config.health, controller.metrics)
    state.check = controller.healthy
    await state.start()
    host, port = settings.host_port(config.configserv)
    tasks = [
        process.spawn(keep_connected(host, port, controller.configserv, container=config.name), "configserv"),
        process.spawn(controller.run(), "fleet"),
    ]
    try:
        await stop.wait()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await controller.close()
        await state.close()
