"""Starts `enmasse up` (real, or with stand-ins for the services) as a process of its own, for tests."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import Any, TypeVar

from enmasse.testing import free_offset, operator_headers
from tests.kit import processes
from tests.kit.waiting import DEADLINE, wait_for

__all__ = ["ENMASSE", "FAKE_UP", "Up", "address", "alive", "enmasse", "free_offset", "on_a_terminal", "wait_for"]

FAKE_UP = processes.Program((str(Path(__file__).with_name("fakes") / "up.py"),), ("enmasse.supervisor.start",))
ENMASSE = str(Path(sys.executable).with_name("enmasse"))
T = TypeVar("T")


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def enmasse(
    *arguments: str | Path | int,
    input: str | None = None,
    seconds: float = DEADLINE,
    env: dict[str, str] | None = None,
    program: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run one `enmasse` command to its end. `env`: on top of the environment. `program`: executed instead of the
    command of this checkout, which is forked."""
    if program is None:
        return processes.run(processes.COMMAND, *map(str, arguments), input=input, seconds=seconds, environment=env)
    return subprocess.run(
        [program, *map(str, arguments)],
        input=input,
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, **(env or {})},
    )


def on_a_terminal(
    *arguments: object, env: dict[str, str], columns: int = 80, answer: tuple[str, str] | None = None
) -> str:
    """What a command writes on a terminal. `answer`: what it shows, and what is typed there then."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    own_size = {name: "" for name in ("COLUMNS", "LINES") if name in os.environ}  # these would win over the terminal's
    process = processes.start(
        processes.COMMAND, *map(str, arguments), stdin=slave, stdout=slave, stderr=slave, environment=own_size | env
    )
    os.close(slave)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: nobody has the terminal any more
        while data := os.read(master, 65536):
            shown += data
            if answer is not None and answer[0].encode() in shown:
                os.write(master, answer[1].encode())
                answer = None
    os.close(master)
    assert process.wait(DEADLINE) in (0, 1)
    return shown.decode().replace("\r\n", "\n")


def configured(folder: Path) -> Path:
    """Return a new configuration in this folder, without an address or a flavor."""
    config = folder / "config"
    config.mkdir()
    for name in ("addresses.json", "flavors.json"):
        (config / name).write_text("{}")
    return config


class Up:
    """A running `enmasse up`. Use it as a context manager: nothing is left behind."""

    def __init__(
        self,
        config: Path,
        data: Path,
        *,
        fake: bool,
        offset: int | None = None,
        tls: tuple[Path, ...] = (),
        unread: bool = False,
        environment: dict[str, str] | None = None,
        program: str = ENMASSE,
        options: tuple[str, ...] = ("--without", "mqtt"),
    ) -> None:
        """`environment`: in addition to this process's; then the suite has it instead of options."""
        self.config, self.data = config, data
        self.offset = free_offset(options) if offset is None else offset
        (reading, writing), (reading_errors, writing_errors) = os.pipe(), os.pipe()
        self.process: processes.Process
        if fake:
            words = map(str, (config, data, self.offset, *tls))
            self.process = processes.start(
                FAKE_UP, *words, stdout=writing, stderr=writing_errors, environment=environment
            )
        else:
            command = ["up"]
            if environment is None:
                command += ["--config", str(config), "--data", str(data), "--port-offset", str(self.offset), *options]
                pairs = zip(("--tls-cert", "--tls-key"), map(str, tls), strict=False)
                command += [word for pair in pairs for word in pair]
            if program == ENMASSE:
                self.process = processes.start(
                    processes.UP, *command, stdout=writing, stderr=writing_errors, environment=environment
                )
            else:
                whole = {**os.environ, **(environment or {})}
                self.process = subprocess.Popen([program, *command], stdout=writing, stderr=writing_errors, env=whole)
        os.close(writing)
        os.close(writing_errors)
        stdout, stderr = os.fdopen(reading), os.fdopen(reading_errors)
        if unread:  # as `enmasse up | true`
            stdout.close()
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(stdout, self.lines), daemon=True),
            threading.Thread(target=self._read, args=(stderr, self.errors), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: Any, into: list[str]) -> None:
        if not stream.closed:
            with stream:
                for line in stream:
                    into.append(line.rstrip("\n"))

    def __enter__(self) -> Up:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait(DEADLINE)
        for reader in self._readers:
            reader.join(DEADLINE)

    def until_ready(self, seconds: float = DEADLINE) -> Up:
        """Waits for the line on stdout."""

        def ready() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}: {self.errors}")
            return "EnMasse is ready" in self.lines

        try:
            wait_for(ready, "EnMasse is ready", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\nstdout {self.lines}\nstderr {self.errors}\n{self.try_status()}") from None
        return self

    def end(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal and gives the exit status."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """Waits for the end, and for all that it has written. Gives the exit status."""
        status = self.process.wait(DEADLINE)
        for reader in self._readers:
            reader.join(DEADLINE)
        return status

    def http(self, path: str, body: Any = None, method: str | None = None, **headers: str) -> tuple[int, Any]:
        """(status, decoded JSON or text) of a request to the suite, with the operator's secret."""
        import http.client

        asked = operator_headers(self.data)
        connection = http.client.HTTPConnection("127.0.0.1", 8079 + self.offset, timeout=DEADLINE)
        data = None if body is None else body if isinstance(body, str) else json.dumps(body)
        sent = dict(asked)
        if data is not None:
            sent["Content-Type"] = "application/json"
        sent.update({key.replace("_", "-"): value for key, value in headers.items()})
        connection.request(method or ("GET" if body is None else "POST"), path, data, sent)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        if answer.status == 401 and asked != operator_headers(self.data) and "Authorization" not in headers:
            return self.http(path, body, method, **headers)  # the suite was still starting
        return answer.status, json.loads(text) if "json" in (answer.getheader("Content-Type") or "") else text

    def status(self) -> dict[str, Any]:
        """The status JSON."""
        found: dict[str, Any] = self.http("/api/status")[1]
        return found

    def try_status(self) -> Any:
        """The status JSON, or why there is none."""
        import http.client

        try:
            return self.status()
        except (OSError, http.client.HTTPException) as error:
            return str(error)

    def component(self, name: str) -> dict[str, Any]:
        """One component of the status, by name."""
        return next(c for c in self.status()["components"] if c["name"] == name)

    def runs(self, name: str, *, after: int | None = None) -> bool:
        """Whether a component is there and ready, with another pid than `after`: of one look at the status."""
        found = [c for c in self.status()["components"] if c["name"] == name]
        return bool(found) and found[0]["ready"] and found[0]["pid"] != after

    def reports(self, text: str) -> None:
        """Waits until a line on stderr has this in it: what is told on stdout or by HTTP may be read before."""
        try:
            wait_for(lambda: any(text in line for line in self.errors))
        except AssertionError:
            raise AssertionError(f"{text!r} is not in {self.errors}") from None

    def facts(self) -> dict[str, dict[str, Any]]:
        """What the file for the storage controller says of each process, by name; empty where there is none yet."""
        try:
            found = json.loads((self.data / "run" / "actual.json").read_text())
        except FileNotFoundError:
            return {}
        return {fact["name"]: fact for fact in found["components"]}

    def pids(self) -> dict[str, int]:
        """Component name → pid."""
        return {c["name"]: c["pid"] for c in self.status()["components"] if c["pid"]}

    # For stand-ins

    def feed(self, *addresses: dict[str, Any], errors: tuple[dict[str, Any], ...] = (), config: Any = None) -> None:
        """What the status feed says from now on."""
        body = {"schema": 1, "config": config or {}, "addresses": list(addresses), "errors": list(errors)}
        _write(self.data / "feed.json", body)

    def order(self, name: str, /, **order: Any) -> None:
        """Makes a stand-in behave: ready=, die=; and deaf=, which it looks for when it starts."""
        order_before(self.data, name, **order)

    def wish(self, name: str, /, **changes: Any) -> None:
        """Writes a file of the local driver."""
        body = {"schema": 1, "name": name, "kind": "broker", "flavor": "f", "settings": {"data_dir": None}}
        _write(self.data / "desired" / f"{name}.json", body | changes)


def order_before(data: Path, name: str, /, **order: Any) -> None:
    """As `Up.order`, also before a suite on this data directory has been started."""
    _write(data / "run" / f"{name}.order", order)


def _write(path: Path, body: Any) -> None:
    replace(path, json.dumps(body))


def replace(path: Path, text: str) -> None:
    """Writes a file as editors do: nobody ever reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text(text)
    new.replace(path)


def address(name: str, *, ready: bool = True, phase: str = "Active", **more: Any) -> dict[str, Any]:
    """An address as the status feed shows it."""
    return {
        "name": name, "type": "queue", "flavor": "f", "ready": ready, "phase": phase, "message": "",
        "components": [], "messages": 0, "consumers": 0, **more,
    }  # fmt: skip
