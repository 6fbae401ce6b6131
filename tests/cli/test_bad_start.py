"""What `enmasse up` refuses before it starts anything: status 2, and a line that says what, where and what to do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from enmasse.cli.up import command as up_command
from enmasse.supervisor import datadir, ports, start
from enmasse.supervisor.errors import StartError
from tests.cli.running import Up, enmasse, free_offset


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "config"
    assert enmasse("init", folder).returncode == 0
    return folder


def refused(config: Path, tmp_path: Path, *options: str | Path) -> str:
    """What is said on stderr."""
    done = enmasse("up", "--config", config, "--data", tmp_path / "data", "--port-offset", free_offset(), *options)
    assert done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr, done
    assert not list((tmp_path / "data").glob("run/*.json"))
    return done.stderr


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("addresses.json", '{\n"a": {"type": "anycast"},\n}', "addresses.json:3: is not JSON:"),
        ("addresses.json", "", "addresses.json: is empty"),
        ("addresses.json", "[]", "addresses.json:1: must be an object"),
        ("flavors.json", '{"a": ', "flavors.json:1: is not JSON:"),
        ("flavors.json", None, "flavors.json: is missing"),
    ],
)
def test_first_start_with_a_file_that_cannot_be_used(
    file: str, content: str | None, said: str, config: Path, tmp_path: Path
) -> None:
    if content is None:
        (config / file).unlink()
    else:
        (config / file).write_text(content)
    told = refused(config, tmp_path)
    assert f"{config}/{said}" in told
    assert "Put it right" in told


def test_first_start_with_a_pipe_in_place_of_a_file(config: Path, tmp_path: Path) -> None:
    (config / "addresses.json").unlink()
    os.mkfifo(config / "addresses.json")
    assert f"{config}/addresses.json: cannot be read: is not a file" in refused(config, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_told_to_end_before_anything_runs(
    number: signal.Signals, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "check_config", lambda *_: os.kill(os.getpid(), number))
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    arguments = ["--config", str(config), "--data", str(tmp_path / "data"), "--port-offset", str(free_offset())]
    try:
        with pytest.raises(SystemExit) as ended:
            up_command.main(arguments)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert ended.value.code == 0
    datadir.open_data_dir(tmp_path / "data").close()  # the lock was given back


def test_first_start_without_a_folder(tmp_path: Path) -> None:
    assert f"`enmasse init {tmp_path / 'nix'}`" in refused(tmp_path / "nix", tmp_path)


def test_later_start_with_a_file_that_does_not_parse(config: Path, tmp_path: Path) -> None:
    """configserv has the last good configuration then."""
    (tmp_path / "data" / "configserv").mkdir(parents=True)
    (tmp_path / "data" / "configserv" / "state.json").write_text("{}")
    (config / "addresses.json").write_text("{")
    with Up(config, tmp_path / "data", fake=True) as up:
        up.feed()
        up.until_ready()


def test_tls_options(config: Path, tmp_path: Path) -> None:
    cert = tmp_path / "cert.pem"
    assert "--tls-cert and --tls-key go together" in refused(config, tmp_path, "--tls-cert", cert)
    assert f"--tls-cert {cert}: No such file" in refused(config, tmp_path, "--tls-cert", cert, "--tls-key", cert)
    cert.write_text("nonsense")
    told = refused(config, tmp_path, "--tls-cert", cert, "--tls-key", cert)
    assert f"--tls-cert {cert}, --tls-key {cert}:" in told and "PEM" in told


def test_no_disk_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datadir, "MIN_FREE_BYTES", 1 << 60)
    with pytest.raises(StartError, match=r"no disk space: data directory .* Make room"):
        datadir.open_data_dir(tmp_path / "data")


def test_the_lock_ends_with_its_holder(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from enmasse.supervisor.datadir import open_data_dir\n"
        "open_data_dir(Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=20)
    first = datadir.open_data_dir(tmp_path)
    with pytest.raises(StartError, match="is in use by process"):
        datadir.open_data_dir(tmp_path)
    first.close()
    datadir.open_data_dir(tmp_path).close()


def test_internal_ports_are_reserved_and_kept(tmp_path: Path) -> None:
    first = ports.InternalPorts(tmp_path / "ports.json")
    port = first.get("a/amqp")
    assert port in ports.INTERNAL and first.get("a/amqp") == port and first.get("b/amqp") != port
    with pytest.raises(OSError, match="in use"), socket.socket() as stranger:
        stranger.bind(("127.0.0.1", port))
    with socket.create_server(("127.0.0.1", port)):  # our service, with SO_REUSEADDR as asyncio does
        pass
    first.close()
    again = ports.InternalPorts(tmp_path / "ports.json")
    assert again.get("a/amqp") == port
    again.release("a/amqp")
    again.close()
    with socket.create_server(("127.0.0.1", port)):  # taken meanwhile: another one
        third = ports.InternalPorts(tmp_path / "ports.json", avoid=())
        third._known["a/amqp"] = port
        assert third.get("a/amqp") != port
        third.close()


def test_internal_ports_avoid_the_public_ones(tmp_path: Path) -> None:
    only = range(20000, 20003)
    found = ports.InternalPorts(tmp_path / "ports.json", avoid=set(ports.INTERNAL) - set(only))
    assert {found.get("a"), found.get("b")} < set(only)
    found.close()


def test_who_has_a_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        owner = ports.owner_of(server.getsockname()[1])
        assert owner is not None and f"(pid {os.getpid()})" in owner
