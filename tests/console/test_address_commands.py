"""`enmasse address browse|purge|move|redrive`, which ask the API."""

from __future__ import annotations

import json
from subprocess import CompletedProcess

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
