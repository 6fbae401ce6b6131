"""The file of --output: a new secret, for its owner alone."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import click

from enmasse.cli.common import end


def reserve(output: Path) -> None:
    """Make the file, which must not exist, before anything is changed; a command that fails removes it."""
    try:
        os.close(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        text = f"--output {output}: the file exists already; nothing was changed. Name a new one, or remove it first."
        end("user.password.not-written", text)
    except OSError as error:
        end("user.password.not-written", f"--output {output}: {error.strerror}; nothing was changed.")

    def remove_empty() -> None:
        with contextlib.suppress(OSError):
            if not output.stat().st_size:
                output.unlink()

    click.get_current_context().call_on_close(remove_empty)


def write(output: Path, secret: str) -> None:
    """Write the secret into the file, as its only line. Ends the command if that fails."""
    from enmasse.storage.files import write_text

    try:
        write_text(output, f"{secret}\n")
    except OSError as error:
        end("user.password.not-written", f"--output {output}: {error.strerror}")
