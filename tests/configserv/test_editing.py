"""Changes of single entries: which bytes change, what is refused, and what happens beside edits by hand."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.api.types import Change
from enmasse.cli.configuration import configfile
from enmasse.model import edits
from enmasse.model.configuration import ADDRESSES, FLAVORS, USERS, Applied, AppliedState, apply
from enmasse.model.merged import Content, FilePart, Unreadable
from enmasse.storage import files as files_module
from enmasse.storage.files import edit_file, locked
from services.configserv import editing
from services.configserv.drivers import FilesDriver, NotWritable
from services.configserv.editing import Refused, checked
from services.configserv.state import applied as in_force
from tests.cli.running import enmasse

FLAVOR = {"type": "queue", "templateName": "queue-persisted"}
QUEUE = {"type": "queue", "flavor": "f"}
TEXT = '{\n  "a": {"type": "anycast"},   \n\n  "b":{"flavor":"f" , "type":"queue"}, "c": {"type": "multicast"}\n}\n'


def world(addresses: str = TEXT, users: str | None = None) -> tuple[dict[str, Content], Applied]:
    contents: dict[str, Content] = {
        ADDRESSES: addresses.encode(),
        FLAVORS: json.dumps({"f": FLAVOR}).encode(),
        USERS: None if users is None else users.encode(),
    }
    return contents, apply(contents, Applied(state=AppliedState()))


def changed(change: Change, addresses: str = TEXT, users: str | None = None) -> tuple[str, dict[str, str]]:
    """The file after a change, and the etags."""
    contents, state = world(addresses, users)
    file = f"{change.kind}.json"
    data = contents[file]
    assert isinstance(data, bytes)
    texts, etags = checked(change, contents, [FilePart(file, data)], file, state)
    return texts.get(file, data).decode(), etags


@pytest.mark.parametrize("faulty", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        Change(kind="addresses", set={"new": QUEUE}),
        Change(kind="flavors", set={"g": FLAVOR}),
        Change(kind="users", set={"new": {}}),
    ],
    ids=lambda change: change.kind,
)
def test_an_edit_applies_the_model_twice(change: Change, faulty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """To check it, and to put it in force; also beside an entry that is wrong already."""
    contents, state = world(TEXT.replace("multicast", "unicast") if faulty else TEXT, "{}")
    assert bool(state.problems) is faulty
    counted = Mock(side_effect=apply)
    monkeypatch.setattr(editing, "apply", counted)
    monkeypatch.setattr(in_force, "apply", counted)
    file = f"{change.kind}.json"
    data = contents[file]
    assert isinstance(data, bytes)
    texts, _ = checked(change, contents, [FilePart(file, data)], file, state)
    after: dict[str, Content] = {**contents, **texts}
    now = in_force.AppliedConfiguration(Mock(configuration=lambda: AppliedState(), problems=list)).compute(after)
    assert (counted.call_count, bool(now.problems)) == (2, faulty)


def of(name: str, text: str = TEXT) -> str:
    """The etag of an address."""
    return changed(Change(kind="addresses", set={name: json.loads(text)[name]}), text)[1][name]


def test_only_the_entry_changes_all_other_bytes_stay() -> None:
    after, _ = changed(Change(kind="addresses", set={"b": {**QUEUE, "maxSize": "1Mi"}}, if_={"b": of("b")}))
    new = '"b": {"type": "queue", "flavor": "f", "maxSize": "1Mi"}'
    assert after == TEXT.replace('"b":{"flavor":"f" , "type":"queue"}', new)
    after, _ = changed(Change(kind="addresses", set={"d": {"type": "anycast"}}, if_={"d": None}))
    assert json.loads(after)["d"] == {"type": "anycast"} and after.startswith(TEXT[: TEXT.index("\n}")])
    after, _ = changed(Change(kind="addresses", remove=["a"], if_={"a": of("a")}))
    assert json.loads(after).keys() == {"b", "c"} and '"b":{"flavor":"f" , "type":"queue"}, "c"' in after


def test_the_same_entry_changes_nothing_however_it_is_written() -> None:
    same = {"type": "queue", "flavor": "f"}
    assert changed(Change(kind="addresses", set={"b": same}))[0] == TEXT
    assert of("b") == of("b", '{"b": {"store_and_forward": true, "multicast": false, "flavor": "f"}}')
    assert of("b") != of("b", '{"b": {"type": "queue", "flavor": "f", "maxSize": "1Mi"}}')


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        ({"a": None}, "already"),
        ({"a": "0" * 32}, "changed meanwhile"),
        ({"d": "0" * 32}, "is gone"),
        ({"d": "*"}, "is gone"),
    ],
)
def test_an_entry_that_is_another_one_is_not_overwritten(conditions: dict[str, Any], reason: str) -> None:
    name = next(iter(conditions))
    with pytest.raises(Refused, match=reason) as refused:
        changed(Change(kind="addresses", set={name: {"type": "multicast"}}, if_=conditions))
    assert refused.value.conflict


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"type": "queue"}, None),
        ({"type": "queue", "flavor": "none"}, "flavor"),
        ({"type": "anycast", "colour": "red"}, "colour"),
        ({"type": "queue", "flavor": "f", "deadletter": "nowhere"}, "deadletter"),
    ],
)
def test_what_would_be_invalid_is_refused_with_its_place(entry: dict[str, Any], field: str | None) -> None:
    with pytest.raises(Refused) as refused:
        changed(Change(kind="addresses", set={"new": entry}))
    (error, *_) = refused.value.errors
    assert (error.file, error.entry) == (ADDRESSES, "new") and error.line is not None and not refused.value.conflict
    assert field is None or error.field == field


def test_a_removal_that_breaks_another_entry_is_refused() -> None:
    text = json.dumps({"dead": QUEUE, "a": {**QUEUE, "deadletter": "dead", "expiry": "dead"}})
    with pytest.raises(Refused) as refused:
        changed(Change(kind="addresses", remove=["dead"]), text)
    errors = refused.value.errors
    assert [(error.entry, error.field) for error in errors] == [("a", "deadletter"), ("a", "expiry")]
    assert errors[1].reason == (
        "names 'dead', which is removed: change that first (`enmasse address set a expiry=`), or keep 'dead'"
    )


def test_other_entries_may_be_invalid_already() -> None:
    text = '{"bad": {"type": "nonsense"}, "a": {"type": "anycast"}}'
    after, _ = changed(Change(kind="addresses", set={"a": {"type": "multicast"}}), text)
    assert json.loads(after) == {"bad": {"type": "nonsense"}, "a": {"type": "multicast"}}


def test_a_change_of_thousands_of_entries_reads_the_file_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would stop every other change meanwhile."""
    texts: list[str] = []

    def parse(text: str, parse: Any = edits.parse) -> Any:
        texts.append(text)
        return parse(text)

    monkeypatch.setattr(edits, "parse", parse)
    entries = {"a": {"type": "multicast"}, **{f"n{number}": {"type": "anycast"} for number in range(2000)}}
    after, etags = changed(Change(kind="addresses", set=entries))
    assert len(json.loads(after)) == 2003 and etags.keys() == entries.keys() and len(texts) == 2


FLAVORS_TOO: dict[Any, Any] = {"flavors": {"g": FLAVOR}}


def test_a_check_may_count_entries_of_other_kinds_as_set() -> None:
    queue = {"type": "queue", "flavor": "g"}
    with pytest.raises(Refused, match="unknown flavor"):
        changed(Change(kind="addresses", set={"n": queue}, check=True))
    _, etags = changed(Change(kind="addresses", set={"n": queue}, with_=FLAVORS_TOO, check=True))
    assert etags.keys() == {"n"}
    topic = {"type": "topic", "templateName": "topic-persisted"}
    change = Change(kind="flavors", set={"f": topic}, with_={"addresses": {"b": {"type": "anycast"}}}, check=True)
    assert changed(change)[1].keys() == {"f"}  # no address uses it any more
    with pytest.raises(Refused, match="while addresses use it"):
        changed(Change(kind="flavors", set={"f": topic}, check=True))


def test_entries_of_other_kinds_are_for_a_check_of_files_that_can_be_read() -> None:
    entry = {"n": {"type": "anycast"}}
    with pytest.raises(Refused, match="is for a check"):
        changed(Change(kind="addresses", set=entry, with_=FLAVORS_TOO))
    with pytest.raises(Refused, match="belong into `set`"):
        changed(Change(kind="addresses", set=entry, with_={"addresses": entry}, check=True))
    contents, state = world()
    change = Change(kind="addresses", set=entry, with_=FLAVORS_TOO, check=True)
    for content, reason in ((b"{", "correct it first"), (Unreadable("it is locked"), "it is locked")):
        with pytest.raises(Refused, match=reason):
            checked(change, {**contents, FLAVORS: content}, [FilePart(ADDRESSES, TEXT.encode())], ADDRESSES, state)
    for empty in (None, ()):  # no flavors.json, no ConfigMap of flavors
        checked(change, {**contents, FLAVORS: empty}, [FilePart(ADDRESSES, TEXT.encode())], ADDRESSES, state)


def test_a_file_that_does_not_parse_is_left_as_it_is() -> None:
    contents, state = world()
    with pytest.raises(Refused, match="correct it first"):
        change = Change(kind="addresses", set={"n": {"type": "anycast"}})
        checked(change, contents, [FilePart(ADDRESSES, b'{"a": ')], ADDRESSES, state)
    with pytest.raises(Refused, match="occurs twice"):
        changed(Change(kind="addresses", set={"a": {"type": "anycast"}}), '{"a": {"type": "anycast"}, "a": {}}')


def test_hashes_stay_unless_the_entry_has_its_own() -> None:
    from enmasse.identity.proofs.passwords import hashed

    hash = hashed("a long enough password", random=True).password
    users = json.dumps({"u": {"password": hash, "permissions": []}})
    groups: dict[str, Any] = {"groups": []}
    after, _ = changed(Change(kind="users", set={"u": groups}), users=users)
    assert json.loads(after)["u"] == {"password": hash, "groups": []}
    after, _ = changed(Change(kind="users", set={"u": {**groups, "password": None, "scram": None}}), users=users)
    assert json.loads(after)["u"] == groups


names = st.text("abcdxyz", min_size=1, max_size=3)
space = st.sampled_from(["", " ", "\n", "\t", "\n\n  "])


@st.composite
def files(draw: st.DrawFn) -> str:
    """A file as people write it: entries with any white space between."""
    found = draw(st.lists(names, unique=True, max_size=5))
    parts = [
        f'{draw(space)}"{n}"{draw(space)}:{draw(space)}{{"type":{draw(space)}"anycast"}}{draw(space)}' for n in found
    ]
    return "{" + ",".join(parts) + (draw(space) if not parts else "") + "}" + draw(space)


@given(files(), st.lists(names, min_size=1, max_size=3, unique=True), st.booleans())
def test_any_change_of_any_file_leaves_every_other_entry_byte_for_byte(
    text: str, names: list[str], removes: bool
) -> None:
    before = {each.key: text[each.start : each.end] for each in edits.parse(text)}
    entries = {name: {"type": "multicast"} for name in names}
    change = Change(kind="addresses", remove=names) if removes else Change(kind="addresses", set=entries)
    after, _ = changed(change, text)
    found = {each.key: after[each.start : each.end] for each in edits.parse(after)}
    added = [] if removes else [name for name in names if name not in before]
    assert list(found) == [name for name in before if not (removes and name in names)] + added
    assert removes or {name: json.loads(after)[name] for name in names} == entries
    assert {k: v for k, v in found.items() if k not in names} == {k: v for k, v in before.items() if k not in names}


def add(file: Path, name: str) -> None:
    """What the driver does with one new entry."""
    edit_file(file, lambda before: edits.add((before or b"{}").decode(), name, {"type": "anycast"}).encode())


def test_edits_by_hand_and_by_the_service_lose_nothing_of_each_other(tmp_path: Path) -> None:
    """The hand puts a new file over the old one, without any lock, at any moment of a change by the service, once in
    each: as editors that warn of a file that was changed."""
    file = tmp_path / "addresses.json"
    file.write_text("{}\n")
    done: list[int] = []
    kept: list[str] = []

    def by_hand() -> None:
        seen = 0
        while len(done) < 150:
            if len(done) == seen:
                continue
            text = file.read_text()
            name = f"hand-{len(kept)}"
            new = tmp_path / "by-hand"
            new.write_text(edits.add(text, name, {}))
            if file.read_text() == text:
                os.replace(new, file)
                kept.append(name)
                seen = len(done)

    hand = threading.Thread(target=by_hand)
    hand.start()
    for number in range(150):
        add(file, f"service-{number}")
        done.append(number)
    hand.join()
    found = json.loads(file.read_text())
    # The hand may overwrite what came between its look and its rename: only the service promises to lose nothing.
    assert kept and [name for name in kept if name not in found] == []


@pytest.mark.parametrize("moment", ["taking", "put back"])
def test_a_file_that_an_editor_puts_back_in_the_moment_of_the_exchange_is_not_lost(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The editor renames the file away and puts its own there: when the service exchanges them there is none."""
    file = tmp_path / "addresses.json"
    file.write_text('{"old": {}}')
    exchange, calls = files_module._exchange, 0

    def put(name: str) -> None:
        (tmp_path / "by-hand").write_text(json.dumps({name: {}}))
        os.replace(tmp_path / "by-hand", file)

    def exchanged(one: Path, other: Path) -> bool:
        nonlocal calls
        calls += 1
        if moment == "put back" and calls == 1:
            put("by hand")
        if calls == (1 if moment == "taking" else 2):
            os.rename(file, tmp_path / "aside")
            try:
                return exchange(one, other)
            finally:
                if moment == "taking":
                    put("by hand")
        return exchange(one, other)

    monkeypatch.setattr(files_module, "_exchange", exchanged)
    add(file, "service")
    assert json.loads(file.read_text()) == {"by hand": {}, "service": {"type": "anycast"}}


ACL = "system.posix_acl_access"
FOR_ANOTHER = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", *entry)
    for entry in ((1, 6, 0xFFFFFFFF), (2, 6, 1001), (4, 4, 0xFFFFFFFF), (16, 6, 0xFFFFFFFF), (32, 0, 0xFFFFFFFF))
)
"""rw for the owner, rw for the user 1001, r for the group."""


@pytest.mark.parametrize("by", ["service", "command"])
def test_an_edit_leaves_owner_mode_and_acl(by: str, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    assert enmasse("init", folder).returncode == 0
    file = folder / "addresses.json"
    if os.geteuid() == 0:
        os.chown(file, 1234, 2345)
    file.chmod(0o666)
    os.setxattr(file, ACL, FOR_ANOTHER)
    os.setxattr(file, "user.note", b"of a person")
    before = file.stat()
    mask = os.umask(0o077)
    try:
        if by == "service":
            add(file, "service")
        else:
            done = enmasse("address", "add", "service", "--type", "anycast", "--config", folder)
            assert done.returncode == 0, done.stderr
    finally:
        os.umask(mask)
    after = file.stat()
    assert "service" in json.loads(file.read_text())
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
    assert (os.getxattr(file, ACL), os.getxattr(file, "user.note")) == (FOR_ANOTHER, b"of a person")


def test_a_file_that_would_lose_its_owner_is_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "addresses.json"
    file.write_text("{}")
    refuse = PermissionError(errno.EPERM, "Operation not permitted")
    found = file.stat()
    monkeypatch.setattr(Path, "stat", lambda self, **_: os.stat_result((*found[:4], 4321, *found[5:])))
    monkeypatch.setattr(os, "fchown", Mock(side_effect=refuse))
    with pytest.raises(PermissionError, match="belongs to another user"):
        add(file, "service")
    assert file.read_text() == "{}" and os.listdir(tmp_path) == ["addresses.json"]


def test_a_command_does_not_undo_what_an_editor_has_put_there_meanwhile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "addresses.json"
    file.write_text('{"by hand": {}}')
    with pytest.raises(SystemExit):
        configfile.write(file, "{}", '{"command": {}}')
    assert file.read_text() == '{"by hand": {}}' and "was changed by another program" in capsys.readouterr().err


def test_commands_and_the_service_lose_nothing_of_each_other(tmp_path: Path) -> None:
    file = tmp_path / "addresses.json"
    file.write_text("{}\n")

    def work(who: str) -> None:
        for number in range(40):
            with locked(tmp_path):
                add(file, f"{who}-{number}")

    threads = [threading.Thread(target=work, args=(who,)) for who in ("a", "b", "c")]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(json.loads(file.read_text())) == 120


KILLED = """
import sys
from pathlib import Path
from enmasse.storage.files import edit_file
from enmasse.model import edits
file, first = Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
for number in range(first, 10**9):
    edit_file(file, lambda before: edits.add(before.decode(), f"n{number}", {"fill": "x" * 20_000}).encode())
    print(number, flush=True)
"""


def test_a_kill_in_the_middle_of_a_change_leaves_the_file_before_or_after_it(tmp_path: Path) -> None:
    file = tmp_path / "addresses.json"
    file.write_text('{"first": {}}\n')
    first = 0
    for after in (1, 3, 2, 5):
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(file), str(first)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            done = [int(process.stdout.readline()) for _ in range(after)]
            process.send_signal(signal.SIGKILL)
            done += [int(line) for line in process.stdout if line.strip().isdigit()]
        found = json.loads(file.read_text())
        numbers = [int(name[1:]) for name in found if name != "first"]
        assert "first" in found and numbers == list(range(len(numbers)))
        assert len(numbers) in (done[-1] + 1, done[-1] + 2)
        first = len(numbers)


def test_a_missing_file_is_not_made_anew_with_one_entry(tmp_path: Path) -> None:
    """It would remove all others; users.json may be made, of the first user."""

    async def work() -> None:
        driver = FilesDriver(str(tmp_path))
        with pytest.raises(NotWritable, match="missing"):
            await driver.edit(ADDRESSES, lambda sources, home: {home: b'{"a": {}}'})
        await driver.edit(USERS, lambda sources, home: {home: edits.add(sources[0].data.decode(), "u", {}).encode()})

    asyncio.run(work())
    assert json.loads((tmp_path / USERS).read_text()) == {"u": {}}
    assert (tmp_path / USERS).stat().st_mode & 0o777 == 0o600 and not (tmp_path / ADDRESSES).exists()
