"""Time limits and pauses in tests: one generous limit, `DEADLINE`, or the line states why another (CONTRIBUTING.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
EXEMPT = {"kit", "soak"}
"""Folders with what waits for all tests, and with a search whose pauses are its load."""
KEYWORDS = {"timeout", "seconds", "patience", "socket_timeout"}
WAITING = {"wait", "join", "receive", "result", "settimeout", "timeout"}
"""Methods whose only argument is a time."""
STATED = re.compile(r"# (limit|pause): .*\w{3}")
SHORT = 1
"""Seconds. A shorter limit is one that has to be reached, or that of one look."""


def _is_time(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value >= SHORT


def _name(function: ast.AST) -> str:
    """Return the last name of what is called."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _pauses(node: ast.Call) -> Iterator[ast.AST]:
    if _name(node.func) == "sleep" and node.args and ast.unparse(node.args[0]) != "0":
        yield node.args[0]


def _limits(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call):
        name = _name(node.func)
        if name == "timeout" and ast.unparse(node.func) == "pytest.mark.timeout":
            return
        found = [each.value for each in node.keywords if each.arg in KEYWORDS]
        if name in ("wait_for", "until"):
            found += node.args[1:]
        elif name in WAITING and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
            found += node.args
        yield from filter(_is_time, found)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        given = node.args
        positional = [*given.posonlyargs, *given.args]
        with_default = [*zip(reversed(positional), reversed(given.defaults), strict=False)]
        with_default += [(arg, value) for arg, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value]
        yield from (value for arg, value in with_default if arg.arg in KEYWORDS and _is_time(value))


def unstated(source: str) -> list[int]:
    """Return the lines with a time limit or a pause of their own, and no reason."""
    lines = source.splitlines()
    found = set()
    for node in ast.walk(ast.parse(source)):
        for each in (*_limits(node), *(_pauses(node) if isinstance(node, ast.Call) else ())):
            assert isinstance(each, ast.expr)
            above = lines[each.lineno - 2] if each.lineno > 1 else ""
            if not STATED.search(lines[each.lineno - 1]) and not (STATED.match(above.strip())):
                found.add(each.lineno)
    return sorted(found)


def test_limits_are_the_common_one_or_state_why_not() -> None:
    found = [
        f"{path.relative_to(FOLDER)}:{line}"
        for path in sorted(FOLDER.rglob("*.py"))
        if not EXEMPT.intersection(path.relative_to(FOLDER).parts)
        for line in unstated(path.read_text())
    ]
    assert found == [], "use DEADLINE of tests/kit/waiting.py, or wait for a condition; or state why: `# limit: …`"


@pytest.mark.parametrize(
    "line",
    ["time.sleep(0.1)", "await_(asyncio.sleep(PAUSE))", "process.wait(60)", "wait_for('x', lambda: True, 30)",
     "connect(timeout=5)", "def look(seconds: float = 20): pass", "def look(*, timeout=20): pass",
     "x = asyncio.timeout(90)"],
)  # fmt: skip
def test_a_limit_of_its_own_is_found(line: str) -> None:
    assert unstated(line) == [1]
    assert unstated(f"{line}  # limit: of one look") == unstated(f"# limit: of one look\n{line}") == []


@pytest.mark.parametrize("line", ["sleep(0)", "process.wait(DEADLINE)", "ended.wait(0.05)", "pytest.mark.timeout(900)"])
def test_what_is_no_limit_of_its_own(line: str) -> None:
    assert unstated(line) == []
