"""`make demo`: the whole story in a few minutes, checked; exit status 0 only if every check held."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from demo import doors, faults, mqtt, semantics, telemetry, tenants
from demo.report import Report
from enmasse import testing

ADDRESSES = {
    "telemetry": {"type": "topic", "flavor": "small-persisted-topic"},
    "results": {"type": "queue", "flavor": "small-persisted-queue"},
    "commands": {"type": "topic", "flavor": "small-persisted-topic"},
    "orders": {"type": "queue", "flavor": "small-persisted-queue"},
    "requests": {"type": "anycast"},
}


def main() -> int:
    """Run the demo and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the pictures go")
    parser.add_argument("--keep", action="store_true", help="keep the scratch folder with logs and data")
    args = parser.parse_args()
    report = Report()
    if shutil.which("java") is None:
        report.say("Java 17 is needed for the Spark part (Debian: openjdk-17-jre-headless)")
        return 2
    folder = Path(tempfile.mkdtemp(prefix="enmasse-demo-"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does: nothing is left behind
    interrupted = False
    try:
        run(folder, args.out, report)
    except KeyboardInterrupt:
        interrupted = True
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        report.say("[red]interrupted[/red]")
    except Exception as error:
        report.check("the demo ran to its end", False, f"{type(error).__name__}: {error}")
    if interrupted and not args.keep:
        shutil.rmtree(folder, ignore_errors=True)
        return 130
    if args.keep or report.failed:
        report.say(f"logs and data: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    report.step("summary")
    report.say(f"{report.passed} checks held, {len(report.failed)} did not")
    for what in report.failed:
        report.say(f"[red]✗[/red] {what}")
    return 1 if report.failed else 0


def run(folder: Path, out: Path, report: Report) -> None:
    """Start a suite in `folder`, show each part with it, and draw the pictures into `out`."""
    report.step("starting EnMasse")
    with testing.running(folder, ADDRESSES, options=doors.OPTIONS) as running:
        seconds = running.up(300)
        ports = f"AMQP {5672 + running.offset}, MQTT {running.mqtt_port}"
        report.say(f"ready after {seconds:.1f} s, {ports}, folder {folder}")
        semantics.show(running, report)
        mqtt.show(running, report)
        doors.show(running, report)
        faults.show(running, report)
        series, found = telemetry.show(running, report, folder)
        status = running.status()
        tenants.show(running, report)
        report.check("EnMasse ended cleanly", running.down() == 0)
    from demo import pictures  # imported late: matplotlib takes a second

    out.mkdir(parents=True, exist_ok=True)
    pictures.series_picture(series, found, out / "telemetry.png")
    pictures.topology_picture(status, out / "topology.png")
    report.step("pictures")
    for name in ("telemetry.png", "topology.png"):
        report.say(str(out / name))


if __name__ == "__main__":
    sys.exit(main())
