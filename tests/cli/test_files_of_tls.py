"""--ca, --cert and --key where there is no TLS."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from enmasse.cli.registry import group

COMMANDS = {
    "publish": ("publish", "t", "x", "--server", "mqtt://localhost:1"),
    "subscribe": ("subscribe", "t", "--server", "mqtt://localhost:1"),
    "publish here": ("publish", "t", "x"),
    "send": ("send", "-a", "amqp://localhost:1/q", "x"),
    "receive": ("receive", "-a", "localhost:1/q"),
    "request": ("request", "-a", "amqp://localhost:1/q", "x"),
    "reply": ("reply", "-a", "amqp://localhost:1/q"),
    "bench": ("bench", "-a", "amqp://localhost:1/q"),
    "send here": ("send", "q", "x"),
}


@pytest.mark.parametrize("option", ["--ca", "--cert"])
@pytest.mark.parametrize("command", COMMANDS)
def test_files_for_tls_are_refused_without_it(command: str, option: str, tmp_path: Path) -> None:
    file = tmp_path / "file.pem"
    file.touch()
    result = CliRunner().invoke(group, [*COMMANDS[command], option, str(file)])
    assert result.exit_code == 2
    assert f"{option} is for TLS" in result.output
    assert ("mqtts://HOST" if "pub" in command or "sub" in command else "amqps://HOST") in result.output


def test_files_that_the_environment_names_are_for_other_commands(tmp_path: Path) -> None:
    file = tmp_path / "file.pem"
    file.touch()
    result = CliRunner().invoke(group, [*COMMANDS["publish"]], env={"ENMASSE_CA": str(file)})
    assert "is for TLS" not in result.output and result.exit_code == 4
