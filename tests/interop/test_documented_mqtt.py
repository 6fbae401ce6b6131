"""The programs of docs/mqtt.md, as they stand there, after nothing but `enmasse init` and `enmasse up`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.testing import Suite, running
from tests.interop.clients import Broken, documented
from tests.page import programs

pytestmark = pytest.mark.timeout(1200)  # where nobody has fetched the libraries before, the first test does

PROGRAMS = {program.name: program for program in programs("mqtt.md")}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with running(tmp_path_factory.mktemp("documented-mqtt"), options=()) as suite:
        suite.up(240)
        yield suite


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_a_program_prints_what_the_page_shows(suite: Suite, name: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    assert any("1883" in text for text in program.files.values())
    try:
        shutil.copytree(documented(program), tmp_path, dirs_exist_ok=True)
    except Broken as error:
        pytest.fail(str(error), pytrace=False)
    program.write(tmp_path, suite)
    done = [program.run(command, tmp_path, suite) for command in program.each][-1]
    assert (done.stdout, done.returncode) == (program.output, 0), done.stderr
