"""The table of words of permissions, and that everything else follows it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from enmasse.model.permission_words import OPERATIONS, Operation, refusal, table

ROOT = Path(__file__).parents[2]
TABLE = Path("enmasse/model/permission_words.py")
PARTS = ("enmasse", "services/authserv", "services/console", "services/router")
LOOK = """
import json, msgspec
from enmasse.api.types import Me, Permission
from enmasse.identity.permissions import Permissions
from enmasse.identity.principal import Principal
from enmasse.model.configuration import Applied, apply
from enmasse.model.feeds import PermissionChanges, granted
from enmasse.model.permission_words import refusal, table
from services.authserv.authz import address_authz
from services.console.rest.sign_in import OPERATIONS
from services.router.routing.users import refusal as of_router

content = json.dumps({"alice": {"permissions": [{"allow": ["browse"], "addresses": ["orders"]}]}}).encode()
applied = apply({"users.json": content}, Applied())
users = {name: granted(user) for name, user in (applied.state.users or {}).items()}
feed = msgspec.json.decode(msgspec.json.encode(PermissionChanges(users=users)), type=PermissionChanges)
rights = Permissions(feed.users).rights(Principal("alice"))
print(json.dumps({
    "wrong": [str(each) for each in applied.problems if each.file == "users.json"],
    "may": [rights.allows("browse", "orders"), rights.allows("recv", "orders"), rights.allows("browse", "bills")],
    "page": list(OPERATIONS),
    "rest": ["browse" in json.dumps(msgspec.json.schema(kind)) for kind in (Me, Permission)],
    "dispatch": {name: list(words) for name, words in address_authz(rights, "alice").items()},
    "refused": [refusal("alice", "browse", "orders"), of_router("alice", "browse", "orders")],
    "row": "| `browse` | look at messages |" in table(),
}))
"""


def test_the_table_has_every_word() -> None:
    assert tuple(OPERATIONS) == get_args(Operation)


def test_docs_show_the_table_of_operations() -> None:
    page = (ROOT / "docs" / "identity.md").read_text()
    assert table() in page, "put the output of `python -m enmasse.model.permission_words` into docs/identity.md"


@pytest.mark.parametrize(("operation", "text"), [("recv", "receive from"), ("serve", "serve")])
def test_a_refusal_says_what_is_not_allowed(operation: str, text: str) -> None:
    assert refusal("alice", operation, "orders") == f"user alice may not {text} orders"


def test_a_new_word_is_an_entry_of_the_table(tmp_path: Path) -> None:
    """The program with a word more in the table: files, command line, REST, page and Dispatch know it."""
    ignored = shutil.ignore_patterns("__pycache__", "page", "chart")
    for part in PARTS:
        shutil.copytree(ROOT / part, tmp_path / part, ignore=ignored)
    (tmp_path / "services" / "__init__.py").touch()
    text = (ROOT / TABLE).read_text()
    for before, after in (
        ('"view", "manage"]', '"view", "manage", "browse"]'),
        ('    "manage": Word(', '    "browse": Word("look at messages", "browse"),\n    "manage": Word('),
    ):
        assert text.count(before) == 1
        text = text.replace(before, after)
    (tmp_path / TABLE).write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(tmp_path)}

    def run(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout

    found = json.loads(run("-c", LOOK))
    assert found == {
        "wrong": [], "may": [True, False, False], "page": [*list(OPERATIONS)[:3], "browse", "manage"],
        "rest": [True, True], "dispatch": {"orders": ["browse"]},
        "refused": ["user alice may not browse orders"] * 2, "row": True,
    }  # fmt: skip
    config = tmp_path / "config"
    config.mkdir()
    cli = ("-c", "from enmasse.cli import main; main()", "user")
    run(*cli, "add", "alice", "--no-password", "--config", str(config))
    run(*cli, "allow", "alice", "browse", "orders", "--config", str(config))
    assert "alice may browse orders" in run(*cli, "check", "alice", "browse", "orders", "--config", str(config))
    assert "browse" in run(*cli, "allow", "--help")
