"""A reload of the options of `enmasse up` while it runs: which of them take effect, and which wait for a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final, NamedTuple

from enmasse.engines.program import Spec
from enmasse.supervisor.plan.services import Options

LIVE: Final = frozenset(
    {
        "listen", "allow_anonymous", "allow_plaintext", "allowed_origins", "mqtt_limits", "log_levels", "gateways",
        "routers",
    }
)  # fmt: skip
"""Fields of Options that take effect while the suite runs."""
_DERIVED: Final = frozenset({"users", "overridden", "listener_names", "config_stated"})
"""Fields that are no options."""
_NAMES: Final[Mapping[str, str]] = {
    "allowed_origins": "allowed-origin", "mqtt_limits": "mqtt-limit", "log_levels": "log-level",
    "offset": "port-offset", "tls_auto": "tls", "pipeline": "with", "doors": "with",
}  # fmt: skip
"""Field → option, where that has another name."""
_LIVE_SETTINGS: Final = frozenset({"log_level", "listeners", "limits", "allowed_origins", "https", "cert", "key"})
"""Settings of processes that they take while they run."""


class Reload(NamedTuple):
    """Changes of a reload. `options`: those from now on; `changed`: options that take effect; `later`: options that
    need a restart of the suite; `waiting`: sentences about what processes have not done in time; `warnings`: sentences
    about what is in force but serves no client."""

    options: Options
    changed: list[str]
    later: list[str]
    waiting: list[str]
    warnings: list[str]

    def __str__(self) -> str:
        parts = [f"in force: {', '.join(self.changed)}" if self.changed else "nothing has changed"]
        if self.later:
            parts.append(f"after a restart of `enmasse up` only: {', '.join(self.later)}")
        if named := self.options.overridden:
            parts.append(f"not in force, as the command line of `enmasse up` states them: {', '.join(named)}")
        return "; ".join([*parts, *self.waiting, *self.warnings])

    def as_json(self) -> dict[str, Any]:
        """Return the answer to an order."""
        return {"accepted": True, "message": str(self), "changed": self.changed, "later": self.later,
                "waiting": self.waiting}  # fmt: skip


def compared(running: Options, wanted: Options) -> Reload:
    """Return what becomes of the running options: `wanted` as far as these take effect."""
    differ = [
        each.name
        for each in fields(Options)
        if each.name not in _DERIVED and getattr(running, each.name) != getattr(wanted, each.name)
    ]
    live = {name: getattr(wanted, name) for name in differ if name in LIVE}
    names = {each.place: each.name for each in running.listeners()}
    options = replace(running, **live, users=wanted.users, overridden=wanted.overridden, listener_names=names)
    return Reload(options, _options(live), _options(name for name in differ if name not in LIVE), [], [])


def _options(names: Any) -> list[str]:
    return list(dict.fromkeys(_NAMES.get(name, name.replace("_", "-")) for name in names))


def renewed(running: Spec, wanted: Spec) -> Spec:
    """Return the description of a running process with the settings that it takes while it runs."""
    kept = {key: value for key, value in running.settings.items() if key not in _LIVE_SETTINGS}
    live = {key: value for key, value in wanted.settings.items() if key in _LIVE_SETTINGS}
    return replace(running, settings=kept | live, wanted_endpoints=wanted.wanted_endpoints)
