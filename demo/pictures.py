"""Two pictures: the year with its daily maxima, and the topology that ran."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import matplotlib

from enmasse.text import counted

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from demo.telemetry import Reading, Window

COLOURS = {"seattle": "#2a6f97", "san-francisco": "#c1666b"}
CLIENTS, DEVICES = "AMQP applications\nand Spark", "MQTT devices"
PLACES = {
    "configserv": (3.7, 3.0), "ragent": (2.1, 2.0), "storage_controller": (5.3, 2.0), "router": (2.1, 1.0),
    "mqtt_gateway": (0.0, 2.0), "subserv": (3.5, 1.2), "mqtt_lwt": (4.25, 1.85),
}  # fmt: skip
DIALS = [
    ("clients", "router"), ("router", "ragent"), ("ragent", "configserv"), ("storage_controller", "configserv"),
    ("devices", "mqtt_gateway"), ("mqtt_gateway", "router"), ("mqtt_gateway", "configserv"), ("subserv", "router"),
    ("subserv", "configserv"), ("mqtt_lwt", "router"), ("mqtt_lwt", "configserv"),
]  # fmt: skip
DIAL_BROKERS = ("router", "storage_controller", "subserv")


def series_picture(series: dict[str, list[Reading]], found: dict[tuple[str, dt.datetime], Window], path: Path) -> None:
    """Draw the readings of each device with the windows that Spark has computed."""
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
    """Every process that ran, and which addresses lie where: the control plane above, the data plane below."""
    brokers = [c for c in status["components"] if c["kind"] == "broker"]
    spots = {CLIENTS: (0.0, 1.0), DEVICES: (0.0, 3.0)}
    spots |= {c["name"]: PLACES[c["kind"]] for c in status["components"] if c["kind"] in PLACES}
    spots |= {c["name"]: (5.4 / (len(brokers) + 1) * (i + 1) + 1, 0.0) for i, c in enumerate(brokers)}
    figure, axis = plt.subplots(figsize=(12, 7))
    axis.set_xlim(-0.7, 6.4)
    axis.set_ylim(-0.5, 3.4)
    axis.set_axis_off()
    boxes = {name: _box(axis, spots[name], name, "#eef4fb", "#2a6f97") for name in (CLIENTS, DEVICES)}
    for component in status["components"]:
        if component["name"] in spots:
            colour = "#e9f6ec" if component["ready"] else "#f8d7da"
            boxes[component["name"]] = _box(
                axis, spots[component["name"]], _about(component, status), colour, "#22aa66"
            )
    names = {c["kind"]: c["name"] for c in status["components"]} | {"clients": CLIENTS, "devices": DEVICES}
    dials = [(names[a], names[b]) for a, b in DIALS if a in names and b in names]
    dials += [(names[a], b["name"]) for a in DIAL_BROKERS if a in names for b in brokers]
    for a, b in dials:
        style = {"arrowstyle": "-|>", "color": "#556677", "shrinkA": 3, "shrinkB": 3}
        axis.annotate("", spots[b], spots[a], arrowprops={**style, "patchA": boxes[a], "patchB": boxes[b]})
    axis.set_title("processes: an arrow points from the connecting to the listening one", loc="left")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _about(component: dict[str, Any], status: dict[str, Any]) -> str:
    restarts = component["restarts"]
    text = f"{component['name']}\npid {component['pid']}"
    if restarts:
        text += f", started again {counted(restarts, 'time')}"
    held = [a["name"] for a in status["addresses"] if component["name"] in a["components"]]
    if component["kind"] == "broker" and held:
        text += "\n" + ", ".join(held[:4]) + (" …" if len(held) > 4 else "")
    return text


def _box(axis: Axes, spot: tuple[float, float], text: str, fill: str, edge: str) -> Any:
    """A text in a box; the patch of the box, at which arrows end."""
    style = {"boxstyle": "round,pad=0.6", "fc": fill, "ec": edge}
    return axis.text(*spot, text, ha="center", va="center", fontsize=10, bbox=style, zorder=3).get_bbox_patch()
