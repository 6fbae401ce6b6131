"""An edit of a large addresses.json is judged by what it changes: the outcome is that of judging the whole file."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enmasse.model.configuration import ADDRESSES, BROKERS, FLAVORS, Applied, apply, differing
from enmasse.model.jsonfile import Document, edited, parse
from tests.configserv.test_model import FLAVOR_FILE

FLAVORS_TEXT = json.dumps(FLAVOR_FILE).encode()
ENTRIES: tuple[Any, ...] = (
    {"type": "queue", "flavor": "q"},
    {"type": "queue", "flavor": "q", "deadletter": "dead"},
    {"type": "queue", "flavor": "q", "messageTtl": {"minimum": 1, "maximum": 5}},
    {"type": "topic", "flavor": "t"},
    {"type": "topic", "flavor": "t", "mqttDefault": True},
    {"store_and_forward": False, "multicast": True},
    {"type": "anycast"},
    {"type": "queue", "flavor": "unknown"},
    {"type": "queue", "flavour": "q"},
    {"type": "anycast", "flavor": []},
    17,
    {},
)
NAMES = (
    "dead",
    "a",
    "a/b",
    "a.b",
    "a/b/c",
    "b",
    "b/c.d",
    "c",
    "d",
    "e",
    "ü",
    "x{y",
    "z]",
    "q:r",
    'w"',
    "type",
    "flavor",
)
PIECES = (b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\n", b" ", b"\xff", b"null", b'"a": {},', b"\n,\n")


def write(entries: list[tuple[str, Any]], indent: int | None, raw: bool) -> bytes:
    """The file as people write it: a name may occur twice."""
    between = ", " if indent is None else ",\n"
    lines = [f"{json.dumps(n, ensure_ascii=raw)}: {json.dumps(v, indent=indent)}" for n, v in entries]
    return ("{\n" + between.join(lines) + "\n}\n").encode()


def both(before: Applied, content: bytes, flavors: bytes = FLAVORS_TEXT) -> Applied:
    """The outcome, after it was compared with that of judging the whole files."""
    contents = {ADDRESSES: content, FLAVORS: flavors, BROKERS: None}
    found = apply(contents, before)
    whole = apply(contents, msgspec.structs.replace(before, as_written=None))
    assert list(found.state.addresses.items()) == list(whole.state.addresses.items())
    assert (found.state, found.failed, found.problems) == (whole.state, whole.failed, whole.problems)
    assert sorted(found.changed) == sorted(differing(before.state.addresses, whole.state.addresses))
    assert found.as_written in (None, (content, flavors)) and (found.as_written is None) == (whole.as_written is None)
    return found


def change(entries: list[tuple[str, Any]], choose: random.Random) -> None:
    """One edit of a person: added, removed, changed, moved, renamed, or written twice."""
    entry = choose.choice(NAMES), choose.choice(ENTRIES[:7] if choose.random() < 0.8 else ENTRIES)
    place = choose.randint(0, len(entries))
    action = choose.choice(("add", "remove", "change", "move", "rename"))
    if action == "add" or not entries:
        if choose.random() < 0.1 or entry[0] not in dict(entries):
            entries.insert(place, entry)
        return
    place = min(place, len(entries) - 1)
    if action == "remove":
        del entries[place]
    elif action == "change":
        entries[place] = entries[place][0], entry[1]
    elif action == "move":
        entries.insert(choose.randint(0, len(entries) - 1), entries.pop(place))
    elif entry[0] not in dict(entries):
        entries[place] = entry[0], entries[place][1]


@settings(max_examples=300)
@given(st.integers(0, 2**64), st.sampled_from((None, 1, 2)), st.booleans())
def test_edits_have_the_outcome_of_the_whole_file(seed: int, indent: int | None, raw: bool) -> None:
    choose = random.Random(seed)
    entries: list[tuple[str, Any]] = [("dead", ENTRIES[0]), ("n1", ENTRIES[3]), ("n2", ENTRIES[6])]
    applied = both(Applied(), write(entries, indent, raw))
    for _ in range(8):
        for _ in range(choose.choice((0, 1, 1, 1, 2))):
            change(entries, choose)
        content = write(entries, indent, raw)
        if choose.random() < 0.2:  # a slip of the fingers
            place = choose.randrange(len(content))
            piece = choose.choice(PIECES)
            content = content[:place] + piece + content[place + choose.randint(0, 3) :]
        applied = both(applied, content)


@settings(max_examples=300)
@given(st.binary(max_size=12), st.integers(0, 200), st.integers(0, 12))
def test_any_bytes_in_a_file_have_the_outcome_of_the_whole_file(inserted: bytes, place: int, removed: int) -> None:
    content = write([("dead", ENTRIES[0]), ("a", ENTRIES[2]), ("b", ENTRIES[6]), ("c", ENTRIES[1])], 2, False)
    applied = both(Applied(), content)
    both(applied, content[:place] + inserted + content[place + removed :])


@pytest.mark.parametrize("place", [0, 500, 999])
@pytest.mark.parametrize("indent", [0, 2])
def test_only_what_has_changed_is_parsed(place: int, indent: int) -> None:
    entries: list[tuple[str, Any]] = [(f"n{number}", ENTRIES[number % 3 * 3]) for number in range(1000)]
    entries[0] = "dead", ENTRIES[0]
    before = write(entries, indent, False)
    assert parse(ADDRESSES, before).plain
    entries.insert(place + 1, ("new", ENTRIES[1]))
    edit = edited(before, write(entries, indent, False))
    assert edit is not None and "new" in edit.after and len(edit.after) <= 3
    del entries[place]
    edit = edited(before, write(entries, indent, False))
    assert edit is not None and entries[place][0] not in edit.before and len(edit.before) <= 4


def test_a_valid_edit_needs_no_second_look_at_the_whole_file(monkeypatch: pytest.MonkeyPatch) -> None:
    entries: list[tuple[str, Any]] = [(f"n/{number}", ENTRIES[6]) for number in range(10)]
    contents: dict[str, Any] = {ADDRESSES: write(entries, 2, False), FLAVORS: FLAVORS_TEXT}
    applied = apply(contents, Applied())
    parsed: list[str] = []

    def parse_and_note(file: str, data: bytes) -> Document:
        parsed.append(file)
        return parse(file, data)

    monkeypatch.setattr("enmasse.model.configuration.parse", parse_and_note)
    for name, entry in (("n/10", ENTRIES[0]), ("t", ENTRIES[3]), ("t/x", ENTRIES[3])):
        entries.insert(3, (name, entry))
        contents[ADDRESSES] = write(entries, 2, False)
        applied = apply(contents, applied)
        assert applied.changed == [name] and list(applied.state.addresses) == [name for name, _ in entries]
    assert not parsed
    entries.append(("t/y", ENTRIES[6]))
    contents[ADDRESSES] = write(entries, 2, False)
    applied = apply(contents, applied)
    assert parsed == [FLAVORS, ADDRESSES] or parsed == [ADDRESSES, FLAVORS]
    (problem,) = applied.problems
    assert problem.entry == "t/y" and "is below the topic 't'" in problem.reason and problem.line is not None


def test_a_brace_in_a_name_hides_where_entries_begin() -> None:
    content = write([("x{y", ENTRIES[6]), ("b", ENTRIES[6])], 2, False)
    assert not parse(ADDRESSES, content).plain
    applied = both(Applied(), content)
    assert applied.as_written is None


def test_an_edit_after_one_that_was_wrong_is_judged_as_a_whole() -> None:
    entries: list[tuple[str, Any]] = [("dead", ENTRIES[0]), ("a", ENTRIES[1]), ("b", ENTRIES[6])]
    applied = both(Applied(), write(entries, 2, False))
    assert applied.as_written is not None
    applied = both(applied, write([*entries, ("c", 17)], 2, False))
    assert applied.as_written is None and [problem.line for problem in applied.problems] == [14]
    applied = both(applied, write([*entries, ("c", ENTRIES[6])], 2, False))
    assert applied.as_written is not None and not applied.problems
    applied = both(applied, write(entries, 2, False), json.dumps({**FLAVOR_FILE, "q": 3}).encode())
    assert applied.as_written is None
