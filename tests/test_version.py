"""The version of the tree: of the wheel, of the chart, and of what `enmasse version` shows; the changelog of each."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from packaging.version import Version

from enmasse import __version__
from enmasse.cli.registry import group
from enmasse.process.service_table import SERVICES
from tests.cli.running import free_offset

ROOT = Path(__file__).parent.parent
SECTIONS = re.split(r"(?m)^## ", (ROOT / "CHANGELOG.md").read_text())[1:]
TITLES = [section.partition("\n")[0] for section in SECTIONS]
RELEASED = [section for section in SECTIONS if not section.startswith("Unreleased")]


def test_the_wheel_has_it() -> None:
    """tests/cli/test_light_install.py builds one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "enmasse.__version__"}
    assert __version__ == str(Version(__version__))


def test_the_chart_has_it_as_semver_and_takes_the_images_of_it() -> None:
    chart = yaml.safe_load((ROOT / "charts" / "enmasse" / "Chart.yaml").read_text())
    version = Version(__version__)
    dev = f"-dev.{version.dev}" if version.is_devrelease else ""
    assert chart["version"] == version.base_version + dev
    assert re.fullmatch(r"\d+\.\d+\.\d+(-[\w.]+)?", chart["version"])
    assert chart["appVersion"] == __version__


@pytest.mark.parametrize("page", ["kubernetes.md", "guides/kubernetes.md"])
def test_a_cluster_is_given_the_images_of_it(page: str) -> None:
    """Runs what the page says, where podman prints what it is to do. The tags are those of images/build.sh."""
    said = re.search(r" +version=(?:.|\n)+?done\n", (ROOT / "docs" / page).read_text())
    assert said
    stands_in = 'podman() { echo "$2"; }; kind() { :; }; rm() { :; };'
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "ENMASSE_PORT_OFFSET": str(free_offset())}
    run = ["sh", "-c", f"{stands_in} {said[0]}"]
    printed = subprocess.run(run, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    images = [line.rpartition("/")[2] for line in printed.splitlines()]
    assert sorted(images) == sorted(f"{service.replace('_', '-')}:{__version__}" for service in SERVICES)


def test_the_command_shows_it() -> None:
    found = CliRunner().invoke(group, ["version", "--port-offset", str(free_offset())])
    assert found.output.startswith(f"enmasse {__version__} (Python ")


def test_what_is_unreleased_belongs_to_a_development_version_and_what_is_released_has_an_archive() -> None:
    version = Version(__version__)
    assert version.is_devrelease == (TITLES[0] == "Unreleased")
    newest = Version(RELEASED[0].split()[0])
    assert newest < version if version.is_devrelease else newest == version
    for section in RELEASED:
        assert (ROOT / "tests" / "upgrade" / f"{section.split()[0]}.tar.xz").exists()


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.split()[0])
def test_a_user_reads_the_changes_of_a_release_in_a_minute(section: str) -> None:
    assert re.match(r"Unreleased\n|\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d\n", section)
    assert len(section.splitlines()) <= 60
