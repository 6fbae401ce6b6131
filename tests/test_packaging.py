"""The unit of systemd, the compose file and the image of the suite agree with the program. The image itself runs in
tests/images, the sdist is built in tests/cli/test_light_install.py."""

from __future__ import annotations

import configparser
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from enmasse.supervisor.plan.listen_option import PLAIN, parse
from enmasse.supervisor.plan.services import Options
from tests.test_docs import faults

ROOT = Path(__file__).parent.parent
UNIT = ROOT / "packaging" / "enmasse.service"
COMPOSE = yaml.safe_load((ROOT / "packaging" / "compose.yaml").read_text())["services"]["enmasse"]
STAGE = (ROOT / "images" / "Containerfile").read_text().partition(" AS suite\n")[2].partition("\nFROM ")[0]


def unit() -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]  # as its documentation says
    found.read_string(UNIT.read_text())
    return found


def ports() -> dict[str, int]:
    """Return the ports for clients of a suite with TLS and users that listens everywhere."""
    folder = Path("/folder")
    options = Options(config=folder, data=folder, tls_cert=folder, tls_key=folder, users=True, listen=(parse("*"),))
    return options.public_ports.for_clients()


def test_the_unit_runs_commands_that_there_are() -> None:
    service = unit()["Service"]
    for name, line in service.items():
        if name.startswith("Exec"):
            program, *words = line.split()
            assert program.endswith("/bin/enmasse") and list(faults(words)) == []


def test_the_unit_lets_the_suite_end_its_processes_and_write_its_folders() -> None:
    service = unit()["Service"]
    assert service["KillMode"] == "mixed", "systemd would end the processes in any order"
    assert int(service["TimeoutStopSec"]) > 12, "docs/cli.md, End"
    assert service["RestartPreventExitStatus"] == "2"
    options = dict(re.findall(r"--(\w+) (\S+)", service["ExecStart"]))
    assert options == {"config": service["ReadWritePaths"], "data": f"/var/lib/{service['StateDirectory']}"}
    assert "Environment" not in service, "a variable would win over up.json"
    assert service["ExecReload"].endswith(f"reload --data {options['data']}")
    assert unit()["Install"]["WantedBy"] == "multi-user.target"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    here = tmp_path / UNIT.name
    here.write_text(UNIT.read_text().replace("/opt/enmasse/bin/enmasse", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", here], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if here.name in line] == []


def test_the_image_exposes_the_ports_for_clients_and_compose_publishes_those_with_tls() -> None:
    exposed = re.findall(r"^EXPOSE (.+)$", STAGE, re.M)[0].split()
    assert sorted(map(int, exposed)) == sorted(ports().values())
    with_tls = {port for name, port in ports().items() if name not in PLAIN}
    assert {tuple(map(int, each.split(":"))) for each in COMPOSE["ports"]} == {(port, port) for port in with_tls}


def test_compose_builds_the_image_and_keeps_its_volumes() -> None:
    build = COMPOSE["build"]
    assert (ROOT / "packaging" / build["context"] / build["dockerfile"]).is_file() and build["target"] == "suite"
    volumes = json.loads(re.findall(r"^VOLUME (.+)$", STAGE, re.M)[0])
    assert [each.partition(":")[2] for each in COMPOSE["volumes"]] == volumes


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program of the image, for a folder of its own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "enmasse").mkdir()
    spec = importlib.util.spec_from_file_location("program_of_the_image", ROOT / "images" / "suite.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_first_start_of_the_image_makes_a_user_once(program: ModuleType, tmp_path: Path) -> None:
    assert program.is_first_start()
    program.make_user()
    assert not program.is_first_start()
    assert sorted(each.name for each in (tmp_path / "enmasse").iterdir()) == ["admin.password", "users.json"]
    assert {each.stat().st_mode & 0o777 for each in (tmp_path / "enmasse").iterdir()} == {0o600}
    users = json.loads((tmp_path / "enmasse" / "users.json").read_text())
    assert list(users) == ["admin"] and "#" in json.dumps(users)


@pytest.mark.parametrize(
    ("words", "stated", "expected"),
    [
        ([], {}, {"ENMASSE_LISTEN": "*", "ENMASSE_TLS": "auto"}),
        ([], {"ENMASSE_TLS_CERT": "/cert"}, {"ENMASSE_LISTEN": "*", "ENMASSE_TLS_CERT": "/cert"}),
        (["--tls-cert", "/cert"], {}, {"ENMASSE_LISTEN": "*"}),
        ([], {"ENMASSE_TLS": "", "ENMASSE_LISTEN": "::"}, {"ENMASSE_TLS": "", "ENMASSE_LISTEN": "::"}),
    ],
)
def test_the_image_listens_with_tls_unless_something_else_is_stated(
    words: list[str],
    stated: dict[str, str],
    expected: dict[str, str],
    program: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(program.sys, "argv", ["enmasse", "up", *words])
    environment = dict(stated)
    monkeypatch.setattr(program.os, "environ", environment)
    program.set_defaults()
    assert environment == expected
    (program.CONFIG / "up.json").touch()
    environment.clear()
    program.set_defaults()
    assert environment == {}
