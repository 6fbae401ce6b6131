"""spaces.json and plans.json: valid entries, and the place and reason of what is wrong with others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from enmasse.model.addresses import Ttl
from enmasse.model.flavors import Flavor
from enmasse.model.jsonfile import parse
from enmasse.model.tenants.plans import AddressPlan, Credits, Plans, SpaceLimits, SpacePlan, parse_plans
from enmasse.model.tenants.spaces import Space, hosts_of, parse_spaces, space_file

FLAVORS = {
    "small": Flavor(type="queue", template_name="queue-persisted"),
    "news": Flavor(type="topic", template_name="topic-persisted"),
}
PLANS = Plans({"topics": AddressPlan(type="topic", flavor="news")}, {
    "basic": SpacePlan(), "one": SpacePlan(address_plans=("topics",), flavors=()), "none": SpacePlan(flavors=()),
})  # fmt: skip


def plans(entries: Any) -> tuple[Plans, list[str]]:
    good, problems = parse_plans(parse("plans.json", json.dumps(entries, indent=1).encode()), FLAVORS)
    return good, [str(problem) for problem in problems]


def spaces(entries: Any) -> tuple[dict[str, Space], list[str]]:
    good, problems = parse_spaces(parse("spaces.json", json.dumps(entries, indent=1).encode()), PLANS, FLAVORS)
    return good, [str(problem) for problem in problems]


def test_plans_of_addresses_and_of_spaces() -> None:
    good, problems = plans(
        {
            "queue-s": {
                "kind": "address", "type": "queue", "flavor": "small", "messageTtl": {"maximum": 60000},
                "maxSize": "1Mi", "credits": {"router": 0.01, "broker": 0.1},
            },
            "cast": {"kind": "address", "type": "multicast"},
            "basic": {
                "kind": "space", "addressPlans": ["queue-s", "cast", "cast"], "flavors": ["news"],
                "limits": {
                    "addresses": 100, "addressesByType": {"queue": 10, "topic": 0}, "connections": 1000,
                    "connectionsPerUser": 10, "linksPerConnection": 100, "messagesPerSecond": 5000,
                    "bytesPerSecond": "10Mi", "maxMessageSize": "1Mi", "storage": "1Gi", "memory": "64Mi",
                    "sessions": 500, "retained": 100, "wills": 100,
                },
                "creditLimits": {"router": 1, "broker": 2.5, "aggregate": 3},
            },
            "all": {"kind": "space"},
        }
    )  # fmt: skip
    assert not problems
    assert good.addresses == {
        "queue-s": AddressPlan(
            type="queue", flavor="small", message_ttl=Ttl(maximum=60000), max_size=1 << 20,
            credits=Credits(router=0.01, broker=0.1),
        ),
        "cast": AddressPlan(type="multicast"),
    }  # fmt: skip
    assert good.spaces == {
        "basic": SpacePlan(
            address_plans=("queue-s", "cast"), flavors=("news",),
            limits=SpaceLimits(
                addresses=100, addresses_by_type={"queue": 10, "topic": 0}, connections=1000, connections_per_user=10,
                links_per_connection=100, messages_per_second=5000, bytes_per_second=10 << 20,
                max_message_size=1 << 20, storage=1 << 30, memory=64 << 20, sessions=500, retained=100, wills=100,
            ),
            credit_limits=Credits(router=1.0, broker=2.5, aggregate=3.0),
        ),
        "all": SpacePlan(),
    }  # fmt: skip


QUEUE = {"kind": "address", "type": "queue", "flavor": "small"}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ([], "plans.json:2: p: must be an object such as"),
        ({}, "plans.json:2: p.kind: is missing; write 'address' or 'space'"),
        ({"kind": "broker"}, "plans.json:3: p.kind: is unknown; write 'address' or 'space'"),
        ({"kind": "address"}, "plans.json:2: p.type: is missing; write one of queue, topic, anycast, multicast"),
        ({"kind": "address", "type": "stack"}, "plans.json:4: p.type: must be one of queue"),
        ({"kind": "address", "type": "queue"}, "p.flavor: is missing: a queue needs one; flavors for it are small"),
        ({**QUEUE, "flavor": "news"}, "plans.json:5: p.flavor: 'news' is a flavor for topic, not for queue"),
        ({**QUEUE, "limits": {}}, "plans.json:6: p.limits: unknown key; known are kind, type, flavor"),
        ({**QUEUE, "messageTtl": {"maximum": 0}}, "plans.json:7: p.messageTtl.maximum: must be a whole number"),
        ({"kind": "address", "type": "anycast", "maxSize": 5}, "p.maxSize: does not apply to anycast"),
        ({**QUEUE, "credits": {"broker": -1}}, "p.credits.broker: must be a number from 0"),
        ({**QUEUE, "credits": {"aggregate": 1}}, "p.credits.aggregate: unknown key; known are router, broker"),
        ({"kind": "space", "addressPlans": "a"}, "p.addressPlans: must be an array of names, not a string"),
        ({"kind": "space", "addressPlans": ["none"]}, "p.addressPlans: no valid plan 'none' of kind 'address'"),
        ({"kind": "space", "addressPlans": ["p"]}, "p.addressPlans: no valid plan 'p' of kind 'address'"),
        ({"kind": "space", "flavors": ["none"]}, "plans.json:4: p.flavors: no flavor 'none' in flavors.json"),
        (
            {"kind": "space", "limits": 5},
            "p.limits: must be an object with addresses, addressesByType, users, connections",
        ),
        ({"kind": "space", "limits": {"user": 5}}, "plans.json:5: p.limits.user: unknown key; known are addresses"),
        ({"kind": "space", "limits": {"connections": True}}, "p.limits.connections: must be a whole number, not true"),
        ({"kind": "space", "limits": {"connectionsPerUser": 0}}, "connectionsPerUser: must be a whole number from 1"),
        ({"kind": "space", "limits": {"addressesByType": {"stack": 1}}}, "limits.addressesByType.stack: unknown key"),
        ({"kind": "space", "limits": {"storage": "1 GB"}}, "p.limits.storage: '1 GB' is no size"),
    ],
)
def test_an_invalid_plan_is_reported_with_its_place(entry: Any, expected: str) -> None:
    good, (problem,) = plans({"p": entry, "fine": {"kind": "space"}})
    assert expected in problem
    assert good == ({}, {"fine": SpacePlan()})


@pytest.mark.parametrize("name", ["", "a b", "-a", "a" * 64])
def test_illegal_names_of_plans(name: str) -> None:
    good, (problem,) = plans({name: {"kind": "space"}})
    assert not good.spaces and "a plan's name is made of" in problem


def test_address_spaces() -> None:
    good, problems = spaces(
        {
            "team-a": {
                "type": "standard",
                "plan": "basic",
                "hosts": ["a.example.com", "localhost", "team-a"],
                "gateways": 2,
                "routers": 1,
            },
            "team-b": {},
            "team-c": {"type": "brokered"},
            "team-d": {"type": "brokered", "flavor": "news", "plan": "one"},
        }
    )
    assert not problems
    assert good.pop("team-c") == Space(type="brokered")
    assert good.pop("team-d") == Space(type="brokered", flavor="news", plan="one")
    assert good == {
        "team-a": Space(plan="basic", hosts=("a.example.com", "localhost", "team-a"), gateways=2, routers=1),
        "team-b": Space(),
    }
    assert hosts_of(good) == {
        "a.example.com": "team-a", "localhost": "team-a", "team-a": "team-a", "team-b": "team-b",
    }  # fmt: skip
    assert space_file("team-a", "users.json") == "spaces/team-a/users.json"
    assert space_file("default", "users.json") == "users.json"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("x", 'spaces.json:7: b: must be an object such as {"plan": "small"'),
        ({"type": "broker"}, "b.type: must be one of standard, brokered"),
        ({"flavor": "small"}, "b.flavor: applies to an address space of type 'brokered'"),
        (
            {"type": "brokered", "flavor": "none"},
            "b.flavor: 'none' is no flavor for its broker; the space may have small",
        ),
        ({"type": "brokered", "flavor": "small", "plan": "one"}, "the space may have news"),
        ({"type": "brokered", "plan": "none"}, "b.flavor: is missing; the space may have none: define one"),
        ({"plan": "gold"}, "b.plan: no valid plan 'gold' of kind 'space'; those plans are basic, none, one"),
        ({"plan": 7}, "b.plan: must be a string, not a number"),
        ({"hosts": ["A.example"]}, "b.hosts: 'A.example' is not the name of a host in small letters"),
        ({"hosts": ["a..b"]}, "b.hosts: 'a..b' is not the name of a host"),
        ({"hosts": ["shared.example"]}, "b.hosts: 'shared.example' is a host of the address space 'a'"),
        ({"hosts": ["a"]}, "b.hosts: 'a' is a host of the address space 'a'"),
        ({"host": []}, "b.host: unknown key; known are type, flavor, plan, hosts, gateways, routers (did you mean"),
        ({"gateways": 0}, "b.gateways: "),
        ({"routers": 8}, "b.routers: "),
        ({"gateways": 65}, "b.gateways: "),
        ({"gateways": True}, "b.gateways: "),
    ],
)
def test_an_invalid_space_is_reported_with_its_place(entry: Any, expected: str) -> None:
    good, (problem,) = spaces({"a": {"hosts": ["shared.example"]}, "b": entry})
    assert expected in problem
    assert list(good) == ["a"]


@pytest.mark.parametrize("name", ["default", "Team", "a.b", "!!a", "a" * 64])
def test_illegal_names_of_spaces(name: str) -> None:
    good, (problem,) = spaces({name: {}})
    assert not good and problem.startswith("spaces.json:2: ")
