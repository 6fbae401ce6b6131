"""What every service must be named in (docs/extending.md, "Any new service")."""

from __future__ import annotations

import tomllib
from itertools import chain
from pathlib import Path

from enmasse.process.service_table import SERVICES
from enmasse.supervisor.suite import STOP_ORDER

ROOT = Path(__file__).parent.parent
FOLDERS = sorted(folder.parent.name for folder in (ROOT / "services").glob("*/__init__.py"))


def test_each_service_has_one_amqp_library() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    lists = [each["source_modules"] for each in contracts if each["name"].startswith("one AMQP library a process")]
    assert len(lists) == 2
    assert sorted(chain(*lists)) == [f"services.{name}" for name in FOLDERS]


def test_each_service_is_in_the_table() -> None:
    assert sorted(SERVICES) == FOLDERS


def test_each_service_has_an_image() -> None:
    file = (ROOT / "images" / "Containerfile").read_text()
    assert [name for name in FOLDERS if f" AS {name.replace('_', '-')}\n" not in file] == []


def test_each_service_is_stopped_in_order() -> None:
    assert sorted(chain(*STOP_ORDER)) == sorted([*FOLDERS, "spark"])  # the pipeline of `enmasse up --with spark`


def test_each_service_has_a_readme() -> None:
    assert [name for name in FOLDERS if not (ROOT / "services" / name / "README.md").exists()] == []
