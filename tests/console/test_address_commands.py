"""`enmasse address browse|purge|move|redrive`, which ask the API."""

from __future__ import annotations

import json
from subprocess import CompletedProcess

import pytest

from enmasse.testing import Suite


def run(suite: Suite, *words: str) -> CompletedProcess[str]:
    return suite.command(*words, "--port-offset", str(suite.offset))


def test_messages_are_browsed_moved_and_purged(suite: Suite) -> None:
    run(suite, "address", "purge", "orders", "--force")
    run(suite, "address", "purge", "orders/late", "--force")
    for body in ("one", "two", "three"):
        assert run(suite, "send", "orders", body).returncode == 0
    browsed = json.loads(run(suite, "address", "browse", "orders", "--json").stdout)["items"]
    assert [each["body"] for each in browsed] == ["one", "two", "three"]
    (first,) = json.loads(run(suite, "address", "browse", "orders", "--count", "1", "--json").stdout)["items"]
    assert first == browsed[0] and "three" in run(suite, "address", "browse", "orders").stdout
    moved = run(suite, "address", "move", "orders", "orders/late", "--count", "2")
    assert (moved.returncode, moved.stdout) == (0, "moved 2 of orders\n"), moved.stderr
    job = json.loads(run(suite, "address", "purge", "orders/late", "--force", "--json").stdout)
    assert (job["operation"], job["state"], job["done"]) == ("purge", "done", 2)
    assert run(suite, "address", "redrive", "orders").stdout == "redriven 0 of orders\n"  # no dead letters
    assert run(suite, "receive", "orders", "--count", "1").stdout == "three\n"


def test_what_cannot_be_done_is_refused_with_the_reason(suite: Suite) -> None:
    without_terminal = run(suite, "address", "purge", "orders")
    assert without_terminal.returncode == 2 and "--force" in without_terminal.stderr
    unknown = run(suite, "address", "browse", "not/there")
    assert unknown.returncode == 1 and "console.resource.unknown" in unknown.stderr
    refused = run(suite, "address", "purge", "ordrs", "--force").stderr
    assert f"`enmasse address list --port-offset {suite.offset}` shows them. Did you mean 'orders'?" in refused


@pytest.mark.parametrize(
    ("name", "said"),
    [("${user}", "must not begin with '$'"), ("a b", "white space"), ("", "an address needs a name")],
)
def test_a_name_that_no_address_has_is_refused_with_the_reason(suite: Suite, name: str, said: str) -> None:
    done = run(suite, "address", "add", name, "--type", "anycast")
    assert done.returncode == 1 and said in done.stderr, done.stderr


def test_a_brace_in_a_name_is_a_name(suite: Suite) -> None:
    assert run(suite, "address", "add", "a{b", "--type", "anycast").returncode == 0
    assert run(suite, "address", "remove", "a{b").returncode == 0
    assert "'x}'" in run(suite, "address", "browse", "x}").stderr


def test_an_empty_name_is_wrong_usage(suite: Suite) -> None:
    done = run(suite, "address", "browse", "")
    assert done.returncode == 2 and "a name is empty" in done.stderr
