"""Documentation: links lead to files and headings that exist, prose is wrapped, commands have these options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click

from benchmarks.__main__ import NAMES as BENCHMARKS
from enmasse.cli.commands.suite.up import COMPONENTS
from enmasse.cli.registry import COMMANDS, group
from enmasse.model.mqtt_limits import Limits

ROOT = Path(__file__).parent.parent
WIDTH = 120
LINK = re.compile(r"\]\(([^)\s]+)\)")


def pages() -> tuple[Path, ...]:
    """Return the Markdown files of the repository."""
    folders = ("docs", "enmasse", "services", "spark", "charts", "benchmarks", "demo", "tests")
    return tuple(sorted((*ROOT.glob("*.md"), *(page for folder in folders for page in (ROOT / folder).rglob("*.md")))))


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page outside of blocks of code, with their numbers."""
    code = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and not line.startswith("    "):
            yield number, line


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = [line.lstrip("#").strip() for _, line in prose(page) if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return False
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return not target.exists() or bool(anchor and target.suffix == ".md" and anchor not in anchors(target))


def test_links_lead_to_files_and_headings_that_exist() -> None:
    lines = [(page, number, link) for page in pages() for number, line in prose(page) for link in LINK.findall(line)]
    assert len(lines) > 100
    assert [f"{page}:{number} {link}" for page, number, link in lines if broken(page, link)] == []


def test_prose_is_wrapped() -> None:
    """Tables are not, nor the chart's page, which is made from its values."""
    pages_by_hand = [page for page in pages() if not page.with_name(page.name + ".gotmpl").exists()]
    lines = [(page, number, line) for page in pages_by_hand for number, line in prose(page)]
    assert [f"{p}:{n}" for p, n, line in lines if len(line) > WIDTH and not line.startswith("|")] == []


def code(page: Path) -> Iterator[tuple[int, str]]:
    """Yield what a file has between backticks, and of a page the lines of its blocks of code, continued ones joined."""
    fenced, is_page = False, page.suffix == ".md"
    for number, line in enumerate(page.read_text().replace("\\\n", "  ").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif is_page and (fenced or line.startswith("    ")):
            yield number, line.strip()
        else:
            yield from ((number, span) for span in re.findall("`([^`]+)`", line))


def faults(words: list[str]) -> Iterator[str]:
    """Yield what the program does not have of `enmasse WORD …`, as a page has it: `a|b` stands for two commands."""
    while words and words[0] == "--context":
        words = words[2:]
    if not words or not re.fullmatch("[a-z]+", words[0]):
        return
    command = group.get_command(click.Context(group), words[0])
    if command is None:
        yield f"no command {words[0]}"
        return
    commands, rest = [command], words[1:]
    if isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z]+(\|[a-z]+)*", rest[0]):
        there = command.commands
        yield from (f"no command {words[0]} {name}" for name in rest[0].split("|") if name not in there)
        commands, rest = [there[name] for name in rest[0].split("|") if name in there], rest[1:]
    options = {name for each in commands for option in each.params for name in (*option.opts, *option.secondary_opts)}
    stated = [word.partition("=")[0] for word in rest if re.match("--[a-z]", word)]
    yield from (f"{words[0]} has no option {name}" for name in stated if name not in options | {"--help"})


def test_commands_and_options_that_texts_name_exist() -> None:
    """Of pages, and of messages and comments of the program."""
    found: list[str] = []
    wrong: list[str] = []
    programs = [file for folder in ("enmasse", "services", "spark", "charts") for file in (ROOT / folder).rglob("*.py")]
    for file in (
        *(page for page in pages() if page.name != "CHANGELOG.md" and page.parent.name != "releases"),
        *programs,
    ):
        for number, line in code(file):
            for stated in re.split(r" #|[|;&)]{1,2} | \|$|\$\(|\bxargs [-\w ]*|\bdo |\)$", line):
                if call := re.fullmatch(r"(?:\w+=\S+ +|\$ )*(?:\.venv/bin/)?enmasse +(.*)", stated.strip()):
                    found.append(call[1])
                    wrong += [f"{file}:{number} {fault}" for fault in faults(call[1].split())]
    assert len(found) > 500
    assert wrong == []


def test_the_index_of_decisions_has_each_of_them_with_its_title() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    listed = re.findall(r"^\| (\d+) \| \[(.+)\]\((\S+)\) \| .+ \|$", index, re.M)
    there = []
    for page in sorted(folder.glob("0*.md")):
        title = re.match(r"# 0*(\d+)\.? (.+)", page.read_text())
        assert title, f"{page.name} does not begin with its number and title"
        there.append((title[1], title[2], page.name))
    assert sorted(listed, key=lambda each: int(each[0])) == there


def test_each_limit_of_mqtt_clients_has_its_name_in_the_table() -> None:
    page = (ROOT / "docs" / "mqtt.md").read_text()
    assert [name for name in Limits.__struct_fields__ if f"(`{name}`)" not in page] == []


def test_lists_of_benchmarks_and_of_components_with_a_log_level_are_complete() -> None:
    benchmarks = re.match(
        r"# Benchmarks\n\n`python -m benchmarks ([^`]+)`", (ROOT / "docs" / "benchmarks.md").read_text()
    )
    assert benchmarks and tuple(re.findall(r"\[(\w+)\]", benchmarks[1])) == BENCHMARKS
    levels = re.search(
        r"for one component: `enmasse` or a service \(([^)]+)\)", (ROOT / "docs/operations.md").read_text()
    )
    assert levels and {"enmasse", *re.findall(r"`(\w+)`", levels[1])} == set(COMPONENTS)


def test_each_page_has_a_place_in_the_navigation_of_the_site() -> None:
    """Decisions and details of releases have an index each."""
    listed = re.findall(r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    there = {str(page.relative_to(ROOT)) for folder in ("docs", "docs/guides") for page in (ROOT / folder).glob("*.md")}
    assert sorted(listed) == sorted({*there, *(page.name for page in ROOT.glob("*.md")), "docs/decisions/README.md"})


def test_each_command_has_its_exit_statuses() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    assert [name for name in COMMANDS if f"\n| `{name}` |" not in text] == []
