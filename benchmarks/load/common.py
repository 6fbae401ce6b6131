"""Options, barriers and results of a load process, whatever its protocol."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
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
    print(json.dumps(commands[args.what](args)), flush=True)


def barrier(args: argparse.Namespace, word: str) -> None:
    """With `--barrier`, print `word` and wait for a line on stdin."""
    if args.barrier:
        print(word, flush=True)
        sys.stdin.readline()


def latencies(waits: Sequence[NDArray[Any]]) -> dict[str, float]:
    """Return the median and the 99th percentile of waits in ns as µs, without the first tenth, which warms up."""
    if not waits:
        return {}
    every = np.concatenate(waits) / 1e3
    p50, p99 = np.percentile(every[len(every) // 10 :], [50, 99])
    return {"p50_us": float(p50), "p99_us": float(p99)}
