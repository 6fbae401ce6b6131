"""What `enmasse up` refuses before it starts anything: status 2, and a line that says what, where and what to do."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from enmasse.cli.common import MAX_OFFSET_STOMP
from enmasse.supervisor.desired_processes import write_actual
from enmasse.supervisor.errors import StartError
from enmasse.supervisor.plan import datadir, internal_ports, public_ports
from tests.certificates import Authority
from tests.cli.running import ENMASSE, Up, enmasse, free_offset
from tests.kit.waiting import DEADLINE


def refused(config: Path, tmp_path: Path, *options: str | Path) -> str:
    """What is said on stderr."""
    done = enmasse("up", "--config", config, "--data", tmp_path / "data", "--port-offset", free_offset(), *options)
    assert done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr, done
    assert not list((tmp_path / "data").glob("run/*.json"))
    return done.stderr


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("addresses.json", '{\n"a": nothing}', "addresses.json:2: is not JSON:"),
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
    assert "Correct it" in told


def test_first_start_with_a_pipe_in_place_of_a_file(config: Path, tmp_path: Path) -> None:
    (config / "addresses.json").unlink()
    os.mkfifo(config / "addresses.json")
    assert f"{config}/addresses.json: cannot be read: is not a file" in refused(config, tmp_path)


def test_a_configuration_folder_that_is_a_file(config: Path, tmp_path: Path) -> None:
    file = config / "addresses.json"
    assert f"configuration directory {file} is not a directory." in refused(file, tmp_path)


TOLD_WHILE_IT_CHECKS = """
import os, sys
from enmasse.supervisor import start
number = int(sys.argv.pop())
start.check_config = lambda *_: os.kill(os.getpid(), number)
from enmasse.cli import main
main()
"""
TOLD_WHILE_IT_IMPORTS = """
import importlib.abc, os, sys
number = int(sys.argv.pop())
class Told(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "click":
            os.kill(os.getpid(), number)
sys.meta_path.insert(0, Told())
from enmasse.cli import main
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("code", [TOLD_WHILE_IT_CHECKS, TOLD_WHILE_IT_IMPORTS])
def test_told_to_end_before_anything_runs(code: str, number: signal.Signals, config: Path, tmp_path: Path) -> None:
    options = ["--config", str(config), "--data", str(tmp_path / "data"), "--port-offset", str(free_offset())]
    command = [sys.executable, "-c", code, "up", *options, str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    datadir.open_data_dir(tmp_path / "data").close()  # the lock was given back


def test_tests_of_hang_ups_hold_under_nohup() -> None:
    """Processes that are started while it is ignored ignore it too: so this process must not hand that on."""
    ask = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
    code = f"import subprocess, sys, tests.conftest; subprocess.run([sys.executable, '-c', {ask!r}], check=True)"
    command = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh", sys.executable, "-c"]
    for program, ignored in ((ask, "True\n"), (code, "False\n")):
        assert (
            subprocess.run([*command, program], stdout=subprocess.PIPE, text=True, timeout=DEADLINE).stdout == ignored
        )


def test_a_name_that_is_not_utf8(config: Path, tmp_path: Path) -> None:
    data = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    done = enmasse("up", "--config", config, "--data", data, "--port-offset", free_offset())
    assert done.returncode == 2 and "argument 5 is not UTF-8" in done.stderr
    assert not os.path.exists(data)


def test_a_port_offset_with_which_a_port_does_not_exist(config: Path, tmp_path: Path) -> None:
    options = ("--config", config, "--data", tmp_path / "data", "--port-offset", MAX_OFFSET_STOMP + 10)
    done = enmasse("up", *options, "--with", "stomp")
    text = f"stompws: port 65543 does not exist; give --port-offset {MAX_OFFSET_STOMP + 2} or a smaller one"
    assert done.returncode == 2 and text in done.stderr, done.stderr


def test_called_in_a_directory_that_is_gone(tmp_path: Path) -> None:
    command = ["sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "sh", ENMASSE, "up"]
    done = subprocess.run(
        [*command, "--config", "c", "--data", "d"], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.returncode == 2 and "the current directory does not exist" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("taken", "is_folder", "reason"),
    [
        ("run/ports.json", True, "Is a directory"),
        ("run/actual.json", True, "Is a directory"),
        ("logs", False, "exists"),
    ],
)
def test_a_file_that_cannot_be_replaced(taken: str, is_folder: bool, reason: str, config: Path, tmp_path: Path) -> None:
    path = tmp_path / "data" / taken
    path.parent.mkdir(parents=True)
    path.mkdir() if is_folder else path.touch()
    done = enmasse("up", "--config", config, "--data", tmp_path / "data", "--port-offset", free_offset())
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"{path}: " in done.stderr and reason in done.stderr


def test_first_start_without_a_folder(tmp_path: Path) -> None:
    assert f"`enmasse init {tmp_path / 'nix'}`" in refused(tmp_path / "nix", tmp_path)
    assert not (tmp_path / "data").exists()


def test_later_start_with_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """The suite could start with the configuration that it has stored, which is not the one that was named."""
    (tmp_path / "data" / "configserv").mkdir(parents=True)
    (tmp_path / "data" / "configserv" / "state.json").write_text("{}")
    told = refused(tmp_path / "nix", tmp_path)
    assert f"{tmp_path / 'nix'}: no such directory. Correct --config" in told and "of the last run" in told


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
    for mode in (0o640, 0o600):
        cert.chmod(mode)
        told = refused(config, tmp_path, "--tls-cert", cert, "--tls-key", cert)
        warning = f"warning: {cert} has a private key, and other users can read it: `chmod 600 {cert}`"
        assert (warning in told) == (mode == 0o640), told


def test_the_ca_of_clients(config: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    assert "--tls-client-ca needs TLS" in refused(config, tmp_path, "--tls-client-ca", authority.file)
    auto = ("--tls", "auto", "--tls-client-ca")
    missing = tmp_path / "missing"
    assert f"--tls-client-ca {missing}: No such file" in refused(config, tmp_path, *auto, missing)
    missing.write_text("no certificate")
    told = refused(config, tmp_path, *auto, missing)
    assert f"--tls-client-ca {missing}:" in told and "PEM" in told


def test_a_tls_key_with_a_password(config: Path, tmp_path: Path) -> None:
    """Nobody is asked for it: that would hang without a word where nobody looks."""
    cert, key = Authority(tmp_path).issue("server")
    secret = serialization.load_pem_private_key(key.read_bytes(), None)
    closed = serialization.BestAvailableEncryption(b"secret")
    key.write_bytes(secret.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, closed))
    assert "the key without a password" in refused(config, tmp_path, "--tls-cert", cert, "--tls-key", key)


@pytest.mark.parametrize("public", [8080, 5672, 1883])
def test_a_port_in_use_leaves_no_folder(public: int, config: Path, tmp_path: Path) -> None:
    offset = free_offset()
    with socket.create_server(("127.0.0.1", public + offset)):
        done = enmasse("up", "--config", config, "--data", tmp_path / "new" / "data", "--port-offset", offset)
    assert done.returncode == 2 and f"port {public + offset} (" in done.stderr and f"(pid {os.getpid()})" in done.stderr
    assert not (tmp_path / "new").exists()


def test_who_uses_the_data_directory_is_told_before_its_ports(config: Path, tmp_path: Path) -> None:
    with Up(config, tmp_path / "data", fake=True) as up:
        up.feed()
        up.until_ready()
        done = enmasse("up", "--config", config, "--data", tmp_path / "data", "--port-offset", up.offset)
        assert done.returncode == 2 and f"in use by process {up.process.pid}" in done.stderr


def test_a_data_directory_that_others_may_read(tmp_path: Path) -> None:
    """As an older version has made it, or somebody by hand."""
    path = tmp_path / "data"
    datadir.open_data_dir(path).close()
    (path / "brokers" / "b").mkdir(parents=True, mode=0o755)
    (path / "brokers" / "b" / "0000000001.journal").write_text("")
    (path / "brokers" / "b" / "elsewhere").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("")
    for name in (path, path / "run", path / "brokers", path / "brokers" / "b"):
        name.chmod(0o755)
    (path / "brokers" / "b" / "0000000001.journal").chmod(0o664)
    (tmp_path / "elsewhere").chmod(0o644)
    datadir.open_data_dir(path).close()
    found = {name: name.lstat().st_mode for name in (path, *path.rglob("*")) if not name.is_symlink()}
    assert len(found) > 7 and not [name for name, mode in found.items() if mode & 0o077]
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o644


def test_no_disk_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datadir.open_data_dir(tmp_path / "used").close()
    monkeypatch.setattr(datadir, "MIN_FREE_BYTES", 1 << 60)
    with pytest.raises(StartError, match=r"no disk space: data directory .* Make room"):
        datadir.open_data_dir(tmp_path / "data")
    assert not (tmp_path / "data" / "format.json").exists()
    datadir.open_data_dir(tmp_path / "used").close()  # its messages can be consumed, which makes room


def test_the_lock_ends_with_its_holder(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from enmasse.supervisor.plan.datadir import open_data_dir\n"
        "open_data_dir(Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=DEADLINE)
    first = datadir.open_data_dir(tmp_path)
    with pytest.raises(StartError, match="is in use by process"):
        datadir.open_data_dir(tmp_path)
    first.close()
    datadir.open_data_dir(tmp_path).close()


def test_the_lock_does_not_end_with_its_file(tmp_path: Path) -> None:
    first = datadir.open_data_dir(tmp_path)
    (tmp_path / "lock").unlink()
    with pytest.raises(StartError, match="is in use by another process"):
        datadir.open_data_dir(tmp_path)
    first.close()
    datadir.open_data_dir(tmp_path).close()


@pytest.mark.parametrize("name", ["lock", "run", "logs", "desired"])
def test_something_else_in_the_data_directory(name: str, tmp_path: Path) -> None:
    if name == "lock":
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text("")
    with pytest.raises(StartError, match=f"data directory {tmp_path}: {tmp_path / name}: (Is a|File)"):
        datadir.open_data_dir(tmp_path)
    (tmp_path / name).rmdir() if name == "lock" else (tmp_path / name).unlink()
    datadir.open_data_dir(tmp_path).close()


def test_internal_ports_are_reserved_and_kept(tmp_path: Path) -> None:
    first = internal_ports.InternalPorts(tmp_path / "ports.json")
    port = first.get("a/amqp")
    assert port in internal_ports.INTERNAL and first.get("a/amqp") == port and first.get("b/amqp") != port
    with pytest.raises(OSError, match="in use"), socket.socket() as stranger:
        stranger.bind(("127.0.0.1", port))
    with socket.create_server(("127.0.0.1", port)):  # our service, with SO_REUSEADDR as asyncio does
        pass
    first.close()
    again = internal_ports.InternalPorts(tmp_path / "ports.json")
    assert again.get("a/amqp") == port
    again.release("a/amqp")
    again.close()
    with socket.create_server(("127.0.0.1", port)):  # taken meanwhile: another one
        third = internal_ports.InternalPorts(tmp_path / "ports.json", avoid=())
        third._known["a/amqp"] = port
        assert third.get("a/amqp") != port
        third.close()


def test_internal_ports_avoid_the_public_ones(tmp_path: Path) -> None:
    free = internal_ports.InternalPorts(tmp_path / "free.json")
    only = {free.get(key) for key in ("a", "b", "c")}
    free.close()
    found = internal_ports.InternalPorts(tmp_path / "ports.json", avoid=set(internal_ports.INTERNAL) - only)
    assert {found.get("a"), found.get("b")} < only
    found.close()


def test_who_has_a_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        owner = public_ports.owner_of(server.getsockname()[1])
        assert owner is not None and f"(pid {os.getpid()})" in owner


def test_a_broker_whose_messages_are_gone(config: Path, tmp_path: Path) -> None:
    """As where the disk of its folder is not mounted: a suite with empty queues would look healthy."""
    data = tmp_path / "data"
    (data / "run").mkdir(parents=True)
    (data / "desired").mkdir()
    (data / "format.json").write_text('{"format": 1}')
    desired = data / "desired" / "kept-0.json"
    desired.write_text(
        json.dumps(
            {"schema": 1, "name": "kept-0", "kind": "broker", "flavor": "kept", "settings": {"data_dir": "kept-0"}}
        )
    )
    write_actual(data / "run" / "actual.json", [{"name": "kept-0", "ready": True}])
    done = enmasse("up", "--config", config, "--data", data, "--port-offset", free_offset())
    assert done.returncode == 2 and "[start.data.missing]" in done.stderr, done
    assert str(data / "brokers" / "kept-0") in done.stderr and f"delete {desired}." in done.stderr
