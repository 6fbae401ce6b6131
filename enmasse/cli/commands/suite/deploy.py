"""`enmasse deploy`: install or upgrade EnMasse in a Kubernetes cluster, by Helm and the chart of this version."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from enmasse.cli.common import COULD_NOT_START, FAILED, INTERRUPTED, Seconds, done, end, report, tell
from enmasse.process.installed import INSTALLED

LOOK = 1.0
"""Seconds between two looks at how far it is."""


@click.command(name="deploy", short_help="Install or upgrade EnMasse in a Kubernetes cluster.")
@click.option("--namespace", required=True, metavar="NAME", help="Namespace; it is made if it is not there.")
@click.option("--kube-context", metavar="NAME", help="Context of the kubeconfig, instead of the current one.")
@click.option(
    "--release", default="enmasse", show_default=True, metavar="NAME", help="Begins the names of all objects."
)
@click.option("--values", "-f", "files", multiple=True, type=click.Path(exists=True, dir_okay=False), metavar="FILE",
              help="Values of the chart, as YAML or JSON. The last file wins.")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A value of the chart.")
@click.option("--timeout", type=Seconds(above_zero=True), default=600.0, show_default=True, metavar="SECONDS",
              help="How long it may take until everything is ready.")  # fmt: skip
def command(
    namespace: str,
    kube_context: str | None,
    release: str,
    files: tuple[str, ...],
    settings: tuple[str, ...],
    timeout: float,
) -> None:
    """Install EnMasse into a namespace of a Kubernetes cluster, or upgrade it there. It needs helm, and ends when
    everything is ready; what is not ready yet is shown meanwhile.

    An upgrade begins with the values of the release: only what is to change has to be given.

    Exit status 0: everything is ready. 1: Helm failed, or something is not ready within --timeout. 2: there is no helm.
    """
    helm = shutil.which("helm")
    if helm is None:
        end(
            "deploy.helm.missing",
            "`enmasse deploy` needs helm (3.14 or newer) on PATH, which does not have it. Install it and try again.",
            COULD_NOT_START,
        )
    where = ["--namespace", namespace, *(["--kube-context", kube_context] if kube_context else [])]
    chosen = [
        *(word for file in files for word in ("--values", file)),
        *(word for s in settings for word in ("--set", s)),
    ]
    install = [
        helm, "upgrade", release, str(_chart()), "--install", "--create-namespace",
        "--reset-then-reuse-values", "--wait", "--timeout", f"{max(1, round(timeout))}s", *where, *chosen,
    ]  # fmt: skip
    running = None
    try:
        running = subprocess.Popen(install, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        shown = ""
        while True:
            try:
                _, problems = running.communicate(timeout=LOOK)
                break
            except subprocess.TimeoutExpired:
                line = _progress([helm, "status", release, "--output", "json", "--show-resources", *where])
                if line and line != shown:
                    report(line)
                    shown = line
    except KeyboardInterrupt:
        if running is not None:  # else the interrupt came while helm was being started
            running.terminate()
            running.communicate()
        end(
            "deploy.command.interrupted",
            f"interrupted; `helm rollback {release} --namespace {namespace}` takes back what was begun",
            INTERRUPTED,
        )
    if running.returncode:
        missing = _progress([helm, "status", release, "--output", "json", "--show-resources", *where])
        report(problems.strip())
        end("deploy.helm.failed", missing or f"Helm ended with status {running.returncode}", FAILED)
    tell(f"{release} in {namespace} is ready")
    notes = subprocess.run([helm, "get", "notes", release, *where], capture_output=True, text=True, check=False)
    tell(notes.stdout.partition("NOTES:\n")[2].rstrip())
    done("", "deployed", release=release, namespace=namespace)


def _progress(status: list[str]) -> str:
    """Return in a line what is not ready; empty if everything is, or if it is unknown."""
    try:
        found = subprocess.run(status, capture_output=True, text=True, check=False, timeout=30)
        return waits_for(json.loads(found.stdout))
    except (ValueError, subprocess.TimeoutExpired):
        return ""


def waits_for(status: Any) -> str:
    """`waits for: mqtt-gateway 1/2, router 0/1` of the JSON of `helm status --show-resources`; empty if for nothing."""
    release = str(status.get("name", ""))
    lines = []
    for kind, objects in (status.get("info", {}).get("resources") or {}).items():
        if not kind.endswith(("/Deployment", "/StatefulSet")):
            continue
        for each in objects:
            wanted = each.get("spec", {}).get("replicas", 1)
            now = each.get("status", {})
            new = now.get("observedGeneration", 0) >= each["metadata"].get("generation", 0)
            ready = min(now.get("readyReplicas", 0), now.get("updatedReplicas", 0)) if new else 0
            if ready < wanted:
                lines.append(f"{each['metadata']['name'].removeprefix(f'{release}-')} {ready}/{wanted}")
    return f"waits for: {', '.join(sorted(lines))}" if lines else ""


def _chart() -> Path:
    """Return the folder of the chart: inside the installed package, or beside it in a checkout."""
    if INSTALLED.is_dir():
        return INSTALLED / "charts" / "enmasse"
    spec = find_spec("charts")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).with_name("enmasse")
