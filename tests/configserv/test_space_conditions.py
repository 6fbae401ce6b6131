"""The condition Quota of an AddressSpace: which limits of its plan are used up, without numbers that change."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.model import feeds
from enmasse.model.configuration import AppliedState
from enmasse.model.tenants.plans import SpaceLimits
from services.configserv.resources.object_kinds import ADDRESS_SPACE, ResourceKey
from services.configserv.resources.object_mapping import Became
from services.configserv.resources.object_status import shown, status_of

LIMITS = SpaceLimits(users=3, connections=5, storage=1000, wills=0, messages_per_second=10)


@pytest.mark.parametrize(
    ("used", "full"),
    [
        ({}, ""),
        ({"connections": 4, "storage": 999, "messagesPerSecond": 10}, ""),
        ({"connections": 5, "storage": 1001}, "connections, storage"),
        ({"users": 3}, "users"),
    ],
)
def test_the_condition_names_what_is_used_up(used: dict[str, int], full: str) -> None:
    status = feeds.Status(spaces={"one": feeds.SpaceUse(plan="small", limits=LIMITS, used=used)})
    item: dict[str, Any] = {"metadata": {"name": "one", "generation": 1}, "spec": {}}
    key, became = ResourceKey(ADDRESS_SPACE, "messaging", "one"), Became("one", "", "addressspace/one")
    found = status_of(key, item, became, shown(status, {}, {}, AppliedState()))
    quota = {each["type"]: each for each in found["conditions"]}["Quota"]
    assert (quota["status"], quota["reason"]) == (("False", "Exceeded") if full else ("True", "Within"))
    assert full in quota["message"] and bool(full) is bool(quota["message"])
    assert found["isReady"]
