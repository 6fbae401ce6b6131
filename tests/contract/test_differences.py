"""Every difference between the engines that a test expects is in the docs, and each one in the docs is tested."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parent.parent / "docs" / "engines.md"


def differing() -> set[str]:
    found = set()
    for path in HERE.glob("test_*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found |= {node.name for argument in node.args.args if argument.arg == "expected"}
    return found


def test_the_docs_name_each_difference() -> None:
    _, _, text = DOCS.read_text().partition("## Differences between the brokers")
    named = re.findall(r"`(test_\w+)` \|$", text.partition("\n## ")[0], re.MULTILINE)
    assert set(named) == differing()
    assert len(named) == len(set(named))
