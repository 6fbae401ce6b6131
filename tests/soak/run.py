"""A soak: rounds of faults under load, the table, the verdict."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from enmasse.testing import Suite, running
from tests.soak.crew import ADDRESSES, FAST, FLAVORS, Crew
from tests.soak.faults import ALONE, FAULTS, both
from tests.soak.field import Field
from tests.soak.ledger import Ledger, Missing
from tests.soak.load import Post
from tests.soak.watch import Watch, not_ready, status

READY = 120.0
"""Seconds within which everything has to be ready again after a fault."""
STILL = 45.0
"""Seconds without any progress after which who waits counts as stuck."""
GONE = 45.0
"""Seconds in which nothing comes of what is missing, after which it counts as lost."""
LONG = 30.0
"""Seconds of a soak from which MQTT clients take part."""
DEPTH, WHOLE = 400, 600.0
"""MiB that wait in a queue all the time, in a soak of so many seconds and longer; in proportion in a shorter one."""
BACKLOG = 8.0
"""Seconds, at most, in which a backlog gathers before a fault; less in a soak that is shorter."""
WITHOUT_MQTT = ("--without", "mqtt")
HEAD = ("s", "round", "fault", "accepted", "doubles", "lost", "ready", "MiB", "files")
ROW = "{:>5} {:>5}  {:<66} {:>8} {:>7} {:>5} {:>6} {:>4} {:>5}"


class Soak:
    """One soak. `errors` takes what the suite says on stderr; `faults`: the names of those to choose from."""

    def __init__(self, folder: Path, errors: TextIO, seed: int, faults: Sequence[str], *, small_disk: bool) -> None:
        self.folder, self.errors, self.seed, self.faults = folder, errors, seed, list(faults)
        self.small_disk = small_disk
        self.ledger = Ledger()
        self.watch = Watch()
        self.problems: list[str] = []
        """Everything that must not be, in the order it was seen."""
        self.lost: Counter[str] = Counter()
        """By taker."""
        self.mqtt = False
        """MQTT clients take part: in a soak of LONG seconds and more."""
        self.backlog = BACKLOG
        self.round = 0
        self._began = time.monotonic()
        self._told = 0
        """So many of the ledger's violations are among the problems."""

    def run(self, seconds: float, messages: int = 0) -> bool:
        """Faults for so long, then the counts. Whether all was well.

        `messages`: so many are to be accepted; for that the rates are higher, and it lasts twice as long at most.
        """
        self.mqtt = seconds >= LONG
        self.backlog = max(1.0, min(BACKLOG, seconds))
        disk = "a small disk of its own" if self.small_disk else "no disk of its own: full ones are file size limits"
        say(f"seed {self.seed}, {seconds:g} s, {disk}; faults: {', '.join(self.faults)}")
        with running(self.folder, ADDRESSES, FLAVORS, options=() if self.mqtt else WITHOUT_MQTT) as suite:
            suite.stderr = self.errors
            suite.edit("addresses.json", {}, remove=("myqueue", "mytopic", "mqtt", "anycast", "broadcast"))
            suite.up()
            self._two_gateways(suite)
            depth, speed = max(1, int(DEPTH * min(1.0, seconds / WHOLE))), max(1.0, messages / seconds / FAST)
            crew = Crew(suite, self.ledger, self.seed, depth, mqtt=self.mqtt, speed=speed)
            try:
                crew.start()
                self._progress(crew)
                crew.gather()
                self.watch.look(status(suite))
                say(ROW.format(*HEAD))
                field = Field(suite, self.small_disk)
                begun = time.monotonic()
                while (lasted := time.monotonic() - begun) < seconds or (
                    self.ledger.accepted() < messages and lasted < 2 * seconds
                ):
                    self._round(suite, crew, field)
                if (accepted := self.ledger.accepted()) < messages:
                    self.problems.append(f"only {accepted:,} of {messages:,} messages were accepted in {lasted:.0f} s")
                self._finish(suite, crew)
            finally:
                crew.close()
        return self._verdict()

    def _two_gateways(self, suite: Suite) -> None:
        """Scale the MQTT gateways; a suite that is started again has one until then."""
        if not self.mqtt:
            return
        done = suite.command("scale", "mqtt_gateway=2", "--port-offset", str(suite.offset))
        if done.returncode:
            self.problems.append(f"no second gateway: {done.stderr}")

    def _round(self, suite: Suite, crew: Crew, field: Field) -> None:
        """Some receivers leave, a backlog gathers, a fault; they come back in its midst or afterwards; the counts."""
        self.round += 1
        known = len(self.problems)
        rng = random.Random(f"{self.seed} {self.round}")
        names = [rng.choice(self.faults)]
        if rng.random() < 0.2 and not ALONE & {names[0], second := rng.choice(self.faults)} and second != names[0]:
            names.append(second)
        away = [post for post in crew.posts if not post.stays and rng.random() < 0.5]
        for post in away:
            post.leave()
        back = [post for post in crew.posts if post.receiver is None]
        early = [post for post in back if rng.random() < 0.5]
        late = [post for post in back if rng.random() < 0.7]
        time.sleep(rng.uniform(1, self.backlog))
        self.ledger.begin_break(names[0])
        if anew := rng.random() < 0.3:
            field.renew_brokers()
        said = ("brokers anew, " if anew else "") + self._fault(names, field, rng, early)
        ready = self._ready(suite)
        if "suite" in said or "full-disk-start" in said:
            self._two_gateways(suite)
        self.ledger.end_break()
        for post in (*early, *late):
            post.go()
        self._progress(crew)
        lost = self._settle(crew)
        self._retained(crew)
        memory, files = self._bounds(suite)
        self._tell_violations()
        shown = "NOT" if ready is None else f"{ready:.1f} s"
        doubles, seconds = sum(self.ledger.doubles.values()), time.monotonic() - self._began
        accepted = f"{self.ledger.accepted():,}"
        say(ROW.format(f"{seconds:.0f}", self.round, said, accepted, doubles, lost, shown, memory >> 20, files))
        for at in range(known, len(self.problems)):
            self.problems[at] = f"round {self.round}, {said}: {self.problems[at]}"
            say(f"      ! {self.problems[at]}")

    def _fault(self, names: list[str], field: Field, rng: random.Random, early: list[Post]) -> str:
        """What it was, in words. The `early` receivers come back soon after its begin."""

        def come() -> None:
            for post in early:
                post.go()

        coming = threading.Timer(rng.uniform(0, 0.5), come)
        coming.start()
        try:
            if len(names) == 1:
                return f"{names[0]} {FAULTS[names[0]](field, rng)}"
            return both(names[0], names[1], field, rng)
        except Exception as error:
            self.problems.append(f"{type(error).__name__}: {error}")
            return " ".join(names)
        finally:
            coming.join()

    def _ready(self, suite: Suite) -> float | None:
        """Wait until everything is ready; the seconds it took, None where it did not become so."""
        began = time.monotonic()
        while not (now := status(suite))["ready"]:
            if time.monotonic() > began + READY:
                self.problems.append(f"not ready within {READY:g} s: {not_ready(now)}")
                return None
            time.sleep(0.2)
        return time.monotonic() - began

    def _progress(self, crew: Crew) -> None:
        """Something new is accepted from every sender."""
        before = {sender: sender.flow.accepted for sender in crew.senders}
        since = time.monotonic()
        while waiting := [sender for sender, accepted in before.items() if sender.flow.accepted == accepted]:
            if time.monotonic() > since + STILL:
                self.problems += [
                    f"nothing accepted for {STILL:g} s: {sender.describe()}; {crew.receivers()}" for sender in waiting
                ]
                return
            time.sleep(0.05)

    def _settle(self, crew: Crew) -> int:
        """Wait until what is accepted by now has come to all that are present; what does not come is lost: how many."""
        limit = time.monotonic()
        takers = crew.present()
        least, since = None, limit
        while missing := self.ledger.missing(limit, takers):
            if least is None or len(missing) < least:
                least, since = len(missing), time.monotonic()
            if time.monotonic() > since + GONE:
                self.ledger.give_up(missing)
                self._report(missing)
                return len(missing)
            time.sleep(0.1)
        return 0

    def _retained(self, crew: Crew) -> None:
        """A new subscriber gets the retained values that were acknowledged, or newer ones, now or soon."""
        if crew.mqtt is None:
            return
        since = time.monotonic()
        while stale := crew.mqtt.keeper.stale():
            if time.monotonic() > since + GONE:
                said = ", ".join(f"{topic} has {got} for {value}" for topic, (got, value) in stale.items())
                self.problems.append(f"STALE retained values: {said} {crew.mqtt.keeper.trouble}".rstrip())
                return
            time.sleep(0.2)

    def _bounds(self, suite: Suite) -> tuple[int, int]:
        """Memory and descriptors are within bounds, or soon will be; the most of each."""
        since = time.monotonic()
        while True:
            memory, files, beyond = self.watch.look(status(suite))
            if not beyond or time.monotonic() > since + STILL:
                self.problems += beyond
                return memory, files
            time.sleep(0.5)

    def _report(self, missing: list[Missing]) -> None:
        groups: dict[tuple[str, str], list[Missing]] = {}
        for one in missing:
            groups.setdefault((one.taker, one.flow), []).append(one)
        for (taker, flow), some in groups.items():
            self.lost[taker] += len(some)
            times = [one.accepted_at - self._began for one in some]
            numbers = ", ".join(str(one.number) for one in some[:5]) + (" …" if len(some) > 5 else "")
            when = f"accepted between {min(times):.1f} and {max(times):.1f} s"
            self.problems.append(f"LOST {len(some)} of {flow} for {taker}: {numbers}, {when}")

    def _tell_violations(self) -> None:
        new = self.ledger.violations[self._told :]
        self._told += len(new)
        self.problems += new

    def _finish(self, suite: Suite, crew: Crew) -> None:
        """No faults any more: all is accepted, the suite is started anew, all has come, nothing is left."""
        known = len(self.problems)
        for sender in crew.senders:
            sender.enough()
        before, since = -1, time.monotonic()
        while waiting := [sender for sender in crew.senders if not sender.finished()]:
            if (now := self.ledger.accepted()) != before:
                before, since = now, time.monotonic()
            if time.monotonic() > since + STILL:
                self.problems += [
                    f"not everything was accepted: {sender.describe()}; {crew.receivers()}" for sender in waiting
                ]
                break
            time.sleep(0.1)
        crew.hurry()
        for post in crew.posts:
            post.leave()
        self.ledger.begin_break("the end")
        if status_of_up := suite.down():
            self.problems.append(f"enmasse up ended with status {status_of_up}")
        suite.up()
        self._ready(suite)
        self.ledger.end_break()
        for post in crew.posts:
            post.go()
        self._settle(crew)
        self._retained(crew)
        self._empty(suite)
        self._tell_violations()
        for at in range(known, len(self.problems)):
            self.problems[at] = f"at the end: {self.problems[at]}"
            say(f"      ! {self.problems[at]}")

    def _empty(self, suite: Suite) -> None:
        """The status says that nothing is stored any more."""
        since = time.monotonic()
        while held := {a["name"]: a["messages"] for a in status(suite)["addresses"] if a["messages"]}:
            if time.monotonic() > since + STILL:
                self.problems.append(f"the status says that messages are left: {held}")
                return
            time.sleep(0.2)

    def _verdict(self) -> bool:
        ledger = self.ledger
        lost = sum(self.lost.values())
        say(f"{ledger.accepted():,} accepted, {ledger.receipts():,} receipts, {lost} lost, {self.round} rounds")
        seconds = time.monotonic() - self._began
        say(f"{seconds:.0f} s, {time.process_time():.0f} s of processor time for clients and ledger")
        for why, many in ledger.doubles.most_common():
            say(f"{many:,} copies: {why}")
        if ledger.found_late:
            say(f"{ledger.found_late:,} came after they had been counted as lost: they were stuck")
        for name, (memory, files) in sorted(self.watch.highest.items()):
            first = self.watch.first[name]
            say(f"{name}: at most {memory >> 20} MiB, {files} descriptors ({first} at the beginning)")
        for problem in self.problems:
            say(f"! {problem}")
        say(f"seed {self.seed}: {f'FAILED, {len(self.problems)} problems' if self.problems else 'PASSED'}")
        return not self.problems


def say(line: str) -> None:
    print(line, flush=True)
