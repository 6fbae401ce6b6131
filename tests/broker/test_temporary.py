"""Addresses for the life of a link, in the broker core."""

from __future__ import annotations

import pytest

from services.broker.core import wildcards
from services.broker.core.routing import catalogue
from tests.broker.sansio import Core


@pytest.mark.parametrize("kind", ["ANYCAST", "MULTICAST"])
def test_ending_one_costs_no_look_at_the_others(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may leave thousands behind when it goes: what that costs must not grow with their square."""
    broker = Core().broker
    names = [f"temporary-{n}" for n in range(200)]
    for name in names:
        broker.catalogue.create_temporary(name, kind, "")
    looks = 0
    parents = wildcards.parents

    def counted(name: str) -> object:
        nonlocal looks
        looks += 1
        return parents(name)

    monkeypatch.setattr(catalogue, "parents", counted)
    for name in names:
        broker.catalogue.delete_address(name, force=True)
    assert looks <= len(names)
    assert not broker.catalogue.queues and not any(name in broker.catalogue.addresses for name in names)
