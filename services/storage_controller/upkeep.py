"""Requests brokers and their manifests: created if addresses need them, restarted with new settings one at a time,
deleted when no address needs them and they are empty."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from enmasse.model.names import AddressName
from services.storage_controller import fleet, policies, texts, unsupported
from services.storage_controller.brokers.broker import ManagedBroker
from services.storage_controller.conversation.broker_conversation import BrokerConversation
from services.storage_controller.drivers import BrokerDriver, Manifest, RunningBroker
from services.storage_controller.placement import Placer
from services.storage_controller.provisioner import Provisioner
from services.storage_controller.rollout import Rollout


class Upkeep:
    """Desired set of brokers. `running`, `conversations`: the current ones, by broker name. `changed(addresses)`: the
    notice of their broker has changed."""

    def __init__(
        self,
        placer: Placer,
        driver: BrokerDriver,
        provisioner: Provisioner,
        running: Mapping[str, RunningBroker],
        conversations: Mapping[str, BrokerConversation],
        changed: Callable[[Iterable[AddressName]], None],
    ) -> None:
        self._placer = placer
        self._driver = driver
        self._provisioner = provisioner
        self._running = running
        self._conversations = conversations
        self._changed = changed
        self._wanted: dict[str, str] = {}
        """The brokers that the addresses need, and their flavors."""
        self._refit: set[str] = set()
        """Brokers whose manifest will change once that loses nothing and the other brokers of their flavor work."""
        self._rollout = Rollout(placer)

    def size(self) -> None:
        """Request the brokers that the addresses need."""
        placer, provisioner = self._placer, self._provisioner
        if not placer.complete:
            return
        flavors = placer.desired.flavors
        wanted = fleet.wanted(placer.desired.addresses, flavors)
        # A flavor that this product cannot run gets no brokers; its existing brokers stay unchanged.
        unable = {name for name, of in wanted.items() if unsupported.cannot_run(self._driver.engine, of, flavors[of])}
        self._wanted = {name: of for name, of in wanted.items() if name not in unable or name in provisioner.asked}
        self._refit -= unable
        for name in self._wanted.keys() - unable:
            manifest, asked = self._fitting(name), provisioner.asked.get(name)
            if asked is None:
                provisioner.ask(name, manifest)
            elif asked != manifest:
                self._refit.add(name)
            else:
                self._refit.discard(name)
        for name in [name for name in provisioner.asked if name not in self._wanted]:
            if name not in provisioner.manifests:
                provisioner.give_up(name)  # it was never created

    def tidy(self, *, now: bool = False) -> None:
        """Delete unneeded brokers that are empty; apply new manifests where that loses nothing. `now`: the running
        brokers were read at this moment."""
        if self._refit:
            stopped = {name for name, seen in self._running.items() if seen.is_stopped}
            wanted = {name: flavor for name, flavor in self._wanted.items() if name not in stopped}
            down = {name for name, seen in self._running.items() if not seen.ready}
            self._rollout.look(wanted, down, self._works, now=now)
        for name, before in self._provisioner.manifests.items():
            conversation, broker = self._conversations[name], self._placer.inventory.brokers[name]
            if name not in self._wanted:
                unused = not self._placer.inventory.load.get(name) and _is_empty(broker)
                if not unused:
                    self._driver.still_needed(name)
                conversation.quiesce(partial(self._give_up, name) if unused else None)
            elif name not in self._refit:
                conversation.quiesce(None)
                self._notice(broker, "")
            elif not self._rollout.may_begin(name, self._wanted[name]):
                conversation.quiesce(None)
                others = texts.listed(self._rollout.others(name, self._wanted[name]))
                self._notice(broker, f"the new settings of flavor {broker.flavor} wait until {others} works again")
            elif self._keeps_messages(name, before):
                self._notice(broker, "")
                self._refit_now(name)
            else:
                text = f"the new settings of flavor {broker.flavor} wait until broker {name} holds no messages"
                if before.storage is None and self._fitting(name).storage is not None:
                    text += ", which it still keeps in memory: they are lost with it"
                self._notice(broker, text)
                conversation.quiesce(partial(self._refit_now, name))

    def deleted(self, name: str) -> None:
        """Forget a broker that the driver has deleted."""
        self._refit.discard(name)

    def pending(self, restarting: Collection[str]) -> str:
        """Describe the pending work; empty if there is none. `restarting`: brokers whose process is being replaced."""
        coming = [name for name in self._wanted if name in restarting or not self._has_come(name)]
        if coming:
            return f"brokers are being started: {texts.listed(coming)}"
        if not self._refit:
            return ""
        manifests = self._provisioner.manifests
        waiting = [name for name in self._refit if not self._keeps_messages(name, manifests.get(name))]
        how = "when they hold no messages" if waiting else "one after the other"
        return f"brokers get new settings {how}: {texts.listed(waiting or self._refit)}"

    def _fitting(self, name: str) -> Manifest:
        flavor = self._wanted[name]
        return self._driver.manifest(policies.desired_broker(name, flavor, self._placer.desired.flavors[flavor]))

    def _works(self, name: str) -> bool:
        """Return True if the broker runs by its applied manifest and the controller is connected to it."""
        broker, running = self._placer.inventory.brokers.get(name), self._running.get(name)
        if broker is None or running is None:
            return False
        runs = self._provisioner.is_applied(name) and running.ready and running.is_current
        return runs and broker.connected and broker.contents is not None

    def _has_come(self, name: str) -> bool:
        """Return True if the requested manifest of the broker is applied and its contents were read."""
        provisioner, broker = self._provisioner, self._placer.inventory.brokers.get(name)
        if not provisioner.is_applied(name):
            return False
        return broker is not None and (broker.contents is not None or not broker.fresh)

    def _keeps_messages(self, name: str, before: Manifest | None) -> bool:
        """Return True if the broker's messages survive its new manifest."""
        return before is None or (before.storage is not None and before.storage == self._fitting(name).storage)

    def _refit_now(self, name: str) -> None:
        flavor = self._wanted.get(name)
        if flavor is None:
            self._refit.discard(name)
        elif self._rollout.may_begin(name, flavor):  # otherwise another broker of the flavor has begun
            self._refit.discard(name)
            self._rollout.begin(name, flavor)
            self._provisioner.ask(name, self._fitting(name))

    def _give_up(self, name: str) -> None:
        if name not in self._wanted and not self._placer.inventory.load.get(name):
            self._provisioner.give_up(name)

    def _notice(self, broker: ManagedBroker, text: str) -> None:
        if broker.notice != text:
            broker.notice = text
            self._changed(self._placer.inventory.at_home(broker.name))


def _is_empty(broker: ManagedBroker) -> bool:
    contents = broker.contents
    return (
        contents is not None
        and not contents.stored
        and not contents.durable_subscriptions
        and not any(held.ours is not False for held in contents.held.values())
    )
