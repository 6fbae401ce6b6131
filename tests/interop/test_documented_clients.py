"""The programs of docs/clients.md, as they stand there, after nothing but `enmasse init` and `enmasse up` with
the gateways."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.testing import Suite, running, wait_for
from tests.interop.clients import Broken, documented
from tests.page import Program, programs

pytestmark = pytest.mark.timeout(1200)  # where nobody has built the clients before, the first test does

OPTIONS = ("--with", "http", "--with", "stomp", "--with", "coap")
LIMIT = 300
"""Seconds for one program; each of its steps gives up after 60."""
PROGRAMS = {program.name: program for program in programs("clients.md")}
HELLO = ("hello.py", "hello_asyncio.py", "Hello.java", "hello.js", "hello.go", "hello_http.go")
"""The same program in each language."""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with running(tmp_path_factory.mktemp("documented"), options=OPTIONS) as suite:
        suite.up(240)
        yield suite


def run(program: Program, suite: Suite, folder: Path, **replaced: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the page; what its last command did."""
    try:
        shutil.copytree(documented(program), folder, dirs_exist_ok=True)
    except Broken as error:
        pytest.fail(str(error), pytrace=False)
    program.write(folder, suite, replaced)
    return [program.run(command, folder, suite, LIMIT) for command in program.each][-1]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.slow
def test_a_program_prints_what_the_page_shows(suite: Suite, name: str, tmp_path: Path) -> None:
    assert any(port in text for text in PROGRAMS[name].files.values() for port in ("5672", "8088", "61613", "5683"))
    done = run(PROGRAMS[name], suite, tmp_path)
    assert (done.stdout, done.returncode) == (PROGRAMS[name].output, 0), done.stderr
    wait_for("no message left", lambda: not any(a["messages"] for a in suite.status()["addresses"]))


@pytest.mark.parametrize("name", HELLO)
def test_an_error_is_one_line(suite: Suite, name: str, tmp_path: Path) -> None:
    done = run(PROGRAMS[name], suite, tmp_path, myqueue="nosuch")
    assert done.returncode == 1 and done.stdout == ""
    said = [line for line in done.stderr.splitlines() if line != "exit status 1"]  # `go run` adds this one
    assert len(said) == 1 and re.search("[Nn]ot.found", said[0]), done.stderr
