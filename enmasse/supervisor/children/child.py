"""One child process: started, watched, restarted when it dies, stopped at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from enmasse.engines import EMBEDDED
from enmasse.engines.program import ChildHealth, HealthProbe, Program, Spec
from enmasse.logs import log
from enmasse.network.backoff import RESTART, Backoff
from enmasse.process import runner
from enmasse.storage.files import write_changed_json
from enmasse.supervisor.children import logfile, os_process
from enmasse.supervisor.children.launch import Launch, Process
from enmasse.supervisor.children.probe import Probe
from enmasse.supervisor.plan.internal_ports import LOOPBACK

STABLE = 3.0
"""Seconds of being ready after which the next restart is immediate again."""
POLL_STARTING, POLL_READY = 0.05, 5.0
"""Seconds between two health checks, unless its health is requested. (That a process has died is known without them.)
"""
POLL_LEAVING = 1.0
FRESH = 1.0
"""Seconds for which an answer to a health check is good enough for a request."""
LEAVING = "leaving"
"""First word of what a process reports that hands its clients on."""
LOG_CHECK = 4.0
HUNG, HUNG_CARRIER = 60.0, 8.0
"""Seconds after which a process that was ready, and does not answer, is killed; and one that carries clients' messages,
unless it waits for the disk. Time in which it waited for a processor does not count."""
LEAST_ASKED = 4
"""Questions that it must have left unanswered, so that a stop of the whole machine does not count."""
STOPPED = 0.5
"""Seconds after which a stopped process (SIGSTOP) that carries clients' messages is killed."""

Command = Callable[[str, Path], list[str]]
"""(kind, settings file) → what to execute."""


class Service:
    """One of our services: one settings file, and health on a port."""

    def __init__(self, command: Command) -> None:
        self._command = command

    def prepare(self, spec: Spec, folder: Path) -> list[str]:
        """Write the settings file, and return the command that starts the service with it. Raises OSError."""
        return self._command(spec.kind, write_changed_json(folder / f"{spec.name}.json", spec.settings))

    def probe(self, spec: Spec) -> HealthProbe:
        """Return the probe of the service's health endpoint."""
        return Probe(LOOPBACK, spec.health_port)


def now() -> str:
    """Return the current time in the form of the status JSON: UTC, RFC 3339, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Silence:
    """Time that a process has not answered, after it was ready. `now`: a clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._was_ready = False
        self._since: float | None = None
        self._asked = 0
        self.seconds = 0.0

    def note(self, health: ChildHealth) -> float:
        """Take an answer, or its absence; return the seconds since the first question without an answer. A process that
        was not ready yet may be reading its store: 0."""
        self._was_ready = self._was_ready or health.ready
        if not health.hung or not self._was_ready:
            self._since, self._asked, self.seconds = None, 0, 0.0
            return 0.0
        self._since = self._now() if self._since is None else self._since
        self._asked += 1
        self.seconds = self._now() - self._since if self._asked >= LEAST_ASKED else 0.0
        return self.seconds


class Child:
    """A process of the suite. `issue` is called before each start (it writes the credential, or raises OSError),
    `changed` when pid or readiness changed; `say` gets a line for users."""

    def __init__(
        self, spec: Spec, program: Program, launch: Launch, run_dir: Path, log_dir: Path,
        issue: Callable[[], None], changed: Callable[[], None], say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.spec = spec
        self.pid: int | None = None
        self.ready = False
        self.leaving = False
        """True while the process hands its clients on, before it ends."""
        self.restarts = 0
        self.ended = ""
        self.ended_at: str | None = None
        self.since = now()
        self.endpoints: dict[str, str] = {}
        self.counts: dict[str, int] = {}
        self.routes: dict[str, Any] = {}
        self.detail = "not started"
        self._program = program
        self._launch = launch
        self._run_dir = run_dir
        self._log_file = log_dir / f"{spec.name}.log"
        self._log = log.get(component=spec.name)
        self._issue = issue
        self._changed = changed
        self._say = say
        self._stopping = asyncio.Event()
        self._restart: asyncio.Task[None] | None = None
        """Ends the process, which is started again then; None: no restart is ordered."""
        self._stopped_since: float | None = None
        self._ready_at = 0.0
        self._known_at = 0.0
        self._ask_now = asyncio.Event()
        self._answered = asyncio.Event()
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to run it; returns at once."""
        self._task = asyncio.create_task(self._run(), name=f"child {self.spec.name}")

    async def leave(self, patience: float) -> None:
        """As `stop`, but the process hands its clients on first, if it has any."""
        self._log_leaving()
        await self._stop(signal.SIGTERM, patience + self.spec.leave_within)

    def restart(self, patience: float, *, hands_on: bool) -> bool:
        """Have the running process end, and start it again then; send SIGKILL after `patience` seconds. `hands_on`: it
        hands its clients on first, if it can. Return False if none runs, or it is about to end already."""
        if self.pid is None or self._restart is not None or self._stopping.is_set():
            return False
        self.leaving = hands_on and self.spec.leave_within > 0
        if self.leaving:
            self._log_leaving()
            patience += self.spec.leave_within
        order = signal.SIGTERM if self.leaving or not self.spec.leave_within else signal.SIGINT
        self._restart = asyncio.create_task(self._end(order, patience), name=f"restart {self.spec.name}")
        return True

    async def _end(self, order: int, patience: float) -> None:
        self._signal(order)
        await asyncio.sleep(patience)
        self._log.error("component.process.killed", pid=self.pid, seconds=patience)
        self._signal(signal.SIGKILL)

    def _log_leaving(self) -> None:
        self._log.info("component.process.leaving", pid=self.pid, counts=self.counts)
        self._ask_now.set()

    def hurry(self) -> None:
        """Have a process that leaves end at once."""
        self._signal(signal.SIGINT)

    async def stop(self, patience: float) -> None:
        """Have the process end, and send SIGKILL after `patience` seconds. Returns when it has ended."""
        await self._stop(signal.SIGINT if self.spec.leave_within else signal.SIGTERM, patience)

    async def _stop(self, order: int, patience: float) -> None:
        self._stopping.set()
        self._signal(order)
        if self._task is None:
            return
        done, _ = await asyncio.wait([self._task], timeout=patience)
        if not done:
            self._log.error("component.process.killed", pid=self.pid, seconds=patience)
            self._say(f"{self.spec.name} does not stop within {patience:.3g} s and is killed")
            self._signal(signal.SIGKILL)
        await runner.join(self._task)

    def kill(self) -> None:
        """Send SIGKILL; the process is not restarted."""
        self._stopping.set()
        self._signal(signal.SIGKILL)

    def is_alive(self) -> bool:
        """Return True if the process runs at this moment; the event loop may notice its end later."""
        if self.pid is None or self._process is None or self._process.returncode is not None:
            return False
        try:
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return False
        except ChildProcessError:
            return False
        # A killed process whose other threads are still ending cannot be waited for yet, but it is dead.
        try:
            return os_process.state(self.pid) not in (b"Z", b"X")
        except OSError:
            return not Path("/proc/self").exists()

    def look(self, now: float) -> None:
        """Kill the process if it has been stopped for STOPPED seconds and clients wait for it. Its connections end with
        it, and so does its part of the connects to ports that it shares."""
        if self.pid is None or self.spec.kind not in os_process.WAITED_FOR or not os_process.is_stopped(self.pid):
            self._stopped_since = None
        elif self._stopped_since is None:
            self._stopped_since = now
        elif now - self._stopped_since >= STOPPED:
            self._log.error("component.process.suspended", pid=self.pid, seconds=round(now - self._stopped_since, 1))
            self._say(f"{self.spec.name} was stopped by a signal and is killed, because clients wait for it")
            self._signal(signal.SIGKILL)

    def renew(self, spec: Spec) -> None:
        """Have the process take changed settings. What it is to listen on is asked of it by `renewed`. Raises
        OSError."""
        wanted = self.spec.wanted_endpoints & spec.wanted_endpoints
        if spec.settings != self.spec.settings and spec.engine == EMBEDDED:
            self._program.prepare(spec, self._run_dir)
        self.spec = replace(spec, wanted_endpoints=wanted)
        if spec.engine == EMBEDDED:
            self._signal(signal.SIGHUP)

    async def renewed(self, wanted: frozenset[str], former: frozenset[str], seconds: float) -> str:
        """Wait until it listens on all of `wanted`, and no longer on any of `former`. Return what is not so after
        `seconds`, as a sentence; empty: nothing. From then on it counts as not ready without `wanted`."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        while True:
            at = self.endpoints.values()
            missing, open_still = wanted.difference(at), former.intersection(at)
            if not (missing or open_still) or loop.time() >= ends:
                break
            self._ask_now.set()
            await asyncio.sleep(POLL_STARTING)
        self.spec = replace(self.spec, wanted_endpoints=wanted)
        said = [("does not listen on", missing, " yet"), ("still listens on", open_still, "")]
        parts = [f"{verb} {', '.join(sorted(places))}{end}" for verb, places, end in said if places]
        return f"{self.spec.name} {' and '.join(parts)}" if parts else ""

    async def refresh(self) -> None:
        """Wait until its health is known as of FRESH seconds ago at most, if the process was ready."""
        if self.ready and asyncio.get_running_loop().time() - self._known_at > FRESH:
            self._answered.clear()
            self._ask_now.set()
            await self._answered.wait()

    @property
    def is_serving(self) -> bool:
        """Return True if it serves clients and does not hand them on."""
        return self.ready and not self.leaving and self.is_alive()

    def component(self, *, redundant: bool = False) -> dict[str, Any]:
        """Return this process as an entry of `components` in the status JSON. `redundant`: see docs/cli.md."""
        ready = self.ready and self.is_alive()
        return {
            "name": self.spec.name,
            "kind": self.spec.kind,
            "engine": self.spec.engine,
            "pid": self.pid,
            "ready": ready,
            "leaving": self.leaving,
            "redundant": redundant,
            "restarts": self.restarts,
            "ended": self.ended,
            "endedAt": self.ended_at,
            "since": self.since,
            # The agent's listener `ragent-listener/amqp` is shown as `amqp`.
            "endpoints": {name.rpartition("/")[2]: at for name, at in self.endpoints.items()} if ready else {},
            "counts": self.counts if ready or self.leaving else {},
            **({"routes": self.routes} if self.routes and ready else {}),
            "detail": self._shown_detail(is_ready=ready),
        }

    def _shown_detail(self, *, is_ready: bool) -> str:
        if self.leaving:  # what it waited for before does not matter now
            return self.detail if self.detail.startswith(LEAVING) else LEAVING
        return "the process has died" if self.ready and not is_ready else self.detail

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        backoff, deaths_in_a_row = Backoff(RESTART), 0
        while not self._stopping.is_set():
            started = loop.time()
            end = await self._run_once()
            restart, self._restart = self._restart, None
            if restart is not None:
                restart.cancel()
            if self._stopping.is_set():
                break
            if restart is not None:
                self.leaving = False
                self._set(False, "starting again, as ordered")
                self._log.info("component.process.restarted")
                continue
            if self.ready and loop.time() - max(started, self._ready_at) >= STABLE:
                deaths_in_a_row = 0
                backoff.reset()
            delay = backoff.wait() if deaths_in_a_row else 0.0
            deaths_in_a_row += 1
            self.restarts += 1
            self.ended, self.ended_at = end, now()
            again = f"starting again in {delay:g} s" if delay else "starting again"
            self._set(False, f"{end}; {again}")
            self._log.error("component.process.ended", reason=end, restart_after=delay, restarts=self.restarts)
            self._say(f"{self.spec.name}: {end}; {again}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._stopping.wait()
        self._set(False, "stopped")
        self._log.info("component.process.stopped")

    async def _run_once(self) -> str:
        """Run one process until its end. Return how it ended."""
        try:
            self._issue()
            command = self._program.prepare(self.spec, self._run_dir)
            output = logfile.open_log(self._log_file)
        except OSError as error:
            return f"cannot be started: {error.filename or self._run_dir}: {error.strerror}"
        try:
            self._process = await self._launch(command, output)
        except OSError as error:
            return f"cannot be started: {error.strerror}"
        finally:
            os.close(output)
        self.pid = self._process.pid
        self._log.info("component.process.started", pid=self.pid)
        if self._stopping.is_set():  # stop() was called while the process was being created
            self._signal(signal.SIGTERM)
        self._set(False, "starting")
        watch = asyncio.create_task(self._watch(), name=f"health {self.spec.name}")
        try:
            code = await self._process.wait()
        except asyncio.CancelledError:
            self._signal(signal.SIGKILL)
            raise
        finally:
            watch.cancel()
            self.pid = None
            await runner.join(watch)
        return self._how_it_ended(code)

    async def _watch(self) -> None:
        """Follow the health of the running process, and bound its log."""
        loop = asyncio.get_running_loop()
        next_log_check = loop.time() + LOG_CHECK
        probe = self._program.probe(self.spec)
        pid = self.pid
        assert pid is not None
        silence = Silence(lambda: loop.time() - os_process.waited(pid))
        try:
            while True:
                health = await probe.ask()
                if silence.note(health) >= self._patience():
                    self._log.error("component.process.hung", pid=self.pid, seconds=round(silence.seconds))
                    self._say(f"{self.spec.name} has not answered for {silence.seconds:.0f} s and is killed")
                    self._signal(signal.SIGKILL)
                    return
                ready, detail = self._judge(health)
                self.endpoints, self.counts, self.routes = health.endpoints, health.counts, health.routes
                self._set(ready, detail)
                self._known_at = loop.time()
                self._answered.set()
                if loop.time() >= next_log_check:
                    logfile.bound_log(self._log_file)
                    next_log_check = loop.time() + LOG_CHECK
                pause = POLL_LEAVING if self.leaving else POLL_READY if ready else POLL_STARTING
                await runner.woken(self._ask_now, pause)
        finally:
            self._answered.set()
            probe.close()

    def _patience(self) -> float:
        """Return the seconds without an answer after which it is killed."""
        quick = self.spec.kind in os_process.CARRIERS and self.spec.engine == EMBEDDED
        return HUNG_CARRIER if quick and self.pid is not None and not os_process.waits_for_disk(self.pid) else HUNG

    def _judge(self, health: ChildHealth) -> tuple[bool, str]:
        missing = self.spec.wanted_endpoints.difference(health.endpoints.values())
        if health.ready and missing:
            return False, f"does not listen yet on {', '.join(sorted(missing))}"
        return health.ready, health.detail

    def _set(self, ready: bool, detail: str) -> None:
        if (ready, detail) == (self.ready, self.detail):
            return
        if ready and not self.is_alive():  # the answer came from a process that has ended
            return
        if ready != self.ready:
            self.since = now()
            self._ready_at = asyncio.get_running_loop().time()
            if self.pid is not None:  # otherwise the end of the process is logged
                self._log.info(
                    "component.readiness.gained" if ready else "component.readiness.lost", pid=self.pid, detail=detail
                )
        self.ready, self.detail = ready, detail
        self._changed()

    def _how_it_ended(self, code: int) -> str:
        if code < 0:
            try:
                how = f"killed by {signal.Signals(-code).name}"
            except ValueError:
                how = f"killed by signal {-code}"
        else:
            how = f"ended with status {code}"
        if code > 0 and (last := logfile.last_line(self._log_file)):
            how += f" ({last}; see {self._log_file})"
        return how

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
