"""Names and sizes of the program's folders: a module is found by its name, and a folder is read at a glance."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_MODULES = 20
CONVENTIONAL = {
    "__init__": "what the package is",
    "__main__": "the process of a service",
    "app": "puts the parts of a service together",
    "settings": "the settings of a process",
    "errors": "errors of the package",
    "metrics": "metrics of a service",
    "service": "the service behind its AMQP links",
    "live_rows": "rows of the live state of a service",
    "permits": "what a peer may ask of a service",
    "feeds": "feeds of the configuration service",
    "connection": "one connection of a protocol",
    "session": "one session of a protocol",
}
"""Names that stand for the same part in each package."""
RESOURCES = ("enmasse/cli/commands/", "services/console/rest/", "enmasse/model/")
"""Folders with a module for each resource, which has the name of the resource elsewhere too."""
UNDECIDED = frozenset(
    [
        "access",
        "addresses",
        "admission",
        "agent",
        "amqp",
        "annotations",
        "archive",
        "audit",
        "backup",
        "bindings",
        "bodies",
        "broker",
        "brokers",
        "catalogue",
        "certificates",
        "client",
        "clients",
        "columns",
        "common",
        "configuration",
        "configured",
        "connections",
        "contents",
        "control",
        "conversation",
        "definitions",
        "desired",
        "diverts",
        "driver",
        "embedded",
        "endpoint",
        "engine",
        "entities",
        "files",
        "filters",
        "forced",
        "handler",
        "handshake",
        "identity",
        "intake",
        "issuer",
        "jobs",
        "kubernetes",
        "lease",
        "lines",
        "link",
        "links",
        "listeners",
        "management",
        "messages",
        "moves",
        "mqtt",
        "node",
        "nodes",
        "options",
        "order",
        "output",
        "packets",
        "pages",
        "peers",
        "pipeline",
        "pods",
        "policies",
        "ports",
        "preparing",
        "probe",
        "problems",
        "properties",
        "publisher",
        "reader",
        "readiness",
        "receiver",
        "records",
        "recovery",
        "reports",
        "requests",
        "router",
        "rows",
        "schema",
        "segment",
        "selector",
        "server",
        "start",
        "startup",
        "store",
        "tables",
        "termini",
        "tls",
        "traffic",
        "types",
        "values",
        "watch",
        "web",
        "wills",
        "wire",
    ]
)
"""Names of two modules that are not one concept, or that nobody has looked at. None may be added."""


def modules() -> Iterator[Path]:
    for folder in ("enmasse", "services", "spark"):
        yield from (file.relative_to(ROOT) for file in sorted((ROOT / folder).rglob("*.py")))


def doubled() -> dict[str, list[str]]:
    """The names of several modules, without those that a module of a resource has beside one other."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        if path.stem not in CONVENTIONAL and not str(path).startswith(RESOURCES):
            found[path.stem].append(str(path))
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def test_no_two_concepts_have_one_name() -> None:
    assert {name: paths for name, paths in doubled().items() if name not in UNDECIDED} == {}, "choose another name"


def test_no_folder_has_many_modules() -> None:
    count: dict[Path, int] = defaultdict(int)
    for path in modules():
        count[path.parent] += path.stem not in ("__init__", "__main__")
    assert {folder: n for folder, n in count.items() if n > MOST_MODULES} == {}, "divide it by concept"


def test_what_is_written_about_the_house_names_what_exists() -> None:
    """Modules in the docstrings of packages (their tables) and in the READMEs of folders; files and folders in the
    pages that lead to them."""
    files = [path.with_suffix("") for path in modules()]
    folders = sorted({folder for path in files for folder in path.parents} - {Path()})
    ends = {"/".join(path.parts[at:]) for path in (*files, *folders) for at in range(len(path.parts))}
    missing: set[tuple[str, str]] = set()
    for folder in folders:
        told = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text())) or ""
        named = set(re.findall(r"[a-z_0-9/]+", " ".join(re.findall(r"^ {4}([a-z_0-9, /]+?)  +\S", told, re.M))))
        readme = ROOT / folder / "README.md"
        named |= set(re.findall(r"`([a-z_0-9/]+)\.py`", readme.read_text())) if readme.exists() else set()
        missing |= {(str(folder), name) for name in named - ends}
    for page in ("docs/architecture.md", "docs/extending.md", "CONTRIBUTING.md"):
        for name in re.findall(r"`([a-z_0-9]+/[a-z_0-9/.]+)`", (ROOT / page).read_text()):
            of_program = name.split("/")[0] in {part for folder in folders for part in folder.parts}
            if of_program and name.removesuffix(".py").rstrip("/") not in ends and not (ROOT / name).exists():
                missing.add((page, name))
    assert missing == set()
