"""What every service must be named in (docs/extending.md, "Any new service")."""

from __future__ import annotations

import tomllib
from itertools import chain
from pathlib import Path

from enmasse.identity.processes.roles import Role
from enmasse.process.service_table import SERVICES
from enmasse.supervisor.suite import STOP_ORDER

ROOT = Path(__file__).parent.parent
FOLDERS = sorted(folder.parent.name for folder in (ROOT / "services").glob("*/__init__.py"))


def contracts(begin: str) -> list[list[str]]:
    """Return the services that each import contract whose name begins so is about."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        found = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    sources = [each["source_modules"] for each in found if each["name"].startswith(begin)]
    return [[name.removeprefix("services.") for name in each if name.startswith("services.")] for each in sources]


def test_each_service_has_one_amqp_library() -> None:
    lists = contracts("one AMQP library a process")
    assert len(lists) == 2
    assert sorted(chain(*lists)) == FOLDERS


def test_no_other_service_knows_kubernetes() -> None:
    (services,) = contracts("Kubernetes is known to")
    assert sorted([*services, "configserv", "storage_controller"]) == FOLDERS


def test_each_service_has_a_role() -> None:
    assert set(FOLDERS) <= set(Role)


def test_each_service_is_in_the_table() -> None:
    assert sorted(SERVICES) == FOLDERS


def test_each_service_has_an_image() -> None:
    file = (ROOT / "images" / "Containerfile").read_text()
    assert [name for name in FOLDERS if f" AS {name.replace('_', '-')}\n" not in file] == []


def test_each_service_is_stopped_in_order() -> None:
    assert sorted(chain(*STOP_ORDER)) == sorted([*FOLDERS, "spark"])  # the pipeline of `enmasse up --with spark`


def test_each_service_has_a_readme() -> None:
    assert [name for name in FOLDERS if not (ROOT / "services" / name / "README.md").exists()] == []
