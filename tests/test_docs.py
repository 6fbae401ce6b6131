"""Documentation: links lead to files and headings that exist, and prose is wrapped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
WIDTH = 120
LINK = re.compile(r"\]\(([^)\s]+)\)")


def pages() -> tuple[Path, ...]:
    """Return the Markdown files of the repository."""
    folders = ("docs", "enmasse", "services", "charts", "benchmarks", "demo", "tests")
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
