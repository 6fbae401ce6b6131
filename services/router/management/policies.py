"""Tables of the policy: the policy entity, vhosts, and counts of allowed and denied requests."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from services.router.management import schema
from services.router.management.bodies import policy_config, vhost_config
from services.router.management.entities import Entity, EntityTable, UniqueNames
from services.router.management.schema import read_body
from services.router.management.supported import check_policy
from services.router.management.tables import Table, zero
from services.router.routing.policy import Policy, Vhost


class VhostTable(EntityTable):
    """Vhosts of the policy; a change counts for connections that open after it."""

    def __init__(self, names: UniqueNames, policy: Policy) -> None:
        super().__init__(schema.VHOST, names, lambda body: str(body["hostname"]))
        self._policy = policy

    def add(self, name: str | None, body: Any) -> Entity:
        """Add a vhost for connections that open from now on."""
        entity: Entity = super().add(name, body)
        self._policy.vhosts[entity.name] = Vhost(vhost_config(entity.body))
        return entity

    def make(self, body: dict[str, Any]) -> Any:
        """Return the entity of a vhost. Raises ManagementError for an invalid one."""
        vhost_config(body)
        return super().make(body)

    def delete(self, entity: Entity) -> None:
        """Remove the vhost; open connections keep its rights."""
        super().delete(entity)
        self._policy.vhosts.pop(entity.name, None)


class VhostStatsTable(Table):
    """Counts of allowed and denied requests of each vhost."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        super().__init__(
            schema.VHOST_STATS,
            {
                "name": attrgetter("hostname"),
                "identity": lambda v: f"vhostStats/{v.hostname}",
                "id": attrgetter("hostname"),
                "hostname": attrgetter("hostname"),
                "connectionsApproved": attrgetter("approved"),
                "connectionsDenied": attrgetter("denied"),
                "connectionsCurrent": lambda v: sum(map(len, policy.connections_of(v)[0].values())),
                "perUserState": lambda v: policy.connections_of(v)[0],
                "perHostState": lambda v: policy.connections_of(v)[1],
                "sessionDenied": zero,
                "senderDenied": lambda v: v.denials.senders,
                "receiverDenied": lambda v: v.denials.receivers,
                "maxMessageSizeDenied": lambda v: v.denials.sizes,
            },
        )

    def rows(self) -> Iterable[Vhost]:
        """Return the vhosts, which have the counts."""
        return self._policy.vhosts.values()


class PolicyTable(EntityTable):
    """The one policy entity; configured by the file, shown with its counters."""

    def __init__(self, names: UniqueNames, policy: Policy) -> None:
        super().__init__(schema.POLICY, names, lambda _: "policy")
        self._policy = policy
        self._default: Entity | None = None
        self.getters |= {
            "connectionsProcessed": lambda _: policy.processed,
            "connectionsDenied": lambda _: policy.denied,
            "connectionsCurrent": lambda _: policy.current,
            "linksDenied": lambda _: policy.links_denied,
            "maxMessageSizeDenied": lambda _: policy.size_denied,
            "totalDenials": lambda _: policy.denied + policy.links_denied + policy.size_denied,
        }

    def rows(self) -> Iterable[Any]:
        """Return the one policy entity, which always exists."""
        if not self.entities and self._default is None:
            self._default = Entity(self.type, "policy", read_body(self.type, None, {}))
        return self.entities.values() or (self._default,)

    def make(self, body: dict[str, Any]) -> Entity:
        """Return the policy entity, whose settings apply from now on. Raises ManagementError for an invalid one."""
        check_policy(body)
        entity: Entity = super().make(body)
        self._policy.config = policy_config(body)
        return entity
