"""Table of the policy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from services.router.management import schema
from services.router.management.entities import Entity, EntityTable, UniqueNames
from services.router.management.entity_bodies import policy_config
from services.router.management.schema import read_body
from services.router.management.supported import check_policy
from services.router.routing.policy import Policy


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
