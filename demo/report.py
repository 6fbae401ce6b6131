"""Output of the demo: steps with a tick or a cross, and whether every check held."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Report:
    """Collects checks; `failed` lists those that did not hold."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self.began = time.monotonic()
        self.passed = 0
        self.failed: list[str] = []

    def step(self, title: str) -> None:
        """Print the title of a step, with the seconds since the beginning."""
        self.console.print(f"\n[bold]{title}[/bold]  [dim]{time.monotonic() - self.began:.0f} s[/dim]")

    def say(self, text: str) -> None:
        """Print a line of text."""
        self.console.print(f"  {text}")

    def check(self, what: str, held: bool, found: object = "") -> bool:
        """Show one fact with what was found, count it, and return whether it holds."""
        mark = "[green]✓[/green]" if held else "[red]✗[/red]"
        self.console.print(f"  {mark} {what}" + (f" [dim]({found})[/dim]" if found != "" else ""))
        if held:
            self.passed += 1
        else:
            self.failed.append(f"{what} ({found})")
        return held

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Progress]:
        """Show a bar while the block runs; its task is the first of `task_ids`."""
        columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True) as progress:
            progress.add_task(title, total=total)
            yield progress
