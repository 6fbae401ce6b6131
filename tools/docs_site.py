"""Hooks of MkDocs (mkdocs.yml): the pages of the site are the repository's, each at its own path, so that links among
them lead where they do in the repository.

MkDocs takes one folder of pages, Python-Markdown wants lists with four blanks before what belongs to an item; ours are
CommonMark. mdformat-mkdocs writes each page so, in memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mdformat
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
SHOWN = (
    *("*.md", "docs/**/*", "charts/enmasse/README.md"),
    *("enmasse/amqp/messages/jsonform.py", "tests/cli/test_http.py", "tests/identity/test_strangers.py"),
)
"""Pages and pictures, and the files of code to which pages lead."""


def on_files(files: Files, config: Any) -> Files:
    """Return the repository's pages and pictures, beside the files of the theme."""
    paths = {path for pattern in SHOWN for path in ROOT.glob(pattern) if path.is_file()}
    ours = [File(str(path.relative_to(ROOT)), str(ROOT), config["site_dir"], False) for path in sorted(paths)]
    return Files([*(each for each in files if each.src_dir != config["docs_dir"]), *ours])


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page in the form that Python-Markdown understands."""
    return str(mdformat.text(markdown, extensions={"gfm", "mkdocs"}))
