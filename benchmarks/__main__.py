"""`python -m benchmarks [NAME …]`: side by side, as ratios, with median and spread. NAMES has the names.

`mqtt --short` measures the flows beside mosquitto only, in under five minutes.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys

NAMES = (
    "router",
    "broker",
    "broker_jobs",
    "broker_selectors",
    "suite",
    "provision",
    "mqtt",
    "identity",
    "console",
    "neighbour",
    "spark",
    "two_routers",
    "protocols",
)


def main() -> int:
    short = "--short" in sys.argv
    wanted = [argument for argument in sys.argv[1:] if argument != "--short"] or list(NAMES)
    if short and wanted != ["mqtt"]:
        print("--short is for mqtt alone", file=sys.stderr)
        return 2
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    print(f"{os.cpu_count()} cores, {platform.platform()}, CPython {platform.python_version()}")
    print(f"load average before: {os.getloadavg()[0]:.1f}", flush=True)
    for name in wanted:
        run = importlib.import_module(f"benchmarks.{name}").main
        run(short=True) if short else run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
