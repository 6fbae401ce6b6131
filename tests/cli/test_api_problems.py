"""Texts of the problems that a console answers with."""

from __future__ import annotations

import pytest

from enmasse.cli.contexts.api_problems import refused


@pytest.mark.parametrize(
    ("what", "command"),
    [("address space 'default'", "enmasse space list"), ("address 'a'", "enmasse address list")],
)
def test_what_there_is_not_is_told_with_the_command_that_lists_it(
    what: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        refused(404, {"type": "/api/v1/problems/console.resource.unknown", "detail": f"there is no {what}"})
    assert f"`{command}` shows them" in capsys.readouterr().err
