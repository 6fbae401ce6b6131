"""Options, barriers and results of a load process, whatever its protocol."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Command = Callable[[argparse.Namespace], dict[str, Any]]


def parser(description: str | None, commands: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser with the options that both protocols have."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("what", choices=commands)
    made.add_argument("--host", default="127.0.0.1")
    made.add_argument("--port", type=int, required=True)
    made.add_argument("--count", type=int, default=100_000)
    made.add_argument("--size", type=int, default=100, help="payload bytes")
    made.add_argument("--rate", type=float, default=0, help="messages a second in all, 0 = as fast as it goes")
    made.add_argument("--latency", action="store_true")
    made.add_argument(
        "--barrier", action="store_true", help="say 'ready', wait for a line, then begin; the same at the end"
    )
    made.add_argument("--timeout", type=float, default=60)
    return made


def run(options: argparse.ArgumentParser, commands: Mapping[str, Command]) -> None:
    """Run the command that the arguments name, and print its result as one JSON object."""
    args = options.parse_args()
    sys.stdout.write(json.dumps(commands[args.what](args)) + "\n")
    sys.stdout.flush()


def ready() -> None:
    """Say that the load is about to begin."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def barrier(args: argparse.Namespace, word: str) -> None:
    """With `--barrier`, print `word` and wait for a line on stdin."""
    if args.barrier:
        sys.stdout.write(word + "\n")
        sys.stdout.flush()
        sys.stdin.readline()


def latencies(waits: Sequence[int]) -> dict[str, float]:
    """Return the median and the 99th percentile of waits in ns as µs, without the first tenth, which warms up."""
    if not waits:
        return {}
    ordered = sorted(waits[len(waits) // 10 :])
    return {f"p{p}_us": ordered[min(len(ordered) - 1, len(ordered) * p // 100)] / 1e3 for p in (50, 99)}
