"""A suite with address spaces."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from enmasse.testing import Suite, running


@contextlib.contextmanager
def running_with_spaces(folder: Path, files: dict[str, Any], **more: Any) -> Iterator[Suite]:
    """Yield a suite to be started, with these further files: path in the configuration's folder → content."""
    with running(folder, **more) as suite:
        for path, content in files.items():
            file = suite.config / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(content, indent=2))
        yield suite
