"""Readiness of each address as a controller reports it, and the changes that were not reported yet."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable

import msgspec

from enmasse.model.feeds import Readiness
from enmasse.model.names import AddressName

SHOWN = 1.0
"""Least time in seconds for which an address is reported as not ready after a part of it was lost."""


class ReadinessBook:
    """Readiness by address. `on_change()` is called when there is a change to report."""

    def __init__(self, lost_text: str) -> None:
        """`lost_text`: message of an address of which a part was lost and created again."""
        self.on_change: Callable[[], None] | None = None
        self.not_ready = 0
        """Number of addresses that are not ready."""
        self._lost_text = lost_text
        self._states: dict[AddressName, Readiness] = {}
        self._same: dict[Readiness, Readiness] = {}
        """One shared object for equal states, because thousands are equal."""
        self._unreported: set[AddressName] = set()
        self._lost: dict[AddressName, float] = {}
        """Address of which a part was lost → time until which that is reported."""
        self._hidden: dict[AddressName, Readiness] = {}
        """Actual readiness of addresses that are reported as lost."""

    def __len__(self) -> int:
        return len(self._states)

    def get(self, name: AddressName) -> Readiness | None:
        """Return the reported readiness of an address; None if it is not reported."""
        return self._states.get(name)

    def put(self, name: AddressName, state: Readiness | None) -> None:
        """Set the readiness of the address; None: stop reporting it."""
        if name in self._lost:
            if state is not None and state.ready:
                self._hidden[name] = state
                state = msgspec.structs.replace(state, ready=False, message=state.message or self._lost_text)
            else:
                self._hidden.pop(name, None)
        old = self._states.get(name)
        if state == old:
            return
        self.not_ready += (state is not None and not state.ready) - (old is not None and not old.ready)
        if state is None:
            del self._states[name]
        else:
            if len(self._same) > 2 * len(self._states) + 100:
                self._same = {known: known for known in self._states.values()}
            self._states[name] = self._same.setdefault(state, state)
        self._unreported.add(name)
        if self.on_change is not None:
            self.on_change()

    def lose(self, names: Iterable[AddressName]) -> None:
        """Record that a part of these addresses was lost. It is created again at once, but users must see the loss: the
        addresses count as not ready for SHOWN seconds, and until that was reported."""
        loop = asyncio.get_running_loop()
        names = list(names)
        self._lost.update(dict.fromkeys(names, loop.time() + SHOWN))
        for name in names:
            self.put(name, self._hidden.get(name) or self._states.get(name))
        loop.call_later(SHOWN, self._find, names)

    def _find(self, names: list[AddressName]) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        unseen = self._unreported.intersection(names)
        if unseen:  # the process, or the receiver of the reports, was stalled
            loop.call_later(SHOWN, self._find, list(unseen))
        for name in names:
            if name not in unseen and self._lost.get(name, math.inf) <= now:
                del self._lost[name]
                self.put(name, self._hidden.pop(name, None) or self._states.get(name))

    def take(self) -> set[AddressName]:
        """Return the addresses whose state has changed since the last call; they count as reported from now on."""
        taken, self._unreported = self._unreported, set()
        return taken

    def reports(self, names: Iterable[AddressName] | None) -> dict[AddressName, Readiness]:
        """Return the readiness of these addresses (None: of all); missing ones are no longer reported."""
        states = self._states
        if names is None:
            return dict(states)
        return {name: state for name in names if (state := states.get(name)) is not None}
