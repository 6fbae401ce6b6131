"""Settings files: what is read, and the one line for each way to get them wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from enmasse.process import settings


class Service(settings.ServiceSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    listen: settings.HostPort
    reporters: tuple[str, ...] = ("ragent",)


GOOD = '{"name": "one", "health": "127.0.0.1:1", "listen": "[::1]:5672"}'


def write(folder: Path, text: str) -> Path:
    path = folder / "service.json"
    path.write_text(text)
    return path


def test_reads_settings_with_defaults(tmp_path: Path) -> None:
    found = settings.load(write(tmp_path, GOOD), Service)
    assert (found.name, found.listen, found.log_level, found.reporters) == ("one", "[::1]:5672", "warning", ("ragent",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD.replace('"listen"', '"listne"'), "unknown field `listne`"),
        (GOOD.replace("}", ', "extra": 1}'), "extra"),
        (GOOD.replace('"one"', "1"), "field name: expected `str`"),
        (GOOD.replace("127.0.0.1:1", "127.0.0.1"), "field health: expected host:port"),
        (GOOD.replace("}", ', "log_level": "loud"}'), "field log_level"),
        (GOOD.replace("}", ', "reporters": ["a", 2]}'), "field reporters[1]: expected `str`"),
        ("[1]", "expected `object`"),
        ("{", "truncated"),
        ("", "truncated"),
    ],
)
def test_a_bad_file_ends_the_process_with_one_line(
    tmp_path: Path, text: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(SystemExit) as ended:
        settings.load(path, Service)
    assert ended.value.code == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert line.startswith(f"{path}: ")
    assert expected in line


def test_a_missing_file_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        settings.load(tmp_path / "none.json", Service)
    reason = "cannot be read: No such file or directory [service.setting.invalid]"
    assert capsys.readouterr().err == f"{tmp_path}/none.json: {reason}\n"


def test_host_and_port() -> None:
    assert settings.host_port("127.0.0.1:5672") == ("127.0.0.1", 5672)
    assert settings.host_port("[::1]:0") == ("::1", 0)
    for wrong in ("localhost", "host:", "host:port", "host:70000"):
        with pytest.raises(ValueError, match="not host:port"):
            settings.host_port(wrong)


def test_the_environment_names_a_process_whose_file_others_use_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, GOOD)
    monkeypatch.setenv("ENMASSE_NAME", "broker-7d4f")
    found = settings.load(path, Service)
    assert (found.name, found.listen) == ("broker-7d4f", "[::1]:5672")
