"""`enmasse init` and `enmasse address`: what they write, what they refuse, what they leave alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.cli.commands.suite.status import file_hashes
from enmasse.model import edits
from enmasse.model.configuration import Applied, apply
from enmasse.model.flavors import IN_MEMORY
from enmasse.model.names import AddressName
from tests.cli.running import enmasse, free_offset
from tests.kit.waiting import DEADLINE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert enmasse("init", tmp_path / "c").returncode == 0
    return tmp_path / "c"


def edit(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return enmasse("address", arguments[0], "--config", folder, "--port-offset", free_offset(), *arguments[1:])


def test_init_writes_a_valid_starting_point(folder: Path) -> None:
    contents = {name: (folder / name).read_bytes() for name in ("addresses.json", "flavors.json")}
    applied = apply(contents, Applied())
    assert not applied.problems and not applied.failed
    assert {name: a.type for name, a in applied.state.addresses.items()} == {
        "myqueue": "queue", "mytopic": "topic", "mqtt": "topic", "anycast": "anycast", "broadcast": "multicast",
    }  # fmt: skip
    flavors = applied.state.flavors
    assert {name: (f.type, f.persisted) for name, f in flavors.items()} == {
        "vanilla-queue": ("queue", False),
        "vanilla-topic": ("topic", False),
        "small-persisted-queue": ("queue", True),
        "large-persisted-queue": ("queue", True),
        "small-persisted-topic": ("topic", True),
        "large-persisted-topic": ("topic", True),
    }
    for name in ("myqueue", "mytopic"):
        assert flavors[applied.state.addresses[AddressName(name)].flavor or ""].persisted
    readme = (folder / "README.md").read_text()
    for name in (*applied.state.addresses, *flavors):
        assert f"`{name}`" in readme


def test_init_names_the_data_folder_that_a_variable_names(tmp_path: Path) -> None:
    done = enmasse("init", tmp_path / "c", env={"ENMASSE_DATA": str(tmp_path / "d")})
    assert f"--data {tmp_path}/d\n" in done.stdout, done


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "addresses.json").write_text("mine")
    done = enmasse("init", tmp_path)
    assert done.returncode == 1
    assert "addresses.json exists already" in done.stderr and str(tmp_path) in done.stderr
    assert (tmp_path / "addresses.json").read_text() == "mine"
    assert os.listdir(tmp_path) == ["addresses.json"]
    (tmp_path / "file").write_text("")
    done = enmasse("init", tmp_path / "file")
    assert done.returncode == 1 and "Traceback" not in done.stderr


def test_add_and_remove_change_one_entry_and_nothing_else(folder: Path) -> None:
    path = folder / "addresses.json"
    before = path.read_text()
    path.chmod(0o640)
    assert edit(folder, "add", "extra", "--type", "queue", "--flavor", "vanilla-queue").returncode == 0
    assert path.read_text() == before.replace(
        '"multicast"}\n', '"multicast"},\n  "extra": {"type": "queue", "flavor": "vanilla-queue"}\n'
    )
    assert path.stat().st_mode & 0o777 == 0o640
    assert edit(folder, "remove", "extra").returncode == 0
    assert path.read_text() == before
    assert sorted(os.listdir(folder)) == ["README.md", "addresses.json", "flavors.json"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["myqueue", "--type", "anycast"], "there is an address 'myqueue' already"),
        (["x", "--type", "queue"], "x.flavor: is missing"),
        (["x", "--type", "queue", "--flavor", "nix"], "unknown flavor 'nix'"),
        (["x", "--type", "queue", "--flavor", "vanila-queue"], "(did you mean 'vanilla-queue'?)"),
        (["x", "--type", "topic", "--flavor", "vanilla-queue"], "a flavor for queue, not for topic"),
        (["a b", "--type", "anycast"], "must not contain white space"),
        (["$x", "--type", "anycast"], "must not begin with '$'"),
        (["x", "--type", "anycast", "--set", "nonsense=1"], "x.nonsense: unknown key"),
        (["x", "--type", "queue", "--flavor", "vanilla-queue", "--set", "maxSize=-1"], "x.maxSize: must be"),
    ],
)
def test_add_refuses_what_the_model_refuses(arguments: list[str], reason: str, folder: Path) -> None:
    before = (folder / "addresses.json").read_bytes()
    done = edit(folder, "add", *arguments)
    assert done.returncode == 1
    assert reason in done.stderr and "nothing was changed" in done.stderr
    assert (folder / "addresses.json").read_bytes() == before


def test_an_empty_value_of_a_new_entry_is_refused(folder: Path) -> None:
    done = edit(folder, "add", "x", "--type", "queue", "--flavor", "vanilla-queue", "--set", "maxSize=")
    assert done.returncode == 2 and "'maxSize=' has no value: add one, or leave the key out" in done.stderr


def test_a_problem_elsewhere_does_not_hinder_an_edit(folder: Path) -> None:
    path = folder / "addresses.json"
    path.write_text('{"bad": {"type": "nonsense"}}')
    assert edit(folder, "add", "good", "--type", "anycast").returncode == 0
    assert json.loads(path.read_text()) == {"bad": {"type": "nonsense"}, "good": {"type": "anycast"}}


def test_a_file_that_does_not_parse_is_left_alone(folder: Path) -> None:
    path = folder / "addresses.json"
    path.write_text('{"a": {"type": "anycast"},}')
    for arguments in (["add", "b", "--type", "anycast"], ["remove", "a"], ["list"], ["show", "a"]):
        done = edit(folder, *arguments)
        assert done.returncode == 1 and "line 1 column 26" in done.stderr, done.stderr
    assert path.read_text() == '{"a": {"type": "anycast"},}'
    path.write_text('{"\\ud800": {"type": "anycast"}, "a": {"type": "anycast"}}')
    for arguments in (["add", "b", "--type", "anycast"], ["remove", "a"], ["list"], ["show", "a"]):
        done = edit(folder, *arguments)
        assert done.returncode == 1 and "half of a surrogate pair" in done.stderr and "Traceback" not in done.stderr
    path.write_text('{"a": NaN}')  # what Python's json reads is not all that is valid
    done = edit(folder, "add", "b", "--type", "anycast")
    assert done.stderr.endswith("Correct it first; nothing was changed. [configuration.file.not-json]\n")
    path.unlink()
    done = edit(folder, "list")
    assert done.returncode == 1 and "no such file" in done.stderr and "enmasse init" in done.stderr


def test_flavors_that_do_not_parse_end_an_addition_and_not_a_removal(folder: Path) -> None:
    before = (folder / "addresses.json").read_text()
    (folder / "flavors.json").write_text('{"a": ')
    done = edit(folder, "add", "b", "--type", "anycast")
    assert done.returncode == 1 and "flavors.json:1: is not JSON" in done.stderr
    assert done.stderr.endswith("nothing was changed. [configuration.file.not-json]\n")
    assert (folder / "addresses.json").read_text() == before
    (folder / "flavors.json").unlink()
    done = edit(folder, "add", "b", "--type", "anycast")
    assert done.returncode == 1 and done.stderr.endswith(
        "No such file or directory. [configuration.file.not-readable]\n"
    )
    done = edit(folder, "remove", "myqueue")
    assert done.returncode == 0 and "warning: " in done.stderr


@pytest.mark.parametrize("file", ["addresses.json", "flavors.json"])
def test_what_is_no_file_is_told_and_waited_for_by_nobody(file: str, folder: Path) -> None:
    (folder / file).unlink()
    os.mkfifo(folder / file)
    done = edit(folder, "add", "b", "--type", "anycast")
    assert done.returncode == 1 and f"{folder / file}: cannot be read: is not a file" in done.stderr
    wanted = file_hashes(folder)
    assert wanted.keys() == {"addresses.json", "flavors.json", "brokers.json"} - {file}
    assert wanted["brokers.json"] is None, "that there is none is to be applied"


def test_ends_of_lines_and_a_byte_order_mark_stay(folder: Path) -> None:
    path = folder / "addresses.json"
    before = b'\xef\xbb\xbf{\r\n  "a": {"type": "anycast"}\r\n}\r\n'
    path.write_bytes(before)
    assert edit(folder, "add", "b", "--type", "anycast").returncode == 0
    assert path.read_bytes().startswith(before.removesuffix(b"\r\n}\r\n") + b",")
    assert edit(folder, "remove", "b").returncode == 0
    assert path.read_bytes() == before


def test_remove_tells_who_still_needs_it(folder: Path) -> None:
    flavor = ("--type", "queue", "--flavor", "vanilla-queue")
    assert edit(folder, "add", "dead", *flavor).returncode == 0
    assert edit(folder, "add", "work", *flavor, "--set", "deadletter=dead").returncode == 0
    done = edit(folder, "remove", "dead")
    assert done.returncode == 0 and "warning: addresses.json: work.deadletter" in done.stderr
    assert edit(folder, "remove", "dead").returncode == 1


def test_list_and_show_without_a_suite(folder: Path) -> None:
    listed = json.loads(edit(folder, "list", "--json").stdout)["addresses"]
    assert [(a["name"], a["type"], a["phase"]) for a in listed] == [
        ("myqueue", "queue", "not running"),
        ("mytopic", "topic", "not running"),
        ("mqtt", "topic", "not running"),
        ("anycast", "anycast", "not running"),
        ("broadcast", "multicast", "not running"),
    ]
    assert re.search(r"myqueue +queue +small-persisted-queue", edit(folder, "list").stdout)
    shown = json.loads(edit(folder, "show", "mytopic", "--json").stdout)
    assert shown["configured"] == {"type": "topic", "flavor": "small-persisted-topic"} and shown["status"] is None
    assert edit(folder, "show", "mytopic").returncode == 0
    assert "memory" not in edit(folder, "show", "mytopic").stdout
    assert edit(folder, "add", "quick", "--type", "queue", "--flavor", "vanilla-queue").returncode == 0
    assert "  message: in memory: messages are lost with their broker\n" in edit(folder, "show", "quick").stdout
    listed = json.loads(edit(folder, "list", "--json").stdout)["addresses"]
    assert [a["message"] for a in listed if a["name"] in ("myqueue", "quick")] == ["", IN_MEMORY]
    assert edit(folder, "show", "nix").returncode == 1


def test_force_without_a_suite_says_so(folder: Path) -> None:
    done = edit(folder, "remove", "myqueue", "--force")
    assert done.returncode == 4
    assert "not deleted: EnMasse is not running" in done.stderr
    assert "myqueue" not in json.loads((folder / "addresses.json").read_text())


def test_edits_at_the_same_time_lose_nothing(folder: Path) -> None:
    names = [f"a{i}" for i in range(8)]
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda n: edit(folder, "add", n, "--type", "anycast").returncode == 0, names))
    assert set(names) < set(json.loads((folder / "addresses.json").read_text()))


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
_layouts = st.sampled_from([{}, {"indent": 1}, {"indent": 4}, {"indent": "\t"}, {"separators": (",", ":")}])


@given(st.dictionaries(st.text(), _values, max_size=4), _layouts, st.text(), _values)
def test_add_then_remove_gives_the_same_text(
    entries: dict[str, object], layout: dict[str, object], key: str, value: object
) -> None:
    text = json.dumps(entries, **layout)  # type: ignore[arg-type]  # keyword arguments of several types
    entries.pop(key, None)
    text = edits.remove(text, key)
    assert json.loads(text) == entries
    added = edits.add(text, key, value)
    assert list(json.loads(added).items()) == [*entries.items(), (key, value)]
    if entries:
        assert edits.remove(added, key) == text
    for removed in entries:
        assert json.loads(edits.remove(text, removed)) == {k: v for k, v in entries.items() if k != removed}


@given(st.text(alphabet='{}[]:,"\\ \n1a', max_size=30))
def test_parse_accepts_what_json_accepts(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        expected = None
    try:
        found = {entry.key: entry.value for entry in edits.parse(text)}
    except ValueError:
        found = None
    assert found == (expected if isinstance(expected, dict) else None)


def test_commands_start_quickly() -> None:
    """Not a duration: what would make them slow is not imported."""
    code = (
        "import sys, enmasse.cli.registry, click.testing as t\n"
        f"t.CliRunner().invoke(enmasse.cli.registry.group, ['status', '--json', '--port-offset', '{free_offset()}'])\n"
        "print([m for m in ('rich', 'aiohttp', 'proton', 'asyncio', 'structlog', 'uvloop') if m in sys.modules])"
    )
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
