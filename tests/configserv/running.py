"""A real configserv process, and Proton's blocking client to talk to it."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import proton
from proton.utils import BlockingConnection

from enmasse.testing import free_port
from tests.kit.processes import Process, start_service
from tests.kit.waiting import DEADLINE
from tests.kit.waiting import wait_for as wait_until

FLAVORS = {
    "q": {"type": "queue", "templateName": "queue-persisted"},
    "t": {"type": "topic", "templateName": "topic-inmemory"},
}


def content(body: dict[str, Any]) -> dict[str, Any]:
    """A snapshot without its revision."""
    assert body["revision"] > 0
    return {key: value for key, value in body.items() if key != "revision"}


CHANGING = ("addresses", "placements", "status")


def completed(body: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """The content of a feed after a message with changes."""
    full, removed, rows = body.pop("full"), body.pop("removed"), body["addresses"]
    if full or before is None:
        return body
    is_status = isinstance(rows, list)
    now = {each["name"]: each for each in before["addresses"]} if is_status else dict(before["addresses"])
    now.update({each["name"]: each for each in rows} if is_status else rows)
    for name in removed:
        now.pop(name, None)
    return {**body, "addresses": list(now.values()) if is_status else now}


class Configserv:
    """The process and its directories; `start` and `kill` as often as a test likes."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.config = folder / "config"
        self.data = folder / "data"
        self.config.mkdir()
        self.settings = {
            "name": "configserv",
            "health": f"127.0.0.1:{free_port()}",
            "listen": f"127.0.0.1:{free_port()}",
            "config_dir": str(self.config),
            "data_dir": str(self.data),
            "audit": str(folder / "audit.log"),
            **settings,
        }
        self.file = folder / "configserv.json"
        self.file.write_text(json.dumps(self.settings))
        self.log = folder / "log"
        self.process: Process | None = None

    def start(self) -> Configserv:
        self.run()
        wait_until(self.health, "configserv answers")
        return self

    def run(self) -> Process:
        with open(self.log, "ab") as log:
            self.process = start_service("configserv", self.file, log=log)
        return self.process

    def health(self) -> dict[str, Any] | None:
        """The body of /healthz with the HTTP status under `status`; None while nobody answers or listens."""
        body = self.get("/healthz")
        if body is None:
            return None
        found: dict[str, Any] = json.loads(body[1])
        return {**found, "status": body[0]} if found["endpoints"] else None

    def get(self, path: str) -> tuple[int, str] | None:
        try:
            with urllib.request.urlopen(f"http://{self.settings['health']}{path}", timeout=DEADLINE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return None

    def subscribers(self, feed: str) -> int:
        return self._metric(f'enmasse_configuration_subscribers{{feed="{feed}"')

    def addresses(self, phase: str) -> int:
        """The number of addresses in this phase."""
        return self._metric(f'enmasse_addresses{{phase="{phase}"')

    def _metric(self, start: str) -> int:
        body = self.get("/metrics")
        assert body is not None
        (line,) = [line for line in body[1].splitlines() if line.startswith(start)]
        return int(float(line.split()[-1]))

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        if self.process is None or self.process.poll() is not None:
            return 0
        self.process.terminate()
        try:
            return self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def write(self, file: str, content: Any) -> None:
        """Writes a configuration file by atomic rename."""
        new = self.config / f".{file}.new"
        new.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
        new.rename(self.config / file)


class Client:
    """Proton's blocking client; one receiver per feed that is asked for. `others`: those that a test has beside it.

    They send no heartbeats while nobody asks them for something, so they have a turn whenever this one waits."""

    def __init__(self, service: Configserv, others: Sequence[Client] = ()) -> None:
        self.connection = BlockingConnection(service.settings["listen"], timeout=DEADLINE)
        self._others = others
        self._lost = False
        self._receivers: dict[str, Any] = {}
        self._contents: dict[str, dict[str, Any]] = {}
        self._senders: dict[tuple[str, str], Any] = {}

    def message(self, feed: str) -> Any:
        """The next message, accepted; credit is given for it only now."""
        receiver = self._receivers.get(feed)
        if receiver is None:
            receiver = self._receivers[feed] = self.connection.create_receiver(feed, credit=0)
        receiver.flow(1)
        self._wait(lambda: receiver.fetcher.incoming, f"a snapshot of {feed}")
        message = receiver.fetcher.pop()  # `receive` would give credit for another one
        receiver.accept()
        return message

    def _wait(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < deadline, f"not within {DEADLINE} s: {what}"
            for other in self._others:
                if other is not self:
                    other.turn()
            with contextlib.suppress(proton.Timeout):
                self.connection.wait(condition, timeout=0.2)

    def turn(self) -> None:
        """Reads and writes what can be read and written now."""
        container = self.connection.container
        if container is None or self._lost:  # of a lost one Proton would break at the next time limit
            return
        before, container.timeout = container.timeout, 0
        try:
            container.process()
        except (proton.ConnectionException, AttributeError):
            # Who uses it is told again. Proton's reactor looks for the transport of a connection that has just been
            # lost, and finds None, if a time limit of it runs out in the same moment.
            self._lost = True
        except proton.ProtonException:
            pass  # a link was closed: likewise
        finally:
            container.timeout = before

    def next(self, feed: str) -> dict[str, Any]:
        """The next content of a feed; of `addresses`, `placements` and `status` made of their changes."""
        found: dict[str, Any] = json.loads(self.message(f"{feed}/changes" if feed in CHANGING else feed).body)
        if feed in CHANGING:
            found = self._contents[feed] = completed(found, self._contents.get(feed))
        return found

    def find(self, feed: str, condition: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """The first snapshot for which `condition` holds."""
        deadline = time.monotonic() + DEADLINE
        while True:
            found = self.next(feed)
            if condition(found):
                return found
            assert time.monotonic() < deadline, f"last: {found}"

    def phases(self, **expected: str) -> dict[str, Any]:
        """Waits for a status with exactly these phases."""
        return self.find("status", lambda body: {a["name"]: a["phase"] for a in body["addresses"]} == expected)

    def send(self, target: str, body: Any, *, subject: str | None = None, link: str = "me") -> None:
        """Sends a report and waits until it is accepted; raises SendException when it is not."""
        key = (target, link)
        if key not in self._senders:
            self._senders[key] = self.connection.create_sender(target, name=link)
        message = body if isinstance(body, proton.Message) else proton.Message(body=json.dumps(body))
        if subject is not None:
            message.subject = subject
        sender = self._senders[key]
        if sender.link.state & proton.Endpoint.REMOTE_CLOSED:  # it was told so in the turn of another client
            raise proton.utils.LinkDetached(sender.link)
        sender.send(message, timeout=DEADLINE)

    def ready(self, reporter: str, *names: str, subject: str = "full", **more: Any) -> None:
        """Reports these addresses as ready."""
        entry = {"ready": True, "failed": False, "message": "", "components": [reporter], "messages": None}
        addresses = {name: {**entry, "consumers": None, **more} for name in names}
        self.send("readiness", {"addresses": addresses, "removed": []}, subject=subject, link=reporter)

    def close(self, seconds: float = DEADLINE) -> None:
        """Closes, and waits so long for the answer. Raises proton.Timeout."""
        self.connection.timeout = seconds
        self.connection.close()
