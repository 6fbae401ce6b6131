"""Import of structlog without rich, which it would load for coloured tracebacks: two thirds of the time and memory of
the import, in each process, and all write JSON. rich itself can still be imported.
"""

from __future__ import annotations

import sys

__all__ = ["structlog"]

_hidden = "rich" not in sys.modules
if _hidden:
    sys.modules["rich"] = None  # type: ignore[assignment]  # an import of rich fails
try:
    import structlog
finally:
    if _hidden:
        del sys.modules["rich"]
