"""Configured addresses (router.config.address): their records, and the tree that finds the one for an address."""

from __future__ import annotations

from typing import Any

from services.router.management.schema import BAD_REQUEST, ManagementError
from services.router.routing import names
from services.router.routing.address import BALANCED

MAX_PRIORITY = 9


class AddressConfig:
    """How addresses that match `pattern` are treated."""

    __slots__ = (
        "egress_phase",
        "identity",
        "ingress_phase",
        "name",
        "pattern",
        "prefix",
        "priority",
        "shown",
        "treatment",
    )

    def __init__(self, identity: int, body: dict[str, Any]) -> None:
        self.identity = identity
        self.name: str = body["name"] or f"router.config.address/{identity}"
        self.prefix, self.shown, self.pattern = read_pattern(body)
        ingress, egress = body["ingressPhase"], body["egressPhase"]
        default_egress = 1 if body["waypoint"] else 0
        self.ingress_phase: int = 0 if ingress is None else ingress
        self.egress_phase: int = default_egress if egress is None else egress
        if not (0 <= self.ingress_phase <= 9 and 0 <= self.egress_phase <= 9):
            raise ManagementError(BAD_REQUEST, "Phase values must be between 0 and 9")
        self.priority: int = -1 if body["priority"] is None else body["priority"]
        if not -1 <= self.priority <= MAX_PRIORITY:
            raise ManagementError(BAD_REQUEST, "Priority value, if present, must be between 0 and QDR_MAX_PRIORITY")
        if body["fallback"]:
            if self.ingress_phase or self.egress_phase:
                raise ManagementError(
                    BAD_REQUEST, "Fallback cannot be specified with waypoint or non-zero ingress and egress phases"
                )
            raise ManagementError(BAD_REQUEST, "Fallback addresses are not supported by this router")
        self.treatment: str = body["distribution"] or BALANCED

    @property
    def waypoint(self) -> bool:
        return self.ingress_phase == 0 and self.egress_phase == 1


def read_pattern(body: dict[str, Any]) -> tuple[bool, str, str]:
    """Prefix or pattern of an address or a link route: is it a prefix, the text to show, the canonical pattern."""
    prefix, pattern = body["prefix"], body["pattern"]
    if prefix is None and pattern is None:
        raise ManagementError(BAD_REQUEST, "Either a 'prefix' or 'pattern' attribute must be provided")
    if prefix is not None and pattern is not None:
        raise ManagementError(BAD_REQUEST, "Cannot specify both a 'prefix' and a 'pattern' attribute")
    text: str = prefix if prefix is not None else pattern
    which = "Prefix" if prefix is not None else "Pattern"
    if not text:
        raise ManagementError(BAD_REQUEST, f"{which} must be a non-empty string type")
    try:
        if prefix is None:
            return False, text, names.canonical(text)
        return True, text, names.canonical(names.canonical(text) + "/#")
    except ValueError:
        raise ManagementError(BAD_REQUEST, f"{which} invalid - no tokens") from None


class ConfiguredAddresses:
    """The entities by name and identity, and the tree of their patterns."""

    def __init__(self) -> None:
        self.by_name: dict[str, AddressConfig] = {}
        self.by_identity: dict[int, AddressConfig] = {}
        self._tree: names.PatternTree[AddressConfig] = names.PatternTree()

    def add(self, config: AddressConfig) -> None:
        """Raises ManagementError 400 when name or pattern are taken."""
        if config.name in self.by_name:
            raise ManagementError(BAD_REQUEST, "Name conflicts with an existing entity")
        try:
            self._tree.add(config.pattern, config)
        except KeyError:
            raise ManagementError(BAD_REQUEST, "Already exists") from None
        self.by_name[config.name] = config
        self.by_identity[config.identity] = config

    def remove(self, config: AddressConfig) -> None:
        del self.by_name[config.name]
        del self.by_identity[config.identity]
        self._tree.remove(config.pattern)

    def match(self, name: str) -> AddressConfig | None:
        """The configuration of the mobile address `name`."""
        return self._tree.match(name)
