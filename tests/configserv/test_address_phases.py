"""Phases: from the configuration and what reporters say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from enmasse.model import feeds
from enmasse.model.configuration import Applied
from enmasse.model.names import AddressName
from services.configserv import reported_readiness
from services.configserv.address_phases import Merger
from services.configserv.reported_readiness import TooMany
from tests.configserv.test_model import FLAVOR_FILE, applied

READY = feeds.Readiness(ready=True)


def report(addresses: dict[str, feeds.Readiness], removed: list[str] | None = None) -> feeds.ReadinessReport:
    named = {AddressName(name): readiness for name, readiness in addresses.items()}
    return feeds.ReadinessReport(addresses=named, removed=[*map(AddressName, removed or [])])


def statuses(merger: Merger) -> dict[str, Any]:
    return {status["name"]: status for status in map(json.loads, merger.pieces)}


def phases(merger: Merger) -> dict[str, str]:
    found = statuses(merger)
    for status in found.values():
        assert status["ready"] == (status["phase"] == "Active")
    return {name: status["phase"] for name, status in found.items()}


def configured(addresses: Any, last: Applied | None = None) -> Applied:
    return applied(addresses, last=last.state if last is not None else None)


FILE = {"q": {"type": "queue", "flavor": "q"}, "a": {"type": "anycast"}}


def test_an_address_needs_the_word_of_those_who_make_it() -> None:
    merger = Merger(["ragent", "storage_controller"])
    merger.configure(configured(FILE))
    assert phases(merger) == {"q": "Pending", "a": "Pending"}
    assert statuses(merger)["q"]["message"] == "waits for ragent, storage_controller"
    assert merger.report("ragent", report({"q": READY, "a": READY}), full=True)
    assert phases(merger) == {"q": "Pending", "a": "Active"}
    merger.report("storage_controller", report({"q": feeds.Readiness(ready=False, message="making it")}), full=True)
    assert phases(merger)["q"] == "Configuring"
    assert statuses(merger)["q"]["message"] == "making it"
    now = feeds.Readiness(ready=True, components=("broker-1",), messages=3, consumers=1)
    merger.report("storage_controller", report({"q": now}), full=False)
    status = statuses(merger)["q"]
    assert (status["phase"], status["components"], status["messages"], status["consumers"]) == (
        "Active",
        ["broker-1"],
        3,
        1,
    )
    merger.report("ragent", report({"q": feeds.Readiness(ready=False, failed=True, message="no")}), full=False)
    assert phases(merger) == {"q": "Failed", "a": "Active"}
    assert merger.forget("ragent")
    assert phases(merger) == {"q": "Pending", "a": "Pending"}
    assert merger.counts() == {"Pending": 2}


def test_without_a_storage_controller() -> None:
    merger = Merger(["ragent"])
    merger.configure(configured(FILE))
    merger.report("ragent", report({"q": READY, "a": READY}), full=True)
    assert phases(merger) == {"q": "Active", "a": "Active"}


def test_a_full_report_forgets_what_it_does_not_name() -> None:
    merger = Merger(["ragent"])
    merger.configure(configured(FILE))
    merger.report("ragent", report({"q": READY, "a": READY}), full=True)
    assert merger.report("ragent", report({"q": READY}), full=True)
    assert phases(merger) == {"q": "Active", "a": "Pending"}
    assert not merger.report("ragent", report({"q": READY}), full=True)


def test_a_removed_address_is_terminating_while_somebody_names_it() -> None:
    merger = Merger(["ragent", "storage_controller"])
    first = configured(FILE)
    merger.configure(first)
    merger.report("ragent", report({"q": READY, "a": READY}), full=True)
    kept = feeds.Readiness(ready=False, message="holds 5 messages", messages=5)
    merger.report("storage_controller", report({"q": kept}), full=True)
    assert merger.configure(configured({}, first))
    assert phases(merger) == {"q": "Terminating", "a": "Terminating"}
    status = statuses(merger)["q"]
    assert (status["type"], status["flavor"], status["message"]) == ("queue", "q", "holds 5 messages")
    merger.report("ragent", report({}, removed=["q", "a"]), full=False)
    assert phases(merger) == {"q": "Terminating"}
    merger.report("storage_controller", report({}, removed=["q"]), full=False)
    assert phases(merger) == {} and merger.phase(AddressName("q")) is None


def test_invalid_entries() -> None:
    merger = Merger(["ragent"])
    first = configured({"a": {"type": "anycast"}})
    merger.configure(first)
    merger.report("ragent", report({"a": READY}), full=True)
    second = configured({"a": {"type": "nix"}, "b": {"type": "queue"}}, first)
    assert merger.configure(second)
    found = statuses(merger)
    assert (found["a"]["phase"], found["b"]["phase"]) == ("Active", "Failed")
    assert found["a"]["message"].startswith("addresses.json:1: a.type: must be one of")
    assert found["a"]["message"].endswith("the last valid entry applies")
    assert found["b"]["message"].startswith("flavor: is missing")
    assert found["b"]["type"] == "queue"
    assert merger.configure(configured({"a": {"type": "anycast"}}, second))
    assert statuses(merger)["a"]["message"] == "" and "b" not in statuses(merger)


def test_a_reporter_names_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reported_readiness, "MAX_REPORTED", 3)
    merger = Merger(["ragent"])
    merger.configure(configured({}))
    merger.report("ragent", report({"a": READY, "b": READY}), full=True)
    for addresses, full in (({"c": READY, "d": READY}, False), (dict.fromkeys("abcd", READY), True)):
        with pytest.raises(TooMany):
            merger.report("ragent", report(addresses), full=full)
    assert phases(merger) == {"a": "Terminating", "b": "Terminating"}


def test_one_changed_address_is_the_only_one_merged() -> None:
    merger = Merger(["ragent"])
    many = {f"a{number}": {"type": "anycast"} for number in range(1000)}
    first = configured(many)
    merger.configure(first)
    merger.report("ragent", report(dict.fromkeys(many, READY)), full=True)
    merged: list[str] = []
    status = merger._status
    merger._status = lambda name: merged.append(name) or status(name)  # type: ignore[method-assign,func-returns-value]  # replaced by the test
    merger.report("ragent", report({"a7": feeds.Readiness(ready=False), "a8": READY}), full=False)
    merger.configure(configured({**many, "a9": {"type": "multicast"}, "new": {"type": "anycast"}}, first))
    assert sorted(merged) == ["a7", "a9", "new"]
    assert list(phases(merger))[-1] == "new"


def test_what_is_in_memory_says_so_also_when_it_is_ready() -> None:
    merger = Merger(["ragent"])
    volatile: dict[str, Any] = {**FLAVOR_FILE, "q": {"type": "queue", "templateName": "queue-inmemory"}}
    persisted: dict[str, Any] = {**FLAVOR_FILE, "q": {"type": "queue", "templateName": "queue-persisted"}}
    first = applied(FILE, flavors=volatile)
    merger.configure(first)
    merger.report("ragent", report({"q": READY, "a": READY}), full=True)
    found = statuses(merger)
    assert (found["q"]["ready"], found["q"]["message"]) == (True, "in memory: messages are lost with their broker")
    assert found["a"]["message"] == ""
    merger.report("ragent", report({"q": feeds.Readiness(ready=False, message="away")}), full=False)
    assert statuses(merger)["q"]["message"] == "away; in memory: messages are lost with their broker"
    assert merger.configure(applied(FILE, flavors=persisted, last=first.state)) == {"q"}
    assert statuses(merger)["q"]["message"] == "away"
