"""Two pictures: the year with its daily maxima, and the topology that ran."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from demo.telemetry import Reading, Window

COLOURS = {"seattle": "#2a6f97", "san-francisco": "#c1666b"}


def series_picture(series: dict[str, list[Reading]], found: dict[tuple[str, dt.datetime], Window], path: Path) -> None:
    figure, axes = plt.subplots(len(series), 1, figsize=(12, 7), sharex=True, sharey=True)
    for axis, (device, rows) in zip(axes, series.items(), strict=True):
        colour = COLOURS[device]
        axis.plot([r.time for r in rows], [r.temperature for r in rows], color=colour, alpha=0.35, lw=0.6)
        days = sorted((start, window) for (name, start), window in found.items() if name == device)
        noon = [start + dt.timedelta(hours=12) for start, _ in days]
        axis.plot(noon, [w.maximum for _, w in days], color=colour, lw=1.4, label="daily maximum, from Spark")
        axis.plot(noon, [w.minimum for _, w in days], color=colour, lw=1.0, ls=":", label="daily minimum, from Spark")
        axis.set_title(f"{device}: {len(rows)} hourly readings, {len(days)} windows", loc="left")
        axis.set_ylabel("°F")
        axis.legend(loc="upper left", frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def topology_picture(status: dict[str, Any], path: Path) -> None:
    """Every process that ran, and which addresses lie where."""
    places = {"configserv": (2, 3), "ragent": (1, 2), "storage_controller": (3, 2), "router": (1, 1)}
    brokers = [c for c in status["components"] if c["kind"] == "broker"]
    spots = {c["name"]: places[c["kind"]] for c in status["components"] if c["kind"] in places}
    spots |= {c["name"]: (1.6 + i * 1.5, -0.2 - 0.7 * (i % 2)) for i, c in enumerate(brokers)}
    figure, axis = plt.subplots(figsize=(12, 7))
    names = {c["kind"]: c["name"] for c in status["components"]}
    arrows = [("ragent", "configserv"), ("storage_controller", "configserv"), ("router", "ragent")]
    lines = [(spots[names[a]], spots[names[b]]) for a, b in arrows if a in names and b in names]
    for broker in brokers:
        lines += [(spots[names[k]], spots[broker["name"]]) for k in ("router", "storage_controller") if k in names]
    for a, b in lines:
        axis.annotate("", b, a, arrowprops={"arrowstyle": "->", "color": "#567", "shrinkA": 32, "shrinkB": 40})
    for component in status["components"]:
        if component["name"] not in spots:
            continue
        held = [a["name"] for a in status["addresses"] if component["name"] in a["components"]]
        text = f"{component['name']}\npid {component['pid']}, {component['restarts']} restarts"
        if component["kind"] == "broker" and held:
            text += "\n" + ", ".join(held[:4]) + (" …" if len(held) > 4 else "")
        colour = "#e9f6ec" if component["ready"] else "#f8d7da"
        box = {"boxstyle": "round,pad=0.6", "fc": colour, "ec": "#2a6"}
        axis.text(*spots[component["name"]], text, ha="center", va="center", fontsize=10, bbox=box)
    axis.set_xlim(0, max(x for x, _ in spots.values()) + 1)
    axis.set_ylim(min(y for _, y in spots.values()) - 0.5, 3.5)
    axis.set_axis_off()
    axis.set_title("what ran: an arrow points from who dials to who listens", loc="left")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
