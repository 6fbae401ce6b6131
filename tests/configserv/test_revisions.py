"""Who has seen what, and which files are therefore applied. No process, no clock."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.model import feeds
from enmasse.model.configuration import ADDRESSES, BROKERS, FLAVORS, Applied
from enmasse.model.names import AddressName
from services.configserv.address_phases import Merger
from services.configserv.revisions import ABSENT, EVERYTHING, Revisions
from tests.configserv.test_model import applied

BOTH = ("ragent", "storage_controller")
AGENTS = ("addresses", "flavors", "placements")
STORAGES = ("addresses", "flavors")
READY = feeds.Readiness(ready=True)


def begun(reporters: tuple[str, ...] = BOTH) -> Revisions:
    """Revision 1: addresses and flavors are there, nobody reports yet."""
    found = Revisions(reporters)
    found.change(("addresses", "flavors"))
    found.read({ADDRESSES: "a1", FLAVORS: "f1"})
    return found


def all_see(found: Revisions, **pending: dict[str, str]) -> None:
    """Both reporters have the newest snapshots of all."""
    for name, followed in (("ragent", AGENTS), ("storage_controller", STORAGES)):
        found.report(name, {feed: found.of(feed) for feed in followed}, pending.get(name, {}))


def test_nothing_is_applied_before_every_reporter_has_seen_it() -> None:
    found = begun()
    assert not found.settle() and found.config == {}
    assert found.horizon("ragent") == ABSENT
    found.report("ragent", {"addresses": 1, "flavors": 1, "placements": 0}, {})
    found.report("storage_controller", {"addresses": 0, "flavors": 1}, {})
    assert not found.settle() and found.config == {}
    assert found.report("storage_controller", {"addresses": 1, "flavors": 1}, {}) is True
    assert found.settle() and found.config == {ADDRESSES: "a1", FLAVORS: "f1"}
    assert not found.settle()
    # One that goes takes nothing back: what was applied was applied.
    found.forget("storage_controller")
    assert not found.settle() and len(found.config) == 2
    found.read({ADDRESSES: "a2", FLAVORS: "f1"})
    assert not found.settle() and found.config[ADDRESSES] == "a1"


def test_what_changes_nothing_is_applied_when_the_newest_was_seen() -> None:
    found = begun()
    found.read({ADDRESSES: "other white space", FLAVORS: "f1"})
    all_see(found)
    assert found.settle() and found.config[ADDRESSES] == "other white space"
    found.read({ADDRESSES: "only errors", FLAVORS: "f1"})
    assert found.settle() and found.config[ADDRESSES] == "only errors"


def test_a_reporter_is_as_far_as_the_oldest_of_what_it_has_not_the_newest_of() -> None:
    found = begun()
    found.report("ragent", {"addresses": 1, "flavors": 1, "placements": 0}, {})
    assert found.horizon("ragent") == EVERYTHING, "there are no placements it could have missed"
    found.change(("placements",))  # 2
    assert found.horizon("ragent") == 0
    found.report("ragent", {"addresses": 1, "flavors": 1, "placements": 2}, {})
    assert found.horizon("ragent") == EVERYTHING
    found.change(("addresses",))  # 3
    found.change(("placements",))  # 4
    assert found.horizon("ragent") == 1
    found.report("ragent", {"addresses": 3, "flavors": 1, "placements": 2}, {})
    assert found.horizon("ragent") == 2
    found.lose("placements")
    assert found.horizon("ragent") == EVERYTHING


def test_pending_work_holds_back_the_file_that_it_comes_from() -> None:
    found = begun()
    all_see(found, storage_controller={"flavors": "a broker is being started"})
    assert found.settle() and found.config == {ADDRESSES: "a1"}
    all_see(found)
    assert found.settle() and found.config == {ADDRESSES: "a1", FLAVORS: "f1"}
    all_see(found, ragent={"addresses": "being configured"})
    assert not found.settle() and len(found.config) == 2, "nothing new was read"


def test_a_reporter_that_does_not_state_what_it_has_seen_is_believed() -> None:
    found = begun()
    for reporter in BOTH:
        found.report(reporter, None, {})
    assert found.settle() and found.config == {ADDRESSES: "a1", FLAVORS: "f1"}


def test_nobody_needed_is_nobody_waited_for() -> None:
    found = begun(())
    assert found.settle() and found.config == {ADDRESSES: "a1", FLAVORS: "f1"}


@pytest.mark.parametrize("seen", [False, True], ids=["on its way", "in force"])
def test_back_to_what_it_was_is_not_as_if_nothing_had_been(seen: bool) -> None:
    found = begun()
    all_see(found)
    found.settle()
    found.change(("addresses",))
    found.read({ADDRESSES: "a2", FLAVORS: "f1"})
    if seen:
        all_see(found)
    found.settle()
    assert found.config[ADDRESSES] == ("a2" if seen else "a1")
    found.change(("addresses",))
    found.read({ADDRESSES: "a1", FLAVORS: "f1"})
    assert not found.settle() and found.config.get(ADDRESSES) == ("a2" if seen else None)
    all_see(found)
    assert found.settle() and found.config[ADDRESSES] == "a1"


@pytest.mark.parametrize("seen", [False, True], ids=["on its way", "in force"])
def test_brokers_json_is_gone_when_other_placements_are_in_force(seen: bool) -> None:
    found = begun()
    all_see(found)
    found.settle()
    files = dict(found.config)
    found.change(("placements",))
    found.read({**files, BROKERS: "b1"})
    if seen:
        all_see(found)
    assert found.settle() is seen
    found.lose("placements")
    found.read(files)
    assert not found.settle() and found.config[BROKERS] == "b1", "it may be in force by now"
    all_see(found)
    assert not found.settle(), "nobody has said what is to be instead"
    found.change(("placements",))
    assert not found.settle()
    all_see(found)
    assert found.settle() and found.config == files


FEED = st.sampled_from(AGENTS)
CONTENT = st.sampled_from(["x", "y", "z", None])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("edit"), st.sampled_from([ADDRESSES, FLAVORS, BROKERS]), CONTENT),
        st.tuples(st.just("see"), st.sampled_from(BOTH), FEED),
        st.tuples(st.just("go"), st.sampled_from(BOTH), st.none()),
    ),
    max_size=40,
)


@given(STEPS)
def test_what_is_shown_as_applied_is_in_force_with_every_reporter_that_is_there(steps: list[Any]) -> None:
    """Each feed is made of its file alone; a reporter has in force the content of the snapshot that it saw last."""
    made = {ADDRESSES: "addresses", FLAVORS: "flavors", BROKERS: "placements"}
    files: dict[str, str | None] = {ADDRESSES: "x", FLAVORS: "x", BROKERS: None}
    found = Revisions(BOTH)
    found.change(AGENTS)
    content = {(feed, 1): files[file] for file, feed in made.items()}
    found.read({file: text for file, text in files.items() if text is not None})
    seen = {name: dict.fromkeys(AGENTS, 0) for name in BOTH}
    for what, of, which in steps:
        if what == "edit" and (which is not None or of == BROKERS):
            files[of] = which
            if content[made[of], found.of(made[of])] != which:
                found.change((made[of],))
                content[made[of], found.number] = which
            found.read({file: text for file, text in files.items() if text is not None})
        elif what == "see":
            seen[of][which] = found.of(which)
            found.report(of, seen[of], {})
        elif what == "go":
            seen[of] = dict.fromkeys(AGENTS, 0)
            found.forget(of)
        found.settle()
        for file, feed in made.items():
            if files[file] == found.config.get(file):
                for name in BOTH:
                    in_force = content.get((feed, seen[name][feed]), "nothing yet")
                    assert found.horizon(name) == ABSENT or in_force == files[file] or seen[name][feed] == 0
    for name in BOTH:
        found.report(name, {feed: found.of(feed) for feed in AGENTS}, {})
    found.settle()
    assert found.config == {file: text for file, text in files.items() if text is not None}


# phases


QUEUES = {"q": {"type": "queue", "flavor": "q"}, "r": {"type": "queue", "flavor": "r"}}
DIRECT = {"a": {"type": "anycast"}}
FLAVORED = {
    "q": {"type": "queue", "templateName": "queue-persisted"},
    "r": {"type": "queue", "templateName": "queue-persisted"},
}


class ReportedSuite:
    """A merger with its two reporters."""

    def __init__(self) -> None:
        self.merger = Merger(BOTH)
        self.last: Applied | None = None
        self.seen = {"ragent": dict.fromkeys(AGENTS, 0), "storage_controller": dict.fromkeys(STORAGES, 0)}

    def configure(self, addresses: Any, flavors: Any = FLAVORED, *changed: str) -> set[AddressName]:
        self.merger.revisions.change(changed or ("addresses", "flavors"))
        self.last = applied(addresses, flavors, last=self.last.state if self.last is not None else None)
        return self.merger.configure(self.last)

    def report(self, reporter: str, *names: str, saw: tuple[str, ...] = (), **more: Any) -> set[AddressName]:
        for feed in saw:
            self.seen[reporter][feed] = self.merger.revisions.of(feed)
        body = feeds.ReadinessReport(
            addresses=dict.fromkeys(map(AddressName, names), READY), seen=dict(self.seen[reporter]), **more
        )
        return self.merger.report(reporter, body, full=False)

    def phases(self) -> dict[str, str]:
        return {status["name"]: status["phase"] for status in map(json.loads, self.merger.pieces)}

    def message(self, name: str) -> str:
        piece = self.merger.piece(AddressName(name))
        assert piece is not None
        found: str = json.loads(piece)["message"]
        return found


@pytest.fixture
def told() -> ReportedSuite:
    """All is Active, and everything was seen."""
    found = ReportedSuite()
    found.configure({**QUEUES, **DIRECT})
    found.report("ragent", "q", "r", "a", saw=("addresses", "flavors"))
    found.report("storage_controller", "q", "r", saw=STORAGES)
    assert found.phases() == {"q": "Active", "r": "Active", "a": "Active"}
    return found


def test_a_changed_address_is_active_again_when_all_it_needs_have_seen_that(told: ReportedSuite) -> None:
    changed = {**QUEUES, **DIRECT, "q": {**QUEUES["q"], "maxSize": 5}}
    assert told.configure(changed, FLAVORED, "addresses") == {"q"}
    assert told.phases() == {"q": "Configuring", "r": "Active", "a": "Active"}
    assert told.message("q") == "its last change waits for ragent, storage_controller"
    assert told.report("ragent", saw=("addresses",)) == {"q"}
    assert told.message("q") == "its last change waits for storage_controller"
    assert told.report("storage_controller", saw=("addresses",)) == {"q"}
    assert told.phases() == {"q": "Active", "r": "Active", "a": "Active"}
    assert told.report("storage_controller", saw=("addresses",)) == set()


def test_an_anycast_address_waits_for_the_agent_alone(told: ReportedSuite) -> None:
    told.configure({**QUEUES, "a": {"type": "multicast"}}, FLAVORED, "addresses")
    assert told.phases() == {"q": "Active", "r": "Active", "a": "Configuring"}
    assert told.report("ragent", saw=("addresses",)) == {"a"}
    assert told.phases()["a"] == "Active"


def test_what_has_a_changed_flavor_waits_too(told: ReportedSuite) -> None:
    bigger = {**FLAVORED, "r": {**FLAVORED["r"], "templateParameters": {"BROKERS": 2}}}
    assert told.configure({**QUEUES, **DIRECT}, bigger, "flavors") == {"r"}
    assert told.phases() == {"q": "Active", "r": "Configuring", "a": "Active"}
    told.report("ragent", saw=("flavors",))
    assert told.report("storage_controller", saw=("flavors",)) == {"r"}
    assert told.phases()["r"] == "Active"


def test_what_lies_elsewhere_waits_for_the_agent(told: ReportedSuite) -> None:
    told.merger.revisions.change(("placements",))
    assert told.merger.placed([AddressName("q")]) == {"q"}
    assert told.message("q") == "its last change waits for ragent"
    # It reports something of others first, then that it is not ready, and last that it is.
    told.report("ragent", "r")
    assert told.phases()["q"] == "Configuring"
    not_yet = feeds.ReadinessReport(
        addresses={AddressName("q"): feeds.Readiness(ready=False, message="on its way")},
        seen={**told.seen["ragent"], "placements": told.merger.revisions.number},
    )
    told.merger.report("ragent", not_yet, full=False)
    assert (told.phases()["q"], told.message("q")) == ("Configuring", "on its way")
    told.report("ragent", "q", saw=("placements",))
    assert told.phases()["q"] == "Active"


def test_what_comes_back_is_not_what_it_was(told: ReportedSuite) -> None:
    """Removed and wanted again before anybody has noticed: what was said of it then does not count."""
    told.configure(DIRECT, FLAVORED, "addresses")
    assert told.phases() == {"a": "Active", "q": "Terminating", "r": "Terminating"}
    told.configure({**QUEUES, **DIRECT}, FLAVORED, "addresses")
    assert told.phases() == {"q": "Configuring", "r": "Configuring", "a": "Active"}
    told.report("ragent", saw=("addresses",))
    told.report("storage_controller", saw=("addresses",))
    assert set(told.phases().values()) == {"Active"}


def test_what_is_gone_is_gone_when_the_agent_knows(told: ReportedSuite) -> None:
    told.configure(DIRECT, FLAVORED, "addresses")
    told.report("ragent", saw=("addresses",), removed=["q", "r"])
    told.merger.revisions.change(("placements",))
    told.merger.placed([AddressName("q"), AddressName("r")])
    told.report("storage_controller", saw=("addresses",), removed=["q", "r"])
    assert told.phases() == {"a": "Active", "q": "Terminating", "r": "Terminating"}
    assert told.message("q") == "its removal waits for ragent"
    assert told.report("ragent", saw=("placements",)) == {"q", "r"}
    assert told.phases() == {"a": "Active"}


def test_one_changed_address_costs_the_work_for_one(told: ReportedSuite) -> None:
    many = {f"a{number}": {"type": "anycast"} for number in range(1000)}
    told.configure(many, FLAVORED, "addresses")
    told.report("ragent", *many, saw=("addresses",))
    merged: list[str] = []
    status = told.merger._status
    told.merger._status = lambda name: merged.append(name) or status(name)  # type: ignore[method-assign,func-returns-value]  # replaced by the test
    told.configure({**many, "a7": {"type": "multicast"}}, FLAVORED, "addresses")
    told.report("ragent", saw=("addresses",))
    assert merged == ["a7", "a7"]
