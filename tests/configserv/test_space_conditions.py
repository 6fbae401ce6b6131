"""Statuses of custom resources: the condition Quota of an AddressSpace, without numbers that change; and when there is
one to be written."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.kubernetes.api_server import Api
from enmasse.model import feeds
from enmasse.model.configuration import AppliedState
from enmasse.model.merged import FilePart
from enmasse.model.tenants.plans import SpaceLimits
from services.configserv.resources.object_kinds import ADDRESS, ADDRESS_SPACE, ResourceKey
from services.configserv.resources.object_mapping import Became, MappedResources
from services.configserv.resources.object_status import shown, status_of
from services.configserv.resources.object_views import CustomResources, ResourceSettings
from tests.kit.running import asyncio_test

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


@asyncio_test
async def test_an_address_is_looked_at_when_it_is_in_force_whatever_is_made_meanwhile() -> None:
    def mapped(*addresses: str, data: bytes = b"{}") -> MappedResources:
        parts = tuple(FilePart(f"address/{name}", data) for name in addresses)
        keys = {name: ResourceKey(ADDRESS, "ns", name) for name in addresses}
        became = {key: Became("", name, f"address/{name}") for name, key in keys.items()}
        space = ResourceKey(ADDRESS_SPACE, "ns", "one")
        return MappedResources({"addresses.json": parts}, {**became, space: Became("one", "", "addressspace/one")})

    resources = CustomResources(ResourceSettings(), Api(None, "ns", (1, 1)), lambda *_: None, users=False)
    in_force = mapped("a", "b").parts
    assert not resources.taken(in_force)(ResourceKey(ADDRESS, "ns", "a")), "nothing is known yet"

    def taken(now: MappedResources) -> list[str]:
        resources.mapped, resources.ready = now, True
        is_taken = resources.taken(in_force)
        return [key.name for key in now.became if is_taken(key)]

    assert taken(mapped("a", "b")) == ["a", "b", "one"]
    assert taken(mapped("a", "b", "c")) == ["a", "b"], "and not those that come, nor what is about all"
    assert taken(mapped("a", "b", data=b"[]")) == []
