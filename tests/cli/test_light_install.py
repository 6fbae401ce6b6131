"""`pip install .`: sdist and wheel as they are published, installed without extras in an environment of their own."""

from __future__ import annotations

import ast
import email
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import enmasse
from tests.cli.running import Up, free_offset
from tests.kit.waiting import DEADLINE

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
UV = str(Path(sys.executable).with_name("uv"))
IMPORT_ALL = """
NEED_EXTRAS = ("enmasse.stores.redis", "enmasse.spark", "enmasse.tracing.spans", "spark.")
OURS = ("enmasse", "services", "spark")
import importlib, os, pkgutil, sys, enmasse
sys.path.insert(0, os.path.join(enmasse.__path__[0], "_installed"))
import services, spark
for package in (enmasse, services, spark):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if module.name.endswith("__main__") or "._installed" in module.name:
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if not module.name.startswith(NEED_EXTRAS) or error.name.partition(".")[0] in OURS:
                raise
"""


WRITING = {"PYTHONDONTWRITEBYTECODE": ""}
"""So that only the first start compiles."""


IN_SDIST = (
    *("LICENSE", "README.md", "CHANGELOG.md", "docs/README.md", "docs/guides/install.md", "docs/architecture.svg"),
    *("packaging/enmasse.service", "packaging/compose.yaml", "images/Containerfile", "images/requirements.lock"),
)

A_SPACE_IS_COPIED = (
    ".venv/bin/enmasse space add one",
    ".venv/bin/enmasse address add jobs --type queue --flavor small-persisted-queue --space one",
    ".venv/bin/enmasse send jobs hello --space one",
    ".venv/bin/enmasse backup copy --space one",  # by programs of `services`
    ".venv/bin/enmasse restore copy --space two",
)

LIMIT = 600
"""Seconds of a build, which may have to fetch what it is built with."""


def call(*command: object) -> str:
    environment = {**os.environ, **WRITING}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=LIMIT, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, which is built from the sdist, and what it depends on, pinned and cached as
    `make install` does."""
    folder = tmp_path_factory.mktemp("light")
    source, venv = folder / "source", folder / "venv"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE", "Makefile"):
        shutil.copy(ROOT / name, source)
    for name in ("enmasse", "services", "spark", "charts", "docs", "packaging", "images"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    call(UV, "build", "--quiet", "--python", sys.executable, "--out-dir", folder, source)
    with tarfile.open(folder / f"enmasse-{enmasse.__version__}.tar.gz") as sdist:
        inside = {name.partition("/")[2] for name in sdist.getnames()}
    assert {name for name in IN_SDIST if name not in inside} == set()
    call(UV, "venv", "--quiet", "--python", sys.executable, venv)
    (wheel,) = folder.glob(f"enmasse-{enmasse.__version__}-*.whl")
    python = venv / "bin" / "python"
    call(UV, "pip", "install", "--quiet", "--python", python, "--constraint", ROOT / "requirements.lock", wheel)
    return venv


def quick_start() -> list[str]:
    """The commands for the second terminal, from the README."""
    lines = (ROOT / "README.md").read_text().partition("In a second terminal:")[2].partition("\n## ")[0].splitlines()
    return [line for line in lines if line.startswith("    ")]


def run(line: str, venv: Path, environment: dict[str, str]) -> str:
    """What a line of the README prints."""
    port = 1883 + int(environment["ENMASSE_PORT_OFFSET"])
    command = line.replace(".venv/", f"{venv}/").replace("mosquitto_pub ", f"mosquitto_pub -p {port} ")
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=DEADLINE, env=environment)
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return done.stdout


def test_the_wheel_adds_no_other_package_than_enmasse(venv: Path) -> None:
    (site,) = venv.glob("lib/python*/site-packages")
    (record,) = site.glob("enmasse-*.dist-info")
    names = {line.partition(",")[0].partition("/")[0] for line in (record / "RECORD").read_text().splitlines()}
    assert names == {"..", record.name, "enmasse"}
    assert (record / "licenses" / "LICENSE").is_file()
    metadata = email.message_from_string((record / "METADATA").read_text())
    assert (metadata["Name"], metadata["Version"]) == ("enmasse", enmasse.__version__)
    assert metadata["Author"] == "The EnMasse developers" and metadata["License-Expression"] == "Apache-2.0"


def test_every_module_can_be_imported(venv: Path) -> None:
    call(venv / "bin" / "python", "-P", "-c", IMPORT_ALL)


def test_the_telemetry_pipeline_is_found_in_the_wheel(venv: Path, tmp_path: Path) -> None:
    """As `enmasse spark run` and `enmasse up --with spark` start it, where the user has a `spark.py` too."""
    (tmp_path / "spark.py").write_text("raise SystemExit('the spark.py of the user')")
    (tmp_path / "pipeline.toml").write_text("[nothing]")
    python, program = venv / "bin" / "python", "from enmasse.process.installed import import_path; print(import_path())"
    environment = ast.literal_eval(call(python, "-P", "-c", program))
    checked = subprocess.run(
        [python, "-P", "-m", "spark.pipeline_file", "pipeline.toml"],
        capture_output=True, text=True, cwd=tmp_path, env={**WRITING, **environment},
    )  # fmt: skip
    assert checked.returncode == 1 and "pipeline.toml" in checked.stderr and "nothing" in checked.stderr


def test_the_quick_start_of_the_readme(venv: Path, tmp_path: Path) -> None:
    program, offset = str(venv / "bin" / "enmasse"), free_offset()
    environment = {
        **WRITING,
        "PATH": f"{venv / 'bin'}:{os.defpath}",
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": "",
        "XDG_DATA_HOME": "",
        "ENMASSE_PORT_OFFSET": str(offset),
        "ENMASSE_SECONDS": "0.2",
    }
    folders = tmp_path / f".config/enmasse-{offset}", tmp_path / f".local/share/enmasse-{offset}"
    with Up(*folders, fake=False, offset=offset, environment=environment, program=program) as up:
        up.until_ready()
        shown = [run(line, venv, environment) for line in quick_start()]
        assert shown[:2] == [f"sent 1 to amqp://127.0.0.1:{5672 + offset}/myqueue: 1 accepted\n", "hello\n"]
        assert shown[3].endswith("\nready\n") and "orders " in shown[3]
        assert shown[4].startswith("rate ")
        assert "Examples:" in shown[5]
        assert shown[8] == "21.5\n" and "mytopic/kitchen" in shown[9]
        assert up.http("/metrics")[0] == 200
        for line in A_SPACE_IS_COPIED:
            run(f"cd {tmp_path} && {line}", venv, environment)
        assert run(".venv/bin/enmasse receive jobs --space two --browse", venv, environment) == "hello\n"
        assert up.end() == 0
