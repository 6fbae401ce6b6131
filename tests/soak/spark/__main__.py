"""`make soak-spark`: a suite, a driver with executors of its own, two numbered senders; kill after kill; the counts.

`python -m tests.soak.spark [KILL …]`. SOAK_KILLS (10) is how often each kind of kill is made, SOAK_SECONDS (3600) when
it ends in any case, SOAK_SEED the order. The next kill comes as soon as each query has done another batch. The verdict:
each message that was accepted is in Parquet exactly once, by way of the source alone (`raw`), and by way of source,
sink and source (`sent`).
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from enmasse.testing import Suite, running
from tests.soak.__main__ import number
from tests.soak.spark.driver import TARGETS
from tests.soak.spark.job import MASTER, PATIENCE, Job
from tests.soak.spark.sender import Sender

PAUSE = 1.0
"""Seconds, at most, between a batch and the next kill: so that kills come at any part of a batch."""
FLAVOR = "small-persisted-queue"
ADDRESSES = {name: {"type": "queue", "flavor": FLAVOR, "duplicates": "message-id"} for name in TARGETS}


class Soak:
    """Kills, how many of each kind were made, and what was found."""

    def __init__(self, job: Job, kinds: list[str], kills: int) -> None:
        self.job, self.kinds, self.kills = job, kinds, kills
        self.made: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        """Of a kind: there was nothing to kill, or the moment did not come."""
        self.waits: defaultdict[str, list[float]] = defaultdict(list)
        """By kind: seconds from the kill until each query has done another batch."""

    def run(self, seconds: float) -> None:
        """Kill until each kind was made so often, or for so long. Raises TimeoutError if no batch comes."""
        began, turn = time.monotonic(), list[str]()
        while (left := [kind for kind in self.kinds if self.made[kind] < self.kills]) and (
            time.monotonic() - began < seconds
        ):
            turn = [kind for kind in turn if kind in left] or self.job.rng.sample(left, len(left))
            kind = turn.pop()
            time.sleep(self.job.rng.uniform(0, PAUSE))
            self.job.start()
            at = time.monotonic()
            placed = self.job.kills[kind]()
            (self.made if placed else self.missed)[kind] += 1
            self.job.progress()
            self.waits[kind].append(time.monotonic() - at)
            say(f"{at - began:6.0f} s  {kind:<38} {'' if placed else 'not made':<9} {self.waits[kind][-1]:5.0f} s")

    def count(self, way: str, address: str, wanted: set[str]) -> None:
        """Compare what has come with what was accepted, once all of it is there."""
        found = Counter[str]()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and not wanted <= set(found):
            self.job.start()
            time.sleep(2)
            found = self.job.rows(address)
        lost, doubled = wanted - set(found), {key for key, many in found.items() if many > 1}
        say(f"{way}: {len(wanted):,} accepted, {sum(found.values()):,} rows, {len(lost)} lost, {len(doubled)} doubled")
        for what, some in (("lost", sorted(lost)), ("doubled", sorted(doubled))):
            if some:
                self.job.problems.append(f"{way}: {what}: {', '.join(some[:10])}{' …' if len(some) > 10 else ''}")

    def table(self) -> None:
        """Print how many kills of each kind were made."""
        say(f"{'kill':<38} {'made':>5} {'not made':>9} {'s until a batch':>16}")
        for kind in self.kinds:
            median = f"{statistics.median(self.waits[kind]):.0f}" if self.waits[kind] else "-"
            say(f"{kind:<38} {self.made[kind]:>5} {self.missed[kind]:>9} {median:>16}")
        short = [kind for kind in self.kinds if self.made[kind] < self.kills]
        say(f"{self.kills} of each were made" if not short else f"fewer than {self.kills}: {', '.join(short)}")


def say(line: str) -> None:
    print(line, flush=True)


def soak(folder: Path, suite: Suite, kinds: list[str], kills: int, seconds: float, seed: int) -> bool:
    """Run; whether all was well."""
    job = Job(folder, suite, random.Random(seed))
    it = Soak(job, kinds or list(job.kills), kills)
    if unknown := set(it.kinds) - job.kills.keys():
        sys.exit(f"no such kill: {', '.join(sorted(unknown))}; there are: {', '.join(job.kills)}")
    senders = {address: Sender(suite.url, address) for address in ("raw", "sent")}
    suite.up()
    for sender in senders.values():
        sender.start()
    try:
        job.start()
        job.progress()
        it.run(seconds)
        for sender in senders.values():
            sender.over.set()
        for sender in senders.values():
            sender.join(60)
        it.count("source", "raw", senders["raw"].accepted)
        it.count("source, sink, source", "back", senders["sent"].accepted)
    except TimeoutError:
        pass
    finally:
        job.end()
    it.table()
    for problem in job.problems:
        say(f"! {problem}")
    say(f"seed {seed}: {'FAILED' if job.problems else 'PASSED'}")
    return not job.problems


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.spark", description=__doc__)
    parser.add_argument("kills", nargs="*", metavar="KILL", help="only these kinds")
    kinds = parser.parse_args().kills
    kills, seconds = number("SOAK_KILLS", 10), number("SOAK_SECONDS", 3600)
    seed = number("SOAK_SEED", random.SystemRandom().randrange(1 << 32))
    for told in (signal.SIGINT, signal.SIGTERM):
        signal.signal(told, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="enmasse-soak-spark-"))
    say(f"seed {seed}, {kills} kills of each kind in at most {seconds} s, {MASTER}")
    with (folder / "stderr").open("w") as errors, running(folder / "suite", ADDRESSES) as suite:
        suite.stderr = errors
        passed = soak(folder, suite, kinds, kills, seconds, seed)
    if not passed:
        say(f"spools, checkpoints, files and logs are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
