"""Settings of the console (docs/contracts.md, "A service as a process")."""

from __future__ import annotations

import msgspec

from enmasse.process import settings


class ConsoleSettings(settings.ServiceSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`listen`: where HTTP is served. `router`: listener of a router for operators; `routers`: id of each router that
    there may be → its listener for operators. `logins`: listener of authserv for passwords. `supervisor`: the HTTP
    endpoint of `enmasse up`, to which its paths are passed on; None: in a cluster, where the console answers them by
    itself. `https`: further listeners, with TLS. `cert`, `key`: files in PEM for these, or for `listen` if `https` is
    empty; None: no TLS. `token_uses`: file with the last uses of API tokens; None: they are forgotten at the end.
    `history`: file with the numbers of addresses over time; None: in memory only.
    `webhooks`: file of receivers of events (enmasse/http/webhooks.py); `webhooks_state`: file with what waits for
    them."""

    listen: settings.HostPort
    https: tuple[settings.HostPort, ...] = ()
    configserv: settings.HostPort
    router: settings.HostPort | None = None
    routers: dict[str, settings.HostPort] = msgspec.field(default_factory=dict)
    logins: settings.HostPort | None = None
    supervisor: settings.HostPort | None = None
    cert: str | None = None
    key: str | None = None
    token_uses: str | None = None
    history: str | None = None
    webhooks: str | None = None
    webhooks_state: str | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key go together")
        if self.https and self.cert is None:
            raise ValueError("https needs cert and key")
